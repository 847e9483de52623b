"""Java's archive of classes: which options a Java machine gets."""

import os
from pathlib import Path

import pytest

from sojourn.engine.spark import archive

WHOLE = archive.MAGIC + bytes(100)


@pytest.fixture
def java(tmp_path: Path) -> Path:
    home = tmp_path / "java"
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").touch()
    (home / "release").write_text("VERSION=17", encoding="ascii")
    return home


def written(options: str) -> Path:
    """The file that a Java machine would write."""
    return Path(options.split('"')[1].partition("=")[2])


def test_the_first_session_writes_and_the_next_one_uses(java: Path, tmp_path: Path) -> None:
    write, use = archive.class_options(java, tmp_path / "cache")
    assert use == ""
    path = written(write)
    assert "ArchiveClassesAtExit" in write
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.write_bytes(WHOLE)
    write, use = archive.class_options(java, tmp_path / "cache")
    assert write == ""
    assert "SharedArchiveFile" in use
    assert written(use).read_bytes() == WHOLE
    assert archive.class_options(java, tmp_path / "cache") == (write, use)


def test_one_that_is_not_whole_is_not_used(java: Path, tmp_path: Path) -> None:
    write, _ = archive.class_options(java, tmp_path / "cache")
    written(write).write_bytes(bytes(1000))  # Java was killed while it wrote
    again, use = archive.class_options(java, tmp_path / "cache")
    assert use == ""
    assert written(again) != written(write)


def test_another_java_has_its_own(java: Path, tmp_path: Path) -> None:
    for version in range(17, 23):
        (java / "release").write_text(f"VERSION={version}", encoding="ascii")
        write, _ = archive.class_options(java, tmp_path / "cache")
        written(write).write_bytes(WHOLE)
    archive.class_options(java, tmp_path / "cache")
    assert len(list((tmp_path / "cache" / "classes").iterdir())) == archive.KEPT


def test_the_one_in_use_is_the_last_to_be_removed(java: Path, tmp_path: Path) -> None:
    cache, mine = tmp_path / "cache", (java / "release").read_bytes()
    written(archive.class_options(java, cache)[0]).write_bytes(WHOLE)
    for version in range(30, 36):
        (java / "release").write_bytes(mine)
        _, use = archive.class_options(java, cache)
        os.utime(written(use), (version * 1e6, version * 1e6))  # long ago
        archive.class_options(java, cache)
        (java / "release").write_text(f"VERSION={version}", encoding="ascii")
        written(archive.class_options(java, cache)[0]).write_bytes(WHOLE)
    (java / "release").write_bytes(mine)
    assert archive.class_options(java, cache)[1] == use


def test_without_javas_own_archive_there_is_none(java: Path, tmp_path: Path) -> None:
    (java / "lib" / "server" / "classes.jsa").unlink()
    assert archive.class_options(java, tmp_path / "cache") == ("", "")


def test_nowhere_to_keep_it_is_no_fault(java: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    assert archive.class_options(java, tmp_path / "cache") == ("", "")
