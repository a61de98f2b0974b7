"""The fleets that are compared, and how each is started. A balancer is data: a peer's configuration, or the
settings of slb's route."""

import getpass
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from bench.errors import BenchError
from bench.figures.fleet import Fleet, Instance
from bench.http import ask, free_ports, get_text, send_json
from bench.peers import ENVOY, HAPROXY, NGINX, SLB, Peer, Site
from bench.processes import Processes, Running, wait_until

READY_SECONDS = 60.0
LOOK_EVERY_SECONDS = 0.05
PATIENCE = "600s"
"""How long any of them waits for an upstream: in a burst, requests queue for longer than their defaults."""


@dataclass(frozen=True)
class Stage:
    """Where a fleet is to be started: an owner of processes and a folder of its own, the pods' ports, and of how
    many proxies it is to be."""

    processes: Processes
    home: Path
    pods: Sequence[int]
    proxies: int


@dataclass(frozen=True)
class Started:
    """A fleet that answers: its processes and their data ports."""

    running: Sequence[Running]
    ports: Sequence[int]

    def end(self) -> None:
        """Tell all of them at once; waiting for each is left to their owner."""
        for one in self.running:
            one.process.terminate()


class Balancer(Protocol):
    """A fleet of one kind. `name` is for `--only`, `label` for tables and the chart."""

    @property
    def name(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def needs(self) -> Peer: ...
    def start(self, stage: Stage) -> Started:
        """Start it and wait until every proxy serves. Raises BenchError."""


@dataclass(frozen=True)
class PeerFleet:
    """Proxies with a static configuration, each of which knows only its own requests."""

    name: str
    label: str
    needs: Peer

    def start(self, stage: Stage) -> Started:
        program = self.needs.program()
        if program is None:
            raise BenchError(f"not installed: {self.needs.install}")
        ports = free_ports(stage.proxies)
        running = [self._start_one(stage, program, port) for port in ports]
        for one, port in zip(running, ports, strict=True):
            wait_until(lambda port=port: ask(port, "/")[0] == 200, one, READY_SECONDS, "starting")  # type: ignore[misc]
        return Started(running, ports)

    def _start_one(self, stage: Stage, program: str, port: int) -> Running:
        home = stage.home / f"{self.name}-{port}"
        home.mkdir()
        site = Site(home, port, 0, tuple(stage.pods), getpass.getuser())
        argv = self.needs.command(program, site)
        return stage.processes.start(argv, None, home, self.needs.environment_at(site))


@dataclass(frozen=True)
class SlbFleet:
    """slb instances on one Redis of their own, with these settings on their one route."""

    name: str
    label: str
    settings: Mapping[str, object]
    needs: Peer = SLB

    def start(self, stage: Stage) -> Started:
        fleet = Fleet(stage.processes, stage.home)
        instances = [fleet.start_instance() for _ in range(stage.proxies)]
        for instance in instances:
            instance.wait_until_ready()
        self._set_up(instances[0], stage.pods)
        for instance in instances:
            wait_until(
                lambda each=instance: _shows(each, stage.pods),  # type: ignore[misc]
                instance.running,
                READY_SECONDS,
                "showing the route",
                LOOK_EVERY_SECONDS,
            )
        return Started([each.running for each in instances], [each.port for each in instances])

    def _set_up(self, instance: Instance, pods: Sequence[int]) -> None:
        status, text = send_json("PUT", instance.api_port, "/routes/", self.settings)
        if status != 200:
            raise BenchError(f"the route's settings were refused: {status} {text}")
        for port in pods:
            instance.register("/", f"127.0.0.1:{port}")


def _shows(instance: Instance, pods: Sequence[int]) -> bool:
    shown = get_text(instance.api_port, "/routes/")
    return all(f"127.0.0.1:{port}" in shown for port in pods) and ask(instance.port, "/")[0] == 200


def in_fleet(peer: Peer) -> Peer:
    """The same program with its configuration for a fleet: `fleet-` stands before the file's name."""
    (name,) = peer.configs
    arguments = tuple(argument.replace(f"@home@/{name}", f"@home@/fleet-{name}") for argument in peer.arguments)
    return replace(peer, arguments=arguments, configs=(f"fleet-{name}",))


PATIENT = {"first_byte_timeout": PATIENCE}
QUEUED = {"max_inflight": 1, "when_full": "queue", "queue_timeout": PATIENCE, "queue_limit": 100_000}

BALANCERS: tuple[Balancer, ...] = (
    PeerFleet("envoy", "Envoy LEAST_REQUEST", in_fleet(ENVOY)),
    PeerFleet("nginx", "nginx least_conn", in_fleet(NGINX)),
    PeerFleet("haproxy", "HAProxy leastconn", in_fleet(HAPROXY)),
    SlbFleet("slb-local", "slb least_local", {"policy": "least_local", **PATIENT}),
    SlbFleet("slb", "slb least_inflight", {"policy": "least_inflight", **PATIENT}),
    SlbFleet("slb-queue", "slb shared queue", {"policy": "least_inflight", **QUEUED, **PATIENT}),
)
