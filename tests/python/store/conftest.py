from __future__ import annotations

import pytest
from narrowcast import store
from store_tables import LAYOUTS, table


@pytest.fixture(scope="module")
def rows():
    return table()


@pytest.fixture(scope="module", params=LAYOUTS)
def opened(request, rows):
    with store.build(rows, layout=request.param) as made:
        yield made
