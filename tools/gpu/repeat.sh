#!/usr/bin/env bash
# Runs a program many times and prints the output of the runs that fail: for faults that only some runs show.
#   tools/gpu/repeat.sh RUNS PROGRAM [ARGUMENT...]
#   tools/gpu/repeat.sh 200 build/examples/example_ring_exchange
# A run that takes longer than REPEAT_SECONDS (60) counts as failed. The exit status is 1 if any run failed.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
runs=$1
shift
failed=0
run=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'echo "stopped in run $run of $runs; $failed failed before: $*"; exit 1' TERM INT
for ((run = 1; run <= runs; ++run)); do
  status=0
  timeout "${REPEAT_SECONDS:-60}" "$@" >"$log" 2>&1 || status=$?
  [ "$status" -ne 77 ] || { cat "$log"; exit 77; }
  [ "$status" -ne 0 ] || continue
  failed=$((failed + 1))
  echo "== run $run of $runs: exit status $status"
  cat "$log"
done
echo "$failed of $runs runs failed: $*"
[ "$failed" -eq 0 ]
