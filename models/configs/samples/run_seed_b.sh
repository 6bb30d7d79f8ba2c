#!/usr/bin/env bash
# Trains sample B on eight ranks of this machine:
#
#   models/configs/samples/run_seed_b.sh [--mpirun] [FLAG of run ...]      # as run_sample.sh says
#
# What it writes goes to the folder it is started in: device/0 to device/7 (checkpoints), saved_graph/rank_0 to rank_7
# (dumps), and under mpirun log_output (what each rank printed).
set -euo pipefail
exec "${BASH_SOURCE[0]%/*}/run_sample.sh" seed_b.yaml "$@"
