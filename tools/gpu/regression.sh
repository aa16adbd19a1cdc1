#!/usr/bin/env bash
# Compares this checkout with another one on a machine with one GPU: codecs, and calls between ranks that share the GPU.
#   tools/gpu/regression.sh COMMIT=CHECKOUT TENSORS.safetensors [codec] [calls]
# COMMIT names the other checkout's commit in the results, and HEAD= in the environment this one's. Builds both in
# build/gpu/ without tests. Needs nvcc 13.0, CMake, Ninja and a Python with numpy, typer and rich; downloads nothing.
# Writes codec_COMMIT.json and one_gpu.json to $OUT, or build/gpu/results.
set -euo pipefail
cd "$(dirname "$0")/../.."
other=${1%%=*} checkout=${1#*=} tensors=$(realpath "$2")
shift 2
head=${HEAD:-head}
out=$(realpath -m "${OUT:-build/gpu/results}")
mkdir -p "$out"

build() {
  (cd "$1" && cmake -S . -B build/gpu -G Ninja -DNARROWCAST_TESTS=${2:-OFF} && cmake --build build/gpu) >"$out/build.log" 2>&1 ||
    { grep -E 'error|FAILED' "$out/build.log" || tail -40 "$out/build.log"; exit 1; }
}
build "$checkout"
[ -e build/gpu/libnarrowcast.so ] || build .

bench_codec() {
  (cd "$1" && PYTHONPATH=python NARROWCAST_LIBRARY=build/gpu/libnarrowcast.so timeout 120 \
    python3 -m narrowcast bench codec "$tensors" --device cuda -J "$out/codec_$2.json") | tail -12
}
[ $# -gt 0 ] || set -- codec calls
for step in "$@"; do
  case $step in
    codec) for turn in 1 2; do bench_codec "$checkout" "$other.$turn"; bench_codec . "$head.$turn"; done ;;
    calls) timeout 500 python3 tools/gpu/one_gpu.py --ranks 2 "$other=$checkout" "$head=." >"$out/one_gpu.json" ;;
    *) echo "$0: unknown step '$step'; steps are codec and calls" >&2; exit 2 ;;
  esac
done
