"""Which upstreams nothing has found alive for long: what one process knows, and what several agree on."""

from collections.abc import Sequence

from slb.api.shapes import UpstreamShown


def silence(shown: UpstreamShown) -> float:
    """Seconds for which no check and no request has found it alive, as far as this process knows."""
    if shown["inflight"]:  # a tunnel or a long answer may be all it does
        return 0.0
    known_for, alive_ago = shown["known_for"], shown["alive_ago"]
    return known_for if alive_ago is None else min(known_for, alive_ago)


def agreed(answers: Sequence[Sequence[UpstreamShown]]) -> list[UpstreamShown]:
    """Those that stand in every answer, each with the latest sign of life. It is `failing` where any answer says
    so: the other processes may not have tried."""
    found = {each["member"]: each for each in answers[0]} if answers else {}
    for answer in answers[1:]:
        others = {each["member"]: each for each in answer}
        found = {member: _both(each, others[member]) for member, each in found.items() if member in others}
    return list(found.values())


def _both(one: UpstreamShown, other: UpstreamShown) -> UpstreamShown:
    signs = [each["alive_ago"] for each in (one, other) if each["alive_ago"] is not None]
    return {
        **one,
        "inflight": max(one["inflight"], other["inflight"]),
        "alive_ago": min(signs, default=None),
        "known_for": min(one["known_for"], other["known_for"]),
        "failing": one["failing"] or other["failing"],
    }
