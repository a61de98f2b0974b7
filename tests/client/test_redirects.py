"""Where a redirect of an upstream may lead."""

from typing import Any

import aiohttp
import pytest
from aiohttp import web

from slb.client import Session
from tests.client.conftest import Upstreams
from tests.client.rig import Handler, at_rest


def leading_to(places: list[str]) -> Handler:
    """An upstream that sends everybody to the first of `places`."""

    async def redirect(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": places[0] + request.path_qs})

    return redirect


@pytest.mark.parametrize("method", ["get", "post", "head"])
async def test_a_redirect_is_the_answer(upstreams: Upstreams, method: str) -> None:
    stranger = await upstreams()
    upstream = await upstreams(leading_to([stranger.url]))
    async with Session(upstreams=[upstream.member]) as session:
        async with getattr(session, method)("/x") as response:
            assert (response.status, response.headers["Location"]) == (302, f"{stranger.url}/x")
        await at_rest(session)
    assert not stranger.seen


@pytest.mark.parametrize("middlewares", [{}, {"middlewares": []}], ids=["", "a call's own"])
async def test_a_redirect_that_leaves_the_upstreams_is_never_followed(
    upstreams: Upstreams, middlewares: dict[str, Any]
) -> None:
    stranger = await upstreams()
    upstream = await upstreams(leading_to([stranger.url]))
    async with Session(upstreams=[upstream.member], settings={"eject_after": 1}) as session:
        for _ in range(2):
            with pytest.raises(aiohttp.InvalidUrlRedirectClientError):
                await session.get("/x", allow_redirects=True, **middlewares)
        await at_rest(session)
        assert not session.metrics.retries
    assert upstream.seen == ["/x"] * 2, "it did not fail, and is not left out"
    assert not stranger.seen


@pytest.mark.parametrize("is_fallback", [False, True])
async def test_a_redirect_to_another_upstream_or_the_fallback_is_followed_where_that_is_asked_for(
    upstreams: Upstreams, is_fallback: bool
) -> None:
    places = [""]
    one, other = await upstreams(leading_to(places)), await upstreams()
    places[0] = other.url
    members = [one.member] if is_fallback else [one.member, other.member]
    async with Session(upstreams=members, fallback=other.url if is_fallback else None) as session:
        for _ in range(2):
            async with session.get("/x", allow_redirects=True) as response:
                assert (response.status, await response.text()) == (200, "GET /x")
        await at_rest(session)


async def test_a_redirect_within_an_upstream_is_followed_though_it_has_left_the_table(upstreams: Upstreams) -> None:
    async def home(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/home":
            return web.Response(text="home")
        session.set_upstreams([other.member])
        return web.Response(status=302, headers={"Location": "/home"})

    upstream, other = await upstreams(home), await upstreams()
    async with Session(upstreams=[upstream.member]) as session:
        async with session.get("/x", allow_redirects=True) as response:
            assert await response.text() == "home"
        await at_rest(session)
