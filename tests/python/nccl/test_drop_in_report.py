"""tools/gpu/gather_drop_in.py: the comparison of runs with and without the drop-in."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest

GATHER = Path(__file__).parents[3] / "tools" / "gpu" / "gather_drop_in.py"
REPORT = {
    "faults": [],
    "moved": {"gathered, rank 0": "0123456789abcdef"},
    "summed": {"losses, rank 0": "fedcba9876543210"},
    "near": {"losses, rank 0": {"values": [(4.0).hex(), (2.0).hex()], "tolerance": 0.01}},
    "chosen": {"tokens, rank 0": {"tokens": [[5, 6, 7]], "margins": [[0.5, 0.01, 0.5]], "enough": 0.1}},
    "seconds": {"step": 0.5},
}
STATS = {
    "communicators": [
        {
            "operations": [
                {
                    "operation": "all_gather",
                    "taken": 2,
                    "captured": 0,
                    "forwarded": 1,
                    "reasons": {"x": 1},
                    "raw_bytes": 8,
                    "wire_bytes": 6,
                    "saved_seconds": 0.5,
                }
            ]
        }
    ]
    * 2,
    "faults": [],
}


class Runs:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.joinpath("train").mkdir()
        for variant in ("nccl", "always", "always_again"):
            self.write(variant, REPORT)

    def write(self, variant: str, report: dict[str, object], status: int = 0) -> None:
        base = self.folder / "train" / variant
        base.with_suffix(".json").write_text(json.dumps(report))
        base.with_suffix(".status").write_text(f"{status}\n")
        base.with_suffix(".log").write_text("last line of the log\n")
        if variant != "nccl":
            base.with_suffix(".stats.json").write_text(json.dumps(STATS))

    def gather(self) -> tuple[int, dict[str, list[str]], dict[str, object]]:
        """Returns the exit status, the faults of each run, and the program's entry."""
        done = subprocess.run([sys.executable, GATHER, self.folder], capture_output=True, text=True, check=False)
        (program,) = json.loads(done.stdout)["programs"]
        return done.returncode, program["faults"], program


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path)


def changed(kind: str, name: str, value: object) -> dict[str, object]:
    report = copy.deepcopy(REPORT)
    report[kind][name] = value
    return report


def test_equal_runs_pass_and_calls_are_summed(runs):
    status, faults, program = runs.gather()
    assert status == 0
    assert not any(faults.values())
    assert program["comparison"]["always"]["times faster than NCCL"] == {"step": 1.0}
    (counters,) = program["runs"]["always"]["counters"]
    assert (counters["taken"], counters["forwarded"], counters["reasons"]) == (4, 2, {"x": 2})
    assert (counters["raw_bytes"], counters["wire_bytes"]) == (16, 12)


def test_moved_data_must_have_the_same_bits(runs):
    runs.write("always", changed("moved", "gathered, rank 0", "0123456789abcdee"))
    status, faults, _ = runs.gather()
    assert status == 1
    assert faults["always"] == ["gathered, rank 0: the bits differ from those of NCCL"]
    assert faults["always_again"] == ["gathered, rank 0: the bits differ from those of the first run"]


def test_sums_may_differ_from_nccl_by_rounding_but_not_between_runs(runs):
    near = {"values": [(4.0).hex(), (2.03).hex()], "tolerance": 0.01}
    for variant in ("always", "always_again"):
        runs.write(variant, changed("near", "losses, rank 0", near))
    assert runs.gather()[0] == 0
    runs.write("always_again", REPORT)
    assert runs.gather()[1]["always_again"] == ["losses, rank 0: the bits differ from those of the first run"]


@pytest.mark.parametrize("values", [[4.0, 2.05], [4.0], [4.0, float("nan")]])
def test_larger_differences_of_sums_fail(runs, values):
    near = {"values": [value.hex() for value in values], "tolerance": 0.01}
    runs.write("always", changed("near", "losses, rank 0", near))
    status, faults, _ = runs.gather()
    assert status == 1
    assert "losses, rank 0: differs from NCCL's" in faults["always"][0]


def test_differences_without_a_limit_are_only_reported(runs):
    values = [value.hex() for value in (4.0, 3.0)]
    for variant, second in (("nccl", 2.0), ("always", 3.0), ("always_again", 3.0)):
        values[1] = second.hex()
        runs.write(variant, changed("near", "losses, rank 0", {"values": values, "tolerance": None}))
    status, _, program = runs.gather()
    assert status == 0
    assert program["comparison"]["always"]["losses, rank 0: largest difference"] == 0.25


@pytest.mark.parametrize(("tokens", "holds"), [([5, 6, 8], True), ([5, 9, 7], True), ([4, 6, 7], False)])
def test_tokens_are_compared_up_to_the_first_uncertain_choice(runs, tokens, holds):
    chosen = {**REPORT["chosen"]["tokens, rank 0"], "tokens": [tokens]}
    for variant in ("always", "always_again"):
        runs.write(variant, changed("chosen", "tokens, rank 0", chosen))
    assert (runs.gather()[0] == 0) == holds


def test_failed_runs_are_shown_with_the_end_of_their_log(runs):
    runs.write("always", REPORT, status=134)
    status, faults, program = runs.gather()
    assert status == 1
    assert faults["always"] == ["ended with status 134"]
    assert program["runs"]["always"]["log"] == ["last line of the log"]


def test_rounds_are_compared_by_their_medians(runs):
    for variant, times in {"nccl": (0.6, 0.8), "always": (0.3, 0.2)}.items():
        for place, seconds in enumerate(times, 2):
            runs.write(f"{variant}_round{place}", {**REPORT, "seconds": {"step": seconds}})
    status, faults, program = runs.gather()
    assert status == 0
    assert not any(faults.values())
    assert program["medians"] == {"nccl": {"step": 0.6}, "always": {"step": 0.3}, "always_again": {"step": 0.5}}
    assert program["comparison"]["always"]["times faster than NCCL"] == {"step": 2.0}


def test_a_round_with_other_sums_fails(runs):
    report = changed("summed", "losses, rank 0", "0000000000000000")
    runs.write("always_round2", {**report, "seconds": {"step": 0.1}})
    status, faults, _ = runs.gather()
    assert status == 1
    assert faults["always_round2"] == ["losses, rank 0: the bits differ from those of the first run"]


def test_failures_with_nccl_alone_do_not_count(runs):
    runs.write("nccl", REPORT, status=1)
    status, faults, _ = runs.gather()
    assert status == 0
    assert faults["nccl"] == ["ended with status 1"]


def test_a_run_that_executes_no_calls_fails(runs):
    (runs.folder / "train" / "always.stats.json").unlink()
    (runs.folder / "train" / "always.stats.json").write_text(json.dumps({"communicators": [], "faults": []}))
    status, faults, _ = runs.gather()
    assert status == 1
    assert faults["always"] == ["no call was executed"]
