"""How single settings are written, and what may be meant by a misspelt name."""

import base64
import binascii
import ipaddress
import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import unquote

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_LIKENESS = 0.75  # of a misspelling, 0 to 1: SLB_WORKER is one, SLB_REDIS_PORT, which Kubernetes sets, is not

SIGNING_PREFIX = "whsec_"  # how a signing secret of Standard Webhooks begins; base64 of its key follows
_KEY_BYTES = range(24, 65)
_LONGEST_ZONE = 200  # characters: a name has 253, and the longest label in front has 36
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[ \t]*+[\x21-\x7e])*+")
_LABEL_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


def access_log_share(text: str) -> float:
    """The share of requests logged, 0 to 1. Raises ValueError."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError("access_log is all, errors, off, or a share from 0 to 1")
    return share


def certificate_files(text: str) -> tuple[Path, Path]:
    """`cert.pem:key.pem`, or `both.pem` -> the files of a certificate and its key. Raises ValueError."""
    certificate, colon, key = text.partition(":")
    if not certificate or (colon and not key) or ":" in key:
        raise ValueError(f"{text!r} is neither CERTIFICATE:KEY nor one file that holds both")
    return Path(certificate), Path(key or certificate)


def signing_keys(text: str) -> tuple[bytes, ...]:
    """`whsec_...,whsec_...` -> their keys, in this order. Raises ValueError, whose message has none of them."""
    return tuple(_signing_key(part.strip()) for part in text.split(",") if part.strip())


def _signing_key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(SIGNING_PREFIX), validate=True)
    except (binascii.Error, ValueError):  # what is not ASCII is no binascii.Error
        key = b""
    if not secret.startswith(SIGNING_PREFIX) or len(key) not in _KEY_BYTES:
        raise ValueError("a secret is whsec_ and base64 of 24 to 64 bytes: slb jobs secret prints one") from None
    return key


def trace_headers(text: str) -> dict[str, str]:
    """`Name=value,Name=value`, values percent-encoded (as in OTEL_EXPORTER_OTLP_HEADERS) -> the headers. Raises
    ValueError, whose message has none of the values."""
    headers: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, value = (each.strip() for each in part.partition("="))
        value = unquote(value)
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError("headers are NAME=VALUE, with commas between them; a comma in a value is %2C")
        headers[name] = value
    return headers


def host_port(text: str) -> tuple[str, int]:
    """`127.0.0.1:8080`, `[::1]:0`, `:8080` (all addresses) -> host and port. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") != host.endswith("]") or (":" in host and not host.startswith("[")):
        raise ValueError(f"{text!r}: an IPv6 address is written [address]:port")
    if not colon:
        raise ValueError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8080; :8080 is that port on all addresses")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT: a port is 1 to 65535, or 0 for one that is free")
    return host.strip("[]") or "0.0.0.0", int(port)


def advertised_place(text: str) -> tuple[str, int]:
    """`10.0.0.5`, `10.0.0.5:8080`, `fd00::5`, `[fd00::5]:8080` -> address, and port, 0 where none is given. Raises
    ValueError, also for what nobody can connect to."""
    try:
        host, port = str(ipaddress.ip_address(text.strip("[]"))), 0
    except ValueError:
        host, port = host_port(text)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(f"{text!r}: DNS answers with addresses, so this is one, with a port or without") from None
    if address.is_unspecified or address.is_multicast:
        raise ValueError(f"{text!r} is no address that a client can connect to")
    return host, port


def zone_name(text: str) -> str:
    """`SLB.internal.` -> `slb.internal`. Raises ValueError, also for one that leaves the names in it no room."""
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > _LONGEST_ZONE or not all(
        0 < len(each) < 64 and _LABEL_CHARACTERS.issuperset(each) for each in labels
    ):
        raise ValueError(
            f"{text!r} is no name of a zone, such as slb.internal, of at most {_LONGEST_ZONE} characters"
        )
    return name


def views(value: Any) -> Any:
    """`10.1.0.0/16=eu-west-1a` -> the network and the zone, of each in a list. Raises ValueError."""
    return tuple(_view(each) if isinstance(each, str) else each for each in value)


def _view(text: str) -> tuple[Network, str]:
    network, equals, zone = text.partition("=")
    if not equals or not zone:
        raise ValueError(f"{text!r} is not NETWORK=ZONE, such as 10.1.0.0/16=eu-west-1a")
    return ipaddress.ip_network(network.strip()), zone.strip()


def covers(host: str, other: str) -> bool:
    """Whether `host` stands for all addresses, and `other` is one of them, not a name. `::` takes IPv4 as well."""
    try:
        whole, part = ipaddress.ip_address(host), ipaddress.ip_address(other)
    except ValueError:
        return False
    return whole.is_unspecified and (whole.version == 6 or part.version == 4)


def network_of(text: str) -> Network | None:
    """The network that an address with a mask is in: None of what is one already, or is no address."""
    try:
        interface = ipaddress.ip_interface(text)
    except ValueError:
        return None
    return interface.network if interface.ip != interface.network.network_address else None


def closest(name: str, known: Iterable[str]) -> list[str]:
    """The one of `known` that a misspelt name is like; empty where none is."""
    return get_close_matches(name, list(known), 1, _LIKENESS)


def meant(name: str, known: Iterable[str]) -> str:
    """The end of a message on a name that is not known: which one may be meant; "" where none is like it."""
    return "".join(f"; is {each} meant?" for each in closest(name, known))
