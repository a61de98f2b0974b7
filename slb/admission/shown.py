"""How admission shows itself: the ledger in /status, the last decision in /routes/<path>."""

from typing import Literal

from typing_extensions import TypedDict

Mode = Literal["shared", "late", "settling", "local"]
"""What decides in a pool: Redis; Redis, but for requests that cannot wait for it, because it takes longer than
`redis_budget`; the same where there is a cap, because Redis has lost what the fleet holds and is being sent it
again; or this instance alone."""

_Candidate = Literal[
    "chosen", "higher score", "tie", "not first in order", "passed over", "full", "tried", "fading"
]
_Outside = Literal["draining", "down", "ejected", "not a candidate", "not recorded", "eligible"]
Verdict = _Candidate | _Outside
"""Why a member was taken or was not: see docs/global-view.md."""


class PoolShown(TypedDict):
    """One pool. `error` says why Redis does not decide. `holders`, `queued` and `scores` (member -> requests in
    flight) are the fleet's, as this process last heard, null while it does not hear; `held` (by member) and
    `waiting` (by route and class) its own."""

    mode: Mode
    error: str
    holders: int | None
    queued: int | None
    held: dict[str, int]
    waiting: dict[str, dict[str, int]]
    scores: dict[str, int] | None


class LedgerShown(TypedDict):
    """The pools this process has a way to Redis for."""

    pools: dict[str, PoolShown]


class MemberDecision(TypedDict):
    """`score`: requests in flight found at the decision, null where that was not recorded; everywhere, or of this
    process where it decided. `capacity`: how many it might have had then, 0 for any number."""

    member: str
    score: int | None
    capacity: int
    verdict: Verdict


class Decision(TypedDict):
    """The last one of a route that is still known. `decided_by`: `redis`; `here`, in its stead; or `policy`, where
    the route needs no slot and `members` are as they are now. `position`: how many of its class were before it,
    null where it did not queue; `waited`: seconds."""

    decided_by: Literal["redis", "here", "policy"]
    policy: str
    seconds_ago: float | None
    outcome: Literal["granted", "refused", "waiting", "left"] | None
    chosen: str | None
    reason: str | None
    priority: str | None
    position: int | None
    waited: float
    members: list[MemberDecision]


class CandidateNow(TypedDict):
    """An upstream of a route as a request would find it now. `verdict`: `next`, where it would go as far as that is
    not left to chance; `eligible`, `fading` (chance decides whether it is left out), `full` or `passed over`; else
    the reason for which it takes none.
    `why`: the same in more words. `score`: what the policy compares, null where it has none. `inflight`: of this
    process; `fleet`: slots that are held everywhere, as of a second ago, null where that is not counted or not
    known; `capacity`: how many may be, 0 for any number. `share`: of its full share while it fades in, else 1."""

    member: str
    verdict: str
    why: str
    score: float | None
    inflight: int
    fleet: int | None
    capacity: int
    slots: int
    weight: int
    zone: str
    node: str
    share: float


class RouteNow(TypedDict):
    """What a request of a route would find at this process now. `outcome`: `sent`, `waits` or `refused`, with its
    `reason`. `by`: what the scores are, and which wins. `decided_by`: as in `Decision`. `queued`: requests of the
    fleet that wait for a slot of its pool, null where nothing is counted or that is not known. `panic`: too few are
    available, and all are used."""

    route: str
    policy: str
    decided_by: Literal["redis", "here", "policy"]
    outcome: Literal["sent", "waits", "refused"]
    reason: str
    by: str
    queued: int | None
    panic: bool
    members: list[CandidateNow]
