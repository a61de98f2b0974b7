"""`slb serve --workers N`: a supervisor that serves no traffic, and N workers, each an instance of its own. The
supervisor owns the listening sockets, which outlive any worker, and the API."""

from slb.supervisor.supervise import supervise
from slb.supervisor.work import run_worker

__all__ = ["run_worker", "supervise"]
