"""The options of `bench OPERATION`, with the names of nccl-tests where it has them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..._bench import samples
from ..._bench.nccl_library import VARIANTS

Begin = Annotated[str, typer.Option("-b", "--minbytes", metavar="SIZE", help="First size.")]
End = Annotated[str, typer.Option("-e", "--maxbytes", metavar="SIZE", help="Last size.")]
Step = Annotated[
    str | None, typer.Option("-i", "--stepbytes", metavar="SIZE", help="Increment between sizes, instead of -f.")
]
Factor = Annotated[
    float | None, typer.Option("-f", "--stepfactor", help="Factor between sizes; default 4.", metavar="FACTOR")
]
Iterations = Annotated[
    int, typer.Option("-n", "--iters", min=1, help="Iterations per batch. A batch is timed as a whole.")
]
GroupCalls = Annotated[
    int, typer.Option("-m", "--agg_iters", min=1, help="Calls per iteration, in one group. Times are per call.")
]
Warmup = Annotated[int, typer.Option("-w", "--warmup-iters", "--warmup_iters", min=0)]
Batches = Annotated[
    int | None,
    typer.Option(min=1, help="Batches; the time is their median. Default 20 on GPUs, 1 on the host."),
]
Average = Annotated[
    int,
    typer.Option(
        "-a",
        "--average",
        min=0,
        max=3,
        help="Time to report: 0: rank 0, 1: average of the ranks, 2: fastest rank, 3: slowest rank.",
    ),
]
Check = Annotated[int, typer.Option("-c", "--check", min=0, max=1, help="Compare results with NumPy.")]
Datatype = Annotated[str, typer.Option("-d", "--datatype", help="Value type, or all.")]
Op = Annotated[str, typer.Option("-o", "--op", help="Reduction, or all.")]
Root = Annotated[int, typer.Option("-r", "--root", min=0, help="Root of rooted operations.")]
Blocking = Annotated[
    int | None,
    typer.Option(
        "-z",
        "--blocking",
        min=0,
        max=1,
        help="1: wait for every call, group or graph, and use the clock of the host; 0: enqueue calls on a stream. "
        "Default 0 on GPUs, 1 on the host.",
    ),
]
CudaGraph = Annotated[
    int,
    typer.Option(
        "-G",
        "--cudagraph",
        min=0,
        metavar="N",
        help="cuda: iterations captured into a graph, which is replayed; 0: individual launches.",
    ),
]
CpuTime = Annotated[
    int,
    typer.Option(
        "-C",
        "--report_cputime",
        min=0,
        max=1,
        help="1: report the time that the host needs to make a call. Bandwidths still use the time of the whole call.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "-T",
        "--timeout",
        min=0,
        metavar="SECONDS",
        help="How long a call waits for other ranks; 0: no limit.",
    ),
]
Pattern = Annotated[str, typer.Option(help="sendrecv: ring, or one-way, from rank 0 to rank 1 only.")]
InPlace = Annotated[
    bool,
    typer.Option("--in-place", help="Run in place. Values that reductions overwrite are restored before each batch."),
]
Ranks = Annotated[int | None, typer.Option(min=1, max=64, help="Default: all GPUs, or 4 processes on the host.")]
Codec = Annotated[
    list[str] | None,
    typer.Option(
        help="auto, or a codec, which is forced; repeatable, or A,B. Default: auto, which is raw on the host."
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        help=f"Content of the buffers: {', '.join(samples.NAMES)}, or a file. Default: weights; with -d all, normal."
    ),
]
Backend = Annotated[
    str | None,
    typer.Option(help="cuda: one process per GPU; host: processes on CPUs. Default: cuda if there are 2 GPUs or more."),
]
Against = Annotated[
    list[str] | None,
    typer.Option(
        help=f"cuda: {', '.join(VARIANTS)} (copy engines), default (nccl) or none; repeatable, or A,B. By default all "
        "that are available."
    ),
]
Nccl = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Path of NCCL. Default: the pip wheel, or libnccl.so.2.")
]
Register = Annotated[
    int,
    typer.Option(
        "-R",
        "--local_register",
        min=0,
        max=2,
        help="cuda: 1: register the buffers of Narrowcast, so that raw data is written directly to its destination; "
        "2: also measure only the variants of NCCL with symmetric windows, unless --against is given.",
    ),
]
Ctas = Annotated[int, typer.Option(min=0, help="cuda: maximum number of CTAs, for Narrowcast and NCCL; 0: no limit.")]
Hosts = Annotated[
    int,
    typer.Option(
        min=1,
        help="cuda: number of hosts that the ranks take themselves to be on, in order. NARROWCAST_SOCKET_IFNAME=lo "
        "NCCL_SOCKET_IFNAME=lo NCCL_NET=Socket makes them, and NCCL, use loopback.",
    ),
]
Threads = Annotated[
    int,
    typer.Option(
        "-t", "--nthreads", min=1, help="Only 1: every rank is a process. Use --ranks N for -t N of nccl-tests."
    ),
]
Gpus = Annotated[
    int,
    typer.Option(
        "-g", "--ngpus", min=1, help="Only 1: every process has one GPU. Use --ranks N for -g N of nccl-tests."
    ),
]
ParallelInit = Annotated[
    int, typer.Option("-p", "--parallel_init", min=0, max=1, help="Only 1: ranks are processes and join in parallel.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of the table. With a FILE: as -J FILE.")]
OutputFile = Annotated[
    Path | None, typer.Option("-J", "--output-file", metavar="FILE", help="Also write JSON to a file.")
]
Plot = Annotated[Path | None, typer.Option(metavar="OUT.png", help="Draw speed-up and bus bandwidth by size.")]
