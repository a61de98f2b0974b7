"""The fleet's share in health checks: which instance runs which one now, and what was found."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from slb.control import keys
from slb.control.connection import Connection
from slb.control.scripts import source
from slb.model import HealthCheck

AT_ONCE = 250
"""Checks one script call handles: it holds Redis for about a millisecond."""

_LIFE_IN_INTERVALS = 10
_LIFE_IN_TIMEOUTS = 2
_SHORTEST_LIFE = 60.0


@dataclass(frozen=True, slots=True)
class Ask:
    """A check that seems to be due here. `state` and `run` are this instance's last result of it; the instance that
    claims the check has it for `hold` seconds."""

    member: str
    check: HealthCheck
    state: str
    run: int
    hold: float


@dataclass(frozen=True, slots=True)
class Answer:
    """`claim`: 0 where another instance runs the check; `wait`: seconds until it is due; `state`: "" if unknown."""

    claim: int
    wait: float
    state: str
    run: int


@dataclass(frozen=True, slots=True)
class Report:
    """What a claimed check has found. It is due again `early` seconds before the claim would end. `suspects`: the
    host that found all failures in a row, where there are other hosts; else empty."""

    member: str
    check: HealthCheck
    claim: int
    state: str
    run: int
    early: float = 0.0
    suspects: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a report counted, which it does until its claim ends; and what the fleet has from now on, `state` ""
    if unknown."""

    counted: bool
    state: str
    run: int


class HealthStore:
    """Each call is one command, for at most AT_ONCE checks. Raises RedisUnavailable."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._claim = connection.client.register_script(source("claim_checks"))
        self._report = connection.client.register_script(source("report_checks"))

    @property
    def up(self) -> bool:
        return self._connection.up

    async def claim(self, asks: Sequence[Ask], room: int) -> list[Answer]:
        """Claim those that are due, at most `room`."""
        rows = [(each.state, each.run, _ms(each.hold), _life(each.check)) for each in asks]
        async with self._connection.answering():
            replies = await self._claim(keys=_keys_of(asks), args=[room, *chain.from_iterable(rows)])
            answers = [Answer(int(claim), wait / 1000, str(state), int(run)) for claim, wait, state, run in replies]
            if len(answers) != len(asks):
                raise ValueError(f"{len(answers)} answers to {len(asks)}")
        return answers

    async def report(self, reports: Sequence[Report]) -> list[Outcome]:
        """Publish to the other instances."""
        rows = [
            (each.claim, each.state, each.run, _life(each.check), round(each.early * 1000), each.suspects)
            for each in reports
        ]
        async with self._connection.answering():
            args = [keys.HEALTH_CHANNEL, *chain.from_iterable(rows)]
            replies = await self._report(keys=_keys_of(reports), args=args)
            outcomes = [Outcome(bool(counted), str(state), int(run)) for counted, state, run in replies]
            if len(outcomes) != len(reports):
                raise ValueError(f"{len(outcomes)} outcomes of {len(reports)}")
        return outcomes


def _keys_of(checks: Sequence[Ask | Report]) -> list[str]:
    return [keys.health_key(each.member, each.check) for each in checks]


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _life(check: HealthCheck) -> int:
    """Longer than any claim."""
    return _ms(max(_SHORTEST_LIFE, _LIFE_IN_INTERVALS * check.interval, _LIFE_IN_TIMEOUTS * check.timeout))
