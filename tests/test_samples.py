"""Samples in Python of the documents, run as a reader would. test_docs.py holds for all that their names are there;
those of GPU servers, of the library and of the quota router are run where their servers are: in tests/gpu,
tests/client, tests/process and tests/unit/quota."""

import subprocess
import sys
import time
from typing import Any

import pytest
from aiohttp import web

from slb.jobs.webhook import headers_of
from slb.setting_values import signing_keys
from tests.support.documents import samples_of


def test_a_receiver_tells_a_callback_of_slb_from_another() -> None:
    (sample,) = samples_of("jobs.md", "is_genuine")
    names: dict[str, Any] = {}
    exec(sample, names)
    secret, other = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
    body, now = b'{"job_id": "order-4711"}', int(time.time())
    sent = headers_of("order-4711", now, body, signing_keys(f"{other},{secret}"))
    assert names["is_genuine"](secret, sent, body)
    assert names["is_genuine"](other, sent, body)
    assert not names["is_genuine"](secret, sent, body + b" ")
    assert not names["is_genuine"](secret, headers_of("order-4711", now - 301, body, signing_keys(secret)), body)
    assert not names["is_genuine"](secret, headers_of("order-4711", now, body, signing_keys(other)), body)


@pytest.mark.parametrize("sample", samples_of("client.md", "structlog.configure"))
def test_the_librarys_lines_go_where_the_program_wants_them(sample: str) -> None:
    logs = 'log = structlog.get_logger("slb.sample"); log.info("quiet"); log.warning("loud")'
    run = subprocess.run([sys.executable, "-c", f"{sample}\n{logs}"], capture_output=True, text=True, check=True)
    assert (run.stdout, "loud" in run.stderr, "quiet" in run.stderr) == ("", True, False)


async def test_a_server_that_sheds_has_the_librarys_middleware() -> None:
    (sample,) = samples_of("client.md", "shed_when_full")
    names: dict[str, Any] = {}
    exec(sample, names)
    async with names["session"]:
        assert isinstance(names["app"], web.Application)
        assert len(names["app"].middlewares) == 1
