#!/usr/bin/env bash
#
# Makes a folder that runs on a machine with an NVIDIA GPU and without Bazel:
#
#   tools/bazel run //tools:bundle -- --out=DIR [--cases=FILE]
#   DIR/gpu_check                    # there: tests, calibration, comparisons, a benchmark; one report
#
# FILE has the programs of the semantics suite, which several ranks on one GPU play. It takes as long to make as all else:
#   tools/bazel build //tests/semantics:suite_cases    # bazel-bin/tests/semantics/suite_cases.tar.gz
#
# The folder has to stay below 48 MiB; `gunzip DIR/bin/*.gz` for what is to be used by hand. CUDA's runtime and
# everything else are linked in; cuBLASLt and NCCL are looked for on the other machine (gpu_check says where).
set -euo pipefail

most_bytes=$((48 << 20))
out="" cases=""
for argument in "$@"; do
  case "${argument}" in
    --out=*) out="${argument#--out=}" ;;
    --cases=*) cases="${argument#--cases=}" ;;
    --help | -h) sed -n '3,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "bundle: found \"${argument}\", wanted --out=DIR or --cases=FILE" >&2; exit 2 ;;
  esac
done
if [[ -z "${out}" ]]; then
  echo "bundle: found nothing, wanted --out=DIR, a folder to make" >&2
  exit 2
fi
[[ "${out}" == /* ]] || out="${BUILD_WORKING_DIRECTORY:-${PWD}}/${out}"
[[ -z "${cases}" || "${cases}" == /* ]] || cases="${BUILD_WORKING_DIRECTORY:-${PWD}}/${cases}"
if [[ -n "${cases}" && ! -r "${cases}" ]]; then
  echo "bundle: ${cases} cannot be read, wanted what \`tools/bazel build //tests/semantics:suite_cases\` makes" >&2
  exit 2
fi

# The sources' own folder, with what was built: where Bazel runs this, or beside this script's runfiles.
if [[ ! -e tools/run_gpu ]]; then
  cd "${BASH_SOURCE[0]}.runfiles/meshwright"
fi

rm -rf "${out}/bin" "${out}/models" "${out}/cases.tar.gz"
mkdir -p "${out}/bin" "${out}/models"
# The last three hold the host's kernels and their BLAS, for operators on the host and to compare with: large.
for program in tools/plan tools/simulate tools/compare tools/run_gpu tools/measure/measure_gpu tests/gpu/gpu_tests; do
  strip -s -o "${out}/bin/${program##*/}" "${program}"
  gzip -9 -f "${out}/bin/${program##*/}"
done
cp -f models/configs/gpt2_*.yaml "${out}/models/"
cp -f tools/bundle/gpt2_torch.py "${out}/"
cp -f tools/bundle/gpu_check.sh "${out}/gpu_check"
cp -f tools/bundle/shared_gpu.sh "${out}/shared_gpu"
[[ -z "${cases}" ]] || cp -f "${cases}" "${out}/cases.tar.gz"
# Which sources these are, where they are those of a repository.
{
  git -C "${BUILD_WORKSPACE_DIRECTORY:-/nonexistent}" log -1 --format='%h of %cs' 2>/dev/null || echo "unknown"
} >"${out}/VERSION"
chmod -R u+w "${out}"
chmod +x "${out}/gpu_check" "${out}/shared_gpu"

bytes="$(du -sb "${out}" | cut -f 1)"
if (( bytes > most_bytes )); then
  echo "bundle: ${out} has ${bytes} bytes, wanted at most ${most_bytes}" >&2
  exit 4
fi
echo "${out}: ${bytes} bytes"
