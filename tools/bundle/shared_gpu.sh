#!/usr/bin/env bash
#
# Several ranks on one GPU, a process each. For correctness only: the processes take turns on the device, so no time
# means anything.
#
#   shared_gpu RUN [SECONDS]    # the losses of one rank under every way to split the network of oracle B, by the command
#                               # that trains a model file (bin/run_gpu; on the host, run)
#   shared_gpu --suite PLAYER CASES.tar.gz [SECONDS]
#                               # the programs of the semantics suite: the losses that the host found for them. PLAYER:
#                               # gpu_tests, or a script that adds --host to it
#   shared_gpu --list           # RANKS:WAY of what the first would run
#
# After so many seconds nothing more is begun, and what is left out is said.
#
# NCCL takes two ranks on one GPU for a mistake, unless their hosts differ: so each process says that it is a host of its
# own (NCCL_HOSTID), and they talk over sockets.
#
# Exit codes: 0 all losses are those of one rank; 1 some are not, or a run failed; 2 usage.
set -uo pipefail

runs=(2:data 4:mixed 2:pipeline 8:optimizer 2:columns 2:contraction 2:optimizer 4:pipeline 8:mixed)
seconds=40 # for one of them

wanted_arguments=1
[[ "${1:-}" == --suite ]] && wanted_arguments=3
if (( $# < wanted_arguments || $# > wanted_arguments + 1 )); then
  echo "shared_gpu: found $# arguments, wanted the command that trains a model file, or --suite PLAYER CASES.tar.gz, and" \
    "perhaps seconds; or --list" >&2
  exit 2
fi
if [[ "$1" == --list ]]; then
  printf '%s\n' "${runs[@]}"
  exit 0
fi
export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}" # of several, the first
work="$(mktemp -d)"
trap 'rm -rf "${work}"' EXIT

# job RANKS FOLDER SECONDS COMMAND...: as many processes, in this one's group so that who stops it stops them, RANK.out
# and RANK.err of each in the folder; the last words of those that fail. Where the port that was picked is taken, so that
# rank 0 cannot listen for the others, another is.
job() {
  local ranks="$1" folder="$2" limit="$3" port rank failed=0 tries="${tries:-5}"
  shift 3
  mkdir -p "${folder}"
  port=$((20000 + RANDOM % 10000)) # those above are the system's to give away
  local pids=()
  for (( rank = 0; rank < ranks; ++rank )); do
    env RANK="${rank}" WORLD_SIZE="${ranks}" LOCAL_RANK="${rank}" MASTER_ADDR=127.0.0.1 MASTER_PORT="${port}" \
      MS_TOPO_TIMEOUT=60 CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES%%,*}" NCCL_HOSTID="rank${rank}" NCCL_SOCKET_IFNAME=lo NCCL_NET=Socket \
      NCCL_IB_DISABLE=1 NCCL_MAX_CTAS=2 NCCL_BUFFSIZE=1048576 NCCL_NVLS_ENABLE=0 NCCL_MNNVL_ENABLE=0 NCCL_RAS_ENABLE=0 \
      NCCL_NET_GDR_LEVEL=LOC NCCL_DEBUG="${NCCL_DEBUG:-WARN}" NCCL_DEBUG_FILE="${folder}/${rank}.nccl" timeout --foreground -k 5 "${limit}" "$@" >"${folder}/${rank}.out" 2>"${folder}/${rank}.err" &
    pids+=($!)
  done
  for rank in "${!pids[@]}"; do
    wait "${pids[rank]}" && continue
    if (( rank == 0 && tries > 1 )) && grep -q 'cannot listen at' "${folder}/0.err"; then
      kill "${pids[@]:1}"
      wait
      tries=$((tries - 1)) job "${ranks}" "${folder}" "${limit}" "$@"
      return
    fi
    failed=1
    tail -n 3 "${folder}/${rank}.err" | sed "s/^/  rank ${rank}: /" >&2
    [[ -f "${folder}/${rank}.nccl" ]] && grep WARN "${folder}/${rank}.nccl" | tail -n 3 | sed "s/^/  rank ${rank}: /" >&2
  done
  return "${failed}"
}

# As many seconds for each number of ranks as it has programs, of all that up to 8 ranks have.
if [[ "$1" == --suite ]]; then
  player="$2" most="${4:-100000}" status=0
  mkdir "${work}/cases"
  tar -xzf "$3" -C "${work}/cases" || exit 1
  mapfile -t counts < <(ls "${work}/cases" | sed -n 's/^\([2-8]\)_ranks_.*/\1/p' | sort | uniq -c | sort -rn)
  total=0
  for count in "${counts[@]}"; do total=$((total + ${count% *})); done
  for count in "${counts[@]}"; do
    read -r programs ranks <<<"${count}"
    share=$(((most * programs + total - 1) / total)) start="${SECONDS}"
    while true; do
      rest=$((share - (SECONDS - start)))
      job "${ranks}" "${work}/${ranks}" "$((rest + 60))" "${player}" --cases="${work}/cases" --seconds="$((rest > 0 ? rest : 0))"
      played=$?
      cat "${work}/${ranks}/0.out"
      (( played == 0 )) && break
      status=1
      # One that cannot be played ends its job: those behind it are another's.
      ended="$(cat "${work}/${ranks}"/*.err | grep -o "/${ranks}_ranks_[^:/ ]*" | sort | head -n 1)"
      (( rest > 0 )) && [[ -n "${ended}" ]] || break
      echo "${ended#/}: FAILED: ended its job"
      for file in "${work}/cases/${ranks}_ranks_"*; do
        [[ "${file##*/}" > "${ended#/}" ]] || rm -f "${file}"
      done
      compgen -G "${work}/cases/${ranks}_ranks_*" >/dev/null || break
    done
  done
  exit "${status}"
fi
run="$1" most="${2:-100000}"

# model RANKS WAY: the model file.
model() {
  local ranks="$1" way="$2" first="" stage0="" stage1="" more=""
  case "${way}" in
    one) ;;
    data) ;;
    columns) first=", shard: [[1, 1], [1, ${ranks}]]" ;;
    contraction) first=", shard: [[1, ${ranks}], [${ranks}, 1]]" ;;
    mixed) first=", shard: [[2, $((ranks / 2))], [$((ranks / 2)), 1]]" ;;
    optimizer) more=", enable_parallel_optimizer: true, parallel_optimizer_config: {parallel_optimizer_threshold: 0}" ;;
    pipeline)
      stage0=", pipeline_stage: 0" stage1=", pipeline_stage: 1"
      more=", pipeline_stages: 2, micro_batches: 2, pipeline_loss: mean"
      ;;
  esac
  cat <<YAML
name: oracle_b
inputs:
  x: {shape: [16, 32], init: {formula: {a: 7, b: 3, mod: 11, sub: 0, div: 11}}}
  label: {shape: [16, 16], init: {formula: {a: 5, b: 2, mod: 13, sub: 0, div: 13}}}
parameters:
  w: {shape: [32, 16], init: {formula: {a: 3, b: 5, mod: 7, sub: 3, div: 20}}}
  w2: {shape: [16, 16], init: {formula: {a: 2, b: 3, mod: 5, sub: 2, div: 20}}}
operators:
  - {name: matmul,  op: MatMul,  inputs: [x, w]${first}${stage0}}
  - {name: relu,    op: ReLU,    inputs: [matmul]${stage0}}
  - {name: matmul2, op: MatMul,  inputs: [relu, w2]${stage1}}
  - {name: loss,    op: MSELoss, inputs: [matmul2, label]${stage1}}
training: {dtype: float64, optimizer: {momentum: {learning_rate: 0.4, momentum: 0.1}}, steps: 6}
parallel: {parallel_mode: $([[ "${way}" == one ]] && echo stand_alone || echo semi_auto_parallel)${more}}
YAML
}

# train RANKS WAY: prints the six losses, in one line.
train() {
  local ranks="$1" way="$2" folder="${work}/$1.$2"
  mkdir -p "${folder}"
  model "${ranks}" "${way}" >"${folder}/model.yaml"
  job "${ranks}" "${folder}" "${seconds}" "${run}" "${folder}/model.yaml" --format=json || return 1
  cat "${folder}"/*.out | tr -d ' \n' | sed -n 's/.*"losses":\[\([^]]*\)\].*/\1/p' | tr ',' ' '
}

wanted="$(train 1 one)"
if (( $(wc -w <<<"${wanted}") != 6 )); then
  echo "shared_gpu: one rank: found the losses \"${wanted}\", wanted six" >&2
  exit 1
fi
status=0
for entry in "${runs[@]}"; do
  ranks="${entry%%:*}" way="${entry##*:}" start="${SECONDS}"
  if (( SECONDS >= most )); then
    echo "${ranks} ranks, ${way}: not run, the time is up"
    continue
  fi
  found="$(train "${ranks}" "${way}")"
  # Sums of float64 in another order: 1e-9 of the loss.
  if awk -v a="${wanted}" -v b="${found}" 'BEGIN {
        n = split(a, x, " "); if (split(b, y, " ") != n) exit 1
        for (i = 1; i <= n; ++i) { d = x[i] - y[i]; if (d < 0) d = -d; if (!(d <= 1e-9 * x[i])) exit 1 }
      }'; then
    echo "${ranks} ranks, ${way}: the losses of one rank ($((SECONDS - start)) s)"
  else
    echo "${ranks} ranks, ${way}: FAILED: found ${found:-nothing}, wanted ${wanted}"
    status=1
  fi
done
exit "${status}"
