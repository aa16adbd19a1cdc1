#!/usr/bin/env bash
# Tests and measures the collectives on a machine with 2 GPUs or more: builds, then runs the given steps in order.
#   tools/gpu/collectives.sh [test] [hosts] [sanitize] [tune] [bench TENSORS.safetensors]
# Needs nvcc 13.0, CMake, Ninja and a Python with numpy, typer, rich, pytest and hypothesis; downloads nothing. NCCL is
# loaded from its wheel or as libnccl.so.2; without it Narrowcast is measured alone. Writes results as JSON to $OUT, or
# build/gpu/results, in the form of the files in bench/results/. `tune` writes the machine's cost model there. `hosts`
# runs the tests of two levels of GPUs and of network plugins; they need 4 ranks, which are 2 on each of two GPUs.
#
# Variables select what `bench` and `tune` measure: RANKS (default: all GPUs), HOSTS (how many the ranks take themselves
# to be on; default 1), OPERATIONS, SIZES (options of `narrowcast bench`), CODECS, DATA (tensors normal random; mode
# eager uses only the first) and MODES (graph eager). Every step has a time limit; a failed step does not stop the
# others. If NARROWCAST_LIBRARY is set, that library is measured and nothing is built.
# shellcheck source=tools/gpu/steps.sh
. "$(dirname "$0")/steps.sh"
mkdir -p build/gpu/runs
# Multicast objects can outlive their process and then affect others on the machine.
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}

with_tests=OFF
for word in "$@"; do
  case $word in test | hosts | sanitize) with_tests=ON ;; esac
done
build_library $with_tests
if [ -n "${HOSTS:-}" ]; then
  export NARROWCAST_SOCKET_IFNAME=lo NCCL_SOCKET_IFNAME=lo NCCL_NET=Socket
fi

run_tests() {
  step 300 ctest --test-dir build/gpu -L gpu --output-on-failure --timeout 120
  step 900 python3 -m pytest -q -x -p no:cacheprovider tests/python/gpu
}

run_hosts() {
  local pytest=(step 300 python3 -m pytest -q -p no:cacheprovider)
  NARROWCAST_TEST_RANKS_PER_GPU=2 "${pytest[@]}" tests/python/gpu/test_levels_on_gpus.py
  NARROWCAST_NET=plugin NCCL_NET_PLUGIN=$PWD/build/gpu/tests/libnccl-net-test_v12.so \
    "${pytest[@]}" tests/python/gpu/test_collectives.py -k hosts
}

# Few and small calls, because sanitizers are slow. API errors are not reported, because enabling peer access twice is
# one that is expected.
run_sanitizers() {
  local tool program sanitizer_options="--report-api-errors no --target-processes all"
  export NARROWCAST_TEST_REDUCED=1
  for tool in memcheck racecheck synccheck; do
    for program in device_gpu_test codec_gpu_test channel_gpu_test executor_gpu_test; do
      [ ! -x "build/gpu/tests/$program" ] || sanitized 300 "$tool" "build/gpu/tests/$program"
    done
  done
  for program in all_reduce all_gather sendrecv; do
    sanitized 300 memcheck python3 -m narrowcast bench "$program" --backend cuda --ranks 2 --against none \
      --codec raw,window -b 1K -e 256K -f 256 -n 1 -w 1 --batches 1
  done
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
          ${HOSTS:+--hosts "$HOSTS"} --data "$source" --codec "${CODECS:-auto,raw,window}" --cudagraph $graph ${SIZES:--b 1K -e 256M -f 4} \
          -J "build/gpu/runs/$name.json"
        # After every run, so that later failures do not lose results.
        python3 tools/gpu/gather_runs.py build/gpu/runs >"$out/collectives.json"
      done
    done
  done
}

while [ $# -gt 0 ]; do
  case $1 in
    test) run_tests ;;
    sanitize) run_sanitizers ;;
    hosts) run_hosts ;;
    tune)
      step 400 python3 -m narrowcast tune ${RANKS:+--ranks "$RANKS"} ${HOSTS:+--hosts "$HOSTS"} -o "$out/machine.costs"
      ;;
    bench) measure "${2:?bench needs a file of tensors}"; shift ;;
    *) echo "$0: unknown step '$1'; steps are test, hosts, sanitize, tune and bench FILE" >&2; exit 2 ;;
  esac
  shift
done
exit $failed
