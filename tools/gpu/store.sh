#!/usr/bin/env bash
# Tests the store on a machine with a GPU: builds, then runs the given steps in order.
#   tools/gpu/store.sh [test] [sanitize]
# Needs what tools/gpu/codec.sh needs. Logs go to $OUT, or build/gpu/results.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${OUT:-build/gpu/results}
mkdir -p "$out"

cmake -S . -B build/gpu -G Ninja >"$out/build.log" 2>&1 || { cat "$out/build.log"; exit 1; }
cmake --build build/gpu >>"$out/build.log" 2>&1 || { grep -E 'error|FAILED' "$out/build.log"; exit 1; }
export PYTHONPATH=$PWD/python NARROWCAST_LIBRARY=$PWD/build/gpu/libnarrowcast.so
tests=tests/python/gpu

run_tests() {
  build/gpu/tests/store_gpu_test
  timeout 600 python3 -m pytest -q -p no:cacheprovider "$tests"/test_store_*.py
}

# Readers of every codec on few rows; gathers with each kind of cache; and encoders of every kind on 3001 rows.
run_sanitizers() {
  local tool policy
  export NARROWCAST_TEST_REDUCED=1
  for tool in memcheck racecheck synccheck; do
    sanitized "$tool" build/gpu/tests/store_gpu_test
    for policy in static lru lfu; do
      sanitized "$tool" python3 -m pytest -q -p no:cacheprovider "$tests/test_store_cache_on_gpu.py" \
        -k "cached_gathers_are_indexing and $policy and stride"
    done
    sanitized "$tool" python3 -m pytest -q -p no:cacheprovider "$tests/test_store_build_on_gpu.py" \
      -k "(window_has and (20 or 256) and (bfloat16 or float64)) or plain_has or invariant_has"
  done
}

# Prints the last lines of the log, or its beginning if the sanitizer or a test reports an error. A time limit ends only
# its own part.
failed=0
sanitized() {
  local tool=$1 log status=0
  shift
  log=$out/store_sanitizer_$((++parts)).log
  echo "== compute-sanitizer --tool $tool $*"
  timeout 600 compute-sanitizer --tool "$tool" --error-exitcode 9 "$@" >"$log" 2>&1 || status=$?
  case $status in
    0) tail -2 "$log" ;;
    124) echo "did not end within 600 s"; failed=1 ;;
    *) head -60 "$log"; failed=1 ;;
  esac
}
parts=0

while [ $# -gt 0 ]; do
  case $1 in
    test) run_tests ;;
    sanitize) run_sanitizers ;;
    *) echo "$0: unknown step '$1'; steps are test and sanitize" >&2; exit 2 ;;
  esac
  shift
done
exit $failed
