"""Values of classes that only the user's script has."""

import pickle
import re
import subprocess
import sys
import types
from typing import Any

import cloudpickle
import pytest

from sojourn.engine.worker import values


def foreign(name: str) -> type:
    """A class as a worker sees it: of a module that it cannot import."""
    made = types.new_class(name, exec_body=lambda body: body.update(__module__="apps.trades"))
    made.__qualname__ = name
    return made


def test_own_classes_are_found_by_name() -> None:
    trade = foreign("Trade")
    trade.Side = foreign("Trade.Side")  # type: ignore[attr-defined]
    values.register([("apps.trades", "Trade", cloudpickle.dumps(trade))])
    rebuilt: Any = values.loads(values.dumps(trade))
    value: Any = rebuilt()
    value.price = 3
    for sent in (value, [value], {"side": rebuilt.Side()}):
        with pytest.raises((pickle.PicklingError, AttributeError)):
            pickle.dumps(sent)
    (found,) = values.loads(values.dumps([value]))
    assert type(found) is rebuilt
    assert found.price == 3
    again = values.loads(values.dumps(value))
    assert again.price == 3
    side = values.loads(values.dumps(rebuilt.Side()))
    assert type(side) is rebuilt.Side


def test_plain_values_are_plain_pickles() -> None:
    assert values.dumps((1, "a")) == pickle.dumps((1, "a"), protocol=5)


def test_a_class_that_is_no_more_is_named() -> None:
    old = foreign("Old")
    values.register([("apps.trades", "Old", cloudpickle.dumps(old))])
    data = values.dumps(values.loads(values.dumps(old))())
    code = (
        "import sys; from sojourn.engine.worker import values; "
        "values.loads(sys.stdin.buffer.read())"
    )
    later = subprocess.run(
        [sys.executable, "-c", code], input=data, capture_output=True, check=False
    )
    said = later.stderr.decode().splitlines()[-1]
    assert re.match(r"AttributeError: .*class 'Old' of 'apps\.trades'.*no longer has", said), said


def test_what_cannot_be_pickled_still_says_so() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        values.dumps(lambda: None)
