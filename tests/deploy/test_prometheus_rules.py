"""deploy/prometheus: Prometheus takes the rules, each alert fires when it should, and has its runbook."""

import re
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.support.documents import ROOT
from tests.support.prometheus import PROMTOOL
from tools.metric_names import declared, faults
from tools.reference import heading_anchors

FOLDER = ROOT / "deploy" / "prometheus"
_with_promtool = pytest.mark.skipif(not PROMTOOL.exists(), reason="apt-get install prometheus")


def _rules() -> list[Mapping[str, Any]]:
    groups = yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


WHAT_TO_DO = ("slb ", " in its log ", " in the log ", "The log of ", "ulimit -n", "Put its successor ")


def _labels(expression: str) -> list[str]:
    """By which an alert comes: each names the culprit."""
    return re.findall(r"\w+", "".join(re.findall(r"^\s*\w+ by \(([^)]*)\)", expression)))


ALERTS = {rule["alert"]: rule for rule in _rules() if "alert" in rule}


@_with_promtool
@pytest.mark.parametrize("words", [("check", "rules", "rules.yaml"), ("test", "rules", "tests.yaml")])
def test_promtool_takes_the_rules_and_their_cases_hold(words: tuple[str, ...]) -> None:
    run = subprocess.run([PROMTOOL, *words], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_rules_use_only_what_slb_counts_and_what_other_rules_record() -> None:
    recorded = {rule["record"]: frozenset({"route", "upstream"}) for rule in _rules() if "record" in rule}
    known = {**declared(), **{name.replace(":", "_"): labels for name, labels in recorded.items()}}
    found = {}
    for rule in _rules():
        expression = rule["expr"]
        for name in recorded:
            expression = expression.replace(name, name.replace(":", "_"))
        found[rule.get("alert", rule.get("record"))] = faults(expression, known)
    assert {name: each for name, each in found.items() if each} == {}


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_keeps_quiet() -> None:
    cases = yaml.safe_load((FOLDER / "tests.yaml").read_text())["tests"]
    asked = [(each["alertname"], bool(each["exp_alerts"])) for case in cases for each in case["alert_rule_test"]]
    assert set(asked) == {(name, fires) for name in ALERTS for fires in (True, False)}


@pytest.mark.parametrize("name", ALERTS)
def test_each_alert_tells_how_bad_it_is_and_where_its_runbook_is(name: str) -> None:
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert alert["annotations"]["summary"]
    description = alert["annotations"]["description"]
    assert description.endswith(".")
    assert any(word in description for word in WHAT_TO_DO), "what to type, or where to look"
    assert [
        each for each in _labels(alert["expr"]) if each not in description + alert["annotations"]["summary"]
    ] == []
    page, anchor = alert["annotations"]["runbook_url"].split("#")
    assert page == "docs/runbooks.md"
    assert anchor == name.lower()
    assert heading_anchors((ROOT / page).read_text())[anchor] == name


@pytest.mark.parametrize("name", ALERTS)
def test_each_runbook_says_what_it_means_how_to_see_it_and_what_to_do(name: str) -> None:
    section = (ROOT / "docs" / "runbooks.md").read_text().split(f"### {name}\n")[1].partition("\n#")[0]
    assert [word for word in ("**Means.**", "**See.**", "**Do.**") if word not in section] == []


def test_there_is_no_runbook_without_an_alert() -> None:
    page = (ROOT / "docs" / "runbooks.md").read_text()
    assert {line[4:] for line in page.splitlines() if line.startswith("### ")} == set(ALERTS)
