"""The REST API of Cloud Tasks, version 2, as far as jobs need it: a queue for each model, and a task for each job.
Names and fields are those of https://cloud.google.com/tasks/docs/reference/rest/v2."""

import base64
import hashlib
import io
import re
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple

import aiohttp
import orjson

from slb.errors import TasksFailed
from slb.job import Buffered, ModelConfig

SECRET_HEADER = "X-Slb-Secret"
PUSH_PATH = "/tasks/handle"
_WITHIN = 10.0
"""Seconds for one call."""
_AT_ONCE = 64
_SHORTEST, _LONGEST = 15.0, 1800.0
"""Seconds that a `dispatchDeadline` may be."""
_BESIDES = 30.0
"""Seconds of a push in which the job is not at its GPU: it waits for a slot, and its outcome is written."""
_MOST_CONCURRENT = 5000
_RETRIES = {"maxAttempts": -1, "minBackoff": "1s", "maxBackoff": "60s"}
"""A task is given up never: its job would wait for it. Without that Cloud Tasks deletes it after 100 attempts."""
_MASK = "rateLimits.maxConcurrentDispatches,retryConfig"
_PLAIN = re.compile(r"[A-Za-z0-9-]{1,50}")
_OTHERS = re.compile(r"[^A-Za-z0-9]+")
_LONGEST_ERROR = 300


class Target(NamedTuple):
    """`queues`: where the queues are, and what their names begin with; `api`: the URL of the API; `push_url`: where
    tasks are sent to, with a token of `account` or with `secret` in a header."""

    queues: str
    api: str
    push_url: str
    account: str = ""
    secret: str = ""


class TaskTiming(NamedTuple):
    """Seconds. A push waits `slot_within` for its job to be begun. A job is left for `hold` to the instance that
    makes its task; then it is tried again, by any. A task that was made is looked for after `lost`: it may have
    been deleted, or its queue emptied. `look`: between two looks at what is due."""

    slot_within: float = 10.0
    hold: float = 15.0
    lost: float = 3600.0
    look: float = 1.0


def queue_of(queues: str, model: str) -> str:
    """The name of a model's queue, whose last part may have letters, digits and hyphens, and 100 characters."""
    if _PLAIN.fullmatch(model):
        return f"{queues}-{model}"
    readable = _OTHERS.sub("-", model)[:40]
    return f"{queues}-{readable}-{_digest(model, 4)}"


def task_of(queue: str, job: Buffered, number: int) -> str:
    """The name of the task that was made for a job after `number` - 1 others. Names that rise from job to job would
    make Cloud Tasks slow."""
    return f"{queue}/tasks/{_digest(f'{job.id} {job.number} {number}', 16)}"


def deadline_of(config: ModelConfig) -> float:
    """Seconds that a push may take: as long as a job may be at its GPU, within what Cloud Tasks takes."""
    longest = config.max_processing_time + (config.max_poll_time if config.model_type == "async" else 0.0)
    return min(max(longest + _BESIDES, _SHORTEST), _LONGEST)


class CloudTasks:
    """All that calls raises TasksFailed. `token` gives what the API is asked with, if anything. Must be closed."""

    def __init__(self, target: Target, token: Callable[[], Awaitable[str]] | None) -> None:
        self._target = target
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    async def put_queue(self, model: str, slots: int) -> None:
        """Let a model's queue have so many tasks under way at once; it is made where there is none."""
        name = queue_of(self._target.queues, model)
        limits = {"maxConcurrentDispatches": min(max(slots, 1), _MOST_CONCURRENT)}
        queue = {"rateLimits": limits, "retryConfig": _RETRIES}
        await self._call("PATCH", f"{name}?updateMask={_MASK}", queue)

    async def create(self, model: str, config: ModelConfig, job: Buffered, number: int) -> bool:
        """Make a job's task; False where it was made before."""
        queue = queue_of(self._target.queues, model)
        url, account, secret = self._target.push_url, self._target.account, self._target.secret
        request: dict[str, Any] = {
            "url": url,
            "httpMethod": "POST",
            "headers": {"Content-Type": "application/json", **({SECRET_HEADER: secret} if secret else {})},
            "body": base64.b64encode(orjson.dumps({"model": model, "job_id": job.id})).decode(),
        }
        if account:
            request["oidcToken"] = {"serviceAccountEmail": account, "audience": url}
        name, deadline = task_of(queue, job, number), f"{deadline_of(config):.0f}s"
        task = {"name": name, "dispatchDeadline": deadline, "httpRequest": request}
        return await self._call("POST", f"{queue}/tasks", {"task": task}, taken={409}) != 409

    async def has(self, model: str, job: Buffered, number: int) -> bool:
        """Whether a task is still to be sent, or is under way."""
        name = task_of(queue_of(self._target.queues, model), job, number)
        return await self._call("GET", name, taken={404}) != 404

    async def aclose(self) -> None:
        """Close what is open."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _call(self, method: str, path: str, body: Any = None, taken: Collection[int] = ()) -> int:
        """The status, which is 200 or one of `taken`."""
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {await self._token()}"
        data = io.BytesIO(orjson.dumps(body)) if body is not None else None
        try:
            async with self._made().request(
                method, f"{self._target.api}/v2/{path}", data=data, headers=headers, allow_redirects=False
            ) as reply:
                if reply.status == 200 or reply.status in taken:
                    return reply.status
                raise TasksFailed(reply.status, _error_of(await reply.read()))
        except TimeoutError:
            raise TasksFailed(0, f"no answer within {_WITHIN:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise TasksFailed(0, str(error) or type(error).__name__) from None

    def _made(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_AT_ONCE),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=_WITHIN),
            )
        return self._session


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def _error_of(body: bytes) -> str:
    """What Google's errors say; of another body its beginning."""
    try:
        message = orjson.loads(body)["error"]["message"]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        message = body[:_LONGEST_ERROR].decode(errors="replace")
    return str(message)[:_LONGEST_ERROR]
