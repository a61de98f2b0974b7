"""What an operator should know now, in plain sentences. Pure: the state in, alerts out."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from slb.fleet.last_minute import Failing, LastMinute

Objects = Mapping[str, Mapping[str, Mapping[str, Any]]]

MOST = 100
"""That are shown."""
_SILENT = 10.0
_STALE = 60.0
_OLD_REQUEST = 30.0
_OLD_JOB = 600.0
_CLOCK_OFF = 2.0
_MOST_FAIL = 0.5
"""Share of a route's requests."""
_NOBODY: Mapping[str, str] = {}


class Alert(NamedTuple):
    """`about`: `route`, `upstream` or `instance`, each with its key in the state."""

    level: str
    text: str
    about: Mapping[str, str] = _NOBODY


Found = Iterator[tuple[str, Alert]]


class Alerts:
    """Adds since when each is there, as far as this viewer has seen."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._minute = LastMinute()

    def of(
        self, objects: Objects, now: float, alone_because: str = "", silent_after: float = _SILENT
    ) -> dict[str, dict[str, Any]]:
        """`now`: seconds since 1970. The worst first."""
        self._minute.add(objects["routes"], now)
        failing = {path: each for path, each in self._minute.failing() if path in objects["routes"]}
        found = dict(alerts(objects, now, alone_because, silent_after, failing))
        kept = dict(islice(sorted(found.items(), key=lambda each: _LEVELS.index(each[1].level)), MOST))
        self._since = {id_: self._since.get(id_, now) for id_ in kept}
        return {
            id_: {"level": each.level, "text": each.text, "since": round(self._since[id_], 3), **each.about}
            for id_, each in kept.items()
        }


_LEVELS = ("error", "warning", "info")


def alerts(
    objects: Objects,
    now: float,
    alone_because: str = "",
    silent_after: float = _SILENT,
    failing: Mapping[str, Failing] = {},
) -> Found:
    """id -> alert, of the same id as long as it lasts. Its cost grows with the members of all routes, and the
    instances. `alone_because`: why this instance hears of no other. `silent_after`: seconds. `failing`: each
    route."""
    if alone_because:
        yield "alone", Alert("warning", f"This instance shows itself alone: {alone_because}")
    yield from _of_redis(objects["instances"])
    for id_, instance in objects["instances"].items():
        yield from _of_instance(id_, instance, silent_after)
    yield from _of_versions(objects["instances"])
    for path, route in objects["routes"].items():
        yield from _of_route(path, route, objects["upstreams"])
    for path, each in failing.items():
        level = "error" if each.share >= _MOST_FAIL else "warning"
        why = each.reason or "answered so by the upstream"
        text = f"{path}: {100 * each.share:.0f} % of requests of the last minute failed ({why})"
        yield f"errors:{path}", Alert(level, text, {"route": path})
    for name, pool in objects["pools"].items():
        if pool["mode"] in ("local", "settling"):
            why = pool["error"] or "Redis is being told what is held"
            text = f"Each instance alone decides who gets the slots of {name}: {why}"
            yield f"pool:{name}", Alert("warning", text)
    for queue in objects["queues"].values():
        if queue["oldest"] >= _OLD_REQUEST:
            text = f"{queue['depth']} requests wait for {queue['route']}, the first for over {_OLD_REQUEST:g} s"
            key = f"queue:{queue['pool']}|{queue['route']}|{queue['priority']}"
            yield key, Alert("warning", text, {"route": queue["route"]})
    yield from _of_jobs(objects["jobs"], now)


def _of_redis(instances: Mapping[str, Mapping[str, Any]]) -> Found:
    """One alert, however many instances have none."""
    known = [each for each in instances.values() if each.get("redis_up") is not None]
    without = [each for each in known if not each["redis_up"]]
    if without:
        who = f"{len(without)} of {len(known)} instances" if len(known) > 1 else "This instance"
        verb = "have" if len(known) > 1 and len(without) > 1 else "has"
        yield "redis", Alert("error", f"{who} {verb} no Redis: traffic goes on from memory")


def _of_instance(id_: str, instance: Mapping[str, Any], silent_after: float) -> Found:
    name, about = instance["name"] or id_, {"instance": id_}
    if (instance["silent_for"] or 0) >= silent_after:
        yield f"silent:{id_}", Alert("error", f"{name} has shown nothing for over {silent_after:.0f} s", about)
        return
    if instance.get("draining"):
        yield f"draining:{id_}", Alert("info", f"{name} drains, and is about to stop", about)
    if instance.get("redis_mode") == "polling":
        text = f"{name} gets no notifications from Redis, and asks it each second"
        yield f"polling:{id_}", Alert("info", text, about)
    if (instance.get("staleness") or 0.0) >= _STALE:
        text = f"The routes of {name} were last known to be true over {_STALE:g} s ago"
        yield f"stale:{id_}", Alert("warning", text, about)
    if abs(off := instance.get("clock_off") or 0.0) >= _CLOCK_OFF:
        text = f"The clock of {name} differs from this machine's by {abs(off):.0f} s"
        yield f"clock:{id_}", Alert("warning", text, about)


def _of_versions(instances: Mapping[str, Mapping[str, Any]]) -> Found:
    versions = sorted({str(each["version"]) for each in instances.values()})
    if len(versions) > 1:
        yield "versions", Alert("info", f"The instances have {len(versions)} versions: {', '.join(versions)}")


def _of_route(path: str, route: Mapping[str, Any], upstreams: Mapping[str, Mapping[str, Any]]) -> Found:
    about = {"route": path}
    members = [upstreams[each] for each in route["members"] if each in upstreams]
    if not route["members"]:
        yield f"empty:{path}", Alert("warning", f"{path} has no upstream", about)
    for state in ("ejected", "down"):
        out = [each for each in members if each["health"] == state]
        if out:
            level = "error" if 2 * len(out) >= len(members) else "warning"
            why = _commonest(each["why"] for each in out)
            yield f"{state}:{path}", Alert(level, f"{_of(len(out), len(members), path)} {state}: {why}", about)
    if route["panic"]:
        text = f"{path} panics: too few of its upstreams are available, and all are used"
        yield f"panic:{path}", Alert("error", text, about)
    if route["faults"]:
        text = f"Settings of {path} are not used: {'; '.join(route['faults'])[:200]}"
        yield f"faults:{path}", Alert("warning", text, about)


def _of(some: int, all_: int, path: str) -> str:
    if all_ == 1:
        return f"The only upstream of {path} is"
    return f"{some} of {all_} upstreams of {path} {'is' if some == 1 else 'are'}"


def _commonest(whys: Iterable[str]) -> str:
    """Without the time that it is out for, which differs."""
    counts = Counter(why.partition("; out for")[0] for why in whys)
    return counts.most_common(1)[0][0] or "the reason is not known here"


def _of_jobs(models: Mapping[str, Mapping[str, Any]], now: float) -> Found:
    at_risk = next((each["at_risk"] for each in models.values() if each.get("at_risk")), "")
    if at_risk:
        yield "jobs_at_risk", Alert("warning", f"Jobs may be lost with this Redis: {at_risk}")
    for model, jobs in models.items():
        if dead := jobs.get("dead"):
            yield f"dead:{model}", Alert("warning", f"{_jobs(dead)} of {model} failed for good, and can be retried")
        if jobs.get("paused"):
            yield f"paused:{model}", Alert("info", f"Jobs of {model} are paused")
        elif (since := jobs.get("oldest_since")) and now - since >= _OLD_JOB:
            text = f"The oldest job of {model} has waited for over {_OLD_JOB / 60:.0f} minutes"
            yield f"old:{model}", Alert("warning", text)


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
