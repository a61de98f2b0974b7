"""The fleets that are compared, and how each is started. A balancer is data: a peer's configuration, or the
settings of slb's route."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.errors import BenchError
from bench.fleet import READY_SECONDS, Fleet, Instance
from bench.http import ask, get_text, send_json
from bench.peers import ENVOY, HAPROXY, NGINX, SLB, Peer
from bench.processes import Processes, Running, wait_until

LOOK_EVERY_SECONDS = 0.05
PATIENCE = "600s"
"""How long any of them waits for an upstream: in a burst, requests queue for longer than their defaults."""


class Started(NamedTuple):
    """A fleet that answers: its processes and their data ports."""

    running: Sequence[Running]
    ports: Sequence[int]


@dataclass(frozen=True)
class Balancer:
    """A fleet of one kind. `name` is for `--only`, `label` for tables and the chart. `settings` are those of slb's
    one route; a peer has a static configuration, and each of its proxies knows only its own requests."""

    name: str
    label: str
    needs: Peer
    settings: Mapping[str, object] | None = None

    def start(self, processes: Processes, home: Path, pods: Sequence[int], proxies: int) -> Started:
        """In a folder of its own; every proxy serves on return. Raises BenchError."""
        if self.settings is None:
            return self._peers(processes, home, pods, proxies)
        return self._slb(Fleet(processes, home), pods, proxies, self.settings)

    def _peers(self, processes: Processes, home: Path, pods: Sequence[int], proxies: int) -> Started:
        started = [self.needs.start(processes, home / str(number), pods) for number in range(proxies)]
        for each in started:
            wait_until(partial(_answers, each.site.port), each.running, READY_SECONDS, "starting")
        return Started([each.running for each in started], [each.site.port for each in started])

    def _slb(self, fleet: Fleet, pods: Sequence[int], proxies: int, settings: Mapping[str, object]) -> Started:
        """Instances on one Redis of their own."""
        instances = [fleet.start_instance() for _ in range(proxies)]
        for instance in instances:
            instance.wait_until_ready()
        status, text = send_json("PUT", instances[0].api_port, "/routes/", settings)
        if status != 200:
            raise BenchError(f"the route's settings were refused: {status} {text}")
        members = [f"127.0.0.1:{port}" for port in pods]
        for member in members:
            instances[0].register("/", member)

        for instance in instances:
            serves = partial(_serves, instance, members)
            wait_until(serves, instance.running, READY_SECONDS, "showing the route", LOOK_EVERY_SECONDS)
        return Started([each.running for each in instances], [each.port for each in instances])


def _answers(port: int) -> bool:
    return ask(port, "/")[0] == 200


def _serves(instance: Instance, members: Sequence[str]) -> bool:
    shown = get_text(instance.api_port, "/routes/")
    return all(member in shown for member in members) and _answers(instance.port)


def in_fleet(peer: Peer) -> Peer:
    """The same program with its configuration for a fleet: `fleet-` stands before the file's name."""
    (name,) = peer.configs
    arguments = tuple(argument.replace(f"@home@/{name}", f"@home@/fleet-{name}") for argument in peer.arguments)
    return replace(peer, arguments=arguments, configs=(f"fleet-{name}",))


PATIENT = {"first_byte_timeout": PATIENCE}
QUEUED = {"max_inflight": 1, "when_full": "queue", "queue_timeout": PATIENCE, "queue_limit": 100_000}

BALANCERS = (
    Balancer("envoy", "Envoy LEAST_REQUEST", in_fleet(ENVOY)),
    Balancer("nginx", "nginx least_conn", in_fleet(NGINX)),
    Balancer("haproxy", "HAProxy leastconn", in_fleet(HAPROXY)),
    Balancer("slb-local", "slb least_local", SLB, {"policy": "least_local", **PATIENT}),
    Balancer("slb", "slb least_inflight", SLB, {"policy": "least_inflight", **PATIENT}),
    Balancer("slb-queue", "slb shared queue", SLB, {"policy": "least_inflight", **QUEUED, **PATIENT}),
)
