"""The fleets that are compared, and how each is started. A balancer is data: a peer's configuration, or the
settings of slb's route."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.fleet import READY_SECONDS, Fleet
from bench.http import ask
from bench.peers import ENVOY, HAPROXY, NGINX, SLB, Peer
from bench.processes import Processes, Running, wait_until

PATIENCE = "600s"
"""How long any of them waits for an upstream: in a burst, requests queue for longer than their defaults."""

Started = dict[int, Running]
"""A fleet that answers: its processes by their data ports."""


@dataclass(frozen=True)
class Balancer:
    """A fleet of one kind. `name` is for `--only`, `label` for tables. `settings` are those of slb's one route; a
    peer has a static configuration, and each of its proxies sees only its own requests."""

    name: str
    label: str
    needs: Peer
    settings: Mapping[str, str] | None = None

    def start(self, processes: Processes, home: Path, pods: Sequence[int], proxies: int) -> Started:
        """In a folder of its own; every proxy serves on return. Raises BenchError."""
        if self.settings is None:
            peers = [self.needs.start(processes, home / str(number), pods) for number in range(proxies)]
            started = {each.site.port: each.running for each in peers}
        else:
            fleet = Fleet(processes, home)
            fleet.write_route("/", pods, self.settings)
            started = {each.port: each.running for each in fleet.start_instances(proxies)}
            fleet.wait_until_shown("/", pods, fleet.instances[0].running)
        for port, running in started.items():
            wait_until(partial(_answers, port), running, READY_SECONDS, "starting")
        return started


def _answers(port: int) -> bool:
    return ask(port, "/")[0] == 200


def in_fleet(peer: Peer) -> Peer:
    """The same program with its configuration for a fleet: `fleet-` stands before the file's name."""
    (name,) = peer.configs
    arguments = tuple(argument.replace(f"@home@/{name}", f"@home@/fleet-{name}") for argument in peer.arguments)
    return replace(peer, arguments=arguments, configs=(f"fleet-{name}",))


PATIENT = {"first_byte_timeout": PATIENCE}
QUEUED = {"max_inflight": "1", "when_full": "queue", "queue_timeout": PATIENCE, "queue_limit": "100000"}

BALANCERS = (
    Balancer("envoy", "Envoy LEAST_REQUEST", in_fleet(ENVOY)),
    Balancer("nginx", "nginx least_conn", in_fleet(NGINX)),
    Balancer("haproxy", "HAProxy leastconn", in_fleet(HAPROXY)),
    Balancer("slb-local", "slb least_local", SLB, {"policy": "least_local", **PATIENT}),
    Balancer("slb", "slb least_inflight", SLB, {"policy": "least_inflight", **PATIENT}),
    Balancer("slb-queue", "slb shared queue", SLB, {"policy": "least_inflight", **QUEUED, **PATIENT}),
)
