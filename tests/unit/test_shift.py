"""When something measured has changed: many series at once are told as each alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sojourn.control.shift import Reading, since, since_each

READINGS = st.builds(
    Reading,
    st.sampled_from([0.0, 0.01, 0.011, 0.012, 0.02, 0.1]),
    st.sampled_from([0.0, 1.0, 20.0, 400.0]),
    st.sampled_from([0.0, 0.5, 1.0, 4.0]),
)


@given(st.lists(st.lists(READINGS, min_size=7, max_size=7), min_size=1, max_size=5))
def test_many_at_once_are_told_as_each_alone(series: list[list[Reading]]) -> None:
    means, weights, scvs = (
        np.array([[reading[i] for reading in one] for one in series]).T for i in range(3)
    )
    assert since_each(means, weights, scvs).tolist() == [since(one) for one in series]


def test_a_service_time_that_has_doubled_is_believed_from_where_it_did() -> None:
    readings = [Reading(0.02, 50, 1.0)] * 6 + [Reading(0.04, 50, 1.0)] * 3
    assert since(readings) == 6
