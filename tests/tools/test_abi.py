"""tools/abi.py describes the headers and classifies changes as compatible or not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = Path(os.environ.get("NARROWCAST_LIBRARY") or ROOT / "build" / "libnarrowcast.so")
pytest.importorskip("pycparser")
sys.path.insert(0, str(ROOT / "tools"))

import abi  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

HEADER = """
#include <stddef.h>
#include <stdint.h>
#define NCAST_LIMIT 4
typedef struct ncast_comm ncast_comm;
typedef enum { NCAST_A = 0, NCAST_B = 1 } ncast_kind;
typedef struct {
  size_t struct_bytes;
  int device;
  double seconds[2];
} ncast_config;
typedef struct { uint32_t x; union { int y; float z; }; } ncast_point;
enum { NCAST_ID_BYTES = 128 };
typedef int (*ncast_exchange)(void* context, size_t bytes);
static inline int ncast_inline(void) { return 1; }
__attribute__((visibility("default"))) int ncast_create(ncast_comm** comm, const ncast_config* config);
"""

DESCRIPTION = """
constant NCAST_ID_BYTES: 128
constant NCAST_LIMIT: 4

typedef ncast_exchange: int (*)(void *, size_t)

enum ncast_kind: 4 bytes
  NCAST_A: 0
  NCAST_B: 1

struct ncast_comm: opaque
struct ncast_config: 32 bytes
  struct_bytes: 0 8 size_t
  device: 8 4 int
  seconds: 16 16 double [2]
struct ncast_point: 8 bytes
  x: 0 4 uint32_t
  y: 4 4 int
  z: 4 4 float


function ncast_create: int (ncast_comm **, const ncast_config *)
"""


def describe(root: Path, header: str) -> str:
    path = root / "include" / "narrowcast" / "narrowcast.h"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(header, encoding="utf-8")
    return abi.describe(root)


def test_a_header_is_described(tmp_path: Path) -> None:
    assert describe(tmp_path, HEADER) == abi.HEAD + DESCRIPTION


def test_parameter_names_are_not_part_of_the_description(tmp_path: Path) -> None:
    assert describe(tmp_path, HEADER.replace("** comm, const", "** created, const")) == abi.HEAD + DESCRIPTION


COMPATIBLE = [
    ("__attribute__", "int ncast_new(void);\n__attribute__", "function ncast_new is added"),
    ("NCAST_B = 1", "NCAST_B = 1, NCAST_C = 2", "enum ncast_kind: NCAST_C = 2 is added"),
    ("seconds[2];", "seconds[2];\n  int more;", "struct ncast_config: more is added at its end"),
    ("typedef struct ncast_comm", "typedef int ncast_word;\ntypedef struct ncast_comm", "typedef ncast_word is added"),
]
INCOMPATIBLE = [
    ("int ncast_create", "int ncast_make", "function ncast_create is removed"),
    ("int ncast_create", "void ncast_create", "function ncast_create: was 'int (ncast_comm **"),
    ("const ncast_config* config", "ncast_config* config", "function ncast_create: was"),
    ("NCAST_B = 1", "NCAST_B = 2", "enum ncast_kind: NCAST_B was 1 and is 2"),
    (", NCAST_B = 1", "", "enum ncast_kind: NCAST_B is removed"),
    ("NCAST_B = 1", "NCAST_B = 1, NCAST_C = 1", "enum ncast_kind: NCAST_C = 1 is added"),
    ("NCAST_B = 1", "NCAST_B = 1l << 40", "enum ncast_kind: was 4 bytes and is 8 bytes"),
    ("int device;", "int device, extra;", "extra is added inside the 32 bytes that older programs have"),
    ("int device;", "int64_t device;", "device was '8 4 int' and is '8 8 int64_t'"),
    ("int device;", "int gpu;", "struct ncast_config: device is renamed to gpu, in the same place"),
    ("double seconds[2];", "", "struct ncast_config: seconds is removed"),
    ("uint32_t x;", "uint32_t x, w;", "w is added, and ncast_point does not start with its size"),
    ("ncast_comm ncast_comm", "ncast_comm* ncast_comm", "struct ncast_comm is removed"),
    ("NCAST_LIMIT 4", "NCAST_LIMIT 5", "constant NCAST_LIMIT: was '4' and is '5'"),
    ("(*ncast_exchange)(void*", "(*ncast_exchange)(int*", "typedef ncast_exchange: was"),
]


@pytest.mark.parametrize(
    ("old", "new", "what", "compatible"),
    [(*case, True) for case in COMPATIBLE] + [(*case, False) for case in INCOMPATIBLE],
)
def test_changes_are_classified(tmp_path: Path, old: str, new: str, what: str, compatible: bool) -> None:
    assert HEADER.count(old) == 1
    changes = abi.compare(abi.HEAD + DESCRIPTION, describe(tmp_path, HEADER.replace(old, new)))
    assert [one for one in changes if what in one.what and one.compatible == compatible], changes
    assert all(one.compatible for one in changes) == compatible


def run(root: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools" / "abi.py", *arguments, "--root", root]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_check_fails_until_the_description_is_updated(tmp_path: Path) -> None:
    describe(tmp_path, HEADER)
    assert run(tmp_path, "update").returncode == 0
    assert run(tmp_path, "check").returncode == 0
    describe(tmp_path, HEADER.replace("NCAST_B = 1", "NCAST_B = 2"))
    failed = run(tmp_path, "check")
    assert failed.returncode == 1
    assert "INCOMPATIBLE: enum ncast_kind: NCAST_B was 1 and is 2" in failed.stderr
    assert "run `make abi`" in failed.stderr
    assert run(tmp_path, "update").returncode == 0
    assert run(tmp_path, "check").returncode == 0


def test_exports_are_compared_with_the_headers(tmp_path: Path) -> None:
    describe(tmp_path, HEADER)
    run(tmp_path, "update")
    library = tmp_path / "library.so"
    source = b"int ncast_other(void) { return 0; }"
    subprocess.run(["cc", "-shared", "-x", "c", "-", "-o", library], input=source, check=True)
    failed = run(tmp_path, "check", "--library", library)
    assert failed.returncode == 1
    assert "does not export ncast_create, which the headers declare" in failed.stderr
    assert "exports ncast_other, which no header declares" in failed.stderr


@pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")
def test_the_committed_description_matches_headers_and_library() -> None:
    done = run(ROOT, "check", "--library", LIBRARY)
    assert done.returncode == 0, done.stderr
