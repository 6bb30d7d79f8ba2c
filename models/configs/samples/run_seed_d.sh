#!/usr/bin/env bash
# Trains sample D on eight ranks of this machine, as threads:
#
#   models/configs/samples/run_seed_d.sh [FLAG of run ...]
#
# or, with --mpirun as first argument, as eight processes, whose output goes to log_output as well. MNIST is read from
# the folder --data or DATA_PATH; without either the images are made up. Ten epochs are long: --steps=100 shows the way.
set -euo pipefail
here="$(cd "${BASH_SOURCE[0]%/*}" && pwd -P)"
root="$(cd "${here}/../../.." && pwd -P)"
(cd "${root}" && tools/bazel build //tools:run)
if [[ "${1:-}" == --mpirun ]]; then
  shift
  as_root=()
  if [[ "$(id -u)" == 0 ]]; then as_root=(--allow-run-as-root); fi
  mpirun "${as_root[@]}" --oversubscribe -np 8 --output-filename log_output \
    "${root}/bazel-bin/tools/run" "${here}/seed_d.yaml" "$@"
else
  "${root}/bazel-bin/tools/run" "${here}/seed_d.yaml" --ranks=8 "$@"
fi
