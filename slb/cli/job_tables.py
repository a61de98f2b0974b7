"""What `slb jobs` shows of jobs."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from slb.cli.console import Rows, moment

Json = Mapping[str, Any]

_COLUMNS = ("job", "status", "priority", "attempts", "submitted", "upstream", "error")
_LONGEST = 80
_MOMENTS = ("submitted_at", "started_at", "completed_at")


def jobs_table(jobs: Iterable[Json], with_model: bool = False) -> Rows:
    """A row for each job; `with_model`: which begins with its model."""
    columns = ("model", *_COLUMNS) if with_model else _COLUMNS
    table = Rows(
        columns, right=("attempts",), spare=("priority", "upstream", "submitted", "attempts"), prose="error"
    )
    for each in jobs:
        cells = (each["priority"], str(each["attempts"]), moment(each["submitted_at"]))
        model = (each["model"],) if with_model else ()
        table.add_row(
            *model, each["job_id"], each["status"], *cells, each.get("upstream", ""), each.get("error", "")
        )
    return table


def pairs_of(job: Json) -> Iterator[tuple[str, str]]:
    """All that is known of a job, by name."""
    yield "job_id", job["job_id"]
    for name, value in job.items():
        if name in _MOMENTS:
            yield name, moment(value)
        elif name == "job_id":
            continue
        elif name == "eta":
            yield name, "not known" if value is None else f"{value:.0f} s"
        elif name in ("progress", "output", "result", "metadata"):
            yield name, orjson.dumps(value).decode()
        else:
            yield name, str(value)


def change_of(job: Json) -> str:
    """What there is to say of the state that a job has come to, on one line."""
    told = [job["status"]]
    if job["status"] == "processing":
        told.append(f"at {job.get('upstream', '')}, attempt {job['attempts']}")
        if "progress" in job:
            told.append(f"progress {orjson.dumps(job['progress']).decode()[:_LONGEST]}")
    if "position" in job:
        told.append(f"{job['position']} of its class before it")
    if job.get("eta") is not None:
        told.append(f"about {job['eta']:.0f} s to go")
    if job.get("error") and job["status"] not in ("processing", "completed"):
        told.append(str(job["error"]))
    return ", ".join(told)
