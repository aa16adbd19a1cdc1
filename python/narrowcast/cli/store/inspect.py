"""`store inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ... import store
from ..._files.display import printable
from .._common import existing_file, print_json


def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A table file.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Describe a table file. Reads only its header and its index."""
    with store.open(existing_file(file), "mmap") as table:
        info = {
            "dtype": table.dtype,
            "shape": list(table.shape),
            "codec": table.codec,
            "layout": table.layout,
            "row_bytes": table.row_bytes,
            "stored_bytes": table.stored_bytes,
            "ratio": table.ratio,
            "file_bytes": file.stat().st_size,
            "metadata": table.metadata,
        }
    if json:
        print_json(info)
        return
    for name, value in info.items():
        text = f"{value:.4f}" if isinstance(value, float) else str(value)
        print(printable(f"{name.replace('_', ' '):13} {text}"))
