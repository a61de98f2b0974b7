"""The same upstreams once more, by one name in DNS: its SRV records have their ports."""

import json
import urllib.request
from typing import Any

from e2e.dns import NameServer
from e2e.topology import PATH, Topology

BY_NAME = "/by-name"
_NAME = "_http._tcp.upstreams.test"
_HOST = "host.upstreams.test"


def register(topology: Topology, names: NameServer) -> str:
    """Publish the upstreams of PATH in `names`, and register that name for BY_NAME; what was registered."""
    members = [each["member"] for each in _asked(topology, "GET", f"/routes{PATH}")["members"]]
    ports = [member.rpartition(":")[2] for member in members]
    records = [f"{_NAME}. 1 IN SRV 0 0 {port} {_HOST}." for port in ports]
    names.zone.publish(*records, f"{_HOST}. 1 IN A {members[0].rpartition(':')[0]}")
    target = f"dns+srv://{_NAME}"
    _asked(topology, "POST", "/register", {"path": BY_NAME, "target": target})
    return target


def _asked(topology: Topology, method: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{topology.api}{path}", data, method=method)
    with urllib.request.urlopen(request, timeout=10) as reply:
        return json.load(reply)
