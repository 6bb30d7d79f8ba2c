#!/usr/bin/env bash
#
# write_suite_cases OUT.tar.gz TEST...: runs the tests, and packs the programs that they play with the losses that they
# find, but for tests that start other programs. Same tests, same bytes.
set -euo pipefail

out="$1"
shift
work="$(mktemp -d)"
trap 'rm -rf "${work}"' EXIT
mkdir "${work}/cases" "${work}/tmp"
for program in "$@"; do
  MESHWRIGHT_SUITE_CASES="${work}/cases" TEST_TMPDIR="${work}/tmp" "${program}" --gtest_brief=1 \
    --gtest_filter='-*Process*:F36.TheSampleTrains:F36.TheMemoryLimitHolds' >"${work}/log" 2>&1 || {
    echo "write_suite_cases: ${program} failed:" >&2
    tail -n 40 "${work}/log" >&2
    exit 1
  }
done
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "${work}/cases.tar" -C "${work}/cases" .
gzip -9 -n <"${work}/cases.tar" >"${out}"
