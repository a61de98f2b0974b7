"""Settings of one process: frozen, validated once. TOML file < SLB_* environment < flags."""

import os
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from slb import setting_types as types
from slb.model import RouteSettings, setting_fault
from slb.names import header_as_read, is_normal_path
from slb.setting_types import COMMAS, AccessLogSetting, Address, Certificates, Duration, HeaderName, Networks
from slb.setting_values import covers, host_port, meant
from slb.tokens import MOST_TOKENS, Token, TokenName, check_distinct

Role = Literal["proxy", "quota", "jobs", "discovery", "extproc", "dns"]

_TABLES = ("quota", "jobs", "discovery", "extproc", "dns", "trace")
"""Of the file; elsewhere their settings have the table's name before their own."""

OWN_HEADERS = frozenset(
    {
        *("connection", "content-length", "expect", "forwarded", "host", "http2-settings", "keep-alive"),
        *("proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "traceparent", "tracestate"),
        *("trailer", "transfer-encoding", "upgrade", "via", "x-real-ip", "x-request-id", "x-request-timeout"),
        "x-slb-timing",
    }
)
"""What the proxy acts on, sets or keeps from upstreams whatever is set; all of X-Forwarded-... too."""
BELIEVED_HEADERS = (
    *("X-Original-URL", "X-Rewrite-URL", "X-Client-IP", "True-Client-IP", "CF-Connecting-IP", "X-Forwarded"),
    *("Proxy", "Client-IP", "X-Cluster-Client-IP", "Fastly-Client-IP", "X-ProxyUser-IP"),
    *("X-Envoy-External-Address", "X-Original-Host", "X-Original-Forwarded-For"),
)
"""What proxies in front of slb may say of a request, and some upstreams believe, from wherever it comes."""


PRIVATE_NETWORKS = tuple(
    map(
        ip_network,
        ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "::1/128", "fc00::/7"),
    )
)
"""Of one's own machines, where no stranger sends packets from."""


def _others_headers(value: tuple[str, ...]) -> tuple[str, ...]:
    for name in value:
        read = header_as_read(name.lower().encode()).decode()
        if read in OWN_HEADERS or read.startswith("x-forwarded-"):
            raise ValueError(f"{name} is a header that slb itself acts on, sets or removes")
    return value


def _route_settings(value: dict[str, Any]) -> dict[str, Any]:
    for name, each in value.items():
        if fault := setting_fault(name, each):
            raise ValueError(fault + instead_on_a_route(name))
    return value


def _route_settings_by_path(value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    for path, settings in value.items():
        if path != "/" and not is_normal_path(path):
            raise ValueError(f"{path!r} is not a path in normal form, such as /models/llama")
        try:
            _route_settings(settings)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    return value


def _default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "slb"


class Settings(BaseModel):
    """All settings of a process. Sizes are bytes, durations seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    listen: Address = "127.0.0.1:8080"
    """Where traffic comes in. `:8080` is that port on all addresses of the machine."""
    api: Address = "127.0.0.1:8081"
    """Where the API listens."""
    takeover: bool = False
    """Whether this process takes the listening sockets of the one that runs with the same `data_dir` and has these
    addresses; that one drains then. Where none runs it starts as always
    (docs/operations.md#restarts-on-one-address)."""
    redis_url: SecretStr = SecretStr("embedded://")
    """The Redis that all instances share. The default is a Valkey of this machine's own (docs/instances.md)."""
    redis_budget: Annotated[Duration, Field(ge=0.01, le=60)] = 0.05
    """How long Redis may take to answer before `when_unsure` decides about requests that cannot wait for it
    (docs/global-view.md#when-redis-is-slow-or-gone)."""
    ledger_patience: types.Patience = 1.5
    """How long Redis may not answer before this instance decides alone. Until then a request that may queue
    under a cap waits for Redis (docs/global-view.md#when-redis-is-slow-or-gone)."""
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    """Processes that serve traffic."""
    roles: Annotated[tuple[Role, ...], COMMAS] = ("proxy",)
    """What this process does: `proxy`, `quota`, `jobs`, `discovery`, `extproc` and `dns`, with commas."""
    name: Annotated[str, Field(max_length=253, pattern=r"^[!-~]*$")] = ""
    """What this instance is called in `/instances`. Where none is given: host and port, or the address alone
    where it listens on a particular one."""
    zone: Annotated[str, Field(max_length=253, pattern=r"^[!-~]*$")] = ""
    """The zone this instance is in, for routes with `zone_affinity` (docs/ring.md#zones)."""
    data_dir: Path = Field(default_factory=_default_data_dir)
    """Where the table on disk and the embedded Valkey are kept. It has to belong to the user of the process
    alone (docs/operations.md#files)."""
    api_token: types.Token = None
    """A token that the API asks for, with all rights. An empty one is an error, not none
    (docs/operations.md#security)."""
    tokens: Annotated[dict[TokenName, Token], Field(max_length=MOST_TOKENS)] = {}
    """Tokens of the API by name, each with its rights (docs/operations.md#tokens-and-rights)."""
    tokens_path: Path | None = None
    """A TOML file with more `[tokens.NAME]`, or a directory of such files, each named `*.toml`."""
    data_register: bool = True
    """Whether the data listener serves `/register`, for callers with a token; without any token set it answers 403.
    With `false` the path goes to the upstreams."""
    upstream_networks: Networks = ()
    """The only networks upstreams may be in; none means all
    (docs/operations.md#addresses-that-are-never-upstreams)."""
    trusted_proxies: Networks = ()
    """Networks whose `X-Forwarded-*` and `Forwarded` headers are kept rather than replaced
    (docs/http.md#headers)."""
    untrusted_headers: Annotated[tuple[HeaderName, ...], COMMAS, AfterValidator(_others_headers)] = BELIEVED_HEADERS
    """Request headers that are passed on only from `trusted_proxies`, because upstreams believe them
    (docs/http.md#headers)."""
    proxy_protocol: bool = False
    """Whether connections begin with a PROXY header, which has to come from `trusted_proxies`
    (docs/tls.md#behind-another-load-balancer-the-proxy-protocol)."""
    tls_certificates: Certificates = ()
    """`CERTIFICATE:KEY`, PEM files, or one file that holds both. With any of them traffic comes in over TLS
    (docs/tls.md)."""
    api_tls_certificates: Certificates = ()
    """The same for the API listener (docs/operations.md#tls-for-the-api)."""
    access_log: AccessLogSetting = "all"
    """`all`, `errors` (5xx, and every answer that slb gave itself), `off`, or a share such as `0.01`."""
    access_log_probes: bool = False
    """Whether `/healthz`, `/readyz`, `/metrics`, the probes of the data listener and registrations that change
    nothing are logged too. Refused ones always are."""
    client_detail: Literal["plain", "full"] = "plain"
    """What clients see besides the reason of an answer that slb gives itself. `plain`: one sentence that
    names no upstream, route or pool, and times alone in `Server-Timing`. `full`: what the access log has, and
    how many attempts it took."""
    access_log_refused: Annotated[int, Field(ge=0)] = 32 * 1024
    """Bytes a second of the access log for requests that were refused before they reached an upstream, and for
    what the API could not read; ten seconds' worth may come at once. What is left out is counted in the event
    `access_log_suppressed`. For each process; 0 means no limit."""
    trace_endpoint: types.HttpUrl = ""
    """Where traces are sent: OTLP over HTTP, such as `http://collector:4318/v1/traces`. None means no traces
    (docs/tracing.md)."""
    trace_headers: types.TraceHeaders = None
    """What is sent there as headers: `NAME=VALUE`, with commas; a comma in a value is written `%2C`."""
    trace_share: Annotated[float, Field(ge=0, le=1)] = 0.01
    """The share that is traced of requests that come without a `traceparent`. Of the others its flag decides."""
    trace_errors: bool = False
    """Whether requests that failed are traced too, where neither their `traceparent` nor the share says so
    (docs/tracing.md#errors-only)."""
    trace_rate: Annotated[int, Field(ge=0)] = 1000
    """Requests traced in a second by one process, at most: anybody may send a `traceparent`. 0 means no limit."""
    trace_service: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[!-~]*$")] = "slb"
    """`service.name` of the traces."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """`debug`, `info`, `warning`, `error`."""
    log_format: Literal["auto", "json", "console"] = "auto"
    """`json`, `console`, or `auto`: readable on a terminal, JSON otherwise."""
    drain_delay: Duration | None = None
    """How long the instance goes on taking connections after it was asked to stop, with `/readyz` at 503: for
    load balancers that poll that. Unless it is set: a second more than `dns_ttl` where a DNS responder of slb is
    known, else 0 (docs/dns.md#when-an-instance-stops)."""
    drain_timeout: Duration = 30.0
    """How long requests in flight may take after that."""
    head_timeout: types.PositiveDuration = 10.0
    """How long a client may take for a request's head, and a stream of Envoy's for its first message."""
    keepalive_timeout: types.PositiveDuration = 75.0
    """How long a client's connection may be idle."""
    max_request_line: Annotated[int, Field(ge=64)] = 16 * 1024
    """Bytes of a request line."""
    max_head: Annotated[int, Field(ge=256)] = 64 * 1024
    """Bytes of a request's head."""
    max_headers: Annotated[int, Field(ge=1)] = 100
    """Header fields of a request."""
    max_connections: Annotated[int, Field(ge=0)] = 20_000
    """Open client connections of one process, those to `/register` and `/_slb/...` included; of an external
    processor, its open streams. 0 means no limit."""
    max_connections_per_peer: Annotated[int, Field(ge=0)] = 0
    """Of them, from one address; 0 means no limit."""
    max_requests_per_connection: Annotated[int, Field(ge=0)] = 0
    """Requests until a client's connection is closed; 0 means no limit."""
    api_max_connections: Annotated[int, Field(ge=0)] = 4096
    """Open connections to the API listener, and never more than a quarter of the descriptors, or half where
    `proxy` is none of the roles; 0 means just that (docs/operations.md#descriptors)."""
    api_max_connections_per_peer: Annotated[int, Field(ge=0)] = 2048
    """Of them, from one address, and never more than half; 0 means no limit."""
    max_upstream_connections: Annotated[int, Field(ge=0)] = 4096
    """Connections to one upstream, idle ones included. Beyond them requests go to others of the route that have
    room, else 503 `overloaded`; 0 means no limit."""
    max_body: Annotated[int, Field(ge=0)] = 0
    """Bytes of a request's body; 0 means no limit."""
    upstream_keepalive: Annotated[int, Field(ge=0)] = 256
    """Idle connections kept to each upstream."""
    upstream_keepalive_timeout: types.PositiveDuration = 50.0
    """How long they are kept."""
    upstream_ca: Path | None = None
    """A PEM file of the authorities that `https://` upstreams are verified by; none means the machine's
    (docs/tls.md#speaking-tls-to-upstreams)."""
    upstream_certificate: Path | None = None
    """The certificate slb shows to upstreams."""
    upstream_key: Path | None = None
    """Its key, where the certificate's file does not hold it."""
    quota_fail: Literal["closed", "open"] = "closed"
    """What the quota router does while Redis is away: `closed` lets all callers wait, `open` admits from this
    instance's share of each limit (docs/quota.md)."""
    quota_lease: Annotated[Duration, Field(ge=3, le=86_400)] = 150.0
    """How long an admitted task is held without a heartbeat; 3 s at least, since instances look after leases
    every second."""
    quota_longest_wait: Annotated[Duration, Field(ge=1, le=3600)] = 900.0
    """The longest wait in one answer. A caller that has to wait longer gets the rest when it asks again."""
    jobs_callback_secrets: types.SigningSecrets = None
    """Secrets that callbacks of jobs are signed with, `whsec_...`, with commas: while one is replaced, both.
    `slb jobs secret` prints a new one. None means that callbacks are not signed (docs/jobs.md#signatures)."""
    jobs_callback_networks: Networks = ()
    """Networks that callbacks of jobs may go to besides public addresses
    (docs/jobs.md#where-callbacks-may-go)."""
    jobs_durability: Literal["disk", "replica"] = "disk"
    """When a job is acknowledged: once Redis has taken it, which writes it to its `disk`; or once a `replica` has
    it too (docs/jobs.md#replicas)."""
    jobs_visibility: Literal["all", "own"] = "all"
    """Which jobs a token with the right `jobs`, and not `admin`, may see, follow and cancel: `all`, or its `own`,
    those that were submitted with it (docs/jobs.md#whose-jobs-a-token-sees)."""
    jobs_tasks_queues: Annotated[str, Field(pattern=types.TASK_QUEUES)] = ""
    """`projects/PROJECT/locations/LOCATION/queues/PREFIX`: where the queues of models with
    `buffer = "cloud-tasks"` are, and what their names begin with (docs/jobs.md#cloud-tasks)."""
    jobs_tasks_url: types.HttpUrl = ""
    """The URL of the API of slb as Cloud Tasks reaches it; tasks are sent to `/tasks/handle` there."""
    jobs_tasks_account: Annotated[str, Field(max_length=320, pattern=r"^([!-~]+@[!-~]+)?$")] = ""
    """The e-mail of the service account whose OIDC token each task has, and that is asked for."""
    jobs_tasks_secret: types.Token = None
    """Instead of an account: what each task has in its header `X-Slb-Secret`, and that is asked for."""
    jobs_tasks_api: types.HttpUrl = "https://cloudtasks.googleapis.com"
    """The API of Cloud Tasks; one with `http://`, such as an emulator, is sent no credentials."""
    jobs_tasks_keys: types.HttpUrl = "https://www.googleapis.com/oauth2/v3/certs"
    """The keys that OIDC tokens are signed with, as a JSON Web Key Set."""
    advertise: types.Advertised = ()
    """Where clients reach this instance: addresses for the answers of `slb dns`, with a port or without. Unless it
    is set: where it listens, or this machine's address on the way to Redis
    (docs/dns.md#which-address-an-instance-has)."""
    advertise_weight: Annotated[int, Field(ge=1, le=65_535)] = 1
    """Its weight in SRV records; of each worker."""
    dns_listen: types.Addresses = ("127.0.0.1:5353",)
    """Where the DNS responder listens, over UDP and TCP (docs/dns.md)."""
    dns_zones: types.ZoneNames = ("slb.internal",)
    """The names that stand for all instances."""
    dns_ttl: Annotated[Duration, Field(ge=1, le=3600)] = 5.0
    """How long resolvers and clients may keep an answer, in whole seconds."""
    dns_networks: Networks = PRIVATE_NETWORKS
    """Clients whose answers over UDP may be more than four times as long as their question
    (docs/dns.md#no-amplifier)."""
    dns_views: types.Views = ()
    """`NETWORK=ZONE`: clients of this network get the instances of this `zone` first (docs/dns.md#zones)."""
    dns_connections: Annotated[int, Field(ge=1)] = 256
    """Open TCP connections to the DNS responder; a fourth of them from one address."""
    extproc_listen: Address = "127.0.0.1:9002"
    """Where Envoys ask, with the role `extproc` (docs/envoy.md)."""
    discovery_dns_servers: types.DnsServers = ()
    """`ADDRESS` or `ADDRESS:PORT` of the DNS servers that are asked for names registered as upstreams; none means
    those of `/etc/resolv.conf` (docs/discovery.md#dns)."""
    discovery_kubernetes_routes: Annotated[dict[str, str], types.COMMA_PAIRS] = {}
    """Services of Kubernetes by route: `PATH = "service/NAME:PORT"`, where PORT is a port's name or number, or left
    out where the service has one. `https+service/NAME:PORT` for pods that speak TLS. Elsewhere than in TOML
    `PATH=service/NAME:PORT`, with commas. Followed by instances with the role `discovery`
    (docs/discovery.md#kubernetes)."""
    discovery_kubernetes_namespace: Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9-]*$")] = ""
    """Their namespace; none means that of the pod, or `default`."""
    discovery_kubernetes_selector: Annotated[str, Field(max_length=1024)] = ""
    """A label selector that their EndpointSlices fit besides; a slice has the labels of its service."""
    discovery_kubernetes_family: Literal["ipv4", "ipv6"] = "ipv4"
    """Which address of pods that have both; one that has only the other is followed with that."""
    discovery_kubernetes_annotations: bool = False
    """Whether pods and services are watched too, for their annotations `slb/slots`, `slb/weight` and `slb/scheme`
    (docs/discovery.md#annotations)."""
    discovery_kubernetes_api_server: types.HttpUrl = ""
    """The API server; none means that of the cluster in which this process is a pod."""
    discovery_kubernetes_token_file: Path | None = None
    """The token that is shown there; it is read again as it changes. None means the pod's own, if this is one."""
    discovery_kubernetes_ca: Path | None = None
    """A PEM file of the authorities that the API server is verified by; none means the pod's, or the machine's."""
    discovery_empty_grace: Annotated[Duration, Field(le=86_400)] = 30.0
    """How long an empty answer has to stand where there were upstreams, before it is believed
    (docs/discovery.md#what-is-written-and-when)."""
    discovery_file_path: Path | None = None
    """A TOML or JSON file of upstreams by route, followed by instances with the role `discovery`
    (docs/discovery.md#file)."""
    defaults: Annotated[dict[str, Any], AfterValidator(_route_settings)] = {}
    """Route settings for all routes."""
    routes: Annotated[dict[str, dict[str, Any]], AfterValidator(_route_settings_by_path)] = {}
    """Route settings by path."""

    @model_validator(mode="before")
    @classmethod
    def _flatten(cls, given: Any) -> Any:
        """`[quota]` with `fail = "open"`, or `quota.fail`, is `quota_fail`; `[jobs]` is read alike. What stands
        under the long name holds: it may come from the environment or a flag, which win over the file."""
        if not isinstance(given, dict):
            return given
        tables = {name: given[name] for name in _TABLES if isinstance(given.get(name), dict)}
        flat = {name: value for table, fields in tables.items() for name, value in _flat(table, fields)}
        return {**flat, **{name: value for name, value in given.items() if name not in tables}}

    @model_validator(mode="after")
    def _fit_together(self) -> "Settings":
        if self.workers > 1 and "proxy" not in self.roles:
            raise ValueError(f"workers = {self.workers}: only the proxy has workers, and roles leaves it out")
        if self.workers > 1 and "dns" in self.roles:
            raise ValueError(f"workers = {self.workers}: answer DNS in a process of its own, with slb dns")
        if self.workers > 1 and "extproc" in self.roles:
            raise ValueError(f"workers = {self.workers}: extproc has none; start several processes instead")
        check_distinct(self.tokens, self.api_token.get_secret_value() if self.api_token else "")
        if self.takeover and "extproc" in self.roles:
            raise ValueError("takeover: the listener of extproc cannot be taken over: start another one beside it")
        if self.jobs_tasks_queues and not self.jobs_tasks_url:
            raise ValueError("jobs_tasks_queues: set jobs_tasks_url, where Cloud Tasks sends tasks to")
        if self.jobs_tasks_queues and bool(self.jobs_tasks_account) == bool(self.jobs_tasks_secret):
            raise ValueError("jobs_tasks_queues: set jobs_tasks_account or jobs_tasks_secret, and not both")
        if self.discovery_file_path is not None and "discovery" not in self.roles:
            why = "only the role discovery follows it, and roles leaves that out"
            raise ValueError(f"discovery_file_path = {self.discovery_file_path}: {why}")
        if self.discovery_kubernetes_routes and "discovery" not in self.roles:
            raise ValueError(
                "discovery_kubernetes_routes: they are followed with the role discovery; add it to roles"
            )
        if self.proxy_protocol and not self.trusted_proxies:
            raise ValueError("proxy_protocol = true: set trusted_proxies, the networks whose headers are believed")
        if self.upstream_key is not None and self.upstream_certificate is None:
            raise ValueError(f"upstream_key = {self.upstream_key}: set upstream_certificate too")
        if unused := self.route_settings("", {}).unused:
            raise ValueError(f"[defaults] {unused[0]}")
        for path in self.routes:
            if unused := self.route_settings(path, {}).unused:
                raise ValueError(f'[routes."{path}"] {unused[0]}')
        listen, api = host_port(self.listen), host_port(self.api)
        if listen == api and api[1] != 0:
            raise ValueError(f"listen and api are both {self.api}: give each a port of its own")
        if listen[1] == api[1] != 0 and (covers(listen[0], api[0]) or covers(api[0], listen[0])):
            raise ValueError(
                f"listen = {self.listen} and api = {self.api} meet, for one of them is on all addresses: "
                "give each a port of its own"
            )
        return self

    @property
    def calls_upstreams(self) -> bool:
        """Whether requests or jobs go to upstreams by what this process decides, whoever sends them."""
        return not {"proxy", "jobs", "extproc"}.isdisjoint(self.roles)

    @property
    def discovers(self) -> bool:
        """Whether this process may write upstreams that are discovered: names in DNS are registered where there are
        plain proxies, or Envoys that ask, and are expected to work there."""
        return not {"proxy", "extproc", "discovery"}.isdisjoint(self.roles)

    def route_settings(self, path: str, stored: Mapping[str, Any]) -> RouteSettings:
        """What holds for `path`: `stored` (valid fields of its hash) over its TOML table over [defaults]."""
        return RouteSettings.model_validate({**self.defaults, **self.routes.get(path, {}), **stored})


def _flat(table: str, fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """`[discovery.file]` with `path` is `discovery_file_path`."""
    for name, value in fields.items():
        long = f"{table}_{name}"
        if isinstance(value, dict) and long not in Settings.model_fields:
            yield from _flat(long, value)
        else:
            yield long, value


def instead_on_a_route(name: str) -> str:
    """What may be meant by a name that was set on a route; nothing for the name of a route setting."""
    if name in RouteSettings.model_fields:
        return ""
    if name in Settings.model_fields:
        return "; it is a setting of the whole process: in the file it stands above the first [table]"
    return meant(name, RouteSettings.model_fields)
