#!/usr/bin/env bash
# Prints the path of an nvcc 13.0 or newer: the machine's, otherwise that of the pinned packages, which are installed
# into .venv if necessary. CUDA_TOOLCHAIN=packages ignores the machine's nvcc.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}

is_new_enough() {
  local release
  release=$("$1" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p') || return 1
  [ "${release:-0}" -ge 13 ]
}

if [ "${CUDA_TOOLCHAIN:-}" != packages ]; then
  for nvcc in "$(command -v nvcc || true)" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" /usr/local/cuda/bin/nvcc; do
    if [ -n "$nvcc" ] && [ -x "$nvcc" ] && is_new_enough "$nvcc"; then
      echo "$nvcc"
      exit
    fi
  done
fi

echo "no nvcc 13.0 or newer was found: installing one into $venv" >&2
"$venv/bin/python" -m pip install --quiet -r requirements/cuda.txt >&2
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
root=$packages/nvidia/cu13
# The packages contain lib/; nvcc and CMake look for lib64/.
ln -sfn lib "$root/lib64"
is_new_enough "$root/bin/nvcc" || { echo "the nvcc in $root does not run" >&2; exit 1; }
echo "$root/bin/nvcc"
