"""Tests of other projects that are expected to fail, and why: by suite and name."""

_BYTES = "compares the bytes of a file, which is encoded (its decoded file passes)"
_MONITORED = "torch has monitored_barrier for the backend gloo only"

EXPECTED_FAILURES: dict[str, dict[str, str]] = {
    "safetensors_own": {
        "PreadBackendTests_pread_backend::test_truncated_header_is_rejected": _BYTES,
        "TestCase_simple::test_serialization": _BYTES,
        "TestCase_simple::test_serialization_forces_alignment": _BYTES,
        "TestCase_simple::test_serialization_metadata": _BYTES,
        "TestCase_simple::test_serialization_no_big_endian": _BYTES,
        "TorchModelTestCase_pt_model::test_save": _BYTES,
        "TorchTestCase_pt_comparison::test_complex": _BYTES,
        "TorchTestCase_pt_comparison::test_in_memory": _BYTES,
        "TorchTestCase_pt_comparison::test_serialization": _BYTES,
    },
    "torch_distributed": {
        "DistributedTest::test_monitored_barrier_gloo": _MONITORED,
        "DistributedTest::test_monitored_barrier_gloo_rank_0_timeout": _MONITORED,
        "DistributedTest::test_monitored_barrier_gloo_subgroup": _MONITORED,
    },
}
