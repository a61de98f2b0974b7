"""Alerts: the state in, plain sentences out."""

from typing import Any

import pytest

from slb.fleet.alerts import MOST, Alerts, alerts
from slb.fleet.hours import STEP, Failures
from slb.fleet.state import SECTIONS

NOW = 1_000_000.0
INSTANCE: dict[str, Any] = {"name": "one", "version": "1", "silent_for": 0, "redis_up": True, "redis_mode": "sync"}
ROUTE: dict[str, Any] = {
    "members": ["a", "b"],
    "panic": False,
    "rate": 10.0,
    "error_rate": 0.0,
    "faults": [],
    "reasons": {},
}
UPSTREAM: dict[str, Any] = {"health": "up", "why": "", "since": None, "rate": 0.0, "error_rate": 0.0}
OUT: dict[str, Any] = {**UPSTREAM, "health": "ejected", "why": "it refuses connections; out for 2 s"}


def texts(alone_because: str = "", **sections: Any) -> dict[str, tuple[str, str]]:
    objects = {**{each: {} for each in SECTIONS}, **sections}
    return {id_: (each.level, each.text) for id_, each in alerts(objects, NOW, alone_because)}


def test_all_well_is_no_alert() -> None:
    shown = texts(instances={"1": INSTANCE}, routes={"/p": ROUTE}, upstreams={"a": UPSTREAM, "b": UPSTREAM})
    assert shown == {}


@pytest.mark.parametrize(
    ("sections", "alert"),
    [
        (
            {"routes": {"/p": ROUTE}, "upstreams": {"a": OUT, "b": UPSTREAM}},
            (
                "ejected:/p",
                "error",
                "a (1 of 2 upstreams of /p) is ejected: it refuses connections. Left out for 2 s, then tried",
            ),
        ),
        (
            {
                "routes": {"/p": {**ROUTE, "members": ["a", "b"]}},
                "upstreams": {
                    "a": {**OUT, "health": "failing", "since": 5.0, "why": "tried again after: it refuses"},
                    "b": UPSTREAM,
                },
            },
            (
                "ejected:/p",
                "error",
                "a (1 of 2 upstreams of /p) is ejected: tried again after: it refuses."
                " Left out, and tried again now and then",
            ),
        ),
        (
            {
                "routes": {"/p": {**ROUTE, "members": ["a"]}},
                "upstreams": {"a": {"health": "down", "why": "/h: 500"}},
            },
            (
                "down:/p",
                "error",
                "a (the only upstream of /p) is down: /h: 500. Left out until its check passes",
            ),
        ),
        (
            {
                "routes": {"/p": {**ROUTE, "members": list("abcde")}},
                "upstreams": {**dict.fromkeys("abc", UPSTREAM), **dict.fromkeys("de", OUT)},
            },
            (
                "ejected:/p",
                "warning",
                "d and e (2 of 5 upstreams of /p) are ejected: it refuses connections."
                " Left out for 2 s, then tried",
            ),
        ),
        (
            {
                "routes": {"/p": {**ROUTE, "members": list("abcdef"), "panic": True}},
                "upstreams": {
                    **dict.fromkeys("bcdef", OUT),
                    "a": {**OUT, "node": "n7", "why": "it hangs; out for 4 s"},
                },
            },
            (
                "panic:/p",
                "error",
                "/p panics: too few of its upstreams are available, and all are used."
                " a on n7, b, c and 3 more (6 of 6 upstreams of /p) are ejected:"
                " it refuses connections (b, c, d and 2 more); it hangs (a)",
            ),
        ),
        ({"routes": {"/p": {**ROUTE, "members": []}}}, ("empty:/p", "warning", "/p has no upstream")),
        (
            {"routes": {"/p": {**ROUTE, "panic": True}}},
            ("panic:/p", "error", "/p panics: too few of its upstreams are available, and all are used"),
        ),
        (
            {"instances": {"1": {**INSTANCE, "redis_up": False}}},
            (
                "redis",
                "error",
                "This instance has no Redis: traffic goes on from memory, registrations and changes are refused",
            ),
        ),
        (
            {"instances": {"1": {**INSTANCE, "redis_up": False}, "2": INSTANCE}},
            (
                "redis",
                "error",
                "1 of 2 instances has no Redis: traffic goes on from memory, registrations and changes are refused",
            ),
        ),
        (
            {"instances": {"1": {**INSTANCE, "silent_for": 12}}},
            ("silent:1", "error", "one has shown nothing for over 10 s"),
        ),
        (
            {"instances": {"1": {**INSTANCE, "clock_off": -7}}},
            ("clock:1", "warning", "The clock of one differs from this machine's by 7 s"),
        ),
        (
            {"instances": {"1": {**INSTANCE, "staleness": 75.0}}},
            ("stale:1", "warning", "The routes of one were last known to be true over 60 s ago"),
        ),
        (
            {"queues": {"k": {"pool": "/p", "route": "/p", "priority": "", "depth": 4, "oldest": 31.0}}},
            ("queue:/p|/p|", "warning", "4 requests wait for /p, the first for over 30 s"),
        ),
        (
            {"pools": {"/p": {"mode": "local", "error": "no answer"}}},
            ("pool:/p", "warning", "Each instance alone decides who gets the slots of /p: no answer"),
        ),
        (
            {"jobs": {"flux": {"dead": 3}}},
            ("dead:flux", "warning", "3 jobs of flux failed for good, and can be retried"),
        ),
        (
            {"jobs": {"flux": {"oldest_since": NOW - 700}}},
            ("old:flux", "warning", "The oldest job of flux has waited for over 10 minutes"),
        ),
        (
            {"jobs": {"flux": {"at_risk": "it saves every second"}}},
            ("jobs_at_risk", "warning", "Jobs may be lost with this Redis: it saves every second"),
        ),
    ],
)
def test_each_has_a_sentence(sections: dict[str, Any], alert: tuple[str, str, str]) -> None:
    id_, *said = alert
    assert texts(**sections)[id_] == tuple(said)


def test_one_that_hears_of_no_other_says_so() -> None:
    assert texts("No permissions")["alone"] == ("warning", "This instance shows itself alone: No permissions")


def test_in_a_large_fleet_silence_is_longer() -> None:
    objects = {**{each: {} for each in SECTIONS}, "instances": {"1": {**INSTANCE, "silent_for": 25}}}
    assert not dict(alerts(objects, NOW, silent_after=40.0))
    assert dict(alerts(objects, NOW, silent_after=20.0))["silent:1"].text == "one has shown nothing for over 20 s"


def test_an_alert_has_since_when_it_is_there_and_the_worst_come_first() -> None:
    kept = Alerts()
    objects: dict[str, Any] = {**{each: {} for each in SECTIONS}, "jobs": {"flux": {"paused": True}}}
    assert kept.of(objects, 5.0)["paused:flux"]["since"] == 5.0
    objects["routes"] = {"/p": {**ROUTE, "panic": True}}
    found = kept.of(objects, 9.0)
    assert list(found) == ["panic:/p", "paused:flux"]
    assert found["paused:flux"]["since"] == 5.0
    assert found["panic:/p"]["route"] == "/p"
    objects["jobs"] = {}
    assert list(kept.of(objects, 10.0)) == ["panic:/p"]


def test_so_many_are_shown_at_most() -> None:
    objects: dict[str, Any] = {**{each: {} for each in SECTIONS}}
    objects["routes"] = {f"/{number}": {**ROUTE, "members": []} for number in range(10 * MOST)}
    assert len(Alerts().of(objects, 0.0)) == MOST


def seen(*seconds: tuple[float, float, dict[str, float]]) -> dict[str, Any]:
    """The alerts after a second each of these requests and errors per second, with their reasons."""
    kept, found = Alerts(), dict[str, Any]()
    for at, (rate, errors, reasons) in enumerate([(0.0, 0.0, {}), *seconds]):
        route = {**ROUTE, "rate": rate, "error_rate": errors, "reasons": reasons}
        found = kept.of({**{each: {} for each in SECTIONS}, "routes": {"/p": route}}, NOW + at)
    return found


@pytest.mark.parametrize(
    ("rate", "errors", "reasons", "level", "text"),
    [
        (
            1.0,
            0.97,
            {"upstream_connect": 0.97},
            "error",
            "97 % of requests of the last minute failed (502 upstream_connect)",
        ),
        (
            0.1,
            0.1,
            {"upstream_connect": 0.1},
            "error",
            "100 % of requests of the last minute failed (502 upstream_connect)",
        ),
        (
            10.0,
            2.0,
            {"unauthorized": 3.0},
            "warning",
            "20 % of requests of the last minute failed (answered so by the upstream)",
        ),
        (0.0, 5.0, {}, "error", "100 % of requests of the last minute failed (answered so by the upstream)"),
    ],
)
def test_a_route_that_fails_is_told_with_what_it_failed_by(
    rate: float, errors: float, reasons: dict[str, float], level: str, text: str
) -> None:
    alert = seen(*[(rate, errors, reasons)] * 40)["errors:/p"]
    assert (alert["level"], alert["text"], alert["route"]) == (level, f"/p: {text}", "/p")


def test_few_errors_and_a_small_share_are_no_alert() -> None:
    assert not seen(*[(0.1, 0.1, {})] * 20)  # two
    assert not seen(*[(100.0, 4.0, {})] * 60)


def test_a_failing_route_is_told_until_its_last_minute_is_over() -> None:
    failing = (1.0, 1.0, {"upstream_connect": 1.0})
    well: tuple[float, float, dict[str, float]] = (0.0, 0.0, {})
    assert "errors:/p" in seen(*[failing] * 5, *[well] * 50)
    assert not seen(*[failing] * 5, *[well] * 61)


def everything(**sections: Any) -> dict[str, Any]:
    return {**{each: {} for each in SECTIONS}, **sections}


def change(what: str, subject: str, at: float, instance: str = "1") -> dict[str, Any]:
    return {
        "what": what,
        "subject": subject,
        "time": at,
        "instance": instance,
        "name": "one",
        "detail": "",
        "by": "",
    }


def test_an_alert_is_as_old_as_the_trouble_and_not_as_the_look_at_it() -> None:
    objects = everything(
        instances={
            "1": {**INSTANCE, "silent_for": 40, "started": 10.0},
            "2": {**INSTANCE, "staleness": 75.0, "started": 20.0, "version": "2"},
        },
        routes={"/p": {**ROUTE, "panic": True}, "/q": {**ROUTE, "members": ["c", "d"]}},
        upstreams={
            "a": {**OUT, "since": NOW - 100.0},
            "b": {**OUT, "since": NOW - 70.0},
            "c": {**UPSTREAM, "health": "down", "since": NOW - 5.0},
            "d": UPSTREAM,
        },
        queues={"k": {"pool": "/p", "route": "/p", "priority": "", "depth": 4, "oldest": 31.0}},
        jobs={"flux": {"paused": True}, "wan": {"oldest_since": NOW - 700}},
        changes={
            "1": change("check_failed", "c", NOW - 400.0),
            "2": change("check_passed", "c", NOW - 350.0),
            "3": change("check_failed", "c", NOW - 300.0),
            "4": change("panic_began", "/p", NOW - 90.0),
            "5": change("model_paused", "flux", NOW - 80.0),
        },
    )
    since = {id_: NOW - each["since"] for id_, each in Alerts().of(objects, NOW).items()}
    assert since == {
        "down:/q": 300.0,
        "panic:/p": 90.0,
        "silent:1": 40.0,
        "stale:2": 75.0,
        "queue:/p|/p|": 31.0,
        "paused:flux": 80.0,
        "old:wan": 700.0,
        "versions": NOW - 20.0,
    }


def test_since_when_a_route_is_empty_is_told_by_who_has_seen_it_or_by_the_log_or_is_before_all_instances() -> None:
    objects = everything(
        instances={"1": {**INSTANCE, "started": NOW - 900.0}, "2": {**INSTANCE, "started": NOW - 800.0}},
        routes={"/p": {**ROUTE, "members": [], "empty_since": NOW - 30.0}},
        changes={
            "1": {**change("deregistered", "a", NOW - 600.0), "detail": "/p"},
            "2": change("settings_changed", "/p", NOW - 500.0),
            "3": {**change("lease_ended", "b", NOW - 400.0), "detail": "/p"},
            "4": {**change("deregistered", "c", NOW - 300.0), "detail": "/q"},
        },
    )

    def since() -> float:
        return NOW - float(Alerts().of(objects, NOW)["empty:/p"]["since"])

    assert since() == 30.0
    objects["routes"]["/p"]["empty_since"] = None
    assert since() == 400.0, "when its last member left"
    objects["changes"]["5"] = change("route_removed", "/p", NOW - 200.0)
    assert since() == 900.0
    objects["changes"]["6"] = change("settings_changed", "/p", NOW - 100.0)
    assert since() == 100.0, "it was made without any"


def test_since_when_settings_are_not_used_is_told_by_who_has_seen_it_or_by_the_log_or_is_before_all_instances() -> (
    None
):
    objects = everything(
        instances={"1": {**INSTANCE, "started": NOW - 900.0}},
        routes={"/p": {**ROUTE, "faults": ["retries is no number"], "faults_since": NOW - 30.0}},
        changes={"1": change("settings_changed", "/p", NOW - 500.0)},
    )
    alert = Alerts().of(objects, NOW)["faults:/p"]
    assert alert["text"] == "Settings of /p are not used: retries is no number"
    assert (NOW - alert["since"], alert["do"]) == (30.0, "slb routes /p")
    objects["routes"]["/p"]["faults_since"] = None
    assert NOW - Alerts().of(objects, NOW)["faults:/p"]["since"] == 500.0
    objects["changes"] = {}
    assert NOW - Alerts().of(objects, NOW)["faults:/p"]["since"] == 900.0


def test_since_when_notifications_do_not_come_and_jobs_are_dead_is_not_since_somebody_looks() -> None:
    objects = everything(
        instances={"1": {**INSTANCE, "redis_mode": "polling", "polling_since": NOW - 60.0}},
        jobs={"flux": {"dead": 2, "dead_since": NOW - 5000.0}},
    )
    since = {id_: NOW - each["since"] for id_, each in Alerts().of(objects, NOW).items()}
    assert since == {"polling:1": 60.0, "dead:flux": 5000.0}


def culprits(alert: Any) -> dict[str, tuple[str, float]]:
    return {each["upstream"]: (each["why"], NOW - each["since"]) for each in alert["culprits"]}


def test_each_culprit_of_an_alert_has_its_own_reason_and_its_own_time() -> None:
    objects = everything(
        routes={"/p": {**ROUTE, "members": list("abcd")}},
        upstreams={
            "a": {**OUT, "since": NOW - 100.0},
            "b": {**OUT, "why": "5 failures in a row, 500; out for 10 s", "since": NOW - 70.0},
            "c": {**OUT, "since": None},
            "d": UPSTREAM,
        },
    )
    kept = Alerts()
    alert = kept.of(objects, NOW)["ejected:/p"]
    assert " are ejected: it refuses connections (a, c); 5 failures in a row, 500 (b). " in alert["text"]
    assert culprits(alert) == {
        "a": ("it refuses connections", 100.0),
        "b": ("5 failures in a row, 500", 70.0),
        "c": ("it refuses connections", 0.0),
    }
    assert alert["since"] == NOW - 100.0
    assert culprits(kept.of(objects, NOW + 9.0)["ejected:/p"])["c"][1] == 0.0, "as it was first seen"


def test_reasons_that_are_not_told_are_counted_and_so_are_culprits_that_are_not_listed() -> None:
    members = [f"u{number:02}" for number in range(40)]
    why = [*["hangs"] * 30, *(f"reason {number}" for number in range(10))]
    out = {member: {**OUT, "why": each} for member, each in zip(members, why, strict=True)}
    objects = everything(routes={"/p": {**ROUTE, "members": members}}, upstreams=out)
    alert = Alerts().of(objects, NOW)["ejected:/p"]
    assert (
        ": hangs (u00, u01, u02 and 27 more); reason 0 (u30); reason 1 (u31); 8 more for other reasons. "
        in (alert["text"])
    )
    assert len(alert["culprits"]) == 20


def test_a_panic_is_one_alert_with_all_that_are_out_and_what_fails() -> None:
    objects = everything(
        routes={"/p": {**ROUTE, "panic": True, "error_rate": 10.0, "members": list("abc")}},
        upstreams={
            "a": {**OUT, "since": NOW - 100.0},
            "b": {**UPSTREAM, "health": "down", "why": "/h: 500", "since": NOW - 50.0},
            "c": UPSTREAM,
        },
    )
    kept, found = Alerts(), dict[str, Any]()
    for second in range(11):
        found = kept.of(objects, NOW + second)
    (alert,) = found.values()
    assert alert["text"] == (
        "/p panics: too few of its upstreams are available, and all are used. a and b (2 of 3 upstreams of /p) are"
        " out: it refuses connections (a); /h: 500 (b). 100 % of requests of the last minute failed (answered so by"
        " the upstream)"
    )
    assert culprits(alert) == {"a": ("it refuses connections", 100.0), "b": ("/h: 500", 50.0)}
    assert (alert["since"], alert["do"]) == (NOW - 100.0, "slb routes /p")


SPARED: dict[str, Any] = {
    **UPSTREAM,
    "health": "failing",
    "why": "it refuses connections",
    "spared": True,
    "since": NOW - 30.0,
    "drain": False,
}


@pytest.mark.parametrize(
    ("others", "level", "share", "do"),
    [
        ({"b": OUT}, "error", "1 of 2 upstreams of /p", "slb routes /p"),
        ({"b": UPSTREAM, "c": UPSTREAM}, "warning", "1 of 3 upstreams of /p", "slb drain a"),
        ({}, "error", "the only upstream of /p", "slb routes /p"),
    ],
)
def test_one_that_cannot_be_ejected_is_an_alert(others: dict[str, Any], level: str, share: str, do: str) -> None:
    objects = everything(routes={"/p": {**ROUTE, "members": ["a", *others]}}, upstreams={"a": SPARED, **others})
    alert = Alerts().of(objects, NOW)["spared:/p"]
    assert alert["text"] == (
        f"a ({share}) would be ejected: it refuses connections. Requests go there all the same: max_ejected does"
        " not allow one more to be left out"
    )
    assert (alert["level"], alert["do"], alert["since"]) == (level, do, NOW - 30.0)
    objects["upstreams"]["a"] = {**SPARED, "drain": True}
    assert "spared:/p" not in Alerts().of(objects, NOW), "it is drained: nothing more is to be done"


def test_what_fails_at_one_that_cannot_be_ejected_is_no_alert_besides() -> None:
    objects = everything(
        routes={"/p": {**ROUTE, "members": ["a"], "error_rate": 10.0}},
        upstreams={"a": {**SPARED, "rate": 10.0, "error_rate": 10.0}},
    )
    kept, found = Alerts(), dict[str, Any]()
    told(kept, {"a": [50, 50]})
    for second in range(11):
        found = kept.of(objects, NOW + second)
    assert list(found) == ["spared:/p"]
    assert (
        ". 100 % of requests of the last minute failed (answered so by the upstream). 100 requests failed there"
        " since. "
    ) in found["spared:/p"]["text"]


def test_the_first_seconds_of_a_viewer_are_not_taken_for_the_minute() -> None:
    objects = everything(routes={"/p": {**ROUTE, "members": ["a"], "rate": 10.0, "error_rate": 3.0}})
    kept, found = Alerts(), dict[str, Any]()
    told(kept, {"/p": [2, 2]}, asked=300)
    for second in range(11):
        found = kept.of(objects, NOW + second)
    assert list(found) == [], "1 % of the minute"
    told(kept, {"/p": [90, 90]}, asked=300)
    text = kept.of(objects, NOW + 12)["errors:/p"]["text"]
    assert text.startswith("/p: 30 % of requests of the last minute failed (answered so by the upstream)")


def test_a_check_that_failed_before_the_upstream_joined_is_not_the_trouble() -> None:
    down = {**UPSTREAM, "health": "down", "since": NOW - 5.0, "joined": NOW - 60.0}
    objects = everything(
        routes={"/p": {**ROUTE, "members": ["c"]}},
        upstreams={"c": down},
        changes={"1": change("check_failed", "c", NOW - 300.0)},
    )
    assert Alerts().of(objects, NOW)["down:/p"]["since"] == NOW - 5.0


def test_why_a_check_failed_is_told_by_the_log_where_only_others_have_seen_it() -> None:
    objects = everything(
        routes={"/p": {**ROUTE, "members": ["c"]}},
        upstreams={"c": {**UPSTREAM, "health": "down", "why": "/h: found by the fleet"}},
    )
    assert " is down: /h: found by the fleet. " in Alerts().of(objects, NOW)["down:/p"]["text"]
    objects["changes"] = {"1": {**change("check_failed", "c", NOW), "detail": "/h: status 500"}}
    assert " is down: /h: status 500. " in Alerts().of(objects, NOW)["down:/p"]["text"]


def test_a_check_that_flaps_is_not_in_the_log_any_more_turn_by_turn() -> None:
    objects = everything(
        routes={"/p": {**ROUTE, "members": ["c"]}},
        upstreams={"c": {**UPSTREAM, "health": "down", "since": NOW - 5.0}},
        changes={"1": change("check_failed", "c", NOW - 300.0), "2": change("flapping", "c", NOW - 200.0)},
    )
    assert Alerts().of(objects, NOW)["down:/p"]["since"] == NOW - 5.0


def test_no_trouble_is_of_tomorrow() -> None:
    objects = everything(routes={"/p": ROUTE}, upstreams={"a": {**OUT, "since": NOW + 50.0}, "b": UPSTREAM})
    assert Alerts().of(objects, NOW)["ejected:/p"]["since"] == NOW


def test_an_outage_of_redis_is_one_alert() -> None:
    away = {**INSTANCE, "redis_up": False, "redis_mode": "fail_open", "staleness": 120.0}
    objects = everything(
        instances={"1": away, "2": {**INSTANCE, "silent_for": 119}, "3": {**INSTANCE, "silent_for": 119}},
        pools={"/p": {"mode": "local", "error": "no answer"}},
        jobs={"flux": {"oldest_since": NOW - 900}},
    )
    kept = Alerts()
    found = kept.of(objects, NOW, "no answer")
    assert list(found) == ["redis"]
    assert found["redis"]["text"].startswith("This instance has no Redis")
    assert found["redis"]["since"] == NOW - 120.0
    objects["instances"]["1"] = INSTANCE
    objects["pools"], objects["jobs"] = {}, {}
    assert not kept.of(objects, NOW + 1.0), "the others have not had the time to show themselves again"
    assert set(kept.of(objects, NOW + 12.0)) == {"silent:2", "silent:3"}


def test_how_many_requests_an_upstream_has_hurt_is_told_and_what_to_type() -> None:
    kept, found = Alerts(), dict[str, Any]()
    sick = {**OUT, "rate": 4.0, "error_rate": 4.0}
    objects = everything(
        routes={"/p": {**ROUTE, "error_rate": 4.5}},
        upstreams={"a b": sick, "b": {**UPSTREAM, "rate": 6.0, "error_rate": 0.5}},
    )
    objects["routes"]["/p"]["members"] = ["a b", "b"]
    sick["since"] = NOW - 100.0
    told(kept, {"/p": [0, 0, 0, 80, 5, 5], "a b": [7, 0, 0, 60, 5, 2], "b": [0, 0, 0, 20, 0, 3]})
    found = kept.of(objects, NOW)
    assert list(found) == ["ejected:/p"], "most fails there, and the other one does not fail by itself"
    out = found["ejected:/p"]
    assert (
        ". 10 % of requests of the last minute failed. 67 requests failed there since. Left out for 2 s, then tried"
    ) in out["text"]
    assert (out["failed"], [each["failed"] for each in out["culprits"]]) == (67, [67])
    assert (out["upstream"], out["do"]) == ("a b", "slb drain 'a b'")
    objects["routes"]["/p"]["members"] = ["a b"]
    objects["upstreams"] = {"a b": sick}
    assert kept.of(objects, NOW + 11)["ejected:/p"]["do"] == "slb routes /p", "there is nothing else to serve it"


@pytest.mark.parametrize(
    ("failed", "told_of_route"),
    [
        ({"/p": [0, 60, 60], "a": [0, 55, 55], "b": [0, 5, 5]}, " since it began. Some of them at b (10)"),
        ({"/p": [0, 60, 60], "a": [0, 5, 5], "b": [0, 55, 55]}, " since it began. Most of them at b (110)"),
        ({"/p": [0, 60, 60], "a": [0, 5, 5]}, " since it began"),
    ],
    ids=["another one fails too", "another one fails more", "no upstream was asked"],
)
def test_what_fails_beside_an_upstream_that_is_out_is_an_alert_without_that_one(
    failed: dict[str, list[int]], told_of_route: str
) -> None:
    out = {**OUT, "since": NOW - 50.0}
    kept, objects = Alerts(), everything(routes={"/p": ROUTE}, upstreams={"a": out, "b": UPSTREAM})
    told(kept, failed)
    found = kept.of(objects, NOW)
    assert set(found) == {"ejected:/p", "errors:/p"}
    assert "% of requests" not in found["ejected:/p"]["text"]
    assert found["errors:/p"]["text"].endswith(
        f" of requests of the last minute failed, and 120 requests{told_of_route}"
    )
    assert {each["upstream"] for each in found["errors:/p"]["culprits"]} <= {"b"}


def test_one_that_is_out_is_grave_where_half_of_the_requests_fail_at_it() -> None:
    members = list("abcde")
    kept, objects = (
        Alerts(),
        everything(
            routes={"/p": {**ROUTE, "members": members}},
            upstreams={**dict.fromkeys(members, UPSTREAM), "a": {**OUT, "since": NOW - 50.0}},
        ),
    )
    assert kept.of(objects, NOW)["ejected:/p"]["level"] == "warning"
    told(kept, {"/p": [0, 40, 40], "a": [0, 40, 40]})
    found = kept.of(objects, NOW)
    assert (list(found), found["ejected:/p"]["level"]) == (["ejected:/p"], "error")


def told(kept: Alerts, failed: dict[str, list[int]], asked: int = 50) -> None:
    """Of so many or more requests in each point these have failed, the last of them 10 s old."""
    names = {
        name: Failures(int(NOW // STEP), [max(asked, each) for each in of_it], of_it)
        for name, of_it in failed.items()
    }
    for _ in kept.history.take(names, {"1": names}, NOW):
        pass


def test_since_when_a_route_fails_is_told_at_the_first_look() -> None:
    assert NOW % STEP == 10.0
    kept, objects = Alerts(), everything(routes={"/p": ROUTE}, upstreams={"a": UPSTREAM, "b": UPSTREAM})
    told(kept, {"/p": [0, 30, 50, 50, 20], "a": [0, 30, 50, 50, 20]})
    (alert,) = kept.of(objects, NOW).values()
    assert alert["text"] == (
        "/p: 70 % of requests of the last minute failed, and 150 requests since it began. Most of them at a (150)"
    )
    assert (alert["level"], alert["failed"], NOW - alert["since"]) == ("error", 150, 10.0 + 3 * STEP)
    (culprit,) = alert["culprits"]
    assert (culprit["upstream"], culprit["failed"], NOW - culprit["since"]) == ("a", 150, 10.0 + 3 * STEP)


def test_one_that_looks_for_a_minute_sees_by_itself_whether_a_route_fails() -> None:
    kept, objects = Alerts(), everything(routes={"/p": ROUTE})
    told(kept, {"/p": [50, 50]})
    assert "errors:/p" in kept.of(objects, NOW)
    assert "errors:/p" in kept.of(objects, NOW + 59.0)
    assert "errors:/p" not in kept.of(objects, NOW + 60.0)


def test_what_failed_over_an_hour_ago_is_not_counted_and_the_text_says_so() -> None:
    kept = Alerts()
    sick = {**OUT, "since": NOW - 4000.0}
    objects = everything(routes={"/p": ROUTE}, upstreams={"a": sick, "b": UPSTREAM})
    told(kept, {"a": [3] * 121})
    assert ". 363 requests failed there in the last hour. " in kept.of(objects, NOW)["ejected:/p"]["text"]


def test_an_alert_of_one_that_is_stuck_says_since_when_it_owes_and_what_to_type() -> None:
    why = "it is stuck: no sign of life for 30 s, and 3 requests in flight; the only upstream of /p is not ejected"
    stuck = {**SPARED, "health": "stuck", "why": why, "since": NOW - 40.0}
    objects = everything(routes={"/p": {**ROUTE, "members": ["a"]}}, upstreams={"a": stuck, "b": UPSTREAM})
    alert = Alerts().of(objects, NOW)["spared:/p"]
    assert alert["text"] == (
        f"a (the only upstream of /p) is not ejected: {why}. Requests go there all the same: restart the server"
    )
    assert (alert["level"], alert["upstream"], alert["since"]) == ("error", "a", NOW - 40.0)
    assert alert["do"] == "slb routes /p"
    objects["routes"]["/p"]["members"] = ["a", "b"]
    assert Alerts().of(objects, NOW)["spared:/p"]["do"] == "slb drain a"


def test_an_instance_that_has_stopped_is_not_missed() -> None:
    objects = everything(instances={"1": {**INSTANCE, "silent_for": 40}})
    assert list(Alerts().of(objects, NOW)) == ["silent:1"]
    objects["changes"] = {"1": change("stopped", "one", NOW - 40.0)}
    assert not Alerts().of(objects, NOW)


def test_an_instance_that_alone_fails_with_a_route_is_named_while_it_does() -> None:
    objects = everything(
        instances={"1": INSTANCE, "2": {**INSTANCE, "name": "two"}},
        routes={"/p": ROUTE},
        changes={
            "1": change("isolated", "/p", NOW - 50.0, "2"),
            "2": change("isolated", "/p", NOW - 40.0, "1"),
            "3": change("isolation_ended", "/p", NOW - 30.0, "1"),
            "4": change("isolated", "/p", NOW - 20.0, "gone"),
        },
    )
    (alert,) = Alerts().of(objects, NOW).values()
    assert alert["text"] == "two alone fails with all upstreams of /p: look for the cause there"
    assert (alert["route"], alert["instance"], alert["since"]) == ("/p", "2", NOW - 50.0)
