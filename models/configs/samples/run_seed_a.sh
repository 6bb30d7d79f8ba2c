#!/usr/bin/env bash
# Trains sample A on eight ranks of this machine, as threads:
#
#   models/configs/samples/run_seed_a.sh [FLAG of run ...]
#
# or, with --mpirun as first argument, as eight processes, whose output goes to the folder log_output here.
set -euo pipefail
here="$(cd "${BASH_SOURCE[0]%/*}" && pwd -P)"
root="$(cd "${here}/../../.." && pwd -P)"
(cd "${root}" && tools/bazel build //tools:run)
if [[ "${1:-}" == --mpirun ]]; then
  shift
  as_root=()
  if [[ "$(id -u)" == 0 ]]; then as_root=(--allow-run-as-root); fi
  mpirun "${as_root[@]}" --oversubscribe -np 8 --output-filename log_output \
    "${root}/bazel-bin/tools/run" "${here}/seed_a.yaml" "$@"
else
  "${root}/bazel-bin/tools/run" "${here}/seed_a.yaml" --ranks=8 "$@"
fi
