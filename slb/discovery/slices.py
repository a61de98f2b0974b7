"""From EndpointSlices to the members of a route. Pure.

Of a pod's conditions (kubernetes.io/docs/concepts/services-networking/endpoint-slices): a ready one is a member,
one that terminates drains, others are none. Where all that are left terminate, those that still serve take
requests, as kube-proxy has it: better a pod that is about to end than none.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from slb.discovery.found import Member
from slb.errors import InvalidName
from slb.names import join_member, normal_member

Family = Literal["ipv4", "ipv6"]
SERVICE = "kubernetes.io/service-name"
"""The label that names a slice's service."""

_ZONE, _NODE = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
"""Of v1beta1, which has both in `topology`."""
_READY, _TERMINATING, _OUT = "ready", "terminating", "out"
_LONGEST = 253  # characters of an attribute


class Port(NamedTuple):
    """`scheme`: https where `appProtocol` says so."""

    name: str
    number: int
    scheme: str


class Endpoint(NamedTuple):
    """One pod. `pod`: its uid, or its name, empty where the endpoint is no pod; `name`: of the pod."""

    address: str
    ready: bool
    serving: bool
    terminating: bool
    zone: str
    node: str
    pod: str
    name: str


class Slice(NamedTuple):
    """`family`: IPv4, IPv6 or FQDN. `ports`: None means all ports."""

    service: str
    family: str
    ports: tuple[Port, ...] | None
    endpoints: tuple[Endpoint, ...]


class Wanted(NamedTuple):
    """Which port of a service: its name, its number, or "" for the only one; `scheme`: empty for what the slice
    says. `family`: the address of a pod that has several."""

    port: str = ""
    scheme: str = ""
    family: Family = "ipv4"


class Extras(NamedTuple):
    """What annotations say of a pod or a service."""

    slots: int | None = None
    weight: int | None = None
    scheme: str = ""


_NOTHING = Extras()


def slice_of(written: Mapping[str, Any]) -> Slice | None:
    """Of an object of the API, v1 or v1beta1; None for one without a service. Raises ValueError for one of another
    form."""
    try:
        service = (written["metadata"].get("labels") or {}).get(SERVICE)
        if not service:
            return None
        ports = written.get("ports")
        return Slice(
            service=str(service),
            family=str(written.get("addressType", "IPv4")),
            ports=None if ports is None else tuple(map(_port, filter(_is_tcp, ports))),
            endpoints=tuple(_endpoint(each) for each in written.get("endpoints") or () if each.get("addresses")),
        )
    except (AttributeError, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"no EndpointSlice: {error!r}") from None


def _is_tcp(port: Mapping[str, Any]) -> bool:
    return port.get("protocol") in (None, "TCP")


def _port(port: Mapping[str, Any]) -> Port:
    scheme = "https" if str(port.get("appProtocol") or "").lower() in ("https", "kubernetes.io/https") else "http"
    return Port(str(port.get("name") or ""), int(port.get("port") or 0), scheme)


def _endpoint(written: Mapping[str, Any]) -> Endpoint:
    conditions, pod = written.get("conditions") or {}, written.get("targetRef") or {}
    topology = written.get("topology") or {}
    address = written["addresses"][0]  # consumers use the first alone, says the API
    if not isinstance(address, str):
        raise ValueError(f"an address is {address!r}"[:_LONGEST])
    ready, terminating = conditions.get("ready"), conditions.get("terminating")
    is_ready = ready is None or bool(ready)  # unknown counts as ready, says the API
    serving = conditions.get("serving")
    return Endpoint(
        address=address,
        ready=is_ready,
        serving=is_ready if serving is None else bool(serving),
        terminating=bool(terminating),
        zone=_attribute(written.get("zone") or topology.get(_ZONE)),
        node=_attribute(written.get("nodeName") or topology.get(_NODE)),
        pod=str(pod.get("uid") or pod.get("name") or ""),
        name=str(pod.get("name") or ""),
    )


def _attribute(text: object) -> str:
    """As an upstream's attribute; what cannot be one is left out."""
    return text if isinstance(text, str) and text.isascii() and text.isprintable() and " " not in text else ""


def members_of(
    slices: Iterable[Slice], wanted: Wanted, pods: Mapping[str, Extras], service: Extras = _NOTHING
) -> dict[str, Member]:
    """The members of all slices of one service. `pods`: by a pod's name."""
    found: defaultdict[str, list[Endpoint]] = defaultdict(list)
    families: dict[str, set[str]] = {}
    for each in slices:
        for port in _ports(each, wanted.port):
            for endpoint in each.endpoints:
                if member := _member(endpoint, port, wanted.scheme or service.scheme):
                    found[member].append(endpoint)
                    families.setdefault(member, set()).add(each.family.lower())
    left = _one_address_each(found, families, wanted.family)
    states = {member: _state(endpoints) for member, endpoints in left.items()}
    is_ending = _READY not in states.values()
    return {
        member: _described(left[member], state, is_ending, pods, service)
        for member, state in states.items()
        if state != _OUT
    }


def _ports(each: Slice, wanted: str) -> list[Port]:
    """Slices of one service may give one name different numbers: pods of two versions."""
    if each.ports is None:
        return [Port("", int(wanted), "http")] if wanted.isdecimal() else []
    if not wanted:
        return list(each.ports) if len(each.ports) == 1 else []
    return [port for port in each.ports if wanted == port.name or wanted == str(port.number)]


def _member(endpoint: Endpoint, port: Port, scheme: str) -> str | None:
    try:
        return normal_member(join_member(scheme or port.scheme, endpoint.address, port.number))
    except InvalidName:
        return None


def _one_address_each(
    found: Mapping[str, list[Endpoint]], families: Mapping[str, set[str]], preferred: Family
) -> Mapping[str, list[Endpoint]]:
    """Without the other addresses of pods that have one of the preferred family: a pod has its slots once."""
    has_preferred = {
        endpoint.pod
        for member, endpoints in found.items()
        for endpoint in endpoints
        if preferred in families[member]
    } - {""}
    return {
        member: endpoints
        for member, endpoints in found.items()
        if preferred in families[member] or any(endpoint.pod not in has_preferred for endpoint in endpoints)
    }


def _state(endpoints: Iterable[Endpoint]) -> str:
    """Of one address, which is in two slices while it moves from one to the other. A pod does not come back from
    terminating: of its entries the one that says so is the newer. Another pod may have got its address."""
    of_pods: dict[str, set[str]] = {}
    for each in endpoints:
        state = _TERMINATING if each.terminating else _READY if each.ready else _OUT
        of_pods.setdefault(each.pod, set()).add(state)
    order = (_TERMINATING, _READY, _OUT)
    each_pod = [next(state for state in order if state in states) for states in of_pods.values()]
    return next(state for state in (_READY, _TERMINATING, _OUT) if state in each_pod)


def _described(
    endpoints: list[Endpoint], state: str, is_ending: bool, pods: Mapping[str, Extras], service: Extras
) -> Member:
    serves = any(each.serving for each in endpoints if each.terminating)
    shown = next((each for each in endpoints if each.ready and not each.terminating), endpoints[0])
    pod = pods.get(shown.name, _NOTHING)
    return Member(
        is_draining=state == _TERMINATING and not (is_ending and serves),
        weight=pod.weight if pod.weight is not None else service.weight,
        slots=pod.slots if pod.slots is not None else service.slots,
        zone=shown.zone[:_LONGEST],
        node=shown.node[:_LONGEST],
    )


def extras_of(annotations: Mapping[str, Any] | None) -> Extras:
    """`slb/slots`, `slb/weight` and `slb/scheme`; what is out of range is as if it were not there."""
    said = annotations or {}
    scheme = said.get("slb/scheme")
    return Extras(
        slots=_number(said.get("slb/slots"), 10_000),
        weight=_number(said.get("slb/weight"), 1000),
        scheme=scheme if scheme in ("http", "https") else "",
    )


def _number(text: object, most: int) -> int | None:
    if not isinstance(text, str) or not text.isascii() or not text.isdecimal() or len(text) > len(str(most)):
        return None
    return int(text) if 1 <= int(text) <= most else None
