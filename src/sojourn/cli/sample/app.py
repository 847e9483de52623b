"""Sensors send readings, faster and faster. Kept under the target in sojourn.yaml by

    sojourn run app.py --config sojourn.yaml

Everything here is yours to change. A topology is a graph: sources say where tuples come from,
operators what is done with each, and sinks where the results go.
"""

import random
import time
from typing import Any

import sojourn as sj

RATES = ((20.0, 20.0), (30.0, 80.0), (20.0, 20.0))  # seconds at so many readings per second
COUNT = int(sum(seconds * rate for seconds, rate in RATES))
TOO_WARM_C = 80.0


def reading(number: int) -> dict[str, Any]:
    """The reading of that number. A source must give the same again after a failure."""
    chance = random.Random(number)
    return {"number": number, "sensor": number % 10, "fahrenheit": chance.uniform(60.0, 200.0)}


def convert(reading: dict[str, Any]) -> dict[str, Any]:
    """To degrees Celsius. It takes 30 ms, as if a service elsewhere were asked."""
    time.sleep(0.03)
    return reading | {"celsius": round((reading["fahrenheit"] - 32) / 1.8, 1)}


class Alarm(sj.Operator):
    """Says when a sensor gets too warm. Its state belongs to one sensor, the operator's key."""

    def process(self, reading: dict[str, Any]) -> list[dict[str, Any]]:
        """No result, or one, for each reading."""
        sensor = reading["sensor"]
        was_warm = self.state.get(sensor, False)
        is_warm = self.state[sensor] = reading["celsius"] > TOO_WARM_C
        return [{"sensor": sensor, "celsius": reading["celsius"]}] if is_warm > was_warm else []


def topology(count: int = COUNT) -> sj.Topology:
    """readings → convert → alarm → alarms."""
    t = sj.Topology("sensors")
    readings = t.source("readings", sj.sources.paced(reading, rate=RATES, count=count))
    converted = t.map("convert", convert, readings)
    alarms = t.operator("alarm", Alarm, converted, key=lambda reading: reading["sensor"])
    t.sink("alarms", sj.sinks.jsonl("out/alarms"), alarms)
    return t
