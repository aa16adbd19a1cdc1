"""The options of `bench all_reduce` and the like, by nccl-tests' names where it has them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..._bench import samples
from ..._bench.nccl_library import VARIANTS
from ...types import COMM_CODECS

Begin = Annotated[str, typer.Option("-b", "--minbytes", metavar="SIZE", help="First size.")]
End = Annotated[str, typer.Option("-e", "--maxbytes", metavar="SIZE", help="Last size.")]
Step = Annotated[
    str | None, typer.Option("-i", "--stepbytes", metavar="SIZE", help="From one size to the next, in place of -f.")
]
Factor = Annotated[
    float | None, typer.Option("-f", "--stepfactor", help="From one size to the next; by default 4.", metavar="FACTOR")
]
Iterations = Annotated[int, typer.Option("-n", "--iters", min=1, help="Iterations that are timed together.")]
GroupCalls = Annotated[
    int, typer.Option("-m", "--agg_iters", min=1, help="Calls of an iteration, in one group. Times are of a call.")
]
Warmup = Annotated[int, typer.Option("-w", "--warmup-iters", "--warmup_iters", min=0)]
Batches = Annotated[
    int | None,
    typer.Option(min=1, help="How often they are; the time is the median. By default 20 on GPUs, 1 on the host."),
]
Average = Annotated[
    int,
    typer.Option(
        "-a",
        "--average",
        min=0,
        max=3,
        help="Whose time counts: 0: rank 0's, 1: the ranks' average, 2: the fastest's, 3: the slowest's.",
    ),
]
Check = Annotated[int, typer.Option("-c", "--check", min=0, max=1, help="Compare results with NumPy's.")]
Datatype = Annotated[str, typer.Option("-d", "--datatype", help="Value type, or all: a block of rows for each.")]
Op = Annotated[str, typer.Option("-o", "--op", help="Reduction, or all: a block of rows for each.")]
Root = Annotated[int, typer.Option("-r", "--root", min=0, help="Of operations that have one.")]
Blocking = Annotated[
    int | None,
    typer.Option(
        "-z",
        "--blocking",
        min=0,
        max=1,
        help="1: a call, group or graph is waited for before the next, and the host's clock is read; 0: calls are put "
        "on a stream. By default 0 on GPUs, 1 on the host.",
    ),
]
CudaGraph = Annotated[
    int,
    typer.Option(
        "-G",
        "--cudagraph",
        min=0,
        metavar="N",
        help="cuda: iterations captured into one graph, which is replayed; 0: launched one by one.",
    ),
]
CpuTime = Annotated[
    int,
    typer.Option(
        "-C",
        "--report_cputime",
        min=0,
        max=1,
        help="1: the time is what the host takes to make a call; bandwidths stay those of calls until they are done.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "-T",
        "--timeout",
        min=0,
        metavar="SECONDS",
        help="How long a call waits for a rank that does not come; 0: for ever.",
    ),
]
Pattern = Annotated[str, typer.Option(help="sendrecv: ring, or one-way, from rank 0 to rank 1 only.")]
InPlace = Annotated[
    bool,
    typer.Option(
        "--in-place", help="Output over input. Values that reductions wrote over are restored before a batch."
    ),
]
Ranks = Annotated[int | None, typer.Option(min=1, max=64, help="By default all GPUs, or 4 processes on the host.")]
Codec = Annotated[
    list[str] | None,
    typer.Option(help=f"{', '.join(COMM_CODECS)}; several: A,B, or repeated. By default auto on GPUs, else window."),
]
Data = Annotated[
    str | None,
    typer.Option(
        help=f"What the buffers hold: {', '.join(samples.NAMES)}, or a file. By default weights; with -d all normal."
    ),
]
Backend = Annotated[
    str | None,
    typer.Option(help="cuda: a process a GPU; host: processes of this machine. By default cuda from 2 GPUs on."),
]
Against = Annotated[
    list[str] | None,
    typer.Option(
        help=f"cuda: {', '.join(VARIANTS)} (copy engines) or none; several: A,B, or repeated. By default all that are "
        "there."
    ),
]
Nccl = Annotated[
    Path | None, typer.Option(metavar="PATH", help="NCCL's library. By default the pip wheel's, or libnccl.so.2.")
]
Register = Annotated[
    int,
    typer.Option(
        "-R",
        "--local_register",
        min=0,
        max=2,
        help="cuda: 1: Narrowcast's buffers are registered: what travels as it is is written where it ends up; 2: and "
        "of NCCL's ways only those over symmetric windows are measured, unless --against says otherwise.",
    ),
]
Ctas = Annotated[
    int, typer.Option(min=0, help="cuda: at most this many CTAs, for Narrowcast and NCCL alike; 0: no limit.")
]
Threads = Annotated[
    int, typer.Option("-t", "--nthreads", min=1, help="1: a rank is a process. nccl-tests' -t N is --ranks N here.")
]
Gpus = Annotated[
    int, typer.Option("-g", "--ngpus", min=1, help="1: a process has one GPU. nccl-tests' -g N is --ranks N here.")
]
ParallelInit = Annotated[
    int, typer.Option("-p", "--parallel_init", min=0, max=1, help="1: the ranks, processes, always join together.")
]
Json = Annotated[
    bool, typer.Option("--json", help="Print JSON in place of the table. With a FILE behind it: as -J FILE.")
]
OutputFile = Annotated[
    Path | None, typer.Option("-J", "--output-file", metavar="FILE", help="Write the JSON to a file as well.")
]
Plot = Annotated[Path | None, typer.Option(metavar="OUT.png", help="Draw speed-up and bus bandwidth against size.")]
