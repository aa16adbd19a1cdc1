"""The options of `bench OPERATION`: what is accepted, and what it means. Raises BadUse for other values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from ..._bench import launched, operations, samples
from ..._bench.nccl_library import COPY_ENGINE, VARIANTS
from ..._files.atomic import check_writable
from ..._native.codecs import split_codecs
from ...cuda import device_count
from ...errors import UnsupportedError
from ...types import REDUCTIONS, VALUE_TYPES, ValueType, value_type
from .._common import BadUse, comm_codec_name, plot_file
from .._sizes import parse_size, sizes

ALL = "all"  # value types or reductions
_BACKENDS = ("host", "cuda")
# Default number of processes on the host.
_HOST_RANKS = 4
_FACTOR = 4.0


def is_cuda(backend: str | None, gpu_options: Mapping[str, object]) -> bool:
    """Whether the ranks use GPUs. gpu_options: the values of options that only they have."""
    if backend is None:
        backend = "cuda" if device_count() >= 2 else "host"
    if backend not in _BACKENDS:
        raise BadUse(f"{backend!r} is not a backend (known: {', '.join(_BACKENDS)})")
    for option, given in gpu_options.items():
        if given and backend != "cuda":
            raise BadUse(f"{option} is for --backend cuda")
    return backend == "cuda"


def check_growth(step: str | None, factor: float | None) -> None:
    """How sizes grow."""
    if step is not None and factor not in (None, 1):
        raise BadUse("-i adds to the size and -f multiplies it: use only one of them")
    # With 1, inf or nan there would be no end.
    if step is None and factor is not None and not 1 < factor < math.inf:
        raise BadUse(f"-f is {factor}: it must be a number greater than 1")


def every_size(begin: str, end: str, step: str | None, factor: float | None) -> list[int]:
    first, last = parse_size(begin), parse_size(end)
    if not 0 < first <= last:
        raise BadUse(f"there are no sizes from {begin} to {end}")
    step_bytes = None if step is None else parse_size(step)
    if step_bytes == 0:
        raise BadUse(f"-i is {step}: it must be greater than 0")
    return list(sizes(first, last, factor or _FACTOR, step_bytes))


def reductions(operation: str, op: str) -> list[str]:
    if op not in (*REDUCTIONS, ALL):
        raise BadUse(f"{op!r} is not a reduction (known: {', '.join(REDUCTIONS)}, {ALL})")
    if op != ALL:
        return [op]
    return list(REDUCTIONS) if operations.describe(operation).reduces else ["sum"]


def check_call(operation: str, pattern: str, in_place: bool) -> None:
    if pattern not in operations.PATTERNS:
        raise BadUse(f"{pattern!r} is not a pattern (known: {', '.join(operations.PATTERNS)})")
    if pattern != "ring" and operation != "sendrecv":
        raise BadUse("--pattern is for sendrecv")
    if in_place and not operations.describe(operation).in_place:
        raise BadUse(f"{operation} does not work in place")


def value_types(datatype: str, data: str | None) -> tuple[str, list[ValueType]]:
    """The content of buffers and its types."""
    if data is None:
        # The packaged tensors do not have all types.
        data = "normal" if datatype == ALL else "weights"
    try:
        kinds = list(VALUE_TYPES) if datatype == ALL else [value_type(datatype)]
        for kind in kinds:
            samples.sample(data, kind.name)
    except ValueError as error:
        raise BadUse(str(error)) from None
    return data, kinds


def check_ranks(ranks: int, root: int, pattern: str) -> None:
    if root >= ranks:
        raise BadUse(f"--root {root} is not one of {ranks} ranks")
    if pattern == "one-way" and ranks < 2:
        raise BadUse("--pattern one-way needs at least 2 ranks")


def check_outputs(output_file: Path | None, plot: Path | None, blocks: int) -> None:
    """Fails before the work, not after it. blocks: combinations of value types and reductions."""
    if plot is not None:
        if blocks > 1:
            raise BadUse(f"--plot needs one value type and one reduction, not {ALL}")
        plot_file(plot)
    if output_file is not None:
        check_writable(output_file)


def reject_other_processes(threads: int, gpus: int, parallel_init: int) -> None:
    """Several ranks in one process are not supported: they would measure Python's global lock."""
    if (threads, gpus) != (1, 1):
        given = [f"{option} {value}" for option, value in (("-t", threads), ("-g", gpus)) if value != 1]
        raise BadUse(
            f"every rank is a process with at most one GPU: use --ranks {threads * gpus} instead of {' '.join(given)}"
        )
    if not parallel_init:
        raise BadUse("-p 0 is not supported: ranks are processes and always join in parallel")


def listed_codecs(given: list[str] | None) -> list[str]:
    """The distinct codecs of an option. Benchmarks force them in any case, and report their plain names."""
    names = [comm_codec_name(name) for text in given or [] for name in split_codecs(text)]
    return list(dict.fromkeys(name.removesuffix("!") for name in names))


def listed(given: list[str] | None) -> list[str]:
    """The distinct values of an option that may be repeated and takes lists."""
    names = [name.strip() for text in given or [] for name in text.split(",")]
    return list(dict.fromkeys(name for name in names if name))


def opponents(operation: str, requested: list[str], is_cuda: bool, *, windows: bool) -> list[str]:
    """The variants of NCCL to measure. windows: by default only those with symmetric windows."""
    if not is_cuda or requested == ["none"]:
        return []
    requested = ["nccl" if name == "default" else name for name in requested]
    for name in requested:
        if name not in VARIANTS:
            raise BadUse(f"{name!r} is not a variant of NCCL (known: {', '.join(VARIANTS)}, default, none)")
    # NCCL uses copy engines for a few operations. Others would be measured twice.
    own = [name for name in VARIANTS if name != "nccl-ce" or operation in COPY_ENGINE]
    return requested or [name for name in own if not windows or name != "nccl"]


def started_ranks(given: Mapping[str, bool]) -> int | None:
    """The number of ranks that a launcher has started, with which these options cannot be given; None: no launcher."""
    started = launched.rank_count()
    for option in given:
        if started is not None and given[option]:
            raise BadUse(f"{option} is given, but torchrun has started {started} ranks on their hosts")
    return started


def rank_count(requested: int | None, is_cuda: bool, hosts: int) -> int:
    if started := started_ranks({"--hosts": hosts > 1, "--ranks": requested is not None}):
        return started
    if not is_cuda:
        return requested or _HOST_RANKS
    gpus = device_count()
    if gpus == 0:
        raise UnsupportedError("--backend cuda needs CUDA GPUs, but none was found")
    if requested is not None and requested > gpus:
        raise UnsupportedError(
            f"--backend cuda needs one GPU per rank: {requested} ranks were requested, {gpus} GPUs were found"
        )
    return requested or gpus
