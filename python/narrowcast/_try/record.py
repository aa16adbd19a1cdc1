"""The records of calls that processes with the drop-in write (src/nccl/report/call_record.h)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

#: The name of a record, for NARROWCAST_RECORD.
NAME = "%p.calls"

_MAGIC = b"NCASTREC"
_VERSION = 1
_ENTRY = np.dtype(
    [
        ("time_ns", "<u8"),
        ("count", "<u8"),
        ("communicator", "<u4"),
        ("launch", "<u4"),
        ("peer", "<i4"),
        ("operation", "u1"),
        ("dtype", "u1"),
        ("flags", "u1"),
        ("kind", "u1"),
    ]
)
_COMMUNICATOR, _CALL, _MARK, _LAUNCH = 1, 2, 3, 4
EXECUTED, CAPTURED = 1, 2
# By the number of the type, as in value_bytes() of src/nccl/abi/call.h; unknown types move nothing.
_VALUE_BYTES = np.zeros(256, np.uint64)
_VALUE_BYTES[:12] = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)

Entries = npt.NDArray[np.void]


@dataclass(frozen=True)
class CommunicatorRecord:
    """The calls of one rank of a communicator."""

    id: int
    """The same on all ranks; 0 if they have not agreed."""
    rank: int
    ranks: int
    calls: Entries
    """`time_ns` is when a call was put on its stream; `launch` numbers the calls, and groups of calls."""
    launches: Entries
    """A sample of the launches, in order: `time_ns` is their begin on the GPU, and `count` their nanoseconds."""

    @property
    def captured(self) -> int:
        """Number of calls that went into CUDA graphs."""
        return int(np.count_nonzero(self.calls["flags"] & CAPTURED))

    @property
    def call_bytes(self) -> npt.NDArray[np.uint64]:
        """Bytes of the largest piece that each call sends."""
        sizes: npt.NDArray[np.uint64] = self.calls["count"] * _VALUE_BYTES[self.calls["dtype"]]
        return sizes


@dataclass(frozen=True)
class ProcessRecord:
    """The calls of one process."""

    communicators: list[CommunicatorRecord]
    marks_ns: npt.NDArray[np.uint64]
    """When the program called mark_step()."""


def read_folder(folder: Path) -> list[ProcessRecord]:
    """The records in a folder, of running and of ended processes. Raises ValueError if a file is not a record."""
    found = [_read(path) for path in sorted(folder.glob(f"*{Path(NAME).suffix}"))]
    return [one for one in found if one is not None]


def _read(path: Path) -> ProcessRecord | None:
    entries = np.fromfile(path, _ENTRY)
    if not len(entries):
        return None  # it is being created
    header = entries[:1].tobytes()
    if not any(header):
        return None
    if header[:8] != _MAGIC or int.from_bytes(header[8:12], "little") != _VERSION:
        raise ValueError(f"{path} is not a record of calls of this version of Narrowcast")
    entries = entries[1:]
    ends = np.flatnonzero(entries["kind"] == 0)
    return _process_of(entries[: ends[0]] if len(ends) else entries)


def _process_of(entries: Entries) -> ProcessRecord:
    by_kind: dict[int, Any] = {
        kind: entries[entries["kind"] == kind] for kind in (_COMMUNICATOR, _CALL, _MARK, _LAUNCH)
    }
    communicators = []
    for number in np.unique(by_kind[_COMMUNICATOR]["communicator"]):
        own = {kind: found[found["communicator"] == number] for kind, found in by_kind.items()}
        last = own[_COMMUNICATOR][-1]
        communicators.append(
            CommunicatorRecord(
                id=int(last["count"]),
                rank=int(last["peer"]),
                ranks=int(last["launch"]),
                calls=own[_CALL],
                # Written when their events are complete, which streams are in any order.
                launches=own[_LAUNCH][np.argsort(own[_LAUNCH]["launch"], kind="stable")],
            )
        )
    return ProcessRecord(communicators, by_kind[_MARK]["time_ns"])
