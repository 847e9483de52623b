"""CPU times of the applications' calls, one sample for all experiments: what is "as measured" does
not change with the machine of the moment. It is made, and may be made anew, by

    python experiments/cpu_times.py

which calls the code of `examples/vld.py` and `examples/fpd.py` on their own streams, counts the CPU
time of each call, and writes `experiments/cpu_times.json`. A new sample is a new commit, and runs
with it have another rule."""

import functools
import itertools
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sojourn as sj

sys.path.append(str(Path(__file__).parent.parent / "examples"))

FILE = Path(__file__).parent / "cpu_times.json"
FRAMES, EVERY = 300, 5  # composed frames, and how far apart
HALF = 320  # of the width of a frame, as in coded.py
WINDOW, WINDOWS = 2_000, 3  # messages of a window, and how many windows pass
TOLD_ALL: dict[str, Any] = {
    "window": 87,
    "support": 0.1,
    "instances": 13,
    "windows": 40,
}  # as in coded.py
KEPT = 400  # calls of each operator, at even distances


@dataclass
class Calls:
    """What calls of an operator took, and what came of them: in all by receiver."""

    ms: list[float] = field(default_factory=list)
    emitted: dict[str, int] = field(default_factory=dict)

    def call(self, work: Callable[[], Iterable[Any]]) -> list[Any]:
        """Count one, and return its results."""
        began = time.thread_time()
        found = list(work())
        self.ms.append((time.thread_time() - began) * 1e3)
        return found

    def sent(self, receiver: str, count: int) -> None:
        """Note results for a receiver."""
        self.emitted[receiver] = self.emitted.get(receiver, 0) + count

    def told(self) -> dict[str, Any]:
        """As it is kept: moments of all calls, and some of them."""
        mean_ms = statistics.fmean(self.ms)
        step = max(1, len(self.ms) // KEPT)
        return {
            "calls": len(self.ms),
            "mean_ms": round(mean_ms, 6),
            "scv": round(statistics.pvariance(self.ms) / mean_ms**2, 4),
            "gains": {to: round(n / len(self.ms), 6) for to, n in self.emitted.items()},
            "ms": [round(ms, 5) for ms in self.ms[::step][:KEPT]],
        }


def called_vld(frames: int = FRAMES, **settings: Any) -> dict[str, Calls]:
    """Logo detection."""
    import vld

    operators = vld.topology(vld.Settings(**settings)).operators
    shown = vld.logos()
    values: list[Any] = [
        (number, vld.encoded(vld.composed(number, 0, shown)))
        for number in range(0, frames * EVERY, EVERY)
    ]
    found: dict[str, Calls] = {}
    for (name, spec), receiver in zip(operators.items(), [*operators, ""][1:], strict=True):
        code: Any = spec.code
        code.state = {}
        code.open()
        calls = found[name] = Calls()
        if spec.emits == "one":
            made = [calls.call(functools.partial(_listed, code.process, v)) for v in values]
        else:
            made = [calls.call(functools.partial(code.process, value)) for value in values]
        values = list(itertools.chain.from_iterable(made))
        if receiver:
            calls.sent(receiver, len(values))
    return found


def called_fpd(
    window: int = WINDOW, support: float = 0.01, instances: int = 0, windows: int = WINDOWS
) -> dict[str, Calls]:
    """Frequent patterns, over a few windows."""
    import fpd

    settings = fpd.Settings(window=window, support=support, instances=instances)
    zipf = fpd.Zipf(settings.vocabulary, settings.seed)
    generate, detect = fpd.Generate(settings.cap), fpd.Detect(settings.threshold)
    if instances:
        detect = fpd.DetectForAll(settings.threshold, instances)
    detect.state = {}
    found = {name: Calls() for name in ("generate", "detect", "report")}
    for number in range(windows * window):
        messages = [(1, zipf.message(number))]
        if number >= window:
            messages.append((-1, zipf.message(number - window)))
        for message in messages:
            made = found["generate"].call(functools.partial(generate.process, message))
            changes = [one for one in made if not isinstance(one, sj.Output)]
            found["generate"].sent("detect", len(changes))
            while changes:
                work = functools.partial(detect.process, changes.pop())
                for result in found["detect"].call(work):
                    if isinstance(result, sj.Output):
                        found["detect"].sent("detect", 1)
                        changes.append(result.value)
                    else:
                        found["detect"].sent("report", 1)
                        found["report"].call(functools.partial(_listed, fpd.report, result))
    return found


def _listed(one: Callable[[Any], Any], value: Any) -> list[Any]:
    return [one(value)]


def sample(found: Mapping[str, Mapping[str, Calls]]) -> dict[str, Any]:
    """All of it, and where it was made."""
    return {
        "made with": "python experiments/cpu_times.py",
        "where": {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "processor": _processor(),
        },
        **{app: {name: c.told() for name, c in calls.items()} for app, calls in found.items()},
    }


@functools.cache
def kept(app: str) -> dict[str, dict[str, Any]]:
    """The committed sample of an application, by operator."""
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))[app]
    return found


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown")


if __name__ == "__main__":
    told = sample(
        {
            "vld": called_vld(),
            "vld-half": called_vld(width=HALF),
            "fpd": called_fpd(),
            "fpd-all": called_fpd(**TOLD_ALL),
        }
    )
    FILE.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(f"{FILE}: written")
