"""A chain's operators in one worker. What one emits goes to the next by a call; what leaves the
chain is returned. Used by the code of the chain's head."""

import time
from typing import Any

from sojourn.chains import Chain
from sojourn.engine.worker.results import READERS
from sojourn.operators import Output, made, operator_class


class ChainCode:
    """The opened operators of a chain, and what each but the head has done since it was last asked:
    tuples served, and the sums of their service times and of the squares of these."""

    def __init__(self, chain: Chain, in_threads: bool = False) -> None:
        self.stages = chain.stages
        self.operators: list[Any] = []
        self.functions = []
        self.readers = []
        for stage in chain.stages:
            function: Any = stage.code
            if operator_class(stage.code) is not None:
                operator = made(stage.code, in_threads)
                if hasattr(operator, "open"):
                    operator.open()
                self.operators.append(operator)
                function = operator.process
            self.functions.append(function)
            self.readers.append(READERS[stage.emits])
        self.done = [(0, 0.0, 0.0)] * len(self.stages)

    def process(self, value: Any) -> list[Any]:
        """Process a value at the head. Returns what leaves the chain."""
        left: list[Any] = []
        self._run(0, value, left)
        return left

    def take(self) -> list[tuple[int, float, float]]:
        """What the stages behind the head have done."""
        done, self.done = self.done, [(0, 0.0, 0.0)] * len(self.stages)
        return done[1:]

    def close(self) -> None:
        """Close the operators, the last one first."""
        for operator in reversed(self.operators):
            if hasattr(operator, "close"):
                operator.close()

    def _run(self, number: int, value: Any, left: list[Any]) -> None:
        stage = self.stages[number]
        began = time.perf_counter()
        results = self.readers[number](stage.name, self.functions[number](value), value)
        took = time.perf_counter() - began
        served, total, squares = self.done[number]
        self.done[number] = (served + 1, total + took, squares + took * took)
        for result in results:
            output = None
            if isinstance(result, Output):
                output, result = result.name, result.value  # noqa: PLW2901
            if output in stage.leaves:
                name = stage.leaves[output]
                left.append(result if name is None else Output(name, result))
            for receiver in stage.onward.get(output, ()):
                self._run(receiver, result, left)
