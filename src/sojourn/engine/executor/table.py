"""What was broadcast to an operator: the newest value of each key, pickled, as all its workers have
it. Fed by the executor with what comes; feeds new workers with all of it, and commits with what has
changed. All executors of an operator get the same, so only the first one's table is saved."""

from collections.abc import Iterable

from sojourn.engine.wire import messages as m


class Table:
    """Entries by their key's identity."""

    def __init__(self) -> None:
        self.entries: dict[bytes, m.Change] = {}
        self.changed: dict[bytes, m.Change] = {}

    def load(self, saved: Iterable[m.Change], anew: bool) -> None:
        """Load what the last commit had. With `anew`, the next one saves it again."""
        self.entries = {entry[0]: entry for entry in saved}
        self.changed = dict(self.entries) if anew else {}

    def take(self, payloads: Iterable[bytes]) -> list[m.Change]:
        """Take what has come, in order."""
        changes = [m.decode_change(payload) for payload in payloads]
        for change in changes:
            identity = change[0]
            self.changed[identity] = change
            if change[2] is None:
                self.entries.pop(identity, None)
            else:
                self.entries[identity] = change
        return changes

    def cut(self) -> list[m.Change]:
        """What has changed since the last cut."""
        changed, self.changed = self.changed, {}
        return list(changed.values())
