"""Puts the measurements of tools/gpu/codec.sh into one document that says where and on what they were made."""

import json
import os
import subprocess
import sys
from pathlib import Path


def first_line(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def main() -> None:
    folder = Path(sys.argv[1])
    runs = {
        "codec_1GiB": "bench codec TENSORS --device cuda",
        "codec_1GiB_32_ctas": "bench codec TENSORS --device cuda --ctas 32",
        "codec_16MiB": "bench codec TENSORS --device cuda --tile 16M",
        "codec_1GiB_random": "bench codec RANDOM --dtype bfloat16 --device cuda",
    }
    report = {
        "machine": first_line("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"),
        "compiler": subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[-1],
        # A copy without its history says it in the environment.
        "commit": os.environ.get("COMMIT") or first_line("git", "rev-parse", "HEAD"),
        "runs": [
            {"command": f"narrowcast {command}", **json.loads((folder / f"{name}.json").read_text())}
            for name, command in runs.items()
        ],
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
