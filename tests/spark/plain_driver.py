"""A driver with plain queries, which `test_attach.py` runs beside it: a process can have but one
Spark session, and that of the tests is local. It does what it is told, one piece of Python after
the other, and answers with what that piece leaves in `told`."""

import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import sojourn as sj
from sojourn.attached import status as st
from sojourn.attached.journal import Period
from sojourn.attached.loop import Attached
from sojourn.attached.scaling import DriverScaling, DriverStatus

_WAIT_S = 90.0


class Driver:
    """Its session, and what queries and tests need."""

    def __init__(self, url: str, confs: dict[str, str], out: Path) -> None:
        builder = SparkSession.builder.master(url).appName("plain")
        self.spark = builder.config(map={**confs}).getOrCreate()
        self.status = DriverStatus(self.spark)
        self.out = out

    def rated(self, rate: int, tasks: int, row_ms: int) -> DataFrame:
        """Rows of Spark's own source, which keep a slot busy for some time each. Python workers
        would have to start first."""
        reader = self.spark.readStream.format("rate").option("rowsPerSecond", rate)
        rows = reader.option("numPartitions", tasks).load()
        slept = f"java_method('java.lang.Thread', 'sleep', {row_ms}L) as slept"
        return rows.selectExpr("value as number", slept)

    def start(self, rows: DataFrame, name: str) -> Any:
        """A query that writes its rows to files. What a batch has written counts once the batch is
        done."""
        writer = rows.writeStream.format("json").option("path", str(self.out / name / "rows"))
        return writer.option("checkpointLocation", str(self.out / name / "spark")).start()

    def kept(self, name: str) -> list[int]:
        """The rows that a query has written."""
        found = self.spark.read.json(str(self.out / name / "rows"))
        return sorted(row.number for row in found.collect())

    def attach(self, query: Any, name: str, **more: Any) -> Attached:
        """A query with Sojourn attached, and a short period."""
        path = self.out / name / "journal.jsonl"
        return sj.attach(self.spark, query, journal=path, **{"period": "1s", **more})

    def executors(self) -> list[str]:
        """Those that are there."""
        return sorted(st.executors(self.status))

    def ask(self, executors: int) -> None:
        """Have so many in all, without Sojourn."""
        DriverScaling(self.spark).ask(executors)


def until(attached: Attached, what: Callable[[Period], bool]) -> Period:
    """The first period from now on of which that is true."""
    last = attached.number

    def found() -> Period | None:
        return next((p for p in attached.periods if p.number > last and what(p)), None)

    with attached.decided:
        attached.decided.wait_for(lambda: found() or attached.ended.is_set(), _WAIT_S)
    if (one := found()) is None:
        raise AssertionError("\n".join(f"{words(p)}" for p in list(attached.periods)[-20:]))
    return one


def words(period: Period) -> str:
    """A period in words."""
    seen, decision = period.seen, period.decision
    return f"{seen.executors} there, {decision.executors}: {decision.why}; {period.note}"


def main() -> None:
    """Do what comes in, line by line."""
    driver = Driver(sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3]))
    names: dict[str, Any] = {"driver": driver, "spark": driver.spark, "time": time, "sj": sj}
    names |= {"until": until, "words": words, "st": st}
    print(json.dumps({"told": None}), flush=True)
    for line in sys.stdin:
        names["told"] = None
        try:
            exec(json.loads(line), names)
            said = {"told": names["told"]}
        except Exception:
            said = {"failed": traceback.format_exc()}
        print(json.dumps(said), flush=True)
    driver.spark.stop()


if __name__ == "__main__":
    main()
