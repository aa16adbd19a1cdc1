"""Writes src/nccl/abi/exports.inc and tests/nccl/abi/exports/: the functions that libnccl.so.2 exports.

The input is NVIDIA's wheels: `pip download --no-deps nvidia-nccl-cu13==2.32.3`. Names are read from the library, return
types from its headers. Pass the newest release last: the drop-in exports its functions.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXPORTS = ROOT / "src" / "nccl" / "abi" / "exports.inc"
LISTS = ROOT / "tests" / "nccl" / "abi" / "exports"
LIBRARY = "nvidia/nccl/lib/libnccl.so.2"
HEADERS = "nvidia/nccl/include/"

# Return type -> what a function returns when the loaded NCCL does not have it. Other types: zeros.
KINDS = {"ncclResult_t": "result", "const char*": "text"}


def exported(library: Path) -> dict[str, str]:
    """The functions that NCCL exports, with nm's letter for each: W is weak."""
    listed = subprocess.run(
        ["nm", "--dynamic", "--defined-only", str(library)], capture_output=True, text=True, check=True
    )
    rows = (line.split()[-2:] for line in listed.stdout.splitlines())
    return {name.partition("@")[0]: kind for kind, name in rows if kind in "TW" and re.match(r"p?nccl[A-Z]", name)}


def return_kind(function: str, headers: str) -> str:
    """result, text or zeros."""
    declared = re.search(rf"^[ \t]*(?:NCCL_EXTERN_C )?(\w[\w ]*?) *(\**) *\b{function}\s*\(", headers, re.MULTILINE)
    return KINDS.get(declared[1] + declared[2] if declared else "", "zeros")


def exports_inc(version: str, symbols: dict[str, str], headers: str) -> str:
    lines = [
        f"// What libnccl.so.2 of NCCL {version} exports, and what each function returns, by tools/nccl_exports.py.",
        "// NCCL_FUNCTION: ncclX and pncclX. NCCL_INTERNAL: ncclX alone.",
    ]
    for name in sorted(name for name in symbols if name.startswith("nccl")):
        macro = "NCCL_FUNCTION" if f"p{name}" in symbols else "NCCL_INTERNAL"
        lines.append(f"{macro}({name.removeprefix('nccl')}, {return_kind(name, headers)})")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("wheels", nargs="+", type=Path, help="nvidia_nccl_cu13-VERSION-*.whl, the newest last")
    for wheel in parser.parse_args().wheels:
        version = wheel.name.split("-")[1]
        with zipfile.ZipFile(wheel) as content, tempfile.TemporaryDirectory() as folder:
            symbols = exported(Path(content.extract(LIBRARY, folder)))
            names = sorted(name for name in content.namelist() if name.startswith(HEADERS) and name.endswith(".h"))
            headers = "\n".join(content.read(name).decode("utf-8", "replace") for name in names)
        LISTS.mkdir(parents=True, exist_ok=True)
        (LISTS / f"{version}.txt").write_text("".join(f"{kind} {name}\n" for name, kind in sorted(symbols.items())))
        EXPORTS.write_text(exports_inc(version, symbols, headers))
        print(f"{version}: {len(symbols)} symbols")
    return 0


if __name__ == "__main__":
    sys.exit(main())
