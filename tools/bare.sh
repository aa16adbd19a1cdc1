#!/usr/bin/env bash
# Runs a command as on a machine without CUDA: in a mount namespace that hides /usr/local/cuda*, /usr/local/include,
# every nvcc on PATH and the user's site-packages. A build that works in it does not depend on what this machine has.
#
#   tools/bare.sh COMMAND...             without any CUDA toolkit
#   tools/bare.sh --toolkit COMMAND...   with the toolkit in /usr/local/cuda, but not on PATH
#
# Needs root or unprivileged user namespaces. Where it has neither, it says so and runs the command as it is.
set -euo pipefail

usage() {
  echo "usage: tools/bare.sh [--toolkit] COMMAND..." >&2
  exit 2
}

hide_folder() {
  [ ! -d "$1" ] || mount -t tmpfs -o size=1m,mode=755 none "$1"
}

# Inside the namespace. Symbolic links are resolved first: a folder hidden once stays hidden under its other names.
hide_all() {
  local toolkit=$1 kept folder nvcc
  kept=$([ "$toolkit" = no ] || realpath -q /usr/local/cuda || true)
  for folder in /usr/local/cuda* /usr/local/include "$HOME"/.local/lib/python*/site-packages; do
    [ ! -e "$folder" ] || realpath "$folder"
  done | sort -u | while read -r folder; do
    [ "$folder" = "$kept" ] || hide_folder "$folder"
  done
  # A device file cannot be executed, so searches of PATH pass over it.
  while read -r -d : folder; do
    nvcc=$folder/nvcc
    [ ! -x "$nvcc" ] || mount --bind /dev/null "$(realpath "$nvcc")"
  done <<<"$PATH:"
}

# PATH without the folders below /usr/local/cuda*.
path_without_cuda() {
  local folder path=
  while read -r -d : folder; do
    case $(realpath -m "$folder") in /usr/local/cuda*) ;; *) path+=${path:+:}$folder ;; esac
  done <<<"$PATH:"
  echo "$path"
}

clean_environment() {
  PATH=$(path_without_cuda)
  export PATH PYTHONNOUSERSITE=1
  unset CUDA_HOME CUDA_PATH CUDA_ROOT CUDACXX CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH LIBRARY_PATH \
    NVCC_PREPEND_FLAGS NVCC_APPEND_FLAGS
}

if [ "${1:-}" = --inside ]; then
  uid=$2 gid=$3 toolkit=$4
  shift 4
  clean_environment
  hide_all "$toolkit"
  [ "$uid" != "$(id -u)" ] || exec "$@"
  exec unshare --user --map-user="$uid" --map-group="$gid" -- "$@"
fi

toolkit=no
if [ "${1:-}" = --toolkit ]; then
  toolkit=yes
  shift
  [ -x /usr/local/cuda/bin/nvcc ] || { echo "bare.sh: /usr/local/cuda has no toolkit" >&2; exit 77; }
fi
[ $# -gt 0 ] || usage

uid=$(id -u) gid=$(id -g)
namespaces=(unshare --mount)
[ "$uid" = 0 ] || namespaces=(unshare --user --map-root-user --mount)
if ! problem=$("${namespaces[@]}" mount -t tmpfs none /mnt 2>&1); then
  echo "bare.sh: cannot create a mount namespace (${problem:-unshare failed}): running the command without hiding anything" >&2
  clean_environment
  exec "$@"
fi
exec "${namespaces[@]}" -- "$0" --inside "$uid" "$gid" "$toolkit" "$@"
