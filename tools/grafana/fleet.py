"""The dashboard that one leaves open: all instances at one glance."""

from tools.grafana.model import Board, Panel, Row
from tools.grafana.promql import errors, least, most, quantile, rate, total

_CERTIFICATES_END = least("slb_tls_certificate_not_after_seconds", "certificate")

_GLANCE = Row(
    "At a glance",
    (
        Panel(
            "Instances",
            "short",
            {"count(slb_build_info{%s})": ""},
            "Instances that Prometheus has scraped; with workers, supervisors.",
            kind="stat",
            least=1,
        ),
        Panel(
            "Requests/s", "reqps", {rate("slb_route_requests_total"): ""}, "All answers to traffic.", kind="stat"
        ),
        Panel(
            "Failed",
            "percentunit",
            {errors(""): ""},
            "The share of answers that are 5xx, or broke off.",
            kind="stat",
            most=0.01,
        ),
        Panel(
            "In flight",
            "short",
            {total("slb_upstream_inflight", where='scope="local"'): ""},
            "Requests at upstreams, from all instances.",
            kind="stat",
        ),
        Panel("Waiting", "short", {total("slb_queue_depth"): ""}, "Requests that wait for a slot.", kind="stat"),
        Panel(
            "Upstreams out",
            "short",
            {f"count({least('slb_upstream_up', 'upstream')} == 0) or vector(0)": ""},
            "Upstreams that are ejected, or down, as any instance sees it.",
            kind="stat",
            most=1,
        ),
    ),
)
_TRAFFIC = Row(
    "Traffic",
    (
        Panel(
            "Answers by class of status",
            "reqps",
            {rate("slb_route_requests_total", "code"): "{{code}}"},
            "4xx has those too whose client left before its answer.",
            stacked=True,
        ),
        Panel(
            "Answers that slb gave itself",
            "reqps",
            {rate("slb_requests_total", "reason", 'reason!=""'): "{{reason}}"},
            "By reason: docs/reference/errors.md tells what each means.",
        ),
        Panel(
            "Duration",
            "s",
            {quantile(share, "slb_request_duration_seconds"): f"p{100 * share:g}" for share in (0.5, 0.9, 0.99)},
            "From a request's head to its end; a stream takes as long as it is open.",
        ),
        Panel(
            "Time to first byte",
            "s",
            {quantile(share, "slb_time_to_first_byte_seconds"): f"p{100 * share:g}" for share in (0.5, 0.9, 0.99)},
            "From a request's head to its reply's, with the time in the queue.",
        ),
        Panel(
            "Requests by instance",
            "reqps",
            {rate("slb_route_requests_total", "instance"): "{{instance}}"},
            "Uneven: clients, or what spreads them, prefer some instances.",
            stacked=True,
        ),
        Panel(
            "Retries",
            "reqps",
            {
                rate("slb_retries_total", "reason"): "{{reason}}",
                rate("slb_retries_refused_total", "reason"): "not made: {{reason}}",
            },
            "Attempts after the first; those that the retry budget did not allow mean that much is down.",
        ),
        Panel(
            "Client connections",
            "short",
            {
                total("slb_client_connections", "instance"): "{{instance}}",
                total("slb_api_connections", "instance"): "API, {{instance}}",
            },
            "`max_connections` and `api_max_connections` bound them for each process.",
            stacked=True,
        ),
        Panel(
            "Clients that left",
            "reqps",
            {rate("slb_client_disconnects_total", "instance"): "{{instance}}"},
            "Before their answer had ended: often the first sign of slow upstreams.",
        ),
    ),
)
_REDIS = Row(
    "Redis and the mirror",
    (
        Panel(
            "Redis answers",
            "bool",
            {least("slb_redis_up", "instance"): "{{instance}}"},
            "0: the instance serves from memory (fail open).",
        ),
        Panel(
            "Staleness of the mirror",
            "s",
            {most("slb_mirror_staleness_seconds", "instance"): "{{instance}}"},
            "Small while all is well; at 60 s two full syncs were missed.",
        ),
        Panel(
            "Registrations that expired",
            "short",
            {rate("slb_registrations_expired_total"): "expired", rate("slb_redis_reconnects_total"): "reconnects"},
            "Upstreams that did not renew their leases, and connections to Redis made again, each a second.",
        ),
        Panel(
            "Sources of discovery that do not answer",
            "short",
            {most("slb_discovery_failing", "source, route"): "{{route}} {{source}}"},
            "1: the last set of members stays.",
        ),
        Panel(
            "Members from sources of discovery",
            "short",
            {most("slb_discovery_members", "source, route"): "{{route}} {{source}}"},
            "Upstreams that an instance writes to Redis for each source.",
        ),
        Panel(
            "What discovery writes",
            "short",
            {
                rate("slb_discovery_members_changed_total", "change"): "{{change}}",
                rate("slb_discovery_fenced_total"): "refused after a later lease",
            },
            "Upstreams a second; refused: two instances took themselves for the writer.",
        ),
    ),
)
_PROCESS = Row(
    "Processes",
    (
        Panel(
            "CPU",
            "percentunit",
            {rate("process_cpu_seconds_total", "instance"): "{{instance}}"},
            "Of one core; one process uses one core at most.",
        ),
        Panel(
            "Resident memory",
            "bytes",
            {total("process_resident_memory_bytes", "instance"): "{{instance}}"},
            "Grows for some ten minutes, and then no more.",
        ),
        Panel(
            "Descriptors in use",
            "percentunit",
            {"max by (instance) (process_open_fds{%s} / process_max_fds{%s})": "{{instance}}"},
            "At 1 nothing is accepted any more.",
        ),
        Panel(
            "API requests",
            "reqps",
            {rate("slb_api_requests_total", "code, reason"): "{{code}} {{reason}}"},
            "Answers of slb's own API.",
        ),
        Panel(
            "Days until certificates end",
            "d",
            {f"({_CERTIFICATES_END} - time()) / 86400": "{{certificate}}"},
            "Of the certificates that are served.",
        ),
        Panel(
            "What was refused or failed",
            "short",
            {
                rate("slb_config_reloads_total", where='result="refused"'): "settings refused",
                rate("slb_tls_reload_failures_total"): "certificates refused",
                rate("slb_accept_failures_total"): "accepted nothing",
                rate("slb_proxy_protocol_refused_total", "reason"): "PROXY protocol: {{reason}}",
                rate("slb_tls_handshake_failures_total"): "TLS handshakes",
            },
            "A second: the log tells why.",
        ),
    ),
)
_DNS = Row(
    "DNS responders and Envoys",
    (
        Panel(
            "Addresses in the answers",
            "short",
            {
                least("slb_dns_addresses", "instance"): "in, {{instance}}",
                most("slb_dns_addresses_out", "instance"): "out, {{instance}}",
            },
            "Instances that clients find by DNS, and those that are known and left out.",
        ),
        Panel(
            "Answers",
            "reqps",
            {
                rate("slb_dns_answers_total", "rcode"): "{{rcode}}",
                rate("slb_dns_dropped_total", "reason"): "{{reason}}",
            },
            "By what they say; and packets that got no answer, by why.",
        ),
        Panel(
            "Streams of Envoys",
            "short",
            {total("slb_extproc_streams", "instance"): "{{instance}}"},
            "Their requests in flight.",
        ),
        Panel(
            "Requests that went elsewhere",
            "reqps",
            {
                rate("slb_extproc_moved_total", "why"): "{{why}}",
                rate("slb_extproc_unanswered_total"): "unanswered",
                rate("slb_extproc_turned_away_total", "why"): "turned away: {{why}}",
            },
            "`unknown`: Envoy and slb have different lists of upstreams.",
        ),
    ),
)

_TRACES = Row(
    "Traces",
    (
        Panel(
            "Spans",
            "short",
            {rate("slb_trace_spans_total", "result"): "{{result}}"},
            "A second, by what became of them: those that were lost are missing from the traces.",
            stacked=True,
        ),
        Panel(
            "Requests without a trace",
            "reqps",
            {rate("slb_trace_limited_total", "instance"): "{{instance}}"},
            "Those that were to be traced, and exceeded `trace_rate`.",
        ),
    ),
)

FLEET = Board("fleet", "slb / fleet", (), (_GLANCE, _TRAFFIC, _REDIS, _PROCESS, _DNS, _TRACES))
