"""The gRPC health service: whether this process lives, and whether Envoy should ask it."""

from grpc_health.v1.health_pb2 import HealthCheckResponse

from slb.extproc.words import SERVICE

LIVENESS, READINESS = "liveness", "readiness"
"""The names that Endpoint Pickers have for them; that of the service, and none, mean readiness too."""
OF_READINESS = ("", READINESS, SERVICE)

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
