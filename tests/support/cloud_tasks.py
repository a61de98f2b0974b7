"""A stand-in for Cloud Tasks, written after its documentation (REST v2, "Create HTTP target tasks"): no endpoint of
Google's is asked by any test. (There is an emulator, `gcloud-tasks-emulator`; it speaks gRPC alone, takes a name
twice, and has neither backoff nor deadlines nor tokens.) What the stand-in holds to:

- `queues.patch` takes an update mask, and makes a queue that is not there; `tasks.create`, `tasks.get`.
  Fields and names that the API does not know are INVALID_ARGUMENT; a task's name that is taken, or was within the
  hour, is ALREADY_EXISTS.
- A task is sent until it is answered with 200 to 299: again after `minBackoff`, doubled each time up to
  `maxBackoff`, and `maxAttempts` times; then it is deleted. At most `maxConcurrentDispatches` are under way.
- After `dispatchDeadline` a request is cut off and counts as failed; whether its handler goes on is the handler's
  affair.
- Each request has `X-CloudTasks-...` headers, and, where the task asks for one, a token that Google's keys verify.

Seconds of backoffs pass a hundred times as fast here."""

import asyncio
import base64
import re
import time
from collections import Counter
from typing import Any

import aiohttp
import orjson
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256

_FAST = 0.01
_QUEUE = re.compile(r"projects/[A-Za-z0-9.:-]+/locations/[A-Za-z0-9-]+/queues/[A-Za-z0-9-]{1,100}")
_TASK = re.compile(r"[A-Za-z0-9_-]{1,500}")
_RATE = {"maxDispatchesPerSecond", "maxConcurrentDispatches"}
_RETRY = {"maxAttempts", "maxRetryDuration", "minBackoff", "maxBackoff", "maxDoublings"}
_REQUEST = {"url", "httpMethod", "headers", "body", "oidcToken", "oauthToken"}


class SigningKey:
    """One of Google's."""

    def __init__(self, id_: str = "key-1", private: RSAPrivateKey | None = None) -> None:
        self.id = id_
        self.private = private or generate_private_key(65537, 2048)

    @property
    def jwk(self) -> dict[str, str]:
        """As it stands in the set that Google publishes."""
        numbers = self.private.public_key().public_numbers()
        n, e = (_base64url(each.to_bytes(-(-each.bit_length() // 8))) for each in (numbers.n, numbers.e))
        return {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": self.id, "n": n, "e": e}

    def token(self, audience: str, email: str, **claims: Any) -> str:
        """An OIDC token; `alg` among the claims stands in its header instead."""
        now = int(time.time())
        header = {"alg": claims.pop("alg", "RS256"), "kid": self.id, "typ": "JWT"}
        payload = {"iss": "https://accounts.google.com", "aud": audience, "email": email, "email_verified": True}
        payload |= {"iat": now, "exp": now + 3600, "sub": "1", "azp": "1", **claims}
        signed = f"{_base64url(orjson.dumps(header))}.{_base64url(orjson.dumps(payload))}"
        return f"{signed}.{_base64url(self.private.sign(signed.encode(), PKCS1v15(), SHA256()))}"


class _Queue:
    def __init__(self, name: str) -> None:
        self.name = name
        self.limits: dict[str, Any] = {"maxConcurrentDispatches": 1000}
        self.retries: dict[str, Any] = {"maxAttempts": 100, "minBackoff": "0.1s", "maxBackoff": "3600s"}
        self.under_way = self.most = 0


class CloudTasksStub:
    """Listens on 127.0.0.1. `sent`: pushes by task; `answers`: their statuses, 0 where one was cut off or failed;
    `deadline`: seconds that are meant by each `dispatchDeadline`; `refuses`: what each call is answered with;
    `holds`: tasks are not sent while it is true; `resolves`: what the beginnings of URLs lead to."""

    def __init__(self) -> None:
        self.key = SigningKey()
        self.keys: list[Any] = [self.key.jwk]
        self.queues: dict[str, _Queue] = {}
        self.tasks: dict[str, Any] = {}
        self.calls: list[tuple[str, str, dict[str, str], Any]] = []
        self.credentials: set[str | None] = set()
        self.sent: Counter[str] = Counter()
        self.headers: list[dict[str, str]] = []
        self.answers: list[int] = []
        self.deadline: float | None = None
        self.refuses: int | None = None
        self.holds = False
        self.resolves: dict[str, str] = {}
        self.keys_read = 0
        self.port = 0
        self._known: set[str] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> "CloudTasksStub":
        app = web.Application()
        app.router.add_get("/certs", self._certs)
        app.router.add_route("*", "/v2/{name:.*}", self._call)
        self._session = aiohttp.ClientSession()
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        for each in self._running:
            each.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._session.close()
        await self._runner.cleanup()

    async def lose_tasks(self) -> None:
        """A queue that is purged: its tasks are gone, and their names taken."""
        self.tasks.clear()
        await self.let_go()

    async def let_go(self) -> None:
        """Look again at what may be sent."""
        async with self._changed:
            self._changed.notify_all()

    # -- the API

    async def _certs(self, request: web.Request) -> web.Response:
        self.keys_read += 1
        return web.json_response({"keys": self.keys}, headers={"Cache-Control": "public, max-age=20000"})

    async def _call(self, request: web.Request) -> web.Response:
        name, body = request.match_info["name"], await request.read()
        data: Any = orjson.loads(body) if body else None
        self.calls.append((request.method, request.path, dict(request.query), data))
        self.credentials.add(request.headers.get("Authorization"))
        if self.refuses is not None:
            return _refusal(self.refuses, "REFUSED")
        if request.method == "PATCH":
            return self._patch(name, request.query["updateMask"].split(","), data)
        if name.endswith("/tasks") and request.method == "POST":
            return self._create(name.removesuffix("/tasks"), data["task"])
        if request.method == "GET" and name in self.tasks:
            return web.json_response(self.tasks[name])
        return _refusal(404, "NOT_FOUND")

    def _patch(self, name: str, mask: list[str], data: Any) -> web.Response:
        fields = {each.partition(".")[0] for each in mask} | {"name"}
        limits, retries = data.get("rateLimits", {}), data.get("retryConfig", {})
        known = data.keys() <= fields and limits.keys() <= _RATE and retries.keys() <= _RETRY
        if not known or not _QUEUE.fullmatch(name) or data.get("name", name) != name:
            return _refusal(400, "INVALID_ARGUMENT")
        if not 0 < limits.get("maxConcurrentDispatches", 1) <= 5000:
            return _refusal(400, "INVALID_ARGUMENT")
        queue = self.queues.setdefault(name, _Queue(name))
        queue.limits |= limits
        queue.retries |= retries
        return web.json_response({"name": name, "rateLimits": queue.limits, "retryConfig": queue.retries})

    def _create(self, queue: str, task: Any) -> web.Response:
        request = task["httpRequest"]
        is_known = task.keys() <= {"name", "dispatchDeadline", "httpRequest", "scheduleTime"}
        parent, _, id_ = task["name"].rpartition("/tasks/")
        fits = parent == queue and _TASK.fullmatch(id_) and 15 <= _seconds(task["dispatchDeadline"]) <= 1800
        if not is_known or not fits or not request.keys() <= _REQUEST or not request["url"].startswith("http"):
            return _refusal(400, "INVALID_ARGUMENT")
        if queue not in self.queues:
            return _refusal(404, "NOT_FOUND")
        if task["name"] in self._known:
            return _refusal(409, "ALREADY_EXISTS")
        self._known.add(task["name"])
        self.tasks[task["name"]] = task
        running = asyncio.create_task(self._dispatch(self.queues[queue], task))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return web.json_response(task)

    # -- what it sends

    async def _dispatch(self, queue: _Queue, task: Any) -> None:
        retries, backoff = 0, _seconds(queue.retries["minBackoff"])
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: task["name"] not in self.tasks or self._may_send(queue))
                if task["name"] not in self.tasks:
                    return
                queue.under_way += 1
                queue.most = max(queue.most, queue.under_way)
            status = await self._push(queue, task, retries)
            self.answers.append(status)
            retries += 1
            is_last = retries >= queue.retries["maxAttempts"] > 0
            if 200 <= status < 300 or is_last:
                self.tasks.pop(task["name"], None)
            async with self._changed:
                queue.under_way -= 1
                self._changed.notify_all()
            await asyncio.sleep(backoff * _FAST)
            backoff = min(2 * backoff, _seconds(queue.retries["maxBackoff"]))

    def _may_send(self, queue: _Queue) -> bool:
        return not self.holds and queue.under_way < queue.limits["maxConcurrentDispatches"]

    async def _push(self, queue: _Queue, task: Any, retries: int) -> int:
        request = task["httpRequest"]
        headers = {
            **request.get("headers", {}),
            "User-Agent": "Google-Cloud-Tasks",
            "X-CloudTasks-QueueName": queue.name.rpartition("/")[2],
            "X-CloudTasks-TaskName": task["name"].rpartition("/")[2],
            "X-CloudTasks-TaskRetryCount": str(retries),
            "X-CloudTasks-TaskExecutionCount": str(retries),
            "X-CloudTasks-TaskETA": f"{time.time():.3f}",
        }
        if oidc := request.get("oidcToken"):
            token = self.key.token(oidc["audience"], oidc["serviceAccountEmail"])
            headers["Authorization"] = f"Bearer {token}"
        self.sent[task["name"]] += 1
        self.headers.append(headers)
        within = aiohttp.ClientTimeout(total=self.deadline or _seconds(task["dispatchDeadline"]))
        try:
            body, url = base64.b64decode(request["body"]), request["url"]
            for begins, leads_to in self.resolves.items():
                url = url.replace(begins, leads_to)
            async with self._session.post(url, data=body, headers=headers, timeout=within) as reply:
                await reply.read()
                return reply.status
        except (aiohttp.ClientError, OSError, TimeoutError):
            return 0


def _refusal(code: int, status: str) -> web.Response:
    error = {"code": code, "message": f"{status}: the message", "status": status}
    return web.json_response({"error": error}, status=code)


def _seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
