"""The record of a commit: recovery reads the newest and nothing else."""

from pathlib import Path

import msgspec
import pytest

from sojourn.engine.driver.commit import Committer
from sojourn.engine.driver.record import (
    Record,
    drop,
    last_record,
    state_root,
    sweep,
    write_published,
    write_record,
)
from sojourn.engine.wire import messages as m
from sojourn.engine.worker import store
from sojourn.errors import InputError
from sojourn.sinks import Sink


def part(vertex: str, executor: int, *files: str, **more: object) -> m.Part:
    return m.Part(vertex, executor, [(name, 10) for name in files], **more)  # type: ignore[arg-type]


RECORD = Record(
    7,
    3,
    [
        part("source", 0, position=b"here", log="source/0/7.3.log", log_to=["count"]),
        part("count", 1, "count/1/a", "count/1/b"),
        part("count", 0, "count/0/a", log="count/0/7.3.log", log_to=["count", "out"]),
        part("out", 0, held=["piece"], publish=[("staged", "seen")]),
    ],
)


def test_there_is_nothing_before_the_first_commit(tmp_path: Path) -> None:
    assert last_record(tmp_path) == Record(0, 0, [])
    assert Record().welcome(tmp_path, "count", 0, 2) == m.Welcome(0, anew=True)


def test_what_a_sink_holds_is_given_to_one_process_if_there_are_more_now(tmp_path: Path) -> None:
    assert RECORD.welcome(tmp_path, "out", 0, 1).held == ["piece"]
    assert [RECORD.welcome(tmp_path, "out", n, 2).held for n in range(2)] == [["piece"], []]


def test_the_newest_record_counts_and_old_ones_go(tmp_path: Path) -> None:
    for number in range(1, 15):
        write_record(tmp_path, Record(number, 1, []))
        assert last_record(tmp_path).number == number
    kept = sorted(path.name for path in (tmp_path / "sojourn" / "commits").iterdir())
    assert kept == ["13", "14"]


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    write_record(tmp_path, RECORD)
    assert last_record(tmp_path) == RECORD
    assert RECORD.files == {
        "source/0/7.3.log",
        "count/0/7.3.log",
        "count/0/a",
        "count/1/a",
        "count/1/b",
    }


def test_one_that_was_cut_short_is_refused_and_no_older_one_taken(tmp_path: Path) -> None:
    write_record(tmp_path, RECORD)
    write_record(tmp_path, Record(8, 3, RECORD.parts))
    path = tmp_path / "sojourn" / "commits" / "8"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"commits/8: the record .* cannot be read"):
        last_record(tmp_path)


def test_what_is_written_aside_and_never_renamed_does_not_count(tmp_path: Path) -> None:
    write_record(tmp_path, RECORD)
    (tmp_path / "sojourn" / "commits" / "8.tmp").write_bytes(msgspec.msgpack.encode(Record(8)))
    assert last_record(tmp_path).number == 7


def test_a_checkpoint_of_an_older_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spark" / "commits").mkdir(parents=True)
    with pytest.raises(InputError, match="was made by an older version, before"):
        last_record(tmp_path)


def test_an_executor_is_told_what_concerns_it(tmp_path: Path) -> None:
    assert RECORD.welcome(tmp_path, "count", 1, 2) == m.Welcome(
        7,
        [m.SavedFiles(["count/1/a", "count/1/b"], 1, 2)],
        [10, 10],
        False,
        [str(tmp_path / "source/0/7.3.log"), str(tmp_path / "count/0/7.3.log")],
        table=["count/0/a"],
    )
    assert RECORD.welcome(tmp_path, "source", 0, 1).position == b"here"
    out = RECORD.welcome(tmp_path, "out", 0, 1)
    assert (out.held, out.logs) == (["piece"], [str(tmp_path / "count/0/7.3.log")])


def test_with_another_number_of_executors_each_is_told_of_all_files(tmp_path: Path) -> None:
    told = RECORD.welcome(tmp_path, "count", 2, 3)
    assert told.anew
    assert told.state == [
        m.SavedFiles(["count/0/a"], 0, 2),
        m.SavedFiles(["count/1/a", "count/1/b"], 1, 2),
    ]
    assert told.sizes == []


def test_only_what_counts_is_left_before_a_start(tmp_path: Path) -> None:
    root = state_root(tmp_path)
    for name in (*RECORD.files, "count/0/8.3.1.keys", "gone/0/a", "count/5/a"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    sweep(tmp_path, RECORD)
    left = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert left == RECORD.files


def test_what_is_dropped_twice_is_no_error(tmp_path: Path) -> None:
    root = state_root(tmp_path)
    (root / "count/0").mkdir(parents=True)
    (root / "count/0/a").touch()
    for _ in range(2):
        drop(tmp_path, ["count/0/a"])
    assert not (root / "count/0/a").exists()


def test_a_file_of_a_commit_that_is_gone_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gone"):
        store.read([tmp_path / "gone"], lambda _shard: True)


def test_where_a_source_with_splits_begins_is_known_before_anything_is_read(tmp_path: Path) -> None:
    """A start that ends without a commit must not have the next one ask again."""
    for begins in (b"7", b"9"):
        committer = Committer(tmp_path, None)  # type: ignore[arg-type]
        committer.record.splits.setdefault("in", {"0": begins})  # as `Readers` does
        committer.begin()
        assert committer.record == last_record(tmp_path) == Record(splits={"in": {"0": b"7"}})


class TestPublishing:
    """Which start moves the results of the last commit into view."""

    def committed(self, root: Path, number: int) -> Path:
        """A checkpoint whose record shows one staged file; returns where it is shown."""
        staged, shown = root / "_staging" / f"{number}", root / f"shown-{number}"
        staged.parent.mkdir(exist_ok=True)
        staged.write_text("results", encoding="ascii")
        made = Record(number, 1, [part("out", 0, publish=[(str(staged), str(shown))])])
        write_record(root / "checkpoint", made)
        return shown

    def start(self, root: Path) -> None:
        Committer(root / "checkpoint", None).begin()  # type: ignore[arg-type]

    def test_what_a_crash_left_staged_is_published(self, tmp_path: Path) -> None:
        shown = self.committed(tmp_path, 4)
        self.start(tmp_path)
        assert shown.exists()
        self.start(tmp_path)

    def test_a_sink_is_asked_to_show_what_its_processes_staged(self, tmp_path: Path) -> None:
        asked: list[tuple[object, ...]] = []

        class Asked(Sink[int]):
            def publish(self, *given: object) -> None:
                asked.append(given)

        shown = self.committed(tmp_path, 4)
        for _ in range(2):
            committer = Committer(tmp_path / "checkpoint", None, {"out": Asked()})  # type: ignore[arg-type]
            committer.begin()
            committer.begin()
        pair = (str(tmp_path / "_staging" / "4"), str(shown))
        assert asked == [([pair], 4, True)] * 2

    def test_results_of_a_sink_that_is_another_now_are_refused(self, tmp_path: Path) -> None:
        made = Record(4, 1, [part("out", 0, publish=[("staged", "kafka topic orders")])])
        write_record(tmp_path / "checkpoint", made)
        with pytest.raises(InputError, match="committed for kafka topic orders, but the sink is"):
            self.start(tmp_path)

    def test_a_sink_that_is_gone_after_a_crash_is_refused(self, tmp_path: Path) -> None:
        self.committed(tmp_path, 4)
        (tmp_path / "_staging").rename(tmp_path / "away")
        with pytest.raises(InputError, match="mount it"):
            self.start(tmp_path)

    def test_results_taken_away_after_a_graceful_stop_are_not_missed(self, tmp_path: Path) -> None:
        self.committed(tmp_path, 4).unlink(missing_ok=True)
        write_published(tmp_path / "checkpoint", 4)
        (tmp_path / "_staging").rename(tmp_path / "away")
        self.start(tmp_path)
