"""A checkpoint belongs to one topology, to one run at a time, and to one user."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import sojourn as sj
from sojourn import durable
from sojourn.engine.driver.checkpoint import claim, next_epoch
from sojourn.errors import InputError


def topology(shards: int = 4, name: str = "count", executors: int = 1) -> sj.Topology:
    t = sj.Topology("words")
    source = t.source("lines", sj.sources.iterable(lambda: ["a"]))
    count = t.operator(
        name, str.split, source, key=lambda word: word, shards=shards, executors=executors
    )
    t.sink("out", sj.sinks.console(), count)
    return t


def test_a_checkpoint_is_one_runs_at_a_time(tmp_path: Path) -> None:
    first = claim(tmp_path, topology())
    with pytest.raises(InputError, match="another run uses it"):
        claim(tmp_path, topology())
    first.close()
    again = claim(tmp_path, topology(executors=2))  # that may change
    again.close()
    assert again.name == first.name
    other = claim(tmp_path / "other", topology())
    other.close()
    assert other.name != first.name
    assert len(bytes.fromhex(other.name)) == 8  # what two share by chance, sinks take for one


def test_a_topology_that_cannot_take_up_the_state_is_refused(tmp_path: Path) -> None:
    claim(tmp_path, topology()).close()
    with pytest.raises(
        InputError,
        match=r"vertex 'count' is an operator with 4 shards there, but an operator with 8 shards",
    ):
        claim(tmp_path, topology(shards=8))
    with pytest.raises(InputError, match=r"vertex 'count' is an operator with 4 .* but missing in"):
        claim(tmp_path, topology(name="other"))
    looped = topology()
    looped.feedback(sj.Vertex(looped, "count", "again"), sj.Vertex(looped, "count"))
    with pytest.raises(InputError, match=r"feedback 'count'\['again'\] → 'count' is missing there"):
        claim(tmp_path, looped)
    claim(tmp_path, topology()).close()  # a refusal leaves it as it was


def test_a_checkpoint_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for path in (file, file / "inner", file / "inner" / "most"):
        with pytest.raises(InputError, match=r"must be a directory that can be .*; give another"):
            claim(path, topology())
    claim(tmp_path / "new", topology()).close()
    own = tmp_path / "new" / "sojourn" / "lock"
    own.unlink()
    own.mkdir()
    with pytest.raises(InputError, match="lock: Is a directory; give another"):
        claim(tmp_path / "new", topology())


def test_every_start_has_a_number_of_its_own(tmp_path: Path) -> None:
    claim(tmp_path, topology()).close()
    assert [next_epoch(tmp_path) for _ in range(3)] == [0, 1, 2]


# whose it is


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> int:
    """This process seems to be another user's than its files."""
    user = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: user)
    return user


def modes(directory: Path) -> dict[str, str]:
    found = {path.relative_to(directory.parent): path for path in directory.rglob("*")}
    found[Path(directory.name)] = directory
    return {str(name): f"{path.stat().st_mode & 0o777:o}" for name, path in found.items()}


@pytest.mark.usefixtures("umask")
def test_nobody_else_can_look_into_a_checkpoint(tmp_path: Path) -> None:
    claim(tmp_path / "new" / "checkpoint", topology()).close()
    next_epoch(tmp_path / "new" / "checkpoint")
    own = tmp_path / "new" / "checkpoint" / "sojourn"
    durable.write(durable.private_directory(own / "state" / "count" / "0") / "1.data", b"state")
    found = modes(own)
    assert {found.pop(f"sojourn{name}") for name in ("", "/state", "/state/count")} == {"700"}
    assert found.pop("sojourn/state/count/0") == "700"
    assert set(found.values()) == {"600"}
    assert {"sojourn/lock", "sojourn/name", "sojourn/topology.json", "sojourn/epoch"} < set(found)


def test_what_is_written_over_is_private_from_then_on(tmp_path: Path) -> None:
    for name in ("file", "file.tmp"):
        (tmp_path / name).touch(0o666)
        (tmp_path / name).chmod(0o666)
    durable.write(tmp_path / "file", b"data")
    assert modes(tmp_path)[f"{tmp_path.name}/file"] == "600"
    assert (tmp_path / "file").read_bytes() == b"data"


def older(tmp_path: Path) -> Path:
    """A checkpoint as older versions made it."""
    claim(tmp_path, topology()).close()
    own = tmp_path / "sojourn"
    (own / "state" / "count").mkdir(parents=True)
    (own / "state" / "count" / "1.data").touch()
    (own / "state" / "link").symlink_to(own / "name")
    for path in own.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    own.chmod(0o755)
    return own


def test_a_checkpoint_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    own = older(tmp_path)
    claim(tmp_path, topology()).close()
    found = modes(own)
    assert {found.pop(f"sojourn{name}") for name in ("", "/state", "/state/count")} == {"700"}
    assert set(found.values()) == {"600"}


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o702])
def test_a_checkpoint_that_others_could_write_is_refused(tmp_path: Path, mode: int) -> None:
    own = tmp_path / "sojourn"
    own.mkdir()
    (own / "topology.json").write_bytes(b"of somebody else's making")
    own.chmod(mode)
    for _ in range(2):
        with pytest.raises(
            InputError, match=rf"sojourn: must not be writable by others.* mode is {mode:o};.* use"
        ):
            claim(tmp_path, topology())
    assert os.listdir(own) == ["topology.json"]


@pytest.mark.parametrize("inner", ["state", "state/count", "state/count/1.data", "name"])
def test_so_is_one_that_others_could_write_in_some_place(tmp_path: Path, inner: str) -> None:
    own = older(tmp_path)
    (own / inner).chmod(0o777)
    for _ in range(2):
        with pytest.raises(InputError, match=f"{inner}: must not be writable by others"):
            claim(tmp_path, topology())


def test_a_checkpoint_of_somebody_else_is_refused(tmp_path: Path, stranger: int) -> None:
    own = tmp_path / "sojourn"
    own.mkdir(mode=0o700)
    with pytest.raises(
        InputError,
        match=rf"sojourn: must belong to the user who runs this, {stranger}; it belongs to "
        rf"{stranger - 1}; use another",
    ):
        claim(tmp_path, topology())
    assert not any(own.iterdir())


def test_a_link_is_as_good_as_where_it_leads(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o755)
    (tmp_path / "sojourn").symlink_to(elsewhere)
    claim(tmp_path, topology()).close()
    assert modes(elsewhere)["elsewhere"] == "700"
    elsewhere.chmod(0o770)
    with pytest.raises(InputError, match="must not be writable by others"):
        claim(tmp_path, topology())


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "sojourn").touch()
    with pytest.raises(InputError, match="sojourn: must be a directory; got a file; use another"):
        claim(tmp_path, topology())


def test_existing_parents_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o777)
    made = durable.private_directory(tmp_path / "a" / "b" / "c")
    assert made == tmp_path / "a" / "b" / "c"
    assert modes(tmp_path / "a") == {"a": "777", "a/b": "700", "a/b/c": "700"}
