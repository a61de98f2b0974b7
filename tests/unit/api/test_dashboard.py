"""The page at /, and its files."""

import gzip

import pytest

from slb.api.application import make_data_api
from slb.dashboard.files import page_files
from tests.unit.api.conftest import Api, ApiMaker

_BROWSER = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}


async def test_a_browser_gets_the_page_and_a_program_the_list(api: Api) -> None:
    page = await api.call("GET", "/", headers=_BROWSER)
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b"<title>slb</title>" in page.body
    listed = await api.call("GET", "/")
    assert list(listed.json) == ["endpoints"]


async def test_the_page_is_open_and_the_list_and_all_data_are_not(serve: ApiMaker) -> None:
    api = await serve(settings={"api_token": "secret"})
    assert (await api.call("GET", "/", headers=_BROWSER)).status == 200
    assert (await api.call("GET", "/dashboard/main.js")).status == 200
    for path in ("/", "/status", "/dashboard/../status", "/dashboard/nothing"):
        assert (await api.call("GET", path)).status == 401, path


async def test_every_file_that_the_page_names_is_there(api: Api) -> None:
    for name in page_files():
        answer = await api.call("GET", f"/dashboard/{name}")
        assert (answer.status, answer.body) == (200, page_files()[name].content), name


@pytest.mark.parametrize("path", ["/", "/dashboard/main.js", "/dashboard/style.css"])
async def test_nothing_may_frame_it_and_only_its_own_files_run(path: str, api: Api) -> None:
    headers = (await api.call("GET", path, headers=_BROWSER)).headers
    policy = dict(each.strip().split(" ", 1) for each in headers["Content-Security-Policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "img-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


async def test_what_a_browser_has_is_not_sent_again_and_is_small(api: Api) -> None:
    path = "/dashboard/main.js"
    first = await api.call("GET", path, headers={"Accept-Encoding": "gzip"})
    assert first.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in first.headers["Vary"]
    again = await api.call("GET", path, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")
    sizes = {name: len(found.zipped or found.content) for name, found in page_files().items()}
    assert sum(sizes.values()) < 100 * 1024, sizes
    assert gzip.decompress(page_files()["main.js"].zipped) == page_files()["main.js"].content


@pytest.mark.parametrize(
    "name", ["", "types.d.ts", "../files.py", "vendor/README.md", "index.html/", "%2e%2e/files.py"]
)
async def test_nothing_else_is_served(name: str, api: Api) -> None:
    assert (await api.call("GET", f"/dashboard/{name}")).status == 404


async def test_nor_on_the_data_listener(serve: ApiMaker) -> None:
    api = await serve(make_data_api)
    answer = await api.call("GET", "/dashboard/main.js")
    assert b"import" not in answer.body
