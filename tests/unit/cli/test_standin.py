"""The stand-in upstream: its line of requests, and how it joins and leaves an slb."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import ClientSession, ClientTimeout, web
from aiohttp.test_utils import TestClient
from pytest_aiohttp import AiohttpClient

from slb.errors import ConfigError
from slb.lifecycle import Stopping
from slb.listening import listening_socket, shown_address
from slb.registration import Registration
from slb.standin import Manner, Place, StandIn, run_stand_in, serve_stand_in
from tests.support.fake_slb import HANG, FakeSlb, StartSlb
from tests.support.waiting import eventually, within

Client = TestClient[web.Request, web.Application]
MakeClient = Callable[[Manner], Awaitable[Client]]


@pytest.fixture
def client_of(aiohttp_client: AiohttpClient) -> MakeClient:
    async def make(manner: Manner) -> Client:
        return await aiohttp_client(StandIn(manner, asyncio.get_running_loop().time).make_app())

    return make


async def test_it_answers_with_its_name_and_the_request(client_of: MakeClient) -> None:
    client = await client_of(Manner("a"))
    reply = await client.post("/p1/x?y=%20", data=b"12345")
    assert reply.headers["X-Upstream"] == "a"
    assert (await reply.text()).endswith("}\n")
    answer = await reply.json()
    assert answer.pop("waited_seconds") < 1
    assert answer == {"upstream": "a", "method": "POST", "path": "/p1/x?y=%20", "body_bytes": 5}


async def test_requests_beyond_its_slots_wait_in_the_order_they_came(client_of: MakeClient) -> None:
    client = await client_of(Manner("a", slots=1))
    finished: list[str] = []

    async def ask(path: str, service_time: str) -> None:
        await client.get(path, headers={"X-Service-Time": service_time})
        finished.append(path)

    tasks = []
    for path, service_time in (("/1", "60ms"), ("/2", "30ms"), ("/3", "0")):
        tasks.append(asyncio.create_task(ask(path, service_time)))
        await asyncio.sleep(0.01)
    await asyncio.gather(*tasks)
    assert finished == ["/1", "/2", "/3"]


async def test_two_slots_serve_two_at_a_time(client_of: MakeClient) -> None:
    client = await client_of(Manner("a", service_time=30.0, slots=2))
    slow = asyncio.create_task(client.get("/slow"))
    reply = await client.get("/quick", headers={"X-Service-Time": "0"})
    assert reply.status == 200
    assert not slow.done()
    slow.cancel()


async def test_a_client_that_gives_up_frees_its_slot(client_of: MakeClient) -> None:
    client = await client_of(Manner("a", service_time=30.0, slots=1))
    with pytest.raises(TimeoutError):
        await client.get("/", timeout=ClientTimeout(total=0.05))
    reply = await client.get("/", headers={"X-Service-Time": "0"})
    assert reply.status == 200


async def test_its_health_is_answered_at_once_also_where_all_its_slots_are_taken(client_of: MakeClient) -> None:
    client = await client_of(Manner("a", service_time=30.0, slots=1))
    slow = [asyncio.create_task(client.get("/slow")) for _ in range(2)]
    async with within(10):
        while (await (await client.get("/healthz")).json()) != {"upstream": "a", "waiting_or_served": 2}:
            await asyncio.sleep(0)
    for task in slow:
        task.cancel()


async def test_a_service_time_it_cannot_read_is_refused(client_of: MakeClient) -> None:
    client = await client_of(Manner("a"))
    reply = await client.get("/", headers={"X-Service-Time": "soon"})
    assert reply.status == 400
    assert "X-Service-Time" in await reply.text()


async def test_leaving_it_deregisters_first_and_serves_until_no_request_comes(slb_at: StartSlb) -> None:
    slb, stopping = FakeSlb(200), Stopping()
    bound = listening_socket("127.0.0.1:0", "listen")
    address = shown_address(bound)
    made = Registration(await slb_at(slb), "/p", "127.0.0.1:9")
    stand_in = StandIn(Manner("a", grace=0.2), asyncio.get_running_loop().time)
    serving = asyncio.create_task(serve_stand_in(stand_in, bound, made, stopping))
    await eventually(lambda: len(slb.calls) == 1, what="registered")
    stopping.request()
    await eventually(lambda: len(slb.calls) == 2, what="deregistered")
    async with ClientSession() as session, session.get(f"http://{address}/late") as reply:
        assert reply.status == 200
    await serving
    assert slb.methods == ["POST", "DELETE"]


async def test_a_second_signal_ends_it_while_slb_does_not_answer(slb_at: StartSlb) -> None:
    slb, stopping = FakeSlb(200, HANG), Stopping()
    bound = listening_socket("127.0.0.1:0", "listen")
    made = Registration([await slb_at(slb)] * 2, "/p", shown_address(bound))
    stand_in = StandIn(Manner("a", grace=60.0), asyncio.get_running_loop().time)
    serving = asyncio.create_task(serve_stand_in(stand_in, bound, made, stopping))
    await eventually(lambda: slb.methods == ["POST"], what="registered")
    stopping.request()
    await eventually(lambda: slb.methods == ["POST", "DELETE"], what="deregistering")
    stopping.request()
    await serving
    assert slb.methods == ["POST", "DELETE"]  # the second URL was not asked any more


def test_a_ttl_that_no_slb_takes_is_refused_before_anything_is_served(capsys: pytest.CaptureFixture[str]) -> None:
    place = Place("127.0.0.1:0", urls=["http://127.0.0.1:1"], ttl=4)
    with pytest.raises(ConfigError, match="ttl: 4 is not"):
        run_stand_in(place, Manner())
    assert capsys.readouterr().out == ""


async def test_stopped_twice_it_leaves_its_requests() -> None:
    stopping = Stopping()
    bound = listening_socket("127.0.0.1:0", "listen")
    address = shown_address(bound)
    stand_in = StandIn(Manner("a", service_time=60.0), asyncio.get_running_loop().time)
    serving = asyncio.create_task(serve_stand_in(stand_in, bound, None, stopping))
    reader, writer = await asyncio.open_connection(*address.split(":"))
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    await writer.drain()
    stopping.request()
    stopping.request()
    await serving
    writer.close()
    del reader


# -- as a GPU server of the job dispatcher

GPU = Manner("a", service_time=30.0, slots=1, direct_queue=1)
DISPATCHER = {"X-Source": "dispatcher"}


async def active_jobs(client: Client, count: int, waiting: int = 0) -> None:
    """Until so many run there, and so many direct calls wait."""
    wanted = {"upstream": "a", "status": "healthy", "active_jobs": count, "slots": 1, "direct_waiting": waiting}
    async with within(10):
        while await (await client.get("/health")).json() != wanted:
            await asyncio.sleep(0)


async def test_a_job_is_answered_with_its_result(client_of: MakeClient) -> None:
    client = await client_of(Manner("a", direct_queue=0))
    answer = await (await client.post("/generate", data=b"123", headers=DISPATCHER)).json()
    assert (answer["status"], answer["result"]["body_bytes"]) == ("success", 3)
    await active_jobs(client, 0)


async def test_the_dispatcher_is_refused_while_direct_calls_run_or_wait(client_of: MakeClient) -> None:
    client = await client_of(GPU)
    first = asyncio.create_task(client.post("/generate", headers={"X-Service-Time": "100ms"}))
    await active_jobs(client, 1)
    second = asyncio.create_task(client.post("/generate", headers={"X-Service-Time": "0"}))
    await active_jobs(client, 1, waiting=1)
    for headers, detail in ((DISPATCHER, "GPU busy"), ({}, "Queue full")):
        reply = await client.post("/generate", headers=headers)
        assert (reply.status, await reply.json()) == (503, {"detail": detail})
    assert [(await each).status for each in (first, second)] == [200, 200]
    await active_jobs(client, 0)
    assert (await client.post("/generate", headers={**DISPATCHER, "X-Service-Time": "0"})).status == 200


async def test_an_async_one_answers_before_it_is_done_and_is_asked_for_the_result(client_of: MakeClient) -> None:
    client = await client_of(Manner("a", service_time=0.1, slots=1, direct_queue=1, is_async=True))
    begun = await (await client.post("/generate", headers=DISPATCHER)).json()
    assert begun["status"] == "processing"
    queued = await (await client.post("/generate", headers={"X-Service-Time": "0"})).json()
    assert (queued["status"], queued["position"]) == ("queued", 1)
    assert await (await client.get(f"/status/{begun['job_id']}")).json() == {"status": "processing"}
    for id_ in (begun["job_id"], queued["job_id"]):
        async with within(10):
            while (answer := await (await client.get(f"/status/{id_}")).json())["status"] != "completed":
                await asyncio.sleep(0)
        assert answer["result"]["path"] == "/generate"
    assert (await client.get("/status/none")).status == 404


async def test_a_job_whose_client_leaves_goes_on_and_a_call_that_waits_does_not(client_of: MakeClient) -> None:
    client = await client_of(GPU)
    running = asyncio.create_task(client.post("/generate", headers={**DISPATCHER, "X-Service-Time": "300ms"}))
    await active_jobs(client, 1)
    waiting = asyncio.create_task(client.post("/generate"))
    await active_jobs(client, 1, waiting=1)
    for each in (running, waiting):
        each.cancel()
    await active_jobs(client, 1, waiting=0)
    await active_jobs(client, 0)


async def test_without_a_direct_queue_it_is_no_gpu_server(client_of: MakeClient) -> None:
    client = await client_of(Manner("a"))
    for path in ("/generate", "/health", "/status/1"):
        assert (await (await client.post(path, headers=DISPATCHER)).json())["path"] == path
