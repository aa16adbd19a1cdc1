#!/usr/bin/env bash
# Tests and measures the collectives on a machine with 2 GPUs or more: builds, then runs the given steps in order.
#   tools/gpu/collectives.sh [test] [sanitize] [tune] [host-link] [bench TENSORS.safetensors]
# Needs nvcc 13.0, CMake, Ninja and a Python with numpy, typer, rich, pytest and hypothesis; downloads nothing. NCCL is
# loaded from its wheel or as libnccl.so.2; without it Narrowcast is measured alone. Writes results as JSON to $OUT, or
# build/gpu/results, in the form of the files in bench/results/. `tune` writes the machine's cost model there, and
# `host-link` the bandwidth that bounds calls through host memory.
#
# Variables select what `bench` measures: RANKS (default: all GPUs), OPERATIONS, SIZES (options of `narrowcast bench`),
# CODECS, DATA (tensors normal random; mode eager uses only the first) and MODES (graph eager). Every step has a time
# limit; a failed step does not stop the others. If NARROWCAST_LIBRARY is set, that library is measured and nothing is
# built.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${OUT:-build/gpu/results}
mkdir -p "$out" build/gpu/runs
# Multicast objects can outlive their process and then affect others on the machine.
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}

with_tests=OFF
for word in "$@"; do
  case $word in test | sanitize) with_tests=ON ;; esac
done
build() {
  timeout 600 cmake -S . -B build/gpu -G Ninja -DNARROWCAST_TESTS=$with_tests && timeout 600 cmake --build build/gpu
}
if [ -z "${NARROWCAST_LIBRARY:-}" ]; then
  build >"$out/build.log" 2>&1 || { grep -E 'error|FAILED' "$out/build.log" || tail -40 "$out/build.log"; exit 1; }
  export NARROWCAST_LIBRARY=$PWD/build/gpu/libnarrowcast.so
fi
export PYTHONPATH=$PWD/python
failed=0

# step SECONDS COMMAND...: runs the command, and prints it and whether it failed.
step() {
  local seconds=$1 status=0
  shift
  echo "== $*"
  timeout --kill-after=10 "$seconds" "$@" || status=$?
  [ $status -eq 0 ] || { echo "FAILED with status $status: $*"; failed=1; }
}

run_tests() {
  step 300 ctest --test-dir build/gpu -L gpu --output-on-failure --timeout 120
  step 900 python3 -m pytest -q -x -p no:cacheprovider tests/python/gpu
}

# Few and small calls, because sanitizers are slow. API errors are not reported, because enabling peer access twice is
# one that is expected.
run_sanitizers() {
  local tool program
  export NARROWCAST_TEST_REDUCED=1
  for tool in memcheck racecheck synccheck; do
    for program in device_gpu_test codec_gpu_test channel_gpu_test executor_gpu_test; do
      [ ! -x "build/gpu/tests/$program" ] || sanitized "$tool" "build/gpu/tests/$program"
    done
  done
  for program in all_reduce all_gather sendrecv; do
    sanitized memcheck python3 -m narrowcast bench "$program" --backend cuda --ranks 2 --against none \
      --codec raw,window -b 1K -e 256K -f 256 -n 1 -w 1 --batches 1
  done
}

# Prints the last line of the log, or its beginning if the sanitizer reports an error.
sanitized() {
  local tool=$1 log=$out/sanitizer.log
  shift
  echo "== compute-sanitizer --tool $tool $*"
  if timeout --kill-after=10 300 compute-sanitizer --tool "$tool" --report-api-errors no --target-processes all \
    --error-exitcode 9 "$@" >"$log" 2>&1; then
    tail -1 "$log"
  else
    head -60 "$log"
    failed=1
  fi
}

measure() {
  local tensors=$1 operation data source mode graph name first=
  local operations=${OPERATIONS:-all_reduce all_gather reduce_scatter all_to_all sendrecv broadcast reduce gather scatter}
  rm -f build/gpu/runs/*.json
  for mode in ${MODES:-graph eager}; do
    for data in ${DATA:-tensors normal random}; do
      for operation in $operations; do
        [ "$mode" = graph ] || [ "$data" = "${first:=$data}" ] || continue
        graph=20
        [ "$mode" = graph ] || graph=0
        source=$data
        [ "$data" != tensors ] || source=$tensors
        name=${operation}_${data}_$mode
        # shellcheck disable=SC2086  # the variables contain several options
        step "${STEP_SECONDS:-300}" python3 -m narrowcast bench "$operation" --backend cuda ${RANKS:+--ranks "$RANKS"} \
          --data "$source" --codec "${CODECS:-auto,raw,window}" --cudagraph $graph ${SIZES:--b 1K -e 256M -f 4} \
          -J "build/gpu/runs/$name.json"
        # After every run, so that later failures do not lose results.
        python3 tools/gpu/gather_collectives.py build/gpu/runs >"$out/collectives.json"
      done
    done
  done
}

while [ $# -gt 0 ]; do
  case $1 in
    test) run_tests ;;
    sanitize) run_sanitizers ;;
    tune) step 400 python3 -m narrowcast tune ${RANKS:+--ranks "$RANKS"} -o "$out/machine.costs" ;;
    host-link) step 60 python3 tools/gpu/host_link.py --json "$out/host_link.json" ;;
    bench) measure "${2:?bench needs a file of tensors}"; shift ;;
    *) echo "$0: unknown step '$1'; steps are test, sanitize, tune, host-link and bench FILE" >&2; exit 2 ;;
  esac
  shift
done
exit $failed
