#!/usr/bin/env bash
#
# The bundle is made, is small enough, and says plainly that there is no GPU where there is none.
set -uo pipefail

fail() { echo "FAILED: $*" >&2; exit 1; }

out="${TEST_TMPDIR}/bundle"
tools/bundle/bundle 2>/dev/null
[[ $? == 2 ]] || fail "without --out the code is 2"
tools/bundle/bundle --out="${out}" --cases="${TEST_TMPDIR}/none" 2>/dev/null
[[ $? == 2 ]] || fail "cases that are not there are 2"
tools/bundle/bundle --out="${out}" || fail "the bundle is not made"
[[ ! -e "${out}/cases.tar.gz" ]] || fail "cases that nobody gave"
head -c 1000 /dev/zero >"${TEST_TMPDIR}/cases"
tools/bundle/bundle --out="${out}" --cases="${TEST_TMPDIR}/cases" || fail "the bundle is not made with cases"
for file in gpu_check VERSION shared_gpu cases.tar.gz gpt2_torch.py bin/run_gpu.gz bin/measure_gpu.gz bin/gpu_tests.gz bin/plan.gz bin/simulate.gz bin/compare.gz \
  models/gpt2_124m.yaml models/gpt2_350m.yaml models/gpt2_1_5b.yaml; do
  [[ -f "${out}/${file}" ]] || fail "${file} is missing"
done
(( $(du -sb "${out}" | cut -f 1) <= 48 << 20 )) || fail "larger than 48 MiB"
bash -n "${out}/gpu_check" || fail "gpu_check is no script"
"${out}/shared_gpu" --list >/dev/null || fail "shared_gpu --list"
[[ "$("${out}/gpu_check" --list)" == "part tests "* ]] || fail "--list"
seconds="$("${out}/gpu_check" --list | awk '$1 == "part" { sum += $3 } END { print sum }')"
(( seconds > 300 && seconds <= 470 )) || fail "the parts take ${seconds} s, wanted eight minutes with what is around them"
if ! python3 -c 'import torch' 2>/dev/null; then
  said="$(python3 "${out}/gpt2_torch.py" eager gpt2_124m:8:none)" || fail "gpt2_torch.py without PyTorch"
  [[ "${said}" == "no PyTorch here: "* ]] || fail "gpt2_torch.py without PyTorch says ${said}"
fi
"${out}/gpu_check" --nonsense 2>/dev/null
[[ $? == 2 ]] || fail "a wrong flag is 2"

# What needs no GPU runs from there.
gunzip "${out}/bin/plan.gz" || fail "plan is not packed"
"${out}/bin/plan" "${out}/models/gpt2_124m.yaml" --device=h200 --devices=1 --batch=8 --out="${TEST_TMPDIR}/plan.yaml" \
  >/dev/null || fail "plan does not run"

if ldconfig -p | grep -q 'libcuda\.so\.1'; then
  echo "this machine has an NVIDIA driver: what is said without one is not tested"
  exit 0
fi
said="$("${out}/gpu_check" 2>&1)"
code=$?
[[ ${code} == 4 ]] || fail "without a GPU the code is ${code}"
[[ "${said}" == "gpu_check: no GPU: this machine has no NVIDIA driver (libcuda.so.1); nothing was run" ]] || fail "${said}"
