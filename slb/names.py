"""The normal form of route paths, upstream members and durations: texts that mean the same have one, so that a key
in Redis, a route in memory and a request's path can be compared byte by byte."""

import ipaddress
import re
from functools import lru_cache
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

from slb.errors import InvalidName

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_NORMAL_PATH = re.compile(r"(?:/(?!\.\.?(?:/|\Z))[A-Za-z0-9\-._~]++)+")
_BAD_ESCAPE = re.compile(rb"%(2[Ff]|5[Cc]|00|(?![0-9A-Fa-f]{2}))")
_HEADER_AS_READ = bytes(byte if chr(byte).isalnum() and byte < 128 else ord("-") for byte in range(256))
_SPELLING = [chr(byte) if byte in _UNRESERVED or byte == 0x2F else f"%{byte:02X}" for byte in range(256)]
_SLASHES = re.compile("/++")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ENCODED_CONTROL = re.compile(r"%[01][0-9A-F]|%7F")
_DOTS_WITH_PARAMETERS = re.compile(r"/\.{1,2}%3B")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}+(?<!-)")
_PORT = re.compile(r"[0-9]{1,5}")
_LIKE_NUMBER = re.compile(r"[0-9]++|0x[0-9a-f]*+")
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_PLAIN_MEMBER = re.compile(rf"({_OCTET}(?:\.{_OCTET}){{3}}):([1-9][0-9]{{0,4}})")
_DIGITS = re.compile(r"([0-9]+)")
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SCHEME_PORTS = {"http": 80, "https": 443}


def normal_path(text: str, encoded_controls: bool = False) -> str:
    """`/a//b/./c%7E/` -> `/a/b/c~`; `/` is the root. Raises InvalidName where servers could disagree.

    Unreserved characters are decoded and every other byte is upper-case %XX (RFC 3986, 6.2.2). Encoded slashes,
    backslashes and control characters are refused, as are dot segments that climb above the root or carry
    parameters (`/..;/`). `encoded_controls` allows %01 to %1F, as in a request; no route has them.
    """
    if _NORMAL_PATH.fullmatch(text):
        return text
    if not text.startswith("/"):
        raise InvalidName(f"path {text!r} does not start with '/'")
    segments: list[str] = []
    recoded = _recoded(text, encoded_controls)
    if _DOTS_WITH_PARAMETERS.search(recoded):
        raise InvalidName(f"path {text!r} has a dot segment with parameters")
    for segment in _SLASHES.split(recoded):
        if segment == "..":
            if not segments:
                raise InvalidName(f"path {text!r} climbs above the root")
            segments.pop()
        elif segment not in ("", "."):
            segments.append(segment)
    return "/" + "/".join(segments)


def is_normal_path(text: str) -> bool:
    try:
        return normal_path(text) == text
    except InvalidName:
        return False


def _recoded(text: str, encoded_controls: bool) -> str:
    """Every byte of `text` in its one spelling; slashes stay. In linear time, as any client can send any path."""
    if _CONTROL.search(text):
        raise InvalidName(f"path {text!r} has a control character")
    try:
        written = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidName(f"path {text!r} has half of a surrogate pair") from None
    recoded = "".join([_SPELLING[byte] for byte in _decoded(written)])
    if not encoded_controls and _ENCODED_CONTROL.search(recoded):
        raise InvalidName(f"path {text!r} has an encoded control character")
    return recoded


def _decoded(path: bytes) -> bytes:
    """Adds no slash: encoded ones are refused."""
    if b"\\" in path:
        raise InvalidName("path has a backslash, which servers read in different ways")
    fault = _BAD_ESCAPE.search(path)
    if fault is not None and not fault[1]:
        raise InvalidName("path has a '%' that starts no escape")
    if fault is not None:
        byte = bytes([int(fault[1], 16)])
        raise InvalidName(f"path has an encoded {byte!r}, which servers read in different ways")
    return unquote_to_bytes(path)


def split_member(text: str) -> tuple[str, str, int]:
    """Scheme, host (IPv6 without brackets) and port of `host`, `host:port`, `[v6]:port`, or one of these behind
    http:// or https://; port 80 or 443 if none. Raises InvalidName."""
    plain = _PLAIN_MEMBER.fullmatch(text)
    if plain is not None and (port_number := _same_number(plain[2])) < 65536:
        return "http", plain[1], port_number
    scheme, separator, rest = text.strip().lower().rpartition("://")
    if scheme not in ("http", "https") and (scheme or separator):
        raise InvalidName(f"target {text!r}: the scheme is http or https")
    if "/" in rest:
        advice = "it is sent the request's path, without the route's where strip_prefix is set"
        raise InvalidName(f"target {text!r}: a target has no path; {advice}")
    host, port = _host_and_port(rest, text)
    number = _SCHEME_PORTS[scheme or "http"] if port is None else _port(port, text)
    return scheme or "http", _normal_host(host, text), number


@lru_cache(maxsize=1024)
def _same_number(digits: str) -> int:
    """Equal ports share one object, as many upstreams have the same."""
    return int(digits)


def join_member(scheme: str, host: str, port: int) -> str:
    """The member in its normal form: `host:port` for http, `https://host:port` for https."""
    bracketed = f"[{host}]" if ":" in host else host
    return f"{bracketed}:{port}" if scheme == "http" else f"{scheme}://{bracketed}:{port}"


def normal_member(text: str) -> str:
    """`Example.com` -> `example.com:80`; `https://h` -> `https://h:443`. Raises InvalidName."""
    return join_member(*split_member(text))


def url_parts(url: str) -> SplitResult:
    """Of the URL of an slb's API: scheme http or https, a host, and a port where it has one. Raises InvalidName."""
    try:
        parts = urlsplit(url)
        if parts.scheme in _SCHEME_PORTS and parts.hostname and parts.port != 0:  # a port over 65535 raises
            return parts
    except ValueError:
        pass
    raise InvalidName(f"{url!r} is not a URL such as http://127.0.0.1:8081")


def _host_and_port(rest: str, text: str) -> tuple[str, str | None]:
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        # A zone (`fe80::1%eth0`) means something on one machine only, and Python takes any text for one.
        if not bracket or ":" not in host or "%" in host or (tail and not tail.startswith(":")):
            raise InvalidName(f"target {text!r}: an IPv6 address is written [address]:port")
        return host, tail[1:] if tail else None
    host, colon, port = rest.partition(":")
    if ":" in port:
        raise InvalidName(f"target {text!r}: an IPv6 address is written {_bracketed(rest)}")
    return host, port if colon else None


def _bracketed(text: str) -> str:
    host, _, port = text.rpartition(":")
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return "[address]:port"
    return f"[{host}]:{port}"


def _port(port: str, text: str) -> int:
    if not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
        raise InvalidName(f"target {text!r}: the port is a number from 1 to 65535")
    return int(port)


def _normal_host(host: str, text: str) -> str:
    """An address in its shortest form, or a lower-case DNS name. Names that look like addresses are refused:
    resolvers read `127.1` and `0x7f.1` as 127.0.0.1."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        labels = host.removesuffix(".").split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidName(f"target {text!r}: {host!r} is neither an address nor a host name")
    if _LIKE_NUMBER.fullmatch(labels[-1]):
        raise InvalidName(f"target {text!r}: {host!r} is not an IPv4 address")
    return ".".join(labels)


def natural(text: str) -> tuple[str | tuple[int, str], ...]:
    """A key to sort names by as people count: node-2 before node-10, 10.0.0.9 before 10.0.0.10."""
    parts = _DIGITS.split(text)  # every other one is digits, however many: compared as text, never made a number
    numbers = [(len(digits.lstrip("0")), digits.lstrip("0")) for digits in parts[1::2]]
    return tuple(each for pair in zip(parts[::2], [*numbers, (0, "")], strict=True) for each in pair)


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def seconds(text: str | float) -> float:
    """`250ms`, `1.5s`, `2m`, `1h` -> seconds; a bare number is refused unless it is 0. Raises InvalidName."""
    if text in (0, "0"):
        return 0.0
    match = _DURATION.fullmatch(str(text).strip())
    if match is None:
        raise InvalidName(f"duration {text!r} is not written like 250ms, 1.5s or 2m")
    return float(match[1]) * _SECONDS[match[2]]


def duration(value: float) -> str:
    """Seconds as a person writes them: 0.25 -> `250ms`, 90 -> `90s`, 120 -> `2m`. `seconds` reads it back."""
    if value == 0:
        return "0"
    if value < 1:
        return f"{_decimal(value * 1000)}ms"
    return f"{_decimal(value / 60)}m" if value % 60 == 0 else f"{_decimal(value)}s"


def _decimal(value: float) -> str:
    return f"{value:.9f}".rstrip("0").rstrip(".")


def header_as_read(name: bytes) -> bytes:
    """A header's name in lower case, as upstreams behind CGI or WSGI read it: with one character for hyphen and
    underscore, and at some (lighttpd) for all that is no letter or digit."""
    return name.translate(_HEADER_AS_READ)
