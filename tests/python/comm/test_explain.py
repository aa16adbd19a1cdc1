"""`explain` shows how the CUDA backend would run a call, on any machine."""

from __future__ import annotations

import json
import re

import narrowcast
import pytest
from narrowcast._bench.operations import names
from narrowcast._native.library import library
from narrowcast.comm import Communicator
from narrowcast.types import VALUE_TYPES


def test_a_communicator_has_every_operation():
    assert all(hasattr(Communicator, name) for name in narrowcast.operations())


@pytest.mark.parametrize("operation", narrowcast.operations())
@pytest.mark.parametrize("codec", ["auto", *(f"{one.name}!" for one in narrowcast.codecs())])
def test_every_call_is_explained(operation, codec):
    is_exact = codec == "auto" or next(one.exact for one in narrowcast.codecs() if f"{one.name}!" == codec)
    encoded = {one.dtype for named in narrowcast.codecs() if f"{named.name}!" == codec for one in named.types}
    for kind in (kind for kind in VALUE_TYPES if kind.is_float or is_exact):
        for count in (1, 10_000, 100_000_000):
            explanation = narrowcast.explain(operation, count, dtype=kind.name, ranks=4, codec=codec)
            assert explanation.sentence.startswith(
                f"{operation} of {count} {kind.name} between 4 ranks runs by {explanation.path}"
            )
            assert explanation.path_why in explanation.sentence
            assert explanation.codec_why in explanation.sentence
            assert codec in ("auto", f"{explanation.codec}!") or kind.name not in encoded
            assert 1 <= explanation.ctas <= 64
            assert explanation.link == "nvlink"
            assert (explanation.plan is None) == (operation in ("send", "recv", "all_to_all_v"))
            assert explanation.plan is None or f"Its plan is {explanation.plan}." in explanation.sentence
            assert explanation.candidate == (
                "packets" if explanation.path == "packets" else f"blocks:{explanation.codec}"
            )
            assert explanation.predicted.chosen == explanation.predicted.candidates[explanation.candidate].typical
            assert "Predicted: " in explanation.sentence
            assert (explanation.rings is None) == (explanation.path == "packets")
            assert (explanation.shots is None) == (operation != "all_reduce" or explanation.path == "blocks")


def test_limits_of_ctas_apply(monkeypatch):
    monkeypatch.setenv("NARROWCAST_MAX_CTAS", "3")
    arguments = {"dtype": "bfloat16", "ranks": 2}
    assert narrowcast.explain("all_gather", 1 << 26, **arguments).ctas == 3
    assert narrowcast.explain("all_gather", 1 << 26, max_ctas=7, **arguments).ctas == 7
    monkeypatch.delenv("NARROWCAST_MAX_CTAS")
    for operation, ctas in {"all_gather": 7, "send": 64}.items():
        assert narrowcast.explain(operation, 1 << 26, max_collective_ctas=7, **arguments).ctas == ctas


def test_options_of_communicators_take_precedence_over_the_environment(monkeypatch, tmp_path):
    path = tmp_path / "own.costs"
    path.write_text(
        "narrowcast-costs 2 a machine\nall_gather 2 nvlink blocks:raw 1:9\nall_gather 2 nvlink blocks:window 1:8\n"
    )
    arguments = {"dtype": "uint8", "ranks": 2}
    built_in = narrowcast.explain("all_gather", 1, **arguments)
    monkeypatch.setenv("NARROWCAST_P2P", "0")
    assert narrowcast.explain("all_gather", 1, **arguments).link == "host"
    assert narrowcast.explain("all_gather", 1, p2p=True, **arguments) == built_in
    monkeypatch.setenv("NARROWCAST_P2P", "1")
    assert narrowcast.explain("all_gather", 1, p2p=False, **arguments).link == "host"
    assert narrowcast.explain("all_gather", 1, cost_model=path, **arguments).predicted.chosen == 9
    monkeypatch.setenv("NARROWCAST_COST_MODEL", str(path))
    assert narrowcast.explain("all_gather", 1, cost_model="", **arguments) == built_in
    with pytest.raises(narrowcast.InvalidArgumentError, match="cost_model: /nowhere cannot be read"):
        narrowcast.explain("all_gather", 1, cost_model="/nowhere", **arguments)
    with pytest.raises(narrowcast.InvalidArgumentError, match="max_ctas is 65, not 0 to 64"):
        narrowcast.explain("all_gather", 1, max_ctas=65, **arguments)


def test_a_custom_cost_model_decides(monkeypatch, tmp_path):
    path = tmp_path / "own.costs"
    path.write_text(
        "narrowcast-costs 2 a machine\nall_gather 2 nvlink packets 1:10\nall_gather 2 nvlink blocks:raw 1:9\n"
        "all_gather 2 nvlink blocks:window 1:8\nall_gather 2 nvlink nccl 1:7\n"
    )
    monkeypatch.setenv("NARROWCAST_COST_MODEL", str(path))
    explanation = narrowcast.explain("all_gather", 1, dtype="uint8", ranks=2)
    assert (explanation.path, explanation.codec) == ("blocks", "raw")
    assert explanation.predicted.chosen == 9
    typical = {name: cost.typical for name, cost in explanation.predicted.candidates.items()}
    coded = {f"blocks:{one.name}": None for one in narrowcast.codecs() if one.name != "raw"}
    assert typical == {"packets": 10, "blocks:raw": 9, **coded, "nccl": 7, "nccl:default": None}
    assert (explanation.predicted.nccl, explanation.predicted.nccl_default) == (7, None)
    explanation = narrowcast.explain("all_gather", 1, dtype="float8_e4m3", ranks=2)
    assert (explanation.codec, explanation.predicted.chosen) == ("window", 8)
    monkeypatch.setenv("NARROWCAST_PATH", "packets")
    assert narrowcast.explain("all_gather", 1, dtype="uint8", ranks=2).predicted.chosen == 10
    path.write_text("narrowcast-costs 2 a machine\n\nall_gather 2 nvlink blocks:raw fast\n")
    with pytest.raises(narrowcast.InvalidArgumentError, match=r"own\.costs, line 3: 'fast' is not BYTES:MICROSECONDS"):
        narrowcast.explain("all_gather", 1, dtype="uint8", ranks=2)


def test_communicators_of_the_host_backend_explain_their_calls():
    with Communicator(narrowcast.unique_id(), 0, 1) as comm:
        explanation = comm.explain("all_reduce", 1, dtype="bfloat16")
        assert (explanation.candidate, explanation.path, explanation.codec, explanation.link) == (
            "frames:raw",
            "frames",
            "raw",
            "shm",
        )
        assert explanation.codec_why == "copying in memory is faster than coding on a CPU"
        assert explanation.predicted.chosen is None
        assert explanation.costs_warning is None
        for codec, candidate in (("window", "frames:raw"), ("window!", "frames:window")):
            explanation = comm.explain("all_reduce", 1, dtype="bfloat16", codec=codec)
            assert (explanation.allowed, explanation.candidate) == (codec, candidate)
        assert comm.explain("all_reduce", 0, dtype="bfloat16").candidate == "none"
        comm.use_costs("narrowcast-costs 2 a machine\nall_gather 2 shm frames:raw 1:9\n")
        with pytest.raises(narrowcast.InvalidArgumentError, match="ncast_comm_set_costs, line 1: expected"):
            comm.use_costs("costs")


def test_costs_of_other_kernels_are_reported(tmp_path):
    path = tmp_path / "own.costs"

    def warning(kernels):
        lines = ["narrowcast-costs 2 a machine", *kernels]
        lines += [f"all_gather 2 nvlink blocks:{codec} 1:9" for codec in ("raw", "window")]
        path.write_text("\n".join(lines) + "\n")
        return narrowcast.explain("all_gather", 1, dtype="uint8", ranks=2, cost_model=path).costs_warning

    own = library().ncast_kernels_hash().decode()
    assert re.fullmatch("[0-9a-f]{16}", own)
    assert warning([f"kernels {own}"]) is None
    other = "the cost model was measured on other kernels (0123456789abcdef, this library has "
    assert warning(["kernels 0123456789abcdef"]).startswith(other)
    assert warning(["kernels unknown"]) == "the cost model does not say which kernels it was measured on"
    assert warning([]) == "the cost model does not say which kernels it was measured on"


def test_invalid_arguments_are_rejected():
    with pytest.raises(ValueError, match="median"):
        narrowcast.explain("all_median", 1, dtype="int8", ranks=2)
    with pytest.raises(ValueError, match="must not be negative"):
        narrowcast.explain("all_reduce", -1, dtype="int8", ranks=2)
    with pytest.raises(narrowcast.InvalidArgumentError, match="ranks is 9, not 1 to 8"):
        narrowcast.explain("all_reduce", 1, dtype="int8", ranks=9)


def test_the_command_explains(cli_here):
    shown = cli_here("explain", "all_reduce", "--bytes", "64M", "--dtype", "bf16", "--ranks", 8)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "all_reduce of 33,554,432 bfloat16 between 8 ranks" in shown.stdout
    for word in ("64.00 MiB", "blocks", "codec", "rings", "CTAs", "predicted: ", "blocks:raw"):
        assert word in shown.stdout


@pytest.mark.parametrize("operation", names())
def test_the_command_explains_as_json(cli_here, operation):
    shown = cli_here("explain", operation, "--bytes", "64K", "--dtype", "f32", "--ranks", 4, "--codec", "raw", "--json")
    assert (shown.returncode, shown.stderr) == (0, "")
    report = json.loads(shown.stdout)
    parts = 4 if operation in ("gather", "scatter", "all_gather", "all_to_all", "reduce_scatter") else 1
    assert report["asked"] == {
        "operation": operation,
        "bytes": 65536,
        "count": 16384 // parts,
        "dtype": "float32",
        "ranks": 4,
        "codec": "raw",
        "result_codec": None,
        "op": "sum",
        "root": 0,
        "in_place": None,
    }
    assert report["chosen"]["codec"] == "raw"
    assert report["chosen"]["codec_why"] == "raw was requested"


def test_the_codec_of_results_is_explained(cli_here):
    call = {"dtype": "bfloat16", "ranks": 4, "codec": "int8!"}
    both = narrowcast.explain("all_reduce", 1 << 24, result_codec="int4", **call)
    assert (both.codec, both.result_codec) == ("int8", "int4")
    bound = narrowcast.error_bound("all_reduce", "int8!", 4, 1, result_codec="int4")
    assert both.error_bound == bound > narrowcast.explain("all_reduce", 1 << 24, **call).error_bound
    with pytest.raises(narrowcast.InvalidArgumentError, match="result_codec is only for all_reduce, not for reduce"):
        narrowcast.explain("reduce", 1 << 24, result_codec="int4", **call)
    command = ["explain", "all_reduce", "--bytes", "64M", "--ranks", 4, "--codec", "raw", "--result-codec", "int8!"]
    shown = cli_here(*command).stdout
    assert re.search(r"│ codec +│ raw +│", shown)
    assert re.search(r"│ results +│ int8 +│", shown)
    report = json.loads(cli_here(*command, "--backend", "host", "--json").stdout)
    assert (report["asked"]["result_codec"], report["chosen"]["result_codec"]) == ("int8!", "int8")


def test_the_command_shows_the_error_bound(cli_here):
    def explained(codec, *options):
        arguments = ["explain", "all_reduce", "--bytes", "64M", "--ranks", 4, "--codec", codec, *options]
        return cli_here(*arguments).stdout

    assert re.search(r"│ error +│ 0\.162 +│ at most, if all values are at most 1", explained("int6!"))
    assert "error" not in explained("window!")
    assert json.loads(explained("window!", "--json"))["chosen"]["error_bound"] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("all_median", "window", 2, 1), "'all_median' is not an operation"),
        (("send", "zip", 2, 1), "'zip' is not a codec"),
        (("send", "window", 2, [1, 2, 3]), "absmax has 3 numbers for 2 ranks"),
        (("send", "window", 2, [1, -2]), "absmax\\[1\\] is -2, not a finite number of 0 or more"),
        (("send", "window", 0, 1), "ranks is 0"),
    ],
)
def test_arguments_of_error_bounds_are_checked(arguments, words):
    with pytest.raises(ValueError, match=words):
        narrowcast.error_bound(*arguments)
    assert narrowcast.error_bound("all_reduce", "window", 2, 1.0) == 0
