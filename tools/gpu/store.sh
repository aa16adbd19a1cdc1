#!/usr/bin/env bash
# Tests and measures the store on a machine with a GPU: builds, then runs the given steps in order.
#   tools/gpu/store.sh [test] [sanitize] [bench] [kv] [offload]
# Needs what tools/gpu/codec.sh needs, and torch for `kv` and `offload`; logs and results (JSON) go to $OUT, or
# build/gpu/results. `bench` measures calls of the library, next to what one does without it, in tables of more than
# 4 GB; the others restore KV caches, and generate with offloaded weights.
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
    for policy in static lru; do
      sanitized 600 "$tool" python3 -m pytest -q -p no:cacheprovider "$tests/test_store_cache_on_gpu.py" \
        -k "cached_gathers_are_indexing and $policy and stride"
    done
    sanitized 600 "$tool" python3 -m pytest -q -p no:cacheprovider "$tests/test_store_build_on_gpu.py" \
      -k "(window_has and (20 or 256) and (bfloat16 or float64)) or plain_has or invariant_has"
  done
}

bench() {
  local name=$1
  shift
  step 600 python3 -m narrowcast store bench --device cuda -J "$out/store_$name.json" "$@"
}

measure() {
  local bits codec
  for bits in bf16 fp32; do
    bench "blocks_$bits" --tensor "weights_$bits" --layout blocks --row-bytes 8K --table 4608M --rows 32768
    bench "rows_$bits" --tensor "weights_$bits" --row-bytes 512,2K --table 4608M
  done
  bench short_rows --tensor weights_bf16 --row-bytes 64,128,256 --table 8G --rows 1000000
  bench words --tensor words --dtype float32 --row-bytes 5732 --table 4608M --sms 4,10
  for codec in invariant zeros+invariant trim+invariant zeros+trim+invariant; do
    bench "counts_$codec" --tensor counts --dtype int32 --codec "$codec" --row-bytes 64,256,1K,4K --table 4608M
  done
  bench random --tensor random --row-bytes 2K --table 4608M
  bench cache --tensor weights_bf16 --row-bytes 512 --table 4608M --rows 262144 --zipf 1.05 --cache 10
}

while [ $# -gt 0 ]; do
  case $1 in
    test) run_tests ;;
    sanitize) run_sanitizers ;;
    bench) measure ;;
    kv) step 600 python3 tools/gpu/kv_restore_speed.py -o "$out/kv_restore.json" ;;
    offload) step 600 python3 tools/gpu/offload_speed.py -o "$out/offload.json" ;;
    *) echo "$0: unknown step '$1'; steps are test, sanitize, bench, kv and offload" >&2; exit 2 ;;
  esac
  shift
done
exit $failed
