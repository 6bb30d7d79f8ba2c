#include "tools/validate/framework.h"

#include <algorithm>
#include <regex>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "costmodel/library.h"
#include "ir/cluster.h"
#include "tools/validate/gpu_type.h"
#include "tools/validate/row_model.h"
#include "tools/validate/sharding_text.h"

namespace meshwright {
namespace {

std::string Lower(const CsvCells& cells, absl::string_view column) { return absl::AsciiStrToLower(cells.Text(column)); }

// Hugging Face's GPT-2 in eager mode under autocast (modeling_gpt2.py and PyTorch's list of operators that autocast
// runs in float32): what its attention moves besides the passes of a fused softmax with dropout, bytes a score.
//   forward   divide 2+2, mask 2+2, cast to float32 2+4, softmax 4+4 instead of 2+2, cast back 4+2
//   backward  cast 2+4, softmax 4+4+4 instead of 2+2+2, cast 4+2, mask 2+2, divide 2+2
constexpr EagerBytes kEagerScores = {24, 26};
// FlashAttention's comparisons ran it with Mistral's options (its training/configs/model/gpt2-hf.yaml), of which
// `scale_attn_by_inverse_layer_idx` divides once more, 2 + 2.
constexpr EagerBytes kEagerScoresByLayer = {kEagerScores.forward + 4, kEagerScores.backward + 4};
// Its gelu_new, 0.5 x (1 + tanh(c (x + d x^3))), one operator after the other. Autocast takes the power to float32, and
// what it is part of stays there (transformers, activations.py):
//   forward   half of x 2+2; x cast 2+4, to the third 4+4, times d 4+4, plus x 2+4+4, times c 4+4, tanh 4+4, plus one
//             4+4, times the half 2+4+4, cast for the product 4+2: 76, of which ours has 4
//   backward  cast 2+4; product: 4+4+4, cast 4+2 and halved 2+2, and 4+2+4; tanh 4+4+4, times c 4+4, cast for x 4+2,
//             times d 4+4, the power's gradient (a power, times three, a product) 4+4, 4+4, 4+4+4 and its cast 4+2, two
//             sums of three gradients 2 (2+2+2): 118, of which ours has 6
constexpr EagerBytes kHuggingFaceActivations = {76 - 4, 118 - 6};

// Its residual stream is float32, since norms give float32 and nothing narrows the sums: around a norm, forward, the
// norm reads and writes 4 + 4 instead of 2 + 2, a cast for the product 4 + 2, a dropout 2 + 2 and its mask 1, and the
// sum 4 + 2 + 4 instead of 2 + 2 + 2. Backward the norm moves 12 instead of 6, a cast 2 + 4, the dropout 5, the cast of
// the branch's gradient 4 + 2, the sum of the two gradients 4 + 4 + 4 instead of 6. Queries, keys and values are copied
// for batched products, 4 each, and the heads joined, 4; backward the same, and the three gradients joined, 12.
constexpr EagerBytes kHuggingFaceNorms = {4 + 6 + 5 + 4, 6 + 6 + 5 + 6 + 6};
constexpr EagerBytes kHuggingFaceQueries = {16, 28};

// Megatron-LM's layers (megatron/model/transformer.py of 2021). PyTorch before 1.12 adds the bias of a linear layer
// with three dims by a kernel of its own (pytorch issue 39661, pull request 72728): 2 + 2 of queries, keys and values
// each; the context is copied, 4; backward the three gradients are joined, 12, and the context's copied, 4. Hidden
// dropout, one for each norm, is fused with the sum: forward it writes a mask, 1, backward it is a kernel, 2 + 1 + 2.
constexpr EagerBytes kMegatronQueries = {12 + 4, 12 + 4};
constexpr EagerBytes kMegatronNorms = {1, 5};
// Without its fusion: a bias, 2 + 2, and a dropout, 2 + 2 and its mask, before the sum.
constexpr EagerBytes kUnfusedNorms = {4 + 5, 5};

// A bias that is added by a kernel of its own before the activation (Narayanan et al. 2021, section 4.2): read and
// write.
constexpr EagerBytes kUnfusedBias = {4, 0};

// A gate in steps: forward silu 2 + 2 and a product 4 + 2 instead of 4 + 2; backward two products 4 + 2, silu 4 + 2 and
// the gradients of both halves joined, 4 + 4, instead of 6 + 4.
constexpr EagerBytes kStepsOfGates = {4, 16};

// FSDP2 copies what it gathered into the parameters, 2 + 2, and gradients into what it scatters in float32, 2 + 4, on
// the stream of the kernels (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py; pytorch issue 157027
// measures 1.4 % of a step).
constexpr EagerBytes kFsdp2Parameters = {4, 4 + 6};

// PyTorch's autocast casts weights from float32 once in each forward pass, 4 + 2, and their gradients back, 2 + 4,
// which are then added to float32 ones, 4 instead of 2 (its documentation, `cache_enabled`).
constexpr EagerBytes kAutocastParameters = {6, 6 + 2};

// Integer instructions of a kernel with dropout for an element, at 64 a clock and multiprocessor (CUDA programming
// guide, throughput of native instructions, compute capability 7.0 to 9.0). Philox 4x32-10, which PyTorch draws from,
// has for four numbers ten rounds of two wide products (two instructions' time each), two three-way exclusive ors and
// two sums: 20 a number; conversions of integers and between types of 16 and 32 bits take four instructions' time each:
// 12, and some to compare, scale and address. To run a layer's attention again takes 1.3 ms (Korthikanti et al. 2022,
// table 4: 13.2 instead of 11.9 ms; 4 rows of 2048, 8 heads of 96, A100), of which its two products and softmax are
// 0.6: 134 million scores in 0.7 ms are 45 instructions each.
constexpr double kDropoutInstructions = 45, kIntegersPerClock = 64;

// FlashAttention draws 8 bits a score: of the seven rounds above one sixteenth, and as many again to unpack, compare
// and select (csrc/flash_attn/src/philox.cuh, dropout.h). That cuDNN draws no more is an assumption.
constexpr double kFusedDropoutInstructions = 2 * 7 * 8 / 16.0;

// Nemotron's squared ReLU is two operators until NeMo's pull request 8963 compiled it in April 2024 (modules/common/
// megatron/utils.py at v1.23.0; without it at v2.0.0.rc0.beta of May, with it at v2.0.0rc0 of June): forward the square
// reads and writes, 4, besides ours; backward its derivative, the first power, is copied, 4, doubled, 4, and taken
// times the gradient, 4 + 2.
constexpr EagerBytes kSquaredRelu = {4, 14};
constexpr int64_t kFirstCompiledRelu = 2407;
// Llama's gates were in steps, and Nemotron's and Mixtral's gradients added by kernels of their own (conf/training at
// cb3482d0, 81b75a7c and 3499f38e: `bias_activation_fusion`, `gradient_accumulation_fusion`).
constexpr int64_t kFirstFusedGates = 2403, kFirstFusedAddition = 2405, kMixtralFusedAddition = 2407;
// Gradients were held and reduced in float32, the optimizer's default (megatron_base_model.py, setup_optimization),
// until scripts asked for bf16 (examples/training at 81b75a7c; Mixtral's conf/training of 24.07); those of Nemotron
// never did.
constexpr int64_t kFirstNarrowGradients = 2403, kMixtralNarrowGradients = 2407, kNemotronNarrowGradients = 2409;

// Megatron-LM's fused softmax takes rows up to here (fused_softmax.py); longer ones go through the same steps.
constexpr int64_t kLongestFusedSoftmax = 4096;

// Composer's two training metrics (LanguageCrossEntropy, LanguagePerplexity), on unless switched off (MPT's
// `use_train_metrics`): each casts the logits to float32, 2+4, takes their log-softmax, 4+4, and what they say goes
// unread.
constexpr EagerBytes kTrainMetrics = {2 * (6 + 8), 0};

// cuBLAS before CUDA 11.7 (June 2022): batches of 1024 x 1024 x 140 in bfloat16 took 12.2 TFLOP/s on A100 with 11.6
// where 11.7 takes 85.6 (pytorch issue 83272). As a share of what aligned products reach there, 0.959 of 312 TFLOP/s
// (costmodel/data/a100-sxm-80gb.yaml), with tiles of 64 columns, of which 140 take three: that batch then costs what it
// was measured to take, 9.2 ms. (The cache binds the 85.6 in our prices, so that a ratio to them says nothing.) In
// float16, 11.6 had gained (53.9); with 11.5, BLOOM's chronicles time both types alike, 845 and 854 s with heads of
// 150.
constexpr double kEarlyMisalignedAttention = 12.2 / (0.959 * 312) * (192.0 / 140);

// Whether the device came before attention was fused everywhere: FlashAttention is of May 2022, Megatron-LM, NeMo and
// PyTorch have it since 2023 (PyTorch with its compiler), H100 was sold from October 2022.
bool OlderThanHopper(const CsvCells& cells) {
  const absl::StatusOr<std::string> name = DeviceNamed(cells.Text("gpu_type"));
  if (!name.ok()) return false;
  const absl::StatusOr<Device> device = FindDevice(*name);
  return device.ok() && device->generation < Generation::kHopper;
}

// Kernels that a row says it has, of those that eager frameworks lack: a word for the operator, beside one for "fused"
// or "kernel" ("fused rms norm", "RMSNorm kernel", "fused_cross_entropy"). Liger's kernels are for all four (its
// README).
constexpr absl::string_view kNorms[] = {"norm", "rms", "liger"};
constexpr absl::string_view kRotary[] = {"rotary", "rope", "liger"};
constexpr absl::string_view kGates[] = {"swiglu", "silu", "geglu", "liger"};
constexpr absl::string_view kLosses[] = {"entropy", "loss", "liger"};

bool SaysFused(absl::string_view text, absl::Span<const absl::string_view> operators) {
  for (absl::string_view part : absl::StrSplit(text, absl::ByAnyChar(",;+"))) {
    const bool fused = HasAny(part, {"fused", "fusion", "kern", "liger", "apex"});
    const bool lacks = HasAny(part, {"no ", "not ", "without", "unfused", "off", "false"});
    if (fused && !lacks && HasAny(part, operators)) return true;
  }
  return false;
}

// Operators of a layer by the names that models/decoder.cc gives them.
void SetFused(absl::string_view text, Framework* f) {
  if (SaysFused(text, kNorms)) f->fused_ops.insert({"norm1", "norm2", "norm"});
  if (SaysFused(text, kRotary)) f->fused_ops.insert("rotary");
  if (SaysFused(text, kGates)) {
    f->fused_ops.insert("activation");
    f->split_gates = false;
  }
}

// 1 to 3 of "flash v1", "FlashAttention-2", "flash_attn1.0.8", "FA3"; 0 where none is named.
int FlashVersion(absl::string_view attention) {
  const std::string text = absl::StrReplaceAll(attention, {{" ", ""}, {"_", ""}, {"-", ""}});
  static const std::regex* const kVersion = new std::regex(R"((flash(attention|attn)?|\bfa)v?([123]))");
  std::smatch match;
  return std::regex_search(text, match, *kVersion) ? std::stoi(match[3].str()) : 0;
}

// Operators around experts, as Megatron-Core issues them (megatron/core/transformer/moe: router.py,
// token_dispatcher.py, moe_utils.py; its release 0.14, with fused permutation and routing), each a call from Python
// with a gradient or a step that has kernels of its own, where ours are one. Before experts: scores and choice, four of
// the auxiliary loss, four of the counts (of experts, their all_gather, of ranks and of this rank's experts),
// permutation, the all-to-all of probabilities, the order by experts. Behind them: the order by ranks, permutation.
// Backward those of tokens, scores and loss: fewer, but autograd adds sums; taken for as many.
constexpr int64_t kBeforeExperts = 12, kBehindExperts = 2;
// Transformer Engine's grouped products launch one for each expert (general_grouped_gemm), and in float8 a cast.
constexpr int64_t kExpertLaunches = 1;

// What Megatron-Core does to the results of experts that have biases: one after the other it adds the bias times the
// tokens' weights, joins what comes out, and casts it back (experts.py, `_apply_bias`). With weights in 16 bits, bytes
// an element:
//   forward   product 2, sum 2+2+2, joined 2+2
//   backward  for the bias a product 2+2 and its sum 2, for the weights the same, parts joined 2+2
// With weights in float32, as DeepEP and HybridEP ask for them (token_dispatcher.py): product 4, sum 2+4+4, joined 4+4,
// cast 4+2; cast 2+4, to the type of the parts 4+2, for the bias 4+4+4, for the weights 4+4+4, joined 2+2.
constexpr EagerBytes kBiasedResults = {12, 16}, kBiasedResultsWide = {28, 40};
constexpr EagerBytes kBiasedSteps = {2, 4};
// The CPU's time for an operator of PyTorch's, a linear layer's, on a DGX H100 (Xeon 8480C) and on a GB200 (Transformer
// Engine's issue 2053).
constexpr Nanos kOperator = Nanos(13'480), kOperatorOnGrace = Nanos(37'080);

// Experts' products in float8: Megatron-Core 0.9 refuses them, 0.10 of February 2025 has them where Transformer Engine
// is 1.11 or later (transformer_config.py); containers of NVIDIA's from 25.02 on bring both.
constexpr int64_t kFirstFloat8Experts = 2502;

// The release "25.04" of a container or of a set of recipes that the source names, as 2504; 0 where there is none.
int64_t ReleaseOf(const std::string& source) {
  std::smatch match;
  static const std::regex* const kRelease = new std::regex(R"((^|[^0-9.])(2[0-9])\.(0[1-9]|1[0-2])(?![0-9]))");
  if (!std::regex_search(source, match, *kRelease)) return 0;
  return std::stoll(match[2].str()) * 100 + std::stoll(match[3].str());
}

// Whether ZeRO-1 sums gradients on all ranks. DeepSpeed's does from 0.5 of July 2021 to 0.12 of January 2024: it
// ignores `contiguous_gradients` there, and what is left all-reduces buckets (runtime/engine.py,
// _configure_zero_optimizer; zero/stage_1_and_2.py, buffered_reduce_fallback; pull requests 1246 and 4887). Rows that
// name no release are told by their device. GPT-NeoX goes with a fork of 0.3.15, which scatters.
bool ReducesWhole(const CsvCells& cells, const std::string& zero, const std::string& options) {
  if (!HasAny(zero, {"zero-1"}) || HasAny(options, {"neox"})) return false;
  std::smatch match;
  static const std::regex* const kRelease = new std::regex(R"(deepspeed (0\.(\d{1,2})|[1-9]))");
  if (!std::regex_search(options, match, *kRelease)) return OlderThanHopper(cells);
  const int minor = match[2].matched ? std::stoi(match[2].str()) : 99;
  return minor >= 5 && minor <= 12;
}

bool OnGrace(const CsvCells& cells) { return HasAny(Lower(cells, "gpu_type"), {"gb200", "gb300", "gh200"}); }

void SetExperts(const CsvCells& cells, Framework* f) {
  const std::string options = Lower(cells, "other_opts");
  f->float8_experts = HasAny(options, {"grouped"}) || ReleaseOf(Lower(cells, "source_ref")) >= kFirstFloat8Experts;
  f->whole_graphs = HasAny(options, {"full iteration graphs"});
  ExpertPace& experts = f->host.experts;
  // A token goes once to each node, or to each rank of one (DeepEP's README; Megatron-LM's flex dispatcher).
  const bool once = HasAny(options, {"deepep", "hybridep"});
  // AutoModel's benchmarks give a token the experts behind those of the token before it (moe/layers.py,
  // FakeBalancedGate).
  f->neighbour_experts = HasAny(Lower(cells, "source_ref"), {"automodel"});
  if (once) f->dispatcher = Dispatcher::kPerNode;
  experts.joins = once;
  experts.overlaps = HasAny(options, {"expert-parallel overlap", "dualpipe"});
  experts.graphs = HasAny(options, {"partial graphs of attention"});
  if (!f->eager || f->whole_graphs) return;
  experts.dispatch = kBeforeExperts;
  experts.combine = kBehindExperts;
  experts.launches = kExpertLaunches;
  experts.waits = true;
  if (!f->transformer_engine || !HasAny(Lower(cells, "model"), {"gpt oss", "gpt-oss", "gpt_oss"})) return;
  experts.results = once ? kBiasedResultsWide : kBiasedResults;
  experts.result_steps = kBiasedSteps;
  experts.step = OnGrace(cells) ? kOperatorOnGrace : kOperator;
}

// How it talks, and what it copies for that.
void SetCollectives(const CsvCells& cells, Framework* f) {
  const std::string options = Lower(cells, "other_opts"), zero = ShardingText(cells.Text("zero_fsdp"));
  HostPace& host = f->host;
  // NeMo's recipes for tensor parallelism switch it on (`tp_comm_overlap`; NeMo-Framework-Launcher, conf/training);
  // PyTorch calls it asynchronous tensor parallelism.
  host.overlaps_products =
      f->nemo_recipes || HasAny(options, {"async tp", "async_tp", "asynctp", "tp_comm_overlap", "userbuffers"});
  // BigScience's runs of BLOOM on Jean Zay hung without it (train/tr11-176B-ml/chronicles-prequel.md and its .slurm).
  const bool bloom = HasAny(Lower(cells, "model"), {"bloom"}) && HasAny(Lower(cells, "interconnect"), {"jean zay"});
  host.launch_blocking = f->eager && (bloom || HasAny(options, {"cuda_launch_blocking"}));
  // DeepSpeed of 2021 waited for the device before each call of ZeRO-3 and gathered into a list
  // (partition_parameters.py, `_allgather_param`).
  host.serial = host.launch_blocking || f->early_zero3;
  // DeepSpeed's pipeline sends a part from each rank (pipe/engine.py, `is_pipe_partitioned`); so did Megatron-LM before
  // it had sequence parallelism (Narayanan et al. 2021, section 4.1).
  host.scatters_transfers = bloom || HasAny(options, {"deepspeed"}) ||
                            (!f->fused_attention && HasAny(Lower(cells, "attention"), {"megatron"}));
  // nanotron's ZeRO-1 gathers all parameters into a list, too (distributed.py, all_gather_coalesced), and its gradients
  // are reduced whole (optim/gradient_accumulator.py).
  host.copies_pieces = f->early_zero3 || (f->nanotron && HasAny(zero, {"zero-1"}));
  host.reduces_whole = f->nanotron || ((bloom || f->deepspeed) && ReducesWhole(cells, zero, options));
  if (HasAny(zero, {"fsdp2"})) {
    host.parameters = kFsdp2Parameters;
  } else if (f->autocast) {
    host.parameters = kAutocastParameters;
  }
}

// What memory moves in the time of that many integer instructions of each element.
double BytesMovedIn(double instructions, const Device& device) {
  const double integers = kIntegersPerClock * device.sms * device.boost_mhz * 1e6 * device.kernels.sustained_clock;
  const double rate = device.memory_bandwidth.raw() * device.kernels.memory_share;
  return integers > 0 ? rate * instructions / integers : 0;
}

// What NeMo's recipes of a release do in steps, as SetSteps.
void SetRecipes(const CsvCells& cells, Framework* f) {
  if (!f->nemo_recipes || !f->fused_attention) return;
  const std::string model = Lower(cells, "model"), options = Lower(cells, "other_opts");
  const int64_t release = ReleaseOf(Lower(cells, "source_ref"));
  const auto before = [release](int64_t first) { return release > 0 && release < first; };
  const bool nemotron = HasAny(model, {"nemotron"}), modern = IsModernFamily(model);
  HostPace& host = f->host;
  f->cuts_queries = modern || nemotron;
  // GPT-3 drops a tenth of scores and of what is added to the residual stream (conf/training/gpt3 of NeMo-Framework-
  // Launcher, all releases); the sum's kernel writes a mask, and backward there is one more.
  if (HasAny(model, {"gpt"}) && !modern) {
    f->dropout = true;
    host.norms = kMegatronNorms;
  }
  if (modern && before(kFirstFusedGates)) {
    f->split_gates = true;
    host.gates = kStepsOfGates;
  }
  if (nemotron && before(kFirstCompiledRelu)) host.activations = kSquaredRelu;
  const bool mixtral = HasAny(model, {"mixtral"});
  if (nemotron) host.adds_gradients = before(kFirstFusedAddition);
  if (mixtral) host.adds_gradients = before(kMixtralFusedAddition);
  f->narrow_gradients = !before(nemotron  ? kNemotronNarrowGradients
                                : mixtral ? kMixtralNarrowGradients
                                          : kFirstNarrowGradients);
}

// What kernels move that ours do not have, where they are issued one by one.
void SetSteps(const CsvCells& cells, int64_t sequence, Framework* f) {
  const std::string options = Lower(cells, "other_opts");
  HostPace& host = f->host;
  // Transformer Engine's products add to the gradient themselves. So does Megatron-LM since it has the choice of
  // sequence parallelism (3.0).
  host.adds_gradients = !f->transformer_engine && cells.Text("seq_parallel").empty();
  if (f->nanotron) host.gates = kStepsOfGates;
  if (f->fused_attention) return;
  // GPT and BERT of that time drop a tenth; Llama's kind and GPT-NeoX's models nothing (their configurations).
  const std::string model = Lower(cells, "model");
  f->dropout = !IsModernFamily(model) && !HasAny(absl::StrCat(model, options), {"neox", "pythia"});
  host.queries = kMegatronQueries;
  host.norms = kMegatronNorms;
  if (HasAny(options, {"without operator fusion", "no operator fusion"})) {
    host.scores = kEagerScores;
    host.activations = kUnfusedBias;
    host.norms = kUnfusedNorms;
  } else if (f->huggingface) {
    host.scores = HasAny(Lower(cells, "source_ref"), {"flash-attention"}) ? kEagerScoresByLayer : kEagerScores;
    host.queries = kHuggingFaceQueries;
    host.activations = kHuggingFaceActivations;
    host.norms = kHuggingFaceNorms;
  } else if (sequence > kLongestFusedSoftmax) {
    host.scores = kEagerScores;
  }
}

}  // namespace

bool HasAny(absl::string_view text, absl::Span<const absl::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](absl::string_view word) { return absl::StrContains(text, word); });
}

double DropoutBytes(const Device& device, double moved) {
  return std::max(0.0, BytesMovedIn(kDropoutInstructions, device) - moved);
}

double FusedDropoutBytes(const Device& device) { return BytesMovedIn(kFusedDropoutInstructions, device); }

bool NamesAttention(const CsvCells& cells) {
  const std::string text = Lower(cells, "attention");
  return text.empty() ||
         HasAny(text, {"flash", "fa1",     "fa2",         "fa3",      "sdpa",     "scaled_dot", "scaled dot", "fused",
                       "cudnn", "te",      "transformer", "triton",   "xformers", "memory",     "standard",   "eager",
                       "naive", "pytorch", "torch",       "megatron", "math",     "core"});
}

Framework FrameworkOf(const CsvCells& cells, int64_t sequence) {
  const std::string attention = Lower(cells, "attention"), options = Lower(cells, "other_opts");
  const std::string model = Lower(cells, "model"), compile = Lower(cells, "compile");
  const std::string zero = ShardingText(cells.Text("zero_fsdp"));
  Framework f;
  const bool compiled = !compile.empty() && !absl::StartsWith(compile, "no") && !HasAny(compile, {"eager", "without"});
  // llm.c is a C program: nothing stands between it and the launches.
  const bool bare_c = HasAny(absl::StrCat(options, attention, Lower(cells, "recompute")), {"llm.c"});
  const bool bare = bare_c || HasAny(options, {"cuda graph", "cudagraph"});
  f.eager = !compiled && !bare;
  f.caching = !bare_c;
  const bool unfused = HasAny(attention, {"unfused", "pre-flash", "no flash", "without flash", "no cudnn", "standard",
                                          "eager", "naive"}) ||
                       attention == "torch" || attention == "pytorch" || attention == "megatron";
  f.fused_attention = !unfused && !(attention.empty() && f.eager && OlderThanHopper(cells) && !IsModernFamily(model));
  // ZeRO-3 of 2021 is told by attention that is not fused.
  f.early_zero3 = unfused && HasAny(zero, {"zero-3"}) && !HasAny(zero, {"fsdp", "hsdp"});
  // Tables whose attention or type is Transformer Engine's are NeMo's and Megatron-Bridge's; what others say of it is
  // of its kernels alone. Megatron-Core takes them by default (`transformer_impl`).
  f.nemo_recipes = HasAny(attention, {"te/", "transformer engine", "transformerengine"}) ||
                   HasAny(Lower(cells, "dtype"), {"transformer engine", "transformerengine"});
  f.transformer_engine = f.nemo_recipes || HasAny(attention, {"(te)"}) ||
                         HasAny(options, {"transformer engine", "transformer-engine", "transformer_engine",
                                          "transformerengine", "megatron-core", "megatron core", "mcore"});
  // "For fine-tuning, we use SQuAD, and the inputs are packed to 4096 tokens" (NeMo-Framework-Launcher's and NeMo's
  // tables); kernels get where each example begins (gpt_sft_dataset.py, `cu_seqlens`).
  f.packs_examples = f.nemo_recipes && HasAny(options, {"sft", "lora", "peft"});
  f.nanotron = HasAny(absl::StrCat(model, options), {"nanotron"});
  // What tensor parallelism gathered was kept until July 2024 (`tp_recompute_allgather`); these logs are of 2023.
  f.early_nanotron = f.nanotron && HasAny(Lower(cells, "source_ref"), {"old_bench"});
  f.deepspeed = HasAny(absl::StrCat(zero, " ", options), {"deepspeed"});
  // llm-foundry's own layers; its benchmarks ran FlashAttention in Triton (submit_benchmarks.py, --attn_impl).
  const bool foundry = HasAny(attention, {"mpt attn_impl"});
  // FlashAttention's training code brings fused kernels for all of a layer and for the loss (its training/README.md).
  const bool flash_code = HasAny(options, {"flashattention (this repo)"}) ||
                          (f.fused_attention && HasAny(Lower(cells, "source_ref"),
                                                       {"flash-attention training/configs", "flashattention-2 paper"}));
  // Megatron's own attention was there until FlashAttention.
  if (f.eager && !f.fused_attention && HasAny(attention, {"megatron"})) {
    f.misaligned_attention = kEarlyMisalignedAttention;
  }
  // nanotron's benchmarks ran PyTorch 2.1 (run_multinode.sh), which brings 2.18; A100's rows are from before July 2024.
  f.early_nccl = f.nanotron || OlderThanHopper(cells);
  f.untuned_nccl = f.nanotron && HasAny(Lower(cells, "source_ref"), {"bench"});
  f.huggingface = HasAny(absl::StrCat(options, " ", attention), {"huggingface", "hugging face"});
  // vTrain's times of one node are sums of a profile (docs/accuracy.md), which its own layers fit: a vocabulary that is
  // cut over ranks and not padded, and PyTorch's loss on the 16-bit logits (src/model/gpt_modeling.py, src/trainer.py).
  const bool profiled = HasAny(Lower(cells, "source_ref"), {"vtrain data/ground_truth_single"});
  f.pads_vocabulary = !f.huggingface && !profiled;
  // DeepSpeed holds the weights in 16 bits itself (its documentation of `bf16` and `fp16`).
  f.autocast = flash_code || (f.huggingface && !f.deepspeed);
  // llm-foundry's tables of A100 are of May 2023, with the image of PyTorch 1.13.1 (sweep.sh at the commit, 300cc5c),
  // and of bf16; that of the 80 GB card was measured again in October 2023 with 2.1.0 (sweep.sh, b2a43a1), in amp_bf16.
  // Checkpoints stop early since 2.1 (pytorch pull request 96866).
  f.checkpoints_stop = !foundry || !OlderThanHopper(cells) || HasAny(Lower(cells, "dtype"), {"amp_bf16"});
  // Frameworks that issue kernel by kernel have a kernel for each step of the loss, too, but for these: MPT's default
  // loss is flash-attn's (modeling_mpt.py).
  f.fused_loss = !f.eager || foundry || flash_code || profiled || SaysFused(options, kLosses);
  f.in_place_loss = bare_c || flash_code;
  f.wide_residuals = flash_code;
  // Transformer Engine has a kernel for a norm, for rotary positions and for a gate; PyTorch's eager mode has none.
  // nanotron takes flash-attn's for the first two (nanotron/models/llama.py).
  f.fused_norms = !f.eager || f.transformer_engine || flash_code || f.nanotron;
  f.split_gates = !f.fused_norms || f.nanotron;
  SetFused(absl::StrCat(options, ",", attention), &f);
  SetCollectives(cells, &f);
  SetExperts(cells, &f);
  if (f.eager) SetSteps(cells, sequence, &f);
  f.narrow_gradients = f.nemo_recipes;
  if (f.eager) SetRecipes(cells, &f);
  if (foundry && f.eager) f.host.logits = kTrainMetrics;
  if (!f.fused_attention) return f;
  const int version = FlashVersion(attention);
  if (version == 3 || HasAny(attention, {"cudnn"})) f.attention = "flash3";
  // Before July 2023 there was no other; FlashAttention-2's paper calls it by the bare name beside its own.
  const bool first = flash_code || (attention == "flashattention" && HasAny(Lower(cells, "source_ref"), {"-2 paper"}));
  if (foundry) f.attention = "triton";
  if (version == 1) f.attention = "flash1";
  if (first && !HasAny(attention, {"2", "3"})) f.attention = "flash1";
  return f;
}

// Where queries and keys are turned, Megatron-Core cuts one matrix into queries, keys and values, copies values, 2 + 2,
// and queries where several share a key, and joins the gradients, 2 + 2 (attention.py; Transformer Engine's
// _SplitAlongDim, whose gradients lie in one buffer only where nothing stood between).
//
// NeMo's LoRA is one of queries, keys and values (`attention_qkv`; mcore_mixins.py, parallel_adapters.py). Forward the
// norm's result is written for it, 2, and read, 2; what it makes is written, 2, scaled, 2 + 2, and added, 2 + 2 + 2.
// Backward the gradient is scaled, 2 + 2, and read for two products, 2 + 2, of which one makes another, 2, that is
// added, 4 + 2, and the last reads the norm's result, 2.
void AddQueryCopies(const Framework& framework, bool frozen, double keys, EagerBytes* queries) {
  const double all = 1 + 2 * keys;
  if (framework.cuts_queries) {
    queries->forward += 4 * keys + (keys < 1 ? 4 : 0);
    queries->backward += 4 * all;
  }
  if (framework.nemo_recipes && frozen) {
    queries->forward += 4 + 12 * all;
    queries->backward += 10 + 8 * all;
  }
}

// InternEvo's ZeRO gives whole tensors to ranks, which reduce to and broadcast from them; DeepSpeed's first ZeRO-3
// gathered each tensor where a layer needed it.
bool CallsEachTensor(const CsvCells& cells, const Framework& framework) {
  if (framework.early_zero3) return true;
  const std::string zero = ShardingText(cells.Text("zero_fsdp"));
  if (!HasAny(zero, {"zero-1"}) || HasAny(zero, {"groups", "hybrid"})) return false;
  return HasAny(Lower(cells, "model"), {"internlm"});
}

}  // namespace meshwright
