"""The errors that users see. A mistake of theirs becomes one message that names the subject, the
rule, the value and the remedy. Every layer raises it; the command line prints it and ends with code
2."""

from collections.abc import Iterable


class InputError(ValueError):
    """Something the user gave cannot be used."""


class TopologyFailed(RuntimeError):
    """The topology cannot go on: user code failed, or restarts did not help."""


def check_options(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse an option that there is not, and name the nearest that there is."""
    names = list(known)
    for name in given:
        if name not in names:
            import difflib  # few need it, and it takes time to load

            close = difflib.get_close_matches(name, names, 1)
            meant = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names)}"
            raise InputError(f"{what}: there is no option {name!r}; {meant}")
