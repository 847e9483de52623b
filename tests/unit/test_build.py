"""Code on its way to other processes."""

import functools
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import cloudpickle

import sojourn as sj
from sojourn.engine.driver.build import own_modules_by_value, pickled


def topology() -> sj.Topology:
    def twice(value: Any) -> list[Any]:
        return [value, value]

    t = sj.Topology("twice")
    t.operator("twice", twice, t.source("numbers", sj.sources.iterable(lambda: range(3))))
    return t


def test_a_topology_started_in_another_thread_waits_for_the_register() -> None:
    """Cloudpickle's list of modules to be sent by value is one for all threads."""
    sent: list[dict[str, bytes]] = []
    thread = threading.Thread(target=lambda: sent.append(pickled(topology())))
    with own_modules_by_value():
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        assert not sent
    thread.join()
    assert set(sent[0]) == {"numbers", "twice"}
    assert cloudpickle.list_registry_pickle_by_value() == set()


@functools.cache
def fibonacci(number: int) -> int:
    return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)


def test_a_function_with_a_cache_can_be_sent(tmp_path: Path) -> None:
    """Also where its module is not."""
    t = sj.Topology("cached")
    t.sink(
        "out",
        sj.sinks.console(),
        t.map("add", fibonacci, t.source("in", sj.sources.iterable(lambda: range(3)))),
    )
    file = tmp_path / "code"
    file.write_bytes(pickled(t)["add"])
    load = f"import pickle; print(pickle.load(open({str(file)!r}, 'rb'))(30))"
    done = subprocess.run([sys.executable, "-c", load], capture_output=True, check=True, text=True)
    assert done.stdout == "832040\n"
