"""Java's archive of the classes that Spark loads. Loading them takes much of a start. The first
session on a machine has the archive written when its Java ends. Later sessions begin with it, and
so do the Spark executors of a cluster on the same machine. Used by the session."""

import hashlib
import os
import secrets
from pathlib import Path

import pyspark

from sojourn import durable
from sojourn.errors import InputError

MAGIC = bytes.fromhex("a8ab0bf0")  # Java writes it last, so a file that has it is complete
KEPT = 3
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def spark_home() -> Path:
    """Where the Spark is that would be started: pip's, unless the user names another."""
    return Path(os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent))


def class_options(java_home: Path, cache: Path) -> tuple[str, str]:
    """The options to write an archive, and the options to use one. One of the two is empty. Both
    are empty where archives are not possible."""
    home = spark_home()
    jars, release = home / "jars", java_home / "release"
    if not (java_home / "lib" / "server" / "classes.jsa").exists() or not release.exists():
        return "", ""  # this Java has no archives, or another layout of files
    conf = Path(os.environ.get("SPARK_CONF_DIR", home / "conf"))
    if "SPARK_DIST_CLASSPATH" in os.environ or (conf.is_dir() and any(conf.iterdir())):
        return "", ""  # Java archives no classes where the path has directories with files
    try:
        folder = durable.private_directory(cache / "classes")
        # The first word changes with what a session loads.
        made_of = f"ui {release.read_text(encoding='utf-8')}{conf}{jars}{jars.stat().st_mtime_ns}"
        key = hashlib.sha256(made_of.encode()).hexdigest()[:16]
        return _options(folder, key)
    except (OSError, InputError):
        return "", ""  # nowhere to keep it: starts take longer, nothing else changes


def _options(folder: Path, key: str) -> tuple[str, str]:
    archive = folder / f"{key}.jsa"
    for path in folder.glob("*.new"):
        if _is_whole(path):
            path.replace(folder / f"{path.name.partition('.')[0]}.jsa")
            _remove_old(folder)
    if archive.exists():
        os.utime(archive)  # the one in use is the last to be removed
        return "", f'"-XX:SharedArchiveFile={archive}" {_QUIET}'
    fresh = folder / f"{key}.{secrets.token_hex(4)}.new"
    return f'"-XX:ArchiveClassesAtExit={fresh}" {_QUIET}', ""


def _is_whole(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _remove_old(folder: Path) -> None:
    """Remove archives of another Java or Spark, and unfinished ones."""
    archives = sorted(folder.glob("*.jsa"), key=lambda path: path.stat().st_mtime)
    for path in (*archives[:-KEPT], *folder.glob("*.new")):
        path.unlink(missing_ok=True)
