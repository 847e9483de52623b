"""Finds the tuple that kills its worker. Fed with what dead workers had in hand; feeds the next
start, which gives out suspected tuples one by one and leaves out guilty ones.

A worker with a key takes its state with it when it dies, so the topology starts again from the last
commit and meets the same tuples. A tuple that is suspected after one death, and alone in hand at
the next, is guilty. It is left out once; equal tuples are not."""

from collections.abc import Mapping

from sojourn.engine.driver.record import Record
from sojourn.engine.wire import messages as m

_FORGET_AFTER = 3  # commits without a death


class Justice:
    """Suspects and culprits by vertex."""

    def __init__(self) -> None:
        self.suspects: dict[str, set[bytes]] = {}
        self.since: dict[str, int] = {}
        self.found: list[tuple[str, m.Suspect, int]] = []  # the int: the commit it was found after

    def died(self, failed: m.Failed, commit: int) -> None:
        """Note that a worker died with these in hand, in a start from this commit or later."""
        known = self.suspects.setdefault(failed.vertex, set())
        if len(failed.suspects) == 1 and failed.suspects[0].digest in known:
            self.found.append((failed.vertex, failed.suspects[0], commit))
        known.update(suspect.digest for suspect in failed.suspects)
        self.since[failed.vertex] = 0

    def guilty(self, commit: int) -> Mapping[str, list[m.Suspect]]:
        """The tuples to leave out of a start from this commit. A tuple is counted among its equals
        from the commit it was found after; after any other, it is the first of them."""
        found: dict[str, list[m.Suspect]] = {}
        for vertex, suspect, counted_from in self.found:
            same = counted_from == commit
            again = suspect if same else m.Suspect(suspect.digest, 1)
            found.setdefault(vertex, []).append(again)
        return found

    def committed(self, record: Record) -> None:
        """Note that a commit was made: tuples that were left out before it do not come again."""
        for part in record.parts:
            for digest in part.guilty:
                self.found = [
                    case
                    for case in self.found
                    if (case[0], case[1].digest) != (part.vertex, digest)
                ]
        for vertex in list(self.suspects):
            self.since[vertex] += 1
            if self.since[vertex] >= _FORGET_AFTER and vertex not in {c[0] for c in self.found}:
                del self.suspects[vertex], self.since[vertex]
