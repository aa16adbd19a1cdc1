"""Jobs of ranks that measure costs when they attach. Messages go to a file."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import nccl_jobs
from nccl_program import INT32, SUM, program


def every_operation(*, rank: int, ranks: int, emit: Any) -> None:
    _log_to_file()
    nccl_jobs.every_operation(rank=rank, ranks=ranks, count=5000, emit=emit)


def aborted(*, rank: int, ranks: int, after_seconds: float, emit: Any) -> None:
    """Another thread aborts the communicator while its first call measures. Emits the seconds of this call."""
    _log_to_file()
    with program(rank, ranks) as (nccl, comm, stream):
        total = nccl.zeros(1000, "int32")
        abort = threading.Timer(after_seconds, lambda: nccl.status("CommAbort", comm))
        abort.start()
        begin = time.monotonic()
        nccl.status("AllReduce", total, total, 1000, INT32, SUM, comm, stream)
        emit(time.monotonic() - begin)
        abort.join()


def _log_to_file() -> None:
    log = os.open(f"{os.environ['TEST_FOLDER']}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 2)
