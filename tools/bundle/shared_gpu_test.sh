#!/usr/bin/env bash
#
# What gpu_check does with several ranks on one GPU, with the host in its place: every plan is made, every process finds
# the others, and the losses are those of one rank. And it sees losses that are not.
set -uo pipefail

fail() { echo "FAILED: $*" >&2; exit 1; }

script=tools/bundle/shared_gpu.sh
(( $("${script}" --list | wc -l) >= 8 )) || fail "--list"
"${script}" 2>/dev/null
[[ $? == 2 ]] || fail "without a command the code is 2"

said="$("${script}" tools/run)" || fail "${said}"
(( $(grep -c 'the losses of one rank' <<<"${said}") == $("${script}" --list | wc -l) )) || fail "${said}"

[[ "$("${script}" tools/run 0 | sort -u)" != *"the losses of"* ]] || fail "runs after its time"
# A trainer that gives other losses on two ranks, and one that fails.
cat >"${TEST_TMPDIR}/wrong" <<'SH'
#!/usr/bin/env bash
[[ "${RANK}" == 0 ]] && echo "{\"losses\": [1, 1, 1, 1, 1, ${WORLD_SIZE}]}"
exit 0
SH
cat >"${TEST_TMPDIR}/broken" <<'SH'
#!/usr/bin/env bash
[[ "${WORLD_SIZE}" == 1 ]] && echo '{"losses": [1, 1, 1, 1, 1, 1]}' && exit 0
echo "no such device" >&2
exit 1
SH
chmod +x "${TEST_TMPDIR}/wrong" "${TEST_TMPDIR}/broken"
said="$("${script}" "${TEST_TMPDIR}/wrong")" && fail "other losses pass"
grep -q '2 ranks, data: FAILED: found 1 1 1 1 1 2, wanted 1 1 1 1 1 1' <<<"${said}" || fail "${said}"
said="$("${script}" "${TEST_TMPDIR}/broken" 2>&1)" && fail "failed runs pass"
grep -q 'rank 1: no such device' <<<"${said}" || fail "${said}"

# A port that is taken: another is tried, and those that waited for rank 0 at the first are not waited for.
cat >"${TEST_TMPDIR}/taken" <<'SH'
#!/usr/bin/env bash
[[ "${WORLD_SIZE}" == 1 ]] && echo '{"losses": [1, 1, 1, 1, 1, 1]}' && exit 0
echo "${MASTER_PORT}" >>"${TEST_TMPDIR}/ports"
if (( $(sort -u "${TEST_TMPDIR}/ports" | wc -l) > 1 )); then
  [[ "${RANK}" == 0 ]] && echo '{"losses": [1, 1, 1, 1, 1, 1]}'
  exit 0
fi
[[ "${RANK}" != 0 ]] && exec sleep 1000
echo "cannot listen at 127.0.0.1:${MASTER_PORT}: Address already in use" >&2
exit 1
SH
chmod +x "${TEST_TMPDIR}/taken"
said="$("${script}" "${TEST_TMPDIR}/taken" 2>&1)" || fail "${said}"
[[ "$("${script}" --list | wc -l)" == "$(grep -c 'the losses of one rank' <<<"${said}")" ]] || fail "${said}"
