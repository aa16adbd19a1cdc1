"""A builder of tables whose file is /dev/null: what a file system costs is left out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from .._store.handle import Builder
from .._store.rows import Rows
from ..types import ValueType


@contextlib.contextmanager
def null_builder(
    kind: ValueType,
    row_shape: tuple[int, ...],
    rows: int,
    sample: Rows,
    *,
    codec: str,
    layout: str,
    threads: int = 0,
    device: int | None = None,
) -> Iterator[Builder]:
    """A builder that has fitted its codec. It takes any number of rows, and computes the checksums of the file, too.

    rows: of the table. sample: what the codec is fitted to. device: the GPU that encodes; None: CPUs.
    """
    file = os.open(os.devnull, os.O_RDWR)
    try:
        builder = Builder(
            file,
            kind,
            row_shape,
            codec=codec,
            layout=layout,
            rows=rows,
            capacity=None,
            spare=None,
            metadata="",
            threads=threads,
            device=device,
        )
        with contextlib.closing(builder):
            builder.sample(sample)
            yield builder
    finally:
        os.close(file)
