"""`python -m bench discovery`: services of Kubernetes followed for a fleet, what it takes and how soon all know."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

from typer import Option

from bench.command import Bench
from bench.fleet import Fleet, Instance
from bench.http import get_text, send_json, wait_until_served
from bench.kube import address
from bench.ports import free_ports
from bench.procstat import ProcessTree, memory_mib
from bench.table import Figure, Outcome, Section, percentile

GOAL_DRAIN_MS, GOAL_ADDED_MS = 250.0, 2500.0
READY_SECONDS, FIRST_SECONDS = 30.0, 300.0
LOOK_EVERY_SECONDS = 0.1  # while 50,000 pods are written: each look is a request to every proxy
STEP_SECONDS = 0.2  # of the rolling deploy: a pod comes, another begins to end, a third has ended


class Cluster:
    """The API server, the instance that discovers, and the proxies."""

    def __init__(self, bench: Bench, services: int, pods: int, proxies: int) -> None:
        self.fleet: Fleet = bench.fleet()
        self._services, self._pods = services, pods
        bench.to("starting the API server and the proxies")
        (self._port,) = free_ports(1)
        running = bench.processes.start_module(self.fleet.folder("kube"), "bench.kube", self._port, services, pods)
        wait_until_served([self._port], "/healthz", running, READY_SECONDS)
        self.proxies = self.fleet.start_instances(proxies)
        bench.to("discovering")
        config = self.fleet.folder("config") / "slb.toml"
        config.write_text(
            f'[discovery.kubernetes]\nnamespace = "ml"\napi_server = "http://127.0.0.1:{self._port}"\n'
            "[discovery.kubernetes.routes]\n"
            + "".join(f'"/s{number}" = "service/s{number}:http"\n' for number in range(services))
        )
        began = time.monotonic()
        self.writer = self.fleet.start_discovery(["--config", str(config)])
        self.fleet.wait_until(self._has_all, "discovering", LOOK_EVERY_SECONDS, FIRST_SECONDS)
        self.first_seconds = time.monotonic() - began

    def _has_all(self) -> bool:
        last = f"/s{self._services - 1}"
        return all(
            self.routes(each) == self._services and len(_members(each, last)) == self._pods for each in self.proxies
        )

    def routes(self, instance: Instance) -> int:
        return int(instance.shown("/status")["mirror"]["routes"])

    def change(self, service: int, pod: int, to: str) -> None:
        send_json("POST", self._port, f"/change?service={service}&pod={pod}&to={to}", {})

    def _until_all(self, path: str, holds: Callable[[dict[str, bool]], bool]) -> None:
        def all_hold() -> bool:
            return all(holds(_members(each, path)) for each in self.proxies)

        self.fleet.wait_until(all_hold, path)

    def milliseconds(self, service: int, to: str, holds: Callable[[dict[str, bool]], bool]) -> float:
        """From a change of one pod until all proxies show it."""
        began = time.monotonic()
        self.change(service, 0, to)
        self._until_all(f"/s{service}", holds)
        return (time.monotonic() - began) * 1e3


def _drains(upstream: str, found: dict[str, bool]) -> bool:
    return found.get(upstream, False)


def _is_there(upstream: str, found: dict[str, bool]) -> bool:
    return upstream in found


def _members(instance: Instance, path: str) -> dict[str, bool]:
    """Of a route, and whether they drain."""
    return {each["member"]: each["drain"] for each in instance.shown(f"/routes{path}").get("members", ())}


def discovery(
    bench: Bench,
    services: Annotated[int, Option(min=1, help="Services, each for a route of its own.")] = 1000,
    pods: Annotated[int, Option(min=2, max=250, help="Of each.")] = 50,
    proxies: Annotated[int, Option(min=1, help="Instances that follow Redis.")] = 3,
    tries: Annotated[int, Option(min=1, help="Changes of one pod.")] = 20,
) -> Outcome:
    """Services of Kubernetes followed for a fleet: memory, time until every instance knows, a rolling deploy."""
    cluster = Cluster(bench, services, pods, proxies)
    bench.to("one pod at a time")
    drains: list[float] = []
    added: list[float] = []
    for number in range(tries):
        service, comes = number % services, f"10.200.{number}.1"
        drains.append(cluster.milliseconds(service, "draining", partial(_drains, f"{address(service, 0)}:8000")))
        added.append(cluster.milliseconds(service, comes, partial(_is_there, f"{comes}:8000")))
    bench.to("a rolling deploy")
    return Outcome([_of_events(cluster, services, pods, drains, added), _rolling(cluster, services - 1, pods)])


def _of_events(
    cluster: Cluster, services: int, pods: int, drains: Sequence[float], added: Sequence[float]
) -> Section:
    figures = [
        Figure("from the start of the writer until all proxies have all", cluster.first_seconds, "s"),
        Figure("resident memory of the writer", memory_mib(cluster.writer.running.pid)[0], "MiB"),
        Figure("resident memory of a proxy", memory_mib(cluster.proxies[0].running.pid)[0], "MiB"),
        Figure("a pod terminates, all proxies know, p50", percentile(drains, 0.5), "ms"),
        Figure("a pod terminates, all proxies know, p95", percentile(drains, 0.95), "ms", below=GOAL_DRAIN_MS),
        Figure("a pod comes, all proxies know, p50", percentile(added, 0.5), "ms"),
        Figure("a pod comes, all proxies know, p95", percentile(added, 0.95), "ms", below=GOAL_ADDED_MS),
    ]
    return Section(f"{services:,} services of {pods} pods, {len(cluster.proxies)} proxies", figures)


def _rolling(cluster: Cluster, service: int, pods: int) -> Section:
    """Each pod is replaced; the CPU time of it, less what as long a time without changes takes."""
    trees = [ProcessTree(each.running.pid) for each in (cluster.writer, cluster.proxies[0])]
    redis = ProcessTree(cluster.fleet.redis.pid)
    seconds = pods * STEP_SECONDS
    idle = _spent([*trees, redis], lambda: time.sleep(seconds))
    wrote = _writes(cluster)

    def roll() -> None:
        for pod in range(pods):
            cluster.change(service, pods + pod, f"10.201.{service % 250}.{pod + 1}")
            cluster.change(service, pod, "draining")
            if pod:
                cluster.change(service, pod - 1, "gone")
            time.sleep(STEP_SECONDS)

    busy = _spent([*trees, redis], roll)
    writer, proxy, server = (1e3 * max(0.0, more - less) for more, less in zip(busy, idle, strict=True))
    figures = [
        Figure("CPU of the writer", writer, "ms"),
        Figure("CPU of a proxy", proxy, "ms"),
        Figure("CPU of Redis", server, "ms"),
        Figure("events at the API server", float(3 * pods - 1), ""),
        Figure("changes written to Redis", float(_writes(cluster) - wrote), ""),
    ]
    return Section(f"{pods} pods replaced one by one, {STEP_SECONDS:g} s each, {seconds:g} s in all", figures)


def _spent(trees: Sequence[ProcessTree], act: Callable[[], None]) -> list[float]:
    before = [tree.cpu_seconds() for tree in trees]
    act()
    return [tree.cpu_seconds() - had for tree, had in zip(trees, before, strict=True)]


def _writes(cluster: Cluster) -> int:
    lines = get_text(cluster.writer.api_port, "/metrics").splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith("slb_discovery_writes_total "))
