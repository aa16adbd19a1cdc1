"""DDP and FSDP2 with codecs, between processes on CPUs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from narrowcast._bench.launch import run_ranks

pytest.importorskip("torch", reason="torch is not installed")

SECONDS = 300


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a function of compression_jobs.py on every rank. Returns the results of the ranks."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def run(job: str, ranks: int) -> list:
        arguments = [{"folder": str(tmp_path), "rank": rank, "ranks": ranks} for rank in range(ranks)]
        found: list[list] = []
        run_ranks(f"compression_jobs:{job}", arguments, found.append, timeout_seconds=SECONDS)
        return found

    return run


@pytest.mark.parametrize("ranks", [2, 3])
def test_averages_have_the_error_of_the_codec_and_the_same_bits_on_all_ranks(run, ranks):
    # Of normal values, relative, for one encoding of each contribution and one of the average.
    most = {"window!": 2e-3, "int8:group=32!": 0.015, "int4:group=32!": 0.2, "int2:group=32!": 1.2}
    rows = run("averages", ranks)
    assert len(rows) == 8
    for row in rows:
        assert len({tuple(one) for one in row}) == 1
        codec, dtype, error, same = row[0]
        assert same, row
        assert error < most[codec], row
        assert dtype == "torch.bfloat16" or (error < 1e-6) == (codec == "window!"), row


def test_contributions_and_averages_can_have_different_codecs(run):
    rows = run("two_codecs", 3)
    assert all(row[0] == row[-1] and row[0][1] for row in rows)  # every rank has the same bits
    wide, four_eight, eight_four, raw_four, narrow = ([row[0][0] for row in rows[i : i + 2]] for i in range(0, 10, 2))
    assert wide[0] < 0.012
    assert raw_four[0] == pytest.approx(eight_four[0], rel=0.05)  # 8 bits hardly add to the error
    assert wide[0] < four_eight[0] < eight_four[0] < narrow[0]  # each rank's own part is exact
    for plain, fed_back in (wide, four_eight, eight_four, raw_four, narrow):
        assert plain == pytest.approx(fed_back, rel=0.05)


def test_error_feedback_makes_the_mean_of_many_averages_exact(run):
    (without, _), (fed_back, _), (random, _), (random_fed_back, _) = run("constant_gradients", 2)
    assert without > 0.05
    assert fed_back < without / 10
    assert random_fed_back < random / 2


def test_losses_can_be_saved_reset_and_rescaled(run):
    continued, forgotten, *rest = run("interrupted", 2)
    assert continued == [True, True]
    assert forgotten == [False, False]  # losses change what is sent
    assert rest == [[True, True]] * 6


def test_ddp_learns_as_with_gloo_and_keeps_its_replicas_equal(run):
    (plain, _), *coded = run("ddp", 2)
    assert plain[1] < 0.4
    for row in coded:
        assert all(one[2] for one in row), row
        assert row[0][1] == pytest.approx(plain[1], rel=0.02), row


def test_fsdp_learns_as_with_gloo(run):
    *losses, (names, _), (same, _) = run("fsdp", 2)
    plain, exact, gradients, both, two_bits, two_bits_of_differences, differences = (loss for loss, _ in losses)
    assert plain < 0.4
    assert exact == pytest.approx(plain, rel=1e-3)
    for loss in (gradients, both, differences, two_bits_of_differences):
        assert loss == pytest.approx(plain, rel=0.02)
    assert two_bits != pytest.approx(plain, rel=0.05)
    assert names == [["layers.0/2", "layers.2/2"], True]
    assert same


def test_invalid_codecs_and_models_are_rejected(run):
    (unknown, _), (budget, _), (group, _), (apart, _), (random, _), (plain, _) = run("wrong_uses", 2)
    assert "int9" in unknown
    assert budget == "error feedback needs to know the codec: name one, or set error_feedback=False"
    assert "group" in group
    assert "does not combine with codec int8" in apart
    assert "rounding=nearest" in random
    assert "fully_shard" in plain
