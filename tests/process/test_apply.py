"""`slb export`, `slb diff` and `slb apply` before instances: what people keep in git."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from tests.process.commands import Commands, Result, Serving
from tests.process.test_tokens import Tokens
from tests.process.test_tokens import serve as serve_with_tokens
from tests.support.documents import samples
from tests.support.valkey import Valkey
from tests.support.waiting import soon, until


@pytest.fixture
async def serving(slb: Commands, valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> Serving:
    """An slb with all that can be exported, which the commands find by SLB_URL."""
    return await found_by_commands(slb, valkey, monkeypatch, "--roles", "proxy,jobs,quota")


async def found_by_commands(slb: Commands, valkey: Valkey, monkeypatch: pytest.MonkeyPatch, *flags: str) -> Serving:
    found = await slb.until_ready(await slb.serve(*flags, redis=valkey.url))
    monkeypatch.setenv("SLB_URL", found.api)
    return found


class Kept:
    """The file that is kept in git."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    @property
    def text(self) -> str:
        return self._path.read_text()

    def write(self, text: str) -> None:
        self._path.write_text(text)


@pytest.fixture
def file(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "fleet.toml")


async def output(slb: Commands, *arguments: str) -> str:
    result = await slb.run(*arguments)
    assert (result.code, result.err) == (0, ""), result
    return result.out


async def configure(slb: Commands, serving: Serving, model: str, fields: dict[str, object]) -> None:
    async with slb.session.put(f"{serving.api}/admin/model-configs/{model}", json=fields) as reply:
        assert reply.status == 200


async def filled(slb: Commands, serving: Serving) -> None:
    """A route with settings, a member for good and one with a lease, a model of each kind, both paused."""
    await output(slb, "register", "/p", "10.0.0.1", "--weight", "3", "--zone", "z1")
    await output(slb, "register", "/p", "10.0.0.2", "--ttl", "1h")
    await output(slb, "register", "/p/x", "dns://flux.invalid:8000")
    await output(slb, "route", "set", "/p", "policy=p2c", "connect_timeout=250ms", "health_path=none")
    await configure(slb, serving, "flux", {"max_retries": 3, "paused": True})
    await output(
        slb,
        "quota",
        "models",
        "set",
        "org/gpt",
        "max_tokens_per_minute=600",
        "max_concurrent_requests=3",
        "paused=true",
    )


EXPORTED = """
[routes."/p"]
members = [
    "10.0.0.1:80",
]
connect_timeout = "250ms"
health_path = "none"
policy = "p2c"

[routes."/p/x"]
members = [
    "dns://flux.invalid:8000",
]

[upstreams."10.0.0.1:80"]
weight = 3
zone = "z1"

[models.flux]
max_retries = 3

[limits."org/gpt"]
max_tokens_per_minute = 600
max_concurrent_requests = 3
"""


async def state(slb: Commands, serving: Serving) -> str:
    """All that is set, members of others too."""
    return await output(slb, "export", "--members", "all")


async def test_what_was_exported_is_applied_without_a_change_and_is_made_elsewhere(
    slb: Commands, serving: Serving, file: Kept
) -> None:
    await filled(slb, serving)
    text = await output(slb, "export")
    assert text.partition("\n")[2] == EXPORTED
    file.write(text)
    assert await output(slb, "diff", "-f", str(file), "--prune") == ""
    assert await output(slb, "apply", "-f", str(file), "--prune") == "0 changes\n"
    file.write(await output(slb, "export", "-o", "json"))
    assert await output(slb, "apply", "-f", str(file), "--prune") == "0 changes\n"
    file.write(text)
    await output(slb, "route", "delete", "/p/x")
    await output(slb, "deregister", "/p", "10.0.0.1")
    await output(slb, "route", "unset", "/p", "policy")
    await output(slb, "quota", "models", "delete", "org/gpt")
    await configure(slb, serving, "flux", {"max_retries": 4, "poll_interval": 1})
    assert (await output(slb, "apply", "-f", str(file))).splitlines() == [
        '+ limits."org/gpt": max_concurrent_requests = 3',
        '+ limits."org/gpt": max_tokens_per_minute = 600',
        '~ models."flux": max_retries = 3 (was 4)',
        '- models."flux": poll_interval (was 1.0)',
        '+ routes."/p": policy = "p2c"',
        '+ routes."/p": member 10.0.0.1:80',
        '+ upstreams."10.0.0.1:80": weight = 3',
        '+ upstreams."10.0.0.1:80": zone = "z1"',
        '+ routes."/p/x": member dns://flux.invalid:8000',
        "9 changes made",
    ]
    assert await output(slb, "export") == text
    assert await output(slb, "apply", "-f", str(file), "--prune") == "0 changes\n"
    config = (await slb.json(f"{serving.api}/admin/model-configs/flux"))["config"]
    assert (config["max_retries"], config["poll_interval"], config["paused"]) == (3, 2.0, True)


async def test_a_diff_and_a_dry_run_show_what_would_change_and_change_nothing(
    slb: Commands, serving: Serving, file: Kept
) -> None:
    await filled(slb, serving)
    await output(slb, "drain", "10.0.0.1")
    before = await state(slb, serving)
    file.write(
        '[routes."/p"]\nmembers = ["10.0.0.9"]\npolicy = "p2c"\nretries = 2\n[upstreams."10.0.0.9"]\nslots = 4'
    )
    changes = [
        '- routes."/p": connect_timeout (was "250ms")',
        '- routes."/p": health_path (was "none")',
        '+ routes."/p": retries = 2',
        '+ routes."/p": member 10.0.0.9:80',
        '+ upstreams."10.0.0.9:80": slots = 4',
        '- routes."/p": member 10.0.0.1:80',
    ]
    shown = await slb.run("diff", "-f", str(file))
    assert (shown.code, shown.out.splitlines(), shown.err) == (1, changes, "")
    shown = await slb.run("diff", "-f", str(file), "--prune")
    assert (shown.code, shown.out.splitlines()) == (1, [*changes, '- routes."/p/x"'])
    dry = await output(slb, "apply", "-f", str(file), "--dry-run")
    assert dry.splitlines() == [*changes, "6 changes, none made (--dry-run)"]
    assert await state(slb, serving) == before
    assert (await slb.json(f"{serving.api}/upstreams/10.0.0.1:80"))["drain"] is True


async def test_prune_takes_what_is_below_the_prefix_and_leaves_members_of_others(
    slb: Commands, serving: Serving, file: Kept
) -> None:
    await filled(slb, serving)
    await output(slb, "register", "/pq", "10.0.0.1")
    await output(slb, "register", "/p/x", "10.0.0.3", "--ttl", "1h")
    text = await output(slb, "export", "--prefix", "/p/")
    assert 'prefix = "/p"\n' in text
    assert "/pq" not in text
    assert "[models" not in text
    file.write('prefix = "/p"\n[routes]\n')
    assert (await output(slb, "apply", "-f", str(file))) == "0 changes\n"
    assert (await output(slb, "apply", "-f", str(file), "--prune")).splitlines() == [
        '- routes."/p": member 10.0.0.1:80',
        '- routes."/p": connect_timeout (was "250ms")',
        '- routes."/p": health_path (was "none")',
        '- routes."/p": policy (was "p2c")',
        '- routes."/p/x": member dns://flux.invalid:8000',
        "5 changes made",
    ]
    written = await slb.json(f"{serving.api}/written")
    assert {path: (each["settings"], each["members"]) for path, each in written["routes"].items()} == {
        "/p": ({}, {"10.0.0.2:80": "lease"}),
        "/p/x": ({}, {"10.0.0.3:80": "lease"}),
        "/pq": ({}, {"10.0.0.1:80": "static"}),
    }
    assert (await output(slb, "apply", "-f", str(file), "--prune")) == "0 changes\n"
    assert "[models.flux]" in await output(slb, "export", "--only", "models,limits")


async def test_a_lease_ends_where_its_member_is_in_the_file(slb: Commands, serving: Serving, file: Kept) -> None:
    await output(slb, "register", "/p", "10.0.0.2", "--ttl", "1h")
    assert "10.0.0.2" not in await output(slb, "export")
    file.write(await output(slb, "export", "--members", "all"))
    out = await output(slb, "apply", "-f", str(file))
    assert out == '+ routes."/p": member 10.0.0.2:80 (for good, not by a lease)\n1 change made\n'
    assert (await slb.json(f"{serving.api}/routes/p"))["leases"] == {}


async def test_members_of_discovery_are_not_exported_and_stay(
    slb: Commands, valkey: Valkey, monkeypatch: pytest.MonkeyPatch, file: Kept, tmp_path: Path
) -> None:
    listed = tmp_path / "members.toml"
    listed.write_text('"/p" = ["10.0.0.1:80", "10.0.0.2:80"]')
    (tmp_path / "slb.toml").write_text(f'roles = "proxy,discovery"\n[discovery.file]\npath = "{listed}"')
    serving = await found_by_commands(slb, valkey, monkeypatch, "--config", str(tmp_path / "slb.toml"))
    await slb.until_json(
        f"{serving.api}/written", lambda found: len(found["routes"].get("/p", {"members": ()})["members"]) == 2
    )
    await output(slb, "register", "/p", "10.0.0.2", "10.0.0.3")
    result = await slb.run("export")
    assert result.code == 0
    assert result.err == f"slb: without models and limits: the slb at {serving.api} has not the role for them\n"
    assert '"10.0.0.2:80",\n    "10.0.0.3:80",\n]' in result.out
    assert "10.0.0.1" not in result.out
    file.write("[routes]")
    assert len((await output(slb, "apply", "-f", str(file), "--prune")).splitlines()) == 3
    written = await slb.json(f"{serving.api}/written")
    assert written["routes"]["/p"]["members"]["10.0.0.1:80"] == "discovered"
    assert "10.0.0.3:80" not in written["routes"]["/p"]["members"]


async def test_a_failure_midway_says_what_was_done_and_the_next_run_goes_on(
    slb: Commands, serving: Serving, file: Kept
) -> None:
    file.write(
        '[routes."/p"]\nmembers = ["0.0.0.0", "10.0.0.1"]\nretries = 2\n[routes."/q"]\nmembers = ["10.0.0.2"]'
    )
    result = await slb.run("apply", "-f", str(file))
    assert (result.code, result.out) == (1, '+ routes."/p": retries = 2\n')
    *rest, last = result.err.splitlines()
    assert rest == [
        'failed: + routes."/p": member 0.0.0.0:80',
        'not made: + routes."/p": member 10.0.0.1:80',
        'not made: + routes."/q": member 10.0.0.2:80',
    ]
    assert last.startswith("slb: POST /register: 400 bad_request: target: 0.0.0.0 ")
    assert last.endswith(" (1 of 4 changes are made; a second run goes on)")
    file.write(file.text.replace('"0.0.0.0", ', ""))
    assert (await output(slb, "apply", "-f", str(file))).endswith("2 changes made\n")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, "No such file or directory"),
        ("[routes", "Expected ']'"),
        (
            '[routes."/p"]\nretires = 2',
            'routes."/p": retires: there is no route setting of this name; is retries meant?',
        ),
        ("[models.flux]", "has no job dispatcher"),
        ("[limits.m]\nmax_tokens_per_minute = 1\nmax_concurrent_requests = 1", "has no quota router"),
    ],
)
async def test_a_file_that_cannot_be_used_is_one_line_and_changes_nothing(
    slb: Commands, valkey: Valkey, monkeypatch: pytest.MonkeyPatch, file: Kept, text: str | None, fault: str
) -> None:
    await found_by_commands(slb, valkey, monkeypatch)
    if text is not None:
        file.write(text if text == "[routes" else f'{text}\n[routes."/new"]\nmembers = ["10.0.0.1"]\n')
    for command, code in (("diff", 2), ("apply", 1)):
        result = await slb.run(command, "-f", str(file))
        assert (result.code, result.out) == (code, "")
        assert fault in result.err
        assert len(result.err.splitlines()) == 1
    assert not valkey.admin.exists("slb_new")


async def with_input(serving: Serving, text: bytes, *arguments: str) -> Result:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "slb", *arguments, "--url", serving.api),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await soon(process.communicate(text), 30)
    assert process.returncode is not None
    return Result(process.returncode, out.decode(), err.decode())


async def test_a_document_may_come_on_standard_input(slb: Commands, serving: Serving) -> None:
    text = b'{"routes": {"/p": {"members": ["10.0.0.1"], "priorities": {"low": 1, "high": 8}}}}'
    made = await with_input(serving, text, "apply", "-f", "-")
    assert (made.code, made.err) == (0, "")
    assert made.out.splitlines() == [
        '+ routes."/p": priorities = "high=8,low=1"',
        '+ routes."/p": member 10.0.0.1:80',
        "2 changes made",
    ]
    wrong = await with_input(serving, b"\xff", "diff", "-f", "-")
    assert wrong.code == 2
    assert wrong.err.startswith("slb: standard input: 'utf-8' codec can't decode")


async def test_a_team_keeps_its_routes_with_a_token_for_them_alone(
    slb: Commands, valkey: Valkey, file: Kept
) -> None:
    tokens = Tokens(slb)
    await tokens.put("root", "--right", "admin")
    team = await tokens.put("team", "--right", "read", "--right", "register", "--prefix", "/team")
    serving = await serve_with_tokens(slb, valkey, tokens, "--roles", "proxy,quota")
    await until(
        lambda: slb.get(f"{serving.api}/token", Authorization=f"Bearer {team}"), lambda found: found[0] == 200
    )
    to_api = ("--url", serving.api, "--token", team)
    file.write(
        'prefix = "/team"\n[routes."/team/a"]\nmembers = ["10.0.0.1"]\nretries = 2\n'
        '[upstreams."10.0.0.1"]\nweight = 3'
    )
    assert (await output(slb, "apply", "-f", str(file), *to_api)).endswith("3 changes made\n")
    file.write(file.text.replace("weight = 3", ""))
    assert (await output(slb, "apply", "-f", str(file), *to_api)).endswith("(was 3)\n1 change made\n")
    file.write('prefix = "/team"\n[routes]')
    assert await output(slb, "apply", "-f", str(file), "--prune", *to_api) == '- routes."/team/a"\n1 change made\n'
    file.write('[routes."/else"]\nretries = 2')
    refused = await slb.run("apply", "-f", str(file), *to_api)
    assert (refused.code, refused.out) == (1, "")
    assert "403 forbidden: path: the token team lacks the right register for /else" in refused.err
    for command, code in (("export", 1), ("diff", 2), ("apply", 1)):
        words: Sequence[str] = () if command == "export" else ("-f", str(file))
        unknown = await slb.run(command, *words, "--url", serving.api, "--token", "wrong")
        assert (unknown.code, unknown.out) == (code, "")
        assert "401 unauthorized" in unknown.err


@pytest.mark.parametrize("sample", samples("toml", "# fleet.toml"))
async def test_the_sample_of_the_documents_is_applied_as_it_is(
    slb: Commands, serving: Serving, file: Kept, sample: str
) -> None:
    file.write(sample)
    assert (await slb.run("diff", "-f", str(file))).code == 1
    assert (await output(slb, "apply", "-f", str(file), "--prune")).endswith("9 changes made\n")
    assert await output(slb, "diff", "-f", str(file), "--prune") == ""
    exported = await output(slb, "export")
    assert (
        exported.partition("\n\n")[2].partition("[limits")[0] == sample.partition("\n")[2].partition("[limits")[0]
    )


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("--members", "some"), "--members: 'some' is none of static, all, none"),
        (("-o", "yaml"), "--output: 'yaml' is none of toml, json"),
        (("--only", "routes,users"), "--only: 'users' is none of routes, models, limits"),
        (
            ("--only", "limits", "--prefix", "/p"),
            "--only: there are no limits below /p: leave out --prefix, or limits",
        ),
        (("--only", "models", "--prefix", "/p"), "--only: there are no models below /p"),
        (("--prefix", "p"), "--prefix: path 'p' does not start with '/'"),
    ],
)
async def test_an_export_that_is_asked_for_wrongly_is_refused(
    slb: Commands, words: tuple[str, ...], fault: str
) -> None:
    result = await slb.run("export", *words)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"slb: {fault}")


async def test_what_cannot_be_used_is_left_out_of_an_export_and_reported(
    slb: Commands, serving: Serving, valkey: Valkey, file: Kept
) -> None:
    await output(slb, "register", "/p", "10.0.0.1")
    valkey.admin.hset("slb:route:/p", mapping={"retries": "2", "policy": "best"})
    await slb.until_json(
        f"{serving.api}/written", lambda found: found["routes"]["/p"]["settings"] == {"retries": 2}
    )
    result = await slb.run("export")
    assert result.code == 0
    assert result.err.startswith("slb: /p: left out, as it cannot be used: policy = 'best': ")
    assert "policy" not in result.out
    file.write(result.out)
    assert await output(slb, "apply", "-f", str(file), "--prune") == "0 changes\n"
    assert orjson.loads(await output(slb, "export", "-o", "json", "--only", "limits")) == {"limits": {}}


async def test_what_a_check_asks_for_without_a_path_is_refused_by_every_command_with_the_mend(
    slb: Commands, serving: Serving, file: Kept
) -> None:
    await output(slb, "register", "/p", "10.0.0.1")
    mend = "health_body = 'ok': without a health_path nothing is checked: set that too, to a path or to none"
    file.write('[routes."/p"]\nhealth_body = "ok"\n')
    for words in (("route", "set", "/p", "health_body=ok"), ("apply", "-f", str(file))):
        refused = await slb.run(*words)
        assert (refused.code, mend in refused.err) == (1, True), refused
    await output(slb, "route", "set", "/p", "health_path=/h")
    refused = await slb.run("apply", "-f", str(file), "--dry-run")
    assert (refused.code, mend in refused.err) == (1, True), refused
    file.write('[routes."/p"]\nhealth_path = "/h"\nhealth_body = "ok"\n')
    assert (await output(slb, "apply", "-f", str(file))).endswith("1 change made\n")
    refused = await slb.run("route", "unset", "/p", "health_path")
    unset = "health_body needs health_path: unset health_body with it, or set health_path to none"
    assert (refused.code, unset in refused.err) == (1, True), refused
    await output(slb, "route", "unset", "/p", "health_path", "health_body")


async def test_a_diff_as_json_has_the_calls_that_apply_would_make(
    slb: Commands, serving: Serving, file: Kept
) -> None:
    await output(slb, "register", "/p", "10.0.0.1")
    file.write('[routes."/p"]\nretries = 2\nmembers = ["10.0.0.2"]\n')
    shown = await slb.run("diff", "-f", str(file), "--json")
    assert (shown.code, shown.err) == (1, "")
    changes = orjson.loads(shown.out)["changes"]
    assert changes[0] == {
        "lines": ['+ routes."/p": retries = 2'],
        "method": "PATCH",
        "path": "/routes/p",
        "body": {"retries": 2},
    }
    assert [each["method"] for each in changes] == ["PATCH", "POST", "DELETE"]
    assert [line for each in changes for line in each["lines"]] == (
        await slb.run("diff", "-f", str(file))
    ).out.splitlines()
    await output(slb, "apply", "-f", str(file))
    assert orjson.loads(await output(slb, "diff", "-f", str(file), "--json")) == {"changes": []}
    failed = await slb.run("diff", "-f", str(file), "--json", "--url", "http://127.0.0.1:9")
    assert (failed.code, failed.out) == (2, "")


async def test_a_dry_run_foretells_what_the_instance_refuses_and_writes_nothing(
    slb: Commands, serving: Serving, file: Kept
) -> None:
    refused = {
        '[routes."/p"]\nhealth_body = "ok"\n': "PATCH /routes/p: 400 bad_request: settings of /p: health_body",
        '[routes."/p"]\nmembers = ["169.254.1.1:80"]\n': "POST /register: 400 bad_request: target: 169.254.1.1",
        '[models.flux]\nbuffer = "cloud-tasks"\n': "PUT /admin/model-configs/flux: 400 bad_request: buffer: ",
    }
    good = '[routes."/q"]\npolicy = "p2c"\nmembers = ["10.0.0.1:80"]\n'
    for text, told in refused.items():
        file.write(text + good)
        foretold = await slb.run("apply", "--dry-run", "-f", str(file))
        assert foretold.code == 1
        assert foretold.err.startswith(f"slb: {told}"), foretold.err
        assert foretold.err.endswith(" of 3 changes would be refused, none made (--dry-run))\n")
        assert '+ routes."/q": policy = "p2c"' in foretold.out
        assert await state(slb, serving) == await output(slb, "export", "--prefix", "/"), "nothing is written"
        assert "/q" not in await state(slb, serving)
        made = await slb.run("apply", "-f", str(file))
        assert made.code == 1
        assert foretold.err.split(" (")[0] in made.err, "the same message"
        await slb.run("route", "delete", "/p")
        await slb.run("route", "delete", "/q")
    file.write(good + "[models.flux]\nmax_retries = 3\n" + LIMITS)
    assert (
        (await output(slb, "apply", "--dry-run", "-f", str(file)))
        .splitlines()[-1]
        .endswith("changes, none made (--dry-run)")
    )
    assert "flux" not in await state(slb, serving)
    await output(slb, "apply", "-f", str(file))
    assert "flux" in await state(slb, serving)
    file.write("[routes]\n[models]\n[limits]\n")
    before = await state(slb, serving)
    await output(slb, "apply", "--dry-run", "--prune", "-f", str(file))
    assert await state(slb, serving) == before


LIMITS = "[limits.gpt]\nmax_tokens_per_minute = 600\nmax_concurrent_requests = 3\n"
