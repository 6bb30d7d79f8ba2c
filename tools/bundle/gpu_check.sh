#!/usr/bin/env bash
#
# Everything that a GPU is needed for, in one go and under eight minutes:
#
#   gpu_check [--out=DIR]            # the report and what it was made from; gpu_report beside this script unless given
#   gpu_check --parts=NAME:SECONDS,..  # these parts alone: --parts=tests:60,train:200
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
# A part that fails, or runs out of time, leaves the others and the report as they are. A test that hangs, or breaks the
# device for its process, ends that process; another goes on behind it. The first run that fails is repeated with every
# kernel waited for, so that the one which failed is named.
#
# Wants bash 4.4, and nothing written but the report and a temporary folder. PYTHON names the Python that has PyTorch.
#
# Exit codes: 0 what ran did not fail; 1 something failed, the report says what; 2 usage; 4 there is no GPU; 6 a library
# is missing.
set -uo pipefail

here="$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)"
out=""
parts=(tests:110 measure:80 train:130 torch:80 shared_gpu:70)
each=30 # seconds of a test
# MODEL:BATCH:RECOMPUTE, the batch in one micro-batch; the most telling first.
runs=(gpt2_124m:8:none gpt2_350m:8:none gpt2_1_5b:4:none gpt2_1_5b:16:full gpt2_124m:1:none gpt2_124m:16:none
  gpt2_350m:16:full gpt2_124m:16:full gpt2_350m:1:none gpt2_1_5b:1:none gpt2_124m:2:none gpt2_350m:4:none)
peers=(gpt2_124m:8:none gpt2_350m:8:none gpt2_1_5b:4:none gpt2_1_5b:16:full)
steps=12
python="${PYTHON:-python3}"
PATH="${PATH}:/sbin:/usr/sbin" # ldconfig is there, and on no user's path in Debian

for argument in "$@"; do
  case "${argument}" in
    --out=*) out="${argument#--out=}" ;;
    --parts=*)
      IFS=, read -ra wanted <<<"${argument#--parts=},"
      for entry in "${wanted[@]}"; do
        [[ " ${parts[*]}" == *" ${entry%%:*}:"* && "${entry}" =~ ^[a-z_]+:[0-9]+$ ]] && continue
        echo "gpu_check: found the part \"${entry}\", wanted NAME:SECONDS with one of: ${parts[*]%%:*}" >&2
        exit 2
      done
      parts=("${wanted[@]}")
      ;;
    --list) printf 'part %s s\n' "${parts[@]/:/ }"; printf 'train %s\n' "${runs[@]}"; printf 'torch %s\n' "${peers[@]}"; exit 0 ;;
    *) echo "gpu_check: found \"${argument}\", wanted --out=DIR, --parts=NAME:SECONDS,... or --list" >&2; exit 2 ;;
  esac
done

# ---- what this machine has -------------------------------------------------------------------------------------------

# Our programs' LD_LIBRARY_PATH. PyTorch has libraries of its own, and keeps the path that was there.
libraries="${LD_LIBRARY_PATH:-}"
# have NAME [FOLDER...]: whether the loader finds a library, with its folder added to `libraries` where it has to be: a
# driver's, a CUDA toolkit's, or a Python's that has PyTorch.
have() {
  local name="$1" folder known
  shift
  known="$(ldconfig -p 2>/dev/null)"
  [[ "${known}" == *"${name}"* ]] && return 0
  for folder in ${libraries//:/ }; do
    [[ -e "${folder}/${name}" ]] && return 0
  done
  for folder in "$@" "${CUDA_HOME:-/usr/local/cuda}"/lib64 /usr/local/cuda*/lib64 /usr/lib/x86_64-linux-gnu /usr/lib64; do
    [[ -e "${folder}/${name}" ]] && libraries="${folder}${libraries:+:${libraries}}" && return 0
  done
  folder="$(timeout 20 "${python}" -c "
import glob, sys
for base in sys.path:
    for found in glob.glob(base + '/nvidia/*/lib/${name}') + glob.glob(base + '/nvidia/*/*/lib/${name}'):
        print(found.rsplit('/', 1)[0]); raise SystemExit" 2>/dev/null)"
  [[ -n "${folder}" ]] && libraries="${folder}${libraries:+:${libraries}}" && return 0
  return 1
}
if ! have libcuda.so.1 /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/lib/wsl/lib /usr/lib64/nvidia; then
  echo "gpu_check: no GPU: this machine has no NVIDIA driver (libcuda.so.1); nothing was run" >&2
  exit 4
fi

# The report's folder, and one for programs: some machines let none be run from /tmp.
for out in "${out:-${here}/gpu_report}" "${PWD}/gpu_report" "${TMPDIR:-/tmp}/gpu_report"; do
  mkdir -p "${out}" 2>/dev/null && touch "${out}/report.md" 2>/dev/null && break
  echo "gpu_check: ${out} cannot be written" >&2
done
out="$(cd "${out}" && pwd)" || exit 2
work=""
trap '[[ -n "${work}" ]] && rm -rf "${work}"' EXIT
for base in "${TMPDIR:-/tmp}" "${out}"; do
  work="$(mktemp -d "${base}/gpu_check.XXXXXX" 2>/dev/null)" || continue
  printf '#!/bin/sh\n' >"${work}/try" && chmod +x "${work}/try" && "${work}/try" 2>/dev/null && break
  rm -rf "${work}"
done
for program in plan simulate compare run_gpu measure_gpu gpu_tests; do
  if [[ -e "${here}/bin/${program}.gz" ]]; then
    gzip -dc "${here}/bin/${program}.gz" >"${work}/${program}"
  else
    cp "${here}/bin/${program}" "${work}/${program}"
  fi || { echo "gpu_check: ${here}/bin/${program} cannot be unpacked to ${work}" >&2; exit 2; }
  chmod +x "${work}/${program}"
done
missing=()
while read -r name; do
  have "${name}" /usr/local/nvidia/lib64 || missing+=("${name}")
done < <(ldd "${work}/run_gpu" 2>/dev/null | sed -n 's/^[[:space:]]*\(lib\(cublasLt\|nccl\)\.so[^ ]*\).*/\1/p')
if (( ${#missing[@]} > 0 )); then
  echo "gpu_check: ${missing[*]} not found; install CUDA's libraries and NCCL, or name their folder in LD_LIBRARY_PATH" >&2
  exit 6
fi
# What hangs before a step has ended is named by its kernel before its time is up.
ours=(env "LD_LIBRARY_PATH=${libraries}" MESHWRIGHT_SETUP_SECONDS=40)
loaded="$("${ours[@]}" ldd -r "${work}/run_gpu" 2>&1)"
if [[ "${loaded}" == *"not found"* || "${loaded}" == *"undefined symbol"* ]]; then
  echo "gpu_check: these programs cannot be loaded here:" >&2
  grep -E 'not found|undefined symbol' <<<"${loaded}" | head -n 20 >&2
  exit 6
fi

report="${out}/report.md"
failed=0
began="${SECONDS}"

# say TEXT: to the report and to the screen.
say() { printf '%s\n' "$*" | tee -a "${report}"; }
# quote: the same, of what comes in, set off and in lines of a width that can be read.
quote() { cut -c -1000 | sed 's/^/      /' | tee -a "${report}"; }
show() { quote <"$1"; }
# part NAME TITLE: from here on, until what is allotted to all parts so far is used up. Whether it is to be run.
part_end=0 not_run=99
part() {
  local entry wanted=""
  for entry in "${parts[@]}"; do
    [[ "${entry%%:*}" == "$1" ]] && part_end=$((part_end + ${entry##*:})) wanted=yes
  done
  [[ -n "${wanted}" ]] || return 1
  say ""
  say "## $2"
  say ""
}
left() { echo $((part_end - (SECONDS - began))); }
# step LIMIT NAME COMMAND...: runs it into NAME.log, if the part has time; what it took, and its last lines where it
# failed (as many as `words`). Where `peer` is set it is not ours that failed. Its status, or not_run.
step() {
  local limit="$1" name="$2" start="${SECONDS}" has status
  shift 2
  has="$(left)"
  if (( has < 5 )); then
    say "- ${name}: not run, the time is up"
    return "${not_run}"
  fi
  (( limit < has )) || limit="${has}"
  timeout -k 5 "${limit}" "$@" >"${out}/${name}.log" 2>&1 </dev/null
  status=$?
  if (( status == 0 )); then
    say "- ${name}: $((SECONDS - start)) s"
    return 0
  fi
  [[ -n "${peer:-}" ]] || failed=1
  say "- ${name}: FAILED with ${status} after $((SECONDS - start)) s$( (( status == 124 )) && echo " of ${limit}: its time was up")"
  tail -n "${words:-20}" "${out}/${name}.log" | quote
  return "${status}"
}

: >"${report}"
say "# GPU check, $(date -u '+%Y-%m-%d %H:%M') UTC"
say ""
[[ -f "${here}/VERSION" ]] && say "- program: $(<"${here}/VERSION")"
gpus="$(timeout 20 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader 2>&1)"
sed 's/^/- GPU: /' <<<"${gpus:-nvidia-smi says nothing}" | tee -a "${report}"
say "- host: $(uname -srm), $(nproc) cores, $(awk '/MemTotal/ { printf "%d", $2 / 1048576 }' /proc/meminfo) GiB, $(
  sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release 2>/dev/null), user $(id -u)"
while read -r name _ path _; do
  say "- library: ${name} is $(readlink -f "${path}")"
done < <(grep -E 'libcublasLt|libnccl' <<<"${loaded}")
say "- LD_LIBRARY_PATH for these programs: ${libraries:-none}"
env | grep -E '^(CUDA|NCCL|NVIDIA|MESHWRIGHT|TORCH)_' | sed 's/^/- environment: /' | tee -a "${report}"
timeout -k 5 60 "${ours[@]}" "${work}/gpu_tests" --machine >"${out}/machine.log" 2>&1
status=$?
sed 's/^/- /' "${out}/machine.log" | tee -a "${report}"
if (( status == 4 )); then
  say ""
  say "nothing was run: there is no GPU that can be used"
  exit 4
fi
(( status == 0 )) || { failed=1; say "- what CUDA finds: FAILED with ${status}"; }
gpu="$(sed -n 's/^device 0: \(.*\), compute capability .*/\1/p' "${out}/machine.log")"

cluster=()
[[ -n "${gpu}" ]] && cluster=(--device="${gpu}") # until it is measured

run_tests() {
  seed="$((RANDOM * 32768 + RANDOM))"
  say "- MESHWRIGHT_SEED=${seed}"
  # Those behind one that ends its process are another's.
  from=0 process=1 logs=()
  while (( from >= 0 )); do
    name="tests$( (( process > 1 )) && echo "_${process}")"
    words=2 step 200 "${name}" "${ours[@]}" MESHWRIGHT_SEED="${seed}" "${work}/gpu_tests" "--from=${from}" "--each=${each}"
    [[ -f "${out}/${name}.log" ]] || break
    logs+=("${out}/${name}.log")
    last="$(grep -a '^test [0-9]*: ' "${logs[-1]}" | tail -n 1 | sed 's/^test \([0-9]*\): .*/\1/')"
    if grep -aq '^all tests were begun$' "${logs[-1]}" || (( ${last:--1} < from || $(left) < 5 )); then break; fi
    from=$((last + 1)) process=$((process + 1))
  done
  # Of each test that failed what it said, and those that ended a process.
  if (( ${#logs[@]} > 0 )); then
    grep -ah '^attention ' "${logs[@]}" | sed 's/^/- /' | tee -a "${report}"
    # The lines of a failed test without those that say the same of each, or "the same" where the last one said it.
    awk '/^\[ RUN / { name = $4; text = ""; lines = 0; next }
         /^test [0-9]+: .*: (does not end|leaves a device)/ { print; next }
         /^\[  FAILED  \] .* \([0-9]+ ms\)/ {
           print name ": FAILED"; print text == last ? "  as above" : text; last = text; next
         }
         /^\[|^test [0-9]+: |: Failure$|^Value of: |^  Actual: |^Expected: |^Google Test trace|MESHWRIGHT_SEED=|^$/ { next }
         lines++ < 6 { text = text (lines > 1 ? "\n" : "") "  " $0 }' "${logs[@]}" | head -n 200 | quote
    say "- tests: $(cat "${logs[@]}" | grep -ac '^\[       OK \]') passed, $(cat "${logs[@]}" | grep -ac '^\[  SKIPPED \].* ms)'
      ) skipped, $(cat "${logs[@]}" | grep -acE '^\[  FAILED  \] .* \([0-9]+ ms\)') failed, $((process - 1)) ended their process"
  fi
  # What is known to be wrong shall not spoil the rest.
  if (( ${#logs[@]} > 0 )) && grep -aqE '^\[  FAILED  \].*wgmma|^test [0-9]+: .*wgmma: ' "${logs[@]}"; then
    say "- attention by wgmma is wrong here: the parts below go without (MESHWRIGHT_NO_WGMMA=1)"
    ours+=(MESHWRIGHT_NO_WGMMA=1)
  fi
}

run_measure() {
  # Of one rank: what is between several takes minutes.
  if step 100 measure "${ours[@]}" "${work}/measure_gpu" --device=gpu --ranks=1 --out="${out}/machine.yaml"; then
    show "${out}/measure.log"
    grep -aq '^not measured: ' "${out}/measure.log" && failed=1
    cluster=(--cluster="${out}/machine.yaml")
  fi
}

run_train() {
  explained=""
  for run in "${runs[@]}"; do
    IFS=: read -r model batch recompute <<<"${run}"
    name="${model}_batch${batch}_${recompute}" plan="${work}/plan.yaml"
    how=("${here}/models/${model}.yaml" --devices=1 --batch="${batch}" --microbatches=1 --recompute="${recompute}")
    if ! step 20 "${name}.plan" "${ours[@]}" "${work}/plan" "${how[@]}" "${cluster[@]}" --out="${plan}"; then
      (( $(left) < 5 )) && break
      (( ${#cluster[@]} > 0 )) || continue
      cluster=() # as for the device that `plan` takes unless one is named
      step 20 "${name}.plan" "${ours[@]}" "${work}/plan" "${how[@]}" --out="${plan}" || continue
    fi
    step 20 "${name}.simulate" "${ours[@]}" "${work}/simulate" "${plan}" --trace="${work}/sim.json"
    step 60 "${name}.run" "${ours[@]}" "${work}/run_gpu" "${plan}" --steps="${steps}" --trace="${work}/run.json"
    status=$?
    if (( status != 0 )); then
      (( status != not_run && status != 124 && status != 4 )) && [[ -z "${explained}" ]] && explained=yes &&
        step 40 "${name}.run_again" "${ours[@]}" CUDA_LAUNCH_BLOCKING=1 "${work}/run_gpu" "${plan}" --steps=2 --nographs
      continue
    fi
    grep -a '^note: ' "${out}/${name}.run.log" | head -n 5 | quote
    grep -a '^step ' "${out}/${name}.run.log" | sed 's/^/measured: /' | quote
    grep -a '^step ' "${out}/${name}.plan.log" | sed 's/^/predicted: /' | quote
    step 20 "${name}.compare" "${ours[@]}" "${work}/compare" "${work}/sim.json" "${work}/run.json" &&
      show "${out}/${name}.compare.log"
  done
}

run_torch() {
  peer=yes
  if timeout -k 5 40 "${python}" -c 'import torch; assert torch.cuda.is_available()' >"${out}/torch.log" 2>&1; then
    step 20 attention.torch "${python}" "${here}/gpt2_torch.py" attention && show "${out}/attention.torch.log"
    # A process each, whose lines come one by one: what is there when the time is up counts.
    step 35 torch_eager "${python}" "${here}/gpt2_torch.py" eager "${peers[@]}"
    [[ -f "${out}/torch_eager.log" ]] && grep -a '^PyTorch' "${out}/torch_eager.log" | quote
    step 60 torch_compiled "${python}" "${here}/gpt2_torch.py" compiled "${peers[@]}"
    [[ -f "${out}/torch_compiled.log" ]] && grep -a '^PyTorch' "${out}/torch_compiled.log" | quote
  else
    say "- no PyTorch that sees a GPU: $(tail -n 1 "${out}/torch.log" | cut -c -200)"
  fi
  peer=""
}

run_shared_gpu() {
  step 40 shared_gpu "${ours[@]}" "${here}/shared_gpu" "${work}/run_gpu" 25 && show "${out}/shared_gpu.log"
  if [[ ! -e "${here}/cases.tar.gz" ]]; then
    say "- suite: not run, this bundle has no cases (bundle --cases)"
    return
  fi
  seconds=$(($(left) - 8))
  step 400 suite "${ours[@]}" "${here}/shared_gpu" --suite "${work}/gpu_tests" "${here}/cases.tar.gz" \
    "$((seconds > 0 ? seconds : 0))" && show "${out}/suite.log"
}

part tests "Tests" && run_tests
part measure "Calibration" && run_measure
part train "Training, predicted and measured" && run_train
part torch "The same in PyTorch" && run_torch
part shared_gpu "Several ranks on one GPU" && run_shared_gpu

say ""
say "$((SECONDS - began)) s in all; $( (( failed )) && echo 'something failed' || echo 'nothing failed')"
echo "the report is ${report}, the logs beside it"
exit "${failed}"
