#include "tools/validate/table_columns.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace meshwright {
namespace {
// --- tables of training runs -----------------------------------------------------------------------------------------

constexpr ColumnRule kTrainings[] = {
    {"mfu_pct", CellKind::kPercent, "mfu"},
    {"mfu_pct", CellKind::kPercent, "model flops|flop utilization|utilisation"},
    {"hfu_pct", CellKind::kPercent, "hfu"},
    {"tflops_per_gpu", CellKind::kRate, "tflops|tflop|teraflops|teraflop",
     "peak|total|theoretical|aggregate|node|host|machine|server"},
    {"tflops_per_gpu", CellKind::kRate, "tf gpu|device"},
    {"seq_len", CellKind::kCount, "tokens|token|toks per sample|sequence|seq|example",
     "/s|s|sec|second|throughput|batch|gpu|device"},
    {"tokens_per_s_per_gpu", CellKind::kRate, "tgs"},
    {"tokens_per_s_per_gpu", CellKind::kRate,
     "tokens|token|tok|toks|tps|wps gpu|gpus|device|devices|accelerator|chip|card",
     "batch|sequence|length|total|num|number|day|days|hour|hours|minute|minutes"},
    {"tokens_per_s_per_gpu", CellKind::kRate, "t s gpu"},
    {"batch_tokens", CellKind::kCount, "batch|globalbatchsize tokens|token|t"},
    {"tokens_per_s_total", CellKind::kRate, "tps|wps", "node|host|machine|server"},
    {"tokens_per_s_total", CellKind::kRate, "t s throughput", "node|host|machine|server"},
    {"tokens_per_s_total", CellKind::kRate, "tokens|token|tok|toks s|sec|second|seconds|throughput|speed",
     "batch|sequence|length|num|number|node|host|machine|server"},
    {"samples_per_s_per_gpu", CellKind::kRate,
     "samples|sample|samp|sequences|seqs|seq|sentences|examples /s|throughput gpu|device|accelerator|card",
     "batch|length|len"},
    {"samples_per_s_per_gpu", CellKind::kRate,
     "samples|sample|samp|sequences|seqs|sentences|examples s|sec|second|seconds|throughput "
     "gpu|device|accelerator|card",
     "batch"},
    {"samples_per_s", CellKind::kRate, "samples|sample|samp|sequences|seqs|seq|sentences|examples /s|throughput",
     "batch|length|len|node|host|machine|server"},
    {"samples_per_s", CellKind::kRate,
     "samples|sample|samp|sequences|seqs|sentences|examples s|sec|second|seconds|throughput",
     "batch|node|host|machine|server"},
    {"grad_accum", CellKind::kCount, "ga|gas|accumulation|accum|accu|gradaccum|microbatches"},
    {"grad_accum", CellKind::kCount, "grad|gradient acc"},
    {"grad_accum", CellKind::kCount, "num|number|n|count microbatch"},
    {"grad_accum", CellKind::kCount, "num|number|n|count micro batch|batches", "size"},
    {"steps_per_s", CellKind::kRate, "it/s"},
    {"step_time_s", CellKind::kSeconds, "s/it"},
    {"step_time_s", CellKind::kSeconds,
     "step|iteration|iter|it time|timing|duration|latency|elapsed|dt|ms|seconds|sec|s",
     "tokens|samples|total|num|number|size|optimizer|optim"},
    {"step_time_s", CellKind::kSeconds, "seconds|elapsed", "total|training"},
    {"step_time_s", CellKind::kSeconds, "throughput|speed|performance s|sec|secs|second|seconds|ms|min",
     "/s|tokens|token|tok|toks|samples|sample|samp|sequences|seqs|examples|up|ratio|total|training"},
    {"gpu_mem_gb", CellKind::kGigabytes, "gpu|device|card mem|memory|vram|hbm capacity|size|total",
     "peak|max|used|usage"},
    {"peak_mem_pct", CellKind::kPercent, "mem|memory|vram utilization|utilisation|util|percent|pct|percentage",
     "cpu|host|system|bandwidth|avg|average|mean|min|free"},
    {"peak_mem_gb", CellKind::kGigabytes, "mem|memory|vram",
     "cpu|host|system|bandwidth|capacity|size|activation|activations|optimizer|free|utilization|utilisation|util|"
     "percent|pct|percentage"},
    {"replica_batch_seqs", CellKind::kCount, "batch|bs|bsz dp|replica"},
    {"micro_batch_seqs", CellKind::kCount, "mbs|mb|mbz|microbatch|microbatchsize|micro|lbs"},
    {"local_batch_seqs", CellKind::kCount, "local batch|bs|bsz"},
    {"micro_batch_seqs", CellKind::kCount, "batch|bs|bsz per|device|gpu|rank|card|mic"},
    {"global_batch_seqs", CellKind::kCount, "gbs|gbz|globalbatchsize|globalbatch",
     "mem|memory|hbm|bandwidth|bw|nvlink|network|nic|infiniband"},
    {"global_batch_seqs", CellKind::kCount, "=gb"},
    {"global_batch_seqs", CellKind::kCount, "global|glob|total|effective batch|bs|bsz"},
    {"?batch", CellKind::kCount, "batch|bs|bsz|batchsize"},
    {"layer_pattern", CellKind::kText, "hybrid|layer|override pattern"},
    {"ssm_state", CellKind::kCount, "mamba|ssm state"},
    {"ssm_groups", CellKind::kCount, "mamba|ssm groups|ngroups"},
    {"ssm_head_dim", CellKind::kCount, "mamba|ssm head dim|size"},
    {"ssm_heads", CellKind::kCount, "mamba|ssm heads|nheads"},
    {"kv_heads", CellKind::kCount, "kv heads|head"},
    {"kv_heads", CellKind::kCount, "key value heads|head"},
    {"kv_heads", CellKind::kCount, "query groups|group"},
    {"head_dim", CellKind::kCount, "head dim|size|width"},
    {"heads", CellKind::kCount, "heads|head|nah|nheads|nhead|numheads"},
    {"dense_layers", CellKind::kCount, "first dense"},
    {"dense_layers", CellKind::kCount, "dense layers|layer"},
    {"expert_every", CellKind::kText, "moe freq|frequency|step|interval|every"},
    {"expert_every", CellKind::kText, "expert|experts|sparse every|interval|step", "time|ms|s"},
    {"dense_ffn", CellKind::kCount, "dense ffn|intermediate"},
    {"shared_expert_ffn", CellKind::kCount, "shared ffn|intermediate"},
    {"shared_experts", CellKind::kCount, "shared expert|experts"},
    {"expert_ffn", CellKind::kCount, "expert|moe ffn|intermediate"},
    {"experts_per_token", CellKind::kCount, "topk"},
    {"experts_per_token", CellKind::kCount, "top k"},
    {"experts_per_token", CellKind::kCount, "experts|expert per token|tok"},
    {"ffn", CellKind::kCount, "ffn|dff|intermediate"},
    {"ffn", CellKind::kCount, "d ff"},
    {"vocab", CellKind::kVocabulary, "vocab|vocabulary"},
    {"etp", CellKind::kCount, "etp"},
    {"etp", CellKind::kCount, "expert tensor"},
    {"ep", CellKind::kCount, "ep"},
    {"ep", CellKind::kCount, "expert|experts parallel|parallelism"},
    {"experts", CellKind::kCount, "experts"},
    {"layers_per_chunk", CellKind::kCount, "layers|layer per virtual|chunk"},
    {"vpp", CellKind::kCount, "vpp|vp|virtual|interleaved|interleaving|interleave|chunks"},
    {"pp", CellKind::kCount, "pp|pipeline|stages", "schedule|style"},
    {"cp", CellKind::kCount, "cp"},
    {"cp", CellKind::kCount, "context parallel|parallelism"},
    {"tp", CellKind::kCount, "tp|tensor|mp", "mode"},
    {"tp", CellKind::kCount, "model parallel|parallelism"},
    {"dp", CellKind::kCount, "dp", "replicate|replicas|shard"},
    {"dp", CellKind::kCount, "data parallel|parallelism", "replicate|shard"},
    {"seq_parallel", CellKind::kText, "sp"},
    {"seq_parallel", CellKind::kText, "sequence|seq parallel|parallelism"},
    {"zero_fsdp", CellKind::kText, "zero|fsdp|sharding|shard"},
    {"zero_fsdp", CellKind::kText, "distributed|dist optimizer|opt"},
    {"zero_fsdp", CellKind::kText, "=z"},
    {"gpus_per_node", CellKind::kCount, "gpu|gpus|device|devices|accelerators per node|host|machine"},
    {"nodes", CellKind::kCount, "nodes|node|hosts", "per|nics|tokens|samples|tflops|throughput|/s"},
    {"gpus", CellKind::kCount, "gpus|ngpu|ngpus|accelerators|devices|cards|world", "type|name|memory|per"},
    {"gpus", CellKind::kCount, "gpu|device|accelerator|card num|number|count|n", "type|name|per"},
    {"gpu_type", CellKind::kText, "gpu|device|accelerator|hardware|machine|system|card|chip|instance",
     "hour|hours|days|utilization|util|usage|load|clock|clocks|mhz|ghz|temp|temperature|price|cost|power|watt|watts"},
    {"seq_len", CellKind::kCount, "seqlen|seq|sequence|context|ctx|length|len", "parallel|parallelism"},
    {"seq_len", CellKind::kCount, "block size"},
    {"ffn", CellKind::kCount, "mlp|feedforward|ff hidden|size|dim|width"},
    {"hidden", CellKind::kCount, "hidden|dmodel|hs|embd|hiddensize", "layers|layer|dropout|act|activation"},
    {"hidden", CellKind::kCount, "d model"},
    {"recompute", CellKind::kText, "ckpt|checkpoint|checkpointed|recomputed|recompute layers"},
    {"layers", CellKind::kCount, "layers|layer|nl|depth|nlayers|numlayers", "per"},
    {"params_b", CellKind::kBillions, "params|parameters|nparams|numparams", "trainable|active"},
    {"?model_size", CellKind::kBillions, "model size|scale"},
    {"?model_size", CellKind::kBillions, "=size"},
    {"model", CellKind::kText, "model|architecture|arch"},
    {"dtype", CellKind::kText, "dtype|precision|datatype", "speedup"},
    {"dtype", CellKind::kText, "data|compute type"},
    {"recompute", CellKind::kText, "recompute|recomputation|remat|checkpointing|ac"},
    {"recompute", CellKind::kText, "activation|activations|gradient|grad checkpoint|checkpoints|ckpt"},
    {"recompute", CellKind::kText, "act|activation ckpt"},
    {"recompute", CellKind::kText, "=ckpt|actckpt|rematerialization|rematerialisation"},
    {"attention", CellKind::kText, "attention|attn"},
    {"attention", CellKind::kText, "=kernel|flash"},
    {"compile", CellKind::kText, "compile|compiled"},
    {"interconnect", CellKind::kText, "interconnect|network|fabric|nic|infiniband"},
    {"status", CellKind::kText, "status|outcome"},
    {"source_ref", CellKind::kText, "=source"},
    {"other_opts", CellKind::kText,
     "framework|software|library|container|release|version|experiment|method|setup|strategy|parallelism|schedule|"
     "options|kernel|"
     "kernels|finetuning|task|lora|adapter|trainer|offload|variant|dispatcher|technique|techniques|optimization|"
     "optimizations|features|settings|recipe|flags|config|configuration|quantization"},
    {"?rate", CellKind::kRate, "throughput|speed|performance"},
};
// What readers ask for, and what tables have besides and nobody reads.
constexpr absl::string_view kAlsoOfTrainings =
    "source_ref|step_time_derived_s|mem_def|flops_def|notes|expert_imbalance|example_tokens";

// --- tables of kernels and of collectives ----------------------------------------------------------------------------

// Times and rates that are not of the run as a whole: spreads, other work, other devices.
#define MESHWRIGHT_NOT_MEANS                                                                                         \
  "min|max|tmin|tmax|p10|p20|p25|p75|p80|p90|p95|p99|std|stdev|stddev|noise|best|worst|cpu|host|compile|warmup|ref|" \
  "reference|"                                                                                                       \
  "speedup|ratio|overhead|peak|theoretical|roofline|timestamp|relative|difference|improvement|efficiency|ideal"

constexpr ColumnRule kKernels[] = {
    {"tflops", CellKind::kTeraflops, "tflops|gflops|pflops|mflops|teraflops|tf", MESHWRIGHT_NOT_MEANS "|s/it"},
    {"tflops", CellKind::kTeraflops, "tflop|gflop|pflop|mflop|teraflop s|sec|second|per", MESHWRIGHT_NOT_MEANS},
    {"time_ms", CellKind::kMillis,
     "time|times|latency|lat|runtime|duration|elapsed|ms|us|usec|msec|ns|microseconds|milliseconds|tavg|s/it",
     MESHWRIGHT_NOT_MEANS "|gb|gib|mb|tb|bandwidth|tokens|samples"},
    {"?rate", CellKind::kTeraflops, "throughput|speed|performance|perf|computation|compute|rate",
     MESHWRIGHT_NOT_MEANS "|dtype|type|gb|gib|mb|tb|bw|bandwidth|capability"},
    {"?shape", CellKind::kText, "shape|problem", "m|n|k|type|id|kind|name"},
    {"?shape", CellKind::kText, "matrix|gemm|matmul size|dim|shape|n", "m|k"},
    {"?shape", CellKind::kText, "m n k"},
    {"?shape", CellKind::kText, "mnk|mkn|nmk|mxnxk|mxkxn|nxmxk"},
    {"m", CellKind::kCount, "m", "cta|tile|warp|warps|inst|block|cluster|per|split"},
    {"n", CellKind::kCount, "n", "cta|tile|warp|warps|inst|block|cluster|per|split|ctx|heads|head|kv|seqs|iter|iters"},
    {"k", CellKind::kCount, "k",
     "cta|tile|warp|warps|inst|block|cluster|per|split|slices|top|heads|head|len|seqlen|pack"},
    {"kv_heads", CellKind::kCount, "kv|k heads|head|nheads|numheads", "dim|size"},
    {"kv_heads", CellKind::kCount, "=hkv|hk|nkv"},
    {"head_dim_v", CellKind::kCount, "head dim|size|width v|vo"},
    {"head_dim", CellKind::kCount, "head dim|size|width", "v|vo"},
    {"head_dim", CellKind::kCount, "headdim|hdim|dhead|headsize"},
    {"head_dim", CellKind::kCount, "d head"},
    {"head_dim", CellKind::kCount, "=d|dim"},
    {"kv_len", CellKind::kCount, "kv|k seqlen|seq|len|length|sequence"},
    {"kv_len", CellKind::kCount, "=skv|sk|lkv"},
    {"seq_len", CellKind::kCount, "seqlen|seq|sequence|ctx|nctx|context", "num|seqs|block"},
    {"seq_len", CellKind::kCount, "q len|length"},
    {"seq_len", CellKind::kCount, "=s|sq|lq"},
    {"heads", CellKind::kCount, "heads|head|nheads|nhead|numheads|qheads", "kv|k|v"},
    {"heads", CellKind::kCount, "=h|hq"},
    {"batch_or_groups", CellKind::kCount, "groups|batch group|groups|or|count", "per"},
    {"batch", CellKind::kCount, "batch|bsz|bs|batchsize|batches", "per|total"},
    {"batch", CellKind::kCount, "=b|bz"},
    {"batch", CellKind::kCount, "num|n seqs|sequences"},
    {"deterministic", CellKind::kText, "deterministic"},
    {"window", CellKind::kText, "window|swa|sliding"},
    {"causal", CellKind::kText, "causal|mask|masked|causality", "non|no|block"},
    {"pass", CellKind::kText, "pass|direction|phase|mode", "warmup"},
    {"dtype", CellKind::kText, "dtype|precision|prec|datatype|dtypes"},
    {"dtype", CellKind::kText, "data|input type"},
    {"?type", CellKind::kText, "=type|a|q"},
    {"impl", CellKind::kText, "implementation|backend|provider|impl|method"},
    {"gpu_type", CellKind::kText, "gpu|device|accelerator|hardware|card|chip",
     "num|number|count|id|mem|memory|util|utilization|power|clock|samples|cc|price"},
    {"status", CellKind::kText, "status|outcome"},
};
// What tables of products, attention and layers have besides, and what nobody reads.
constexpr absl::string_view kAlsoOfKernels =
    "op|library|fwd_ms|bwd_ms|combined_ms|model|layers|hidden|ffn|vocab|gpus|gpu_mem_gb|interconnect|"
    "global_batch_seqs|micro_batch_seqs|grad_accum|tp|pp|vpp|dp|cp|ep|etp|zero_fsdp|seq_parallel|recompute|"
    "attention|compile|other_opts|source_ref|source|notes";

constexpr ColumnRule kCollectives[] = {
    {"busbw_gbps", CellKind::kGigabytesPerSecond, "busbw|busbandwidth", MESHWRIGHT_NOT_MEANS},
    {"busbw_gbps", CellKind::kGigabytesPerSecond, "bus bw|bandwidth", MESHWRIGHT_NOT_MEANS},
    {"algbw_gbps", CellKind::kGigabytesPerSecond, "algbw|algobw|algbandwidth", MESHWRIGHT_NOT_MEANS},
    {"algbw_gbps", CellKind::kGigabytesPerSecond, "alg|algo|algorithm bw|bandwidth", MESHWRIGHT_NOT_MEANS},
    {"count", CellKind::kCount, "count|elements|numel|nelem|nelems|elems",
     "rank|peer|gpu|gpus|tile|wrong|error|byte|bytes"},
    {"size_bytes", CellKind::kBytes, "size|message|msg|payload|bytes|nbytes|buffer",
     "rank|peer|per|world|local|wire|moved|output|batch|step|type|rate|elements|wrong|error|gpu|model"},
    {"time_us", CellKind::kMicros,
     "time|times|latency|lat|duration|elapsed|us|usec|ms|msec|ns|microseconds|milliseconds|tavg|s/it",
     MESHWRIGHT_NOT_MEANS "|gb|gib|bw|bandwidth|busy"},
    {"nccl_version", CellKind::kText, "nccl version"},
    {"nccl_version", CellKind::kText, "=nccl"},
    {"algo", CellKind::kText, "algo|algorithm"},
    {"proto", CellKind::kText, "proto|protocol"},
    {"collective", CellKind::kText, "collective|coll|primitive|op|operation|program|test|kind",
     "num|id|redop|count|reduction"},
    {"gpus_per_node", CellKind::kCount, "gpus|gpu|ranks|devices|procs|processes|nproc node|host|machine", "count"},
    {"gpus_per_node", CellKind::kCount, "ppn"},
    {"gpus_per_node", CellKind::kCount, "local size"},
    {"nodes", CellKind::kCount, "nodes|node|hosts|servers|nnodes", "name|list|time"},
    {"ranks", CellKind::kCount, "ranks|nranks|ngpus|gpus|np|devices|procs|nprocs|processes|world", "id|name|list"},
    {"ranks", CellKind::kCount, "gpu|device|rank num|number|count|n"},
    {"gpu_type", CellKind::kText, "gpu|device|accelerator|hardware|machine|instance|system|vm", "mem|memory|time|id"},
    {"interconnect", CellKind::kText, "interconnect|network|fabric|links|link|topology|transport|nic"},
    {"dtype", CellKind::kText, "dtype|precision|datatype"},
    {"dtype", CellKind::kText, "data type"},
    {"dtype", CellKind::kText, "=type"},
    {"status", CellKind::kText, "status|outcome"},
    {"placement", CellKind::kText, "placement"},
};
constexpr absl::string_view kAlsoOfCollectives = "source_ref|source|gpu_mem_gb|notes|gpus_per_thread";
#undef MESHWRIGHT_NOT_MEANS

// --- what columns of training runs tell ------------------------------------------------------------------------------

// Of what a row runs, and how the model is split: the latter in ways that another row of the same run may lend, or not.
constexpr absl::string_view kRunColumns =
    "model|layers|hidden|ffn|heads|kv_heads|vocab|seq_len|global_batch_seqs|dtype|gpu_type|gpu_mem_gb|gpus|"
    "interconnect|recompute|attention|compile|other_opts";
constexpr absl::string_view kLentColumns = "tp|pp|vpp|layers_per_chunk|dp|cp|micro_batch_seqs";
constexpr absl::string_view kOwnColumns = "ep|etp|zero_fsdp|seq_parallel|grad_accum";

// The cells of `columns`.
std::string KeyOf(const CsvCells& cells, absl::string_view columns) {
  std::string key;
  for (const absl::string_view column : absl::StrSplit(columns, '|')) {
    absl::StrAppend(&key, cells.Text(column), "\x1f");
  }
  return key;
}

}  // namespace

ColumnRules RulesOfTrainings() { return {kTrainings, kAlsoOfTrainings}; }
ColumnRules RulesOfKernels() { return {kKernels, kAlsoOfKernels}; }
ColumnRules RulesOfCollectives() { return {kCollectives, kAlsoOfCollectives}; }

std::string RunKey(const CsvCells& cells) { return KeyOf(cells, kRunColumns); }
std::string LayoutKey(const CsvCells& cells) {
  return absl::StrCat(KeyOf(cells, kLentColumns), KeyOf(cells, kOwnColumns));
}

bool IsLentColumn(absl::string_view column) { return IsOneOf(column, kLentColumns); }

bool LentColumnsAreEmpty(const CsvCells& cells) {
  return KeyOf(cells, kLentColumns).find_first_not_of('\x1f') == std::string::npos;
}

}  // namespace meshwright
