"""Every regular expression in slb takes steps in proportion to its input, whatever that is; and the tools that
show this are right."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import slb
from tests.support.adversaries import slow, texts_for
from tests.support.fuzzing import examples
from tests.support.patterns import pattern_of, patterns_in
from tests.support.steps import METHODS, Text, TooManySteps, count

ROOT = Path(slb.__file__).parent
FOUND = patterns_in(ROOT)
USES = [(*key, method) for key, methods in sorted(FOUND.uses.items()) for method in sorted(methods)]
ENOUGH = 100_000
TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"

SLOW = [
    (rb"(" + TOKEN + rb"+):[\t ]*([\t\x20-\x7e\x80-\xff]*)", "fullmatch"),
    (rb"(?im)^x-a:[ \t]*([^\r\n]*?)[ \t]*\r?$", "search"),
    (rb"POST (/[a-z]{1,32}) HTTP/1\.1\r\n((?:" + TOKEN + rb"{1,64}: ?[!-~]?[ -~]*\r\n){1,32})\r\n", "fullmatch"),
    (rb"(a+)+b", "match"),
    (rb"(?:a|a)*b", "match"),
    (rb"(?:a|aa)+\Z", "match"),
    (rb"(?:.*,){9}x", "match"),
    (rb"a*a*b", "match"),
    (rb"(?:\s*\w\s*)*;", "fullmatch"),
    (rb"\s+\Z", "search"),
    (rb"a*b", "search"),
    (rb"<.*?>;", "findall"),
    (rb"(?<=x)[^;]*;", "sub"),
    (rb"(a*?)(a*?)b", "match"),
    (rb"(?>a*b?)*c|(?=(a*)*;)a", "match"),
    (rb"(a*)\1b", "match"),
    (r"(?i)(?:\u00e9+x?)+y", "fullmatch"),
]
LINEAR = [
    (rb"(" + TOKEN + rb"++):([\t\x20-\x7e\x80-\xff]*+)", "fullmatch"),
    (rb"(?:a++)*+b", "match"),
    (rb"(?>a*)b", "match"),
    (rb"a+b", "match"),
    (rb"(?:/[a-z]+)+", "fullmatch"),
    (rb"<[^<>]*>", "sub"),
    (rb"[ \t]{1,8}x", "search"),
    (rb"\A *;", "search"),
    (r"(?:[a-z]+,)*[a-z]+", "fullmatch"),
]


def test_every_pattern_has_a_name_in_its_module_and_is_called_by_it() -> None:
    assert FOUND.faults == []
    assert len(FOUND.uses) > 20


@pytest.mark.parametrize("use", USES, ids=".".join)
def test_twice_the_input_takes_a_pattern_about_twice_the_steps(use: tuple[str, str, str]) -> None:
    module, name, method = use
    assert slow(pattern_of(module, name), method) is None


def test_patterns_of_models_are_left_to_the_engine_that_never_goes_back() -> None:
    """pydantic's `pattern=` is Rust's regex, linear by construction, unless Python's is asked for."""
    assert [path for path in ROOT.rglob("*.py") if "regex_engine" in path.read_text()] == []


# -- the tools


@pytest.mark.parametrize(("pattern", "method"), SLOW, ids=str)
def test_a_slow_pattern_is_found_out(pattern: Any, method: str) -> None:
    assert slow(re.compile(pattern), method) is not None


@pytest.mark.parametrize(("pattern", "method"), LINEAR, ids=str)
def test_a_linear_pattern_is_let_be(pattern: Any, method: str) -> None:
    assert slow(re.compile(pattern), method) is None


CODE = {
    "hidden": "import re\ndef f(text):\n    return re.match('a', text)\n",
    "made anew": "import re\ndef f(name):\n    return re.compile(name)\n",
    "passed on": "import re\n_A = re.compile('a')\nuse(_A)\n",
    "unused": "import re\n_A = re.compile('a')\n",
    "imported": "from re import compile\n",
    "renamed": "import re as r\n",
}


@pytest.mark.parametrize("code", CODE.values(), ids=CODE)
def test_a_pattern_that_cannot_be_looked_at_is_a_fault(tmp_path: Path, code: str) -> None:
    (tmp_path / "module.py").write_text(code)
    assert patterns_in(tmp_path).faults != []


def test_a_pattern_of_another_module_is_known_with_its_methods(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import re\n_A = re.compile('a')\n_A.match('')\n")
    (tmp_path / "b.py").write_text(f"from {tmp_path.name}.a import _A as _B\n_B.sub('', '')\n")
    found = patterns_in(tmp_path)
    assert (found.faults, found.uses) == ([], {(f"{tmp_path.name}.a", "_A"): {"match", "sub"}})


def expected(pattern: "re.Pattern[Any]", method: str, text: Text) -> list[tuple[tuple[int, int], ...]]:
    if method in ("match", "fullmatch", "search"):
        match = getattr(pattern, method)(text)
        matches = [match] if match is not None else []
    else:
        matches = list(pattern.finditer(text))
    return [tuple(match.span(group) for group in range(pattern.groups + 1)) for match in matches]


def check(pattern: "re.Pattern[Any]", method: str, text: Text) -> None:
    found = count(pattern, method, text, 100 * ENOUGH).found
    assert found == expected(pattern, method, text), (pattern, method, text)


@pytest.mark.parametrize("use", USES, ids=".".join)
def test_the_counter_matches_what_the_engine_matches(use: tuple[str, str, str]) -> None:
    module, name, method = use
    pattern = pattern_of(module, name)
    for text in texts_for(pattern, 60):
        check(pattern, method, text)


atoms = st.sampled_from(
    ["a", "b", "[ab]", "[^a]", ".", r"\w", "^", "$", r"\b", "(?=a)", "(?!b)", "(?<=a)", "(?<!b)"]
)
quantifiers = st.sampled_from(
    ["", "*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{2}", "{1,2}", "{1,2}?", "{0,3}+"]
)


def repeated(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(st.sampled_from(["(?:", "(", "(?>"]), inner, st.just(")"), quantifiers).map("".join)


def alternatives(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, min_size=2, max_size=3).map(lambda ways: f"(?:{'|'.join(ways)})")


unitary = st.tuples(st.sampled_from(["a", "b", "[ab]", "."]), quantifiers).map("".join)
pieces = st.recursive(
    atoms | unitary,
    lambda inner: repeated(inner) | st.lists(inner, min_size=2, max_size=3).map("".join) | alternatives(inner),
    max_leaves=6,
)


modes = st.sampled_from([0, re.MULTILINE, re.DOTALL, re.IGNORECASE])


@settings(max_examples=examples(600))
@given(pieces, st.sampled_from(sorted(METHODS)), st.text("ab c", max_size=8), modes)
def test_the_counter_matches_as_the_engine_whatever_the_pattern(
    written: str, method: str, text: str, flags: int
) -> None:
    pattern = re.compile(written, flags)
    found = [spans[0] for spans in count(pattern, method, text, 100 * ENOUGH).found]
    assert found == [spans[0] for spans in expected(pattern, method, text)], (written, flags, method, text)


def test_the_counter_counts_each_item_that_is_tried() -> None:
    assert count(re.compile("ab"), "match", "ab", ENOUGH).steps == 3
    assert count(re.compile("b"), "search", "aaab", ENOUGH).steps == 8
    with pytest.raises(TooManySteps):
        count(re.compile("(a+)+b"), "match", "a" * 20, ENOUGH)


def test_the_counter_raises_for_what_it_does_not_have() -> None:
    with pytest.raises(NotImplementedError):
        count(re.compile("(a)?(?(1)b|c)"), "match", "ab", ENOUGH)
