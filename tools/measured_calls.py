"""Measured calls between GPUs, and their predictions by simulations of the plans that their kernels implement.

They are read from reports of `narrowcast bench` and `narrowcast plan bench` and from cost models of `narrowcast tune`.
"""

from __future__ import annotations

import functools
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from narrowcast import plan
from narrowcast._native.operations import describe
from narrowcast._native.plan import NativePlan

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools" / "gpu"))
import sample_plans  # noqa: E402

SMALLEST_BYTES = 1 << 20  # of the larger buffer
MOST_CTAS = 64
#: What encoding makes of normally distributed values and of weights, where a file does not say it.
USUAL_RATIO = 0.6976
#: The measured commits, oldest first.
COMMITS = (
    "70fbe887", "25111e02", "d304d6d6", "f6626c87", "9a6c2699", "e977326f", "06af846a", "c07fbfa4",
    "cc7c6d1d", "c1a79041", "ca789a36", "41db5ba2", "30b44d42", "b86cbcab", "4bd46480",
)  # fmt: skip
#: Since this commit, all-reduces by blocks are launched in clusters if their pieces have so many bytes.
CLUSTERS_COMMIT, CLUSTERED_BYTES = "c07fbfa4", 16 << 20
#: Plans run by packets on generated kernels, and descriptions of machines are of these. The kernels that are written by
#: hand have up to three times the instructions. Where ranks send and receive at the same time they are slower, as if
#: responses took so many bytes for each byte. Fitted to the same files as the descriptions (fit_machine.py).
WRITTEN_PACKETS_RESPONSE_SHARE = 0.29
#: Since this commit, those that reduce have as few instructions as generated ones.
SUMS_COMMIT = "30b44d42"
#: Since this commit, all-gathers of so many bytes between two ranks take their rows as generated ones do.
GATHERS_COMMIT, GATHERED_BYTES = "b86cbcab", 2 << 20


class Case(NamedTuple):
    """A measured call."""

    file: str
    commit: str  #: of COMMITS
    operation: str  #: of operations.def, "sendrecv" to the next rank, or "sendrecv one-way" from rank 0 to rank 1
    ranks: int
    way: str  #: packets, raw or window: values in packets, or blocks in slots with this codec
    ctas: int
    nbytes: int  #: of the larger buffer
    ratio: float  #: wire bytes / raw bytes
    measured_us: float
    plan: str = ""  #: of tools/gpu/sample_plans.py, which a generated kernel runs

    @property
    def call(self) -> tuple[object, ...]:
        """Equal for measurements, on machines of one kind, of calls that are the same for the simulation."""
        ratio = round(min(1, self.ratio), 2)
        return (Path(self.file).parent, self.operation, self.ranks, self.way, self.ctas, self.nbytes, ratio, self.plan)

    @property
    def is_like_generated(self) -> bool:
        """Whether the hand-written kernel of a call by packets has no more instructions than a generated one."""
        if self.operation == "all_gather" and self.ranks == 2 and self.nbytes >= GATHERED_BYTES:
            return COMMITS.index(self.commit) >= COMMITS.index(GATHERS_COMMIT)
        reduces = not self.operation.startswith("sendrecv") and describe(self.operation).reduces
        return reduces and COMMITS.index(self.commit) >= COMMITS.index(SUMS_COMMIT)

    def predict(self, machine: dict[str, Any]) -> float:
        """The time of a call in a row of calls, in microseconds."""
        has_parts = not self.operation.startswith("sendrecv") and describe(self.operation).parted
        piece_bytes = self.nbytes // (self.ranks if has_parts else 1)
        described = {**machine, "ctas": self.ctas}
        if COMMITS.index(self.commit) < COMMITS.index(CLUSTERS_COMMIT):
            described.pop("clustered_ctas", None)
        if self.way == "packets" and not self.plan and not self.is_like_generated:
            described["link_packets_response_share"] = WRITTEN_PACKETS_RESPONSE_SHARE
        lowered = lowered_plan(self.operation, self.ranks, self.way, self.plan)
        report = lowered.simulate(json.dumps(described), piece_bytes=piece_bytes, ratio=min(1, self.ratio))
        return float(report["repeated_us"])


@functools.cache
def lowered_plan(operation: str, ranks: int, way: str, sample: str) -> NativePlan:
    """The plan that the kernel of a call implements, in the form in which it runs it."""
    codec = "window" if way == "window" else "raw"
    by_blocks = way != "packets"
    sends = operation.startswith("sendrecv")
    reduces = not sends and describe(operation).reduces
    relays = by_blocks and (operation == "reduce" or (operation == "broadcast" and ranks > 2))
    if sends:
        model = send_plan(codec, is_one_way=operation.endswith("one-way"))
    elif sample:
        model = json.loads(sample_plans.PLANS[sample][1](ranks, codec))
    else:
        model = json.loads(plan.build("relay" if relays else "all_pairs", operation, ranks, codec=codec).json())
    for channel in model["channels"]:
        channel["packets"] = not by_blocks
        channel["depth"] = 8
    if by_blocks and reduces:  # every warp does everything
        for rank in model["ranks"]:
            rank["groups"] = [{"steps": [step for group in rank["groups"] for step in group["steps"]]}]
    if by_blocks and not reduces and not relays and not sends:  # every message is encoded, by a warp of its own
        model["in_place"] = "no"
        for rank in model["ranks"]:
            rank["groups"] = [{"steps": [{**step, "to": [to]}]} for group in rank["groups"]
                              for step in group["steps"] for to in step["to"]]  # fmt: skip
    return NativePlan.read(json.dumps(model)).lower()


def send_plan(codec: str, *, is_one_way: bool) -> dict[str, Any]:
    """Sends between two ranks: the messages of an operation in place.

    Sends in a ring of more ranks take as long: every rank sends to one rank and receives from one over its own link."""
    operation = "broadcast" if is_one_way else "all_gather"
    model: dict[str, Any] = json.loads(plan.build("all_pairs", operation, 2, codec=codec).json())
    model["in_place"] = "yes"
    for rank in model["ranks"]:
        for group in rank["groups"]:
            for step in group["steps"]:
                step["to"] = [to for to in step["to"] if "channel" in to or "channel" in step["from"][0]]
            group["steps"] = [step for step in group["steps"] if step["to"]]
    return model


def cases_of(path: Path) -> list[Case]:
    """The calls of a file that are long enough."""
    text = path.read_text()
    name = str(path.resolve().relative_to(ROOT)) if path.resolve().is_relative_to(ROOT) else path.name
    if path.suffix == ".costs":
        found = _cases_of_costs(name, text)
    else:
        report = json.loads(text)
        found = _cases_of_plan_report(name, report) if "plans" in report else _cases_of_report(name, report)
    return [case for case in found if case.nbytes >= SMALLEST_BYTES]


def current(cases: Iterable[Case]) -> list[Case]:
    """Without measurements that a later commit repeated: kernels have changed, and the simulation is of today's."""
    cases = list(cases)
    latest: dict[tuple[object, ...], int] = defaultdict(int)
    for case in cases:
        latest[case.call] = max(latest[case.call], COMMITS.index(case.commit))
    return [case for case in cases if COMMITS.index(case.commit) == latest[case.call]]


def _commit_of(name: str) -> str:
    found = [one for one in COMMITS if name.startswith(one)]
    if not found:
        raise ValueError(f"add commit {name[:8]} to COMMITS")
    return found[0]


def _way_of(run: dict[str, Any], row: dict[str, Any]) -> str | None:
    if row["codec"] == "auto" and (run["codecs"] != ["auto"] or run["data"] == "random"):
        return None  # measured with each codec, too; or not known, because encoding does not shrink the values
    if row["ratio"] > 1:  # packets are larger than their values
        return "packets"
    chosen = "window" if row["ratio"] < 1 else "raw"
    return {"auto": chosen, "raw": "raw", "window": "window"}.get(row["codec"])


def _cases_of_report(name: str, report: dict[str, Any]) -> Iterable[Case]:
    for run in report["runs"]:
        if run["operation"] == "all_to_all_v":
            continue
        operation = run["operation"] + (" one-way" if run["pattern"] == "one-way" else "")
        for row in run["rows"]:
            way = _way_of(run, row) if row["contender"] == "narrowcast" else None
            if way is None:
                continue
            commit = _commit_of(run.get("commit") or report["commit"])
            if run.get("clusters"):  # a variant of all kernels, of which CLUSTERS_COMMIT adopted these
                is_long = row["size_bytes"] >= run["ranks"] * CLUSTERED_BYTES
                if operation != "all_reduce" or not is_long or "NARROWCAST_MAX_CTAS=60" not in run["command"]:
                    continue
                commit = CLUSTERS_COMMIT
            yield Case(name, commit, operation, run["ranks"], way, run["ctas"] or MOST_CTAS, row["size_bytes"],
                       row["ratio"], row["time_us"])  # fmt: skip


def _cases_of_plan_report(name: str, report: dict[str, Any]) -> Iterable[Case]:
    commit, ranks = _commit_of(report["commit"]), int(Path(name).parent.name[0])
    for measured in report["plans"]:
        built, _, codec = measured["plan"].rpartition("_")
        for row in measured["rows"]:
            way = "packets" if row["built_in"] == "packets" else codec
            ratio = USUAL_RATIO if way == "window" else 1.0
            case = Case(name, commit, sample_plans.PLANS[built][0], ranks, way, MOST_CTAS, row["bytes"], ratio,
                        row["built_in_microseconds"])  # fmt: skip
            yield case
            if row.get("plan_path", row["built_in"]) != row["built_in"]:
                way = codec
            yield case._replace(way=way, measured_us=row["plan_microseconds"], plan=built)


def _cases_of_costs(name: str, text: str) -> Iterable[Case]:
    ways = {"packets": "packets", "blocks:raw": "raw", "blocks:window": "window"}
    commit = _commit_of(text.partition("commit ")[2])
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 5 or fields[2] != "nvlink" or fields[3] not in ways or fields[0] == "all_to_all_v":
            continue
        operation, ranks, way = fields[0], int(fields[1]), ways[fields[3]]
        parts = ranks if describe(operation).parted else 1
        operation = "sendrecv" if operation == "send" else operation
        for point in fields[4:]:
            piece_bytes, microseconds = point.split(":")
            ratio = USUAL_RATIO if way == "window" else 1.0
            yield Case(name, commit, operation, ranks, way, MOST_CTAS, int(piece_bytes) * parts, ratio,
                       float(microseconds))  # fmt: skip
