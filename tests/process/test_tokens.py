"""Tokens with rights, as those who run slb meet them: made, put into files, replaced, refused."""

import os
import signal
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest

from tests.process.commands import Commands, Serving
from tests.process.serving import events
from tests.support import waiting
from tests.support.valkey import Valkey
from tests.support.waiting import eventually


class Made(NamedTuple):
    """What `slb token make` printed: the token, and the TOML."""

    secret: str
    toml: str


class Tokens:
    """A directory of tokens, as a mounted secret is one."""

    def __init__(self, slb: Commands) -> None:
        self._slb = slb
        self.directory = slb.directory / "tokens"
        self.directory.mkdir()

    async def make(self, name: str, *words: str) -> Made:
        result = await self._slb.run("token", "make", "--name", name, *words)
        assert (result.code, result.err) == (0, "")
        secret, _, toml = result.out.partition("\n\n")
        assert secret not in toml
        return Made(secret, toml)

    async def put(self, name: str, *words: str) -> str:
        """Make one and put it there; its secret."""
        made = await self.make(name, *words)
        self.file(name).write_text(made.toml)
        return made.secret

    def file(self, name: str) -> Path:
        return self.directory / f"{name}.toml"


@pytest.fixture
def tokens(slb: Commands) -> Tokens:
    return Tokens(slb)


async def serve(slb: Commands, valkey: Valkey, tokens: Tokens, *words: str) -> Serving:
    serving = await slb.serve(*words, redis=valkey.url, env={"SLB_TOKENS_PATH": str(tokens.directory)})
    return await slb.until_ready(serving)


async def status_of(slb: Commands, url: str, secret: str) -> int:
    return (await slb.get(url, Authorization=f"Bearer {secret}"))[0]


async def until(slb: Commands, serving: Serving, secret: str, wanted: int) -> None:
    """Wait until the token is known, 200, or no more, 401."""
    url = f"{serving.api}/token"
    await waiting.until(lambda: status_of(slb, url, secret), lambda found: found == wanted, 20.0, f"{wanted}")


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_token_that_was_made_is_known_once_its_file_is_there_and_until_it_goes(
    slb: Commands, valkey: Valkey, tokens: Tokens, workers: str
) -> None:
    root = await tokens.put("root", "--right", "admin")
    serving = await serve(slb, valkey, tokens, "--workers", workers)
    ci = await tokens.put("ci", "--prefix", "/p")
    await until(slb, serving, ci, 200)
    to_api = ("--url", serving.api, "--token", ci)
    assert (await slb.run("register", "/p/a", "127.0.0.1:9001", *to_api)).code == 0
    refused = await slb.run("register", "/q", "127.0.0.1:9001", *to_api)
    assert refused.code == 1
    assert "403 forbidden: path: the token ci lacks the right register for /q" in refused.err
    assert "lacks the right admin" in (await slb.run("drain", "127.0.0.1:9001", "--yes", *to_api)).err
    assert (await slb.run("drain", "127.0.0.1:9001", "--yes", "--url", serving.api, "--token", root)).code == 0
    body = {"path": "/p", "target": "127.0.0.1:9002"}
    async with slb.session.post(
        f"{serving.url}/register", json=body, headers={"Authorization": f"Bearer {ci}"}
    ) as reply:
        assert reply.status == 200, "the data listener takes it too"
    assert valkey.admin.smembers("slb_q") == set()
    tokens.file("ci").unlink()
    await until(slb, serving, ci, 401)
    assert await status_of(slb, f"{serving.api}/status", root) == 200
    assert await serving.process.stop() == 0
    added = [(line["path"], line["by"]) for line in events(serving, "upstream_added")]
    assert added == [("/p/a", "ci"), ("/p", "ci")]
    assert [line["by"] for line in events(serving, "upstream_changed")] == ["root"]
    answers = [line for line in events(serving, "request") if "token" in line]
    named = {(line["path"], line["status"], line["token"]) for line in answers}
    assert named >= {("/register", 200, "ci"), ("/register", 403, "ci"), ("/token", 401, "")}
    log = serving.process.log.read_text()
    assert ci not in log
    assert root not in log


async def test_a_supervisor_reads_its_workers_whichever_tokens_there_are(
    slb: Commands, valkey: Valkey, tokens: Tokens
) -> None:
    grafana = await tokens.put("grafana", "--right", "metrics", "--right", "read")
    serving = await serve(slb, valkey, tokens, "--workers", "2")
    _, text = await slb.get(f"{serving.api}/metrics", Authorization=f"Bearer {grafana}")
    assert "slb_redis_up 1.0" in text.splitlines()
    _, text = await slb.get(f"{serving.api}/status", Authorization=f"Bearer {grafana}")
    assert len(orjson.loads(text)["workers"]) == 2
    assert events(serving, "worker_silent") == []


async def test_a_file_that_cannot_be_used_changes_nothing_until_it_is_mended(
    slb: Commands, valkey: Valkey, tokens: Tokens
) -> None:
    root = await tokens.put("root", "--right", "admin")
    serving = await serve(slb, valkey, tokens)
    secret = slb.directory / "secret"
    tokens.file("late").write_text(f'[tokens.late]\nrights = ["read"]\nsecret_file = "{secret}"\n')
    await eventually(lambda: bool(events(serving, "settings_refused")), 20)
    assert f"tokens.late.secret_file: {secret} cannot be read" in events(serving, "settings_refused")[0]["error"]
    assert await status_of(slb, f"{serving.api}/token", root) == 200
    secret.write_text("at-last\n")  # what it was refused for is followed like all else
    await until(slb, serving, "at-last", 200)
    tokens.file("root").unlink()
    tokens.file("late").unlink()
    os.kill(serving.process.pid, signal.SIGHUP)
    await eventually(lambda: "has no tokens" in events(serving, "settings_refused")[-1]["error"], 20)
    assert await status_of(slb, f"{serving.api}/token", root) == 200
    assert await status_of(slb, f"{serving.api}/token", "") == 401


async def test_a_start_without_the_tokens_it_is_to_have_is_refused(slb: Commands, tokens: Tokens) -> None:
    env = {"SLB_TOKENS_PATH": str(tokens.directory)}
    result = await slb.run("serve", "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0", env=env)
    assert result.code == 1
    assert result.err.splitlines()[-1].startswith(f"slb: tokens_path: {tokens.directory} has no tokens")
