"""Combines the measurements of tools/gpu/codec.sh in one document that states machine, compiler and commit."""

import json
import os
import subprocess
import sys
from pathlib import Path


def lines_of(*command: str) -> list[str]:
    """The lines that a command prints, or "unknown" if it cannot be run."""
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ["unknown"]
    return text.splitlines() or ["unknown"]


def machine() -> list[str]:
    """One line per GPU."""
    return lines_of("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")


def commit() -> str:
    # A copy of the tree without history gets the commit from the environment.
    return os.environ.get("COMMIT") or lines_of("git", "rev-parse", "HEAD")[0]


def main() -> None:
    folder = Path(sys.argv[1])
    runs = {
        "codec_1GiB": "bench codec TENSORS --device cuda",
        "codec_1GiB_32_ctas": "bench codec TENSORS --device cuda --ctas 32",
        "codec_16MiB": "bench codec TENSORS --device cuda --tile 16M",
        "codec_1GiB_random": "bench codec RANDOM --dtype bfloat16 --device cuda",
    }
    report = {
        "machine": machine()[0],
        "compiler": lines_of("nvcc", "--version")[-1],
        "commit": commit(),
        "runs": [
            {"command": f"narrowcast {command}", **json.loads((folder / f"{name}.json").read_text())}
            for name, command in runs.items()
        ],
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
