"""The drop-in without a communicator: exports, linking, the search for NCCL, settings and messages."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from narrowcast._native import settings

LISTS = sorted((Path(__file__).parents[2] / "nccl" / "abi" / "exports").glob("*.txt"))
NEWEST = max(LISTS, key=lambda path: [int(part) for part in path.stem.split(".")])
SOURCES = Path(__file__).parents[3] / "src"
OWN = {
    "narrowcast_nccl_resolve",
    "narrowcast_nccl_predictor",
    "narrowcast_nccl_check_policy",
    "narrowcast_nccl_decide",
    "narrowcast_nccl_mark_step",
}

ASK = """
import ctypes, sys
library, version = ctypes.CDLL(sys.argv[1]), ctypes.c_int(-1)
for prefix in ("nccl", "pnccl"):
    print(getattr(library, prefix + "GetVersion")(ctypes.byref(version)), version.value)
print(library.ncclCommMemStats(None, 0, None))
text = library.ncclGetLastError
text.restype = ctypes.c_char_p
print(text(None).decode())
"""


def symbols(library: Path) -> dict[str, str]:
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("nm was not found")
    listed = subprocess.run([nm, "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    rows = [line.split()[-2:] for line in listed.stdout.splitlines()]
    return {name.partition("@")[0]: kind for kind, name in rows}


def ask(library: Path, fakes: Path, *, before: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("NARROWCAST_")}
    return subprocess.run(
        [sys.executable, "-c", before + ASK, str(library)],
        capture_output=True,
        text=True,
        env={**own, "LD_LIBRARY_PATH": str(fakes), **environment},
        check=True,
    )


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_trampolines_assemble_for_every_machine(machine, tmp_path):
    clang = shutil.which("clang") or pytest.skip("clang was not found, which can assemble for other machines")
    assembled = tmp_path / "trampolines.o"
    options = [f"--target={machine}-linux-gnu", f"-I{SOURCES}", "-c", "-o", assembled]
    subprocess.run([clang, *options, SOURCES / "nccl" / "entry" / "trampolines.S"], check=True)
    listed = subprocess.run(["nm", "-g", "--defined-only", assembled], capture_output=True, text=True, check=True)
    exported = {line.split()[2]: line.split()[1] for line in listed.stdout.splitlines()}
    expected = dict(reversed(line.split()) for line in NEWEST.read_text().splitlines())
    assert exported == {**expected, "narrowcast_nccl_slots": "D"}


@pytest.mark.parametrize("listed", LISTS, ids=lambda path: path.stem)
def test_all_functions_of_nccl_are_exported(drop_in, listed):
    expected = dict(reversed(line.split()) for line in listed.read_text().splitlines())
    own = symbols(drop_in)
    assert {name: own.get(name) for name in expected} == expected


def test_nothing_else_is_exported(drop_in):
    assert set(symbols(drop_in)) - {line.split()[1] for line in NEWEST.read_text().splitlines()} == OWN


def test_the_installed_nccl_exports_no_other_functions(drop_in):
    try:
        package = importlib.util.find_spec("nvidia.nccl")
    except ImportError:
        package = None
    if package is None:
        pytest.skip("NCCL's wheel is not installed")
    library = Path(next(iter(package.submodule_search_locations))) / "lib" / "libnccl.so.2"
    assert {name for name in symbols(library) if name.lstrip("p").startswith("nccl")} <= set(symbols(drop_in))


def test_the_shipped_drop_in_reads_no_variable_of_the_tests(drop_in):
    assert b"NARROWCAST_TEST_" not in drop_in.read_bytes()


def test_the_drop_in_has_the_soname_of_nccl_and_links_only_libc(drop_in):
    read = subprocess.run(["readelf", "-d", str(drop_in)], capture_output=True, text=True, check=True).stdout
    rows = [line for line in read.splitlines() if "[" in line]
    assert [row.partition("[")[2].rstrip("]") for row in rows if "SONAME" in row] == ["libnccl.so.2"]
    needed = {row.partition("[")[2].rstrip("]") for row in rows if "NEEDED" in row}
    loader = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}[platform.machine()]
    assert needed <= {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", loader}


def test_calls_reach_the_real_nccl(drop_in, fakes):
    result = ask(drop_in, fakes, NARROWCAST_NCCL_LIBRARY=str(fakes / "libnccl.so.2"), NARROWCAST_DEBUG="VERSION")
    assert result.stdout.splitlines()[:2] == ["0 22809", "0 22809"]
    assert f"loaded NCCL 2.28.9 from {fakes / 'libnccl.so.2'}" in result.stderr


def test_a_function_that_the_real_nccl_lacks_fails_with_a_message(drop_in, fakes):
    result = ask(drop_in, fakes, NARROWCAST_NCCL_LIBRARY=str(fakes / "libnccl.so.2"))
    assert result.stdout.splitlines()[2] == "5"
    assert "NCCL 2.28.9 has no ncclCommMemStats" in result.stderr


@pytest.mark.parametrize("named", ["/nowhere/libnccl.so.2", "libnccl.so.2", "the drop-in", "a copy"])
def test_without_nccl_every_call_fails_with_a_message(drop_in, fakes, tmp_path, named):
    copy = tmp_path / "libnccl.so.2"
    shutil.copy(drop_in, copy)
    path = {"the drop-in": str(drop_in), "a copy": str(copy)}.get(named, named)
    result = ask(drop_in, fakes, NARROWCAST_NCCL_LIBRARY=path)
    assert result.stdout.splitlines()[:3] == ["2 -1", "2 -1", "2"]
    assert "narrowcast: the real NCCL was not found" in result.stdout
    assert "the real NCCL was not found, so every call fails: set NARROWCAST_NCCL_LIBRARY to its path" in result.stderr


def test_an_unsupported_nccl_receives_every_call(drop_in, fakes):
    result = ask(drop_in, fakes, NARROWCAST_NCCL_LIBRARY=str(fakes / "libnccl.so.2"), FAKE_NCCL_VERSION="30100")
    assert result.stdout.splitlines()[0] == "0 30100"
    assert "Narrowcast does not support NCCL 3.1.0: every call is forwarded to it" in result.stderr


def test_nccl_is_found_if_it_is_loaded_or_beside_loaded_packages(drop_in, fakes, tmp_path):
    packages = tmp_path / "lib" / "python3" / "site-packages"
    wheel = packages / "nvidia" / "nccl" / "lib"
    wheel.mkdir(parents=True)
    shutil.copy(fakes / "libnccl.so.2", wheel)
    shutil.copy(fakes / "libmalloc.so", packages / "extension.so")
    loaded = tmp_path / "libnccl.so.2"
    shutil.copy(fakes / "libnccl.so.2", loaded)
    for other, found in ((packages / "extension.so", wheel / "libnccl.so.2"), (loaded, loaded)):
        before = f"import ctypes; ctypes.CDLL({str(other)!r})\n"
        result = ask(drop_in, fakes, before=before, NARROWCAST_DEBUG="VERSION")
        assert f"loaded NCCL 2.28.9 from {found}" in result.stderr


@pytest.fixture
def warned(drop_in, fakes, tmp_path):
    """Runs with a settings file and variables. Returns the warnings."""

    def run(content: str = "", **environment: str) -> list[str]:
        (tmp_path / "own.toml").write_text(content)
        named = {
            "NARROWCAST_NCCL_LIBRARY": str(fakes / "libnccl.so.2"),
            "NARROWCAST_CONFIG": str(tmp_path / "own.toml"),
        }
        lines = ask(drop_in, fakes, **{**named, **environment}).stderr.replace(f"{tmp_path}/", "").splitlines()
        warnings = [line.partition(" narrowcast WARN ")[2] for line in lines]
        return [warning for warning in warnings if warning and "has no ncclCommMemStats" not in warning]

    return run


def known_by(warning: str) -> set[str]:
    return set(warning.partition("(known: ")[2].rstrip(")").split(", "))


def test_the_drop_in_knows_the_settings_that_python_knows(warned, tmp_path):
    valid = {"CONFIG": "own.toml", "DEBUG": "WARN", "ATTACH": "init", "CODEC": "raw", "TAKE": "auto", "OFF": "send"}
    valid["PLANS"] = str(tmp_path / "plans")
    (tmp_path / "plans").mkdir()
    kept = {f"{settings.PREFIX}{name}" for name in ("CONFIG", "NCCL_LIBRARY")}
    every = {name: valid.get(name.removeprefix(settings.PREFIX), "1") for name in settings.VARIABLES - kept}
    assert warned(**every) == []
    (warning,) = warned(NARROWCAST_CODECS="raw")
    assert warning.startswith("the environment variable NARROWCAST_CODECS is not known to Narrowcast")
    assert known_by(warning) == settings.VARIABLES
    (warning,) = warned("codecs = 'raw'")
    assert warning.startswith("own.toml:1: codecs is not a setting")
    assert known_by(warning) == {*settings.KEYS, "rule", "plan"}


@pytest.mark.parametrize("name", sorted(settings.VARIABLES))
def test_files_accept_all_settings_except_those_of_other_components(warned, name):
    key = name.removeprefix(settings.PREFIX).lower()
    warnings = warned(f"\n{key} = '0'")
    if key in settings.KEYS:
        assert not any(" is not read from a file" in line or " is not a setting" in line for line in warnings)
    else:
        assert warnings == [f"own.toml:2: {key} is not read from a file: set {name}"]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("attach", "soon", "first or init"),
        ("calibrate", "never", "1 or 0"),
        ("debug", "loud", "NONE, VERSION, WARN, INFO or TRACE"),
        ("max_ctas", "many", "auto or a number from 1 to 64"),
        ("max_ctas", "65", "auto or a number from 1 to 64"),
        ("nvtx", "perhaps", "1 or 0"),
        ("p2p", "false", "0 or 1"),
        ("scratch_bytes", "64M", "a whole number of bytes, or 0 for the default"),
        ("scratch_bytes", "-1", "a whole number of bytes, or 0 for the default"),
        ("stats_seconds", "soon", "a number of seconds"),
        ("take", "perhaps", "auto, always or never"),
        ("verify", "twice", "1 or 0"),
    ],
)
def test_invalid_values_are_reported(warned, key, value, expected):
    variable = f"{settings.PREFIX}{key.upper()}"
    assert warned(**{variable: value}) == [f"{variable}: {key} is {value}, not {expected}"]
    assert warned(f"{key} = '{value}'") == [f"own.toml:1: {key} is {value}, not {expected}"]


def test_invalid_codecs_in_a_list_are_reported(warned):
    value = "raw, window:bits=6, all_gather=zip, gather_all=raw,"
    expected = [
        "codec 'window:bits=6': the codec has no parameter 'bits'",
        "'zip' is not a codec",
        "'gather_all' is not an operation",
    ]
    for source, warnings in (
        ("NARROWCAST_CODEC", warned(NARROWCAST_CODEC=value)),
        ("own.toml:1", warned(f"codec = '{value}'")),
    ):
        assert [line.partition(" (known: ")[0] for line in warnings] == [f"{source}: {line}" for line in expected]


def test_values_of_unsupported_types_are_reported(warned):
    assert warned("debug = {}") == ["own.toml:1: debug has a value of an unsupported type"]


def test_a_settings_file_that_is_not_a_regular_file_is_reported(warned, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with (tmp_path / "large").open("wb") as large:
        large.truncate(1 << 40)
    for path, why in (
        (tmp_path / "fifo", "it is not a regular file"),
        (Path("/dev/zero"), "it is not a regular file"),
        (tmp_path / "large", "it has more than 1048576 bytes"),
        (tmp_path, "Is a directory"),
    ):
        shown = str(path).replace(f"{tmp_path}/", "")
        assert warned(NARROWCAST_CONFIG=str(path)) == [f"NARROWCAST_CONFIG: cannot read {shown}: {why}"]


def test_control_characters_in_settings_are_escaped(warned):
    expected = "take is \\x1b[2J\\x0aall is well, not auto, always or never"
    assert warned(NARROWCAST_TAKE="\x1b[2J\nall is well") == [f"NARROWCAST_TAKE: {expected}"]
    assert warned("take = '\\u001b'") == ["own.toml:1: take is \\u001b, not auto, always or never"]
    assert warned('take = "\\u001b[2J\\nall is well"') == [f"own.toml:1: {expected}"]
    (warning,) = warned(**{"NARROWCAST_\x1b[2J": "1"})
    assert warning.startswith("the environment variable NARROWCAST_\\x1b[2J is not known")


def test_a_file_can_set_the_path_of_nccl_and_the_log_level(drop_in, fakes, tmp_path):
    path, old = tmp_path / "own.toml", fakes / "libnccl_old.so.2"
    path.write_text(f"nccl_library = '{fakes / 'libnccl.so.2'}'\ndebug = 'none'\n")

    def result(**environment: str) -> subprocess.CompletedProcess[str]:
        return ask(drop_in, fakes, NARROWCAST_CONFIG=str(path), **environment)

    # The environment takes precedence.
    for quiet in (result(), result(NARROWCAST_DEBUG="", NARROWCAST_NCCL_LIBRARY="")):
        assert quiet.stdout.splitlines()[0] == "0 22809"
        assert quiet.stderr == ""
    assert f"NCCL 2.28.9 from {fakes / 'libnccl.so.2'}\n" in result(NARROWCAST_DEBUG="VERSION").stderr
    assert f"NCCL 2.28.9 from {old}\n" in result(NARROWCAST_DEBUG="warn", NARROWCAST_NCCL_LIBRARY=str(old)).stderr


@pytest.mark.parametrize("from_a_file", [True, False])
def test_an_invalid_path_of_nccl_is_reported_with_its_source(warned, from_a_file):
    content = "nccl_library = 'libnccl.so.2'" if from_a_file else ""
    warnings = warned(content, NARROWCAST_NCCL_LIBRARY="" if from_a_file else "libnccl.so.2")
    source = "own.toml:1" if from_a_file else "NARROWCAST_NCCL_LIBRARY"
    assert warnings[0] == f"{source}: nccl_library is libnccl.so.2, which is not an absolute path"


def test_programs_without_nccl_load_only_the_drop_in(drop_in):
    maps = subprocess.run(
        ["cat", "/proc/self/maps"],
        capture_output=True,
        text=True,
        env={**os.environ, "LD_PRELOAD": str(drop_in)},
        check=True,
    )
    assert str(drop_in.resolve()) in maps.stdout
    assert "cuda" not in maps.stdout
    assert maps.stderr == ""
