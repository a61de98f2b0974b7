"""What a dashboard is, and the JSON that Grafana 10 and later import."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tools.metric_names import declared, faults

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"
_SCHEMA = 39
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24
"""Columns of Grafana's grid."""
_SHAPES = {"stat": (4, 4), "timeseries": (12, 8)}
"""Kind of panel -> its width and height."""
OURS = 'job=~"$job",instance=~"$instance"'
"""What `%s` stands for in an expression: the instances that are chosen."""

Kind = Literal["stat", "timeseries"]


@dataclass(frozen=True)
class Panel:
    """`lines`: PromQL -> its legend; `%s` in one is `OURS`. `unit` as Grafana names it. `what`: what it shows, and
    what is bad. Of a stat, `most`: from which figure on it is red; `least`: below which."""

    title: str
    unit: str
    lines: dict[str, str]
    what: str
    kind: Kind = "timeseries"
    most: float | None = None
    least: float | None = None
    stacked: bool = False


@dataclass(frozen=True)
class Row:
    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Variable:
    """One that is chosen at the top: the values that `label` has in `metric`."""

    name: str
    metric: str
    label: str


@dataclass(frozen=True)
class Board:
    """`name`: of its file, and of its fixed uid `slb-<name>`."""

    name: str
    title: str
    variables: Sequence[Variable]
    rows: Sequence[Row]

    @property
    def panels(self) -> Iterator[Panel]:
        return (panel for row in self.rows for panel in row.panels)


_OF_ALL = (
    Variable("job", "slb_build_info", "job"),
    Variable("instance", 'slb_build_info{job=~"$job"}', "instance"),
)


def text_of(board: Board) -> str:
    """The file's text. Raises ValueError naming each panel with a metric or label that slb does not declare."""
    known = declared()
    wrong = [
        f"{board.name}, {panel.title}: {fault}"
        for panel in board.panels
        for line in panel.lines
        for fault in faults(line, known)
    ]
    wrong += [
        f"{board.name}, ${each.name}: {fault}" for each in board.variables for fault in _variable_faults(each)
    ]
    if wrong:
        raise ValueError("; ".join(wrong))
    return json.dumps(_document(board), indent=2) + "\n"


def _variable_faults(variable: Variable) -> list[str]:
    return faults(f'{variable.metric}{{{variable.label}=""}}', declared())


def _document(board: Board) -> dict[str, Any]:
    return {
        "uid": f"slb-{board.name}",
        "title": board.title,
        "tags": ["slb"],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [{"type": "dashboards", "tags": ["slb"], "title": "slb", "asDropdown": True, "keepTime": True}],
        "templating": {"list": [_datasource(), *map(_variable, (*_OF_ALL, *board.variables))]},
        "annotations": {"list": []},
        "panels": list(_placed(board.rows)),
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}}


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({variable.metric}, {variable.label})", "refId": variable.name},
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "refresh": 2,
        "sort": 1,
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _placed(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Rows one below the other, their panels from left to right."""
    top, number = 0, 0
    for row in rows:
        number += 1
        place = {"h": 1, "w": _WIDTH, "x": 0, "y": top}
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "gridPos": place, "panels": []}
        top, left, height = top + 1, 0, 0
        for panel in row.panels:
            width, tall = _SHAPES[panel.kind]
            if left + width > _WIDTH:
                top, left, height = top + height, 0, 0
            number, height = number + 1, max(height, tall)
            yield _panel(panel, number, {"h": tall, "w": width, "x": left, "y": top})
            left += width
        top += height


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.what,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": line.replace("%s", OURS),
                "legendFormat": legend,
                "instant": panel.kind == "stat",
                "range": panel.kind != "stat",
            }
            for index, (line, legend) in enumerate(panel.lines.items())
        ],
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    found: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.kind == "stat":
        return {**found, "thresholds": {"mode": "absolute", "steps": _steps(panel)}}
    stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
    return {
        **found,
        "custom": {"fillOpacity": 20 if panel.stacked else 5, "showPoints": "never", "stacking": stacking},
    }


def _steps(panel: Panel) -> list[dict[str, Any]]:
    if panel.least is not None:
        return [{"color": "red", "value": None}, {"color": "green", "value": panel.least}]
    red = [] if panel.most is None else [{"color": "red", "value": panel.most}]
    return [{"color": "green", "value": None}, *red]


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {"colorMode": "value", "graphMode": "none", "reduceOptions": {"calcs": ["lastNotNull"]}}
    return {
        "legend": {
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
            "calcs": ["lastNotNull", "max"],
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
