# shellcheck shell=bash
# What the scripts that test and measure on GPUs share. They source it; then the working folder is that of the checkout,
# and Python finds its package. $out is where results and logs go, and $failed the exit status of the script.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${OUT:-build/gpu/results}
mkdir -p "$out"
export PYTHONPATH=$PWD/python
failed=0

# build_library ON|OFF: builds in build/gpu, with tests and source lines for compute-sanitizer or without. If
# NARROWCAST_LIBRARY is set, nothing is built, and that library is used.
build_library() {
  [ -z "${NARROWCAST_LIBRARY:-}" ] || return 0
  local options=(-DNARROWCAST_TESTS="$1" -DNARROWCAST_LINEINFO="$1")
  { cmake -S . -B build/gpu -G Ninja "${options[@]}" && cmake --build build/gpu; } >"$out/build.log" 2>&1 ||
    { grep -E 'error|FAILED' "$out/build.log" || tail -40 "$out/build.log"; exit 1; }
  export NARROWCAST_LIBRARY=$PWD/build/gpu/libnarrowcast.so
}

# step SECONDS COMMAND...: runs the command, and prints it and whether it failed.
step() {
  local seconds=$1 status=0
  shift
  echo "== $*"
  timeout --kill-after=10 "$seconds" "$@" || status=$?
  [ $status -eq 0 ] || { echo "FAILED with status $status: $*"; failed=1; }
}

# sanitized SECONDS TOOL COMMAND...: runs the command under compute-sanitizer, with the options in $sanitizer_options.
# Prints the last lines of the log, or its beginning if the sanitizer or the command reports an error.
sanitized() {
  local seconds=$1 tool=$2 log status=0
  shift 2
  log=$out/$(basename "$0" .sh)_sanitizer_$((++logs)).log
  echo "== compute-sanitizer --tool $tool $*"
  # shellcheck disable=SC2086  # the variable contains several options
  timeout --kill-after=10 "$seconds" compute-sanitizer --tool "$tool" ${sanitizer_options:-} --error-exitcode 9 "$@" \
    >"$log" 2>&1 || status=$?
  case $status in
    0) tail -2 "$log" ;;
    124 | 137) echo "did not end within $seconds s"; failed=1 ;;
    *) head -60 "$log"; failed=1 ;;
  esac
}
logs=0
