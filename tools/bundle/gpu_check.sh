#!/usr/bin/env bash
#
# Everything that a GPU is needed for, in one go and under eight minutes:
#
#   gpu_check [--out=DIR]            # the report and what it was made from; gpu_report beside this script unless given
#   gpu_check --list                 # what would be run
#
# In the order of what is learnt, each part with the seconds it has (what one leaves, the next ones have):
#
#   tests       the tests of tests/gpu
#   measure     writes a cluster file of this machine
#   train       for each model, micro-batch and recompute of the table below: plan on that file, simulate, run, compare
#   torch       the first of these in PyTorch, where there is one: eager, and compiled
#   shared_gpu  2, 4 and 8 ranks on one GPU: the oracle by the command line, then the programs of the semantics suite
#
# A part that fails, or runs out of time, leaves the others and the report as they are.
#
# Exit codes: 0 what ran did not fail; 1 something failed, the report says what; 2 usage; 4 there is no GPU; 6 a library
# is missing.
set -uo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
out="${here}/gpu_report"
parts=(tests:100 measure:80 train:150 torch:70 shared_gpu:70)
# MODEL:BATCH:RECOMPUTE, the batch in one micro-batch; the most telling first.
runs=(gpt2_124m:8:none gpt2_350m:8:none gpt2_1_5b:4:none gpt2_1_5b:16:full gpt2_124m:1:none gpt2_124m:16:none
  gpt2_350m:16:full gpt2_124m:16:full gpt2_350m:1:none gpt2_1_5b:1:none gpt2_124m:2:none gpt2_350m:4:none)
peers=(gpt2_124m:8:none gpt2_350m:8:none gpt2_1_5b:4:none gpt2_1_5b:16:full)
steps=12

for argument in "$@"; do
  case "${argument}" in
    --out=*) out="${argument#--out=}" ;;
    --list) printf 'part %s s\n' "${parts[@]/:/ }"; printf 'train %s\n' "${runs[@]}"; printf 'torch %s\n' "${peers[@]}"; exit 0 ;;
    *) echo "gpu_check: found \"${argument}\", wanted --out=DIR or --list" >&2; exit 2 ;;
  esac
done

# ---- what this machine has -------------------------------------------------------------------------------------------

if ! ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1' &&
  ! ls /usr/lib/x86_64-linux-gnu/libcuda.so.1 /usr/lib64/libcuda.so.1 /usr/lib/wsl/lib/libcuda.so.1 \
    /usr/local/nvidia/lib64/libcuda.so.1 >/dev/null 2>&1; then
  echo "gpu_check: no GPU: this machine has no NVIDIA driver (libcuda.so.1); nothing was run" >&2
  exit 4
fi

# cuBLASLt and NCCL: on the loader's path, in a CUDA toolkit, or with a Python that has PyTorch.
find_library() {
  local name="$1" folder
  ldconfig -p 2>/dev/null | grep -q "${name}" && return 0
  for folder in ${LD_LIBRARY_PATH//:/ } "${CUDA_HOME:-/usr/local/cuda}"/lib64 /usr/local/cuda*/lib64 /usr/local/nvidia/lib64 \
    /usr/lib/x86_64-linux-gnu; do
    [[ -e "${folder}/${name}" ]] && LD_LIBRARY_PATH="${folder}:${LD_LIBRARY_PATH:-}" && return 0
  done
  folder="$(python3 -c "
import glob, sys
for base in sys.path:
    for found in glob.glob(base + '/nvidia/*/lib/${name}') + glob.glob(base + '/nvidia/*/*/lib/${name}'):
        print(found.rsplit('/', 1)[0]); raise SystemExit" 2>/dev/null)"
  [[ -n "${folder}" ]] && LD_LIBRARY_PATH="${folder}:${LD_LIBRARY_PATH:-}" && return 0
  return 1
}
work="$(mktemp -d)"
trap 'rm -rf "${work}"' EXIT
for program in plan simulate compare run_gpu measure_gpu gpu_tests; do
  if [[ -e "${here}/bin/${program}.gz" ]]; then
    gzip -dc "${here}/bin/${program}.gz" >"${work}/${program}"
  else
    cp "${here}/bin/${program}" "${work}/${program}"
  fi
  chmod +x "${work}/${program}"
done
missing=()
while read -r name; do
  find_library "${name}" || missing+=("${name}")
done < <(ldd "${work}/run_gpu" | sed -n 's/^[[:space:]]*\(lib\(cublasLt\|nccl\)\.so[^ ]*\).*/\1/p')
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"
if (( ${#missing[@]} > 0 )); then
  echo "gpu_check: ${missing[*]} not found; install CUDA's libraries and NCCL, or name their folder in LD_LIBRARY_PATH" >&2
  exit 6
fi

mkdir -p "${out}"
report="${out}/report.md"
failed=0
began="${SECONDS}"

# say TEXT: to the report and to the screen.
say() { printf '%s\n' "$*" | tee -a "${report}"; }
# show FILE: the same, of a file, set off.
show() { sed 's/^/      /' "$1" | tee -a "${report}"; }
# part NAME TITLE: from here on, until what is allotted to all parts so far is used up.
part_end=0
part() {
  local entry
  for entry in "${parts[@]}"; do
    [[ "${entry%%:*}" == "$1" ]] && part_end=$((part_end + ${entry##*:}))
  done
  say ""
  say "## $2"
  say ""
}
# step LIMIT NAME COMMAND...: runs it into NAME.log, if the part has time; what it took, and its last lines where it
# failed.
step() {
  local limit="$1" name="$2" start="${SECONDS}" left status
  shift 2
  left=$((part_end - (SECONDS - began)))
  if (( left < 5 )); then
    say "- ${name}: not run, the time is up"
    return 1
  fi
  (( limit < left )) || limit="${left}"
  timeout -k 5 "${limit}" "$@" >"${out}/${name}.log" 2>&1
  status=$?
  if (( status == 0 )); then
    say "- ${name}: $((SECONDS - start)) s"
    return 0
  fi
  failed=1
  say "- ${name}: FAILED with ${status} after $((SECONDS - start)) s"
  tail -n 5 "${out}/${name}.log" | sed 's/^/      /' | tee -a "${report}"
  return 1
}

: >"${report}"
say "# GPU check, $(date -u '+%Y-%m-%d %H:%M') UTC"
say ""
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader 2>/dev/null |
  sed 's/^/- GPU: /' | tee -a "${report}"

part tests "Tests"
step 100 tests "${work}/gpu_tests" --gtest_brief=1
grep -a '^attention ' "${out}/tests.log" | sed 's/^/- /' | tee -a "${report}"
grep -aE '^\[  (PASSED|SKIPPED|FAILED) +\]|^\[  FAILED' "${out}/tests.log" | head -n 40 | sed 's/^/      /' | tee -a "${report}"

part measure "Calibration"
cluster=()
if step 100 measure "${work}/measure_gpu" --device=gpu --out="${out}/machine.yaml"; then
  show "${out}/measure.log"
  cluster=(--cluster="${out}/machine.yaml")
fi

part train "Training, predicted and measured"
for run in "${runs[@]}"; do
  IFS=: read -r model batch recompute <<<"${run}"
  name="${model}_batch${batch}_${recompute}" plan="${work}/plan.yaml"
  step 20 "${name}.plan" "${work}/plan" "${here}/models/${model}.yaml" "${cluster[@]}" --devices=1 \
    --batch="${batch}" --microbatches=1 --recompute="${recompute}" --out="${plan}" || continue
  step 20 "${name}.simulate" "${work}/simulate" "${plan}" --trace="${work}/sim.json"
  step 60 "${name}.run" "${work}/run_gpu" "${plan}" --steps="${steps}" --trace="${work}/run.json" || continue
  grep -a '^step ' "${out}/${name}.run.log" | sed 's/^/      measured: /' | tee -a "${report}"
  grep -a '^step ' "${out}/${name}.plan.log" | sed 's/^/      predicted: /' | tee -a "${report}"
  step 20 "${name}.compare" "${work}/compare" "${work}/sim.json" "${work}/run.json" && show "${out}/${name}.compare.log"
done

part torch "The same in PyTorch"
if python3 -c 'import torch; assert torch.cuda.is_available()' >/dev/null 2>&1; then
  step 20 attention.torch python3 "${here}/gpt2_torch.py" attention && show "${out}/attention.torch.log"
  for way in eager compiled; do
    for run in "${peers[@]}"; do
      IFS=: read -r model batch recompute <<<"${run}"
      name="${model}_batch${batch}_${recompute}.torch_${way}"
      step 45 "${name}" python3 "${here}/gpt2_torch.py" "${model}" "${batch}" "${way}" ${recompute/none/} &&
        show "${out}/${name}.log"
    done
  done
else
  say "- no PyTorch that sees a GPU"
fi

part shared_gpu "Several ranks on one GPU"
step 40 shared_gpu "${here}/shared_gpu" "${work}/run_gpu" 25 && show "${out}/shared_gpu.log"
left=$((part_end - (SECONDS - began) - 8))
step 400 suite "${here}/shared_gpu" --suite "${work}/gpu_tests" "${here}/cases.tar.gz" "$((left > 0 ? left : 0))" &&
  show "${out}/suite.log"

say ""
say "$((SECONDS - began)) s in all; $( (( failed )) && echo 'something failed' || echo 'nothing failed')"
exit "${failed}"
