"""The topology in this test's own process, without Spark: `python -m unittest`, or pytest."""

import unittest

import app

from sojourn.testing import Bench


class TestSensors(unittest.TestCase):
    """What comes out, for what goes in."""

    def test_a_sensor_that_gets_too_warm_is_told_once(self) -> None:
        """And again only after it was cooler."""
        bench = Bench(app.topology())
        for fahrenheit in (50.0, 212.0, 214.0, 50.0, 194.0):
            bench.send("readings", {"number": 0, "sensor": 7, "fahrenheit": fahrenheit})
        bench.run()
        expected = [{"sensor": 7, "celsius": 100.0}, {"sensor": 7, "celsius": 90.0}]
        assert bench.outputs["alarms"] == expected
        assert bench.state("alarm") == {7: True}

    def test_the_source_gives_readings_of_all_sensors(self) -> None:
        """As many as it is asked for."""
        bench = Bench(app.topology(count=20))
        assert bench.read("readings") == 20
        bench.run()
        assert len(bench.state("alarm")) == 10


if __name__ == "__main__":
    unittest.main()
