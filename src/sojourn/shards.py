"""How many processors each executor has."""


def shares(processors: int, executors: int) -> list[int]:
    """An operator's processors, spread evenly over its executors."""
    whole, rest = divmod(processors, executors)
    return [whole + (i < rest) for i in range(executors)]
