"""Envoys that ask external processors of slb's, with the configuration of `deploy/envoy`."""

import re
from collections.abc import Sequence
from pathlib import Path

from bench.fleet import READY_SECONDS, Fleet, member
from bench.http import text_or_nothing
from bench.peers import ENVOY
from bench.ports import free_ports
from bench.processes import Processes, Running, wait_until
from e2e.envoy_config import OPTIONS, filled


class Processors:
    """External processors on the Redis of `fleet`, with the route `/`. `ports`: where Envoys ask them."""

    def __init__(self, fleet: Fleet, number: int, pods: Sequence[int], core: int | None = None) -> None:
        """All of them have the route with these pods on return."""
        self.ports = free_ports(number)
        apis = free_ports(number)
        self.running = [fleet.start_ext_proc(port, api, core) for port, api in zip(self.ports, apis, strict=True)]

        def all_have_them() -> bool:
            shown = [text_or_nothing(api, "/routes/") for api in apis]
            return all(member(port) in text for text in shown for port in pods)

        for running in self.running:
            wait_until(all_have_them, running, READY_SECONDS, "knowing the pods")


def start_envoy(
    processes: Processes, home: Path, pods: Sequence[int], processors: Sequence[int], core: int | None = None
) -> tuple[int, Running]:
    """One in `home`, which is made: its port. It has found all processors healthy on return."""
    home.mkdir()
    port, admin = free_ports(2)
    config = home / "envoy.yaml"
    config.write_text(filled(port, admin, pods, processors))
    running = processes.start([ENVOY.installed(), "--config-path", str(config), *OPTIONS], core, home, {})

    def asks_all() -> bool:
        text = text_or_nothing(admin, "/stats?filter=cluster.slb.membership_healthy")
        return bool(re.search(rf": {len(processors)}\b", text))

    wait_until(asks_all, running, READY_SECONDS, "finding its processors")
    return port, running
