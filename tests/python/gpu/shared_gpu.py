"""Ranks that share the GPU, and the plans of tools/gpu, for tests of generated kernels."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

TREE = Path(__file__).parents[3]
if str(TREE / "tools" / "gpu") not in sys.path:
    sys.path.append(str(TREE / "tools" / "gpu"))
ranks_of_tools: Any = importlib.import_module("plan_ranks")
plan_forms: Any = importlib.import_module("plan_forms")
sample_plans: Any = importlib.import_module("sample_plans")

TIMEOUT_SECONDS = 10


@contextmanager
def sharing(ranks: int) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NARROWCAST_MAX_CTAS", "32")  # the ranks' kernels must fit on the GPU at the same time
        group = ranks_of_tools.Ranks(ranks, TIMEOUT_SECONDS)
        try:
            yield group
        finally:
            group.close()


def finish(group: Any) -> None:
    group.synchronize()
    for comm in group.comms:
        if error := comm.async_error():
            raise error
