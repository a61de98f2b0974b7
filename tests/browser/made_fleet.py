"""A fleet that is made up: what GET /fleet answers of it, and what changes in a second."""

import math
import time
from random import Random
from typing import Any

Fleet = dict[str, dict[str, Any]]
_POLICIES = ("least_inflight", "consistent_hash", "p2c", "round_robin")
_MODELS = ("flux", "llama-70b", "whisper", "sdxl", "embed", "qwen-32b", "tts", "rerank")


class MadeFleet:
    """Its figures wander by `seed`; `state` is all of it, `change` what another second brings."""

    def __init__(
        self, routes: int = 6, upstreams: int = 20, instances: int = 4, slots: int = 8, seed: int = 7
    ) -> None:
        self._random = Random(seed)
        self._slots = slots
        self.state: Fleet = {
            "view": {"self": _view()},
            "instances": {f"i{n}": self._instance(n) for n in range(instances)},
            "routes": {},
            "upstreams": {},
            "queues": {},
            "pools": {},
            "jobs": _jobs(),
            "quota": _quota(),
            "rings": {},
            "alerts": {},
            "changes": _changes(),
        }
        for number in range(routes):
            self._add_route(number, upstreams // routes + (number < upstreams % routes))
        self._trouble()

    def change(self) -> Fleet:
        """The next second: figures of all instances and routes, and of a tenth of the upstreams."""
        changed: Fleet = {"instances": {}, "routes": {}, "upstreams": {}, "queues": {}}
        for key, each in self.state["instances"].items():
            changed["instances"][key] = {**each, **self._figures(each["rate"] or 40.0)}
        for key, each in self.state["routes"].items():
            changed["routes"][key] = {**each, **self._figures(each["rate"] or 20.0)}
        for key, each in self.state["upstreams"].items():
            if self._random.random() < 0.5:
                inflight = min(each["capacity"], max(0, each["inflight"] + self._random.choice((-1, 0, 1))))
                changed["upstreams"][key] = {**each, "inflight": inflight}
        for key, each in self.state["queues"].items():
            depth = max(0, each["depth"] + self._random.randint(-3, 3))
            changed["queues"][key] = {**each, "depth": depth}
        changed["view"] = {"self": {**self.state["view"]["self"], "now": time.time()}}
        for section, entries in changed.items():
            self.state[section].update(entries)
        return changed

    def history(self) -> dict[str, Any]:
        """Of each instance, 720 figures of 5 s."""
        until = time.time()
        series = {}
        for key, each in self.state["instances"].items():
            wave = [
                each["rate"] * (1 + 0.25 * math.sin(n / 60) + self._random.uniform(-0.06, 0.06)) for n in range(720)
            ]
            slow = [1.6 if 500 < n < 540 else 1.0 for n in range(720)]
            series[key] = {
                "name": each["name"],
                "until": until,
                "requests": wave,
                "inflight": [int(rate * 0.9) for rate in wave],
                "p50": [each["p50"] * share for share in slow],
                "p99": [each["p99"] * share * self._random.uniform(0.9, 1.2) for share in slow],
                "errors": [3.0 * (share - 1) for share in slow],
            }
        return {"step": 5, "series": series}

    def hour(self, name: str) -> dict[str, Any]:
        """Of a route or an upstream, 100 figures of 30 s: of the requests 7, and in the last ten minutes half of
        them failed."""
        until = int(time.time() // 30 * 30)
        figures = ("waiting", "p50", "p99") if name.startswith("/") else ("latency",)
        return {
            "name": name,
            "step": 30,
            "until": until,
            "requests": [7.0] * 100,
            "errors": [0.0] * 80 + [3.5] * 20,
            "inflight": [4.0 + math.sin(n / 9) for n in range(100)],
            "first_byte": [None if n % 10 == 9 else 0.25 for n in range(100)],
            **{each: [0.5 + 0.1 * math.sin(n / 5) for n in range(100)] for each in figures},
            "instances": ["edge-1", "edge-2"],
            "missing": ["edge-3"],
        }

    def _figures(self, rate: float) -> dict[str, Any]:
        wander = self._random.uniform
        return {
            "rate": rate * wander(0.96, 1.04),
            "inflight": int(rate * wander(0.8, 1.0)),
            "p50": 0.8 * wander(0.95, 1.05),
            "p99": 2.4 * wander(0.9, 1.2),
            "error_rate": 0.0,
        }

    def _instance(self, number: int) -> dict[str, Any]:
        group = f"edge-{number // 2 + 1}"
        return {
            "name": f"{group}/{number % 2}" if number else group,
            "group": group,
            "version": "0.1.0",
            "roles": ["proxy", "jobs"] if number % 2 else ["proxy"],
            "host": f"node-{number // 2 + 1}",
            "pid": 4000 + number,
            "address": f"10.0.9.{number + 1}:8080",
            "api": f"10.0.9.{number + 1}:8081",
            "zone": "ab"[number % 2],
            "started": time.time() - 86_400 * 3 - 977 * number,
            "draining": False,
            "silent_for": 0.4,
            "connections": 120 + number,
            "redis_up": True,
            "redis_mode": "sync",
            "staleness": 0.2,
            **self._figures(35.0 + number),
        }

    def _add_route(self, number: int, count: int) -> None:
        path = "/models/" + _MODELS[number % len(_MODELS)] + (f"-{number}" if number >= len(_MODELS) else "")
        policy = _POLICIES[number % len(_POLICIES)]
        members = [f"10.{number // 200 + 1}.{number % 200}.{n + 11}:8000" for n in range(count)]
        for n, member in enumerate(members):
            self.state["upstreams"][member] = self._upstream(path, n)
        self.state["routes"][path] = {
            "policy": policy,
            "pool": path,
            "settings": {"policy": policy, "max_inflight": 1, "when_full": "queue", "retries": 1},
            "sources": {"policy": "hash", "max_inflight": "hash", "when_full": "file", "retries": "built_in"},
            "members": members,
            "names": [],
            "panic": False,
            "faults": [],
            "reasons": {},
            **self._figures(14.0 + 3 * number),
        }
        self.state["pools"][path] = {"mode": "shared", "error": "", "holders": 4, "queued": 0}
        if policy == "consistent_hash":
            weights = [self._random.uniform(0.7, 1.3) for _ in members]
            shares = [[member, each / sum(weights)] for member, each in zip(members, weights, strict=True)]
            self.state["rings"][path] = {"shares": shares}

    def _upstream(self, path: str, number: int) -> dict[str, Any]:
        inflight = self._random.randint(self._slots // 3, self._slots)
        return {
            "routes": [path],
            "weight": 1,
            "slots": self._slots,
            "capacity": self._slots,
            "zone": "ab"[number % 2],
            "node": f"gpu-{number + 1}",
            "drain": False,
            "joined": time.time() - 4000,
            "fading": None,
            "health": "up",
            "ejected_by": [],
            "why": "",
            "since": None,
            "inflight": inflight,
            "held": {"edge-1": inflight // 2, "edge-1/1": inflight - inflight // 2},
            "rate": self._random.uniform(1.0, 4.0),
            "error_rate": 0.0,
            "latency": self._random.uniform(0.6, 1.3),
            "first_byte": self._random.uniform(0.1, 0.3),
        }

    def _trouble(self) -> None:
        """Something to look at: two ejected, one drains, one fades in, one fails, one is busy, a queue."""
        path, route = next(iter(self.state["routes"].items()))
        since, why = time.time() - 75, "it refuses connections"
        out = {"health": "ejected", "inflight": 0, "held": {}, "why": why}
        states = [
            {**out, "ejected_by": ["edge-1"], "since": since},
            {**out, "ejected_by": ["edge-2"], "since": since + 5},
            {"drain": True, "inflight": 2},
            {"fading": 0.4, "inflight": 2},
            {"health": "failing", "why": "2 failures in a row", "error_rate": 0.7, "latency": 4.2},
            {"health": "busy", "why": "it says that it is full"},
        ]
        for member, changes in zip(route["members"][1:], states, strict=False):
            self.state["upstreams"][member].update(changes)
        for priority, depth in (("critical", 2), ("batch", 31)):
            queue = {"pool": path, "route": path, "priority": priority, "depth": depth, "oldest": 1.8, "eta": 4.0}
            self.state["queues"][f"{path}|{path}|{priority}"] = queue
        named = " and ".join(f"{each} on {self.state['upstreams'][each]['node']}" for each in route["members"][1:3])
        share = f"2 of {len(route['members'])} upstreams of {path}"
        self.state["alerts"][f"ejected:{path}"] = {
            "do": f"slb routes {path}",
            "level": "error",
            "text": f"{named} ({share}) are ejected: {why}. Left out, and tried again now and then",
            "since": since,
            "route": path,
            "culprits": [
                {"upstream": each, "why": why, "since": since + 5 * number, "failed": 0}
                for number, each in enumerate(route["members"][1:3])
            ],
        }


def _view() -> dict[str, Any]:
    redis = {"up": True, "mode": "sync", "staleness_seconds": 0.1}
    return {
        "id": "i0",
        "name": "edge-1",
        "version": "0.1.0",
        "now": time.time(),
        "redis": redis,
        "alone": False,
        "rights": None,
        "token": "",
    }


def _jobs() -> dict[str, Any]:
    return {
        "flux": {
            "paused": False,
            "queued": 412,
            "retrying": 6,
            "processing": 48,
            "buffered": 0,
            "ended": 181_222,
            "dead": 3,
            "oldest_since": time.time() - 96,
            "rate": 11.4,
            "failed_by": {"GPU answered 500: out of memory": 14, "no answer within 60 s": 3},
        },
        "whisper": {
            "paused": True,
            "queued": 20,
            "retrying": 0,
            "processing": 0,
            "buffered": 0,
            "ended": 902,
            "dead": 0,
            "oldest_since": time.time() - 12,
            "rate": 0.0,
            "failed_by": {},
        },
    }


def _quota() -> dict[str, Any]:
    return {
        "gpt-large": {
            "tokens": 61_000.0,
            "tokens_limit": 120_000,
            "slots": 37,
            "slots_limit": 60,
            "share": 0.6,
            "waiting": 12,
            "next": [
                {"key": "nightly-0412", "tokens": 1_200, "due": time.time() + 4},
                {"key": "", "tokens": 800, "due": time.time() - 1},
            ],
            "paused": False,
        },
        "gpt-small": {
            "tokens": 9_000.0,
            "tokens_limit": 300_000,
            "slots": 8,
            "slots_limit": 80,
            "share": 0.4,
            "waiting": 0,
            "paused": False,
        },
    }


def _changes() -> dict[str, Any]:
    told = [
        ("registered", "10.1.0.14:8000", "in /models/flux, slots 8", ""),
        ("settings_changed", "/models/flux", "max_inflight = 1", "ops"),
        ("ejected", "10.1.0.12:8000", "connection refused", ""),
        ("drained", "10.1.0.14:8000", "", "ops"),
    ]
    return {
        f"{n}-0": {
            "time": time.time() - 900 + 200 * n,
            "instance": "i0",
            "name": "edge-1",
            "what": what,
            "subject": subject,
            "detail": detail,
            "by": by,
        }
        for n, (what, subject, detail, by) in enumerate(told)
    }
