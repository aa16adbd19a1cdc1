#!/usr/bin/env bash
# Tests and measures the codecs on a machine with a GPU: builds, then runs the given steps in order.
#   tools/gpu/codec.sh [test] [sanitize] [bench TENSORS.safetensors]
# Needs nvcc 13.0, CMake, Ninja and a Python with numpy, typer, rich, pytest and hypothesis; downloads nothing. Writes
# results as JSON to $OUT, or build/gpu/results, in the form of the files in bench/results/.
# shellcheck source=tools/gpu/steps.sh
. "$(dirname "$0")/steps.sh"
build_library ON

run_tests() {
  step 600 ctest --test-dir build/gpu -L gpu --output-on-failure
  step 300 python3 -m pytest -q -p no:cacheprovider tests/python/gpu
}

# A reduced set, because sanitizers are slow.
run_sanitizers() {
  local tool
  export NARROWCAST_TEST_REDUCED=1
  for tool in memcheck racecheck synccheck; do
    sanitized 300 "$tool" build/gpu/tests/device_gpu_test
    sanitized 300 "$tool" build/gpu/tests/codec_gpu_test
    sanitized 300 "$tool" python3 -m pytest -q -p no:cacheprovider tests/python/gpu/test_cuda.py \
      -k "slots_round_trip or decode_reduce or corrupt"
  done
}

measure() {
  local tensors=$1 here
  here=$(mktemp -d)
  mkdir "$here/runs"
  python3 -c "
import numpy; numpy.random.default_rng().integers(0, 256, 2 << 20, numpy.uint8).tofile('$here/random')"
  bench() { python3 -m narrowcast bench codec "$@" --device cuda; }
  bench "$tensors" -J "$here/runs/1GiB.json"
  bench "$tensors" --ctas 32 -J "$here/runs/1GiB_32_ctas.json"
  bench "$tensors" --tile 16M -J "$here/runs/16MiB.json"
  bench "$here/random" --dtype bfloat16 -J "$here/runs/1GiB_random.json"
  python3 tools/gpu/gather_runs.py "$here/runs" >"$out/codec_gpu.json"
}

while [ $# -gt 0 ]; do
  case $1 in
    test) run_tests ;;
    sanitize) run_sanitizers ;;
    bench) measure "$2"; shift ;;
    *) echo "$0: unknown step '$1'; steps are test, sanitize and bench FILE" >&2; exit 2 ;;
  esac
  shift
done
exit $failed
