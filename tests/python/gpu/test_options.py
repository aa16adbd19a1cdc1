"""Options of communicators on GPUs. Two ranks on one GPU suffice, because no call is made."""

from __future__ import annotations

import narrowcast
import pytest
from narrowcast.cuda import device_count

pytestmark = pytest.mark.skipif(device_count() < 1, reason="no GPU")

MODEL = "narrowcast-costs 2 a machine\nall_gather 2 nvlink blocks:raw 1:9\nall_gather 2 nvlink blocks:window 1:8\n"


def explained_with(**options):
    """How both ranks explain an all-gather of 64 MiB."""
    with narrowcast.LocalRanks(2, backend="cuda", devices=[0, 0], **options) as comms:
        first, second = (comm.explain("all_gather", 32 << 20, dtype="uint8") for comm in comms)
    assert first == second
    return first


def test_options_apply(tmp_path):
    (tmp_path / "own.costs").write_text(MODEL)
    plain = explained_with()
    assert (plain.link, plain.predicted.nccl is None) == ("nvlink", False)
    assert explained_with(max_ctas=8).ctas == 8 < plain.ctas
    assert explained_with(max_collective_ctas=8).ctas == 8
    assert explained_with(p2p=False).link == "host"
    own = explained_with(cost_model=tmp_path / "own.costs")
    assert (own.codec, own.predicted.nccl) == ("raw", None)


def test_options_take_precedence_over_the_environment(tmp_path, monkeypatch):
    (tmp_path / "own.costs").write_text(MODEL)
    for name, value in {"MAX_CTAS": "8", "P2P": "0", "COST_MODEL": str(tmp_path / "own.costs")}.items():
        monkeypatch.setenv(f"NARROWCAST_{name}", value)
    explanation = explained_with()
    assert (explanation.link, explanation.ctas) == ("host", 8)
    explanation = explained_with(max_ctas=32, p2p=True, cost_model="")
    assert (explanation.link, explanation.ctas, explanation.predicted.nccl is None) == ("nvlink", 32, False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_ctas": 65}, "max_ctas is 65, not 0 to 64"),
        ({"cost_model": "/nowhere.costs"}, "cost_model: /nowhere.costs cannot be read"),
    ],
)
def test_invalid_options_are_rejected(options, words):
    with pytest.raises(narrowcast.InvalidArgumentError, match=words):
        explained_with(**options)
