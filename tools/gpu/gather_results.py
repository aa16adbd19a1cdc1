"""Combines the measurements of tools/gpu/codec.sh in one document that states machine, compiler and commit."""

import json
import sys
from pathlib import Path

from provenance import commit, compiler, machine


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
        "compiler": compiler(),
        "commit": commit(),
        "runs": [
            {"command": f"narrowcast {command}", **json.loads((folder / f"{name}.json").read_text())}
            for name, command in runs.items()
        ],
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
