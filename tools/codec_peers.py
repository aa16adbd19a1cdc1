#!/usr/bin/env python3
"""Size and CPU time of the codec `window` on one core, beside ZipNN and zstd.

    tools/codec_peers.py -o codec_peers.json [TENSORS.safetensors]

Needs the packages zipnn and zstandard. The tensors are by default those that come with the package; each is one call of
each codec, on one thread, in turns. GB/s are of raw bytes and of CPU time, which other programs affect less, and of the
fastest call: compare those of one run only. All decoded values are compared with the input.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import shlex
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import narrowcast
import numpy as np
from narrowcast._bench import samples
from narrowcast.cli._provenance import commit, processor
from narrowcast.types import ValueType

warnings.simplefilter("ignore")
import zipnn  # noqa: E402
import zstandard  # noqa: E402

ZSTD_LEVEL = 3


class Peer(NamedTuple):
    encode: Callable[[bytes], Any]
    decode: Callable[[Any], Any]


def peers(kind: ValueType) -> dict[str, Peer]:
    """The codecs, with one thread each."""
    coder = zipnn.ZipNN(input_format="byte", bytearray_dtype=kind.name, threads=1)
    compressor, decompressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL), zstandard.ZstdDecompressor()
    return {
        "window": Peer(lambda raw: narrowcast.encode(raw, dtype=kind), narrowcast.decode),
        # It reorders the bytes of its input in place.
        "zipnn": Peer(lambda raw: coder.compress(bytearray(raw)), coder.decompress),
        "zstd": Peer(compressor.compress, decompressor.decompress),
    }


def cpu_seconds(run: Callable[[Any], Any], argument: Any) -> tuple[float, Any]:
    begin = time.process_time()
    result = run(argument)
    return time.process_time() - begin, result


def measure(name: str, kind: ValueType, content: bytes, calls: int) -> dict[str, Any]:
    row: dict[str, Any] = {"tensor": name, "dtype": kind.name, "raw_bytes": len(content)}
    found = peers(kind)
    seconds: dict[tuple[str, str], float] = {}
    for _ in range(calls):
        for codec, peer in found.items():
            encode, encoded = cpu_seconds(peer.encode, content)
            decode, decoded = cpu_seconds(peer.decode, encoded)
            for step, taken in (("encode", encode), ("decode", decode)):
                seconds[codec, step] = min(taken, seconds.get((codec, step), taken))
            if bytes(memoryview(decoded).cast("B")) != content:
                raise SystemExit(f"{codec} does not restore {name}")
            row[codec] = {"wire_bytes": len(encoded), "ratio": round(len(encoded) / len(content), 4)}
    for (codec, step), taken in seconds.items():
        row[codec][f"{step}_gb_per_cpu_s"] = round(len(content) / taken / 1e9, 3)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tensors", nargs="?", type=Path, help="safetensors or npy; default: those of the package")
    parser.add_argument("-o", type=Path, required=True, help="the result")
    parser.add_argument("--calls", type=int, default=15)
    arguments = parser.parse_args()
    tensors = samples.tensors(arguments.tensors) if arguments.tensors else samples.packaged()
    rows = []
    for name, (kind, values) in tensors.items():
        if not kind.is_float or not values.size:
            continue
        rows.append(measure(name, kind, np.ascontiguousarray(values).tobytes(), arguments.calls))
        print(json.dumps(rows[-1]))
    report = {
        "machine": f"{processor()}, one core, {platform.system()} {platform.machine()}",
        "commit": commit(),
        "command": shlex.join(["tools/codec_peers.py", *sys.argv[1:]]),
        "versions": {name: importlib.metadata.version(name) for name in ("zipnn", "zstandard")}
        | {"zstd": ".".join(map(str, zstandard.ZSTD_VERSION)), "level": ZSTD_LEVEL},
        "calls": arguments.calls,
        "rows": rows,
    }
    arguments.o.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
