"""The pages that tools/docs derives from the public headers, and how it rewrites links."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def load(name):
    sys.path.insert(0, str(ROOT / "tools" / "docs"))
    try:
        spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / "docs" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.pop(0)


OPERATIONS = """\
// What the columns mean.
//   NAME(a, b)   more
#ifndef NCAST_OPERATION
#error "NCAST_OPERATION(not, a, row)"
#endif
NCAST_OPERATION(3, SEND, send, MOVE, PEER, PIECE, NONE, SEPARATE, TWICE_OTHERS, BLOCKS, "ncclSend ncclSendConfig")
#undef NCAST_OPERATION
"""

CODECS = """\
// What a row says.
NCAST_CODEC_ROW(7, INT8, int8, grouped, bounded, fixed,
                NCAST_CODEC_PARAMETER(POWER_OF_TWO, group, 1, 1024, 32)
                NCAST_CODEC_CHOICE(rounding, nearest|stochastic)
                NCAST_CODEC_PARAMETER(INTEGER, rotate, 1, 64, 1),
                NCAST_CODEC_TYPE(FLOAT32, 4096, 0.25)
                NCAST_CODEC_TYPE(BFLOAT16, 4096, 0.5))
"""


docstrings, headers, tables, hooks = (load(name) for name in ("docstrings", "headers", "tables", "hooks"))

HEADER = """\
// What the header is for.
#ifndef A_H_
#define A_H_

#ifdef __cplusplus
extern "C" {
#endif

// A struct.
typedef struct {
  int rank;  // this one
} ncast_thing;

// A table.
typedef enum {
#define ROW(name) name,
#include "rows.def"
} ncast_rows;

// Makes *one* from ncast_thing.
//   bytes: at most NCAST_MOST;
//          or none.
// Errors: CORRUPT.
NCAST_API ncast_status ncast_make(ncast_thing* thing,
                                  size_t bytes);
NCAST_API void ncast_make_again(void);

NCAST_API int ncast_bare(void);

// A comment without a declaration.

NCAST_API int ncast_after_a_stray_comment(void);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif
"""


@pytest.fixture
def header(tmp_path):
    (tmp_path / "a.h").write_text(HEADER)
    return headers.parse(tmp_path / "a.h")


def test_functions_without_a_comment_are_found(header):
    assert header.undocumented() == ["ncast_bare", "ncast_after_a_stray_comment"]


def test_a_comment_belongs_to_the_declarations_up_to_the_next_blank_line(header):
    names = [entry.names() for entry in header.entries]
    assert names[:3] == [["ncast_thing"], ["ncast_rows"], ["ncast_make", "ncast_make_again"]]


def test_a_page_has_every_declaration_and_its_comment(header):
    page = headers.page(header)
    assert "# narrowcast/a.h\n\nWhat the header is for.\n" in page
    assert "## ncast_make, ncast_make_again\n" in page
    assert (
        "Makes \\*one\\* from `ncast_thing`.\n\n- `bytes`: at most `NCAST_MOST`;\n  or none.\n\nErrors: CORRUPT.\n"
        in page
    )
    assert '{\n#define ROW(name) name,\n#include "rows.def"\n} ncast_rows;' in page
    assert "```c\ntypedef struct {\n  int rank;  // this one\n} ncast_thing;\n```" in page


@pytest.mark.parametrize("path", sorted((ROOT / "include" / "narrowcast").glob("*.h")), ids=lambda path: path.name)
def test_every_function_of_a_public_header_is_on_its_page_and_has_a_comment(path):
    found = headers.parse(path)
    text = path.read_text()
    functions = sum(name.startswith("ncast_") for entry in found.entries for name in entry.names())
    assert functions >= text.count("\nNCAST_API ")
    assert found.undocumented() == []


@pytest.mark.parametrize(
    ("source", "link", "expected"),
    [
        ("README.md", "docs/guide/nccl.md", "guide/nccl.md"),
        ("README.md", "HACKING.md", "HACKING.md"),
        ("README.md", "third_party/README.md", "source/third_party/README.md.txt"),
        ("docs/guide/channels.md", "../../include/narrowcast/comm.h", "../source/include/narrowcast/comm.h.txt"),
        ("docs/guide/nccl.md", "settings.md#narrowcast-run", "settings.md#narrowcast-run"),
        ("docs/performance.md", "../bench/results/README.md", "results.md"),
        ("docs/performance.md", "https://example.org/a", "https://example.org/a"),
    ],
)
def test_links_lead_to_the_site(source, link, expected):
    folder = "guide" if "/guide/" in source else ""
    assert hooks.rewritten(f"`[a](b)` [text]({link})", source, folder) == f"`[a](b)` [text]({expected})"


def test_every_integration_is_in_the_reference():
    folder = ROOT / "python" / "narrowcast" / "integrations"
    modules = {f"narrowcast.integrations.{path.stem}" for path in folder.glob("[!_]*.py")}
    assert modules <= set(hooks.PYTHON_MODULES)
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [name for name in hooks.PYTHON_MODULES if f"api/python/{name}.md" not in navigation] == []


def test_every_row_of_a_table_is_on_its_page(tmp_path):
    (tmp_path / "operations.def").write_text(OPERATIONS)
    page = tables.operations_page(tmp_path / "operations.def")
    row = (
        "| 3 | `send` | move | peer | piece | none | separate | twice others | blocks | `ncclSend`, `ncclSendConfig` |"
    )
    assert [line for line in page.splitlines() if line.startswith("| ")][2:] == [row]
    assert "```text\nWhat the columns mean.\n  NAME(a, b)   more\n```" in page
    (tmp_path / "codecs.def").write_text(CODECS)
    page = tables.codecs_page(tmp_path / "codecs.def")
    parameters = "; ".join(
        (
            "`group`, power of two, 1 to 1024, default 32",
            "`rounding`, `nearest` or `stochastic`",
            "`rotate`, integer, 1 to 64, default 1",
        )
    )
    assert f"| 7 | `int8` | bounded | fixed | {parameters} |\n" in page
    assert "| `int8` | float32 | 4096 | 0.25 |\n| `int8` | bfloat16 | 4096 | 0.5 |\n" in page


def test_parameters_in_docstrings_become_a_list():
    text = "Encodes.\n\nout: for\n    the frame.\nrank, ranks: numbers.\n\nErrors: none.\n    code: 1\n"
    expected = "Encodes.\n\n\n- `out`: for\n  the frame.\n- `rank, ranks`: numbers.\n\nErrors: none.\n    code: 1"
    assert docstrings.with_lists(text) == expected
