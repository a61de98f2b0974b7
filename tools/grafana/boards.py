"""All dashboards."""

from tools.grafana.fleet import FLEET
from tools.grafana.routes import ROUTE, UPSTREAMS
from tools.grafana.waiting import JOBS, QUEUE, QUOTA

BOARDS = (FLEET, ROUTE, UPSTREAMS, QUEUE, JOBS, QUOTA)
