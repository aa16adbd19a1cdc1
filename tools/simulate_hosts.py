"""Simulates all-gathers and all-reduces of hosts with 8 GPUs each, and draws their times beside the lower bounds.

    tools/simulate_hosts.py RESULT.json [HOSTS...]   # default: 2 4 8 16 32 64 128, which takes 20 minutes on a core
    tools/simulate_hosts.py --plot docs/images/hosts.png RESULT.json

The plans are those of the builder `two_level`, raw and with `window` at 0.7 of the bytes, the machines those of
128xh200.json with other numbers of hosts and an interface of 50 GB/s for each GPU. A call has 1 GiB of bfloat16. Plans
that are too large to be proved are left out.

Bounds: a GPU receives what the others of its host pass on through its link, and a part of what other hosts send
through its interface. Nothing that it receives can be shorter than it is encoded.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from narrowcast._native.codecs import codec_number
from narrowcast._native.operations import describe
from narrowcast._native.plan import NativePlan
from narrowcast._plan.simulation import machine_text
from narrowcast.cli._provenance import processor
from narrowcast.errors import UnsupportedError

GPUS, NETWORK_GBPS, CALL_BYTES = 8, 50, 1 << 30
RATIOS = {"raw": 1.0, "window": 0.7}
COLORS = {"raw": "#b2182b", "window": "#2166ac"}
TITLES = {"all_gather": "all-gather", "all_reduce": "all-reduce"}


def simulated(hosts: int, operation: str, codec: str) -> dict[str, Any]:
    """The time of a call, and the bound, in microseconds."""
    machine = {**json.loads(machine_text("128xh200", 128)), "hosts": hosts, "network_gbps": NETWORK_GBPS}
    row, ranks = describe(operation), GPUS * hosts
    members = {"ranks": ranks, "ranks_per_node": GPUS, "codec": codec_number(codec)}
    plan = NativePlan.build("two_level", row.number, **members).lower()
    piece_bytes = CALL_BYTES // ranks if row.parted else CALL_BYTES
    report = plan.simulate(json.dumps(machine), piece_bytes=piece_bytes, ratio=RATIOS[codec])
    sweeps = 2 if operation == "all_reduce" else 1  # it scatters sums, and gathers them
    wire_bytes = sweeps * RATIOS[codec] * CALL_BYTES
    link_us = wire_bytes * (GPUS - 1) / GPUS / machine["link_gbps"] / 1000
    network_us = wire_bytes * (hosts - 1) / ranks / NETWORK_GBPS / 1000
    bound_us = max(link_us, network_us)
    return {"hosts": hosts, "operation": operation, "codec": codec, "us": report["repeated_us"], "bound_us": bound_us}


def measure(path: Path, all_hosts: list[int]) -> None:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    command = " ".join(["tools/simulate_hosts.py", path.name, *map(str, all_hosts)])
    report: dict[str, Any] = {"machine": processor(), "commit": commit}
    report |= {"command": command, "call_bytes": CALL_BYTES, "network_gbps": NETWORK_GBPS, "rows": []}
    for hosts in all_hosts:
        for operation in TITLES:
            for codec in RATIOS:
                try:
                    report["rows"].append(simulated(hosts, operation, codec))
                except UnsupportedError as error:
                    print(f"{operation}, {hosts} hosts: {error}", file=sys.stderr)
                path.write_text(json.dumps(report, indent=1) + "\n")


def plot(picture: Path, report: dict[str, Any]) -> None:
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, (operation, title) in zip(figure.subplots(1, 2), TITLES.items(), strict=True):
        axes.set_xscale("log", base=2)
        for codec, color in COLORS.items():
            rows = [row for row in report["rows"] if (row["operation"], row["codec"]) == (operation, codec)]
            hosts = [row["hosts"] for row in rows]
            axes.plot(hosts, [row["us"] / 1000 for row in rows], color=color, marker="o", markersize=3.5, label=codec)
            bounds = [row["bound_us"] / 1000 for row in rows]
            axes.plot(hosts, bounds, color=color, linestyle=":", label=f"{codec}, lower bound")
            axes.set_xticks(hosts, [str(one) for one in hosts])
        axes.set_title(f"{title} of 1 GiB, simulated", fontsize=9)
        axes.set_xlabel(f"hosts of {GPUS} GPUs")
        axes.set_ylabel("ms")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    if sys.argv[1] == "--plot":
        plot(Path(sys.argv[2]), json.loads(Path(sys.argv[3]).read_text()))
    else:
        measure(Path(sys.argv[1]), [int(word) for word in sys.argv[2:]] or [2, 4, 8, 16, 32, 64, 128])
