"""Names in DNS as sources of members: asked again whenever their TTL has passed."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import structlog

from slb.backoff import Backoff
from slb.discovery.dns_places import Look, Place, Question, judged
from slb.discovery.dns_questions import Questions, Reply
from slb.discovery.found import Asked, Found, Member
from slb.dns_names import split_dns_name
from slb.lifecycle import set_within
from slb.model import stored_attributes
from slb.resolver import Rules

SHORTEST, LONGEST = 1.0, 60.0
"""Seconds between two looks, whatever the TTL. One of 0 would be a question after each answer; with one of a day an
upstream that has come in the morning would get nothing before the evening."""

MOST_MEMBERS = 1000
"""Of one name: as many as may be registered at once elsewhere, since they are written in one step."""

_GONE = Found({}, is_gone=True)
_MOST_LOGGED = 20
_log = structlog.get_logger("slb.discovery")


class DnsSource:
    """Follows the name in DNS `name`, in its normal form, for the route `path`. `attributes`: what is set on the
    name itself, which holds for each of its members; `look_again` is to be called when that has changed.

    A question that is not answered counts as answered as it was the last time. Until each has been answered once
    the source yields nothing, so that what another instance found before stays."""

    def __init__(
        self,
        path: str,
        name: str,
        questions: Questions,
        rules: Rules,
        attributes: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.path = path
        self.name = name
        self.asked = Asked()
        self._of = split_dns_name(name)
        self._questions = questions
        self._rules = rules
        self._attributes = attributes
        self._again = asyncio.Event()
        self._is_over = False
        self._backoff = Backoff(SHORTEST)
        self._answers: dict[Question, Reply] = {}
        self._left_out: Sequence[str] = ()

    def look_again(self) -> None:
        self._again.set()

    def end(self) -> None:
        """It is registered no more: from now on it says that it is gone."""
        self._is_over = True
        self._again.set()

    def stand(self) -> None:
        """It is registered again."""
        self._is_over = False
        self._again.set()

    async def follow(self) -> AsyncIterator[Found]:
        """As `Source` has it. Nothing is remembered of an earlier time: another instance may have followed
        since."""
        before: Found | None = None
        self._answers, self._backoff, self.asked.trouble = {}, Backoff(SHORTEST), ""
        while True:
            self._again.clear()
            found, pause = await self._look() if not self._is_over else (_GONE, None)
            if found is not None and found != before:
                before = found
                yield found
            await set_within(self._again, pause)

    async def _look(self) -> tuple[Found | None, float]:
        """What holds now, None where that is not known, and the seconds until the next look."""
        look = Look(self._questions, self._answers)
        places = await look.places(self._of)
        self._answers = look.answers
        pause = self._noted(look)
        return None if look.is_unknown else self._found(places, look.is_gone), pause

    def _noted(self, look: Look) -> float:
        """The seconds until the next look."""
        trouble, was_trouble = "; ".join(look.faults[:_MOST_LOGGED]), self.asked.trouble
        self.asked.trouble = trouble
        if trouble:
            if not was_trouble:
                _log.warning("discovery_not_answered", source=self.name, path=self.path, error=trouble)
            return self._backoff.pause(time.monotonic(), SHORTEST, LONGEST / 2, is_calm=False)
        if was_trouble:
            _log.info("discovery_answered_again", source=self.name, path=self.path)
        self._backoff = Backoff(SHORTEST)
        self.asked.answered_at = time.time()
        return min(max(look.ttl, SHORTEST), LONGEST)

    def _found(self, places: Sequence[Place], is_gone: bool) -> Found:
        allowed, refusals = judged(places, "https" if self._of.is_tls else "http", self._rules)
        members = sorted(allowed)
        self._log_left_out(refusals, len(members))
        common = _as_set(self._attributes())
        kept = {member: allowed[member] for member in members[:MOST_MEMBERS]}
        return Found(
            {each: common._replace(weight=weight or common.weight) for each, weight in kept.items()}, is_gone
        )

    def _log_left_out(self, refusals: Sequence[str], count: int) -> None:
        """Once for each change of what is left out."""
        left_out = (*refusals, str(count)) if count > MOST_MEMBERS else tuple(refusals)
        if left_out == self._left_out:
            return
        self._left_out = left_out
        if refusals:
            _log.warning("discovery_refused", source=self.name, path=self.path, why=refusals[:_MOST_LOGGED])
        if count > MOST_MEMBERS:
            _log.warning("discovery_too_many", source=self.name, path=self.path, found=count, most=MOST_MEMBERS)


def _as_set(written: Mapping[str, str]) -> Member:
    """What is set on the name itself; weights of SRV records come before its weight."""
    known = stored_attributes(written)
    is_draining = known.pop("drain", False)
    known.pop("joined", None)
    return Member(is_draining, **known)
