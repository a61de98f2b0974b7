"""What one process is called, and what others see of it."""

import os
import socket
from ipaddress import ip_address
from uuid import uuid4

from slb.build import build
from slb.config import Settings
from slb.control import processes
from slb.control.instances import InstanceInfo
from slb.listening import Sockets
from slb.names import join_member


def instance_name(settings: Settings, sockets: Sockets) -> str:
    """`name`, `HOST:PORT`, or `HOST@127.0.0.2:8080` where instances on one machine may share a port."""
    address, port = sockets.internet_addresses()[0]
    where = f":{port}" if _says_nothing(address) else f"@{join_member('http', address, port)}"
    return settings.name or f"{socket.gethostname()}{where}"


def _says_nothing(address: str) -> bool:
    """All addresses, or the one that listeners have unless another is set."""
    return ip_address(address).is_unspecified or address in ("127.0.0.1", "::1")


def instance_info(settings: Settings, sockets: Sockets, started: float) -> InstanceInfo:
    """What others see of this process; `started`: seconds since the epoch."""
    return InstanceInfo(
        id=uuid4().hex,
        name=instance_name(settings, sockets),
        address=next(iter(sockets.data_shown()), sockets.api_shown()),
        api=sockets.api_shown(),
        version=build(),
        roles=",".join(settings.roles),
        started=f"{started:.3f}",
        pid=str(os.getpid()),
        host=socket.gethostname(),
        process=processes.identity(),
        binding="" if sockets.shared else binding_of(sockets),
        serves="tcp" if settings.proxy_protocol else "https" if settings.tls_certificates else "http",
        zone=settings.zone,
        weight=str(settings.advertise_weight),
        dns_ttl=f"{settings.dns_ttl:g}" if sockets.dns else "",
    )


def binding_of(sockets: Sockets) -> str:
    """The address of its API in `slb.control.processes`, which proves that the process lives that has it."""
    owner = processes.identity(os.getppid() if sockets.others else None)  # a worker's supervisor has bound it
    return processes.binding(sockets.api_shown(), owner)
