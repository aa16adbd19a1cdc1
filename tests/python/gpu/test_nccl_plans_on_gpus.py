"""Plans of the user in the drop-in, as generated kernels, under the real NCCL.

NARROWCAST_TEST_RANKS_PER_GPU=k puts k ranks on each GPU, as in test_nccl.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from narrowcast.cuda import device_count
from narrowcast.plan import Program, build
from nccl_program import RANKS_PER_GPU
from nccl_ranks import OPERATIONS

RANKS = min(8, device_count() * RANKS_PER_GPU)
# The ranks' kernels must fit on a GPU at the same time.
MAX_CTAS = "32"
RULE = "[[plan]]\nfile = '{}'\nuse = 'always'\ndtype = '{}'\n{}\n"

pytestmark = pytest.mark.skipif(RANKS < 2, reason="fewer than 2 GPUs")


@pytest.fixture
def use(on_ranks, tmp_path, monkeypatch) -> Any:
    """Makes plans for some calls, or (limits) for those of some sizes."""
    folder = tmp_path / "plans"
    folder.mkdir()
    monkeypatch.setenv("NARROWCAST_PLANS", str(folder))
    monkeypatch.setenv("NARROWCAST_CONFIG", str(tmp_path / "rules.toml"))
    monkeypatch.setenv("NARROWCAST_PLAN_CACHE", str(tmp_path.parent / "kernels"))
    if RANKS_PER_GPU > 1:
        monkeypatch.setenv("NARROWCAST_MAX_CTAS", MAX_CTAS)

    def write(limits: str = "") -> None:
        p = Program("all_reduce", RANKS, chunks=RANKS, name="my two shot")
        for r in p.ranks:
            total = r.reduce(peer.input[r.index] for peer in p.ranks)
            for peer in p.ranks:
                peer.output[r.index] = total
        plans = {
            "reduce.json": (p, "int32"),
            "gather.json": (build("ring", "all_gather", RANKS, codec="window"), "bfloat16"),
            "broadcast.json": (build("tree", "broadcast", RANKS, root=1), "bfloat16"),
        }
        for name, (plan, _) in plans.items():
            plan.save(folder / name)
        (tmp_path / "rules.toml").write_text(
            "".join(RULE.format(name, dtype, limits) for name, (_, dtype) in plans.items())
        )

    return write


@pytest.mark.parametrize("count", [1, 5000, 3_000_000])
def test_calls_run_plans_of_the_folder(on_ranks, use, count):
    use()
    for correct in on_ranks("every_operation", RANKS, count=count):
        assert set(correct) == OPERATIONS
    assert on_ranks.plans() == {
        "all_reduce": {"my two shot": 1},
        "all_gather": {"all_gather ring": 1},
        "broadcast": {"broadcast tree": 1},  # the one with root 1 of two
    }
    assert {forwarded for _, forwarded in on_ranks.taken().values()} == {0}
    if count == 3_000_000:
        for raw_bytes, wire_bytes in on_ranks.links("all_gather").values():
            assert raw_bytes == 2 * count * (RANKS - 1)
            assert wire_bytes < raw_bytes


@pytest.mark.parametrize("limits", ["max_bytes = 1000", "min_bytes = 1000000"])
def test_calls_of_other_sizes_do_not_run_them(on_ranks, use, limits):
    use(limits)
    for correct in on_ranks("every_operation", RANKS, count=5000):
        assert set(correct) == OPERATIONS
    assert on_ranks.plans() == {}


def test_graphs_run_plans(on_ranks, use):
    use()
    for found in on_ranks("captured", RANKS, before=False):
        assert found == [False, True, True]
    assert set(on_ranks.plans()["all_gather"]) == {"all_gather ring"}
