"""The words of the protocols that slb speaks here: Envoy's, and the Endpoint Picker's of the Gateway API Inference
Extension (its proposal 004)."""

from typing import Final

SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
METHOD: Final = "Process"

LOG_SERVICE: Final = "envoy.service.accesslog.v3.AccessLogService"
LOG_METHOD: Final = "StreamAccessLogs"

NAMESPACE: Final = "envoy.lb"
"""The metadata that the pick stands in, and where it was served."""
DESTINATION: Final = "x-gateway-destination-endpoint"
"""`IP:PORT[,IP:PORT...]`: a header and a field of NAMESPACE; the first goes first."""
SERVED: Final = "x-gateway-destination-endpoint-served"
"""A field of NAMESPACE in the response phase: where Envoy's last attempt went."""

ROUTE: Final = "x-slb-route"
"""A field of NAMESPACE that is slb's own: the path of the route. Envoy's access log has it."""

SUBSET_NAMESPACE: Final = "envoy.lb.subset_hint"
SUBSET: Final = "x-gateway-destination-endpoint-subset"
"""In its namespace: the only addresses that may be picked."""

FILTER: Final = "envoy.filters.http.ext_proc"
"""Attributes come under this name."""
CODE_DETAILS: Final = "response.code_details"
ATTEMPTS: Final = "upstream.request_attempt_count"
