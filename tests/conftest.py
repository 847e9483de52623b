"""Settings for all tests."""

from hypothesis import settings

# The same examples every time, and no deadline: a slow machine is not a wrong answer.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
