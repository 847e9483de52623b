"""Jars of other projects, fetched once from Maven Central into a cache: by Maven where it is
installed, which heeds the user's mirrors, else by the Ivy that pip's pyspark carries. Used by the
broker."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from sojourn import durable
from sojourn.errors import InputError

_CENTRAL = "https://repo.maven.apache.org/maven2/"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_FETCH_S = 600.0


def jars(
    name: str, wanted: Sequence[str], java_home: Path, cache: Path, alone: bool = False
) -> Path:
    """A directory with the jars `wanted`, as `group:artifact:version`, and all that these need,
    unless they are wanted `alone`. It is there whole or not at all."""
    key = hashlib.sha256(" ".join(wanted).encode()).hexdigest()[:16]
    found = durable.private_directory(cache) / f"{name}-{key}"
    if found.exists():
        return found
    with tempfile.TemporaryDirectory(prefix=f"{name}-", suffix=".new", dir=cache) as fresh:
        _fetch(wanted, java_home, Path(fresh), alone)
        try:
            (Path(fresh) / "jars").rename(found)
        except OSError:
            if not found.exists():  # nobody else was quicker
                raise
    return found


def _fetch(wanted: Sequence[str], java_home: Path, directory: Path, alone: bool) -> None:
    """Have one tool after the other try."""
    said = []
    ways = [_with_ivy(wanted, directory, java_home, alone)]
    if maven := shutil.which("mvn"):
        ways.insert(0, _with_maven(wanted, directory, maven, alone))
    for command in ways:
        try:
            done = subprocess.run(
                command,
                cwd=directory,
                env={**os.environ, "JAVA_HOME": str(java_home)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_FETCH_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            shutil.rmtree(directory / "jars", ignore_errors=True)
            said.append(f"{command[0]}: not done within {_FETCH_S:g} s")
            continue
        if done.returncode == 0 and any((directory / "jars").glob("*.jar")):
            return
        shutil.rmtree(directory / "jars", ignore_errors=True)
        said.append(f"{command[0]}: {done.stdout.strip()[-600:]}")
    raise InputError(
        f"{', '.join(wanted)}: cannot be fetched from Maven Central; check the network, or name a "
        f"mirror in DEFAULT_ARTIFACT_REPOSITORY; {'; '.join(said)}"
    )


def _with_maven(wanted: Sequence[str], directory: Path, maven: str, alone: bool) -> list[str]:
    """The command that fetches jars with Maven into `jars` of a directory."""
    needed = ""
    for one in wanted:
        group, artifact, version = one.split(":")
        needed += (
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version></dependency>"
        )
    (directory / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>sojourn</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{needed}</dependencies></project>",
        encoding="utf-8",
    )
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={directory / 'jars'}"]
    options += ["-DexcludeTransitive=true"] if alone else []
    return [maven, "-q", "-B", _COPY, *options]


def _with_ivy(wanted: Sequence[str], directory: Path, java_home: Path, alone: bool) -> list[str]:
    """The command that fetches jars with Spark's Ivy into `jars` of a directory."""
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None
    (ivy,) = (Path(str(spark.origin)).parent / "jars").glob("ivy-*.jar")
    needed, own = "", 'conf="default->runtime,master"'  # the jar, and what it needs
    if alone:
        own = 'conf="default->master" transitive="false"'
    for one in wanted:
        group, artifact, version = map(quoteattr, one.split(":"))
        needed += f"<dependency org={group} name={artifact} rev={version} {own}/>"
    (directory / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="sojourn" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{needed}</dependencies></ivy-module>",
        encoding="utf-8",
    )
    root = quoteattr(os.environ.get("DEFAULT_ARTIFACT_REPOSITORY", _CENTRAL))
    (directory / "settings.xml").write_text(
        '<ivysettings><settings defaultResolver="central"/><resolvers>'
        f'<ibiblio name="central" m2compatible="true" root={root}/>'
        "</resolvers></ivysettings>",
        encoding="utf-8",
    )
    return [
        *(str(java_home / "bin" / "java"), "-jar", str(ivy), "-confs", "default"),
        *("-settings", "settings.xml", "-cache", str(directory / "ivy"), "-ivy", "ivy.xml"),
        *("-types", "jar", "bundle", "-retrieve", f"{directory}/jars/[artifact]-[revision].[ext]"),
    ]
