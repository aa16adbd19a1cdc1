#!/usr/bin/env bash
# Tests the code for GPUs before Hopper on a newer GPU: builds PTX of one compute capability alone, which the driver
# compiles, and limits shared memory to what such GPUs have. Then runs the given steps in order.
#   tools/gpu/older_gpus.sh 80|89 [test] [sanitize]
# Needs what collectives.sh needs. On a machine with one GPU, two ranks share it.
# shellcheck source=tools/gpu/steps.sh
. "$(dirname "$0")/steps.sh"

architecture=${1:-}
case $architecture in
  80) export NARROWCAST_SHARED_KIB=163 ;;
  89) export NARROWCAST_SHARED_KIB=99 ;;
  *) echo "$0: the first argument is '$architecture', not 80 or 89" >&2; exit 2 ;;
esac
shift
build=build/gpu-$architecture
{ cmake -S . -B "$build" -G Ninja -DCMAKE_CUDA_ARCHITECTURES="$architecture-virtual" && cmake --build "$build"; } \
  >"$out/build_$architecture.log" 2>&1 || { tail -40 "$out/build_$architecture.log"; exit 1; }
export NARROWCAST_LIBRARY=$PWD/$build/libnarrowcast.so
[ "$(nvidia-smi --list-gpus | wc -l)" != 1 ] || export NARROWCAST_TEST_RANKS_PER_GPU=2
# The driver compiles all kernels here and keeps them, because this takes longer than tests may.
step 900 python3 -c 'import narrowcast
with narrowcast.LocalRanks(1, backend="cuda", devices=[0]): pass'

# Few and small calls, as in collectives.sh.
run_sanitizers() {
  local tool program sanitizer_options="--report-api-errors no --target-processes all"
  for tool in memcheck racecheck synccheck; do
    for program in codec_gpu_test channel_gpu_test executor_gpu_test; do
      NARROWCAST_TEST_REDUCED=1 sanitized 600 "$tool" "$build/tests/$program"
    done
  done
}

while [ $# -gt 0 ]; do
  case $1 in
    test)
      step 600 ctest --test-dir "$build" -L gpu --output-on-failure --timeout 300
      step 900 python3 -m pytest -q -x -p no:cacheprovider tests/python/gpu
      NARROWCAST_P2P=0 step 600 python3 -m pytest -q -x -p no:cacheprovider tests/python/gpu/test_collectives.py
      ;;
    sanitize) run_sanitizers ;;
    *) echo "$0: unknown step '$1'; steps are test and sanitize" >&2; exit 2 ;;
  esac
  shift
done
exit $failed
