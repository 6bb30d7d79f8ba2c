#include "tools/validate/training_row.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "costmodel/library.h"
#include "costmodel/variability.h"
#include "ir/status.h"
#include "tools/validate/adapters.h"
#include "tools/validate/columns.h"
#include "tools/validate/eager_kernels.h"
#include "tools/validate/framework.h"
#include "tools/validate/framework_copies.h"
#include "tools/validate/pipeline_text.h"
#include "tools/validate/recompute_text.h"
#include "tools/validate/row_cluster.h"
#include "tools/validate/row_model.h"
#include "tools/validate/row_precision.h"
#include "tools/validate/sharding_text.h"
#include "tools/validate/siblings.h"
#include "tools/validate/signs.h"
#include "tools/validate/table_columns.h"
#include "tools/validate/update_bytes.h"
#include "tools/validate/words.h"

namespace meshwright {
namespace {

// --- the defaults of empty cells -----------------------------------------------------------------------------------

// Issuing a linear layer of Transformer Engine in float8 takes this many times as long as in bf16 (its issue 761: a
// forward pass that the CPU paces, 140 ms in place of 77).
constexpr double kFloat8Issue = 140.0 / 77;
// Tokens of a packed example: of SQuAD's, by what NVIDIA's tables print as both tokens/s and FLOP/s, 6 N + 12 L h s a
// token, 219 to 254 (NeMo-Framework-Launcher, examples/README.md at 81b75a7c, Llama 2 7B to 70B).
constexpr int64_t kPackedExample = 256;
constexpr int64_t kClasses = 2;           // of a classifier; SQuAD's head has as many results a token
constexpr double kMostDevices = 1 << 20;  // beyond it, a cell is damaged

class RunReader {
 public:
  RunReader(const CsvCells& cells, const RowOverrides& overrides)
      : cells_(cells),
        overrides_(overrides),
        zero_(ShardingText(cells.Text("zero_fsdp"))),
        sibling_(SiblingWithLayout(cells)) {
    if (sibling_.has_value()) run_.defaults.push_back("layout of another row of this model and these devices");
  }

  absl::StatusOr<TrainingRun> Read() {
    const std::string options = Lower("other_opts");
    MESHWRIGHT_ASSIGN_OR_RETURN(run_.training.sequence, Size("seq_len", DefaultSequence(cells_.Text("model"))));
    framework_ = FrameworkOf(cells_, run_.training.sequence);
    run_.model = overrides_.model.value_or(DecoderConfig());
    if (!overrides_.model.has_value()) {
      MESHWRIGHT_ASSIGN_OR_RETURN(run_.model, ReadRowModel(cells_, run_.training.sequence, &run_.defaults));
      run_.model.qk_norm = framework_.Is(Sign::kQueryNorms) && run_.model.kv_lora_rank == 0;
      // Where a layout has no place for it, one stands with the output layer.
      if (framework_.Is(Sign::kFurtherTokens)) run_.model.mtp_layers = std::max<int64_t>(1, run_.model.mtp_layers);
      if (const int64_t further = ReadPipelineText(options).further; further > 0) run_.model.mtp_layers = further;
    }
    if (framework_.unties_head) run_.model.tied_embeddings = false;
    run_.training.optimizer.kind = framework_.Is(Sign::kLamb)   ? OpKind::kLamb
                                   : framework_.Is(Sign::kMuon) ? OpKind::kMuon
                                                                : OpKind::kAdamW;
    MESHWRIGHT_RETURN_IF_ERROR(ReadDegrees());
    if (!framework_.pads_vocabulary) {
      run_.model.vocab -= run_.model.vocab % run_.degrees.tensor;
      run_.model.vocab_multiple = 1;
    }
    if (framework_.Is(Sign::kClassifier) && run_.degrees.tensor == 1) run_.model.classes = kClasses;
    MESHWRIGHT_RETURN_IF_ERROR(ReadRowCluster(cells_, overrides_, framework_, gpus_, &run_));
    MESHWRIGHT_RETURN_IF_ERROR(ReadBatch());
    if (framework_.Is(Sign::kAdapters)) {
      run_.frozen = true;
      run_.quantized = HasAny(options, {"qlora", "q-lora", "int4", "4bit", "4-bit", "4 bit", "nf4", "gptq"});
      run_.adapters = AdapterParameters(framework_, run_.model, options);
      run_.expert_adapters = ExpertAdapterParameters(framework_, run_.model, options);
      run_.approximations.push_back(absl::StrCat("frozen weights",
                                                 run_.quantized ? " of 4 bits read as those of 16" : "",
                                                 ": norms train in place of adapters"));
    }
    MESHWRIGHT_RETURN_IF_ERROR(UnpackExamples());
    MESHWRIGHT_RETURN_IF_ERROR(ReadRowPrecision(cells_, framework_, &run_));
    run_.training.float8_parameters = overrides_.float8_parameters && run_.narrow;
    run_.host = framework_.host;
    const double keys = static_cast<double>(run_.model.kv_heads) / static_cast<double>(run_.model.heads);
    AddQueryCopies(framework_, run_.frozen, keys, &run_.host.queries);
    if (framework_.eager && !framework_.whole_graphs) SetPace();
    MESHWRIGHT_RETURN_IF_ERROR(TurnPositions());
    if (run_.frozen) AddAdapters(framework_, run_.model, run_.quantized, &run_.host);
    if (run_.quantized) run_.host.gathered_share = kQuantizedWeightBytes / 2;
    if (framework_.dropout) {  // of scores: read, write and mask; of what is added: read both, write and mask
      const Device& device = run_.cluster.device;
      const bool fused = framework_.fused_attention;
      run_.host.scores.forward += fused ? FusedDropoutBytes(device) : DropoutBytes(device, 5);
      if (fused) run_.host.scores.backward += FusedDropoutBytes(device);  // drawn again
      run_.host.norms.forward += DropoutBytes(device, 7);
    }
    run_.dispatcher = framework_.dispatcher;
    if (run_.narrow) {
      run_.host.experts.launches *= 2;
      if (framework_.eager && !framework_.whole_graphs) run_.host.products *= kFloat8Issue;
    }
    MESHWRIGHT_RETURN_IF_ERROR(ReadImbalance());
    ChooseExperts();
    ReadAttention();
    ReadRecompute();
    const bool again = run_.recompute == Recompute::kLayer || run_.recompute == Recompute::kFull;
    if (run_.quantized) run_.host.unpacked = UnpackedWeights(HasAny(options, {"gptq"}), again);
    if (framework_.early_zero3 && run_.recompute == Recompute::kLayer)
      run_.host.gathers_again = GathersAgain(run_.model.hidden, run_.model.ffn);
    // Of adapters' layers what follows them hides a gather in each pass, the third one of them, but for a loop over
    // experts, for each of which the CPU waits.
    if (run_.model.experts > 1 && framework_.Is(Sign::kExpertLoop)) run_.host.serial |= run_.host.serial_regathers;
    const bool hidden = run_.host.serial_regathers && !run_.host.serial;
    if (CheckpointsHoldUnits() && run_.recompute == Recompute::kLayer && !hidden) run_.host.gathers_again = 1;
    ReadSharding();
    // FSDP's `no_sync`, whose gradients stay whole until then.
    run_.host.scatters_once = run_.shard_parameters && framework_.Is(Sign::kSumsWhole) && !framework_.keeps_whole;
    MESHWRIGHT_RETURN_IF_ERROR(SplitContext());
    MESHWRIGHT_RETURN_IF_ERROR(SetClusterKeys(overrides_, &run_.cluster));
    run_.host = WithCpu(run_.host, run_.cluster.cpu_slowdown.value_or(1));
    // A clock that a flag says is that of a device, as one of the library is.
    run_.cluster.device.kernels.sustained_clock *= SlowestClock(run_.cluster.num_devices());
    if (const absl::Status fits = CheckDecoder(run_.model, run_.training); !fits.ok()) {
      return CannotExpress("sizes do not fit together", fits.message());
    }
    return std::move(run_);
  }

 private:
  std::string Lower(absl::string_view column) const { return absl::AsciiStrToLower(cells_.Text(column)); }

  void SetPace() {
    const bool known = framework_.kernel > Nanos();
    // NeMo's recipes for Grace capture what the CPU would hold up (scripts/performance/recommended_model_configs/
    // model_configs_gb200.csv at v2.3.0, `cuda_graphs`). Around experts the CPU's time is counted from other figures.
    const bool captured = framework_.Is(Sign::kNemo) || run_.model.experts > 1;
    const bool slow = framework_.Is(Sign::kGrace) && !captured;
    const auto paced = [&](Nanos time) { return slow ? FromSeconds(ToSeconds(time) * kGracePace) : time; };
    run_.host.kernel = paced(known ? framework_.kernel : kEagerFramework.kernel);
    run_.host.collective = paced(kEagerFramework.collective);
    if (framework_.Is(Sign::kFsdp)) run_.host.layer_forward = run_.host.layer_backward = paced(kUnitHooks);
    run_.host.step = paced(kOperator);
  }

  // Where a column of the layout is read.
  const CsvCells& LayoutCells() const { return sibling_.has_value() ? *sibling_ : cells_; }

  // An integer from 1, or what to take for an empty cell.
  absl::StatusOr<int64_t> Size(absl::string_view column, int64_t fallback, bool say = true) {
    const CsvCells& cells = IsLentColumn(column) ? LayoutCells() : cells_;
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> value, cells.Int(column, 1));
    if (value.has_value()) return *value;
    if (say) run_.defaults.push_back(absl::StrCat(column, " ", fallback));
    return fallback;
  }

  // All experts are as full as the fullest: its rank is the last to end, and has the most to send and to hold.
  absl::Status ReadImbalance() {
    if (run_.model.experts <= 1) return absl::OkStatus();
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> cell, cells_.Number("expert_imbalance"));
    const std::optional<double> factor = overrides_.expert_imbalance.has_value() ? overrides_.expert_imbalance : cell;
    const double most = static_cast<double>(run_.model.experts) / static_cast<double>(run_.model.experts_per_token);
    const double usual = std::min(UsualImbalance(), most);
    if (!factor.has_value()) run_.defaults.push_back(absl::StrFormat("expert_imbalance %.3g", usual));
    run_.model.capacity_factor = factor.value_or(usual);
    if (run_.model.capacity_factor >= 1 && run_.model.capacity_factor <= most) return absl::OkStatus();
    return CannotExpress("expert_imbalance", absl::StrCat("found ", *factor, ", wanted from 1 to ", most,
                                                          ", where one expert has all tokens"));
  }

  // Where products are padded, those of all experts take as long as that of the fullest.
  double UsualImbalance() const {
    if (!framework_.Is(Sign::kNaturalRouting)) return kEvenRouting;
    const int64_t spread = run_.degrees.expert * (run_.degrees.spread_experts ? run_.degrees.tensor : 1);
    const int64_t ranks = framework_.Is(Sign::kPaddedExperts) ? run_.model.experts : spread;
    const Balance balance = framework_.Is(Sign::kFineTuning)     ? Balance::kTuned
                            : framework_.Is(Sign::kBiasBalanced) ? Balance::kBias
                                                                 : Balance::kLoss;
    return NaturalRouting(run_.model.experts, ranks, balance);
  }

  void ChooseExperts() {
    if (run_.model.experts <= 1) return;
    if (framework_.neighbour_experts) ChooseNeighbours(&run_.model);
    if (framework_.Is(Sign::kToEachRank)) {
      run_.approximations.push_back("all tokens to all ranks with experts, as each to those with one of its experts");
    }
    const int64_t ranks = run_.degrees.expert * run_.degrees.tensor, node = run_.cluster.devices_per_node;
    if (!run_.degrees.spread_experts || framework_.dispatcher == Dispatcher::kAllToAll || ranks <= node) return;
    run_.host.experts.sent_share = ShareSentOnce(run_.model, ranks / node);
    run_.approximations.push_back("a copy of a token for each node, priced on one for each expert");
  }

  // The schedule, and how layers are dealt out to stages.
  void ReadPipeline() {
    const PipelineText text = ReadPipelineText(Lower("other_opts"));
    run_.nanotron = framework_.Is(Sign::kNanotron);
    run_.balanced_stages = framework_.Is(Sign::kNanotron) || text.balanced;
    const int64_t stages = run_.degrees.pipeline;
    if (stages == 1) return;
    run_.schedule = text.schedule;
    if (!text.taken_for_another.empty()) {
      run_.approximations.push_back(absl::StrCat("schedule ", text.taken_for_another, " as ", NameOf(text.schedule)));
      run_.memory_comparable = false;
    }
    if (const std::optional<int64_t> chunks = ChunksOf(text.schedule)) {
      run_.chunks = *chunks;
      run_.most_chunks = false;
    }
    if (!text.layers.empty()) {
      ReadLayout(text.layers);
      return;
    }
    // Megatron-Core refuses parts that are not as large, unless embedding and loss count as layers or a layout is
    // written out (transformer_config.py, TransformerConfig.__post_init__).
    const bool same_parts = framework_.Is(Sign::kTransformerEngine) && run_.model.layers % (stages * run_.chunks) != 0;
    if (!text.ends_count && !same_parts) return;
    run_.ends_count = !LayersWithEnds(run_.model.layers, stages * run_.chunks).empty();
    if (run_.ends_count && !text.ends_count) run_.defaults.push_back("one layer less at both ends");
    if (!run_.ends_count && text.ends_count) run_.approximations.push_back("layers over stages evenly");
  }

  // Megatron-Core makes as many chunks of a stage as the layout's parts give (arguments.py, validate_args).
  void ReadLayout(const std::vector<int64_t>& layers) {
    const int64_t stages = run_.degrees.pipeline, parts = static_cast<int64_t>(layers.size());
    const bool all = std::accumulate(layers.begin(), layers.end(), int64_t{0}) == run_.model.layers;
    // Only the ends may have none: embedding or loss alone.
    const bool empty = parts > 2 && std::find(layers.begin() + 1, layers.end() - 1, 0) != layers.end() - 1;
    if (parts % stages != 0 || !all || empty) {
      run_.approximations.push_back("layers over stages evenly");
      return;
    }
    run_.parts = layers;
    run_.chunks = parts / stages;
    run_.most_chunks = false;
    // What was taken of chunks before is not.
    std::erase_if(run_.defaults, [](const std::string& taken) { return absl::StartsWith(taken, "vpp"); });
  }

  // Megatron-LM's `--num-layers-per-virtual-pipeline-stage`: chunks of a stage that have so many, embedding and loss
  // with them where that divides.
  absl::StatusOr<std::optional<int64_t>> ChunksOfLayers() {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> of_chunk, LayoutCells().Int("layers_per_chunk", 1));
    if (!of_chunk.has_value()) return std::nullopt;
    const int64_t stages = run_.degrees.pipeline;
    for (const int64_t layers : {run_.model.layers, run_.model.layers + 2}) {
      const int64_t chunks = layers / *of_chunk;
      if (layers % *of_chunk == 0 && chunks % stages == 0) return chunks / stages;
    }
    return std::nullopt;
  }

  // Where the source does not say how it split the model, the table takes the fastest way that fits.
  absl::Status ReadDegrees() {
    Degrees& degrees = run_.degrees;
    // FSDP and DistributedDataParallel go without stages, and where nobody says otherwise without tensor parallelism.
    const bool split = framework_.Is(Sign::kFsdp) || framework_.Is(Sign::kZero3) || framework_.Is(Sign::kDdp);
    run_.tensor_given = !LayoutCells().Text("tp").empty() || split;
    run_.pipeline_given = !LayoutCells().Text("pp").empty() || split;
    MESHWRIGHT_ASSIGN_OR_RETURN(degrees.tensor, Size("tp", 1, split));
    MESHWRIGHT_ASSIGN_OR_RETURN(degrees.pipeline, Size("pp", 1, run_.pipeline_given));
    MESHWRIGHT_ASSIGN_OR_RETURN(degrees.context, Size("cp", 1, false));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> chunks, ChunksOfLayers());
    // Megatron overlaps what stages send with interleaved chunks alone (arguments.py, `overlap_p2p_comm`).
    run_.most_chunks = LayoutCells().Text("vpp").empty() && !chunks.has_value() &&
                       (framework_.Is(Sign::kNemo) || framework_.Is(Sign::kStageOverlap));
    const bool say = degrees.pipeline > 1 && !run_.most_chunks && !chunks.has_value();
    MESHWRIGHT_ASSIGN_OR_RETURN(run_.chunks, Size("vpp", chunks.value_or(1), say));
    if (run_.most_chunks && degrees.pipeline > 1) run_.defaults.push_back("vpp: a layer a chunk, where that divides");
    const double parts = static_cast<double>(degrees.pipeline) * static_cast<double>(run_.chunks);
    if (parts > kMostDevices) return CannotExpress("more parts of a model than there are", absl::StrCat(parts));
    ReadPipeline();
    const int64_t most = run_.model.layers + (run_.ends_count ? 2 : 0);
    if (run_.parts.empty() && degrees.pipeline * run_.chunks > most && degrees.pipeline > 1) {
      if (ChunksOf(run_.schedule)) return CannotExpress("fewer layers than parts", NameOf(run_.schedule));
      // Megatron counts embedding and loss as layers where told so (`account_for_embedding_in_pipeline_split`).
      run_.chunks = std::max<int64_t>(1, run_.model.layers / degrees.pipeline);
      run_.approximations.push_back(absl::StrCat("vpp ", run_.chunks, ": there are no more layers"));
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(degrees.expert, Size("ep", 1, false));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> data, LayoutCells().Int("dp", 1));
    const double product = static_cast<double>(degrees.tensor) * static_cast<double>(degrees.pipeline) *
                           static_cast<double>(degrees.context) * static_cast<double>(data.value_or(1));
    if (product > kMostDevices) return CannotExpress("more devices than there are", absl::StrCat(product));
    const int64_t model = degrees.tensor * degrees.pipeline * degrees.context;
    const bool layout_given = run_.tensor_given && run_.pipeline_given;
    int64_t least = data.value_or(1) * model;
    const bool degrees_given = !LayoutCells().Text("tp").empty() && run_.pipeline_given;
    if (!degrees_given && cells_.Text("gpus").empty()) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t devices, DefaultDevices(cells_, overrides_, run_.model));
      least *= std::max<int64_t>(1, (devices + least - 1) / least);
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(gpus_, Size("gpus", least));
    if (static_cast<double>(gpus_) > kMostDevices)
      return CannotExpress("more devices than there are", absl::StrCat(gpus_));
    degrees.data = data.has_value() && layout_given ? *data : std::max<int64_t>(1, gpus_ / model);
    if (degrees.data * model != gpus_) {
      return CannotExpress("dp x tp x pp is not gpus", absl::StrCat(degrees.data * model, " and ", gpus_));
    }
    return ReadExpertRanks();
  }

  absl::Status ReadExpertRanks() {
    Degrees& degrees = run_.degrees;
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> etp, cells_.Int("etp", 1));
    // Megatron counts the ranks of tensor parallelism among those that share experts, where these are not split over
    // them (`expert_tensor_parallel_size` 1), and always those of context parallelism (parallel_state.py, where ranks
    // of experts are laid out without it).
    const int64_t replicas = degrees.data * degrees.context;
    const bool whole = etp.has_value() ? *etp == 1 : replicas % degrees.expert != 0;
    if (degrees.tensor > 1 && whole && degrees.expert % degrees.tensor == 0 &&
        replicas % (degrees.expert / degrees.tensor) == 0 && run_.model.experts % degrees.expert == 0) {
      degrees.expert /= degrees.tensor;
      degrees.spread_experts = true;
    }
    if (degrees.expert > 1 && degrees.data % degrees.expert_data() != 0) {
      const int64_t asked = degrees.expert;
      degrees.expert = std::gcd(asked, replicas);
      if (degrees.data % degrees.expert_data() != 0) degrees.expert = std::gcd(asked, degrees.data);
      run_.approximations.push_back(
          absl::StrCat("experts over the ", degrees.expert, " of those ranks that are replicas"));
    }
    // Transformers' modules have all experts (modeling_mixtral.py), of which FSDP gathers each.
    const bool gathered = framework_.Is(Sign::kHuggingFace) && framework_.Is(Sign::kFsdp);
    run_.experts_given = run_.model.experts <= 1 || !cells_.Text("ep").empty() || gathered;
    return absl::OkStatus();
  }

  // What a step takes where the row has its time and its rate; 0 where it does not, or they make no whole number.
  int64_t RowsOfStep() const {
    constexpr double kRounding = 0.01;
    const auto number = [this](absl::string_view column) {
      return cells_.Number(column).value_or(std::nullopt).value_or(0);
    };
    const double all = number("tokens_per_s_total"), each = number("tokens_per_s_per_gpu");
    const double rate = all > 0 ? all : each * static_cast<double>(run_.cluster.num_devices());
    const double rows = rate * number("step_time_s") / static_cast<double>(run_.training.sequence);
    const bool whole = std::round(rows) >= 1 && std::abs(rows / std::round(rows) - 1) < kRounding;
    return whole && rows < 1e9 ? std::llround(rows) : 0;
  }

  absl::Status ReadBatch() {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> batch, cells_.Int("global_batch_seqs", 1));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> micro, LayoutCells().Int("micro_batch_seqs", 1));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> passes, cells_.Int("grad_accum", 1));
    const int64_t data = run_.degrees.data;
    if (batch.has_value()) {
      run_.training.batch = *batch;
    } else if (micro.has_value() && (passes.has_value() || run_.degrees.pipeline == 1)) {
      run_.training.batch = *micro * data * passes.value_or(1);
      run_.defaults.push_back(absl::StrCat("global_batch_seqs ", run_.training.batch));
    } else if (const int64_t rows = RowsOfStep(); rows > 0) {
      run_.training.batch = rows;
      run_.defaults.push_back(absl::StrCat("global_batch_seqs ", rows, " by tokens a second and time"));
    } else {
      run_.training.batch = DefaultBatch(NumParameters(run_.model), run_.training.sequence, data);
      run_.defaults.push_back(absl::StrCat("global_batch_seqs ", run_.training.batch));
    }
    if (micro.has_value()) {
      run_.degrees.microbatch = *micro;
    } else if (passes.has_value() && run_.training.batch % (data * *passes) == 0) {
      run_.degrees.microbatch = run_.training.batch / (data * *passes);
    } else {
      run_.microbatch_given = false;
    }
    const bool layout_given = run_.tensor_given && run_.pipeline_given;
    const int64_t unit = data * run_.degrees.microbatch, rows = NearMultiple(run_.training.batch, unit);
    if (!layout_given || rows == run_.training.batch) return absl::OkStatus();
    if (rows == 0) {
      return CannotExpress("the batch does not divide",
                           absl::StrCat(run_.training.batch, " over ", data, " x ", run_.degrees.microbatch));
    }
    run_.approximations.push_back(absl::StrCat("global_batch_seqs ", rows, ", a multiple of ", unit));
    run_.training.batch = rows;
    return absl::OkStatus();
  }

  // Examples become rows of their own: everything but attention takes as long. As many as divide a row, and no longer
  // than they are.
  absl::Status UnpackExamples() {
    if (overrides_.model.has_value()) return absl::OkStatus();  // a plan's rows are as its user has them
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> told, cells_.Int("example_tokens", 1));
    if (!framework_.packs_examples || !run_.microbatch_given) return absl::OkStatus();
    if (!told.has_value() && run_.training.sequence % kPackedExample != 0) return absl::OkStatus();
    int64_t tokens = std::min(told.value_or(kPackedExample), run_.training.sequence);
    while (run_.training.sequence % tokens != 0) --tokens;
    const int64_t examples = run_.training.sequence / tokens;
    run_.packed = true;
    run_.training.sequence = tokens;
    run_.training.batch *= examples;
    run_.degrees.microbatch *= examples;
    run_.approximations.push_back(absl::StrCat("rows of packed examples as examples of ", tokens, " tokens"));
    return absl::OkStatus();
  }

  // Of all examples of a micro-batch, of which each rank has a part where contexts are shared.
  absl::Status TurnPositions() {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> tokens, cells_.Int("example_tokens", 1));
    if (!framework_.Is(Sign::kSlicedPositions) || run_.host.kernel == Nanos()) return absl::OkStatus();
    const int64_t examples = run_.training.sequence * run_.degrees.microbatch / tokens.value_or(kPackedExample);
    run_.host.layer_forward += kOperator * (examples * kPositionSteps.forward);
    run_.host.layer_backward += kOperator * (examples * kPositionSteps.backward);
    return absl::OkStatus();
  }

  void ReadAttention() {
    run_.training.fused_attention = framework_.fused_attention;
    run_.training.fused_loss = framework_.fused_loss;
    run_.training.fused_norms = framework_.fused_norms;
    run_.fused_ops = framework_.fused_ops;
    if (!framework_.names_attention) {
      run_.approximations.push_back(absl::StrCat("attention \"", cells_.Text("attention"), "\" as ",
                                                 framework_.fused_attention ? "fused" : "unfused"));
    } else if (cells_.Text("attention").empty()) {
      run_.defaults.push_back(framework_.fused_attention ? "attention fused" : "attention unfused");
    }
    run_.cluster.device.kernels.misaligned_attention = framework_.misaligned_attention;
    // A device without the named kernel keeps the one it has.
    if (!framework_.attention.empty()) {
      SetClusterKey("attention", framework_.attention, &run_.cluster).IgnoreError();
    }
  }

  // Those that Transformers' Trainer turns on (`gradient_checkpointing`) are reentrant and around FSDP's units, which
  // gather for forward, for forward again and for backward (transformers issue 30404 and its pull 31578, which warns of
  // it; pytorch issue 105635).
  bool CheckpointsHoldUnits() const { return framework_.Is(Sign::kAccelerate) && framework_.Is(Sign::kPyTorchFsdp); }

  void ReadRecompute() {
    // Checkpoints of Megatron and DeepSpeed run the layer again. Those of PyTorch that FSDP goes with (not reentrant,
    // since 2.1) stop when backward has what it reads.
    const bool pytorch = framework_.Is(Sign::kFsdp) || framework_.Is(Sign::kGathersEach);
    const bool stops = pytorch && framework_.checkpoints_stop && !CheckpointsHoldUnits();
    std::string text = Lower("recompute");
    if (text.empty()) {
      run_.defaults.push_back(framework_.recomputes ? "recompute full" : "recompute none");
      if (framework_.recomputes) text = "full";
    }
    const RecomputeText read = ReadRecomputeText(text, run_.model.layers, run_.model.experts > 1);
    run_.recompute = read.recompute == Recompute::kLayer && stops ? Recompute::kFull : read.recompute;
    run_.recompute_ops = read.ops;
    // Megatron-LM's is attention's core alone (arguments.py, `recompute_modules`; Korthikanti et al. 2022, section 5).
    if (read.recompute == Recompute::kSelective && framework_.HasMegatronLayers()) {
      run_.recompute = Recompute::kNone;
      run_.recompute_ops = {"attention"};
    }
    run_.recompute_more = read.more;
    run_.recompute_share = read.share;
    if (read.some_layers) {
      run_.approximations.push_back("recompute of some layers: the mean of all and none, weighted");
    }
    if (read.known) return;
    run_.approximations.push_back(absl::StrCat("recompute \"", text, "\" as none"));
    run_.memory_comparable = false;
  }

  // As Megatron-LM and NeMo do it unless told otherwise: keys and values go round (cp_comm_type: p2p).
  absl::Status SplitContext() {
    const int64_t context = run_.degrees.context;
    if (context == 1) return absl::OkStatus();
    if (!run_.training.fused_attention) return CannotExpress("context parallelism without fused attention", "cp");
    if (run_.training.sequence % (2 * context) != 0) {
      return CannotExpress("the sequence does not divide",
                           absl::StrCat(run_.training.sequence, " over ", 2 * context, " pieces"));
    }
    // Keys that go round have no windows, here and in Transformer Engine (cp_comm_type all_gather or a2a).
    const bool windows = run_.model.sliding_window > 0 && run_.model.sliding_window < run_.training.sequence;
    run_.degrees.exchange = windows ? ContextExchange::kAllGather : ContextExchange::kRing;
    if (HasAny(Lower("other_opts"), {"ulysses", "head all-to-all"})) {
      run_.approximations.push_back("heads exchanged for tokens as keys and values that go round");
    }
    return absl::OkStatus();
  }

  void ReadSharding() {
    const std::string sequence = Lower("seq_parallel");
    // Where the cell is empty: usual where attention is fused, unknown before. GPT-NeoX has it since August 2024, and
    // only where told so (neox_args.py); DeepSpeed's own tensor parallelism does without (its module_inject/layers.py:
    // all-reduces).
    const bool without =
        framework_.Is(Sign::kNeox) || (framework_.Is(Sign::kDeepSpeed) && !framework_.HasMegatronLayers());
    const bool usual = run_.training.fused_attention && !without;
    const bool says_yes = SaysYes(sequence) || HasAny(sequence, {"yes", "true", "1"});
    run_.sequence_parallel = sequence.empty() ? usual : says_yes;
    Degrees& degrees = run_.degrees;
    const bool divides = !sequence.empty() || run_.training.sequence % degrees.tensor == 0;
    degrees.sequence_parallel = degrees.tensor > 1 && run_.sequence_parallel && divides;
    if (sequence.empty() && degrees.tensor > 1) {
      run_.defaults.push_back(absl::StrCat("seq_parallel ", degrees.sequence_parallel ? "yes" : "no"));
    } else if (degrees.tensor > 1 && !says_yes && !SaysNo(sequence) && sequence != "none" && sequence != "0") {
      run_.approximations.push_back(absl::StrCat("seq_parallel \"", sequence, "\" as no"));
    }
    run_.early_nccl = framework_.early_nccl;
    run_.expert_loop = framework_.Is(Sign::kExpertLoop);
    run_.early_context = framework_.Is(Sign::kUnfused);
    run_.copies = CopiesOf(run_, framework_, IsModernFamily(cells_.Text("model")));
    if (framework_.eager) run_.host.optimizer_bytes = UpdateBytes(framework_, run_);
    if (framework_.eager) AddInputGradients(framework_, run_.model, degrees.tensor, &run_.host);
    const double steps = static_cast<double>(kOperator.raw()) * framework_.update_steps;
    if (run_.host.kernel > Nanos()) run_.host.update = Nanos(std::llround(steps));
    run_.updates = !framework_.Is(Sign::kNoUpdate);
    if (degrees.data * degrees.context == 1) return;
    run_.call_each_tensor = framework_.calls_each_tensor;
    run_.reduces_afterwards = framework_.reduces_afterwards;
    run_.bucket = std::max(framework_.bucket, framework_.bucket_of_replica * degrees.data * degrees.context);
    if (zero_.empty()) {
      run_.parallel_optimizer = true;
      run_.defaults.push_back("zero_fsdp ZeRO-1");
      return;
    }
    const bool own = framework_.Is(Sign::kBf16Optimizer);
    if (framework_.Is(Sign::kUnsharded) && !own) return;
    run_.parallel_optimizer = true;
    if (!SaysSharding(zero_)) {
      run_.approximations.push_back(absl::StrCat("zero_fsdp \"", cells_.Text("zero_fsdp"), "\" as ZeRO-1"));
    }
    const bool second = framework_.Is(Sign::kZero2);
    if (second) {
      run_.approximations.push_back("ZeRO-2 as ZeRO-1");
    } else if (framework_.keeps_whole && (degrees.pipeline > 1 || run_.model.experts > 1)) {
      run_.defaults.push_back("parameters gathered and gradients reduced once a step");
    } else if (framework_.Is(Sign::kZero3) || framework_.Is(Sign::kFsdp)) {
      run_.shard_parameters = true;
      if (framework_.Is(Sign::kHsdp)) ReadGroups();
    } else if (framework_.Is(Sign::kZeroGroups)) {
      run_.groups = true;
      run_.approximations.push_back("optimizer split over all replicas");
      run_.memory_comparable = false;
    }
  }

  // Replicas of a node share where the row does not say how many do.
  void ReadGroups() {
    const Degrees& degrees = run_.degrees;
    const int64_t ranks = degrees.data * degrees.context;
    const int64_t node = std::max<int64_t>(1, run_.cluster.devices_per_node / degrees.tensor);
    const int64_t group = RanksThatShare(zero_, ranks).value_or(std::min(node, ranks));
    if (group > 0 && ranks % group == 0 && group % (degrees.context * degrees.expert_data()) == 0) {
      run_.degrees.copies = ranks / group;
    } else {
      run_.approximations.push_back("parameters split over all replicas");
      run_.memory_comparable = false;
    }
  }

  const CsvCells& cells_;
  const RowOverrides& overrides_;
  const std::string zero_;                 // ShardingText
  const std::optional<CsvCells> sibling_;  // whose layout it takes
  Framework framework_;
  TrainingRun run_;
  int64_t gpus_ = 1;
};

}  // namespace

absl::StatusOr<TrainingRun> ReadTrainingRun(const CsvCells& cells, const RowOverrides& overrides) {
  return RunReader(cells, overrides).Read();
}

}  // namespace meshwright
