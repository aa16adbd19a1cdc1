"""Selects the tests of torch that test_c10d.py lists."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def is_unlisted(item: pytest.Item) -> bool:
        listed = getattr(getattr(item, "module", None), "C10D_TESTS", None)
        return listed is not None and item.name not in listed

    unlisted = [item for item in items if is_unlisted(item)]
    if unlisted:
        config.hook.pytest_deselected(items=unlisted)
        items[:] = [item for item in items if not is_unlisted(item)]
