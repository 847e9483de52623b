"""Random times. They are whole multiples of a quantum of 2⁻³⁰ s, so sums up to 2²³ s are exact in
any order. The same seed gives the same simulation on every machine."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from sojourn.errors import InputError

Times = npt.NDArray[np.float64]
Kind = Literal[
    "constant", "exponential", "uniform", "gamma", "hyperexponential", "lognormal", "pareto"
]
KINDS: tuple[str, ...] = get_args(Kind)
PER_SECOND = 2.0**30  # quanta


def quantized(times: Times) -> Times:
    """Round times to the nearest quantum."""
    return np.rint(times * PER_SECOND) / PER_SECOND


def quantum(time_s: float) -> float:
    """The same for one time."""
    return round(time_s * PER_SECOND) / PER_SECOND


def squares(times: Times) -> float:
    """The sum of the squares, to nine digits. Squares are not exact; rounding makes the sum
    independent of the order."""
    return float(f"{float((times**2).sum()):.9e}")


@dataclass(frozen=True)
class Distribution:
    """A distribution of non-negative times, given by its mean and squared coefficient of variation,
    or by its shape for a Pareto distribution. With `values` it is that of measured samples, and the
    rest follows from them."""

    kind: Kind | Literal["samples"] = "exponential"
    mean_s: float = 1.0
    scv: float | None = None
    shape: float | None = None
    values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind == "samples":
            if not self.values or not all(0 <= v < math.inf for v in self.values):
                raise InputError("samples must be one or more finite times of at least zero")
            object.__setattr__(self, "mean_s", math.fsum(self.values) / len(self.values))
            return
        if self.kind not in KINDS:
            raise InputError(
                f"unknown distribution {self.kind!r}; known: {', '.join(KINDS)}, samples"
            )
        if not 0 <= self.mean_s < math.inf:
            raise InputError(f"the mean must be finite and at least zero; got {self.mean_s:g}")
        self._check_scv()

    def _check_scv(self) -> None:
        scv = self.scv
        if scv is not None and not 0 <= scv < math.inf:
            raise InputError(f"the scv must be finite and at least zero; got {scv:g}")
        if self.kind == "pareto":
            if self.shape is None or not 1 < self.shape < math.inf:
                raise InputError(
                    "a Pareto distribution needs a finite shape above 1, or its mean is infinite; "
                    f"got {'none' if self.shape is None else f'{self.shape:g}'}"
                )
        elif self.shape is not None:
            raise InputError(f"only a Pareto distribution has a shape, not {self.kind!r}")
        fixed = {"constant": 0.0, "exponential": 1.0}
        if scv is None:
            if self.kind in ("gamma", "hyperexponential", "lognormal"):
                raise InputError(f"the distribution {self.kind!r} needs an scv")
        elif self.kind in fixed and scv != fixed[self.kind]:
            raise InputError(f"the scv of {self.kind!r} must be {fixed[self.kind]:g}; got {scv:g}")
        elif self.kind == "pareto":
            raise InputError(
                "the scv of a Pareto distribution follows from its shape; leave out the scv"
            )
        elif self.kind == "uniform" and scv > 1 / 3:
            raise InputError(f"the scv of 'uniform' must be at most 1/3; got {scv:g}")
        elif self.kind == "hyperexponential" and scv < 1:
            raise InputError(f"the scv of 'hyperexponential' must be at least 1; got {scv:g}")

    @classmethod
    def of_moments(cls, mean_s: float, scv: float) -> "Distribution":
        """The usual distribution for given moments: gamma. The exponential, Erlang's and the
        constant are special cases of it."""
        if scv < 1e-9:
            return cls("constant", mean_s)
        return cls("gamma", mean_s, scv)

    def scaled(self, factor: float) -> "Distribution":
        """The same with all times multiplied by a factor."""
        return Distribution(
            self.kind,
            self.mean_s * factor,
            self.scv,
            self.shape,
            tuple(v * factor for v in self.values),
        )

    def draw(self, rng: np.random.Generator, count: int) -> Times:
        """That many independent times."""
        return quantized(self._raw(rng, count))

    def _raw(self, rng: np.random.Generator, count: int) -> Times:
        mean, scv = self.mean_s, self.scv or 0.0
        match self.kind:
            case "samples":
                return np.asarray(self.values)[rng.integers(len(self.values), size=count)]
            case "constant":
                return np.full(count, mean)
            case "exponential":
                return rng.standard_exponential(count) * mean
            case "uniform":
                half = mean * math.sqrt(3 * (1 / 3 if self.scv is None else scv))
                return mean - half + 2 * half * rng.random(count)
            case "gamma":
                if scv == 0:
                    return np.full(count, mean)
                return rng.standard_gamma(1 / scv, count) * (mean * scv)
            case "hyperexponential":
                share = (1 + math.sqrt((scv - 1) / (scv + 1))) / 2
                means = np.where(
                    rng.random(count) < share, mean / (2 * share), mean / (2 * (1 - share))
                )
                return rng.standard_exponential(count) * means
            case "lognormal":
                sigma2 = math.log1p(scv)
                return mean * np.exp(math.sqrt(sigma2) * rng.standard_normal(count) - sigma2 / 2)
            case "pareto":
                assert self.shape is not None
                least = mean * (self.shape - 1) / self.shape
                return least * (1 - rng.random(count)) ** (-1 / self.shape)
