#!/usr/bin/env bash
# Trains sample A on eight ranks of this machine:
#
#   models/configs/samples/run_seed_a.sh [--mpirun] [FLAG of run ...]      # as run_sample.sh says
set -euo pipefail
exec "${BASH_SOURCE[0]%/*}/run_sample.sh" seed_a.yaml "$@"
