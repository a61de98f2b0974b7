"""Which addresses may be an upstream's, and where callbacks of jobs may go. Held at registration for literal
addresses of upstreams, and at connect for every address a name resolves to: what a name meant a minute ago says
nothing of what it means now (DNS rebinding)."""

import ipaddress
import socket
from collections.abc import Callable, Iterable, Sequence

from slb.model import Upstream

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")
"""Linux connects all of it to loopback or to nowhere (RFC 1122, 3.2.1.3)."""
_BROADCAST = ipaddress.ip_address("255.255.255.255")
_RESERVED = ipaddress.IPv4Network("240.0.0.0/4")
"""RFC 1112, 4. Some clouds number pods out of it: who lists such a network in `upstream_networks` means it."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_METADATA = frozenset(
    ipaddress.ip_address(each)
    for each in ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")
)
"""Where clouds hand out credentials (Alibaba, Azure, Oracle, AWS, Google), besides those that are link-local."""
_TUNNELS = tuple(
    ipaddress.IPv6Network(each) for each in ("::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "2001::/32")
)
"""IPv4-compatible (RFC 4291, 2.5.5.1), IPv4-translated (RFC 2765), NAT64 of local use (RFC 8215: where in it the
IPv4 address stands is the network's own affair), Teredo (RFC 4380). A gateway on the way makes an IPv4 address of
these that nobody here can judge, and nobody runs an upstream behind one."""
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
"""The same of the first half of an interface identifier (RFC 5214, 6.1)."""
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
"""What is public of IPv6 (RFC 4291, 2.4, and IANA's registry); is_global counts what nobody was given as well."""


class AddressRules:
    """`own` gives the listeners of this process, host and port as bound (0.0.0.0 and :: are wildcards).

    `networks` (setting `upstream_networks`), where there are any, are the only ones allowed.
    """

    def __init__(
        self,
        networks: Sequence[Network],
        own: Callable[[], Iterable[tuple[str, int]]],
        is_local: Callable[[Address], bool] | None = None,
    ) -> None:
        self.networks = tuple(networks)
        self._own = own
        self._is_local = is_local or is_local_address

    def refusal(self, ip: str, port: int) -> str | None:
        """Why no request may go to `ip`:`port`, one sentence; None where it may."""
        try:
            address = unwrapped(ip)
        except ValueError:
            return f"{ip} is not an address"
        kind = _never_an_upstream(address)
        if kind:
            return f"{ip} is {kind}, which is never an upstream"
        if address in _RESERVED and not self._names_reserved(address):
            return (
                f"{ip} is reserved (240.0.0.0/4): list its network in upstream_networks to have it as an upstream"
            )
        if self.is_own(address, port):
            return f"{ip} port {port} is slb's own listener"
        if self.networks and not any(address in network for network in self.networks):
            return f"{ip} is in none of upstream_networks"
        return None

    def is_own(self, address: Address, port: int) -> bool:
        """Whether a listener of this process would take what is sent there."""
        return any(self.is_listener(address, port, host, own_port) for host, own_port in self._own())

    def literal_refusal(self, upstream: Upstream) -> str | None:
        """The same of an upstream that is named by its address; None for a name, which is judged whenever it is
        resolved."""
        return self.refusal(upstream.host, upstream.port) if is_address(upstream.host) else None

    def _names_reserved(self, address: Address) -> bool:
        """Whether `address` is in a listed network of reserved addresses. Listing all addresses names none."""
        listed = (each for each in self.networks if isinstance(each, ipaddress.IPv4Network))
        return any(address in each and each.subnet_of(_RESERVED) for each in listed)

    def is_listener(self, address: Address, port: int, host: str, own_port: int) -> bool:
        """Whether a listener of this machine, bound to `host`:`own_port`, would take what is sent to `address`."""
        if port != own_port:
            return False
        bound = unwrapped(host)
        if not bound.is_unspecified:
            return bound == address
        return (bound.version == 6 or address.version == 4) and self._is_local(address)


class CallbackRules:
    """A callback's URL comes from whoever submits a job, so callbacks go to public addresses, and besides only to
    `networks` (setting `jobs_callback_networks`); never to what is never an upstream, nor to a listener of this
    process, whose API may trust what comes from its own machine."""

    def __init__(self, networks: Sequence[Network], upstreams: AddressRules) -> None:
        self.networks = tuple(networks)
        self._upstreams = upstreams

    def refusal(self, ip: str, port: int) -> str | None:
        """Why no callback may go to `ip`:`port`, one sentence; None where it may."""
        try:
            address = unwrapped(ip)
        except ValueError:
            return f"{ip} is not an address"
        if kind := _never_an_upstream(address):
            return f"{ip} is {kind}, where no callback goes"
        if not _is_public(address) and not any(address in network for network in self.networks):
            return f"{ip} is not public, and in none of jobs_callback_networks"
        return f"{ip} port {port} is slb's own listener" if self._upstreams.is_own(address, port) else None


def is_address(host: str) -> bool:
    """Whether `host` is an address rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def in_networks(ip: str, networks: Sequence[Network]) -> bool:
    """Whether `ip` is an address in one of `networks`. IPv4 in the IPv6 form that a socket for both has is IPv4."""
    if not networks or not is_address(ip):
        return False
    address: Address = ipaddress.ip_address(ip)
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    return any(address in network for network in networks)


def unwrapped(ip: str) -> Address:
    """The address packets go to: IPv4 out of its IPv6 wrappings (mapped, NAT64, 6to4), no zone. Raises ValueError.
    Wrappings whose way cannot be told are left as they are, and are no upstream's."""
    address = ipaddress.ip_address(ip.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return ipaddress.IPv4Address(address.packed[-4:])
        return address.ipv4_mapped or address.sixtofour or address
    return address


def is_local_address(address: Address) -> bool:
    """Whether this machine has `address`: only then can a socket be bound to it."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def _never_an_upstream(address: Address) -> str | None:
    if address.is_unspecified or (address.version == 4 and address in _THIS_NETWORK):
        return "unspecified"
    if address.is_link_local:
        return "link-local"
    if address.is_multicast or address == _BROADCAST:
        return "multicast or broadcast"
    if address in _METADATA:
        return "a cloud's metadata service"
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback and _is_tunnel(address):
        return "an IPv4 address inside IPv6 that a gateway unwraps"
    return None


def _is_public(address: Address) -> bool:
    return address.is_global and (address.version == 4 or address in _GLOBAL_UNICAST)


def _is_tunnel(address: ipaddress.IPv6Address) -> bool:
    return any(address in network for network in _TUNNELS) or int(address) >> 32 & 0xFFFFFFFF in _ISATAP
