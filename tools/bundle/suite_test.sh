#!/usr/bin/env bash
#
# The programs of the semantics suite as gpu_check plays them, with the host in the GPU's place: every process finds the
# others, and the losses are those that are written down. And it sees losses that are not. One program of eight: all of
# them are played by //tests/semantics:on_stand_ins, and here they would take a tenth of the tests' time.
set -uo pipefail

fail() { echo "FAILED: $*" >&2; exit 1; }

script=tools/bundle/shared_gpu.sh all=tests/semantics/suite_cases.tar.gz cases="${TEST_TMPDIR}/cases.tar.gz"
mkdir -p "${TEST_TMPDIR}/all"
tar -xzf "${all}" -C "${TEST_TMPDIR}/all"
(cd "${TEST_TMPDIR}/all" && ls | sort | awk 'NR % 8 == 1' | tar -czf "${cases}" -T -)
cat >"${TEST_TMPDIR}/on_host" <<'SH'
#!/usr/bin/env bash
exec tests/gpu/gpu_tests --host "$@"
SH
chmod +x "${TEST_TMPDIR}/on_host"
"${script}" --suite 2>/dev/null
[[ $? == 2 ]] || fail "without cases the code is 2"

said="$("${script}" --suite "${TEST_TMPDIR}/on_host" "${cases}")" || fail "${said}"
for ranks in 2 4 8; do
  wanted="$(tar -tzf "${cases}" | grep -c "^\(\./\)\?${ranks}_ranks_")"
  (( wanted >= 10 )) || fail "only ${wanted} cases of ${ranks} ranks"
  grep -q "^${wanted} of ${wanted} programs of ${ranks} ranks played, 0 with other losses than the host's$" <<<"${said}" ||
    fail "${ranks} ranks: ${said}"
done

# One loss with a 1 in front of it.
mkdir -p "${TEST_TMPDIR}/changed"
tar -xzf "${cases}" -C "${TEST_TMPDIR}/changed"
changed="$(ls "${TEST_TMPDIR}"/changed/2_ranks_* | head -n 1)"
sed -i '2s/losses \(-\?\)/losses \11/' "${changed}"
tar -czf "${TEST_TMPDIR}/changed.tar.gz" -C "${TEST_TMPDIR}/changed" .
said="$("${script}" --suite "${TEST_TMPDIR}/on_host" "${TEST_TMPDIR}/changed.tar.gz")" && fail "other losses pass: ${said}"
grep -q 'FAILED: step 0: found the loss' <<<"${said}" || fail "${said}"

# One that cannot be played ends its job, and another plays those behind it.
sed -i '3,$s/buffer/bluffer/' "${changed}"
rm "${TEST_TMPDIR}"/changed/[3-8]_ranks_*
tar -czf "${TEST_TMPDIR}/changed.tar.gz" -C "${TEST_TMPDIR}/changed" .
said="$("${script}" --suite "${TEST_TMPDIR}/on_host" "${TEST_TMPDIR}/changed.tar.gz" 2>/dev/null)" && fail "a damaged case passes"
grep -q "^$(basename "${changed}"): FAILED: ended its job$" <<<"${said}" || fail "${said}"
wanted="$(($(tar -tzf "${cases}" | grep -c '^\(\./\)\?2_ranks_') - 1))"
grep -q "^${wanted} of ${wanted} programs of 2 ranks played, 0 with" <<<"${said}" || fail "those behind it: ${said}"

# Without time nothing is begun, and that is said.
said="$("${script}" --suite "${TEST_TMPDIR}/on_host" "${cases}" 0)" || fail "${said}"
grep -q '^0 of [0-9]* programs of 8 ranks played' <<<"${said}" || fail "${said}"
