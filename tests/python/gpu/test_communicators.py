"""Communicators of GPUs: splits, types that are only moved, interruptions, users' codecs, torch's backend.

Between two GPUs, or with NARROWCAST_TEST_RANKS_PER_GPU=2 on one.
"""

from __future__ import annotations

import os

import narrowcast
import pytest
from narrowcast._bench.launch import run_ranks
from narrowcast.cuda import device_count

RANKS = 2
SECONDS = 120

pytestmark = pytest.mark.skipif(
    device_count() * int(os.environ.get("NARROWCAST_TEST_RANKS_PER_GPU", "1")) < RANKS, reason="fewer than 2 GPUs"
)


@pytest.fixture
def run(rank_jobs):
    def run(job: str, **options):
        ranks = [{"rank": rank, "ranks": RANKS, "device": rank % device_count(), **options} for rank in range(RANKS)]
        results: list[list] = []
        run_ranks(f"gpu_comm_jobs:{job}", ranks, results.append, timeout_seconds=SECONDS)
        return results[0]

    return run


def test_ranks_split_and_both_communicators_work(run):
    results = run("splitting", unique_id=narrowcast.unique_id().hex())
    assert results == [[1, 2, 3.0, 1, 2.0], [0, 2, 3.0, 1, 2.0]]


def test_bool_and_int16_are_moved(run):
    assert run("moving", unique_id=narrowcast.unique_id().hex()) == [[True, True]] * RANKS


def test_an_interrupt_ends_a_close_that_waits_for_a_kernel(run):
    (first, seconds), (last, _) = run("interrupted", unique_id=narrowcast.unique_id().hex())
    assert (first, last) == ("KeyboardInterrupt", "AbortedError")
    assert seconds < 3


def test_a_users_codec_gives_the_same_bits_as_on_cpus(run, codec_with_header):
    ids = {"unique_id": narrowcast.unique_id().hex(), "host_id": narrowcast.unique_id(local=True).hex()}
    for wrong, ratio, host_ratio in run("registered", library=str(codec_with_header()), **ids):
        assert wrong == []
        assert 0.1 < ratio < 0.3
        assert ratio == pytest.approx(host_ratio, rel=0.01)


def test_the_backend_of_torch_works_with_cuda_tensors(run, tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")
    assert run("torch_backend", folder=str(tmp_path)) == [[True] * 5] * RANKS
