"""The engine on Spark is one as control knows them."""

import engine_contract
from pyspark.sql import SparkSession

import sojourn as sj


def test_it_is_an_engine_as_control_knows_them(spark: SparkSession) -> None:
    with sj.start(engine_contract.chain(), spark=spark, settings={"batch": 60}) as running:
        engine_contract.check(running.engine, running.await_idle)  # its source has no end
