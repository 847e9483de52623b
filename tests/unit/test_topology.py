"""Topologies: every mistake is told by name, levels are longest paths, code can be sent away."""

import math
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from sojourn import sinks, sources, windows
from sojourn.asked import check_room
from sojourn.control.controller import shape_of
from sojourn.engine.driver.build import pickled
from sojourn.errors import InputError
from sojourn.operators import Operator, Output
from sojourn.settings import ControlSettings, EngineSettings, SimulatorSettings
from sojourn.simulator import Workload
from sojourn.simulator.engine import SimulatedEngine
from sojourn.streams import Vertex
from sojourn.testing import Bench
from sojourn.topology import Edge, Topology, told_of


def numbers() -> sources.Source:
    return sources.iterable(lambda: range(3))


def same(value: Any) -> list[Any]:
    return [value]


def nothing() -> sinks.Sink:
    return sinks.call(lambda _value: None)


def start() -> tuple[Topology, Vertex]:
    topology = Topology("t")
    return topology, topology.source("lines", numbers())


class Count(Operator):
    def process(self, value: Any) -> Iterator[Any]:
        self.state[value] = self.state.get(value, 0) + 1
        yield value, self.state[value]


class Silent:
    def close(self) -> None:
        pass


# names


@pytest.mark.parametrize("name", ["", "a b", "-a", ".a", "a/b", "a" * 64, "ä", "a\n", 7, None])
def test_a_bad_name_is_refused_for_every_kind(name: Any) -> None:
    topology, lines = start()
    attempts: dict[str, Callable[[], object]] = {
        "topology": lambda: Topology(name),
        "source": lambda: topology.source(name, numbers()),
        "operator": lambda: topology.operator(name, same, lines),
        "sink": lambda: topology.sink(name, nothing(), lines),
    }
    for kind, attempt in attempts.items():
        with pytest.raises(InputError, match=f"{kind} name .*must be 1 to 63 letters") as error:
            attempt()
        assert repr(name) in str(error.value)
    assert list(topology.vertices) == ["lines"]


@pytest.mark.parametrize("name", ["a", "7", "A.b_c-d", "a" * 63])
def test_a_good_name_is_taken(name: str) -> None:
    topology = Topology(name)
    assert topology.source(name, numbers()).name == name


def test_a_name_is_taken_once() -> None:
    topology, lines = start()
    with pytest.raises(InputError, match="source 'lines': the name is taken"):
        topology.source("lines", numbers())
    with pytest.raises(InputError, match="operator 'lines': the name is taken"):
        topology.operator("lines", same, lines)
    with pytest.raises(InputError, match="sink 'lines': the name is taken"):
        topology.sink("lines", nothing(), lines)


# inputs


@pytest.mark.parametrize("given", ["lines", None, numbers()])
def test_an_input_that_is_no_handle_is_refused(given: Any) -> None:
    topology, _ = start()
    with pytest.raises(InputError, match="operator 'split': unknown input"):
        topology.operator("split", same, given)
    with pytest.raises(InputError, match="sink 'out': unknown input"):
        topology.sink("out", nothing(), given)
    assert list(topology.vertices) == ["lines"]


def test_an_unknown_handle_is_refused() -> None:
    topology, _ = start()
    with pytest.raises(InputError, match=r"operator 'split': unknown input .*'gone'"):
        topology.operator("split", same, Vertex(topology, "gone"))


def test_an_input_from_another_topology_is_refused() -> None:
    topology, _ = start()
    _, stranger = start()
    with pytest.raises(InputError, match="'split': the input 'lines' belongs to another topology"):
        topology.operator("split", same, stranger)


def test_an_operator_and_a_sink_need_an_input() -> None:
    topology, _ = start()
    with pytest.raises(InputError, match="operator 'split': has no input"):
        topology.operator("split", same)
    with pytest.raises(InputError, match="sink 'out': has no input"):
        topology.sink("out", nothing())


def test_a_sink_is_no_input() -> None:
    topology, lines = start()
    out = topology.sink("out", nothing(), lines)
    with pytest.raises(InputError, match="operator 'split': the sink 'out' has no output"):
        topology.operator("split", same, out)


def test_a_source_has_no_named_outputs() -> None:
    topology, lines = start()
    with pytest.raises(
        InputError, match="operator 'split': the source 'lines' has no named outputs"
    ):
        topology.operator("split", same, lines["rejected"])


def test_an_edge_is_given_once() -> None:
    topology, lines = start()
    with pytest.raises(InputError, match="the edge 'lines' → 'split' is given twice"):
        topology.operator("split", same, lines, lines)


def test_two_outputs_of_one_vertex_are_two_edges() -> None:
    topology, lines = start()
    split = topology.operator("split", same, lines)
    topology.operator("join", same, split, split["rejected"])
    assert topology.edges[1:] == [
        Edge("split", "join", None),
        Edge("split", "join", "rejected"),
    ]
    assert topology.forward()["split"] == ["join"]


# code


@pytest.mark.parametrize("code", [None, 7, "split", Silent()])
def test_code_that_cannot_be_called_is_refused(code: Any) -> None:
    topology, lines = start()
    with pytest.raises(
        InputError, match="operator 'split': must be a function or an Operator; got"
    ):
        topology.operator("split", code, lines)


def test_a_class_without_process_is_refused() -> None:
    topology, lines = start()
    code: Any = Silent
    with pytest.raises(InputError, match=r"operator 'quiet': the class Silent must define process"):
        topology.operator("quiet", code, lines)


def test_a_class_that_makes_a_value_of_another_is_a_function_to_map() -> None:
    topology, lines = start()
    parsed = topology.map("parse", int, lines)
    topology.sink("out", sinks.call(print), topology.map("hex", partial(int, base=16), lines))
    topology.sink("all", sinks.call(print), topology.filter("some", bool, parsed))
    bench = Bench(topology)
    bench.send("lines", "10", "0")
    bench.run()
    assert bench.outputs == {"out": [16, 0], "all": [10]}


def test_state_needs_a_key() -> None:
    topology, lines = start()
    with pytest.raises(InputError, match=r"operator 'count': Count uses self\.state.*needs a key"):
        topology.operator("count", Count, lines)
    assert topology.operator("count", Count, lines, key=str).name == "count"


def test_state_used_by_a_base_class_needs_a_key() -> None:
    class Recount(Count):
        def close(self) -> None:
            pass

    topology, lines = start()
    with pytest.raises(InputError, match=r"operator 'recount': Recount uses self\.state"):
        topology.operator("recount", Recount, lines)


def test_a_class_without_state_needs_no_key() -> None:
    class Double(Operator):
        def process(self, value: Any) -> list[Any]:
            return [value, value]

    topology, lines = start()
    assert topology.operator("double", Double, lines).name == "double"


class Reminds(Operator):
    def process(self, value: Any) -> None:
        self.timers.after("1s", value)


def test_timers_need_on_timer_and_a_key() -> None:
    class Told(Reminds):
        def on_timer(self, key: Any, payload: Any) -> None: ...

    topology, lines = start()
    rule = r"operator 'remind': Reminds uses self\.timers.*; define on_timer\(self, key, payload\)"
    with pytest.raises(InputError, match=rf"{rule}, and add key=…$"):
        topology.operator("remind", Reminds, lines)
    kept: list[dict[str, Any]] = [{}, {"ttl": "1h"}]
    for options in kept:
        with pytest.raises(InputError, match=f"{rule}$"):
            topology.operator("remind", Reminds, lines, key=str, **options)
    with pytest.raises(InputError, match=r"Told has on_timer, so it needs .* a key"):
        topology.operator("told", Told, lines)
    topology.operator("told", Told, lines, key=str)
    topology.operator("count", Count, lines, key=str, ttl="1h")


def yields(value: Any) -> Iterator[Any]:
    yield value


async def streams(value: Any) -> Any:
    yield value


class Yields(Operator):
    def process(self, value: Any) -> Iterator[Any]:
        yield value


@pytest.mark.parametrize(
    "code", [yields, streams, partial(yields), Yields, Yields(), partial(Yields)]
)
def test_what_yields_is_for_operators_alone(code: Any) -> None:
    topology, lines = start()
    for method, one in (("t.map", topology.map), ("t.filter", topology.filter)):
        with pytest.raises(InputError, match=f"'x': yields .*{method} takes the one .*; return"):
            one("x", code, lines)
    topology.operator("x", code, lines)


@pytest.mark.parametrize(
    "code", [windows.tumbling("1s", lambda *_: 1), windows.count(2, lambda *_: 1)]
)
def test_windows_are_for_operators_alone(code: Any) -> None:
    topology, lines = start()
    for one in (topology.map, topology.filter):
        with pytest.raises(InputError, match=r"operator 'x': \w+Windows emits .*use t.operator"):
            one("x", code, lines, key=str)
    topology.operator("x", code, lines, key=str)


def test_what_nobody_awaits_is_refused() -> None:
    class Hears(Operator):
        def process(self, value: Any) -> list[Any]:
            return [self.broadcast, value]

        async def on_broadcast(self, key: Any, value: Any) -> None: ...

    class Waits(Operator):
        async def process(self, value: Any) -> list[Any]:
            return [value]

        async def on_broadcast(self, key: Any, value: Any) -> None: ...

    class Remembers(Reminds):
        async def on_timer(self, key: Any, payload: Any) -> None: ...

    class Lists(Reminds):
        async def on_timer(self, key: Any, payload: Any) -> Any:
            yield key, payload

    topology, lines = start()
    told = topology.source("rules", numbers())
    with pytest.raises(InputError, match=r"Hears\.on_broadcast is async, but process is not; make"):
        topology.operator("x", Hears, lines, broadcast=told)
    for code in (Remembers, Lists):
        with pytest.raises(InputError, match=r"\.on_timer is async, which .*; make it a plain"):
            topology.operator("x", code, lines, key=str)
    topology.operator("x", Waits, lines, broadcast=told)


@pytest.mark.parametrize("key", [7, "word"])
def test_a_key_must_be_a_function(key: Any) -> None:
    topology, lines = start()
    with pytest.raises(InputError, match="operator 'count': key must be a function"):
        topology.operator("count", Count, lines, key=key)


# knobs


@pytest.mark.parametrize("knob", ["executors", "processors", "shards"])
@pytest.mark.parametrize("value", [0, -1, 1.0, True, "2", 10**9])
def test_a_count_must_be_whole_and_within_bounds(knob: str, value: Any) -> None:
    topology, lines = start()
    knobs: dict[str, Any] = {knob: value}
    with pytest.raises(InputError, match=f"operator 'split': {knob} must be a whole number from 1"):
        topology.operator("split", same, lines, **knobs)


@pytest.mark.parametrize("knob", ["concurrency", "on_error"])
@pytest.mark.parametrize("value", ["fibre", None, 1])
def test_a_choice_must_be_known(knob: str, value: Any) -> None:
    topology, lines = start()
    knobs: dict[str, Any] = {knob: value}
    with pytest.raises(InputError, match=f"operator 'split': {knob} must be one of .*; got"):
        topology.operator("split", same, lines, **knobs)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"proccessors": 3}, "did you mean 'processors'"),
        ({"foo": 3}, "known are key, shards, executors, processors, concurrency, on_error, chain"),
        ({"inputs": 3}, "known are key"),
        ({"emits": 3}, "known are key"),
    ],
)
def test_an_unknown_option_is_told(options: dict[str, Any], told: str) -> None:
    topology, lines = start()
    for add in (topology.operator, topology.map, topology.filter):
        with pytest.raises(InputError, match=f"operator 'x': there is no option '.*'; {told}"):
            add("x", same, lines, **options)


@pytest.mark.parametrize("given", [3, None, "rules"])
def test_a_broadcast_that_is_no_handle_is_refused(given: Any) -> None:
    class Rules(Operator):
        def process(self, value: Any) -> list[Any]:
            return [value, dict(self.broadcast)]

    topology, lines = start()
    for broadcast in (given, [given]):
        with pytest.raises(InputError, match=f"operator 'x': unknown input {given!r}; use what"):
            topology.operator("x", Rules, lines, broadcast=broadcast)


@pytest.mark.parametrize("value", ["fibre", None, 1])
def test_what_a_sink_does_on_an_error_must_be_known(value: Any) -> None:
    topology, lines = start()
    with pytest.raises(
        InputError,
        match=f"sink 'out': on_error must be one of 'fail', 'skip', 'dead-letter'; got {value!r}",
    ):
        topology.sink("out", nothing(), lines, on_error=value)


def test_a_sink_keeps_what_it_does_on_an_error() -> None:
    topology, lines = start()
    topology.sink("strict", nothing(), lines)
    topology.sink("lenient", nothing(), lines, on_error="dead-letter")
    found = {name: spec.on_error for name, spec in topology.sinks.items()}
    assert found == {"strict": "fail", "lenient": "dead-letter"}


def test_every_executor_needs_a_processor() -> None:
    topology, lines = start()
    with pytest.raises(
        InputError, match=r"operator 'split': each of its 3 executors.*got processors=2"
    ):
        topology.operator("split", same, lines, executors=3, processors=2)


def test_keyed_processors_share_shards() -> None:
    topology, lines = start()
    with pytest.raises(
        InputError,
        match="'count': each processor needs a shard; got processors=5 and shards=4; raise shards",
    ):
        topology.operator("count", Count, lines, key=str, shards=4, processors=5)
    topology.operator("split", same, lines, shards=4, processors=5)
    assert topology.operators["split"].processors == 5


def test_an_operator_says_how_few_and_how_many_processors_it_can_do_with() -> None:
    topology, lines = start()
    topology.operator("split", same, lines, executors=3)
    topology.operator("count", Count, lines, key=str, shards=4, executors=2)
    split, count = topology.operators.values()
    assert (split.least_processors, split.most_processors) == (3, None)
    assert (count.least_processors, count.most_processors) == (2, 4)
    limits = shape_of(topology).limits
    assert (limits.least("split"), limits.most("split")) == (3, math.inf)
    assert (limits.least("count"), limits.most("count")) == (2, 4)
    check_room(topology, ControlSettings(max_processors=5))
    with pytest.raises(InputError, match="maxProcessors must be at least 5"):
        check_room(topology, ControlSettings(max_processors=4))


def test_processors_start_as_many_as_executors() -> None:
    topology, lines = start()
    topology.operator("split", same, lines, executors=3)
    topology.operator("count", same, lines, executors=2, processors=7)
    found = {name: spec.processors for name, spec in topology.operators.items()}
    assert found == {"split": 3, "count": 7}


def test_a_source_must_be_a_source() -> None:
    topology = Topology("t")
    source: Any = [1, 2]
    with pytest.raises(InputError, match=r"source 'lines': must be .*; got \[1, 2\]"):
        topology.source("lines", source)


def test_a_sink_must_be_a_sink() -> None:
    topology, lines = start()
    sink: Any = print
    with pytest.raises(InputError, match=r"sink 'out': must be one of sojourn\.sinks"):
        topology.sink("out", sink, lines)


# feedback


def test_feedback_joins_operators_only() -> None:
    topology, lines = start()
    split = topology.operator("split", same, lines)
    out = topology.sink("out", nothing(), split)
    with pytest.raises(InputError, match="both ends must be operators; 'lines' is not"):
        topology.feedback(lines, split)
    with pytest.raises(InputError, match="both ends must be operators; 'lines' is not"):
        topology.feedback(split, lines)
    with pytest.raises(InputError, match="feedback: the sink 'out'"):
        topology.feedback(out, split)
    with pytest.raises(InputError, match="feedback: the sink 'out'"):
        topology.feedback(split, out)


def test_feedback_takes_handles_of_its_own_topology() -> None:
    topology, lines = start()
    split = topology.operator("split", same, lines)
    other, others = start()
    stranger = other.operator("split", same, others)
    name: Any = "split"
    with pytest.raises(InputError, match="feedback: unknown input 'split'"):
        topology.feedback(name, split)
    with pytest.raises(InputError, match="feedback: the input 'split' belongs to another"):
        topology.feedback(split, stranger)


def test_feedback_is_given_once() -> None:
    topology, lines = start()
    split = topology.operator("split", same, lines)
    topology.feedback(split, split)
    topology.feedback(split["again"], split)
    with pytest.raises(InputError, match="the edge 'split' → 'split' is given twice"):
        topology.feedback(split, split)


def test_feedback_may_close_a_loop() -> None:
    topology, lines = start()
    first = topology.operator("first", same, lines)
    second = topology.operator("second", same, first)
    topology.feedback(second, first)
    topology.check()
    assert topology.levels() == {"lines": 0, "first": 1, "second": 2}


# the whole


def test_a_topology_needs_a_source() -> None:
    with pytest.raises(InputError, match="topology 't': has no source"):
        Topology("t").check()


def test_a_source_must_feed_something() -> None:
    topology, lines = start()
    topology.operator("split", same, lines)
    topology.source("idle", numbers())
    with pytest.raises(InputError, match="source 'idle': feeds nothing"):
        topology.check()


def test_an_operator_that_only_feedback_reaches_is_refused() -> None:
    topology, lines = start()
    first = topology.operator("first", same, lines)
    second = topology.operator("second", same, first)
    topology.edges.remove(Edge("first", "second"))
    topology.feedback(first, second)
    with pytest.raises(InputError, match="operator 'second': has no input"):
        topology.check()


def test_a_cycle_of_plain_edges_is_told_by_its_path() -> None:
    topology, lines = start()
    first = topology.operator("first", same, lines)
    topology.operator("second", same, first)
    topology.edges.append(Edge("second", "first"))
    with pytest.raises(InputError, match="'t': the cycle first → second → first") as error:
        topology.check()
    assert "only feedback() may close a loop" in str(error.value)


def test_a_plain_edge_to_itself_is_told() -> None:
    topology, lines = start()
    topology.operator("first", same, lines)
    topology.edges.append(Edge("first", "first"))
    with pytest.raises(InputError, match="the cycle first → first is closed by a plain edge"):
        topology.check()


def test_a_level_is_the_longest_path() -> None:
    topology = Topology("t")
    early, lines, late = (topology.source(n, numbers()) for n in ("early", "lines", "late"))
    short = topology.operator("short", same, lines)
    long = topology.operator("long", same, short)
    join = topology.operator("join", same, early, lines, long, late)
    topology.sink("out", nothing(), join, lines)
    topology.check()
    assert topology.levels() == {
        "early": 0,
        "lines": 0,
        "late": 0,
        "short": 1,
        "long": 2,
        "join": 3,
        "out": 4,
    }


def test_an_operator_that_feeds_nothing_is_fine() -> None:
    topology, lines = start()
    topology.operator("split", same, lines)
    topology.check()
    assert topology.forward() == {"lines": ["split"], "split": []}


def test_vertices_are_listed_by_kind_in_order() -> None:
    topology, lines = start()
    more = topology.source("more", numbers())
    second = topology.operator("second", same, more)
    topology.operator("first", same, lines)
    topology.sink("out", nothing(), second)
    assert list(topology.sources) == ["lines", "more"]
    assert list(topology.operators) == ["second", "first"]
    assert list(topology.sinks) == ["out"]


def test_a_named_output_is_kept_on_its_edge() -> None:
    topology, lines = start()
    checked = topology.operator("check", lambda v: Output("rejected", v), lines)
    topology.sink("bad", nothing(), checked["rejected"])
    topology.sink("good", nothing(), checked)
    assert [(e.receiver, e.output) for e in topology.edges[1:]] == [
        ("bad", "rejected"),
        ("good", None),
    ]


def test_an_operator_class_must_override_process_to_be_run() -> None:
    with pytest.raises(TypeError, match=r"Operator must define process\(self, value\)"):
        Operator().process(1)


# pickling


def test_every_vertex_is_pickled() -> None:
    topology, lines = start()
    factor = 3
    triple = topology.operator("triple", lambda v: [v * factor], lines)
    topology.sink("out", nothing(), triple)
    code = pickled(topology)
    assert list(code) == ["lines", "triple", "out"]
    assert cloudpickle.loads(code["triple"])(5) == [15]
    assert [v for v, _ in cloudpickle.loads(code["lines"]).read(None)] == [0, 1, 2]


def test_an_operator_that_holds_a_lock_is_refused_by_name() -> None:
    topology, lines = start()
    lock = threading.Lock()

    def guarded(value: Any) -> list[Any]:
        with lock:
            return [value]

    topology.operator("guarded", guarded, lines)
    with pytest.raises(
        InputError, match=r"'guarded' cannot be sent to another process: .*open\(\)"
    ):
        pickled(topology)


def test_an_operator_that_holds_a_socket_is_refused_by_name() -> None:
    with socket.socket() as held:

        class Talking(Operator):
            link = held

            def process(self, value: Any) -> list[Any]:
                return [value, self.link.fileno()]

        topology, lines = start()
        topology.operator("talking", Talking, lines)
        with pytest.raises(InputError, match="'talking' cannot be sent to another process"):
            pickled(topology)


def test_a_source_and_a_sink_that_cannot_be_pickled_are_refused_by_name() -> None:
    lock = threading.Lock()
    topology = Topology("t")
    topology.source("locked", sources.iterable(lambda: [lock]))
    with pytest.raises(InputError, match="'locked' cannot be sent"):
        pickled(topology)
    topology, lines = start()
    topology.sink("shut", sinks.call(lambda _value: lock), lines)
    with pytest.raises(InputError, match="'shut' cannot be sent"):
        pickled(topology)


def test_only_an_operator_right_behind_sources_and_without_a_key_can_shed() -> None:
    topology, lines = start()
    for wrong in ({"key": str}, {"chain": True}):
        with pytest.raises(InputError, match=r"shed_after must be above zero, and goes with"):
            topology.operator("first", yields, lines, shed_after=0.2, **wrong)
    with pytest.raises(InputError, match=r"shed_after must be above zero"):
        topology.operator("first", yields, lines, shed_after=0)
    first = topology.operator("first", yields, lines, shed_after="200ms")
    assert topology.operators["first"].shed_after_s == 0.2
    topology.sink("out", nothing(), first)
    topology.check()
    with pytest.raises(InputError, match="a simulation sheds at sources only"):
        SimulatedEngine(topology, Workload({}), SimulatorSettings(), EngineSettings())
    topology.operator("second", yields, first, shed_after=0.2)
    with pytest.raises(InputError, match=r"'second': shed_after is for .* tuples from 'first'"):
        topology.check()


def test_only_a_source_with_splits_has_several_executors(tmp_path: Path) -> None:
    t = Topology("t")
    files = sources.files(tmp_path / "*", follow=True)
    t.sink("out", sinks.console(), t.source("lines", files, executors=2, on_error="skip"))
    assert t.sources["lines"].executors == 2
    assert told_of(t.sources["lines"]) == "source, 2 executors"
    with pytest.raises(InputError, match=r"source 'one': has no splits, so one process reads it"):
        t.source("one", sources.iterable(list), executors=2)
    with pytest.raises(InputError, match="source 'none': executors must be a whole number"):
        t.source("none", files, executors=0)
