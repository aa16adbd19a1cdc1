"""Costs that the drop-in measures when it attaches, and keeps in the user's cache. On fakes and the host backend."""

from __future__ import annotations

import pytest
from narrowcast._bench import cost_model
from nccl_ranks import OPERATIONS, Ranks


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """The folder of the costs. Calls attach and measure."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("NARROWCAST_CALIBRATE", "1")
    monkeypatch.setenv("NARROWCAST_DEBUG", "INFO")
    return tmp_path / "narrowcast/costs"


@pytest.fixture
def run(preloaded, monkeypatch, tmp_path_factory):
    """Makes every call between two ranks. Returns their messages."""

    def run_all():
        folder = tmp_path_factory.mktemp("ranks")
        monkeypatch.setenv("TEST_FOLDER", str(folder))
        for correct in Ranks(preloaded, "nccl_calibration_jobs")("every_operation", 2):
            assert set(correct) == OPERATIONS
        return (folder / "log").read_text()

    return run_all


def test_costs_are_measured_once_and_then_found(cache, run, preloaded):
    said = run()
    assert said.count("measured the costs of 2 ranks over shm in ") == 1
    (path,) = cache.glob("*.costs")
    assert cost_model.load(path) is None
    lines = path.read_text().splitlines()
    assert lines[0].startswith("narrowcast-costs 2 Fake GPU, ")
    curves = {tuple(line.split()[:4]) for line in lines if line[0].islower()}
    for operation in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "send"):
        for series in ("frames:raw", "frames:window", "frames:window/incompressible"):
            assert (operation, "2", "shm", series) in curves
    # What was sent for the measurement does not count as traffic of the program.
    assert {raw for raw, _ in Ranks(preloaded).links("all_gather").values()} == {10_000}
    said = run()
    assert "measured the costs" not in said
    assert f"uses the costs in {path}" in said
    assert path.read_text().splitlines() == lines


def test_costs_that_are_broken_or_of_another_machine_are_measured_again(cache, run):
    run()
    (path,) = cache.glob("*.costs")
    text = path.read_text()
    for content, is_broken in ((text + "nonsense\n", True), (text.replace("# Fake GPU", "# Another GPU"), False)):
        path.write_text(content)
        said = run()
        assert "measured the costs of 2 ranks" in said
        assert ("measures costs again: " in said and "'nonsense'" in said) == is_broken
        assert "nonsense" not in path.read_text()
        assert "# Fake GPU" in path.read_text()


@pytest.mark.parametrize("variables", [{"CALIBRATE": "0"}, {"CALIBRATE": ""}, {"COST_MODEL": "own.costs"}])
def test_nothing_is_measured_unless_it_is_wanted(cache, run, monkeypatch, tmp_path, variables):
    (tmp_path / "own.costs").write_text("narrowcast-costs 2 a machine\nall_gather 2 shm frames:raw 1:9\n")
    for name, value in variables.items():
        monkeypatch.setenv(f"NARROWCAST_{name}", str(tmp_path / value) if name == "COST_MODEL" else value)
    run()
    assert not cache.exists()


@pytest.mark.parametrize("after_seconds", [0.02, 0.1, 0.2])
def test_an_abort_ends_the_measurement(cache, preloaded, after_seconds):
    on_ranks = Ranks(preloaded, "nccl_calibration_jobs")
    assert max(on_ranks("aborted", 2, after_seconds=after_seconds)) < 20
    # The measurement takes longer on any machine.
    if after_seconds == 0.02:
        assert not list(cache.glob("*.costs"))


def test_without_a_cache_costs_are_measured_and_used(cache, run, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    assert ": kept in this process\n" in run()


def test_costs_are_used_that_cannot_be_stored(cache, run):
    cache.mkdir(parents=True)
    cache.chmod(0o777)  # others could write to it
    assert ": they could not be stored\n" in run()
    assert not list(cache.iterdir())
