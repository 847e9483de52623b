"""Settings for all tests."""

from hypothesis import HealthCheck, settings

# The same examples every time, and no deadline: a slow machine is not a wrong answer.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")
