"""Code on its way to other processes."""

import threading
from typing import Any

import cloudpickle

import sojourn as sj
from sojourn.engine.build import pickled


def topology() -> sj.Topology:
    def twice(value: Any) -> list[Any]:
        return [value, value]

    t = sj.Topology("twice")
    t.operator("twice", twice, t.source("numbers", sj.sources.iterable(lambda: range(3))))
    return t


def test_topologies_may_be_started_in_several_threads_at_once() -> None:
    errors: list[Exception] = []

    def send_often() -> None:
        try:
            for _ in range(10):
                assert set(pickled(topology())) == {"numbers", "twice"}
        except Exception as error:  # noqa: BLE001  # told below
            errors.append(error)

    threads = [threading.Thread(target=send_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert cloudpickle.list_registry_pickle_by_value() == set()
