"""The documents match the code: their samples are parsed and run, their tables compared."""

import ast
import inspect
import ipaddress
import re
import shlex
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

import slb.client
from slb import errors
from slb.addresses import AddressRules
from slb.admission.shown import Verdict
from slb.balance.ring_set import curve
from slb.cli import document
from slb.cli.entry import app
from slb.config import Settings
from slb.control import keys
from slb.job import ModelConfig
from slb.loading import load_settings
from slb.model import RouteSettings, setting_fault
from slb.observe.collectors import MetricsCollector, admission_families
from slb.observe.metrics import Metrics
from slb.observe.outbound import OutboundCollector, OutboundMetrics
from slb.observe.ring import ring_families
from tests.support.documents import DOCUMENTS, FENCE, OPERATIONS, README, ROOT, rows, samples
from tools import reference
from tools.event_names import logged

REFERENCE = sorted(ROOT.glob("docs/reference/*.md"))
CLIENT = (ROOT / "docs" / "client.md").read_text()
RING = (ROOT / "docs" / "ring.md").read_text()
GLOBAL_VIEW = (ROOT / "docs" / "global-view.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
KEPT = "# fleet.toml\n"
"""How samples of what `slb apply` takes begin; all others are settings of `slb serve`."""
_EVERYWHERE = ("git", "cd", ".", "curl", "export", "bash", "docker", "apt-get", "pip", "envoy", "kubectl", "helm")
"""Commands that are not ours to check."""


def _commands() -> list[Any]:
    found: list[Any] = []
    for sample in samples("sh"):
        for line in str(sample.values[0]).splitlines():
            words = shlex.split(line, comments=True)
            if words:
                found.append(pytest.param(words, id=f"{sample.id} {line}"))
    return found


@pytest.mark.parametrize("words", _commands())
def test_every_command_in_the_documents_exists_and_takes_its_words(words: list[str]) -> None:
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        assert words[0].split("=")[0].removeprefix("SLB_").removesuffix("_FILE").lower() in Settings.model_fields
        words = words[1:]
    program, *arguments = takewhile(lambda word: word not in ("&&", ">"), words)
    if program == "slb":
        _parse(typer.main.get_command(app), arguments)
    elif program == "make":
        targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert [word for word in arguments if "=" not in word and word not in targets] == []
    else:
        assert program in _EVERYWHERE


def _parse(command: Any, arguments: list[str]) -> None:
    """As far as the words go: unknown commands, flags, missing or excess arguments raise."""
    with command.make_context("slb", list(arguments)) as context:
        rest = [*context._protected_args, *context.args] if hasattr(context, "_protected_args") else context.args
        if hasattr(command, "commands") and rest:
            assert rest[0] in command.commands, rest
            _parse(command.commands[rest[0]], rest[1:])


def _options(command: Any) -> set[str]:
    """All that `--help` shows."""
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    return {name for each in shown for name in each.opts if name.startswith("--")} - {"--help"}


def _listed(group: Any, name: str) -> Iterator[tuple[str, set[str]]]:
    """What `group` has, as the table of commands shows it: those that speak to the API with a *."""
    of_the_api = {"--url", "--token", "--ca"}
    for word, command in group.commands.items():
        shown, options = f"{name} {word}", _options(command)
        if hasattr(command, "commands"):
            yield from _listed(command, shown)
        if not command.hidden and getattr(command, "invoke_without_command", True):
            yield (f"{shown} *", options - of_the_api) if of_the_api <= options else (shown, options)


def test_operations_has_every_command_with_its_options() -> None:
    listed = {row[0].replace("`", ""): set(re.findall(r"--[a-z-]+", row[1])) for row in rows(OPERATIONS, "command")}
    assert listed == dict(_listed(typer.main.get_command(app), "slb"))


def test_operations_has_every_event_of_the_log() -> None:
    """The library's own, of slb.client and the quota router's callers, are not a process's."""
    files = [
        file
        for file in sorted((ROOT / "slb").rglob("*.py"))
        if file.parent.name != "client" and file.name not in ("client.py", "standin.py")
    ]
    code = "".join(file.read_text() for file in files)
    listed = {name for row in rows(OPERATIONS, "event") for name in re.findall(r"[a-z_]{6,}", row[0])}
    always = {name for name, (levels, _) in logged(files).items() if levels != "debug" and "*" not in name}
    assert len(always) > 100
    assert always - listed == set()
    made_up = {"upstream_added", "upstream_removed"}
    assert [name for name in listed - made_up if f'"{name}"' not in code] == []


@pytest.mark.parametrize("sample", samples("toml"))
def test_every_toml_sample_is_one_slb_accepts(sample: str, tmp_path: Path) -> None:
    if sample.startswith(KEPT):
        assert document.read(sample).routes
        return
    file = tmp_path / "slb.toml"
    file.write_text(sample)
    load_settings({}, {}, file)
    assert tomllib.loads(sample)


@pytest.mark.parametrize("sample", samples("python"))
def test_every_python_sample_is_python_whose_names_are_there(sample: str) -> None:
    tree = compile(sample, "sample", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    arguments = inspect.signature(slb.client.Session).parameters
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "slb.client":
            assert node.attr in slb.client.__all__
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "slb.client.Session":
            assert {keyword.arg for keyword in node.keywords} <= set(arguments)


def test_the_librarys_page_has_every_argument_and_every_metric() -> None:
    arguments = inspect.signature(slb.client.Session).parameters.values()
    listed = [(row[0], row[1]) for row in rows(CLIENT, "argument")]
    assert listed == [(each.name, repr(each.default)) for each in arguments if each.kind is each.KEYWORD_ONLY]
    measured = {family.name for family in OutboundCollector(OutboundMetrics()).collect()}
    assert {row[0].partition("{")[0].removesuffix("_total") for row in rows(CLIENT, "metric")} == measured


def test_the_librarys_page_has_every_argument_of_a_registration() -> None:
    arguments = inspect.signature(slb.client.Registration).parameters.values()
    defaults = {each.name: "" if each.default is each.empty else repr(each.default) for each in arguments}
    assert {row[0]: row[1] for row in rows(CLIENT, "argument of `Registration`")} == defaults


def test_every_sample_is_in_a_language_that_is_checked() -> None:
    languages = {match[1] for file in DOCUMENTS for match in FENCE.finditer(file.read_text())}
    checked = {"sh", "toml", "acl", "python", "yaml", "ini", "nginx", "haproxy", "{toctree}", ""}
    assert languages <= checked, "give the language a test here, in test_operations, test_prometheus or test_site"


def test_the_units_for_systemd_can_be_read() -> None:
    """tests/deploy/test_systemd.py runs them."""
    units = [match[2] for file in DOCUMENTS for match in FENCE.finditer(file.read_text()) if match[1] == "ini"]
    for unit in units:
        read = ConfigParser(strict=False, interpolation=None)  # a drop-in empties a list before it adds to it
        read.read_string(unit)
        assert read.sections()


@pytest.mark.parametrize(
    "file", [*DOCUMENTS, *ROOT.glob("compose/*"), *ROOT.glob("examples/*.py")], ids=lambda file: file.name
)
def test_every_address_that_is_named_is_private_or_for_documentation(file: Path) -> None:
    found = set(re.findall(r"(?<![0-9.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9.])", file.read_text()))
    addresses = AddressRules((), lambda: ())
    named = [each for each in found if ipaddress.ip_address(each).is_global]
    assert [each for each in named if addresses.refusal(each, 80) is None] == [], "no upstream could be meant"


def test_curl_is_asked_for_nothing_that_an_older_one_has_not() -> None:
    """`--json` came with 7.82, in 2022."""
    assert [file.name for file in DOCUMENTS if re.search(r"curl\b.*--json", file.read_text())] == []


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.name)
def test_every_link_inside_the_project_leads_somewhere(file: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)", file.read_text()):
        there = file.parent / target if target else file
        assert there.exists(), target
        if anchor:
            assert anchor[1:] in reference.heading_anchors(there.read_text())


@pytest.mark.parametrize("file", REFERENCE, ids=lambda file: file.name)
def test_the_reference_is_what_the_tool_writes(file: Path) -> None:
    page = file.read_text()
    assert reference.written(page) == page, "make reference"


def test_the_reference_has_every_setting_and_every_answer_slb_gives_itself() -> None:
    reasons = {each for each in vars(errors).values() if isinstance(each, errors.Reason)} - {errors.CLIENT_GONE}
    pages = "".join(file.read_text() for file in REFERENCE)
    wanted = [f"| {each.status} | `{each.name}` |" for each in reasons]
    wanted += [f"| `{name}` |" for name in (*Settings.model_fields, *RouteSettings.model_fields)]
    assert [row for row in wanted if row not in pages] == []


def test_a_setting_that_stands_in_no_table_or_in_two_is_refused() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    for other in ("settings drain_delay", "settings drain_delay listen drain_timeout"):
        with pytest.raises(ValueError, match=r"drain_timeout|two tables"):
            reference.written(page.replace("settings drain_delay drain_timeout", other))


def test_the_reference_has_every_setting_of_a_models_jobs() -> None:
    text = (ROOT / "docs/reference/settings.md").read_text()
    _, table = text.split("## Settings of a model's jobs")
    assert [name for name in ModelConfig.model_fields if f"| `{name}` |" not in table] == []


def test_the_readme_is_read_in_three_minutes() -> None:
    """At 250 words a minute; commands and the table of peers are looked at, not read."""
    text = re.sub(r"```.*?```|^\|.*?$", "", README, flags=re.DOTALL | re.MULTILINE)
    assert len(re.findall(r"\w[\w'.,]*", re.sub(r"\]\([^)]*\)", "]", text))) <= 3 * 250
    assert re.findall(r"!\[.*?\]\(([^)\s]+)\)", README) == ["docs/images/dashboard-overview.png"]


def test_the_index_or_the_readme_leads_to_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    led_to = {*re.findall(r"\]\(([\w/-]+\.md)", index), *re.findall(r"\]\(docs/([\w/-]+\.md)", README)}
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert pages - led_to <= {"index.md", "quota-lab.md"}


def test_every_figure_of_the_readme_is_printed_by_the_command_it_names() -> None:
    """Within 3,000 characters behind that command in benchmarks.md; a line without a command is of the last."""
    (reasons,) = re.findall(r"## Why not .*?(?=\n## )", README, re.DOTALL)
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text()
    printed: list[str] = []
    for line in re.findall(r"^- (.*)$", reasons, re.MULTILINE):
        if command := re.search(r"`(?:python -m bench )?(make [^`]+|--[^`]+)`", line):
            places = [found.end() for found in re.finditer(re.escape(f"{command[1]}`"), benchmarks)]
            printed = [benchmarks[place : place + 3000] for place in places]
        for figure in re.findall(r"\d+[.,]\d+", line):
            assert any(re.search(rf"(?<!\S){re.escape(figure)}(?!\S)", each) for each in printed), figure


@pytest.mark.parametrize("words", _commands())
def test_every_route_setting_that_is_set_in_the_documents_can_be(words: list[str]) -> None:
    if words[:3] == ["slb", "route", "set"]:
        assert [fault for each in words[4:] if (fault := setting_fault(*each.split("=", 1)))] == []


def test_the_architecture_has_every_key_there_is() -> None:
    listed = {row[0].partition("<")[0] for row in rows(ARCHITECTURE, "key")}
    names = (
        "MEMBERS",
        "SETTINGS",
        "UPSTREAM",
        "INSTANCE",
        "INSTANCES",
        "IDENTITY",
        "GENERATION",
        "CHANGES",
        "LEASES",
        "DISCOVERED",
        "DISCOVERY_WRITERS",
        "RESTORING",
        "FLEET_CHANGES",
        "CANARY",
        "HEALTH",
    )
    assert listed == {getattr(keys, name) for name in names}


def test_the_architecture_has_every_key_of_a_pool() -> None:
    listed = [f"slb:{{/p}}:{row[0].partition('<')[0]}" for row in rows(ARCHITECTURE, "key of a pool")]
    assert sorted(listed) == sorted(keys.pool_keys("/p"))


def test_the_global_view_has_every_verdict_and_every_metric_of_admission() -> None:
    listed = [name for row in rows(GLOBAL_VIEW, "verdict") for name in re.split(r"`, `", row[0])]
    assert set(listed) == {name for part in get_args(Verdict) for name in get_args(part) or (part,)}
    measured = {family.name for family in admission_families(Metrics())}
    named = {row[0].partition("{")[0].removesuffix("_total") for row in rows(GLOBAL_VIEW, "metric")}
    assert named == measured | {"slb_upstream_inflight"}


def test_the_page_of_the_ring_has_every_metric_of_it_and_the_curve_as_it_is() -> None:
    measured = {family.name for family in ring_families(())}
    named = {row[0].partition("{")[0].removesuffix("_total") for row in rows(RING, "metric")}
    assert named == measured
    for progress, share in rows(RING, "of `fade_in`"):
        elapsed = float(progress.removesuffix(" %"))
        assert f"{100 * curve(0.0, 100.0, elapsed):.1f} %".replace("100.0", "100") == share


def test_the_page_of_the_ring_has_every_kind_of_key() -> None:
    for kind, *_ in rows(RING, "`hash_key`"):
        RouteSettings.model_validate({"hash_key": kind})
    kinds = {row[0].partition(":")[0] for row in rows(RING, "`hash_key`")}
    assert kinds == {"path", "ip", "header", "cookie", "query"}


def test_every_metric_that_is_named_is_measured() -> None:
    measured = {family.name for family in MetricsCollector(reference.metrics_of_all_roles()).collect()}
    named = set(re.findall(r"`(slb_[a-z_]+)[`{]", README + OPERATIONS + ARCHITECTURE + GLOBAL_VIEW)) - {"slb_"}
    assert {name.removesuffix("_total") for name in named} <= measured


def test_every_metric_that_is_measured_is_named() -> None:
    metrics = reference.metrics_of_all_roles()
    suffix = {"counter": "_total"}
    measured = {each.name + suffix.get(each.type, "") for each in MetricsCollector(metrics).collect()}
    pages = "".join(file.read_text() for file in DOCUMENTS)
    assert measured - set(re.findall(r"`(slb_[a-z_]+)[`{]", pages)) == set()


def test_the_architecture_has_every_room_and_no_other() -> None:
    block = re.search(r"## The rooms\n\n```\nslb/\n(.*?)```", ARCHITECTURE, re.DOTALL)
    assert block is not None
    named = {
        name for line in block[1].splitlines() for name in re.findall(r"[a-z_]+(?:/|\.py)", line.split("   ")[0])
    }
    rooms = {f"{each.name}/" if each.is_dir() else each.name for each in (ROOT / "slb").iterdir()}
    assert named == {room for room in rooms if not room.startswith("__") and room != "py.typed"}
