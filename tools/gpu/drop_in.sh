#!/usr/bin/env bash
# Runs real programs with and without the drop-in on a machine with 2 GPUs or more, and compares the results.
#   tools/gpu/drop_in.sh [torch] [torch-tests] [frameworks] [nccl-tests DIR] [start-cost] [call-cost] [pytest]
# torch: the programs of bench/programs that need torch; torch-tests: PyTorch's own tests; frameworks: CuPy, JAX, vLLM's
# NCCL wrapper; nccl-tests: the *_perf programs in DIR. Needs the packages that these import, NCCL, and Python with
# numpy, typer and rich; downloads nothing. Writes drop_in.json to $OUT, or build/gpu/results, after every program; logs
# are in build/gpu/drop_in. If NARROWCAST_LIBRARY is set, that library and the drop-in beside it are used, and nothing
# is built.
#
# Variables select what runs:
#   RANKS               default: all GPUs
#   PROGRAMS            collectives train_ddp train_fsdp2 train_ddp_wide train_fsdp2_wide overlap generate
#                       pipeline experts ring_attention prefill_decode dying_rank torch_tests cupy jax pynccl
#   VARIANTS            nccl: NCCL alone; auto: Narrowcast where it is faster; always: wherever possible; X_again: X
#                       once more, which must produce the same bits
#   ROUNDS              how often each program runs with each variant, in turns (1); the times are medians
#   STEPS               training steps (200)
#   TOKENS              lengths of prompts (512 7680 51200)
#   VALUES              a safetensors file with a KV cache
#   PYNCCL_WRAPPER      the file pynccl_wrapper.py of vLLM
#   NCCL_TESTS_OPTIONS  such as --ways threads
#   DEVICE              cpu: to try the script
# shellcheck source=tools/gpu/steps.sh
. "$(dirname "$0")/steps.sh"
runs=build/gpu/drop_in
mkdir -p "$runs"
# Multicast objects can outlive their process and then affect others on the machine.
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-8}
export DROP_IN_COMMAND="tools/gpu/drop_in.sh $*"
ranks=${RANKS:-$(nvidia-smi -L | wc -l)}
device=${DEVICE:+--device $DEVICE}
port=29500

build_library OFF
NARROWCAST_LIBRARY=$(realpath -s "$NARROWCAST_LIBRARY")
# Programs that load NCCL by name find torch's.
nccl=$(python3 -c 'from narrowcast._dropin.nccl_search import candidates, chosen; print(getattr(chosen(candidates()), "path", ""))')
[ -z "$nccl" ] || LD_LIBRARY_PATH=${nccl%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH

gather() {
  python3 tools/gpu/gather_drop_in.py "$runs" "$@" >"$out/drop_in.json" || failed=1
}

# program NAME SECONDS VARIANTS COMMAND...: runs the command ROUNDS times per variant, with --json FILE appended.
program() {
  local name=$1 seconds=$2 variants=$3 variant folder=$runs/$1 round
  shift 3
  case " ${PROGRAMS:-$name} " in *" $name "*) ;; *) return 0 ;; esac
  rm -rf "$folder"
  mkdir -p "$folder"
  echo "== $name: $*"
  for ((round = 1; round <= ${ROUNDS:-1}; ++round)); do
    for variant in $variants; do
      run_variant "$variant" "$seconds" "$folder/$variant$([ "$round" = 1 ] || echo "_round$round")" "$@"
    done
  done
  gather "$name"
}

# run_variant VARIANT SECONDS FILES COMMAND...: FILES with .json, .log and so on are what the run leaves.
run_variant() {
  local take=${1%_again} seconds=$2 files=$3 status=0 start=$SECONDS before=()
  shift 3
  [ "$take" = nccl ] || before=(python3 -m narrowcast run -q --take "$take" --stats "$files.stats.json" --)
  port=$((port + 1))
  # Read by torchrun.
  PET_MASTER_PORT=$port timeout --kill-after=10 "$seconds" "${before[@]}" "$@" --json "$files.json" \
    >"$files.log" 2>&1 || status=$?
  echo $status >"$files.status"
  echo "   $(basename "$files"): $((SECONDS - start)) s"
}

# ranks_of NAME SECONDS VARIANTS PROGRAM OPTIONS...: one process per GPU.
ranks_of() {
  local name=$1 seconds=$2 variants=$3
  shift 3
  # shellcheck disable=SC2086  # the variable contains several options
  program "$name" "$seconds" "$variants" python3 -m torch.distributed.run --nproc-per-node "$ranks" --local-addr 127.0.0.1 \
    "$@" $device
}

run_torch() {
  local few=${VARIANTS:-nccl auto always} repeated=${VARIANTS:-nccl auto always always_again}
  local tokens=${TOKENS:-512 7680 51200} handed=() file
  ranks_of collectives 120 "$few" bench/programs/collectives.py
  ranks_of train_ddp 120 "$repeated" bench/programs/train.py --parallel ddp --steps "${STEPS:-200}"
  ranks_of train_fsdp2 120 "$repeated" bench/programs/train.py --parallel fsdp2 --steps "${STEPS:-200}"
  ranks_of train_ddp_wide 90 "$few" bench/programs/train.py --parallel ddp --model wide --steps 40
  ranks_of train_fsdp2_wide 90 "$few" bench/programs/train.py --parallel fsdp2 --model wide --steps 40
  ranks_of overlap 60 "$few" bench/programs/overlap.py
  ranks_of generate 120 "$few" bench/programs/generate.py
  ranks_of pipeline 90 "$few" bench/programs/pipeline.py
  ranks_of experts 90 "$few" bench/programs/experts.py
  ranks_of ring_attention 90 "$few" bench/programs/ring_attention.py
  file=${VALUES:-python/narrowcast/data/llama_slices.safetensors}
  read -ra handed <<<"$tokens"
  ranks_of prefill_decode 150 "$few" bench/programs/prefill_decode.py --values "$file" --tokens "${handed[@]}"
  # shellcheck disable=SC2086
  program dying_rank 240 "$few" python3 bench/programs/dying_rank.py --ranks "$ranks" $device
}

run_torch_tests() {
  program torch_tests 500 "${VARIANTS:-nccl always}" python3 bench/programs/torch_tests.py --ranks "$ranks"
}

run_frameworks() {
  local few=${VARIANTS:-nccl auto always}
  program cupy 120 "$few" python3 bench/programs/cupy_nccl.py --ranks "$ranks"
  program jax 180 "$few" python3 bench/programs/jax_collectives.py --ranks "$ranks"
  if [ -n "${PYNCCL_WRAPPER:-}" ]; then
    ranks_of pynccl 120 "$few" bench/programs/pynccl.py "$PYNCCL_WRAPPER"
  else
    echo "== pynccl: skipped, PYNCCL_WRAPPER is not set"
  fi
}

run_tests() {
  step 580 python3 -m pytest -q -p no:cacheprovider tests/python/gpu/test_nccl.py 2>&1 | tee "$runs/pytest.log"
  ! grep -q '^FAILED with status' "$runs/pytest.log" || failed=1
  printf '{"summary": "%s"}\n' "$(grep -E '(passed|failed|error|skipped).* in ' "$runs/pytest.log" | tail -1)" \
    >"$runs/pytest.json"
}

while [ $# -gt 0 ]; do
  case $1 in
    torch) run_torch ;;
    torch-tests) run_torch_tests ;;
    frameworks) run_frameworks ;;
    nccl-tests)
      # shellcheck disable=SC2086
      step 590 python3 tools/gpu/nccl_tests.py "${2:?nccl-tests needs the folder of its programs}" --ranks "$ranks" \
        --json "$runs/nccl_tests.json" ${NCCL_TESTS_OPTIONS:-}
      shift
      ;;
    start-cost) step 60 python3 tools/gpu/start_cost.py --json "$runs/start_cost.json" ;;
    call-cost) step 120 python3 tools/gpu/call_cost.py --json "$runs/call_cost.json" ;;
    pytest) run_tests ;;
    *) echo "$0: unknown step '$1'; steps are torch, torch-tests, frameworks, nccl-tests DIR, start-cost, call-cost and pytest" >&2; exit 2 ;;
  esac
  shift
done
gather none
exit $failed
