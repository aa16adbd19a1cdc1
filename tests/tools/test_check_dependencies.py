"""tools/check_dependencies.py rejects each kind of forbidden dependency and accepts the repository."""

from pathlib import Path

import pytest
from checked_trees import ROOT, check, write

TOOL = "check_dependencies.py"

GOOD = {
    "include/narrowcast/types.h": '#include "narrowcast/other.h"\n',
    "include/narrowcast/other.h": "",
    "include/narrowcast/device.cuh": '#include "narrowcast/device/channel/ends.cuh"\n',
    "cmake/device_headers.cmake": "set(device_headers\n  channel/ends.cuh\n  channel/words.h\n  device/warp.h)\n",
    "src/channel/ends.cuh": '#include "../device/warp.h"\n#include "narrowcast/types.h"\n#include "words.h"\n',
    "src/channel/words.h": "",
    "src/status/error.h": '#include "narrowcast/types.h"\n',
    "src/device/warp.h": "",
    "src/codec/frame.h": '#include "status/error.h"\n#include "device/warp.h"\n#include "helper.h"\n',
    "src/codec/helper.h": '#include <vector>\n#include "xxhash/xxhash.h"\n',
    "src/channel/ring.h": '#include "../status/error.h"\n',
    "src/executor/gather.cc": '#include "codec/frame.h"\n#include "channel/ring.h"\n',
    "third_party/xxhash/xxhash.h": "",
    "python/narrowcast/codec.py": "import numpy\nfrom . import errors\n\ndef f():\n    import torch\n",
    "python/narrowcast/_native/library.py": "from ..errors import Status\nfrom . import settings\n",
    "python/narrowcast/cli/main.py": "import typer\nfrom narrowcast.cli import table\nfrom .. import codec\n",
}


def write_linked(root: Path, files: dict[str, str]) -> None:
    write(root, files)
    link = root / "include" / "narrowcast" / "device"
    if not link.is_symlink():
        link.symlink_to("../../src")


def test_the_repository_passes() -> None:
    result = check(TOOL, ROOT)
    assert result.returncode == 0, result.stderr


def test_a_tree_with_allowed_dependencies_passes(tmp_path: Path) -> None:
    write_linked(tmp_path, GOOD)
    result = check(TOOL, tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("src/channel/bad.cc", '#include "codec/frame.h"', "channel may not include codec"),
        ("src/channel/bad.cc", '#  include "../codec/frame.h"', "channel may not include codec"),
        ("src/status/bad.h", '#include "device/warp.h"', "status may not include device"),
        ("src/codec/bad.cu", '#include "channel/ring.h"', "codec may not include channel"),
        ("src/device/bad.cuh", '#include "status/error.h"', "device may not include status"),
        ("src/novel/bad.cc", '#include "status/error.h"', "src/novel is missing from the table"),
        ("src/codec/bad.cc", '#include "nowhere.h"', '"nowhere.h" is not found'),
        ("include/narrowcast/bad.h", '#include "status/error.h"', "nothing but public headers"),
        ("include/narrowcast/bad.h", '#include "device/warp.h"', "nothing but public headers"),
        ("include/narrowcast/bad.h", '#include "narrowcast/device/channel/ring.h"', "nothing but public headers"),
        ("src/channel/words.h", '#include "ring.h"', "src/channel/ring.h is not in cmake/device_headers.cmake"),
        ("src/channel/words.h", '#include "device/warp.h"', "relative to itself"),
        ("src/channel/ends.cuh", '#include "../device/warp.h"', "no public header leads to src/channel/words.h"),
        ("python/narrowcast/codec.py", "from . import cli", "codec may not import cli"),
        ("python/narrowcast/codec.py", "def f():\n    from narrowcast.cli import main", "codec may not import cli"),
        ("python/narrowcast/_native/bad.py", "from .. import codec", "_native may not import codec"),
        ("python/narrowcast/_native/bad.py", "from .._bench.samples import SLICES", "_native may not import _bench"),
        ("python/narrowcast/_native/bad.py", "import narrowcast", "_native may not import __init__"),
        ("python/narrowcast/novel.py", "import json", "novel is missing from PYTHON_ALLOWED"),
        ("python/narrowcast/codec.py", "import torch", "torch is not installed on every machine"),
        ("python/narrowcast/codec.py", "from typer import Option", "typer is not installed on every machine"),
    ],
)
def test_a_forbidden_dependency_fails(tmp_path: Path, name: str, text: str, problem: str) -> None:
    write_linked(tmp_path, {**GOOD, name: text + "\n"})
    result = check(TOOL, tmp_path)
    assert result.returncode == 1
    assert f"{name}:" in result.stderr or "cmake/device_headers.cmake:" in result.stderr
    assert problem in result.stderr
