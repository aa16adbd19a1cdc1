"""The conformance tests. A backend inherits from `Conformance` and provides the fixture `setting`."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import narrowcast
import pytest
from narrowcast._bench.launch import run_ranks

from .job import communicators_of

TESTS = Path(__file__).parent.parent
SECTIONS = (
    "small",
    "larger",
    "factors",
    "all_to_all_v",
    "groups",
    "streams",
    "graphs",
    "registration",
    "arguments",
    "traffic",
)
# The others have calls that only one level has.
_LEVEL_SECTIONS = ("small", "larger", "factors", "all_to_all_v", "groups", "graphs")
THREAD_SECTIONS = ("small", "groups", "streams", "registration")
_SCENARIOS = (
    ("abort", ("small", "large")),
    ("late", ("recv", "small", "large")),
    ("mismatch", ("small", "large", "window")),
)
_MAX_LINES = 20


@dataclass(frozen=True)
class Setting:
    """Where the ranks run. amount: how many cases to run: "all", "some" or "few"."""

    backend: str
    ranks: int
    devices: tuple[int, ...]  # of each rank; ignored by the host backend
    amount: str
    time_limit_seconds: float
    hosts: tuple[int, ...] = ()  # of each rank, numbered in the order of their first ranks
    two_levels: bool = False  # whether the communicators have two levels
    has_threads: bool = True  # whether the ranks are also threads of one process
    seed: int = field(default_factory=lambda: int(os.environ.get("NARROWCAST_TEST_SEED", "0")))

    def __str__(self) -> str:
        hosts = f" on hosts {self.hosts}" if self.hosts else ""
        return f"{self.backend}-{self.ranks}{hosts}"

    def arguments(self) -> list[dict[str, Any]]:
        """The environment of rank processes."""
        ranks = self.ranks
        shared = {"backend": self.backend, "ranks": ranks, "hosts": self.hosts, "two_levels": self.two_levels}
        return [{**shared, "device": self.devices[r], "rank": r} for r in range(ranks)]


@dataclass
class Report:
    """The results of the ranks."""

    setting: Setting
    rows: list[list[dict[str, Any]]] = field(
        default_factory=list
    )  # one row for each case, with the results of all ranks
    failure: str | None = None
    seconds: float = 0

    def of(self, section: str) -> list[list[dict[str, Any]]]:
        return [row for row in self.rows if row[0]["section"] == section]

    def assert_correct(self, section: str) -> None:
        """Fails if any case failed, with a list of them."""
        rows = self.of(section)
        seconds = sum(max(one["seconds"] for one in row) for row in rows)
        print(f"{self.setting}, {section}: {len(rows)} cases in {seconds:.1f} s, seed {self.setting.seed}")
        lines = []
        for row in rows:
            names = {one["case"] for one in row}
            assert len(names) == 1, f"the ranks run different cases: {names}"
            lines += [f"{one['case']}: rank {r}: {line}" for r, one in enumerate(row) for line in one["wrong"]]
        last = self.rows[-1] if self.rows else None
        if self.failure and (not rows or rows[-1] is last):
            at = f"after '{last[0]['section']}: {last[0]['case']}'" if last else "before the first case"
            lines.append(f"the ranks ended {at}: {self.failure}")
        elif not rows:
            lines.append("nothing was run")
        if lines:
            pytest.fail(_text(lines, self.setting), pytrace=False)

    def assert_same_bits(self) -> None:
        """NaNs may have any payload, but the same one with every codec and on all ranks."""
        lines = [
            f"{one['case']}: rank {r}: {line}" for row in self.rows for r, one in enumerate(row) for line in one["nans"]
        ]
        for row in self.rows:
            digests = Counter(one["digest"] for one in row)
            if len(digests) > 1 and not any(one["wrong"] for one in row):
                lines.append(f"{row[0]['case']}: the ranks have different results: {dict(digests)}")
        if lines:
            pytest.fail(_text(lines, self.setting), pytrace=False)


def _text(lines: list[str], setting: Setting) -> str:
    more = [f"... and {len(lines) - _MAX_LINES} more"] if len(lines) > _MAX_LINES else []
    return "\n".join([f"{len(lines)} wrong on {setting}, seed {setting.seed}:", *lines[:_MAX_LINES], *more])


def identities(sections: tuple[str, ...]) -> list[list[Any]]:
    """The sections with the ids of their communicators."""
    return [[name, [narrowcast.unique_id().hex() for _ in range(communicators_of(name))]] for name in sections]


def _run(job: str, arguments: list[dict[str, Any]], report: Report) -> Report:
    begin = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]))
        try:
            limit = report.setting.time_limit_seconds
            run_ranks(f"conformance.{job}", arguments, report.rows.append, timeout_seconds=limit)
        except narrowcast.NarrowcastError as error:
            report.failure = str(error)
    report.seconds = time.monotonic() - begin
    return report


@pytest.fixture(scope="class")
def report(setting: Setting) -> Report:
    """The results of all sections."""
    sections = _LEVEL_SECTIONS if setting.two_levels else SECTIONS
    sections = tuple(name for name in sections if name != "graphs" or setting.backend == "cuda")
    shared = {"sections": identities(sections), "amount": setting.amount, "seed": setting.seed}
    made = _run("job:run", [{**own, **shared} for own in setting.arguments()], Report(setting))
    print(f"{setting}: {len(made.rows)} cases, {made.seconds:.1f} s with the start of the processes")
    return made


@pytest.fixture(scope="class")
def failures(setting: Setting) -> dict[str, list[dict[str, Any]]]:
    """The results of the failure scenarios."""
    names = [f"{what} {how}" for what, hows in _SCENARIOS for how in hows]
    if setting.backend == "host":
        names.remove("mismatch window")
    if setting.two_levels:
        names = [name for name in names if name.startswith("abort")]
    ids = {name: narrowcast.unique_id().hex() for name in names}
    shared = {"unique_ids": ids, "host_id": narrowcast.unique_id().hex()}
    report = _run("failures:run", [{**own, **shared} for own in setting.arguments()], Report(setting))
    found = {row[0]["scenario"]: row for row in report.rows}
    for name in names:
        found.setdefault(name, [])
    if report.failure:
        found["failure"] = [{"message": report.failure}]
    return found


def links(setting: Setting) -> list[Any]:
    """The link of a communicator, according to each rank."""
    report = Report(setting)
    shared = {"unique_id": narrowcast.unique_id().hex()}
    _run("job:link", [{**own, **shared} for own in setting.arguments()], report)
    assert report.failure is None, report.failure
    return report.rows[0]


def _assert_correct(report: Report, section: str) -> None:
    if section == "graphs" and report.setting.backend != "cuda":
        pytest.skip("the host backend has no graphs")
    report.assert_correct(section)


class ConformanceOfLevels:
    """The tests of communicators of two levels. The module of a subclass also imports the fixtures `report` and
    `failures`."""

    @pytest.mark.parametrize("section", _LEVEL_SECTIONS)
    def test_every_case_is_correct(self, report: Report, section: str) -> None:
        _assert_correct(report, section)

    def test_results_have_the_same_bits_with_every_exact_codec_on_every_rank(self, report: Report) -> None:
        report.assert_same_bits()

    @staticmethod
    def _of(failures: dict[str, list[dict[str, Any]]], name: str) -> list[dict[str, Any]]:
        assert failures[name], f"'{name}' did not complete: {failures.get('failure')}"
        return failures[name]

    @pytest.mark.parametrize("size", ["small", "large"])
    def test_an_abort_ends_the_calls_that_wait_for_a_missing_rank(self, failures, size) -> None:
        for rank in self._of(failures, f"abort {size}"):
            assert rank["error"] == "AbortedError", rank
            assert rank["later"] == "AbortedError", rank
            assert rank["seconds"] < 20, rank
            assert rank["close_seconds"] < 20, rank

    def test_a_killed_rank_is_named_by_the_others(self, setting, tmp_path) -> None:
        shared = {"unique_id": narrowcast.unique_id().hex(), "folder": str(tmp_path)}
        report = _run("failures:killed", [{**own, **shared} for own in setting.arguments()], Report(setting))
        last = setting.ranks - 1
        assert report.failure == f"rank {last} was killed by signal 9"
        for rank in range(last):
            path = tmp_path / str(rank)
            assert path.exists(), f"rank {rank} wrote no result"
            result = json.loads(path.read_text())
            assert result["error"] == "RemoteError", result
            assert _names(result["message"], last), result
            assert result["seconds"] < 20, result
            assert result["close_seconds"] < 20, result


class Conformance(ConformanceOfLevels):
    """The tests of all others."""

    @pytest.mark.parametrize("section", SECTIONS)
    def test_every_case_is_correct(self, report: Report, section: str) -> None:
        _assert_correct(report, section)

    def test_ranks_may_be_threads_of_one_process(self, setting: Setting) -> None:
        if setting.backend == "cuda" and len(set(setting.devices)) < setting.ranks:
            pytest.skip("kernels of threads that share a GPU may wait for each other in one queue")
        if not setting.has_threads:
            pytest.skip("tested with another number of ranks, or impossible: the threads of a process are on one host")
        report = Report(setting)
        arguments = {
            "backend": setting.backend,
            "devices": setting.devices,
            "sections": identities(THREAD_SECTIONS),
            "seed": setting.seed,
        }
        _run("job:threads", [arguments], report)
        # One process reported for all ranks.
        report.rows = [row[0] for row in report.rows]
        for section in THREAD_SECTIONS:
            report.assert_correct(section)
        report.assert_same_bits()

    @pytest.mark.parametrize("how", ["recv", "small", "large"])
    def test_a_rank_that_never_calls_is_a_timeout_that_names_it(self, failures, setting, how) -> None:
        *waiting, missing = self._of(failures, f"late {how}")
        for rank in [*waiting, missing]:
            assert rank["error"] == "PeerTimeoutError", rank
            assert rank["seconds"] < rank["timeout_seconds"] + 20, rank
            assert rank["later"] == "PeerTimeoutError", rank
            assert rank["close_seconds"] < 20, rank
        for rank in waiting:
            # In a long collective a rank may wait for another rank that waits.
            named = range(setting.ranks) if how == "large" else [missing["rank"]]
            assert any(_names(rank["message"], other) for other in named), rank

    @pytest.mark.parametrize("size", ["small", "large", "window"])
    def test_calls_that_do_not_match_are_a_mismatch_on_every_rank(self, failures, setting, size) -> None:
        if size == "window" and setting.backend == "host":
            pytest.skip("the host backend detects the mismatch before any codec")
        rows = self._of(failures, f"mismatch {size}")
        for rank in rows:
            assert rank["error"] == "MismatchError", rank
            assert rank["seconds"] < rank["timeout_seconds"] + 20, rank
            assert rank["changed"] is None, rank


def _names(message: str, rank: int) -> bool:
    return re.search(rf"\brank {rank}\b", message) is not None
