"""What stands in the query of a request to the API: what an endpoint takes, and nothing else."""

from unittest.mock import Mock

import pytest

from slb.api.application import api_endpoints
from slb.api.endpoints import NAME_IN_PATH
from tests.unit.api.conftest import Api, ApiMaker


@pytest.fixture
async def every(serve: ApiMaker) -> Api:
    """The API with all of its faces; behind those of jobs, quotas and the fleet is nothing."""
    return await serve(jobs=Mock(), quota=Mock(), fleet=Mock())


async def test_every_endpoint_refuses_a_parameter_that_it_does_not_take_by_name(every: Api) -> None:
    for endpoint in api_endpoints(Mock()):
        path = NAME_IN_PATH.sub("one", endpoint.path)
        answer = await every.call(endpoint.method, f"{path}?modle=m")
        if path in ("/healthz", "/readyz", "/metrics"):
            assert answer.status in (200, 503)
            continue
        assert (answer.status, answer.json["error"]) == (400, "bad_request"), path
        assert answer.json["detail"].startswith("modle: no parameter of this endpoint"), path
        assert all(name in answer.json["detail"] for name in endpoint.query)


@pytest.mark.parametrize("query", ["model=a&model=a", "model=a&Model=b", "=x", "model%5B%5D=a"])
async def test_a_parameter_is_named_as_it_is_and_once(every: Api, query: str) -> None:
    answer = await every.call("POST", f"/admin/dlq/retry-all?{query}")
    assert answer.status == 400


async def test_what_is_not_there_is_not_there_with_a_query_either(every: Api) -> None:
    assert (await every.call("GET", "/nowhere?x=1")).status == 404
    assert (await every.call("PUT", "/status?x=1")).status == 405
