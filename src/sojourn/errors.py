"""The errors that users see. A mistake of theirs becomes one message that names the subject, the
rule, the value and the remedy. Every layer raises it; the command line prints it and ends with code
2."""


class InputError(ValueError):
    """Something the user gave cannot be used."""


class TopologyFailed(RuntimeError):
    """The topology cannot go on: user code failed, or restarts did not help."""
