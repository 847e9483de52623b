"""What became of the last change: not complete yet, too recent, or made things worse; and what that
forbids for now. Part of deciding; pure."""

from sojourn.control.measure import MORE
from sojourn.control.situation import ACTING, RETRIES, Action, Change, Decision, Situation
from sojourn.units import format_duration as told

_RETRY_INTERVALS = 4  # a change that is not complete after this many is asked for again
_WORSE = 1.3  # times what was expected, and what was before
_JUDGES = 2  # intervals that must agree
SHORT = 6.0  # times the hold-off; what was not enough took minutes to be found out
_ENOUGH_TREES = 20  # the fewest in an interval that may speak against a change


def unfinished(s: Situation) -> Decision | None:
    """Wait for a change that is not complete yet, or that was made within the measured interval."""
    change = s.memory.change
    late = [name for name, count in s.wanted.items() if s.current[name] != count]
    if late:
        name = late[0]
        has, wants = s.current[name], s.wanted[name]
        since = None if change is None else s.now_s - change.time_s
        if since is not None and since <= _RETRY_INTERVALS * s.settings.interval_s:
            return Decision(Action.SETTLING, f"{name!r} has {has} of {wants} processors so far")
        ago = "" if since is None else f" {told(since)} ago"
        what = f"{name!r} has {has} of the {wants} processors asked for{ago}"
        if s.memory.retries >= RETRIES:
            reason = f"{what}, despite {RETRIES} retries; making do with {has}"
            return Decision(Action.RETRY, reason, s.current, forced=True)
        return Decision(Action.RETRY, f"{what}; asking again", dict(s.wanted), forced=True)
    if change is not None and s.latest.time_s - s.latest.interval_s < change.time_s:
        ago = told(max(0.0, s.now_s - change.time_s))
        reason = f"the measured interval includes the change made {ago} ago"
        return Decision(Action.SETTLING, reason)
    return None


def is_judged(s: Situation, change: Change) -> bool:
    """Whether a change can be judged: the tuples that waited before it are worked off, or there was
    time enough for that."""
    return not s.backlog or s.now_s - change.time_s > 3 * s.settings.interval_s


def is_worse(s: Situation, change: Change) -> bool:
    """Whether the interval speaks against a change: tuples take longer than before and than
    expected, although no more of them arrive. A change other than an addition must also have missed
    the target."""
    measured = s.metric
    if measured is None or s.latest.sojourn is None or s.latest.sojourn.count < _ENOUGH_TREES:
        return False
    if change.measured_s is None or change.expected_s is None or not change.kept_up:
        return False
    if _more_arrive(s, change.rate):
        return False
    target = s.settings.max_sojourn_s
    if change.action is not Action.ADD and target is not None and measured <= target:
        return False
    return measured > _WORSE * max(change.expected_s, change.measured_s)


def _more_arrive(s: Situation, rate: float) -> bool:
    """Whether the load differs from the one at that external rate."""
    return s.latest.external_rate > MORE * rate


def made_worse(s: Situation) -> Decision | None:
    """Take back the last change if two intervals speak against it."""
    change = s.memory.change
    if change is None or change.reviewed or not is_judged(s, change) or not is_worse(s, change):
        return None
    if change.worse + 1 < _JUDGES or (s.most is not None and s.total(change.before) > s.most):
        return None
    return Decision(
        Action.ROLL_BACK,
        f"the last change made it worse: {told(s.metric or 0)} measured, "
        f"{told(change.expected_s or 0)} expected, {told(change.measured_s or 0)} before it; "
        f"going back, and not trying that again for {told(s.settings.hold_off_s)}",
        dict(change.before),
        forced=True,
    )


def restrained(s: Situation, found: Decision) -> Decision:
    """The decision, or to wait if it follows the last change too soon or was rolled back."""
    if found.action not in ACTING or found.allocation is None:
        return found
    why_not = _too_fresh(s, found)
    if not why_not and not found.forced:
        why_not = _unjudged(s, found) or _rolled_back(s, found) or _regretted(s, found)
    if not why_not:
        return found
    reason = f"{found.reason}; but {why_not}"
    return Decision(
        Action.WAIT, reason, needed=found.needed, enough=found.enough, better=found.better
    )


def _too_fresh(s: Situation, found: Decision) -> str:
    if found.action is Action.ROLL_BACK or _rescues(s, found):
        return ""
    ours = found.action in (Action.MOVE, Action.REMOVE) and not found.forced
    return too_recent(s, s.patience_s if ours else 0.0)


def too_recent(s: Situation, least_s: float = 0.0) -> str:
    """That the last change was made less than `change.interval`, or than so many seconds, ago, in
    words; nothing if not."""
    change, least_s = s.memory.change, max(s.settings.change_interval_s, least_s)
    if change is None or s.now_s - change.time_s >= s.settings.about(least_s):
        return ""
    left_s = least_s - (s.now_s - change.time_s)
    return f"the last change is too recent ({told(left_s)} to go)"


def _rescues(s: Situation, found: Decision) -> bool:
    """Whether it adds processors while an operator falls behind, and takes none from others. If
    the operator falls behind because its tuples take longer, more may not help, so it must be
    seen what they do."""
    assert found.allocation is not None
    takes = any(count < s.current[name] for name, count in found.allocation.items())
    more = {name for name, count in found.allocation.items() if count > s.current[name]}
    return found.action is Action.ADD and bool(s.slow) and not takes and not more & s.slowed


def _unjudged(s: Situation, found: Decision) -> str:
    change = s.memory.change
    if found.action is not Action.ADD or change is None or change.reviewed or _rescues(s, found):
        return ""
    if _more_arrive(s, change.rate):
        return ""
    if is_judged(s, change) and not is_worse(s, change):
        return ""
    return "the last change has not shown its effect yet"


def _rolled_back(s: Situation, found: Decision) -> str:
    assert found.allocation is not None
    for rejected in s.memory.rejected:
        if s.now_s >= rejected.until_s:
            continue
        same = dict(found.allocation) == dict(rejected.allocation)
        # If adding made it worse, adding more makes it worse still while the load is the same.
        more = (
            found.action is Action.ADD
            and rejected.action is Action.ADD
            and not _more_arrive(s, rejected.rate)
            and s.total(found.allocation) >= s.total(rejected.allocation)
        )
        # If so many were not enough, fewer are not enough either while the load is the same.
        fewer = (
            found.action is Action.REMOVE
            and rejected.action is Action.REMOVE
            and MORE * s.latest.external_rate > rejected.rate
            and s.total(found.allocation) <= s.total(rejected.allocation)
        )
        if same or more or fewer:
            what = "was not enough" if rejected.action is Action.REMOVE else "was rolled back"
            return f"that {what} and is not tried again for {told(rejected.until_s - s.now_s)}"
    return ""


def _lately(s: Situation) -> float:
    """The external rate over the time after which processors are given back. A wave has gone up and
    down in it."""
    past = [m for m in s.past if m.time_s >= s.now_s - s.settings.quiet_s]
    return sum(m.external_rate * m.interval_s for m in past) / sum(m.interval_s for m in past)


def _regretted(s: Situation, found: Decision) -> str:
    """Whether so few processors were there before, and more had to be added, although no more has
    arrived since than before that addition. Additions that follow each other belong to the same
    rise, and say nothing about what was in between."""
    if found.action is not Action.REMOVE:
        return ""
    assert found.allocation is not None
    for short in s.memory.short:
        if s.total(found.allocation) > s.total(short.allocation):
            continue
        left_s = short.added_s + SHORT * s.settings.hold_off_s - s.now_s
        before_s, since_s = short.added_s - short.time_s, s.now_s - short.added_s
        if before_s < s.settings.quiet_s:
            continue
        before, since = short.added_tuples - short.tuples, s.memory.tuples - short.added_tuples
        as_much = MORE * _lately(s) * before_s >= before
        if left_s > 0 and as_much and since * before_s <= MORE * before * since_s:
            return f"that was not enough and is not tried again for {told(left_s)}"
    return ""
