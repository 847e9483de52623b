"""Pools of machines for the negotiator: this machine alone, a standalone cluster whose workers are
started and stopped, and whatever cluster manager Spark itself can ask."""


class LocalPool:
    """This machine, which takes as many processors as it is given."""

    processors_per_machine: int | None = None

    def machines(self) -> list[str]:
        """Always one."""
        return ["local"]

    def change(self, machines: int) -> str:
        """There is no other."""
        return f"refused: there is one machine; {machines} were asked for"
