"""A registration that is kept: what it asks, what it makes of each answer, and how it leaves."""

import asyncio
import math
import socket
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from slb import registration
from slb.errors import ConfigError
from slb.registration import Registration, RegistrationRefused
from tests.support.certificates import Authority
from tests.support.fake_slb import HANG, FakeSlb, StartSlb, fake_slbs
from tests.support.waiting import eventually

TARGET = "127.0.0.1:9"
BODY = {"path": "/p", "target": TARGET}


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of each pause; none of them takes its time."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(registration, "_sleep", sleep)
    return found


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level("INFO", "slb.registration")
    return caplog


def closed_url() -> str:
    """Of a port where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return "http://{}:{}".format(*closed.getsockname())


async def test_it_asks_again_until_slb_takes_it_with_pauses_that_double(
    slb_at: StartSlb, pauses: list[float]
) -> None:
    slb = FakeSlb(*[503] * 8, 200)
    await Registration(await slb_at(slb), "/p", TARGET, ttl=None, token="secret").register()
    assert slb.calls == [("POST", BODY, "Bearer secret")] * 9
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0])


async def test_the_reason_is_logged_once_and_again_where_it_changes(
    slb_at: StartSlb, log: pytest.LogCaptureFixture, pauses: list[float]
) -> None:
    slb = FakeSlb(503, 503, 503, 500, 500, 200)
    url = await slb_at(slb)
    await Registration(url, "/p", TARGET).register()
    trying = f"not registered yet, trying again: {TARGET} for /p: {url}/register answered"
    assert log.messages == [
        f"{trying} 503 reason_503: so it is",
        f"{trying} 500 reason_500: so it is",
        f"registered {TARGET} for /p",
    ]


async def test_where_nothing_listens_the_reason_is_the_systems_and_nothing_is_taken_back(
    slb_at: StartSlb, log: pytest.LogCaptureFixture
) -> None:
    slb, url = FakeSlb(403), closed_url()
    made = Registration([url, await slb_at(slb)], "/p", TARGET)
    trying = asyncio.create_task(made.register())
    await eventually(lambda: bool(log.messages))
    trying.cancel()
    await asyncio.wait([trying])
    assert await made.deregister()
    (message,) = log.messages
    assert f"{url}/register: Connection refused; http" in message
    assert set(slb.methods) == {"POST"}


@pytest.mark.parametrize(
    ("encrypted", "why"),
    [
        (True, "certificate verify failed: unable to get local issuer certificate"),
        (False, "the API there speaks no TLS"),
    ],
)
async def test_what_of_tls_failed_is_logged_in_words(
    tmp_path: Path, log: pytest.LogCaptureFixture, encrypted: bool, why: str
) -> None:
    async with fake_slbs(Authority(tmp_path).server("127.0.0.1") if encrypted else None) as start:
        url = (await start(FakeSlb(200))).replace("http://", "https://")
        trying = asyncio.create_task(Registration(url, "/p", TARGET).register())
        await eventually(lambda: bool(log.messages))
        trying.cancel()
        await asyncio.wait([trying])
    assert log.messages == [f"not registered yet, trying again: {TARGET} for /p: {url}/register: {why}"]


async def test_a_refused_registration_is_not_tried_again_and_nothing_is_taken_back(slb_at: StartSlb) -> None:
    slb = FakeSlb(403)
    slb.members.add(TARGET)  # by another registrant
    made = Registration(await slb_at(slb), "/p", TARGET)
    with pytest.raises(RegistrationRefused, match=f"{TARGET} for /p: .* 403 reason_403: so it is"):
        async with made:
            raise AssertionError("registered")
    assert await made.deregister()
    assert slb.methods == ["POST"]


async def test_what_an_attempt_without_an_answer_may_have_registered_is_taken_back(
    slb_at: StartSlb, pauses: list[float]
) -> None:
    slb = FakeSlb(503, 403, 200)
    with pytest.raises(RegistrationRefused):
        await Registration(await slb_at(slb), "/p", TARGET).register()
    assert slb.methods == ["POST", "POST", "DELETE"]


@pytest.mark.parametrize("status", [408, 429])
async def test_a_refusal_that_passes_is_asked_again(slb_at: StartSlb, status: int, pauses: list[float]) -> None:
    slb = FakeSlb(status, 200)
    await Registration(await slb_at(slb), "/p", TARGET).register()
    assert slb.methods == ["POST", "POST"]


@pytest.mark.parametrize(
    "other",
    [
        lambda: web.Response(text="<h1>It works!</h1>"),
        lambda: web.json_response({}),
        lambda: web.json_response([True]),
        lambda: web.json_response({**BODY}),
        lambda: web.json_response({**BODY, "path": "/other", "added": True}),
        lambda: web.Response(body=b"\xff" * 100_000),
        lambda: web.Response(text="[" * 100_000),
        lambda: web.Response(status=302, headers={"Location": "/register"}),
    ],
)
async def test_what_is_no_slb_does_not_count_as_one(slb_at: StartSlb, other: Any) -> None:
    slb = FakeSlb(other, 200)
    with pytest.raises(RegistrationRefused, match=r"is not the API of an slb: it answered [23]0"):
        await Registration(await slb_at(slb), "/p", TARGET).register()
    assert slb.methods == ["POST"]


async def test_it_is_renewed_until_it_leaves_whatever_is_answered_meanwhile(
    slb_at: StartSlb, log: pytest.LogCaptureFixture, pauses: list[float]
) -> None:
    def garbled() -> web.Response:
        return web.Response(status=502, body=b"\xff\xfe" * 50_000)

    slb = FakeSlb(200, 200, 503, garbled, 403, 403, 200)
    async with Registration(await slb_at(slb), "/p", TARGET, ttl=6, attributes={"weight": 2}):
        await eventually(lambda: len(slb.calls) >= 8, what="renewals")
    *renewals, last = slb.calls
    assert all(each == ("POST", {**BODY, "weight": 2, "ttl": 6}, None) for each in renewals)
    assert last == ("DELETE", BODY, None)
    assert pauses[:7] == pytest.approx([2.0, 2.0, 0.1, 0.2, 0.4, 0.8, 2.0])
    trying = "not renewed, trying again"
    assert [message.partition(": ")[0] for message in log.messages] == [
        f"registered {TARGET} for /p",
        *[trying] * 3,
        "renewed again",
        f"deregistered {TARGET} for /p",
    ]
    assert all(f"{TARGET} for /p" in message and len(message) < 500 for message in log.messages)


async def test_that_it_had_been_taken_out_is_a_warning(
    slb_at: StartSlb, log: pytest.LogCaptureFixture, pauses: list[float]
) -> None:
    slb = FakeSlb(200)
    async with Registration(await slb_at(slb), "/p", TARGET, ttl=5):
        slb.members.clear()
        await eventually(lambda: bool(slb.members), what="a renewal")
        slb.members.clear()
        await eventually(lambda: bool(slb.members), what="another one")
        await eventually(lambda: len(log.messages) >= 3)
    warnings = [record.getMessage() for record in log.records if record.levelname == "WARNING"]
    assert warnings == [f"had been taken out, registered again: {TARGET} for /p"] * 2


async def test_of_several_slbs_the_one_that_took_it_is_asked_first_afterwards(slb_at: StartSlb) -> None:
    away, there, other = FakeSlb(503), FakeSlb(200), FakeSlb(200)
    made = Registration([await slb_at(each) for each in (away, there, other)], "/p", TARGET, ttl=None)
    await made.keep()
    assert await made.deregister()
    assert (away.methods, there.methods, other.methods) == (["POST"], ["POST", "DELETE"], [])


async def test_one_that_refuses_hides_no_other(slb_at: StartSlb, pauses: list[float]) -> None:
    older, starting = FakeSlb(400), FakeSlb(503, 200)
    made = Registration([await slb_at(older), await slb_at(starting)], "/p", TARGET)
    async with made:
        await eventually(lambda: len(starting.calls) >= 4, what="renewals")
    assert older.methods == ["POST", "POST"]
    assert starting.methods[-1] == "DELETE"


async def test_only_where_all_refuse_it_is_refused(slb_at: StartSlb) -> None:
    one, other = FakeSlb(400), FakeSlb(404)
    with pytest.raises(RegistrationRefused, match=r"400 reason_400: so it is; .* 404 reason_404"):
        await Registration([await slb_at(one), await slb_at(other)], "/p", TARGET).register()
    assert (one.methods, other.methods) == (["POST"], ["POST"])


async def test_urls_that_hang_share_a_third_of_the_ttl(slb_at: StartSlb, log: pytest.LogCaptureFixture) -> None:
    hanging = [FakeSlb(HANG), FakeSlb(HANG)]
    slb = FakeSlb(503, 200)
    made = Registration([await slb_at(each) for each in (*hanging, slb)], "/p", TARGET, ttl=5)
    await made.register()
    assert log.messages[0].count(": no answer within 0.56 s; ") == 2  # of 5 s / 3, for each of three
    assert await made.deregister()
    assert [each.methods for each in hanging] == [["POST", "POST"]] * 2
    assert slb.methods == ["POST", "POST", "DELETE"]


async def test_leaving_takes_two_seconds_at_most_whichever_api_hangs(
    slb_at: StartSlb, log: pytest.LogCaptureFixture
) -> None:
    slbs = [FakeSlb(200, HANG), FakeSlb(HANG)]
    made = Registration([await slb_at(each) for each in slbs], "/p", TARGET)
    await made.register()
    assert not await made.deregister()
    assert log.messages[-1].startswith(f"not deregistered: {TARGET} for /p: http")
    assert log.messages[-1].count(": no answer within 1 s") == 2


async def test_cancelled_before_its_answer_came_it_is_taken_back(slb_at: StartSlb) -> None:
    slb = FakeSlb(HANG, 200)

    async def serve(url: str) -> None:
        async with Registration(url, "/p", TARGET):
            raise AssertionError("registered")

    serving = asyncio.create_task(serve(await slb_at(slb)))
    await eventually(lambda: bool(slb.members))
    serving.cancel()
    await asyncio.wait([serving])
    assert serving.cancelled()
    assert slb.methods == ["POST", "DELETE"]
    assert not slb.members


async def test_that_another_has_deregistered_it_is_no_failure(
    slb_at: StartSlb, log: pytest.LogCaptureFixture
) -> None:
    slb = FakeSlb(200)
    async with Registration(await slb_at(slb), "/p", TARGET):
        slb.members.clear()
    assert log.messages[-1] == f"was not registered any more: {TARGET} for /p"


async def test_path_and_target_are_logged_and_sent_in_their_normal_form(
    slb_at: StartSlb, log: pytest.LogCaptureFixture
) -> None:
    slb = FakeSlb(200)
    await Registration(await slb_at(slb) + "/", "/a/../p", "GPU", ttl=None).register()
    assert slb.calls == [("POST", {"path": "/p", "target": "gpu:80"}, None)]
    assert log.messages == ["registered gpu:80 for /p"]


URL = "http://127.0.0.1:8081"


@pytest.mark.parametrize(
    ("url", "path", "target", "options", "named"),
    [
        ([], "/p", TARGET, {}, "url: "),
        ("127.0.0.1:8081", "/p", TARGET, {}, "url: '127.0.0.1:8081'"),
        ("http://h:99999", "/p", TARGET, {}, "url: "),
        (f"http://{'h' * 64}", "/p", TARGET, {}, "url: "),
        (URL, "p", TARGET, {}, "path 'p'"),
        (URL, "/p", "h:x", {}, "target 'h:x'"),
        *((URL, "/p", TARGET, {"ttl": ttl}, "ttl: ") for ttl in (0, 4.9, -1, 86_401, "abc", "30", True, math.nan)),
        (URL, "/p", TARGET, {"token": "a\nb"}, "token: "),
        ("https://slb", "/p", TARGET, {"ca": "/nowhere.pem"}, "ca: /nowhere.pem: "),
        (URL, "/p", TARGET, {"attributes": {"weight": 0}}, "attributes: weight: "),
        (URL, "/p", TARGET, {"attributes": {"target": "other"}}, "attributes: target: "),
    ],
)
def test_arguments_that_cannot_be_used_are_refused_by_name(
    url: Any, path: str, target: str, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        Registration(url, path, target, **options)


async def test_what_is_left_standing_has_no_lease_or_a_line_in_the_log(
    slb_at: StartSlb, log: pytest.LogCaptureFixture
) -> None:
    slb = FakeSlb(200, 200, 503)
    made = Registration(await slb_at(slb), "/p", TARGET, attributes={"weight": 2})
    await made.register()
    await made.leave_standing()
    assert slb.calls[1:] == [("POST", {**BODY, "weight": 2}, None)]
    await made.leave_standing()
    assert log.messages[-1].startswith(f"ends with its lease, though it was there before: {TARGET} for /p: ")


async def test_a_file_of_authorities_that_is_being_replaced_is_read_again_at_the_next_call(
    authority: Authority, log: pytest.LogCaptureFixture, pauses: list[float]
) -> None:
    async def taken(_: web.Request) -> web.Response:
        return web.json_response({**BODY, "added": True})

    runner = web.AppRunner(app := web.Application())
    app.router.add_post("/register", taken)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=authority.server("127.0.0.1")).start()
    content = authority.file.read_bytes()
    made = Registration("https://{}:{}".format(*runner.addresses[0]), "/p", TARGET, ca=authority.file)
    authority.file.write_bytes(b"half of it")
    registering = asyncio.create_task(made.register())
    await eventually(lambda: any("no certificates in PEM form" in line for line in log.messages))
    authority.file.write_bytes(content)
    await registering
    await runner.cleanup()
