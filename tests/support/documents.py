"""The documents of this repository, their samples and their tables."""

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
README = (ROOT / "README.md").read_text()
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def samples(language: str, begins: str = "") -> list[Any]:
    """All fenced blocks of this language that begin so, as parameters of a test."""
    return [
        pytest.param(match[2], id=f"{file.name}:{file.read_text()[: match.start()].count(chr(10)) + 1}")
        for file in DOCUMENTS
        for match in FENCE.finditer(file.read_text())
        if match[1] == language and match[2].startswith(begins)
    ]


def samples_of(page: str, wanted: str) -> list[str]:
    """Those in Python of one page that have the text `wanted` in them."""
    text = (ROOT / "docs" / page).read_text()
    return [code for language, code in FENCE.findall(text) if language == "python" and wanted in code]


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the table whose first column is called `heading`."""
    table = re.search(rf"^\| {heading} \|.*\n\|[-| ]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert table is not None, heading
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in table[1].splitlines()]
