"""Codecs of users: the example is checked, used in frames, files and communicators, and damaged on purpose."""

from __future__ import annotations

import json
import subprocess
import sys

import narrowcast
import numpy as np
import pytest
from cli_output import assert_one_line
from narrowcast._bench.codec_check import PROPERTIES
from narrowcast._bench.launch import run_ranks


@pytest.fixture(scope="session")
def uniform(compiled_codec):
    return compiled_codec()


def run(program, *arguments):
    """Runs a program in a process of its own, whose codecs are not those of the tests."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys, narrowcast, numpy as np\n{program}", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_the_example_has_every_property(cli_here, codec_with_header):
    done = cli_here("codec", "check", codec_with_header(), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["codec"] == "uniform"
    assert {"uniform, float32", "uniform:bits=12, bfloat16", "uniform:dither=1, float32"} <= set(report["cases"])
    assert report["properties"] == [{"property": name, "holds": True, "fault": None} for name in PROPERTIES]


def test_a_fault_is_reported_as_the_property_that_it_breaks(cli_here, compiled_codec):
    wrong = compiled_codec(
        ("return step_of(block, (float)largest) * (1", "return step_of(block, 1) / (largest + 1) / 9 * (1"),
        ("if (isnan(value)) return -top;", "if (isnan(value)) return 0;"),
        ("  memset(payload, 0, HEADER_BYTES);\n", ""),
        ("const uint64_t bits = mixed(", "static uint64_t calls;\n  const uint64_t bits = mixed(++calls + "),
        ("if (size != payload_bytes(block)) return 0;", "if ((size_t)values % 2 != 0) return 0;"),
    )
    crashing = compiled_codec(
        ("if (!isfinite(largest) || signbit(largest)) return 0;", "if (signbit(largest)) __builtin_trap();"),
        ("store(block, value, values, i);", "store(block, value, values, i), store(block, value, values, i | 1);"),
        ("return HEADER_BYTES + ", "return HEADER_BYTES + (bits_of(block) == 12) + "),
    )
    expected = {
        wrong: {
            "restores values": "exceed",
            "keeps what is not finite": "that are not finite became others",
            "has an error bound that grows": "error_bound of 0, 1e-6, 1e-3, 1 and 64 is ",
            "encodes the same values": "other bytes the second time",
            "needs no alignment": "CorruptError",
            "writes all bytes": "bytes of the payload are not written",
        },
        crashing: {
            "has payloads of the stated sizes": "uniform:bits=12, float32: ",
            "survives damaged payloads": "the process was killed by signal",
        },
    }
    for library, faults in expected.items():
        done = cli_here("codec", "check", library, "--json")
        assert done.returncode == 1, done.stderr
        found = {one["property"]: one["fault"] for one in json.loads(done.stdout)["properties"] if not one["holds"]}
        for name, part in faults.items():
            assert any(one.startswith(name) and part in fault for one, fault in found.items()), (name, found)


def test_descriptions_that_are_not_valid_are_refused(compiled_codec):
    faults = {
        "its id is 5, not one of those for users, 192 to 253": (".id = 200", ".id = 5"),
        "its name is not a letter and then letters, digits and _": ('.name = "uniform"', '.name = "Uniform"'),
        "another codec has the name int8": ('.name = "uniform"', '.name = "int8"'),
        "the name within means something else": ('.name = "uniform"', '.name = "within"'),
        "was made for version 2 of user codecs": (".version = NCAST_USER_CODEC_VERSION", ".version = 2"),
        "the parameter bits has limits or a default": ("INTEGER, 4, 12, 8", "INTEGER, 4, 12, 13"),
        "block_bytes of bfloat16 is 4000, not a multiple": ("{NCAST_BFLOAT16, 4096", "{NCAST_BFLOAT16, 4000"),
        "error_bound is for codecs that are not exact": (".error_bound = error_bound", ".error_bound = 0"),
        "payload_bytes of float32 is 1041, not": ("return HEADER_BYTES +", "return 1 + HEADER_BYTES +"),
        "no function ncast_user_codec": ("ncast_user_codec(void)", "own_codec(void)"),
    }
    done = run(
        """
for path in sys.argv[1:]:
    try:
        print(narrowcast.register_codec(path))
    except (narrowcast.InvalidArgumentError, narrowcast.UnsupportedError) as error:
        print(error)
""",
        *(compiled_codec(fault) for fault in faults.values()),
    )
    for message, line in zip(faults, done.stdout.splitlines(), strict=True):
        assert line.startswith("ncast_codec_register: ")
        assert message in line


def test_a_registered_codec_is_used_by_name_only(uniform):
    done = run(
        """
one = narrowcast.register_codec(sys.argv[1])
assert one == narrowcast.register_codec(sys.argv[1]) == narrowcast.codecs()[-1], one
assert one.registered and (one.name, one.number, one.exact) == ("uniform", 200, False)
values = np.linspace(-1, 1, 9000, dtype=np.float32)
frame = narrowcast.encode(values, codec="uniform:bits=6")
assert narrowcast.inspect(frame).codec == "uniform:bits=6"
limit = narrowcast.codec.error_bound("uniform:bits=6", "float32", 1)
assert 0 < np.abs(narrowcast.decode(frame) - values).max() <= limit
said = narrowcast.explain("all_gather", 1 << 20, dtype="float32", ranks=2, codec="within:relative=0.9!")
assert "int2" in said.allowed and "uniform" not in said.allowed, said.allowed
try:
    narrowcast.explain("all_gather", 1, dtype="float32", ranks=2, codec="uniform")
except narrowcast.UnsupportedError as error:
    print(error)
narrowcast.register_codec(sys.argv[1])
try:
    narrowcast.register_codec(sys.argv[2])
except narrowcast.InvalidArgumentError as error:
    print(error)
""",
        uniform,
        uniform.parent / "missing.so",
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].endswith("the codec uniform is that of a user without a CUDA header, and runs on CPUs only")
    assert "missing.so: cannot open shared object file" in lines[-1]


# With `status` and `error`: those of compiling the header of sys.argv[1].
COMPILE = """
from narrowcast._native.library import library
codec = narrowcast.register_codec(sys.argv[1])
status = library().ncast_codec_compile(codec.number, {dtype}, {architecture}, b"")
error = library().ncast_last_error().decode()
if "NVRTC was not found" in error:
    print("skipped")
    sys.exit()
"""


def compile_header(library, check, dtype=7, architecture=90):
    done = run(COMPILE.format(dtype=dtype, architecture=architecture) + check, library)
    if done.stdout == "skipped\n":
        pytest.skip("NVRTC is not installed")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_cuda_header_compiles_for_older_gpus_and_calls_can_use_its_codec(codec_with_header):
    check = """
assert status == 0, error
said = narrowcast.explain("all_reduce", 1 << 24, dtype="float32", ranks=2, codec="uniform:bits=6!", result_codec="raw")
print(said.candidate, said.codec, said.result_codec)
"""
    # `narrowcast codec check` compiles for architecture 90.
    assert compile_header(codec_with_header(), check, architecture=80) == "blocks:uniform uniform:bits=6 raw\n"


def test_faults_of_a_cuda_header_are_shown_with_their_lines(codec_with_header):
    library = codec_with_header("  float largest = 0;\n", "  float largest = nothing;\n")
    (line,) = [
        number
        for number, text in enumerate(library.with_suffix(".cuh").read_text().splitlines(), 1)
        if "nothing" in text
    ]
    error = compile_header(library, "assert status == 1\nprint(error)")
    assert error.startswith("ncast_codec_compile: the CUDA header of the codec uniform does not compile for float32: ")
    assert f'{library.with_suffix(".cuh")}({line}): error: identifier "nothing" is undefined' in error


def test_only_cuda_headers_are_compiled(uniform, codec_with_header):
    for library, arguments, message in (
        (uniform, {}, "uniform is that of a user without a CUDA header, and runs on CPUs only"),
        (codec_with_header(), {"dtype": 8}, "uniform does not encode dtype 8"),
        (codec_with_header(), {"architecture": 70}, "architecture is 70, not 80"),
    ):
        assert message in compile_header(library, "print(error)", **arguments)


def test_codecs_are_registered_before_they_are_chosen_from(uniform):
    done = run(
        """
narrowcast.explain("all_gather", 1, dtype="float32", ranks=2)
narrowcast.register_codec(sys.argv[1])
""",
        uniform,
    )
    assert "can only be registered before the first communicator, explanation or cost model" in done.stderr


def test_files_with_a_registered_codec_need_its_library(cli, uniform, tmp_path):
    np.save(tmp_path / "values.npy", np.linspace(-1, 1, 9000, dtype=np.float32))
    set_codecs = {"NARROWCAST_USER_CODECS": f"{uniform}:{uniform}"}
    encoded = cli("encode", "values.npy", "--lossy", "--codec", "uniform:bits=4", **set_codecs)
    assert encoded.returncode == 0, encoded.stderr
    assert "uniform:bits=4" in cli("inspect", "values.npy.ncast", **set_codecs).stdout
    assert cli("decode", "values.npy.ncast", "-o", "again.npy", **set_codecs).returncode == 0
    assert_one_line(
        cli("decode", "values.npy.ncast", "-o", "never.npy"),
        1,
        "codec 200 is that of a user, whose library is not registered",
    )
    assert "uniform" in cli("codec", "list", **set_codecs).stdout
    wrong = cli("codec", "list", NARROWCAST_USER_CODECS=str(tmp_path / "missing.so"))
    assert_one_line(wrong, 1, "NARROWCAST_USER_CODECS: ", "missing.so")


def registered_on(libraries, rank_jobs, codec="uniform:bits=6!"):
    """What `registered` of rank_jobs emits, by rank."""
    rows = []
    unique_id = narrowcast.unique_id(local=True).hex()
    arguments = [
        {"unique_id": unique_id, "rank": rank, "ranks": len(libraries), "libraries": own, "codec": codec}
        for rank, own in enumerate([str(one) for one in of_rank] for of_rank in libraries)
    ]
    run_ranks(f"{rank_jobs}:registered", arguments, rows.append, timeout_seconds=60)
    return rows


def test_calls_with_a_registered_codec_are_within_its_bound_and_alike_on_all_ranks(uniform, rank_jobs):
    ranks = 3
    *results, ratios = registered_on([[uniform]] * ranks, rank_jobs)
    step = 5 / 30  # of values of at most 5
    for name, limit in (("all_reduce", 2 * step + 3 * step), ("all_gather", step), ("broadcast", step)):
        rows = next(rows for rows in results if rows[0][0] == name)
        assert all(0 < error <= limit for _, error, _ in rows[1:])
        assert name == "all_gather" or len({bits for _, _, bits in rows[1:]}) == 1
    assert all(ratio < 0.25 for _, ratio, _ in ratios)


def test_ranks_that_registered_other_libraries_cannot_join(compiled_codec, codec_with_header, uniform, rank_jobs):
    other = compiled_codec(("0x94d049bb133111ebull", "0x94d049bb133111edull"))
    for libraries in ([[uniform], []], [[uniform], [other]], [[uniform], [codec_with_header()]]):
        with pytest.raises(narrowcast.RemoteError, match=r"the set of registered codecs is .* on rank 1, but uniform"):
            registered_on(libraries, rank_jobs)
