"""What an operator should know now, in plain sentences, and what to type. Pure: the state in, alerts out.

An alert says who is at fault, why and since when each of them, how many requests that hurt, what slb has done of
itself, and since when the trouble is there: by the clock of whoever found it, where it tells, else by the log,
else since this viewer has seen it. One cause is one alert: what follows from an outage of Redis is not told besides
it. Nor are, of a route that panics, the upstreams that are out, and how many requests fail; nor what fails at
upstreams that are out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from shlex import quote
from typing import Any, NamedTuple

from slb.balance.health_state import FOUND_BY_OTHERS
from slb.fleet.collected import CLOCK_OFF
from slb.fleet.failures import FailureHistory
from slb.fleet.last_minute import Failing, LastMinute
from slb.fleet.merged import UNSURE

Object = Mapping[str, Any]
Section = Mapping[str, Object]
Objects = Mapping[str, Section]

MOST = 100
"""That are shown."""
_SILENT = 10.0
_STALE = 60.0
_OLD_REQUEST = 30.0
_OLD_JOB = 600.0
_HOUR = 3600.0
"""Seconds for which failures are counted."""
_MOST_FAIL = 0.5
"""Share of a route's requests."""
_MOST_NAMED = 3
_MOST_CULPRITS = 20
"""That an alert lists; its text says how many there are."""
_NOBODY: Mapping[str, str] = {}
_OUT_FOR = "; out for "
"""What stands in `why` of an upstream before the time for which it is ejected."""

_ENDS = {
    "check_passed": "check_failed",
    "flapping": "check_failed",
    "panic_ended": "panic_began",
    "model_resumed": "model_paused",
}
_BEGINS = frozenset(_ENDS.values())
"""Changes of the log that last until another one of the same subject; turns of a check that flaps are not noted."""
_LEAVES = frozenset({"deregistered", "lease_ended"})
"""Those after which a route may be empty; `detail` is its path."""

Logged = Mapping[tuple[str, str], Object]
"""(what, subject) -> the change by which it began, of what has not ended; and the last `settings_changed` of each
route, and the last by which a member has left it, as `left`."""


class Culprit(NamedTuple):
    """An upstream at fault. `since`: seconds since 1970, None where nobody tells; `failed`: requests that have
    failed since, in the last hour at most; in the last minute where nobody tells since when."""

    upstream: str
    why: str
    since: float | None
    failed: int


class Alert(NamedTuple):
    """`about`: `route`, `upstream` or `instance`, each with its key in the state. `since`: seconds since 1970, None
    where nobody tells; `do`: what to type, empty where there is no command for it; `culprits`: the upstreams at
    fault; `failed`: requests that have failed since, at these or of the route."""

    level: str
    text: str
    about: Mapping[str, str] = _NOBODY
    since: float | None = None
    do: str = ""
    culprits: Sequence[Culprit] = ()
    failed: int = 0


Found = Iterator[tuple[str, Alert]]


class _Hurt(NamedTuple):
    """How many callers something has hurt, as of `now`."""

    history: FailureHistory
    now: float

    def failed(self, name: str, since: float | None) -> int:
        return self.history.failed(name, since, self.now)

    def told(self, failed: int, since: float | None) -> list[str]:
        when = (
            "in the last minute" if since is None else "since" if since > self.now - _HOUR else "in the last hour"
        )
        return [f"{_counted(failed, 'request')} failed there {when}"] if failed else []


class Alerts:
    """Remembers since when each is there, and what failed in the last minute. `history`: of failures, which others
    bring up to date."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self.history = FailureHistory()
        self._minute = LastMinute()
        self._alone_at = float("-inf")

    def of(
        self, objects: Objects, now: float, alone_because: str = "", silent_after: float = _SILENT
    ) -> dict[str, dict[str, Any]]:
        """`now`: seconds since 1970. The worst first."""
        self._minute.add(objects["routes"], now)
        if alone_because:
            self._alone_at = now
        failing = {path: each for path, each in self._failing(objects["routes"], now) if path in objects["routes"]}
        heard = now - self._alone_at >= silent_after
        found = dict(alerts(objects, now, alone_because, silent_after, failing, self.history, heard))
        kept = dict(islice(sorted(found.items(), key=lambda each: _LEVELS.index(each[1].level)), MOST))
        before, self._since = self._since, {}
        return {
            id_: {
                "level": each.level,
                "text": each.text,
                "since": self._began(id_, each.since, before, now),
                "do": each.do,
                "failed": each.failed,
                "culprits": [
                    {
                        **culprit._asdict(),
                        "since": self._began(f"{id_}|{culprit.upstream}", culprit.since, before, now),
                    }
                    for culprit in each.culprits[:_MOST_CULPRITS]
                ],
                **each.about,
            }
            for id_, each in kept.items()
        }

    def _failing(self, routes: Iterable[str], now: float) -> Iterator[tuple[str, Failing]]:
        """Once this viewer has looked for a minute it knows best; until then what processes have counted tells, and
        the few seconds so far only by what most fails."""
        seen = dict(self._minute.failing())
        if not self._minute.is_whole(now):
            for path in filter(self.history.knows, routes):
                so_far = seen.pop(path, None)
                if (share := self.history.share(path)) is not None:
                    yield path, Failing(share, None if so_far is None else so_far.reason)
        yield from seen.items()

    def _began(self, what: str, since: float | None, before: Mapping[str, float], now: float) -> float:
        """Where nobody tells, it is when this viewer has seen it first; `before`: what it had seen."""
        self._since[what] = before.get(what, now) if since is None else min(since, now)
        return round(self._since[what], 3)


_LEVELS = ("error", "warning", "info")


def alerts(
    objects: Objects,
    now: float,
    alone_because: str = "",
    silent_after: float = _SILENT,
    failing: Mapping[str, Failing] = {},
    history: FailureHistory | None = None,
    heard: bool = True,
) -> Found:
    """id -> alert, of the same id as long as it lasts. Its cost grows with the members of all routes, the
    instances, and the changes that are shown. `alone_because`: why this instance hears of no other; `heard`:
    whether it has heard them for long enough to tell who is silent. `silent_after`: seconds. `failing`: each
    route; `history`: their failures, and those of upstreams."""
    hurt = _Hurt(history or FailureHistory(), now)
    logged = _logged(objects["changes"].values())
    without_redis = dict(_of_redis(objects["instances"], now, alone_because))
    yield from without_redis.items()
    if alone_because and not without_redis:
        yield "alone", Alert("warning", f"This instance shows itself alone: {alone_because}", do="slb status")
    stopped = {each["instance"] for each in objects["changes"].values() if each["what"] == "stopped"}
    for id_, instance in objects["instances"].items():
        if id_ not in stopped:
            yield from _of_instance(id_, instance, now, silent_after if heard and not alone_because else None)
    yield from _of_versions(objects["instances"])
    yield from _of_isolated(objects)
    began = _first_start(objects["instances"])
    for path, route in objects["routes"].items():
        yield from _of_route(path, route, objects["upstreams"], hurt, logged, failing.get(path))
        yield from _of_its_table(path, route, logged, began)
    for name, pool in objects["pools"].items() if not without_redis else ():
        if pool["mode"] in UNSURE:
            why = pool["error"] or "Redis is being told what is held"
            text = f"Each instance alone decides who gets the slots of {name}: {why}"
            yield f"pool:{name}", Alert("warning", text, do="slb status")
    for queue in objects["queues"].values():
        if queue["oldest"] >= _OLD_REQUEST:
            path, since = queue["route"], now - queue["oldest"]
            text = f"{queue['depth']} requests wait for {path}, the first for over {_OLD_REQUEST:g} s"
            key = f"queue:{queue['pool']}|{path}|{queue['priority']}"
            yield key, Alert("warning", text, {"route": path}, since, f"slb routes {quote(path)}")
    yield from _of_jobs(objects["jobs"], now, logged, bool(without_redis))


def _logged(changes: Iterable[Object]) -> Logged:
    """`changes`: the oldest first."""
    found: dict[tuple[str, str], Object] = {}
    for each in changes:
        if each["what"] in _BEGINS:
            found.setdefault((each["what"], each["subject"]), each)
        elif each["what"] in _ENDS:
            found.pop((_ENDS[each["what"]], each["subject"]), None)
        elif each["what"] == "settings_changed":
            found[each["what"], each["subject"]] = each
        elif each["what"] in _LEAVES:
            found["left", each["detail"]] = each
        elif each["what"] == "route_removed":  # one of its path that comes later is another
            found.pop(("left", each["subject"]), None)
            found.pop(("settings_changed", each["subject"]), None)
    return found


def _began(logged: Logged, what: str, subject: str) -> float | None:
    change = logged.get((what, subject))
    return None if change is None else change["time"]


def _of_redis(instances: Section, now: float, alone_because: str) -> Found:
    """One alert, however many instances have none. Where this instance hears of no other, it speaks for itself."""
    known = [each for each in instances.values() if each.get("redis_up") is not None]
    without = [each for each in known if not each["redis_up"]]
    if not without:
        return
    is_one = len(known) == 1 or alone_because
    who = "This instance" if is_one else f"{len(without)} of {len(known)} instances"
    verb = "has" if is_one or len(without) == 1 else "have"
    text = f"{who} {verb} no Redis: traffic goes on from memory, registrations and changes are refused"
    since = min((now - away for each in without if (away := each.get("staleness")) is not None), default=None)
    yield "redis", Alert("error", text, since=since, do="slb status")


def _of_instance(id_: str, instance: Object, now: float, silent_after: float | None) -> Found:
    """`silent_after`: None where its silence is no wonder."""
    name, about = instance["name"] or id_, {"instance": id_}
    silent = instance["silent_for"] or 0
    if silent_after is not None and silent >= silent_after:
        text = f"{name} has shown nothing for over {silent_after:.0f} s"
        yield f"silent:{id_}", Alert("error", text, about, now - silent, "slb instances")
        return
    if instance.get("draining"):
        yield f"draining:{id_}", Alert("info", f"{name} drains, and is about to stop", about)
    if instance.get("redis_mode") == "polling":
        text = f"{name} gets no notifications from Redis, and asks it each second"
        do = "redis-cli config set notify-keyspace-events Kgshxe"
        yield f"polling:{id_}", Alert("info", text, about, instance.get("polling_since"), do)
    staleness = instance.get("staleness") or 0.0
    if staleness >= _STALE and instance.get("redis_up"):
        text = f"The routes of {name} were last known to be true over {_STALE:g} s ago"
        yield f"stale:{id_}", Alert("warning", text, about, now - staleness, "slb instances")
    if abs(off := instance.get("clock_off") or 0.0) >= CLOCK_OFF:
        text = f"The clock of {name} differs from this machine's by {abs(off):.0f} s"
        yield f"clock:{id_}", Alert("warning", text, about)


def _of_versions(instances: Section) -> Found:
    began: dict[str, float] = {}
    for each in instances.values():
        version, started = str(each["version"]), each.get("started") or 0.0
        began[version] = min(began.get(version, started), started)
    if len(began) > 1:
        text = f"The instances have {len(began)} versions: {', '.join(sorted(began))}"
        yield "versions", Alert("info", text, since=sorted(began.values())[1] or None, do="slb instances")


def _of_isolated(objects: Objects) -> Found:
    """By the log: which instance alone fails with a route."""
    found: dict[tuple[str, str], float] = {}
    for each in objects["changes"].values():
        if each["what"] == "isolated":
            found.setdefault((each["subject"], each["instance"]), each["time"])
        elif each["what"] == "isolation_ended":
            found.pop((each["subject"], each["instance"]), None)
    for (path, id_), since in found.items():
        if path in objects["routes"] and id_ in objects["instances"]:
            name = objects["instances"][id_]["name"] or id_
            text = f"{name} alone fails with all upstreams of {path}: look for the cause there"
            yield (
                f"isolated:{path}|{id_}",
                Alert("warning", text, {"route": path, "instance": id_}, since, "slb instances"),
            )


def _of_route(
    path: str, route: Object, upstreams: Section, hurt: _Hurt, logged: Logged, failing: Failing | None
) -> Found:
    members = {each: upstreams[each] for each in route["members"] if each in upstreams}
    spared = {key: each for key, each in members.items() if each.get("spared") and not each["drain"]}
    out = {
        state: {key: each for key, each in members.items() if each["health"] == state}
        for state in ("ejected", "down")
    }
    # Nothing has changed for the better until one that is tried again has answered.
    tried = (key for key, each in members.items() if each["health"] == "failing" and each.get("since"))
    out["ejected"].update({key: members[key] for key in tried if key not in spared})
    if route["panic"]:
        sick = {
            key: each for key, each in members.items() if key in spared or any(key in some for some in out.values())
        }
        yield f"panic:{path}", _of_panic(path, sick, len(members), hurt, logged, failing)
        return
    sick = {**out["ejected"], **out["down"], **spared}
    at_others = _failing_at(path, {key: each for key, each in members.items() if key not in sick}, sick, hurt)
    at_sick = None if failing is None or at_others is not None else failing
    is_needed = len(sick) == len(members)
    if spared:
        yield f"spared:{path}", _of_spared(path, spared, len(members), is_needed, hurt, logged, at_sick)
        at_sick = None
    for state, some in out.items():
        if some:
            yield f"{state}:{path}", _of_out(path, state, some, len(members), hurt, logged, at_sick)
            at_sick = None
    if failing is not None and at_others is not None:
        yield f"errors:{path}", _of_failing(path, failing, at_others, hurt)


def _failing_at(path: str, others: Section, sick: Section, hurt: _Hurt) -> Section | None:
    """Of a route that fails, the upstreams `others` of those that are told as `sick`, where more fails than there:
    at one of these, or where no upstream was asked. None where the sick ones are all that is wrong."""
    if not sick:
        return others
    since = hurt.history.began(path)
    at_sick = sum(hurt.failed(member, since) for member in sick)
    fails_itself = any(hurt.history.began(member) is not None for member in others)
    return others if fails_itself or 2 * at_sick < hurt.failed(path, since) else None


def _first_start(instances: Section) -> float | None:
    return min((at for each in instances.values() if (at := each.get("started"))), default=None)


def _of_its_table(path: str, route: Object, logged: Logged, began: float | None) -> Found:
    """Of what was written for a route. `began`: when the first instance did, to which it was so already where
    neither an instance nor the log tells of a change."""
    about, written_at = {"route": path}, _began(logged, "settings_changed", path)
    if not route["members"]:
        do = f"slb register {quote(path)} HOST:PORT"
        since = route.get("empty_since") or _began(logged, "left", path) or written_at or began
        yield f"empty:{path}", Alert("warning", f"{path} has no upstream", about, since, do)
    if route["faults"]:
        text = f"Settings of {path} are not used: {'; '.join(route['faults'])[:200]}"
        since = route.get("faults_since") or written_at or began
        yield f"faults:{path}", Alert("warning", text, about, since, f"slb routes {quote(path)}")


def _of_panic(path: str, sick: Section, of: int, hurt: _Hurt, logged: Logged, failing: Failing | None) -> Alert:
    culprits = _culprits(sick, hurt, logged)
    text = f"{path} panics: too few of its upstreams are available, and all are used"
    if sick:
        states = {each["health"] for each in sick.values()}
        state = states.pop() if len(states) == 1 else "out"
        verb = "is" if len(sick) == 1 else "are"
        text += f". {_named(sick)} ({_share_of(path, sick, of)}) {verb} {state}{_reasons(culprits)}"
    text = ". ".join([text, *_harm(culprits, hurt, failing)])
    since = _began(logged, "panic_began", path) or _oldest(culprits)
    return Alert(
        "error", text, {"route": path}, since, f"slb routes {quote(path)}", culprits, hurt.failed(path, since)
    )


def _of_out(
    path: str, state: str, out: Section, of: int, hurt: _Hurt, logged: Logged, failing: Failing | None
) -> Alert:
    """Of upstreams of a route that are `ejected` or `down`. `failing`: where they are what it fails by."""
    culprits, verb = _culprits(out, hurt, logged), "is" if len(out) == 1 else "are"
    first = f"{_named(out)} ({_share_of(path, out, of)}) {verb} {state}{_reasons(culprits)}"
    text = ". ".join([first, *_harm(culprits, hurt, failing), _done(state, out)])
    is_grave = 2 * len(out) >= of or (failing is not None and failing.share >= _MOST_FAIL)
    level = "error" if is_grave else "warning"
    do = _remedy(path, out, len(out) < of)
    return Alert(level, text, _about(path, out), _oldest(culprits), do, culprits, _failed(culprits))


def _of_spared(
    path: str, spared: Section, of: int, is_needed: bool, hurt: _Hurt, logged: Logged, failing: Failing | None
) -> Alert:
    """Of upstreams of a route that would be ejected, were `max_ejected` not reached, or are stuck. `is_needed`: no
    other is well."""
    are_stuck = any(each["health"] == "stuck" for each in spared.values())
    culprits, share = _culprits(spared, hurt, logged), _share_of(path, spared, of)
    done = "Requests go there all the same"
    done += ": restart the server" if are_stuck else ": max_ejected does not allow one more to be left out"
    verb = ("is not" if len(spared) == 1 else "are not") if are_stuck else "would be"
    first = f"{_named(spared)} ({share}) {verb} ejected{_reasons(culprits)}"
    text = ". ".join([first, *_harm(culprits, hurt, failing), done])
    is_grave = 2 * len(spared) >= of or is_needed or (failing is not None and failing.share >= _MOST_FAIL)
    level, do = "error" if is_grave else "warning", _remedy(path, spared, not is_needed)
    return Alert(level, text, _about(path, spared), _oldest(culprits), do, culprits, _failed(culprits))


def _of_failing(path: str, failing: Failing, members: Section, hurt: _Hurt) -> Alert:
    level = "error" if failing.share >= _MOST_FAIL else "warning"
    since = hurt.history.began(path)
    failed = hurt.failed(path, since)
    text = f"{path}: {_share_failed(failing)}"
    began = {member: hurt.history.began(member) or since for member in members}
    counts = {member: count for member in members if (count := hurt.failed(member, began[member]))}
    at = {member: members[member] for member in sorted(counts, key=lambda member: -counts[member])}
    about, do = {"route": path}, f"slb routes {quote(path)}"
    if since is not None:
        text += f", and {_counted(failed, 'request')} since it began"
    if at:
        share = "Most" if 2 * sum(counts.values()) >= failed else "Some"
        text += f". {share} of them at {_named(at, counts)}"
        worst = next(iter(at))
        if len(members) > 1 and 2 * counts[worst] > sum(counts.values()) and not members[worst].get("drain"):
            about, do = {**about, "upstream": worst}, f"slb drain {quote(worst)}"
    culprits = [Culprit(member, str(each["why"]), began[member], counts[member]) for member, each in at.items()]
    return Alert(level, text, about, since, do, culprits, failed)


def _about(path: str, upstreams: Section) -> Mapping[str, str]:
    return {"route": path, **({"upstream": next(iter(upstreams))} if len(upstreams) == 1 else {})}


def _remedy(path: str, upstreams: Section, has_others: bool) -> str:
    one = len(upstreams) == 1 and has_others
    return f"slb drain {quote(next(iter(upstreams)))}" if one else f"slb routes {quote(path)}"


def _share_of(path: str, some: Section, of: int) -> str:
    return f"the only upstream of {path}" if of == 1 else f"{len(some)} of {of} upstreams of {path}"


def _harm(culprits: Sequence[Culprit], hurt: _Hurt, failing: Failing | None = None) -> list[str]:
    of_route = [_share_failed(failing)] if failing is not None else []
    return [*of_route, *hurt.told(_failed(culprits), _oldest(culprits))]


def _failed(culprits: Sequence[Culprit]) -> int:
    return sum(each.failed for each in culprits)


def _share_failed(failing: Failing) -> str:
    why = "" if failing.reason is None else f" ({failing.reason or 'answered so by the upstream'})"
    return f"{100 * failing.share:.0f} % of requests of the last minute failed{why}"


def _culprits(upstreams: Section, hurt: _Hurt, logged: Logged) -> list[Culprit]:
    return [
        Culprit(member, _why(member, each, logged).partition(_OUT_FOR)[0], since, hurt.failed(member, since))
        for member, each in upstreams.items()
        for since in (_out_since(member, each, logged),)
    ]


def _oldest(culprits: Sequence[Culprit]) -> float | None:
    return min((each.since for each in culprits if each.since is not None), default=None)


def _reasons(culprits: Sequence[Culprit]) -> str:
    """`: it hangs`; where they differ, `: it hangs (a, b); 5 failures in a row (c)`, that of most of them first."""
    by_why: dict[str, list[str]] = {}
    for each in culprits:
        by_why.setdefault(each.why or "the reason is not known here", []).append(each.upstream)
    if len(by_why) == 1:
        return f": {next(iter(by_why))}"
    found = sorted(by_why.items(), key=lambda each: -len(each[1]))
    told = [f"{why} ({_listed(members)})" for why, members in found[:_MOST_NAMED]]
    beyond = sum(len(members) for _, members in found[_MOST_NAMED:])
    return f": {'; '.join([*told, *([f'{beyond} more for other reasons'] if beyond else [])])}"


def _listed(members: Sequence[str]) -> str:
    beyond = len(members) - _MOST_NAMED
    return f"{', '.join(members[:_MOST_NAMED])}{f' and {beyond} more' if beyond > 0 else ''}"


def _out_since(member: str, upstream: Object, logged: Logged) -> float | None:
    """An instance that has started meanwhile knows a check's result, and not since when; the log does."""
    known = [upstream["since"]] if upstream.get("since") else []
    at = _began(logged, "check_failed", member)
    if at is not None and upstream["health"] == "down" and at >= (upstream.get("joined") or 0.0):
        known.append(at)
    return min(known, default=None)


def _done(state: str, out: Section) -> str:
    """What slb has done of itself."""
    if state == "down":
        return f"Left out until {'its check passes' if len(out) == 1 else 'their checks pass'}"
    lasts = {each["why"].partition(_OUT_FOR)[2] for each in out.values()}
    last = lasts.pop() if len(lasts) == 1 else ""
    return f"Left out for {last}, then tried" if last else "Left out, and tried again now and then"


def _named(upstreams: Section, counts: Mapping[str, int] = {}) -> str:
    """`10.0.0.1:80 on node-3, 10.0.0.2:80 and 4 more`; with `counts` each has its own."""
    names = []
    for member, each in islice(upstreams.items(), _MOST_NAMED):
        node = f" on {each['node']}" if each.get("node") else ""
        names.append(f"{member}{node}" + (f" ({counts[member]})" if member in counts else ""))
    if beyond := len(upstreams) - len(names):
        return f"{', '.join(names)} and {beyond} more"
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])


def _why(member: str, upstream: Object, logged: Logged) -> str:
    """An instance that was told of a check's result by others leaves the reason to the log."""
    change, why = logged.get(("check_failed", member)), str(upstream["why"])
    return str(change["detail"]) if change is not None and why.endswith(FOUND_BY_OTHERS) else why


def _of_jobs(models: Section, now: float, logged: Logged, is_redis_away: bool) -> Found:
    at_risk = next((each["at_risk"] for each in models.values() if each.get("at_risk")), "")
    if at_risk:
        yield "jobs_at_risk", Alert("warning", f"Jobs may be lost with this Redis: {at_risk}", do="slb status")
    for model, jobs in models.items():
        name = quote(model)
        if dead := jobs.get("dead"):
            text = f"{_counted(dead, 'job')} of {model} failed for good, and can be retried"
            yield (
                f"dead:{model}",
                Alert("warning", text, since=jobs.get("dead_since"), do=f"slb jobs dlq list {name}"),
            )
        if jobs.get("paused"):
            since = _began(logged, "model_paused", model)
            yield (
                f"paused:{model}",
                Alert("info", f"Jobs of {model} are paused", since=since, do=f"slb jobs resume {name}"),
            )
        elif (since := jobs.get("oldest_since")) and now - since >= _OLD_JOB and not is_redis_away:
            text = f"The oldest job of {model} has waited for over {_OLD_JOB / 60:.0f} minutes"
            yield f"old:{model}", Alert("warning", text, since=since, do=f"slb jobs list {name}")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
