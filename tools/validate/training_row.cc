#include "tools/validate/training_row.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "costmodel/library.h"
#include "ir/status.h"
#include "ir/text.h"

namespace meshwright {
namespace {

absl::Status CannotExpress(absl::string_view reason, absl::string_view detail) {
  return absl::UnimplementedError(absl::StrCat(reason, ": ", detail));
}

bool HasAny(absl::string_view text, absl::Span<const absl::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](absl::string_view word) { return absl::StrContains(text, word); });
}

// --- the defaults of empty cells -----------------------------------------------------------------------------------

// Transformer Engine quantises the inputs and the gradients of a linear layer once, with their transposes: it reads 2
// bytes and writes 2 of 1 for each element, for the left operands of two of its three products.
constexpr Bytes kTransformerEngineBytes = Bytes(3);
constexpr Bytes kEverything = GiB(1 << 20);
constexpr int64_t kDefaultVocab = 51200;  // GPT-2's, padded as Megatron does
constexpr int64_t kDefaultHeadDim = 128;  // where no number of heads is given
constexpr int64_t kDefaultExpertsPerToken = 2;
constexpr int64_t kDefaultDevicesPerNode = 8;

// Model families by a word of the name; the first that matches. Others: by their number of parameters, if given.
struct Family {
  absl::string_view word;
  Activation activation;
  Norm norm;
  Positions positions;
  bool tied, bias;
};
constexpr Family kFamilies[] = {
    {"mpt", Activation::kGelu, Norm::kLayerNorm, Positions::kNone, true, false},
    {"bloom", Activation::kGelu, Norm::kLayerNorm, Positions::kNone, true, true},
    {"opt", Activation::kRelu, Norm::kLayerNorm, Positions::kLearned, true, true},
    {"nemotron", Activation::kRelu, Norm::kLayerNorm, Positions::kRotary, false, false},
    {"falcon", Activation::kGelu, Norm::kLayerNorm, Positions::kRotary, true, false},
    {"gpt-neox", Activation::kGelu, Norm::kLayerNorm, Positions::kRotary, false, true},
    {"gpt", Activation::kGelu, Norm::kLayerNorm, Positions::kLearned, true, true},
    {"bert", Activation::kGelu, Norm::kLayerNorm, Positions::kLearned, true, true},
};
constexpr Family kClassic = {"", Activation::kGelu, Norm::kLayerNorm, Positions::kLearned, true, true};
constexpr Family kModern = {"", Activation::kSwiglu, Norm::kRmsNorm, Positions::kRotary, false, false};
constexpr absl::string_view kModernWords[] = {"llama", "mistral", "mixtral", "qwen",  "internlm",
                                              "yi-",   "grok",    "glm",     "gemma", "deepseek"};

// Parameters in units of hidden^2 and the like; the tables round them, so a few per cent do not matter.
double NumParameters(const DecoderConfig& c, bool gated) {
  const double h = static_cast<double>(c.hidden), d = static_cast<double>(c.head_dim);
  const double attention = h * d * static_cast<double>(2 * c.heads + 2 * c.kv_heads);
  const double mlp = (gated ? 3 : 2) * h * static_cast<double>(c.ffn);
  return static_cast<double>(c.layers) * (attention + mlp) + h * static_cast<double>(c.vocab);
}

class RunReader {
 public:
  RunReader(const CsvCells& cells, const RowOverrides& overrides) : cells_(cells), overrides_(overrides) {}

  absl::StatusOr<TrainingRun> Read() {
    const std::string options = Lower("other_opts");
    if (HasAny(options, {"lora", "peft"})) return CannotExpress("frozen weights", cells_.Text("other_opts"));
    MESHWRIGHT_RETURN_IF_ERROR(ReadDegrees());
    MESHWRIGHT_RETURN_IF_ERROR(ReadCluster());
    MESHWRIGHT_RETURN_IF_ERROR(ReadBatch());
    MESHWRIGHT_RETURN_IF_ERROR(ReadPrecision());
    const std::string compile = Lower("compile");
    const bool eager = compile.empty() || HasAny(compile, {"no", "eager"});
    // llm.c is a C program: nothing stands between it and the launches.
    const bool bare = HasAny(options, {"cuda graph", "cudagraph", "llm.c"}) ||
                      HasAny(absl::StrCat(Lower("attention"), Lower("recompute")), {"llm.c"});
    if (eager && !bare) run_.host = overrides_.eager;
    ReadAttention();
    MESHWRIGHT_RETURN_IF_ERROR(ReadModel());
    MESHWRIGHT_RETURN_IF_ERROR(ReadRecompute());
    ReadSharding();
    for (const auto& [key, value] : overrides_.cluster_keys) {
      MESHWRIGHT_RETURN_IF_ERROR(SetClusterKey(key, value, &run_.cluster));
    }
    if (const absl::Status fits = CheckDecoder(run_.model, run_.training); !fits.ok()) {
      return CannotExpress("sizes do not fit together", fits.message());
    }
    return std::move(run_);
  }

 private:
  std::string Lower(absl::string_view column) const { return absl::AsciiStrToLower(cells_.Text(column)); }

  // An integer from 1, or what to take for an empty cell.
  absl::StatusOr<int64_t> Size(absl::string_view column, int64_t fallback, bool say = true) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> value, cells_.Int(column, 1));
    if (value.has_value()) return *value;
    if (say) run_.defaults.push_back(absl::StrCat(column, " ", fallback));
    return fallback;
  }
  absl::StatusOr<int64_t> Needed(absl::string_view column) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> value, cells_.Int(column, 1));
    if (!value.has_value()) return CannotExpress("not given", column);
    return *value;
  }

  absl::Status ReadDegrees() {
    for (absl::string_view column : {"tp", "pp"}) {
      if (cells_.Text(column).empty()) return CannotExpress("layout not given", column);
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(run_.degrees.tensor, Needed("tp"));
    MESHWRIGHT_ASSIGN_OR_RETURN(run_.degrees.pipeline, Needed("pp"));
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t context, Size("cp", 1, false));
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t interleaved, Size("vpp", 1, run_.degrees.pipeline > 1));
    MESHWRIGHT_ASSIGN_OR_RETURN(run_.degrees.expert, Size("ep", 1, false));
    if (context > 1) return CannotExpress("context parallelism", cells_.Text("cp"));
    const int64_t model = run_.degrees.tensor * run_.degrees.pipeline;
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> data, cells_.Int("dp", 1));
    MESHWRIGHT_ASSIGN_OR_RETURN(gpus_, data.has_value() ? Size("gpus", *data * model) : Needed("gpus"));
    run_.degrees.data = data.value_or(std::max<int64_t>(1, gpus_ / model));
    if (run_.degrees.data * model != gpus_) {
      return CannotExpress("dp x tp x pp is not gpus", absl::StrCat(run_.degrees.data * model, " and ", gpus_));
    }
    run_.chunks = interleaved;
    return absl::OkStatus();
  }

  absl::Status ReadCluster() {
    const std::string device = overrides_.device.empty() ? cells_.Text("gpu_type") : overrides_.device;
    if (device.empty()) return CannotExpress("not given", "gpu_type");
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> memory, MemoryOf());
    std::string name = device;
    if (memory.has_value() && overrides_.device.empty()) {
      const std::string exact = absl::StrCat(device, " ", *memory, "GB");
      if (FindDevice(exact).ok()) name = exact;
    }
    if (!FindDevice(name).ok()) return CannotExpress("unknown device", name);
    MESHWRIGHT_ASSIGN_OR_RETURN(int64_t per_node, Size("gpus_per_node", kDefaultDevicesPerNode, gpus_ > 1));
    per_node = std::min(per_node, gpus_);
    if (gpus_ % per_node != 0) return CannotExpress("nodes that are not full", absl::StrCat(gpus_, " devices"));
    MESHWRIGHT_ASSIGN_OR_RETURN(run_.cluster, MakeCluster(name, gpus_ / per_node, per_node));
    Bytes& capacity = run_.cluster.device.memory;
    if (memory.has_value() && std::abs(*memory * 0.99 * 1073741824 / static_cast<double>(capacity.raw()) - 1) > 0.1) {
      capacity = Bytes(static_cast<int64_t>(*memory * 0.99 * 1073741824));
    }
    if (run_.cluster.nodes == 1) return absl::OkStatus();
    const std::string links = overrides_.internode.empty() ? cells_.Text("interconnect") : overrides_.internode;
    if (!SetInternode(links, &run_.cluster)) {
      run_.defaults.push_back(absl::StrCat("interconnect of the usual ", run_.cluster.device.name, " machine"));
    }
    return absl::OkStatus();
  }

  // "80", "40 (comment)": a number in front of whatever else.
  absl::StatusOr<std::optional<double>> MemoryOf() const {
    const std::string text = cells_.Text("gpu_mem_gb");
    const std::string number = text.substr(0, text.find(' '));
    double value = 0;
    if (text.empty() || !absl::SimpleAtod(number, &value) || !(value > 0)) return std::optional<double>();
    return std::optional<double>(value);
  }

  absl::Status ReadBatch() {
    MESHWRIGHT_ASSIGN_OR_RETURN(run_.training.sequence, Needed("seq_len"));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> batch, cells_.Int("global_batch_seqs", 1));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> micro, cells_.Int("micro_batch_seqs", 1));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> passes, cells_.Int("grad_accum", 1));
    const int64_t data = run_.degrees.data;
    if (batch.has_value()) {
      run_.training.batch = *batch;
    } else if (micro.has_value()) {
      run_.training.batch = *micro * data * passes.value_or(1);
      run_.defaults.push_back(absl::StrCat("global_batch_seqs ", run_.training.batch));
    } else {
      return CannotExpress("not given", "global_batch_seqs");
    }
    if (micro.has_value()) {
      run_.degrees.microbatch = *micro;
    } else if (passes.has_value() && run_.training.batch % (data * *passes) == 0) {
      run_.degrees.microbatch = run_.training.batch / (data * *passes);
    } else {
      run_.microbatch_given = false;
    }
    if (run_.training.batch % (data * run_.degrees.microbatch) != 0) {
      return CannotExpress("the batch does not divide",
                           absl::StrCat(run_.training.batch, " over ", data, " x ", run_.degrees.microbatch));
    }
    return absl::OkStatus();
  }

  absl::Status ReadPrecision() {
    const std::string text = Lower("dtype");
    Device& device = run_.cluster.device;
    DType dtype = DType::kBFloat16;
    bool narrow = false;
    if (HasAny(text, {"fp8", "float8", "mxfp"})) {
      narrow = true;
    } else if (HasAny(text, {"bf16", "bfloat16"})) {
    } else if (HasAny(text, {"fp16", "float16", "half"})) {
      dtype = DType::kFloat16;
    } else if (HasAny(text, {"tf32"})) {
      dtype = DType::kTFloat32;
    } else if (HasAny(text, {"fp32", "float32"})) {
      dtype = DType::kFloat32;
    } else if (text.empty()) {
      run_.defaults.push_back("dtype bf16");
    } else {
      return CannotExpress("unknown dtype", text);
    }
    if (dtype == DType::kBFloat16 && device.Peak(dtype).raw() <= 0) dtype = DType::kFloat16;
    if (narrow) MESHWRIGHT_RETURN_IF_ERROR(UseFloat8Products(&device));
    run_.training.dtype = dtype;
    // Megatron and DeepSpeed reduce fp16 gradients as they are, FSDP's PURE too; bf16 is accumulated in float32.
    const bool own = dtype == DType::kFloat16 || absl::StrContains(Lower("other_opts"), "pure");
    run_.training.gradient_dtype = run_.gradient_dtype = own ? dtype : DType::kFloat32;
    return absl::OkStatus();
  }

  // Products run at the rate of float8, everything else stays what it is: attention's shares are of the peak.
  absl::Status UseFloat8Products(Device* device) {
    const FlopsPerSecond peak = device->Peak(DType::kFloat8), before = device->Peak(DType::kBFloat16);
    if (peak.raw() <= 0 || before.raw() <= 0) return CannotExpress("no float8 on the device", device->name);
    device->peak[static_cast<size_t>(DType::kBFloat16)] = peak;
    device->kernels.matmul_share = device->kernels.matmul_share_fp8;
    device->kernels.quantize_bytes = kTransformerEngineBytes;
    for (AttentionConstants& attention : device->attention) {
      attention.forward_share *= before.raw() / peak.raw();
      attention.backward_share *= before.raw() / peak.raw();
    }
    run_.approximations.push_back("float8 products on bf16 tensors");
    return absl::OkStatus();
  }

  void ReadAttention() {
    const std::string text = Lower("attention");
    const bool unfused =
        HasAny(text, {"unfused", "pre-flash", "no flash", "without flash", "no cudnn", "standard", "eager", "naive"});
    run_.training.fused_attention = !unfused;
    // Frameworks that issue kernel by kernel have a kernel for each step of the loss, too.
    run_.training.fused_loss = run_.host == HostPace();
    // Transformer Engine has a kernel for a norm, for rotary positions and for a gate; PyTorch's eager mode has none.
    run_.training.fused_norms = run_.host == HostPace() || HasAny(text, {"te/", "transformer engine"});
    // The same layers add gradients inside of the product.
    if (run_.training.fused_norms) run_.host.adds_gradients = false;
    if (text.empty()) run_.defaults.push_back("attention fused");
    if (unfused) return;
    // A device without the named kernel keeps the one it has.
    const auto use = [&](absl::string_view kernel) { SetClusterKey("attention", kernel, &run_.cluster).IgnoreError(); };
    if (HasAny(text, {"cudnn", "flash3", "flash-3", "flashattention-3", "fa3"})) use("flash3");
    // llm-foundry's own layers pinned flash-attn 1.0.9 (its setup.py, extra "gpu").
    if (HasAny(text, {"flash v1", "flash1", "flashattention-1", "mpt attn_impl"})) use("flash1");
  }

  const Family& FamilyOf(absl::string_view name, std::optional<double> billions) {
    if (HasAny(name, kModernWords)) return kModern;
    for (const Family& family : kFamilies) {
      if (absl::StrContains(name, family.word)) return family;
    }
    const DecoderConfig& c = run_.model;
    bool gated = c.ffn != 4 * c.hidden;
    if (billions.has_value()) {
      const double with = std::abs(NumParameters(c, true) - *billions * 1e9);
      gated = with < std::abs(NumParameters(c, false) - *billions * 1e9);
    }
    run_.defaults.push_back(gated ? "a family like Llama" : "a family like GPT");
    return gated ? kModern : kClassic;
  }

  absl::Status ReadModel() {
    DecoderConfig& c = run_.model;
    const std::string name = Lower("model");
    MESHWRIGHT_ASSIGN_OR_RETURN(c.hidden, Needed("hidden"));
    MESHWRIGHT_ASSIGN_OR_RETURN(c.layers, Needed("layers"));
    int64_t heads = std::max<int64_t>(1, c.hidden / kDefaultHeadDim);
    while (c.hidden % heads != 0) --heads;
    MESHWRIGHT_ASSIGN_OR_RETURN(c.heads, Size("heads", heads));
    MESHWRIGHT_ASSIGN_OR_RETURN(c.kv_heads, Size("kv_heads", c.heads, false));
    MESHWRIGHT_ASSIGN_OR_RETURN(c.head_dim, Size("head_dim", std::max<int64_t>(1, c.hidden / c.heads), false));
    MESHWRIGHT_ASSIGN_OR_RETURN(c.ffn, Size("ffn", 4 * c.hidden));
    MESHWRIGHT_ASSIGN_OR_RETURN(c.vocab, Size("vocab", kDefaultVocab));
    c.vocab_multiple = DefaultVocabMultiple(c.vocab);
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> billions, cells_.Number("params_b"));
    const Family& family = FamilyOf(name, billions);
    c.activation = family.activation;
    c.norm = family.norm;
    c.positions = family.positions;
    if (c.positions == Positions::kRotary && c.head_dim % 2 != 0) c.positions = Positions::kNone;
    c.tied_embeddings = family.tied;
    c.bias = c.qkv_bias = family.bias;
    c.max_positions = run_.training.sequence;
    // "8x7B" is eight experts.
    std::smatch match;
    static const std::regex* const kExperts = new std::regex(R"((\d+)\s*x\s*\d+(\.\d+)?\s*b)");
    if (std::regex_search(name, match, *kExperts)) {
      c.experts = std::stoll(match[1].str().substr(0, 6));
      c.experts_per_token = std::min(kDefaultExpertsPerToken, c.experts);
      c.capacity_factor = 1;
      run_.defaults.push_back(absl::StrCat("experts ", c.experts, ", ", c.experts_per_token, " a token"));
    } else if (HasAny(name, {"moe", "-a3b", "-a22b", "deepseek", "maverick", "scout"})) {
      return CannotExpress("experts not given", cells_.Text("model"));
    }
    run_.training.optimizer.kind = OpKind::kAdamW;
    return absl::OkStatus();
  }

  absl::Status ReadRecompute() {
    const std::string text = Lower("recompute");
    if (text.empty()) {
      run_.defaults.push_back("recompute none");
    } else if (HasAny(text, {"every", "selective layer", "uniform", "block", "layers"})) {
      return CannotExpress("recompute of some layers", text);
    } else if (absl::StartsWith(text, "none") || absl::StartsWith(text, "no")) {
    } else if (absl::StartsWith(text, "full") || text == "yes") {
      // Checkpoints of Megatron and DeepSpeed run the layer again. Those of PyTorch that FSDP goes with (not reentrant,
      // since 2.1) stop when backward has what it reads.
      run_.recompute = absl::StrContains(Lower("zero_fsdp"), "fsdp") ? Recompute::kFull : Recompute::kLayer;
    } else if (HasAny(text, {"selective"})) {
      run_.recompute = Recompute::kSelective;
    } else {
      return CannotExpress("unknown recompute", text);
    }
    return absl::OkStatus();
  }

  void ReadSharding() {
    const std::string sequence = Lower("seq_parallel");
    // Came to Megatron-LM with the choice of sequence parallelism (3.0): products that add to the gradient themselves.
    if (!sequence.empty()) run_.host.adds_gradients = false;
    Degrees& degrees = run_.degrees;
    if (sequence.empty()) {
      // Usual where attention is fused, unknown before.
      degrees.sequence_parallel = degrees.tensor > 1 && run_.training.fused_attention;
      if (degrees.tensor > 1) {
        run_.defaults.push_back(absl::StrCat("seq_parallel ", degrees.sequence_parallel ? "yes" : "no"));
      }
    } else {
      degrees.sequence_parallel = degrees.tensor > 1 && HasAny(sequence, {"yes", "true", "1"});
    }
    const std::string zero = Lower("zero_fsdp");
    if (degrees.data == 1) return;
    if (zero.empty()) {
      run_.parallel_optimizer = true;
      run_.defaults.push_back("zero_fsdp ZeRO-1");
    } else if (HasAny(zero, {"none", "zero-0", "no"})) {
    } else {
      run_.parallel_optimizer = true;
      if (HasAny(zero, {"zero-2", "shard_grad"})) {
        run_.approximations.push_back("ZeRO-2 as ZeRO-1");
        run_.memory_comparable = false;
      } else if (HasAny(zero, {"zero-3", "fsdp", "full_shard"})) {
        run_.shard_parameters = true;
      } else if (HasAny(zero, {"groups", "hybrid"})) {
        run_.approximations.push_back("optimizer split over all replicas");
        run_.memory_comparable = false;
      }
    }
  }

  const CsvCells& cells_;
  const RowOverrides& overrides_;
  TrainingRun run_;
  int64_t gpus_ = 1;
};

}  // namespace

// What a message takes more over AWS's EFA than over InfiniBand, first generation (4 cards of 100 Gb/s) and later: set
// on the all_reduces of two p4de and two p5 nodes (awsome-distributed-training), which therefore are no test of it.
constexpr Nanos kFirstEfaLatency = Micros(60), kEfaLatency = Micros(22);
constexpr int64_t kFirstEfaCards = 4;

bool SetInternode(absl::string_view text, Cluster* cluster) {
  const std::string in(text);
  if (absl::StrContains(absl::AsciiStrToLower(text), "efa")) cluster->nic_latency = kEfaLatency;
  std::smatch match;
  static const std::regex* const kCards = new std::regex(R"((\d{1,4})\s*x\s*(\d{1,6}(\.\d+)?)\s*G(b|bit|bps))");
  static const std::regex* const kNode = new std::regex(R"((\d{1,6}(\.\d+)?)\s*G(b|bit|bps)\b)");
  if (std::regex_search(in, match, *kCards)) {
    cluster->nics_per_node = std::max<int64_t>(1, std::stoll(match[1].str()));
    cluster->nic_bandwidth = BytesPerSecond(std::stod(match[2].str()) * 1e9 / 8);
    if (cluster->nic_latency == kEfaLatency && cluster->nics_per_node <= kFirstEfaCards) {
      cluster->nic_latency = kFirstEfaLatency;
    }
    return true;
  }
  if (!std::regex_search(in, match, *kNode)) return false;
  cluster->nics_per_node = std::max<int64_t>(1, cluster->nics_per_node);
  cluster->nic_bandwidth =
      BytesPerSecond(std::stod(match[1].str()) * 1e9 / 8 / static_cast<double>(cluster->nics_per_node));
  return true;
}

absl::StatusOr<TrainingRun> ReadTrainingRun(const CsvCells& cells, const RowOverrides& overrides) {
  return RunReader(cells, overrides).Read();
}

absl::StatusOr<TrainingMeasurement> ReadTrainingMeasurement(const CsvCells& cells) {
  TrainingMeasurement measured;
  const std::string status = cells.Text("status");
  measured.out_of_memory = status == "oom";
  if (!measured.out_of_memory && !status.empty() && status != "ok") {
    return CannotExpress("status", status);
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> peak, cells.Number("peak_mem_gb"));
  if (peak.has_value() && *peak > 0) {
    const std::string definition = cells.Text("mem_def");
    // nvidia-smi's figures are MiB; who calls them GB has divided by 1024.
    measured.whole_process = HasAny(definition, {"nvidia-smi", "device memory"});
    const bool binary = measured.whole_process || absl::StrContains(definition, "GiB");
    measured.peak = Bytes(static_cast<int64_t>(*peak * (binary ? 1073741824.0 : 1e9)));
  }
  if (measured.out_of_memory) return measured;
  for (const char* column : {"step_time_s", "step_time_derived_s"}) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> seconds, cells.Number(column));
    if (!seconds.has_value() || *seconds <= 0) continue;
    measured.step_seconds = seconds;
    measured.from = column;
    return measured;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> batch, cells.Number("global_batch_seqs"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> sequence, cells.Number("seq_len"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> gpus, cells.Number("gpus"));
  for (const char* column : {"tokens_per_s_total", "tokens_per_s_per_gpu"}) {
    MESHWRIGHT_ASSIGN_OR_RETURN(std::optional<double> rate, cells.Number(column));
    if (!rate.has_value() || *rate <= 0 || !batch.has_value() || !sequence.has_value()) continue;
    if (absl::EndsWith(column, "per_gpu")) {
      if (!gpus.has_value()) continue;
      *rate *= *gpus;
    }
    measured.step_seconds = *batch * *sequence / *rate;
    measured.from = column;
    return measured;
  }
  if (measured.peak.has_value()) return measured;
  return CannotExpress("no time or rate", "step_time_s, step_time_derived_s and tokens_per_s are empty");
}

Problem ProblemOf(const TrainingRun& run) {
  Problem problem;
  problem.batch = run.training.batch;
  problem.tokens_per_row = run.training.sequence;
  problem.update = {run.training.optimizer.kind, run.training.optimizer.Attrs()};
  problem.gradient_dtype = run.gradient_dtype;
  problem.cluster = run.cluster;
  problem.chunks = run.chunks;
  problem.host = run.host;
  problem.recompute = run.recompute;
  problem.parallel_optimizer = run.parallel_optimizer;
  problem.shard_parameters = run.shard_parameters;
  // Frameworks from before fused attention reduce all gradients at once, after the last micro-batch; where parameters
  // are split, a call moves a layer.
  if (!run.training.fused_attention || run.shard_parameters) problem.bucket = kEverything;
  problem.graph = [model = run.model, training = run.training](int64_t rows) {
    return BuildDecoder(model, training, "row", rows);
  };
  return problem;
}

std::string GroupKey(const CsvCells& cells) {
  std::string key;
  for (const char* column :
       {"model", "layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "seq_len", "global_batch_seqs", "dtype",
        "gpu_type", "gpu_mem_gb", "gpus", "interconnect", "recompute", "attention", "compile", "other_opts"}) {
    absl::StrAppend(&key, cells.Text(column), "\x1f");
  }
  return key;
}

}  // namespace meshwright
