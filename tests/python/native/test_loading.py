"""Loading the library, and warnings about unknown settings."""

from __future__ import annotations

import re
import subprocess
import sys
from ctypes import c_char_p, c_double, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

import narrowcast
import pytest
from narrowcast._native import library, settings
from narrowcast._native.operations import Buffer, describe, operations
from narrowcast._native.plan_structures import PLAN_SELECTOR
from narrowcast._native.structures import INTERRUPT_CHECK
from narrowcast.errors import _BY_STATUS, Status
from narrowcast.types import VALUE_TYPES


def test_the_version_is_three_numbers():
    assert [part.isdigit() for part in narrowcast.library_version().split(".")] == [True] * 3


def test_the_package_has_the_version_of_the_library():
    assert narrowcast.__version__ == narrowcast.library_version()
    with pytest.raises(AttributeError, match="no attribute 'version'"):
        _ = narrowcast.version


def test_types_match_the_library():
    for kind in VALUE_TYPES:
        assert library.library().ncast_dtype_name(kind.number).decode() == kind.name
        assert library.library().ncast_dtype_bytes(kind.number) == kind.bytes
    assert library.library().ncast_dtype_name(len(VALUE_TYPES)) is None


def test_operations_are_the_rows_of_the_table():
    table = Path(__file__).parents[3] / "include" / "narrowcast" / "operations.def"
    rows = re.findall(
        r"^NCAST_OPERATION\((\d+), +\w+, +(\w+), +(\w+), +(\w+), +(\w+), +(\w+),", table.read_text(), re.M
    )
    assert len(rows) == library.library().ncast_operation_count() == len(operations())
    for (number, name, kind, rank, send, recv), found in zip(rows, operations().values(), strict=True):
        assert (found.name, found.number) == (name, int(number))
        assert found.reduces == (kind == "REDUCE")
        assert (found.has_root, found.has_peer) == (rank == "ROOT", rank == "PEER")
        assert (found.send, found.recv) == (Buffer[send], Buffer[recv])
        assert describe(name) is found
    assert describe("broadcast").nccl_functions == ("ncclBroadcast", "ncclBroadcastConfig", "ncclBcast")
    with pytest.raises(ValueError, match=r"'all_median' is not an operation \(known: send, recv, broadcast"):
        describe("all_median")


def test_signatures_match_the_headers():
    headers = Path(__file__).parents[3] / "include" / "narrowcast"
    text = re.sub(r"//.*", "", "\n".join(path.read_text() for path in sorted(headers.glob("*.h"))))
    declared = dict(re.findall(r"NCAST_API [\w\s*]+?\b(ncast_\w+)\(([^)]*)\);", text))
    assert declared.keys() == library.SIGNATURES.keys()
    values = {"int": c_int, "size_t": c_size_t, "int64_t": c_int64, "uint64_t": c_uint64, "uint32_t": c_uint32}
    values |= {"ncast_codec": c_uint64, "double": c_double}
    values |= dict.fromkeys(("ncast_stream", "ncast_exchange"), c_void_p)
    values["ncast_interrupt_check"] = INTERRUPT_CHECK
    values["ncast_plan_selector"] = PLAN_SELECTOR
    enums = {"ncast_dtype", "ncast_operation", "ncast_redop", "ncast_status"}
    for name, arguments in declared.items():
        kinds = [argument.split() for argument in arguments.split(",") if argument.strip() not in ("", "void")]
        _, ours = library.SIGNATURES[name]
        assert len(ours) == len(kinds), name
        for kind, own in zip(kinds, ours, strict=True):
            if "*" in "".join(kind):
                assert own in (c_void_p, c_char_p) or hasattr(own, "contents"), (name, kind)
            else:
                assert own is (c_int if kind[0] in enums else values[kind[0]]), (name, kind)


def test_the_library_exports_every_function():
    """One that is defined without its declaration is hidden."""
    loaded = library.library()
    hidden = [name for name in library.SIGNATURES if isinstance(getattr(loaded, name), library._Missing)]
    if "ncast_cuda_architectures" in hidden:
        pytest.skip("the library was built without CUDA")
    assert hidden == []


def test_every_status_has_its_exception():
    for status in Status:
        if status != Status.OK:
            assert issubclass(_BY_STATUS[status], narrowcast.NarrowcastError)
            assert _BY_STATUS[status]("why").status == status
            assert str(_BY_STATUS[status]("why")) == "why"
    assert library.library().ncast_status_name(max(Status) + 1) == b"unknown status"


def test_importing_loads_no_framework_and_no_library():
    code = (
        "import sys, narrowcast, narrowcast._native.library as l; assert not l._loaded.cache_info().currsize;"
        "bad = {'torch', 'cupy', 'jax', 'matplotlib', 'ml_dtypes'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_missing_or_foreign_library_is_reported_in_one_line(cli, tmp_path):
    result = cli("--version", NARROWCAST_LIBRARY=str(tmp_path / "nothing.so"))
    assert result.returncode == 1
    assert result.stderr == f"narrowcast: NARROWCAST_LIBRARY names {tmp_path}/nothing.so, which is not a file\n"
    assert cli("bench", "all_reduce", NARROWCAST_LIBRARY=str(tmp_path / "nothing.so")).stderr == result.stderr
    assert cli("--help", NARROWCAST_LIBRARY=str(tmp_path / "nothing.so")).returncode == 0
    (tmp_path / "text.so").write_text("no library")
    result = cli("--version", NARROWCAST_LIBRARY=str(tmp_path / "text.so"))
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "cannot be loaded" in result.stderr


def test_every_setting_is_in_the_guide():
    guide = Path(__file__).parents[3] / "docs" / "guide"
    rows = re.findall(r"^\| `(NARROWCAST_\w+)` \|", (guide / "settings.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(settings.VARIABLES)
    text = "\n".join(path.read_text() for path in guide.glob("*.md"))
    assert set(re.findall(r"`(NARROWCAST_\w+)`", text)) - settings.VARIABLES == set()


def test_unknown_settings_are_reported(cli):
    result = cli("--version", NARROWCAST_LIBARY="x")
    assert result.returncode == 0
    assert "NARROWCAST_LIBARY is not known" in result.stderr


def test_control_characters_in_the_names_of_unknown_settings_are_escaped(monkeypatch):
    monkeypatch.setenv("NARROWCAST_\x1b[2J\nX", "x")
    with pytest.warns(UserWarning, match=re.escape(r"NARROWCAST_\x1b[2J\nX is not known")):
        library.warn_of_unknown_variables()
