"""tools/tidy.py fails on each kind of untidy file, and reports old measurements without failing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import tidy  # noqa: E402

GOOD = {
    "src/codec/frame.h": "// " + "x" * 117 + "\n",
    "src/codec/frame.cc": '#include "codec/frame.h"\nconst char* text = "' + "x" * 120 + '";\n',
    "include/narrowcast/types.h": "",
    "include/narrowcast/codec.h": '#include "narrowcast/types.h"\n',
    "tests/codec/frame.cc": '#include "narrowcast/codec.h"\n',
    "src/codec/constants.cc": "namespace {\nconstexpr int size = 3;\nnamespace fs = a::b;\nconst fs::path p = size;\n"
    "}  // namespace\nconstexpr int declared_elsewhere = 4;\n",
    "tests/golden/v1/frame.bin": "a\0b",
    "src/codec/codecs.def": "// clang-format off\n// number" + " " * 120 + "name\n// clang-format on\n",
    "src/codec/table.cc": 'namespace {\nconstexpr int row = 1;\n#include "codec/codecs.def"\n}  // namespace\n',
    "third_party/big/big.h": "// " + "x" * 200 + "\n" * (tidy.MAX_BYTES + 1),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write(tmp_path, GOOD)
    git(tmp_path, "init", "-q")
    return tmp_path


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    result = subprocess.run(["git", *identity, *arguments], cwd=root, capture_output=True, text=True, check=True)
    return result.stdout.strip()


def check(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "tidy.py"), str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_tidy_tree_passes(tree: Path) -> None:
    result = check(tree)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("before", "\x7fELF\0", "before: a binary file"),
        ("src/codec/frame.bin", "\0", "src/codec/frame.bin: a binary file"),
        ("docs/guide.md", "x" * (tidy.MAX_BYTES + 1), f"docs/guide.md: {tidy.MAX_BYTES + 1} bytes"),
        ("src/codec/unused.h", "", "src/codec/unused.h: nothing includes it"),
        ("include/narrowcast/unused.cuh", "", "include/narrowcast/unused.cuh: nothing includes it"),
        (
            "src/codec/unused.cc",
            "namespace {\nconstexpr int few = 3;\nconstexpr char text[] = {few};\n}  // namespace\n",
            "src/codec/unused.cc:3: nothing uses text",
        ),
        (
            "src/codec/unused.cc",
            "namespace {\nnamespace files = std::filesystem;\n}  // namespace\n",
            "src/codec/unused.cc:2: nothing uses files",
        ),
        ("src/codec/long.cc", "int x;\n  int y;  // " + "x" * 120, "src/codec/long.cc:2: a comment of 133 columns"),
        (
            "src/codec/long.cc",
            "// clang-format off\n// clang-format on\n// " + "x" * 120,
            "src/codec/long.cc:3: a comment of 123 columns",
        ),
        ("src/codec/long.cu", "/* " + "x" * 118, "src/codec/long.cu:1: a comment of 121 columns"),
        ("tools/long.py", "# " + "é" * 119, "tools/long.py:1: a comment of 121 columns"),
        ("Makefile", "all:  # " + "x" * 120, "Makefile:1: a comment of 128 columns"),
    ],
)
def test_an_untidy_file_fails(tree: Path, name: str, text: str, problem: str) -> None:
    write(tree, {name: text})
    result = check(tree)
    assert result.returncode == 1
    assert problem in result.stderr
    assert "tree: 1 problems" in result.stdout


def test_ignored_files_and_links_are_not_checked(tree: Path) -> None:
    write(tree, {".gitignore": "/build/\n", "build/object.o": "\0"})
    (tree / "link").symlink_to("tests/golden/v1/frame.bin")
    assert check(tree).returncode == 0


def test_old_measurements_are_reported(tree: Path) -> None:
    kernel = "src/executor/cuda/packets/move.cu"
    write(tree, {"src/codec/encode.cu": "// 1\n", kernel: "// 1\n", "src/comm/call.cc": "// 1\n"})
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "first")
    commit = git(tree, "rev-parse", "HEAD")
    write(
        tree,
        {
            "bench/results/h200/codec.json": "{}",
            "bench/results/h200/2026-01-01_codec.json": f'{{"commit": "{commit}"}}',
            "bench/results/h200/2026-01-01_collectives.json": f'{{"commit": "{commit}"}}',
            "data/costs/h200.costs": f"narrowcast-costs 2\n# commit {commit}, NCCL\n",
            "data/costs/b200.costs": f"# commit {'0' * 40}\n",
            "data/costs/none.costs": "# no stamp\n",
            "src/comm/call.cc": "// 2\n",
        },
    )
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "second, not in a kernel")
    fresh = check(tree, "--report")
    assert fresh.returncode == 0
    assert "h200.costs" not in fresh.stdout
    assert "2026-01-01" not in fresh.stdout
    assert f"b200.costs: measured at {'0' * 12}, which is not in this clone" in fresh.stdout
    assert "none.costs: states no commit" in fresh.stdout

    write(tree, {kernel: "// 2\n"})
    git(tree, "commit", "-qam", "third, in a kernel of collectives")
    old = check(tree, "--report")
    assert old.returncode == 0
    for name in ["bench/results/h200/2026-01-01_collectives.json", "data/costs/h200.costs"]:
        assert f"{name}: measured at {commit[:12]}; its kernels changed in 1 later commits" in old.stdout
    assert "2026-01-01_codec.json" not in old.stdout
