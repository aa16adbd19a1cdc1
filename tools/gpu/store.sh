#!/usr/bin/env bash
# Tests the store on a machine with a GPU: builds, then runs the given steps in order.
#   tools/gpu/store.sh [test] [sanitize]
# Needs what tools/gpu/codec.sh needs. Logs go to $OUT, or build/gpu/results.
# shellcheck source=tools/gpu/steps.sh
. "$(dirname "$0")/steps.sh"
build_library ON
tests=tests/python/gpu

run_tests() {
  step 600 build/gpu/tests/store_gpu_test
  step 600 python3 -m pytest -q -p no:cacheprovider "$tests"/test_store_*.py
}

# Readers of every codec on few rows; gathers with each kind of cache; and encoders of every kind on 3001 rows.
run_sanitizers() {
  local tool policy
  export NARROWCAST_TEST_REDUCED=1
  for tool in memcheck racecheck synccheck; do
    sanitized 600 "$tool" build/gpu/tests/store_gpu_test
    for policy in static lru lfu; do
      sanitized 600 "$tool" python3 -m pytest -q -p no:cacheprovider "$tests/test_store_cache_on_gpu.py" \
        -k "cached_gathers_are_indexing and $policy and stride"
    done
    sanitized 600 "$tool" python3 -m pytest -q -p no:cacheprovider "$tests/test_store_build_on_gpu.py" \
      -k "(window_has and (20 or 256) and (bfloat16 or float64)) or plain_has or invariant_has"
  done
}

while [ $# -gt 0 ]; do
  case $1 in
    test) run_tests ;;
    sanitize) run_sanitizers ;;
    *) echo "$0: unknown step '$1'; steps are test and sanitize" >&2; exit 2 ;;
  esac
  shift
done
exit $failed
