"""The Envoy of `deploy/envoy`, and its configuration with the addresses of one machine filled in."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import which

ADDRESS = "127.0.0.1"
CONFIG = Path(__file__).parent.parent / "deploy" / "envoy" / "envoy.yaml"
OPTIONS = ("--concurrency", "1", "--disable-hot-restart", "--log-level", "error")
_HOST = re.compile(
    r"^(?P<before>.*address: )\S+(?P<between>, port_value: )\d+(?P<after>.*)# each of (?P<whose>.*)$", re.MULTILINE
)


def envoy_program() -> str | None:
    """The Envoy beside this Python, or on PATH; None where there is none."""
    return which("envoy", path=str(Path(sys.executable).parent)) or which("envoy")


def filled(listen: int, admin: int, pods: Sequence[int], processors: Sequence[int]) -> str:
    """The configuration with these ports of the loopback: the line of a host is repeated for each of them."""
    ports = {"the pods": pods, "slb's": processors}

    def hosts(line: re.Match[str]) -> str:
        before, between, after = line["before"] + ADDRESS, line["between"], line["after"].rstrip()
        return "\n".join(f"{before}{between}{port}{after}" for port in ports[line["whose"]])

    config = _HOST.sub(hosts, CONFIG.read_text())
    config = config.replace("0.0.0.0, port_value: 10000", f"{ADDRESS}, port_value: {listen}")
    return config.replace("port_value: 9901", f"port_value: {admin}")
