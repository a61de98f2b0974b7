"""Instances publish to each other that an upstream refuses connections."""

import socket

from slb.control import keys
from tests.process.commands import Commands
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, within


async def test_what_one_instance_was_refused_the_other_ejects_without_a_request_of_its_own(
    slb: Commands, valkey: Valkey
) -> None:
    one, other = [await slb.until_ready(await slb.serve(redis=valkey.url)) for _ in range(2)]
    await eventually(lambda: valkey.listeners(keys.HEALTH_CHANNEL) == 2, what="both listen")
    await slb.upstream("a", "--register", one.api, "--path", "/p")
    with socket.socket() as bound:  # and not listening
        bound.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{bound.getsockname()[1]}"
        assert (await slb.run("register", "/p", dead, "--url", one.api)).code == 0
        ejected = f'slb_upstream_ejections_total{{reason="refused",upstream="{dead}"}}'
        async with within(20):
            while ejected not in (await slb.get(f"{other.api}/metrics"))[1]:
                assert (await slb.get(f"{one.url}/p"))[0] == 200
    assert 'slb_route_requests_total{code="2xx",route="/p"} 0.0' in (await slb.get(f"{other.api}/metrics"))[1]
