"""Listening sockets, bound before anything else starts: a port in use is one clear line, not half a start."""

import ctypes
import errno
import os
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slb.config import Settings
from slb.errors import SlbError
from slb.given_sockets import GivenSockets, Kind, Place
from slb.names import join_member
from slb.setting_values import host_port

BACKLOG = 4096  # connections the kernel holds while the loop is busy; its own limit may be lower

_TRIES = 10
_QUEUED = slice(24, 28)  # tcp_info.tcpi_unacked, which of a listening socket is the length of its queue

_SO_ATTACH_FILTER = 26
_NO_SYN = ((0x30, 0, 0, 13), (0x45, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
"""Classic BPF over a TCP header: load the byte of flags; with SYN in it drop the packet, else let it through."""


class CannotListen(SlbError):
    """An address that cannot be listened on; the message has the address, the cause and the setting."""


class AddressInUse(CannotListen):
    """The address is of this machine, and a socket listens there already."""


def listening_socket(address: str, setting: str, given: GivenSockets | None = None) -> socket.socket:
    """A bound, listening, non-blocking socket for `HOST:PORT` (0: a free one): the `given` one that is bound there,
    or a new one. Raises CannotListen, naming `setting`."""
    bound = bound_socket(address, setting, given)
    begin_listening(bound, setting)
    return bound


def begin_listening(bound: socket.socket, setting: str) -> None:
    """Accept connects from now on. Raises CannotListen, the socket closed, where another process was faster."""
    try:
        bound.listen(BACKLOG)
    except OSError as error:
        address = shown_address(bound)
        bound.close()
        raise _fault(address, error, setting) from None


def bound_socket(address: str, setting: str, given: GivenSockets | None = None) -> socket.socket:
    """As `listening_socket`, but a new one does not listen yet: clients are refused, and go elsewhere."""
    family, where = _resolved(address, setting)
    if given is not None and (found := given.at(Place("tcp", *where[:2]))):
        return found
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(where)
    except OSError as error:
        bound.close()
        raise _fault(address, error, setting) from None
    bound.setblocking(False)
    return bound


def wanted_places(settings: Settings) -> set[Place]:
    """Where a process with these settings listens; not where any port will do. Raises CannotListen."""
    asked: list[tuple[str, str, tuple[Kind, ...]]] = [(settings.api, "api", ("tcp",))]
    if "proxy" in settings.roles:
        asked.append((settings.listen, "listen", ("tcp",)))
    if "dns" in settings.roles:
        asked += [(each, "dns_listen", ("tcp", "udp")) for each in settings.dns_listen]
    places = {
        Place(kind, *_resolved(address, setting)[1][:2]) for address, setting, kinds in asked for kind in kinds
    }
    return {each for each in places if each.port}


def _resolved(address: str, setting: str) -> tuple[socket.AddressFamily, Any]:
    """Raises CannotListen."""
    try:
        host, port = host_port(address)
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, ValueError) as error:  # no address, or none that resolves
        why = error.strerror if isinstance(error, OSError) else error
        raise CannotListen(f"{address}: {why} (setting {setting})") from None
    return found[0][0], found[0][4]


def name_server_sockets(addresses: Sequence[str], given: GivenSockets | None = None) -> list[socket.socket]:
    """For each address a socket for UDP and one for TCP, bound to the same port. Raises CannotListen."""
    bound: list[socket.socket] = []
    try:
        for address in addresses:
            bound += _both(address, given)
    except CannotListen:
        for each in bound:
            each.close()
        raise
    return bound


def _both(address: str, given: GivenSockets | None = None) -> list[socket.socket]:
    """Where any port will do, one that is free for both: the kernel chooses for TCP, and UDP's may be taken."""
    for attempt in range(_TRIES):
        stream = bound_socket(address, "dns_listen", given)
        datagrams = given and given.at(Place("udp", *stream.getsockname()[:2]))
        try:
            return [datagrams or _bound_to(stream, socket.SOCK_DGRAM), stream]
        except AddressInUse:
            stream.close()
            if host_port(address)[1] or attempt == _TRIES - 1:
                raise
    raise AssertionError("unreachable")


def _bound_to(other: socket.socket, kind: socket.SocketKind) -> socket.socket:
    """A socket of another kind on the address and port of `other`."""
    bound = socket.socket(other.family, kind)
    try:
        bound.bind(other.getsockname())
    except OSError as error:
        bound.close()
        raise _fault(shown_address(other), error, "dns_listen") from None
    bound.setblocking(False)
    return bound


def listening_unix_socket(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound.bind(str(path))
    bound.listen(BACKLOG)
    bound.setblocking(False)
    return bound


def hold_newcomers(bound: socket.socket) -> bool:
    """Take no new handshakes on a listening socket; those under way go on. False where the system cannot do that.
    Closing a listener resets the connections in its queue. A client whose SYN was dropped sends it again a second
    later, and is refused, or meets the next listener."""
    if sys.platform != "linux":
        return False
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in _NO_SYN))
    try:
        program = struct.pack("HP", len(_NO_SYN), ctypes.addressof(code))
        bound.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
    except OSError:
        return False
    return True


def queued(bound: socket.socket) -> int:
    """How many connections wait in a listening socket's queue; as many as can where the system does not tell.
    Asking is cheaper than accepting from an empty queue, for which the kernel makes a socket first."""
    if sys.platform != "linux" or bound.family not in (socket.AF_INET, socket.AF_INET6):
        return BACKLOG
    info = bound.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _QUEUED.stop)
    return int.from_bytes(info[_QUEUED], sys.byteorder)


def waiting(bound: socket.socket) -> Iterator[tuple[socket.socket, Any]]:
    """The connections in a listening socket's queue, accepted, and their peers. Ends where no descriptor is
    left."""
    while True:
        try:
            accepted, peer = bound.accept()
        except ConnectionAbortedError:
            continue
        except OSError:
            return
        accepted.setblocking(False)
        yield accepted, peer


def has_left(accepted: socket.socket) -> bool:
    """Whether the other end has closed and sent nothing that was not read."""
    try:
        return not accepted.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def shown_address(bound: socket.socket) -> str:
    """`127.0.0.1:8080`, `[::1]:8080`: where a bound socket really listens."""
    return join_member("http", *_host_and_port(bound))


def _fault(address: str, error: OSError, setting: str) -> CannotListen:
    if error.errno == errno.EADDRINUSE:
        return AddressInUse(f"{address} is in use (setting {setting})")
    why = os.strerror(error.errno) if error.errno else error
    return CannotListen(f"{address} cannot be listened on: {why} (setting {setting})")


@dataclass(frozen=True)
class Sockets:
    """Traffic's sockets, bound, and the API's, listening. `others`: the supervisor's API. `dns`: for UDP and TCP in
    turn, bound. Host and port are read once, as a process that drains has closed its listeners and must not take
    itself for an upstream.

    `shared`: those that another process has too, which changes. Such a one is let go, and what waits in its queue
    is left there; it is neither emptied nor held."""

    data: Sequence[socket.socket]
    api: socket.socket
    others: Sequence[tuple[str, int]] = ()
    dns: Sequence[socket.socket] = ()
    shared: set[socket.socket] = field(default_factory=set)
    _own: Sequence[tuple[str, int]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        api = self.others if self.api.family == socket.AF_UNIX else [_host_and_port(self.api)]
        object.__setattr__(self, "_own", (*map(_host_and_port, self.data), *api))

    @classmethod
    def bind(cls, settings: Settings, given: GivenSockets | None = None) -> "Sockets":
        """The sockets of the settings `listen`, where there is traffic, `api` and `dns_listen`: those of the
        `given` ones that are called `data` and `api` or are bound there, and new ones. Raises CannotListen."""
        given = given or GivenSockets()
        data: list[socket.socket] = []
        dns: list[socket.socket] = []
        try:
            if "proxy" in settings.roles:
                data = given.called("data") or [bound_socket(settings.listen, "listen", given)]
            if "dns" in settings.roles:
                dns = name_server_sockets(settings.dns_listen, given)
            api = given.called("api", 1) or [listening_socket(settings.api, "api", given)]
            return cls(data, api[0], dns=dns, shared={*data, *api, *dns}.intersection(given.taken))
        except CannotListen:
            for each in (*data, *dns):
                each.close()
            raise

    def __enter__(self) -> "Sockets":
        return self

    def __exit__(self, *_: object) -> None:
        for each in (*self.data, self.api, *self.dns):
            each.close()

    def offered(self) -> list[socket.socket]:
        """What another process could serve with: all but a worker's own API."""
        return [each for each in (*self.data, self.api, *self.dns) if each.family != socket.AF_UNIX]

    def all_shared(self) -> bool:
        """Whether nothing comes in here that another process does not take as well."""
        return self.shared.issuperset(self.offered())

    def internet_addresses(self) -> Sequence[tuple[str, int]]:
        """Host and port of every listener that has them, also of those that are closed by now."""
        return self._own

    def api_addresses(self) -> list[tuple[str, int]]:
        """Host and port of the API; a worker's own is a unix socket, and its supervisor's counts."""
        return list(self._own[len(self.data) :])

    def data_addresses(self) -> Sequence[tuple[str, int]]:
        """Host and port of traffic's listeners."""
        return self._own[: len(self.data)]

    def dns_addresses(self) -> list[tuple[str, int]]:
        """Host and port of the DNS responder's listeners, read while they are open."""
        return [_host_and_port(each) for each in self.dns if each.type == socket.SOCK_STREAM]

    def data_shown(self) -> list[str]:
        return [join_member("http", host, port) for host, port in self.data_addresses()]

    def api_shown(self) -> str:
        """HOST:PORT of the API, that of the supervisor where this is a worker."""
        return ", ".join(join_member("http", host, port) for host, port in self.api_addresses())


def _host_and_port(bound: socket.socket) -> tuple[str, int]:
    host, port = bound.getsockname()[:2]
    return host, port
