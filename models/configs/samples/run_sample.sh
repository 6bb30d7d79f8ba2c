#!/usr/bin/env bash
# What the scripts of the samples have in common: trains a file beside this one on eight ranks of this machine, as threads:
#
#   run_sample.sh FILE [FLAG of run ...]
#
# or, with --mpirun behind FILE, as eight processes, whose output goes to the folder log_output here as well. The program
# is built first, unless MESHWRIGHT_RUN names one.
set -euo pipefail
here="$(cd "${BASH_SOURCE[0]%/*}" && pwd -P)"
sample="${here}/$1"
shift
run="${MESHWRIGHT_RUN:-}"
if [[ -z "${run}" ]]; then
  root="$(cd "${here}/../../.." && pwd -P)"
  (cd "${root}" && tools/bazel build //tools:run)
  run="${root}/bazel-bin/tools/run"
fi
if [[ "${1:-}" == --mpirun ]]; then
  shift
  as_root=()
  if [[ "$(id -u)" == 0 ]]; then as_root=(--allow-run-as-root); fi
  exec mpirun "${as_root[@]}" --oversubscribe -np 8 --output-filename log_output "${run}" "${sample}" "$@"
fi
exec "${run}" "${sample}" --ranks=8 "$@"
