"""How the tests of other projects are judged.

A test that fails here must be listed in expected_failures.py with its reason, unless it fails with the other project's
own implementation on this machine too. A listed test that passes is a failure, so that the list stays true.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest
from expected_failures import EXPECTED_FAILURES


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    listed = {(suite, name): why for suite, tests in EXPECTED_FAILURES.items() for name, why in tests.items()}
    for item in items:
        reason = listed.pop((item.path.stem, name_of(item)), None)
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    gone = [name for suite, name in listed if any(item.path.stem == suite for item in items)]
    if gone and not any("::" in argument for argument in config.args):
        raise pytest.UsageError(f"expected_failures.py lists tests that do not exist: {', '.join(gone)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    passes_elsewhere = getattr(item.module, "passes_elsewhere", None)
    if report.when == "call" and report.failed and passes_elsewhere and not item.get_closest_marker("xfail"):
        elsewhere, passes = passes_elsewhere(*name_of(item).split("::"))
        if not passes:
            report.outcome, report.wasxfail = "skipped", f"{elsewhere} fails, too"
    return report


def name_of(item: pytest.Item) -> str:
    """Class and name of a test."""
    return item.nodeid.split("::", 1)[1]
