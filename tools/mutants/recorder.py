"""A plugin of pytest: writes down which lines of slb each test file runs. `SLB_MUTANTS_RECORD` names the file that
tools.mutants.reach reads; each process of pytest adds its own suffix."""

import os
from collections.abc import Iterator

import pytest
from coverage import Coverage

_RECORD = Coverage(data_file=os.environ["SLB_MUTANTS_RECORD"], data_suffix=True, config_file=False, source=["slb"])
_RECORD.start()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Each test counts for its file, as in a node's name. What an import runs counts for none."""
    _RECORD.switch_context(item.nodeid.partition("::")[0])
    return (yield)


def pytest_sessionfinish() -> None:
    """Save what this process has seen."""
    _RECORD.stop()
    _RECORD.save()
