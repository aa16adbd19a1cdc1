"""Where the ranks of `plan run` and `plan bench` are."""

from __future__ import annotations

from ...cuda import device_count
from ...errors import UnsupportedError


def are_on_gpus(backend: str | None, ranks: int, why: str = "") -> bool:
    """Whether ranks use a GPU each.

    backend: "host", "cuda", or None, for GPUs if there are enough.
    why: a sentence for the error, why ranks do not share a GPU.

    Raises UnsupportedError for "cuda" with fewer GPUs than ranks.
    """
    gpus = 0 if backend == "host" else device_count()
    if backend == "cuda" and gpus < ranks:
        raise UnsupportedError(
            f"the plan has {ranks} ranks, each of which needs its own GPU; number of GPUs found: {gpus}{why}"
        )
    return backend != "host" and gpus >= ranks
