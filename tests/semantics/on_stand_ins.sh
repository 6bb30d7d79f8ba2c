#!/usr/bin/env bash
#
# Runs the tests that are named, programs of GoogleTest, on stand-ins for GPUs (play.h). A shard of this test is the same
# shard of each of them.
set -uo pipefail

unset XML_OUTPUT_FILE
export MESHWRIGHT_BACKEND=stand_ins
failed=0
for program in "$@"; do
  "${program}" --gtest_brief=1 >"${TEST_TMPDIR}/log" 2>&1 && continue
  failed=1
  echo "FAILED on stand-ins: ${program}"
  tail -n 60 "${TEST_TMPDIR}/log"
done
exit "${failed}"
