"""What type checkers make of topologies: which type a stream has, and which code is refused. Each
line below is a snippet, and says after the # what mypy is to find."""

import inspect
import pickle
import re
from pathlib import Path
from typing import Any, get_type_hints

import cloudpickle
from mypy import api

import sojourn as sj

ROOT = Path(__file__).parents[2]

CONFIG = f"""
[mypy]
strict = true
mypy_path = {ROOT / "src"}
cache_dir = /dev/null
follow_imports = silent
ignore_missing_imports = true
# These say nothing of streams, and take most of the time.
[mypy-pyspark.*,numpy.*,msgspec.*,zmq.*,sojourn.engine.*]
follow_imports = skip
"""

PRELUDE = """
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack
import sojourn as sj

def twice(n: int) -> list[int]: return [n, n]
def perhaps(n: int) -> list[str] | None: return None
def digits(n: int) -> Iterator[str]: yield from str(n)
def pair(n: int) -> tuple[int, int]: return n, n
def nothing(n: int) -> None: ...
def text(n: int) -> str: return str(n)
def either(value: int | str) -> list[float]: return []
def whatever(value: Any) -> Any: return value
def sorts(n: int) -> list[int | sj.Output]: return [n, sj.Output("odd", n)]
def rejects(n: int) -> list[int] | sj.Output | None: return sj.Output("odd", n) if n else [n]
def marks(n: int) -> list[int]: return [n, sj.Output("odd", n)]
def tells(n: int) -> int | sj.Output: return sj.Output("odd", n) if n else n
async def asks(n: int) -> list[str] | None: return None
async def streams(n: int) -> AsyncIterator[str]: yield str(n)
async def fetches(n: int) -> float: return n
def shows(n: int) -> None: ...

class Entry(TypedDict):
    n: int
def row(n: int) -> dict[str, int]: return {"n": n}
def entry(n: int) -> Entry: return {"n": n}
def packed(n: int) -> bytes: return bytes(n)
async def asks_row(n: int) -> dict[str, int]: return {"n": n}

class Row(sj.Operator):
    def process(self, n: int) -> dict[str, int]: return {"n": n}
class Count(sj.Operator):
    def __init__(self, by: int) -> None: ...
    def process(self, word: str) -> Iterator[tuple[str, int]]: yield word, 1
class Length(sj.Operator):
    def process(self, word: str) -> int: return len(word)
class Wide(sj.Operator):
    def process(self, value: int | str) -> list[float]: return []
class Asks(sj.Operator):
    async def open(self) -> None: ...
    async def process(self, word: str) -> list[int]: return []
class Fetches(sj.Operator):
    async def process(self, word: str) -> int: return 1
class Bundles(sj.Operator):
    columns = "numpy"
    def process_bundle(self, values: Any) -> Any: return values
class Session(sj.Operator):
    def process(self, word: str) -> None: self.timers.after("1s")
    def on_timer(self, key: str, payload: None) -> list[str]: return [key]
class Loose(sj.Operator):
    def process(self, value):  # type: ignore[no-untyped-def]
        return [value]
class Numbers(sj.Source[int]):
    def read(self, position: Any) -> Iterator[tuple[int, int]]: yield 1, 1
class Bare(sj.Source):
    def read(self, position: Any) -> Iterator[tuple[int, int]]: yield 1, 1
class Table(sj.Sink[int]):
    def write(self, value: int) -> None: ...
def made(by: int) -> type[sj.Operator]: return Length
def stage(**options: Unpack[sj.OperatorOptions[int]]) -> Any:
    return t.operator("x", twice, ints, **options)

t = sj.Topology("t")
ints = t.source("ints", sj.sources.iterable(lambda: [1, 2]))
strs = t.source("strs", sj.sources.lines("lines.txt"))
blobs = t.source("blobs", sj.sources.iterable(lambda: [b"1"]))
late = sj.windows.tumbling("1s", lambda key, window, values: (window.start, len(values)))
running: sj.Running
"""

RIGHT = """
t.source("x", sj.sources.iterable(lambda: range(3)))  # Vertex[int]
t.source("x", sj.sources.paced(lambda n: {"n": n}, rate=1))  # Vertex[dict[str, int]]
t.source("x", sj.sources.jsonl("x"))  # Vertex[Any]
t.source("x", sj.sources.socket("host", 1))  # Vertex[str]
t.source("x", Numbers())  # Vertex[int]
t.source("x", Bare())  # Vertex[Any]
t.operator("x", twice, ints)  # Vertex[int]
t.operator("x", perhaps, ints)  # Vertex[str]
t.operator("x", digits, ints)  # Vertex[str]
t.operator("x", pair, ints)  # Vertex[int]
t.operator("x", nothing, ints)  # Vertex[Any]
t.operator("x", whatever, ints)  # Any
t.operator("x", str.split, strs)  # Vertex[str]
t.operator("x", lambda n: [n, n + 1], ints)  # Vertex[int]
t.operator("x", lambda n: [str(n)] if n else None, ints)  # Vertex[str]
t.operator("x", lambda n: (c for c in str(n)), ints)  # Vertex[str]
t.operator("x", asks, ints)  # Vertex[str]
t.operator("x", streams, ints)  # Vertex[str]
t.operator("x", partial(Count, 1), strs)  # Vertex[tuple[str, int]]
t.operator("x", Count(1), strs)  # Vertex[tuple[str, int]]
t.operator("x", Wide, ints)  # Vertex[float]
t.operator("x", Asks, strs)  # Vertex[int]
t.operator("x", Asks(), strs)  # Vertex[int]
t.operator("x", Bundles, ints)  # Vertex[Any]
t.operator("x", Session, strs, key=lambda word: word.lower())  # Vertex[Any]
t.operator("x", Loose, ints)  # Vertex[Any]
t.operator("x", made(1), strs)  # Vertex[Any]
t.operator("x", late, strs, key=str.lower)  # Vertex[tuple[float, int]]
t.operator("x", sj.windows.count(3, lambda key, values: len(values)), ints)  # Vertex[int]
t.operator("x", twice, ints, key=lambda n: n.bit_length(), shards=8)  # Vertex[int]
t.operator("x", twice, ints["odd"], ints)  # Vertex[int]
t.operator("x", twice, *[ints, ints])  # Vertex[int]
t.operator("x", either, ints, strs)  # Vertex[float]
t.operator("x", either, ints, strs, key=lambda value: value)  # Vertex[float]
t.operator("x", Wide, ints, strs)  # Vertex[float]
t.operator("x", Wide(), ints, strs)  # Vertex[float]
t.operator("x", Wide, ints, broadcast=t.map("y", lambda n: (n, n), ints))  # Vertex[float]
t.operator("x", sorts, ints)  # Vertex[int | Output]
t.operator("x", twice, t.operator("y", sorts, ints))  # Vertex[int]
t.operator("x", twice, t.operator("y", rejects, ints))  # Vertex[int]
t.operator("x", twice, t.map("y", tells, ints))  # Vertex[int]
t.operator("x", marks, ints)  # Vertex[int]
t.operator("x", sorts, ints)["odd"]  # Vertex[Any]
t.map("x", text, ints)  # Vertex[str]
t.map("x", fetches, ints)  # Vertex[float]
t.map("x", twice, ints)  # Vertex[list[int]]
t.map("x", str, ints)  # Vertex[str]
t.map("x", lambda n: {"n": n}, ints)  # Vertex[dict[str, int]]
t.map("x", Length, strs)  # Vertex[int]
t.map("x", Length(), strs)  # Vertex[int]
t.map("x", partial(Length), strs)  # Vertex[int]
t.map("x", Fetches, strs)  # Vertex[int]
t.map("x", either, ints, strs)  # Vertex[list[float]]
t.map("x", Bundles, ints)  # Vertex[Any]
t.filter("x", lambda n: n > 1, ints)  # Vertex[int]
t.filter("x", text, ints)  # Vertex[int]
t.filter("x", fetches, ints)  # Vertex[int]
t.filter("x", Length, strs)  # Vertex[str]
t.filter("x", Length(), strs)  # Vertex[str]
t.filter("x", either, ints, strs)  # Vertex[int | str]
t.sink("x", sj.sinks.jsonl("x"), ints, strs)  # Vertex[Any]
t.sink("x", sj.sinks.call(print), ints)  # Vertex[Any]
t.sink("x", sj.sinks.call(lambda n: None), ints)  # Vertex[Any]
t.sink("x", sj.sinks.call(either), ints, strs)  # Vertex[Any]
t.sink("x", Table(), ints, ints["odd"])  # Vertex[Any]
t.feedback(ints["odd"], ints)  # None
sj.run(t, max_sojourn="1s", checkpoint=Path("x"), duration=3)  # Summary
sj.start(t, settings={"commit": "2s"}).change(max_sojourn=None, max_processors=3)  # None
stage(processors=2, key=lambda n: n + 1)  # Any
"""

WRONG = """
t.operator("x", twice, strs)  # expected "Callable[[str], list[int] | tuple[int, ...] | Iterator
t.operator("x", str.split, ints)  # expected "Callable[[int]
t.operator("x", text(1), ints)  # No overload variant
t.operator("x", lambda n: [n.upper()], ints)  # "int" has no attribute "upper"
t.operator("x", lambda n: n, ints)  # incompatible type "Callable[[int], int]"
t.operator("x", len, strs)  # incompatible type "Callable[[Sized], int]"
t.operator("x", fetches, ints)  # incompatible type "Callable[[int], Coroutine[Any, Any, float]]"
t.operator("x", asks, strs)  # expected "Callable[[str]
t.sink("x", sj.sinks.jsonl("x"), t.operator("y", str.upper, strs))  # "OneValueUseMapOrReturnAList"
t.sink("x", sj.sinks.jsonl("x"), t.operator("y", row, ints))  # "OneValueUseMapOrReturnAList"
t.sink("x", sj.sinks.jsonl("x"), t.operator("y", entry, ints))  # "OneValueUseMapOrReturnAList"
t.sink("x", sj.sinks.jsonl("x"), t.operator("y", packed, ints))  # "OneValueUseMapOrReturnAList"
t.sink("x", sj.sinks.jsonl("x"), t.operator("y", asks_row, ints))  # "OneValueUseMapOrReturnAList"
t.operator("x", Wide, blobs)  # Cannot infer value of type parameter "In"
t.operator("x", Count(1), ints)  # incompatible type "Count"
t.operator("x", partial(Count, 1), ints)  # Cannot infer value of type parameter "In"
t.operator("x", Asks, ints)  # Cannot infer value of type parameter "In"
t.operator("x", Session, ints)  # Cannot infer value of type parameter "In"
t.operator("x", twice, ints, strs)  # incompatible type "Callable[[int], list[int]]"
t.operator("x", either, ints, blobs)  # incompatible type "Callable[[int | str], list[float]]"
t.operator("x", Wide, ints, blobs)  # Cannot infer value of type parameter "In"
t.operator("x", twice, t.map("y", text, ints))  # expected "Callable[[str]
t.operator("x", twice, ints, key=str.upper)  # Argument "key"
t.operator("x", twice, ints, key=lambda n: n.upper())  # "int" has no attribute "upper"
t.operator("x", twice, ints, shards="8")  # No overload variant
t.operator("x", twice, ints, shrads=8)  # did you mean "shards"?
t.operator("x", Wide, ints, broadcast=strs)  # Argument "broadcast"
t.operator("x", sj.windows.tumbling("1s", text), ints)  # Argument 2 to "tumbling"
sj.windows.tumbling("1s", lambda key, window, values: 1, lateness=[])  # Argument "lateness"
sj.windows.count(3, lambda key, values: 1, time=len)  # Unexpected keyword argument "time"
t.map("x", text, strs)  # expected "Callable[[str]
t.map("x", lambda n: n.upper(), ints)  # "int" has no attribute "upper"
t.map("x", Length, ints)  # incompatible type "type[Length]"
t.map("x", Length(), ints)  # incompatible type "Length"
t.map("x", Fetches(), ints)  # incompatible type "Fetches"
t.filter("x", text, strs)  # expected "Callable[[str]
t.filter("x", lambda n: n.upper(), ints)  # "int" has no attribute "upper"
t.filter("x", Length, ints)  # Cannot infer value of type parameter "In"
t.filter("x", either, ints, blobs)  # incompatible type "Callable[[int | str], list[float]]"
t.source("x", ints)  # Argument 2 to "source"
t.sink("x", sj.sinks.call(shows), strs)  # Cannot infer value of type parameter "T"
t.sink("x", Table(), ints, strs)  # Cannot infer value of type parameter "T"
t.feedback(ints, "ints")  # Argument 2 to "feedback"
sj.run(t, max_sojurn="1s")  # did you mean "max_sojourn"
sj.run(t, max_sojourn=[])  # Argument "max_sojourn"
running.change(percentile=99)  # Unexpected keyword argument "percentile"
running.change(max_sojurn="1s")  # did you mean "max_sojourn"
"""


def snippets(lines: str) -> list[tuple[str, str]]:
    """Each line's code, and what is to be found of it."""
    found = [line.rpartition("  # ") for line in lines.strip().splitlines()]
    return [(code, told) for code, _, told in found]


def checked(directory: Path, **files: str) -> dict[str, dict[int, str]]:
    """What mypy says, by file and line."""
    (directory / "mypy.ini").write_text(CONFIG, encoding="utf-8")
    for name, text in files.items():
        (directory / f"{name}.py").write_text(text, encoding="utf-8")
    said, failed, _ = api.run(["--config-file", f"{directory}/mypy.ini", str(directory)])
    assert not failed
    found: dict[str, dict[int, str]] = {name: {} for name in files}
    for name, line, told in re.findall(r"^.*?(\w+)\.py:(\d+): (.*)$", said, re.MULTILINE):
        found[name][int(line)] = f"{found[name].get(int(line), '')}{told}\n"
    return found


def documented() -> str:
    """The block on types in the docs."""
    page = (ROOT / "docs" / "topologies.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^## Types\n.*?^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return f"import sojourn as sj\n{block}"


def test_checkers_know_what_a_stream_carries_and_refuse_code_that_does_not_take_it(
    tmp_path: Path,
) -> None:
    right, wrong = snippets(RIGHT), snippets(WRONG)
    shown = PRELUDE + "".join(f"reveal_type({code})\n" for code, _ in right)
    example = documented()
    said = checked(
        tmp_path,
        right=shown,
        wrong=PRELUDE + "".join(f"{code}\n" for code, _ in wrong),
        example=example,
    )
    first = PRELUDE.count("\n") + 1
    revealed = {
        code: re.sub(r"\b(?:\w+\.)+(?=\w)", "", said["right"].pop(line, ""))
        for line, (code, _) in enumerate(right, first)
    }
    assert revealed == {code: f'note: Revealed type is "{told}"\n' for code, told in right}
    assert said["right"] == {}, "the prelude is fine"
    missed = {
        code: (told, found)
        for line, (code, told) in enumerate(wrong, first)
        if told not in (found := said["wrong"].pop(line, "")) or "error: " not in found
    }
    assert missed == {}
    assert said["wrong"] == {}
    refused = {n for n, text in enumerate(example.splitlines(), 1) if "# an error: " in text}
    assert set(said["example"]) == refused != set()


class Mine(sj.Source[int]):
    def read(self, position: Any) -> Any:
        yield 1, position


def test_types_are_fine_at_run_time() -> None:
    def build(one: sj.Vertex[int], other: sj.Vertex, source: sj.Source[str]) -> sj.Sink[int]: ...  # type: ignore[empty-body]

    assert get_type_hints(build)["one"] == sj.Vertex[int]
    t = sj.Topology("t")
    vertex = t.source("mine", Mine())
    assert vertex == sj.Vertex(t, "mine") == sj.Vertex[int](t, "mine")

    class Local(sj.Source[str]):
        def read(self, position: Any) -> Any:
            yield "a", position

    for source in (Mine(), Local(), sj.sources.iterable(lambda: [1])):
        copy = pickle.loads(cloudpickle.dumps(source))
        assert list(copy.read(None)) == list(source.read(None))
    copied = pickle.loads(cloudpickle.dumps(vertex))
    assert (copied.name, list(copied.topology.sources)) == ("mine", ["mine"])
    assert type(sj.Output) is type, "isinstance of it is fast"


def test_run_takes_the_options_of_start() -> None:
    _topology, *options = inspect.signature(sj.start).parameters.values()
    typed = get_type_hints(sj.StartOptions, localns={"SparkSession": Any})
    stated = {one.name: one.annotation for one in options}
    assert stated.pop("spark") == "SparkSession | None"
    assert typed.pop("spark") == Any | None
    assert stated == typed


def test_every_public_name_is_documented() -> None:
    pages = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    for name in sj.__all__:
        assert getattr(sj, name) is not None
        assert re.search(rf"(sj\.|sojourn\.|`){name}\b", text), name
    assert (ROOT / "src" / "sojourn" / "py.typed").is_file()
