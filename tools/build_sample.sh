#!/usr/bin/env bash
# Configures into a new folder with the defaults of CMakeLists.txt and builds the smallest sources in CUDA and in C++.
# It takes seconds, unlike a whole build.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1

# Instances are short files that compile for minutes.
smallest() { git ls-files "src/*$1" | grep -vE "^src/(nccl|instances)/" | xargs ls -S | tail -n 3; }

cmake --fresh -S . -B "$folder" -G Ninja
objects=()
for source in $(smallest .cu); do objects+=("CMakeFiles/narrowcast_cuda.dir/$source.o"); done
for source in $(smallest .cc); do objects+=("CMakeFiles/narrowcast_host.dir/$source.o"); done
cmake --build "$folder" --target "${objects[@]}" gpu_test_main
