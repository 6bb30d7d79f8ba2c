#!/usr/bin/env bash
# Trains sample B on eight ranks of this machine, as threads:
#
#   models/configs/samples/run_seed_b.sh [FLAG of run ...]
#
# or, with --mpirun as first argument, as eight processes. What it writes goes to the folder it is started in: device/0 to
# device/7 (checkpoints), saved_graph/rank_0 to rank_7 (dumps), and under mpirun log_output (what each rank printed).
set -euo pipefail
here="$(cd "${BASH_SOURCE[0]%/*}" && pwd -P)"
root="$(cd "${here}/../../.." && pwd -P)"
(cd "${root}" && tools/bazel build //tools:run)
if [[ "${1:-}" == --mpirun ]]; then
  shift
  as_root=()
  if [[ "$(id -u)" == 0 ]]; then as_root=(--allow-run-as-root); fi
  mpirun "${as_root[@]}" --oversubscribe -np 8 --output-filename log_output \
    "${root}/bazel-bin/tools/run" "${here}/seed_b.yaml" "$@"
else
  "${root}/bazel-bin/tools/run" "${here}/seed_b.yaml" --ranks=8 "$@"
fi
