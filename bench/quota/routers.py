"""Three router processes on one Redis, for one run; another run has others, which know nothing of it."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.fleet import Fleet, Instance
from bench.http import get_text, send_json
from bench.processes import Processes
from bench.quota.models import Model

INSTANCES = 3
LEASE_SECONDS, LEAST_LEASE_SECONDS = 150.0, 3.0
"""The router's default, and the shortest that it takes."""


class Routers:
    """What is asked of them besides what callers ask. `lease` is seconds."""

    def __init__(self, processes: Processes, instances: Sequence[Instance], lease: float) -> None:
        self._processes = processes
        self._instances = list(instances)
        self.lease = lease

    @property
    def urls(self) -> list[str]:
        """Of those that live."""
        return [f"http://127.0.0.1:{instance.api_port}" for instance in self._instances]

    def put(self, models: Sequence[Model]) -> None:
        """Raises BenchError where a router says no."""
        for model in models:
            limits = {
                "max_tokens_per_minute": model.limit,
                "max_concurrent_requests": model.slots,
                "weight": model.weight,
                "burst": model.burst,
            }
            status, text = send_json("PUT", self._instances[0].api_port, f"/models/{model.name}", limits)
            if status not in (200, 201):
                raise BenchError(f"PUT /models/{model.name} answered {status}: {text}")

    def kill_one(self) -> None:
        """kill -9. There will be no other in its place."""
        self._processes.kill(self._instances.pop().running)

    def check_alive(self) -> None:
        """Raises BenchError where one has ended by itself."""
        for instance in self._instances:
            instance.running.check_alive()

    def in_flight(self) -> int:
        """Tasks of all models, as they say."""
        return sum(model["in_flight"] for model in self._told("/models")["models"])

    def abandoned(self) -> list[dict[str, Any]]:
        """What they have reclaimed."""
        tasks: list[dict[str, Any]] = self._told("/tasks?state=abandoned")["tasks"]
        return tasks

    def _told(self, path: str) -> Any:
        return json.loads(get_text(self._instances[0].api_port, path))


@contextmanager
def routers(home: Path, models: Sequence[Model], factor: float) -> Iterator[Routers]:
    """In a new folder in `home`, with these models; ended with the block. Leases are compressed as calls are."""
    lease = max(LEAST_LEASE_SECONDS, LEASE_SECONDS / factor)
    home.mkdir()
    settings = home / "slb.toml"
    settings.write_text(f'roles = "quota"\nquota_lease = "{lease:g}s"\n')
    with Processes() as processes:
        fleet = Fleet(processes, home)
        for _ in range(INSTANCES):
            fleet.start_instance("--config", str(settings))
        for instance in fleet.instances:
            instance.wait_until_ready()
        started = Routers(processes, fleet.instances, lease)
        started.put(models)
        yield started
        started.check_alive()
