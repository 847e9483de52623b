"""State in files: what was saved is read again, whatever was merged, and nothing that is torn."""

import math
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn import durable
from sojourn.engine.wire.messages import Change
from sojourn.engine.worker import store
from sojourn.engine.worker.state import State
from sojourn.errors import InputError

WEEK = 7 * 24 * 3600 // 5
"""Commits in a week, one every 5 s."""


def every(shard: int) -> bool:  # noqa: ARG001
    return True


def changes(state: State) -> list[Change]:
    state.cut()
    assert state.drain(lambda: False)
    return state.take_changes()


def commit(path: Path, shards: dict[int, State]) -> int:
    return store.write(path, {shard: changes(state) for shard, state in shards.items()})


def filled(data: dict[Any, Any]) -> State:
    state = State()
    state.update(data)
    return state


def shards_in(path: Path) -> list[int]:
    with store.File(path) as file:
        return list(file.index)


def test_what_was_written_is_read_and_has_no_changes(tmp_path: Path) -> None:
    shards = {3: filled({"a": [1], 2: (1, 2)}), 70_000: filled({None: {}})}
    size = commit(tmp_path / "one", shards)
    assert size == (tmp_path / "one").stat().st_size
    found = store.read([tmp_path / "one"], every)
    assert found == {3: {"a": [1], 2: (1, 2)}, 70_000: {None: {}}}
    assert [state.cut() for state in found.values()] == [0, 0]


def test_later_files_go_over_earlier_ones(tmp_path: Path) -> None:
    state, other = filled({"a": 1, "b": 1, "c": 1}), filled({"x": 1})
    commit(tmp_path / "one", {0: state, 1: other})
    state["a"] = 2
    del state["b"]
    commit(tmp_path / "two", {0: state})
    paths = [tmp_path / "one", tmp_path / "two"]
    assert store.read(paths, every) == {0: {"a": 2, "c": 1}, 1: {"x": 1}}
    assert store.read(paths[:1], every) == {0: {"a": 1, "b": 1, "c": 1}, 1: {"x": 1}}


def test_only_the_shards_wanted_are_read(tmp_path: Path) -> None:
    commit(tmp_path / "one", {shard: filled({shard: shard}) for shard in range(10)})
    assert store.read([tmp_path / "one"], lambda shard: shard % 3 == 1) == {
        shard: {shard: shard} for shard in (1, 4, 7)
    }
    assert shards_in(tmp_path / "one") == list(range(10))


def test_shards_without_changes_take_no_room(tmp_path: Path) -> None:
    commit(tmp_path / "one", {0: State(), 1: filled({1: 1}), 2: State()})
    assert shards_in(tmp_path / "one") == [1]
    empty = store.write(tmp_path / "two", {})
    assert empty < 50
    assert shards_in(tmp_path / "two") == []
    assert store.read([], every) == store.read([tmp_path / "two"], every) == {}


def test_a_file_is_private_and_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "one"
    commit(path, {0: filled({1: 1})})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError, match="one"):
        commit(path, {0: filled({1: 2})})
    assert store.read([path], every) == {0: {1: 1}}


def test_it_is_on_disk_before_the_writer_goes_on(tmp_path: Path) -> None:
    with patch.object(durable, "sync") as sync:
        store.write(tmp_path / "one", {})
    assert [call.args for call in sync.call_args_list] == [(tmp_path / "one",), (tmp_path,)]


def test_a_file_that_could_not_be_finished_is_gone(tmp_path: Path) -> None:
    with (
        patch.object(durable, "sync", side_effect=OSError("disk full")),
        pytest.raises(OSError, match="disk full"),
    ):
        commit(tmp_path / "one", {0: filled({1: 1})})
    assert list(tmp_path.iterdir()) == []


def test_a_commit_is_as_large_as_what_changed(tmp_path: Path) -> None:
    shards = {s: filled({k: [k] for k in range(s, 20_000, 8)}) for s in range(8)}
    whole = commit(tmp_path / "0", shards)
    for key in range(0, 20_000, 100):
        shards[key % 8][key].append(1)
    part = commit(tmp_path / "1", shards)
    assert 0.005 < part / whole < 0.02
    assert commit(tmp_path / "2", shards) < 50
    assert store.read([tmp_path / name for name in "012"], every) == shards


def test_large_and_small_values_mix(tmp_path: Path) -> None:
    data: dict[int, Any] = {n: bytes(300_000 if n % 100 == 0 else n % 50) for n in range(1500)}
    data |= {n: n for n in range(1500, 10_000)}
    commit(tmp_path / "one", {0: filled(data)})
    with store.File(tmp_path / "one") as file:
        sizes = [len(block) for block in file.blocks(0)]
    assert sum(sizes) == len(data)
    assert len(sizes) > 15
    assert store.read([tmp_path / "one"], every) == {0: data}


def test_a_value_of_four_gibibytes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"one: a key and its .* 4294967296 bytes in shard 7; ke"):
        store.write(tmp_path / "one", {7: [(b"i\1", b"", bytes(2**32))]})
    assert list(tmp_path.iterdir()) == []


def test_files_beyond_four_gibibytes_are_read(tmp_path: Path) -> None:
    """With a hole in front of what is read, so that it takes no room."""
    commit(tmp_path / "one", {0: filled({1: "first"}), 5: filled({2: "second"})})
    data, hole = (tmp_path / "one").read_bytes(), 5 << 30
    end = len(data) - store.TRAILER.size
    offset, _, magic = store.TRAILER.unpack(data[end:])
    index = msgspec.msgpack.decode(data[offset:end], type=dict[int, tuple[int, int, int]])
    moved = msgspec.msgpack.encode({s: (at + hole, n, c) for s, (at, n, c) in index.items()})
    with (tmp_path / "two").open("wb") as file:
        file.seek(hole)
        file.write(data[:offset] + moved)
        file.write(store.TRAILER.pack(hole + offset, crc32(moved), magic))
    assert store.read([tmp_path / "two"], every) == {0: {1: "first"}, 5: {2: "second"}}
    store.merge([tmp_path / "two"], tmp_path / "three", drop_deleted=True)
    assert (tmp_path / "three").read_bytes() == data


# What is not a whole file.


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone: the checkpoint lacks this file .*another check"):
        store.read([tmp_path / "gone"], every)


def test_a_file_cut_short_is_refused_wherever_it_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "one"
    commit(path, {s: filled({n: n for n in range(5)}) for s in range(3)})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        for act in (shards_in, lambda path: store.read([path], every)):
            with pytest.raises(InputError, match="one: is not a complete file of state"):
                act(path)


@pytest.mark.parametrize("data", [b"", b"x", b"{}\n" * 100, bytes(1000)])
def test_a_foreign_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "notes.txt").write_bytes(data)
    with pytest.raises(
        InputError, match=r"notes\.txt: is not a complete file .* another checkpoint"
    ):
        store.merge([tmp_path / "notes.txt"], tmp_path / "out", drop_deleted=False)
    assert not (tmp_path / "out").exists()


def test_no_changed_byte_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "one"
    commit(path, {s: filled({n: n for n in range(5)}) for s in range(2)})
    whole = path.read_bytes()
    for position in range(len(whole)):
        for bit in (1, 128):
            data = bytearray(whole)
            data[position] ^= bit
            path.write_bytes(data)
            with pytest.raises(InputError, match="one: is not a complete file of state"):
                store.read([path], every)


# Merging.

DELETED = object()
COMMITS = st.lists(
    st.dictionaries(
        st.integers(0, 2),
        st.dictionaries(
            st.sampled_from([0, 1, "a", (1, 2), None]),
            st.just(DELETED) | st.integers(0, 9) | st.lists(st.integers(0, 9), max_size=3),
            max_size=4,
        ),
        max_size=3,
    ),
    min_size=1,
    max_size=6,
)


@given(COMMITS, st.data(), st.sampled_from([2, 100, store.BLOCK]))
def test_merging_in_any_groups_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[dict[int, dict[Any, Any]]],
    data: st.DataObject,
    block: int,
) -> None:
    folder = tmp_path_factory.mktemp("store")
    shards = {shard: State() for shard in range(3)}
    paths: list[Path] = []
    names = map(str, range(1000))
    with patch.object(store, "BLOCK", block):
        for changed in commits:
            for shard, entries in changed.items():
                for key, value in entries.items():
                    if value is not DELETED:
                        shards[shard][key] = value
                    else:
                        shards[shard].pop(key, None)
            paths.append(folder / next(names))
            commit(paths[-1], shards)
        assert restored(paths) == shards
        while len(paths) > 1:
            first = data.draw(st.integers(0, len(paths) - 2))
            last = data.draw(st.integers(first + 2, len(paths)))
            out = folder / next(names)
            store.merge(paths[first:last], out, drop_deleted=first == 0)
            paths[first:last] = [out]
            assert restored(paths) == shards


def restored(paths: Sequence[Path]) -> dict[int, State]:
    return {shard: State() for shard in range(3)} | store.read(paths, every)


def test_merging_keeps_the_newest_and_no_more(tmp_path: Path) -> None:
    state = filled(dict.fromkeys(range(1000), "first"))
    first = commit(tmp_path / "0", {0: state})
    for number in range(1, 4):
        state.update(dict.fromkeys(range(1000), f"{number:5}"))
        commit(tmp_path / f"{number}", {0: state})
    paths = [tmp_path / f"{number}" for number in range(4)]
    assert store.merge(paths, tmp_path / "out", drop_deleted=True) == first
    assert store.read([tmp_path / "out"], every) == {0: state}


def test_deletions_are_kept_as_long_as_an_older_file_may_need_them(tmp_path: Path) -> None:
    state = filled({"a": 1, "b": 1})
    commit(tmp_path / "0", {0: state})
    for number, key in enumerate("ab", 1):
        del state[key]
        commit(tmp_path / f"{number}", {0: state})
    paths = [tmp_path / name for name in "012"]
    store.merge(paths[1:], tmp_path / "kept", drop_deleted=False)
    assert store.read([paths[0], tmp_path / "kept"], every) == {0: {}}
    store.merge([paths[0], tmp_path / "kept"], tmp_path / "dropped", drop_deleted=True)
    assert shards_in(tmp_path / "dropped") == []


def test_values_are_merged_without_being_unpickled(tmp_path: Path) -> None:
    for name in "ab":
        store.write(tmp_path / name, {0: [(name.encode(), b"no pickle", b"nor this")]})
    store.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "out", drop_deleted=True)
    with store.File(tmp_path / "out") as file:
        assert [change[0] for block in file.blocks(0) for change in block] == [b"a", b"b"]


# When to merge.


def run(commits: int, size: int, merged: Callable[[int], float]) -> tuple[float, int, int]:
    """Bytes written for each byte committed, the most files at a time and the number of merges,
    if files of altogether so many bytes merge into one of `merged` bytes."""
    raw: list[int] = []
    sizes: list[int] = []
    written, most, merges = 0, 0, 0
    for _ in range(commits):
        raw.append(size)
        sizes.append(size)
        written += size
        most = max(most, len(sizes))
        count = store.to_merge(sizes)
        if count:
            raw[-count:] = [sum(raw[-count:])]
            sizes[-count:] = [round(merged(raw[-1]))]
            written += sizes[-1]
            merges += 1
    return written / (commits * size), most, merges


def distinct(size: int) -> Callable[[int], float]:
    """Changes hit the keys of a state of that many bytes at random."""
    return lambda raw: size * -math.expm1(-raw / size)


@pytest.mark.parametrize(
    ("merged", "amplification"),
    [(float, 10), (distinct(10_000), 3), (distinct(10**6), 7), (distinct(10**8), 10)],
    ids=["only new keys", "10 commits' worth", "1000 commits' worth", "more than a week's worth"],
)
def test_a_week_of_commits(merged: Callable[[int], float], amplification: float) -> None:
    written, most, merges = run(WEEK, 1000, merged)
    assert written < amplification
    assert most < 20
    assert merges < WEEK / 4


def test_writing_grows_with_the_logarithm_of_the_commits() -> None:
    written = [run(10**n, 1000, float)[0] for n in (2, 3, 4, 5)]
    steps = [later - earlier for earlier, later in pairwise(written)]
    assert max(steps) < math.log2(10)


def test_a_large_old_file_is_left_alone_until_it_is_worth_it() -> None:
    assert store.to_merge([10**9, 10, 10, 10, 10, 10, 10]) == 6
    assert store.to_merge([60, 10, 10, 10, 10, 10, 10]) == 7
    assert store.to_merge([10**9, 10, 10]) == 0
    assert store.to_merge([]) == store.to_merge([5]) == store.to_merge([0]) == 0


@given(st.lists(st.integers(0, 10**12), max_size=40))
def test_never_more_than_there_are_and_always_some_of_many(sizes: list[int]) -> None:
    count = store.to_merge(sizes)
    assert count == 0 or 2 <= count <= len(sizes)
    assert count or len(sizes) < 16


# In a process of its own.


def compact(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sojourn.engine.worker.compact", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_compacting_in_a_process(tmp_path: Path) -> None:
    state = filled({"a": 1, "b": 1})
    commit(tmp_path / "0", {0: state})
    del state["a"]
    commit(tmp_path / "1", {0: state})
    done = compact(tmp_path / "out", tmp_path / "0", tmp_path / "1", "--all")
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) == (tmp_path / "out").stat().st_size
    assert store.read([tmp_path / "out"], every) == {0: {"b": 1}}
    with store.File(tmp_path / "out") as file:
        assert file.index[0][2] == 1, "the deletion is dropped"
    compact(tmp_path / "some", tmp_path / "0", tmp_path / "1")
    with store.File(tmp_path / "some") as file:
        assert file.index[0][2] == 2


def test_compacting_that_fails_says_why_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"torn")
    done = compact(tmp_path / "out", tmp_path / "0")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"{tmp_path / '0'}: is not a complete file of state" in done.stderr
    assert os.listdir(tmp_path) == ["0"]


def test_compacting_needs_no_large_libraries() -> None:
    code = (
        "import sys, sojourn.engine.worker.compact;"
        "print(sorted({'numpy', 'pandas', 'pyarrow', 'pyspark', 'rich', 'zmq'} & {*sys.modules}))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert answer.stdout == b"[]\n"
