#!/usr/bin/env bash
# Trains sample D on eight ranks of this machine:
#
#   models/configs/samples/run_seed_d.sh [--mpirun] [FLAG of run ...]      # as run_sample.sh says
#
# MNIST is read from the folder --data or DATA_PATH; without either the images are made up. Ten epochs are long:
# --steps=100 shows the way.
set -euo pipefail
exec "${BASH_SOURCE[0]%/*}/run_sample.sh" seed_d.yaml "$@"
