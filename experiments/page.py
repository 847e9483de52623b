"""The page of all results that are kept: first every claim with its verdicts, then one figure after
the other, Spark and simulator beside each other, then those that make no claims.

A claim is known by its place in the paper and what it says. Its verdict on an engine is that of the
full runs, or of quick ones if there are no others, with the rule of the newest one. Results that
were taken over from an earlier page are left out once their experiment has others."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kept import FOLDER, SHORT, Result
from lab import in_words

OURS = "ours"  # instead of a paper
ENGINES = {"spark": "Spark", "simulator": "simulator"}
_MINUTE = len("2000-01-01T00:00")
_HEAD = """\
# Experiments

Made by `sojourn experiment --table experiments/README.md` of what is kept in
[results](results), and of nothing else. The page on [experiments](../docs/experiments.md) says how
to run them and where they differ from the papers."""
_CLAIMS = """\
## All claims of the papers

A claim holds, does not hold, or cannot be decided here, by a rule that was written down before the
run. Each figure's own part, further down, has the rule and what was found."""
_OWN = """\
## Claims of this project"""
_OTHERS = """\
## Without claims of their own

These are judged as a whole, by the rule in each experiment's file."""


def page(results: Mapping[str, Result]) -> str:
    """Of all results, by the names of their files."""
    by_name: dict[str, list[_Run]] = {}
    for file, result in results.items():
        by_name.setdefault(result["experiment"], []).append(_Run(file, result))
    judged: dict[str, list[_Run]] = {}
    plain: dict[str, list[_Run]] = {}
    for name in sorted(by_name, key=_natural):
        runs = sorted(by_name[name], key=lambda run: run.order)
        runs = [run for run in runs if "note" not in run.result] or runs
        _tell_apart(runs)
        (judged if any(run.result["claims"] for run in runs) else plain)[name] = runs
    claims = [_Claim(name, key, runs) for name, runs in judged.items() for key in _keys(runs)]
    parts = [_HEAD]
    for title, own in ((_CLAIMS, False), (_OWN, True)):
        some = [claim for claim in claims if (claim.paper == OURS) == own]
        if some:
            parts.append(f"{title}\n\n{_table_of_claims(sorted(some, key=lambda c: c.order))}")
    parts += [_figure(name, runs, claims) for name, runs in judged.items()]
    if plain:
        parts.append(f"{_OTHERS}\n\n{_rows_of_all(plain)}\n\n{_verdicts_of_all(plain)}")
    return "\n\n".join(parts) + "\n"


class _Run:
    """A result, and the file that has it."""

    def __init__(self, file: str, result: Result) -> None:
        self.file, self.result = file, result
        self.engine, self.seed = result["engine"], result["seed"]
        self.full, self.date = result["length"] == "full", result.get("date", "")
        # Spark first, full ones first, then by seed.
        self.order = (list(ENGINES).index(self.engine), not self.full, self.seed, self.date)
        self.label = f"{ENGINES[self.engine]}{'' if self.full else ', quick'}, seed {self.seed}"

    def claim(self, key: tuple[str, str]) -> Mapping[str, Any] | None:
        """What it says about a claim."""
        found = (c for c in self.result["claims"] if (c["paper"], c["says"]) == key)
        return next(found, None)

    @property
    def links(self) -> str:
        """To what is kept."""
        plot = f", [plot]({FOLDER}/{self.file}.png)" if self.result["plot"] else ""
        return f"[figures]({FOLDER}/{self.file}.json){plot}"


class _Claim:
    """A claim over all runs of its experiment."""

    def __init__(self, experiment: str, key: tuple[str, str], runs: Sequence[_Run]) -> None:
        self.experiment, self.key = experiment, key
        self.paper, self.says = key
        self.runs = [run for run in runs if run.claim(key) is not None]

    @property
    def order(self) -> Any:
        return _natural(self.paper), _natural(self.experiment)

    def rules(self) -> list[str]:
        """The newest first."""
        newest = sorted(self.runs, key=lambda run: run.date, reverse=True)
        return list(dict.fromkeys(self._of(run)["rule"] for run in newest))

    def counted(self, engine: str) -> list[_Run]:
        """The runs that decide on an engine, one for each seed."""
        rule = self.rules()[0]
        runs = [r for r in self.runs if r.engine == engine and self._of(r)["rule"] == rule]
        runs = [run for run in runs if run.full] or runs
        by_seed = {run.seed: run for run in sorted(runs, key=lambda run: run.date)}
        return [by_seed[seed] for seed in sorted(by_seed)]

    def verdict(self, engine: str) -> str:
        """Over all seeds."""
        runs = self.counted(engine)
        if not runs:
            return "not run"
        seeds: dict[str, list[str]] = {}
        for run in runs:
            seeds.setdefault(in_words(self._of(run)["holds"]), []).append(str(run.seed))
        quick = "" if runs[0].full else "quick, "
        if len(seeds) == 1:
            ((told, some),) = seeds.items()
            return f"{told} ({quick}{_seeds(some)})"
        return "seeds disagree: " + ", ".join(f"{t} ({quick}{_seeds(s)})" for t, s in seeds.items())

    def why(self) -> str:
        """Why it does not hold or cannot be decided, or, if it holds, what was found."""
        told: dict[str, list[str]] = {}
        for engine, name in ENGINES.items():
            of = [self._of(run) for run in self.counted(engine)]
            lines = [c["why"] or c["found"] for c in of if c["holds"] is not True]
            lines = lines or [c["found"] for c in of]
            if lines:
                told.setdefault(lines[0], []).append(name)
        if len(told) == 1:
            return next(iter(told))
        return "; ".join(f"{' and '.join(names)}: {line}" for line, names in told.items())

    def _of(self, run: _Run) -> Mapping[str, Any]:
        found = run.claim(self.key)
        assert found is not None
        return found

    def told(self) -> Iterator[str]:
        """In its figure's part: the rules, and what each run found."""
        yield f"**{self.paper}**: {_sentence(self.says)}"
        yield ""
        for number, rule in enumerate(self.rules()):
            yield f"- {'Rule' if not number else 'An earlier rule'}: {_sentence(rule)}"
            for run in self.runs:
                claim = self._of(run)
                if claim["rule"] == rule:
                    why = f" ({claim['why']})" if claim["why"] else ""
                    told = f"**{in_words(claim['holds'])}**{why}: {_sentence(claim['found'])}"
                    yield f"  - {run.label}: {told}"


def _tell_apart(runs: Sequence[_Run]) -> None:
    """Runs that differ only in their rule, or in their code, are labelled by that."""
    labels = [run.label for run in runs]
    for run in runs:
        if labels.count(run.label) > 1:
            rule, *code = run.file.rpartition(f".seed{run.result['seed']}.")[2].split(".")
            run.label += f", rule {rule}" + (f", code {code[0]}" if code else "")


def _keys(runs: Iterable[_Run]) -> list[tuple[str, str]]:
    keys = ((c["paper"], c["says"]) for run in runs for c in run.result["claims"])
    return list(dict.fromkeys(keys))


def _table_of_claims(claims: Iterable[_Claim]) -> str:
    rows = [
        (
            f"[{claim.experiment if claim.paper == OURS else claim.paper}](#{claim.experiment})",
            claim.says,
            *(claim.verdict(engine) for engine in ENGINES),
            claim.why(),
        )
        for claim in claims
    ]
    return _table(("paper", "claim", *ENGINES.values(), "why"), rows)


def _figure(name: str, runs: Sequence[_Run], claims: Iterable[_Claim]) -> str:
    parts = [f"## {name}"]
    if about := next((run.result["about"] for run in runs if run.result.get("about")), ""):
        parts.append(about)
    parts.append(_table_of_runs(runs))
    parts += ["\n".join(claim.told()) for claim in claims if claim.experiment == name]
    rows = [(run.label, run.result["rows"]) for run in runs]
    parts.append(_beside(rows))
    for notes, some in _alike((run.result["notes"], run.label) for run in runs):
        parts.append(f"Scaled ({'; '.join(some)}): {_sentence(notes)}")
    last = sorted(runs, key=lambda run: (run.full, -run.seed, run.date))  # full, and the newest
    shown = {run.engine: run for run in last if run.result["plot"]}
    plots = [shown[engine] for engine in ENGINES if engine in shown]
    if plots:
        images = [f"![{name}, {run.label}]({FOLDER}/{run.file}.png)" for run in plots]
        parts.append(_table([run.label for run in plots], [images]))
    return "\n\n".join(parts)


def _table_of_runs(runs: Iterable[_Run]) -> str:
    return _table(
        (
            "run",
            "verdict",
            "took",
            "began (UTC)",
            "commit of the run",
            "of the rule",
            "CPU",
            "kept",
        ),
        [
            (
                run.label,
                run.result["verdict"],
                f"{run.result['seconds']:.0f} s",
                run.date[:_MINUTE].replace("T", " ") or "unknown",
                _commit(run.result.get("run")),
                _commit(run.result.get("rule")),
                _cpu(run.result),
                run.links,
            )
            for run in runs
        ],
    )


def _commit(told: Mapping[str, Any] | None) -> str:
    if told is None or told["commit"] is None:
        return "unknown"
    changed = f", {len(told['changed'])} files changed since" if told["changed"] else ""
    return f"`{told['commit'][:SHORT]}`{changed}"


def _cpu(result: Result) -> str:
    """How much of it others have stolen, and how much was used."""
    stolen = result.get("stolen")
    if not stolen or not stolen["seconds"]:
        return "unknown"
    less = stolen["seconds"] - stolen["clean_seconds"]
    told = f"stolen in {less} of {stolen['seconds']} s, at most {stolen['most_stolen']:.1%}"
    return told + (f"; used {stolen['busy']:.0%}" if "busy" in stolen else "")


def _beside(results: Sequence[tuple[str, Sequence[Sequence[str]]]]) -> str:
    """The rows of several runs in one table."""
    theirs: dict[str, str] = {}
    ours: dict[str, dict[str, str]] = {}
    for label, rows in results:
        for what, paper, here in rows:
            theirs[what] = paper
            ours.setdefault(what, {})[label] = here
    labels = list(dict.fromkeys(label for label, _ in results))
    return _table(
        ("what", "paper", *labels),
        [
            (what, theirs[what], *(of.get(label, "") for label in labels))
            for what, of in ours.items()
        ],
    )


def _rows_of_all(plain: Mapping[str, Sequence[_Run]]) -> str:
    return _table(
        ("experiment", "engine", "what", "paper", "here"),
        [
            (name, f"{run.engine}, {run.result['length']}", *row)
            for name, runs in plain.items()
            for run in runs
            for row in run.result["rows"]
        ],
    )


def _verdicts_of_all(plain: Mapping[str, Sequence[_Run]]) -> str:
    lines = []
    for name, runs in plain.items():
        for run in runs:
            result = run.result
            told = f"{result['seconds']:.0f} s"
            stolen = result.get("stolen")
            if stolen and stolen["clean_seconds"] < stolen["seconds"]:
                told += f", {stolen['seconds'] - stolen['clean_seconds']} with CPU stolen"
            words = in_words(result["holds"])
            lines.append(f"- {name}, {told}: {words}. {_sentence(result['verdict'])}")
            lines.append(f"  ({_sentence(result['notes'])}) {run.links}")
            if "note" in result:
                lines.append(f"  {_sentence(result['note'])}")
    return "\n".join(lines)


def _alike(told: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for what, who in told:
        found.setdefault(what, []).append(who)
    return list(found.items())


def _seeds(seeds: Sequence[str]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _natural(text: str) -> list[tuple[int, str]]:
    """In which fig. 10 comes after fig. 9."""
    return [(int(t), "") if t.isdigit() else (-1, t) for t in re.split(r"(\d+)", text)]
