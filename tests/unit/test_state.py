"""State on disk: what was saved last is what is loaded, also by others, and no more is kept."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.engine.executor.state import MAX_FILES, StateStore
from sojourn.errors import InputError


def store(checkpoint: Path, executor: int = 0, executors: int = 1) -> StateStore:
    return StateStore(checkpoint, "count", executor, executors)


def load(checkpoint: Path, batch: int, executors: int = 1) -> dict[int, bytes]:
    """All shards, as that many executors load them."""
    shards: dict[int, bytes] = {}
    for executor in range(executors):
        mine, _ = store(checkpoint, executor, executors).load(batch)
        assert all(shard % executors == executor for shard in mine)
        shards |= mine
    return shards


def files(checkpoint: Path, executor: int = 0) -> set[str]:
    folder = checkpoint / "sojourn" / "state" / "count" / str(executor)
    return {path.name for path in folder.iterdir()}


def test_before_the_first_batch_there_is_nothing(tmp_path: Path) -> None:
    assert store(tmp_path).load(-1) == ({}, [])


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    saving = store(tmp_path)
    saving.save(0, 1, {3: b"three", 1: b"", 200: b"\0" * 1000}, b"")
    assert store(tmp_path).load(0) == ({3: b"three", 1: b"", 200: b"\0" * 1000}, [])


def test_an_unchanged_shard_is_not_written_again(tmp_path: Path) -> None:
    saving = store(tmp_path)
    saving.save(0, 1, {0: b"large" * 1000, 1: b"one"}, b"")
    saving.save(1, 1, {1: b"ONE"}, b"")
    folder = saving.own
    assert (folder / "1.1.data").read_bytes() == b"ONE"
    assert load(tmp_path, 1) == {0: b"large" * 1000, 1: b"ONE"}
    assert load(tmp_path, 0) == {0: b"large" * 1000, 1: b"one"}


def test_a_batch_that_changed_nothing_writes_only_its_index(tmp_path: Path) -> None:
    saving = store(tmp_path)
    saving.save(0, 1, {0: b"zero"}, b"")
    saving.save(1, 1, {}, b"")
    assert files(tmp_path) == {"0.1.data", "0.1.index", "1.1.index"}
    assert load(tmp_path, 1) == {0: b"zero"}


def test_nothing_saved_is_loaded_as_nothing(tmp_path: Path) -> None:
    store(tmp_path).save(0, 1, {}, b"")
    assert load(tmp_path, 0) == {}


@pytest.mark.parametrize("epochs", [(1, 2), (2, 1), (9, 10), (10, 9)])
def test_of_several_attempts_the_highest_epoch_wins(
    tmp_path: Path, epochs: tuple[int, int]
) -> None:
    for epoch in epochs:
        store(tmp_path).save(0, epoch, {0: f"of {epoch}".encode()}, f"p{epoch}".encode())
    assert store(tmp_path).load(0) == (
        {0: f"of {max(epochs)}".encode()},
        [f"p{max(epochs)}".encode()],
    )


def test_a_process_left_over_does_not_spoil_the_batch_run_again(tmp_path: Path) -> None:
    old = store(tmp_path)
    old.save(0, 1, {0: b"a", 1: b"b"}, b"")
    new = store(tmp_path)
    loaded, _ = new.load(0)
    new.save(1, 2, {**loaded, 0: b"new"}, b"")
    old.save(1, 1, {0: b"old"}, b"")
    assert load(tmp_path, 1) == {0: b"new", 1: b"b"}
    new.save(2, 2, {1: b"newer"}, b"")
    assert load(tmp_path, 2) == {0: b"new", 1: b"newer"}


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("after", [1, 2, 5])
def test_another_number_of_executors_finds_every_shard(
    tmp_path: Path, before: int, after: int
) -> None:
    truth = {shard: f"shard {shard}".encode() for shard in range(10)}
    for executor in range(before):
        mine = {s: data for s, data in truth.items() if s % before == executor}
        store(tmp_path, executor, before).save(0, 1, mine, b"")
    assert load(tmp_path, 0, after) == truth
    for executor in range(after):
        saving = store(tmp_path, executor, after)
        loaded, _ = saving.load(0)
        saving.save(1, 2, {s: data + b"!" for s, data in loaded.items()}, b"")
    assert load(tmp_path, 1, before) == {s: data + b"!" for s, data in truth.items()}


@pytest.mark.parametrize("after", [1, 2, 4])
def test_parked_feedback_of_every_folder_is_taken_up_once(tmp_path: Path, after: int) -> None:
    for executor in range(3):
        parked = b"" if executor == 1 else f"parked {executor}".encode()
        store(tmp_path, executor, 3).save(0, 1, {}, parked)
    found = [p for executor in range(after) for p in store(tmp_path, executor, after).load(0)[1]]
    assert sorted(found) == [b"parked 0", b"parked 2"]


def test_parked_feedback_is_of_its_batch_only(tmp_path: Path) -> None:
    saving = store(tmp_path)
    saving.save(0, 1, {}, b"parked")
    saving.save(1, 1, {}, b"")
    assert store(tmp_path).load(0)[1] == [b"parked"]
    assert store(tmp_path).load(1)[1] == []


def test_vertices_do_not_share_state(tmp_path: Path) -> None:
    StateStore(tmp_path, "a", 0, 1).save(0, 1, {0: b"of a"}, b"")
    StateStore(tmp_path, "b", 0, 1).save(0, 1, {0: b"of b"}, b"")
    assert StateStore(tmp_path, "a", 0, 1).load(0)[0] == {0: b"of a"}


def test_only_the_last_two_batches_are_kept(tmp_path: Path) -> None:
    saving = store(tmp_path)
    for batch in range(6):
        saving.save(batch, 1, {0: f"{batch}".encode()}, b"")
    assert files(tmp_path) == {"4.1.data", "4.1.index", "5.1.data", "5.1.index"}
    assert (load(tmp_path, 4), load(tmp_path, 5)) == ({0: b"4"}, {0: b"5"})


def test_a_file_is_kept_as_long_as_a_shard_stands_in_it(tmp_path: Path) -> None:
    saving = store(tmp_path)
    saving.save(0, 1, {0: b"first", 1: b"one"}, b"")
    for batch in range(1, 6):
        saving.save(batch, 1, {1: f"{batch}".encode()}, b"")
    assert "0.1.data" in files(tmp_path)
    saving.save(6, 1, {0: b"last"}, b"")
    assert "0.1.data" in files(tmp_path), "the batch before still refers to it"
    saving.save(7, 1, {}, b"")
    assert "0.1.data" not in files(tmp_path)
    assert load(tmp_path, 7) == {0: b"last", 1: b"5"}


def test_a_void_attempt_is_cleaned_away(tmp_path: Path) -> None:
    store(tmp_path).save(0, 1, {0: b"void"}, b"")
    saving = store(tmp_path)
    for batch in range(3):
        saving.save(batch, 2, {0: f"{batch}".encode()}, b"")
    assert files(tmp_path) == {"1.2.data", "1.2.index", "2.2.data", "2.2.index"}


def test_shards_over_many_files_are_gathered_into_one(tmp_path: Path) -> None:
    saving = store(tmp_path)
    most = 0
    for batch in range(3 * MAX_FILES):
        saving.save(batch, 1, {0: b"always %d" % batch, batch + 1: b"%d" % batch}, b"")
        data = [name for name in files(tmp_path) if name.endswith(".data")]
        most = max(most, len(data))
        once = {b + 1: b"%d" % b for b in range(batch + 1)}
        assert load(tmp_path, batch) == {0: b"always %d" % batch, **once}
    assert MAX_FILES <= most <= MAX_FILES + 2


@pytest.mark.parametrize("batch", [0, 7])
def test_missing_state_is_refused(tmp_path: Path, batch: int) -> None:
    with pytest.raises(
        InputError, match=rf"count: .* lacks state of batch {batch}.*another checkpo"
    ):
        store(tmp_path).load(batch)


def test_state_of_another_batch_is_not_taken(tmp_path: Path) -> None:
    saving = store(tmp_path)
    for batch in range(3):
        saving.save(batch, 1, {0: b"x"}, b"")
    with pytest.raises(InputError, match="lacks state of batch 0"):
        store(tmp_path).load(0)
    with pytest.raises(InputError, match="lacks state of batch 3"):
        store(tmp_path).load(3)


def test_a_batch_number_is_not_mistaken_for_another_s_beginning(tmp_path: Path) -> None:
    store(tmp_path).save(12, 1, {0: b"x"}, b"")
    with pytest.raises(InputError, match="lacks state of batch 1,"):
        store(tmp_path).load(1)


CHANGES = st.dictionaries(st.integers(0, 7), st.binary(max_size=5), max_size=4)


@given(
    st.lists(st.tuples(CHANGES, st.booleans()), min_size=1, max_size=30),
    st.integers(1, 3),
)
def test_every_batch_and_the_one_before_it_can_be_loaded(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[tuple[dict[int, bytes], bool]],
    executors: int,
) -> None:
    """With restarts in between, after which all that was loaded is saved."""
    checkpoint = tmp_path_factory.mktemp("state")
    stores = [store(checkpoint, e, executors) for e in range(executors)]
    truth: dict[int, bytes] = {}
    epoch = 1
    for batch, (changed, restart) in enumerate(batches):
        before = dict(truth)
        written = changed
        if restart and batch:
            epoch += 1
            stores = [store(checkpoint, e, executors) for e in range(executors)]
            written = {**load(checkpoint, batch - 1, executors), **changed}
        for executor, saving in enumerate(stores):
            mine = {s: data for s, data in written.items() if s % executors == executor}
            saving.save(batch, epoch, mine, b"")
        truth |= changed
        assert load(checkpoint, batch, executors) == truth
        if batch:
            assert load(checkpoint, batch - 1, executors) == before
