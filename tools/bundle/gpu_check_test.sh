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
[[ "$*" == --machine ]] && echo "device 0: A GPU, compute capability 9.0" && exit 0
echo "step: ${name} $* blocking=${CUDA_LAUNCH_BLOCKING:-} no_wgmma=${MESHWRIGHT_NO_WGMMA:-} path=${LD_LIBRARY_PATH:-}"
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

# What a single report has to say: the machine, what CUDA finds, and which libraries.
grep -q '^- GPU: A GPU, 1, 2, 3$' "${report}" || fail "the GPU"
grep -q '^- device 0: A GPU, compute' "${report}" || fail "what CUDA finds"
grep -q '^- host: Linux .* cores' "${report}" || fail "the host"

# A driver that the loader's cache does not know, as in containers: in a folder of LD_LIBRARY_PATH alone.
mkdir -p "${TEST_TMPDIR}/driver" "${TEST_TMPDIR}/elsewhere"
touch "${TEST_TMPDIR}/driver/libcuda.so.1"
mv "${TEST_TMPDIR}/path/ldconfig" "${TEST_TMPDIR}/ldconfig"
printf '#!/usr/bin/env bash\n' >"${TEST_TMPDIR}/path/ldconfig"
chmod +x "${TEST_TMPDIR}/path/ldconfig"
(cd "${TEST_TMPDIR}/elsewhere" && LD_LIBRARY_PATH="${TEST_TMPDIR}/driver" "${bundle}/gpu_check" --out=here >/dev/null) ||
  fail "a driver of a folder is not found: $?"
grep -q "path=${TEST_TMPDIR}/driver$" "${TEST_TMPDIR}/elsewhere/here/measure.log" || fail "the driver's folder is not passed on"
mv "${TEST_TMPDIR}/ldconfig" "${TEST_TMPDIR}/path/ldconfig"

# A test that hangs, one that fails: the others are run by another process, and wgmma is not used where it is wrong.
mv "${bundle}/bin/gpu_tests" "${TEST_TMPDIR}/gpu_tests"
cat >"${bundle}/bin/gpu_tests" <<'SH'
#!/usr/bin/env bash
case "$*" in
  *--from=0*)
    printf '%s\n' '[ RUN      ] A.x' 'test 0: A.x' '[       OK ] A.x (1 ms)' '[ RUN      ] B.y/wgmma' 'test 1: B.y/wgmma' \
      'test 1: B.y/wgmma: does not end within 30 s'
    exit 3 ;;
  *--from=2*)
    printf '%s\n' '[ RUN      ] C.z' 'test 2: C.z' 'element 7 is 1, the host has 2' '[  FAILED  ] C.z (1 ms)' \
      '[ RUN      ] D.z' 'test 3: D.z' '[       OK ] D.z (1 ms)' '[  FAILED  ] C.z' 'all tests were begun'
    exit 1 ;;
  *--machine*) exit "${MACHINE:-0}" ;;
esac
SH
chmod +x "${bundle}/bin/gpu_tests"
BROKEN=run_gpu "${bundle}/gpu_check" --out="${TEST_TMPDIR}/out" >/dev/null
[[ $? == 1 ]] || fail "tests that fail are 1"
grep -q '^- tests: 2 passed, 0 skipped, 1 failed, 1 ended their process$' "${report}" || fail "the count of tests"
grep -q '^      test 1: B.y/wgmma: does not end' "${report}" || fail "the test that hangs"
grep -A1 '^      C.z: FAILED$' "${report}" | grep -q '^        element 7 is 1, the host has 2$' || fail "what the failed test says"
grep -q 'no_wgmma=1' "${TEST_TMPDIR}/out/measure.log" || fail "wgmma is used although it hangs"
again="${TEST_TMPDIR}/out/gpt2_124m_batch8_none.run_again.log"
grep -q -- '--nographs blocking=1 no_wgmma=1' "${again}" || fail "the run that failed is not repeated kernel by kernel"
[[ "$(ls "${TEST_TMPDIR}"/out/*.run_again.log | wc -l)" == 1 ]] || fail "more than one run is repeated"
MACHINE=4 "${bundle}/gpu_check" --out="${TEST_TMPDIR}/out" >/dev/null
[[ $? == 4 ]] || fail "a driver without a GPU is 4"
mv "${TEST_TMPDIR}/gpu_tests" "${bundle}/bin/gpu_tests"

# A part that fails: what is behind it runs, and the code says so. Without a calibration the library's figures are used.
BROKEN=measure_gpu "${bundle}/gpu_check" --out="${TEST_TMPDIR}/out" >/dev/null
[[ $? == 1 ]] || fail "a broken part is 1"
grep -q '^- measure: FAILED with 3 after' "${report}" || fail "what failed"
grep -q 'it broke' "${report}" || fail "its last words"
grep -q '^- suite: ' "${report}" || fail "the parts behind it"
grep -q 'machine.yaml' "${TEST_TMPDIR}/out/gpt2_124m_batch8_none.plan.log" && fail "a calibration that failed is used"
grep -q -- '--device=A GPU' "${TEST_TMPDIR}/out/gpt2_124m_batch8_none.plan.log" || fail "the device is not named"

# Two seconds for the tests, and little for the rest: what does not fit is said, and nothing takes longer. (A step is not
# begun in the last five seconds of its part: on a busy machine there are ten to come to measure.)
sed -i 's/^parts=.*/parts=(tests:2 measure:13 train:1 torch:1 shared_gpu:1)/' "${bundle}/gpu_check"
begin="${SECONDS}"
SLOW=measure_gpu "${bundle}/gpu_check" --out="${TEST_TMPDIR}/out" >/dev/null
(( SECONDS - begin < 500 )) || fail "it took $((SECONDS - begin)) s"
grep -q '^- tests: not run, the time is up$' "${report}" || fail "tests"
grep -q '^- measure: FAILED with 124' "${report}" || fail "measure"
grep -q 'something failed$' "${report}" || fail "the last line"

# Without the suite's programs the rest is as it was.
mv "${bundle}/cases.tar.gz" "${TEST_TMPDIR}/"
"${bundle}/gpu_check" --out="${TEST_TMPDIR}/out" --parts=shared_gpu:30 >/dev/null || fail "without cases: the code is $?"
grep -q '^- suite: not run, this bundle has no cases' "${report}" || fail "that there are no cases"
grep -q '^- shared_gpu: ' "${report}" || fail "what needs no cases"
mv "${TEST_TMPDIR}/cases.tar.gz" "${bundle}/"

# Parts by name: no other is run, nor one that is misspelt.
"${bundle}/gpu_check" --out="${TEST_TMPDIR}/out" --parts=shared_gpu:30,measure:30 >/dev/null || fail "two parts: the code is $?"
[[ "$(grep '^## ' "${report}" | tr '\n' ';')" == "## Calibration;## Several ranks on one GPU;" ]] || fail "two parts alone"
for wrong in tests test:5 tests:x ""; do
  "${bundle}/gpu_check" --out="${TEST_TMPDIR}/out" --parts="${wrong}" 2>"${TEST_TMPDIR}/wrong"
  [[ $? == 2 ]] || fail "--parts=${wrong} is not refused"
  grep -q 'wanted NAME:SECONDS with one of: tests measure' "${TEST_TMPDIR}/wrong" || fail "--parts=${wrong}: $(<"${TEST_TMPDIR}/wrong")"
done
