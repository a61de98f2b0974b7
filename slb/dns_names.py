"""Names in DNS whose addresses are members of a route: how they are written in the route's set, among its members.

| written | asked for | members |
|---|---|---|
| `dns://flux.internal:8000` | A and AAAA | each address, with the port |
| `dns4://...`, `dns6://...` | A, or AAAA alone | the same |
| `dns+srv://_http._tcp.flux.internal` | SRV | each address of each target, with the port of its record |
| `dns+srvs://_https._tcp.flux.internal` | SRV | each target by its name, https |

Upstreams with TLS stay names, since it is a name that their certificate is checked against. It is resolved at each
connect, as that of any member.
"""

from typing import NamedTuple

from slb.errors import InvalidName
from slb.names import join_member, normal_member, split_member

_PREFIX = "dns"
_SRV = ("dns+srv", "dns+srvs")
_ADDRESSES = {"dns": ("A", "AAAA"), "dns4": ("A",), "dns6": ("AAAA",)}
SCHEMES = (*_ADDRESSES, *_SRV)


class DnsName(NamedTuple):
    """`port`: of the members; 0 where each SRV record has its own."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}" + (f":{self.port}" if self.port else "")

    @property
    def is_srv(self) -> bool:
        return self.scheme in _SRV

    @property
    def is_tls(self) -> bool:
        return self.scheme == "dns+srvs"

    @property
    def families(self) -> tuple[str, ...]:
        """The types of the records that hold its addresses."""
        return _ADDRESSES.get(self.scheme, ("A", "AAAA"))


def is_dns_name(target: str) -> bool:
    """Whether a target in its normal form is a name to be resolved into members, and no member itself."""
    return "://" in target and target.startswith(_PREFIX)


def split_dns_name(text: str) -> DnsName:
    """The parts of a name written as above; of a `dns://` without one the port is 80. Raises InvalidName."""
    scheme, _, rest = text.strip().lower().partition("://")
    if scheme not in SCHEMES:
        raise InvalidName(f"target {text!r}: the schemes of names in DNS are {', '.join(SCHEMES)}")
    is_srv = scheme in _SRV
    if "/" in rest or "@" in rest or rest.startswith("["):
        raise InvalidName(
            f"target {text!r}: what follows {scheme}:// is a name" + ("" if is_srv else " and a port")
        )
    if is_srv and ":" in rest:
        raise InvalidName(f"target {text!r}: it has no port, for each SRV record has its own")
    try:
        _, host, port = split_member(rest)
    except InvalidName as error:
        raise InvalidName(str(error).replace(repr(rest), repr(text), 1)) from None
    if host.replace(".", "").isdecimal():
        raise InvalidName(
            f"target {text!r}: it is an address already, and needs no DNS: {join_member('http', host, port)}"
        )
    return DnsName(scheme, host, 0 if is_srv else port)


def is_normal_dns_name(text: str) -> bool:
    """Whether `text` is a name in DNS in its normal form."""
    try:
        return is_dns_name(text) and str(split_dns_name(text)) == text
    except InvalidName:
        return False


def normal_target(text: str) -> str:
    """What may stand in the set of a route, in its normal form: a member, or a name in DNS. Raises InvalidName."""
    if "://" in text and is_dns_name(text.strip().lower()):
        return str(split_dns_name(text))
    return normal_member(text)
