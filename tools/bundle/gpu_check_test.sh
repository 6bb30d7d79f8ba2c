#!/usr/bin/env bash
#
# gpu_check with programs in place of ours that say what they were called with: the order of its parts, that one which
# fails leaves the others and the report, and that a part which is out of time says what was not run.
set -uo pipefail

fail() { echo "FAILED: $*" >&2; [[ -f "${report:-}" ]] && cat "${report}" >&2; exit 1; }

bundle="${TEST_TMPDIR}/bundle"
mkdir -p "${bundle}/bin" "${bundle}/models" "${TEST_TMPDIR}/path"
cp tools/bundle/gpu_check.sh "${bundle}/gpu_check"
cp tools/bundle/gpt2_torch.py "${bundle}/"
touch "${bundle}/cases.tar.gz"
# A machine with a driver, whose programs need no libraries.
printf '#!/usr/bin/env bash\necho "libcuda.so.1"\n' >"${TEST_TMPDIR}/path/ldconfig"
printf '#!/usr/bin/env bash\n' >"${TEST_TMPDIR}/path/ldd"
printf '#!/usr/bin/env bash\necho "A GPU, 1, 2, 3"\n' >"${TEST_TMPDIR}/path/nvidia-smi"
for program in bin/plan bin/simulate bin/compare bin/run_gpu bin/measure_gpu bin/gpu_tests shared_gpu; do
  cat >"${bundle}/${program}" <<'SH'
#!/usr/bin/env bash
name="$(basename "$0")"
echo "step: ${name} $*"
[[ "${name}" == "${BROKEN:-}" ]] && echo "it broke" && exit 3
[[ "${name}" == "${SLOW:-}" ]] && exec sleep 1000
exit 0
SH
  chmod +x "${bundle}/${program}"
done
chmod +x "${TEST_TMPDIR}/path"/* "${bundle}/gpu_check"
export PATH="${TEST_TMPDIR}/path:${PATH}"

report="${TEST_TMPDIR}/out/report.md"
"${bundle}/gpu_check" --out="${TEST_TMPDIR}/out" >/dev/null || fail "the code is $?"
[[ "$(grep '^## ' "${report}" | tr '\n' ';')" == \
  "## Tests;## Calibration;## Training, predicted and measured;## The same in PyTorch;## Several ranks on one GPU;" ]] ||
  fail "the parts"
for run in $("${bundle}/gpu_check" --list | sed -n 's/^train //p' | tr ':' '_'); do
  name="$(sed 's/_\([0-9]*\)_\(none\|full\)$/_batch\1_\2/' <<<"${run}")"
  grep -q "^- ${name}.compare: [0-9]* s$" "${report}" || fail "${name} was not compared"
done
grep -q 'microbatches=1 --recompute=full' "${TEST_TMPDIR}/out/gpt2_1_5b_batch16_full.plan.log" || fail "recompute"
grep -q 'machine.yaml' "${TEST_TMPDIR}/out/gpt2_124m_batch8_none.plan.log" || fail "the calibration is not used"
grep -q -- '--suite .*/gpu_tests .*/cases.tar.gz [0-9]' "${TEST_TMPDIR}/out/suite.log" || fail "the suite"
grep -q 'nothing failed$' "${report}" || fail "the last line"

# A part that fails: what is behind it runs, and the code says so. Without a calibration the library's figures are used.
BROKEN=measure_gpu "${bundle}/gpu_check" --out="${TEST_TMPDIR}/out" >/dev/null
[[ $? == 1 ]] || fail "a broken part is 1"
grep -q '^- measure: FAILED with 3 after' "${report}" || fail "what failed"
grep -q 'it broke' "${report}" || fail "its last words"
grep -q '^- suite: ' "${report}" || fail "the parts behind it"
grep -q 'machine.yaml' "${TEST_TMPDIR}/out/gpt2_124m_batch8_none.plan.log" && fail "a calibration that failed is used"

# Two seconds for the tests, and little for the rest: what does not fit is said, and nothing takes longer. (A step is not
# begun in the last five seconds of its part: on a busy machine there are ten to come to measure.)
sed -i 's/^parts=.*/parts=(tests:2 measure:13 train:1 torch:1 shared_gpu:1)/' "${bundle}/gpu_check"
begin="${SECONDS}"
SLOW=measure_gpu "${bundle}/gpu_check" --out="${TEST_TMPDIR}/out" >/dev/null
(( SECONDS - begin < 500 )) || fail "it took $((SECONDS - begin)) s"
grep -q '^- tests: not run, the time is up$' "${report}" || fail "tests"
grep -q '^- measure: FAILED with 124' "${report}" || fail "measure"
grep -q 'something failed$' "${report}" || fail "the last line"
