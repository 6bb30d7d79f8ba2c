#include "tools/validate/framework_memory.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "costmodel/memory_overheads.h"
#include "ir/dtype.h"
#include "ir/program.h"
#include "planner/schedule.h"

namespace meshwright {
namespace {

constexpr double kAdamStateBytes = 8;  // two moments in float32
constexpr double kMasterBytes = 4;     // weights in float32, beside those in 16 bits

double Number(int64_t n) { return static_cast<double>(n); }

double SizeOfWeights(const TrainingRun& run) { return Number(SizeOf(run.training.dtype).raw()); }

double BytesOf(const Prediction& prediction, BufferRole role) {
  return Number(prediction.memory[static_cast<size_t>(role)].raw());
}

double TokensOf(const TrainingRun& run) {
  return Number(run.degrees.microbatch * run.training.sequence) / Number(run.degrees.context);
}

double LayersOf(const TrainingRun& run) { return Number(run.model.layers) / Number(run.degrees.pipeline); }

// Parameters whose optimizer state the rank owns.
double OwnedOf(const Prediction& prediction) {
  return BytesOf(prediction, BufferRole::kOptimizerState) / kAdamStateBytes;
}

double RanksThatSplit(const TrainingRun& run) {
  return Number(run.degrees.data * run.degrees.context / run.degrees.copies);
}

// Elements of an embedding's part.
double EmbeddingOf(const TrainingRun& run) {
  return Number(run.model.vocab) * Number(run.model.hidden) / Number(run.degrees.tensor);
}

// Of embedding and head, what the first or the last stage has; in elements.
double EndsOf(const TrainingRun& run) {
  return EmbeddingOf(run) * (run.model.tied_embeddings || run.degrees.pipeline > 1 ? 1 : 2);
}

// By how much a weight of a layer is narrower than other parameters.
double NarrowerWeights(const TrainingRun& run) {
  return SizeOfWeights(run) - Number(SizeOf(run.training.TypeOfWeights()).raw());
}

double ParametersOf(const TrainingRun& run, const Prediction& prediction) {
  const double bytes = BytesOf(prediction, BufferRole::kParameter), less = NarrowerWeights(run);
  const double ends = std::min(bytes / SizeOfWeights(run), EndsOf(run));
  return (bytes - less * ends) / (SizeOfWeights(run) - less);
}

// Of the rank's pieces of parameters, as many elements as of their gradients, that lie inside of the program's whole
// ones: none where replicas divide no parameter, whose rank then owns all, and of experts none that could be told.
double PiecesOf(const TrainingRun& run, const Prediction& prediction) {
  if (!run.parallel_optimizer || run.shard_parameters || run.frozen || run.degrees.expert > 1) return 0;
  constexpr double kFewestReplicas = 2;
  const double owned = OwnedOf(prediction);
  return ParametersOf(run, prediction) < owned * (1 + kFewestReplicas) / 2 ? 0 : owned;
}

// Logits of a token.
double ClassesOf(const TrainingRun& run) { return Number(run.model.classes > 0 ? run.model.classes : run.model.vocab); }

// Micro-batches that the first stage has under way at most, of all its layers.
double UnderWay(const Strategy& strategy) {
  if (strategy.stages == 1) return 1;
  const std::vector<Pass> passes =
      PassesOfStage(strategy.schedule, 0, strategy.stages, strategy.microbatches, strategy.chunks);
  return Number(MaxInFlightTogether(passes)) / Number(strategy.chunks);
}

// Experts that a token is sent to, and the width of all that it goes through.
double ExpertsOf(const TrainingRun& run) { return run.model.experts > 1 ? Number(run.model.experts_per_token) : 1; }
double WidthOfToken(const TrainingRun& run) {
  return ExpertsOf(run) * Number(run.model.ffn) + Number(run.model.shared_expert_ffn);
}

bool RunsLayersAgain(const TrainingRun& run) {
  return run.recompute == Recompute::kFull || run.recompute == Recompute::kLayer;
}

// What autograd keeps of a layer's split norms and gates, and of dropout, of a micro-batch.
double SplitStepsOfLayer(const TrainingRun& run) {
  const Degrees& d = run.degrees;
  const double tensor = Number(d.tensor), hidden = Number(run.model.hidden);
  const bool gates_again = run.recompute_ops.count("activation") > 0,
             norms_again = run.recompute_ops.count("norm1") > 0;
  const double token = (norms_again ? 0 : run.copies.norms) * hidden / (d.sequence_parallel ? tensor : 1) +
                       ((d.microbatch > 1 ? run.copies.turned_heads : 0) + run.copies.keys) *
                           Number(run.model.heads * run.model.head_dim) / tensor +
                       run.copies.scores * Number(run.model.heads) * Number(run.training.sequence) / tensor +
                       (gates_again ? 0 : run.copies.gates) * WidthOfToken(run) / tensor + run.copies.adapted / tensor;
  return token * TokensOf(run);
}

// Micro-batches under way on the fullest stage: on the first, or where logits weigh more than all but one of these, on
// the last, which has one.
double UnderWayOnFullest(const TrainingRun& run, const Strategy& strategy) {
  const double tensor = Number(run.degrees.tensor), hidden = Number(run.model.hidden);
  const double under_way = UnderWay(strategy);
  constexpr double kLayerBytes = 37, kLogitBytes = 6;  // a token: of each hidden element, of each logit
  const double others = (under_way - 1) * LayersOf(run) * kLayerBytes * hidden / tensor;
  return kLogitBytes * ClassesOf(run) / tensor > others ? 1 : under_way;
}

// The same of all layers.
double SplitStepsOf(const TrainingRun& run, const Strategy& strategy) {
  if (RunsLayersAgain(run)) return 0;
  return UnderWayOnFullest(run, strategy) * LayersOf(run) * SplitStepsOfLayer(run);
}

// What experts make of the tokens that they got, which the program keeps for the gradient of its weights, where those
// come into an expert's activation instead.
double ResultsOfExperts(const TrainingRun& run, const Strategy& strategy) {
  const DecoderConfig& model = run.model;
  const bool kept = !RunsLayersAgain(run) && run.recompute_ops.count("mlp2") == 0;
  if (!run.copies.weighs_inside || model.experts <= 1 || !kept) return 0;
  const double width = Number(model.expert_hidden > 0 ? model.expert_hidden : model.hidden);
  // Where a rank has a part of each expert, the program has the sum of all parts on each.
  const double tensor = run.degrees.spread_experts ? Number(run.degrees.tensor) : 1;
  const double slots = model.capacity_factor * ExpertsOf(run) * TokensOf(run) / tensor;
  const double layers = Number(ExpertLayers(model)) / Number(run.degrees.pipeline);
  return UnderWayOnFullest(run, strategy) * layers * slots * width * SizeOfWeights(run);
}

// What state spaces keep less where a kernel makes the convolution of values, keys and queries once more, and gates the
// result, which is as wide as the values and what the norm behind it reads.
double ConvolutionsOf(const TrainingRun& run, const Strategy& strategy) {
  const LinearAttentionConfig& linear = run.model.linear_attention;
  const bool spaces = linear.value_heads > 0 && linear.form == LinearForm::kStateSpace;
  if (!run.copies.scans_again || !spaces || RunsLayersAgain(run)) return 0;
  const double width = 2 * Number(linear.key_heads * linear.key_dim) / Number(run.degrees.tensor);
  const double layers = Number(CountLayers(run.model).linear) / Number(run.degrees.pipeline);
  return UnderWayOnFullest(run, strategy) * layers * width * SizeOfWeights(run) * TokensOf(run);
}

// A program has places for as many micro-batches of each chunk as are ever under way through it; a caching allocator's
// blocks serve all chunks, whose peaks are at different times: what is under way at once, of the sum of those places.
// The first stage's, which has the most.
double ShareUnderWay(const Strategy& strategy) {
  if (strategy.chunks == 1) return 1;
  const std::vector<Pass> passes =
      PassesOfStage(strategy.schedule, 0, strategy.stages, strategy.microbatches, strategy.chunks);
  int64_t places = 0;
  for (int64_t chunk = 0; chunk < strategy.chunks; ++chunk) places += MaxInFlight(passes, chunk);
  return Number(MaxInFlightTogether(passes)) / Number(places);
}

// Pieces of parameters and of gradients beside the whole ones, inside of which the program has them.
double PiecesBeside(const TrainingRun& run, const Prediction& prediction) {
  const double gradient = Number(SizeOf(run.gradient_dtype).raw());
  return PiecesOf(run, prediction) *
         ((run.copies.shards ? SizeOfWeights(run) : 0) + (run.copies.pieces ? gradient : 0));
}

// What the program has twice: the sum of a tied embedding's gradients beside the stage's own, which frameworks sum in
// place.
double DoneInPlace(const TrainingRun& run) {
  if (!run.model.tied_embeddings || run.degrees.pipeline == 1 || run.frozen) return 0;
  return EmbeddingOf(run) * Number(SizeOf(run.gradient_dtype).raw());
}

// The largest block that the passes through the layers leave behind: a wide product's result, or the loss's logits.
double LargestBlock(const TrainingRun& run) {
  const double gated = IsGated(run.model.activation) ? 2 : 1;
  const double wide = gated * SizeOfWeights(run) * Number(run.model.ffn);
  const double logits = run.degrees.pipeline == 1 ? 4 * ClassesOf(run) : 0;
  return std::max(wide, logits) * TokensOf(run) / Number(run.degrees.tensor);
}

// Parameters gathered through lists of tensors: the flat buffer of the call, a rank's own part flattened, and the list,
// which finds a place in what the layers left where its tensors are small enough.
double ListsOf(const TrainingRun& run, const Prediction& prediction) {
  if (!run.copies.gathers_lists) return 0;
  const double part = PiecesOf(run, prediction) * SizeOfWeights(run);
  const double whole = part * Number(run.degrees.data);
  return whole + part + (part > LargestBlock(run) ? whole : 0);
}

// What is outside of the arena in `prediction`, of communicators.
Bytes CommunicatorsIn(const Prediction& prediction) {
  for (const auto& [what, bytes] : prediction.outside) {
    if (what == "communicators") return bytes;
  }
  return Bytes();
}

// Elements of logits of a micro-batch on the stage that has the head.
double LogitsOf(const TrainingRun& run) { return TokensOf(run) * ClassesOf(run) / Number(run.degrees.tensor); }

// Of a logit, what the program has at the loss alone.
double LossPassing(const TrainingRun& run) { return run.training.fused_loss ? kFusedLossPassing : kSplitLossPassing; }

// Whether the program's temporaries are most at the loss, where there are besides what the head reads and its gradient.
bool AtLoss(const TrainingRun& run, const Prediction& prediction) {
  const double hidden = TokensOf(run) * SizeOfWeights(run) * Number(run.model.hidden);
  return BytesOf(prediction, BufferRole::kTemporary) <= LossPassing(run) * LogitsOf(run) + 2 * hidden;
}

// What the loss holds beside the program's. Of one stage, what the program has at the loss alone may be less than what
// it has in a layer that is run again, at another time.
double LossBeside(const TrainingRun& run, const Prediction& prediction) {
  const double logits = LogitsOf(run), each = run.copies.logits;
  const double passing = LossPassing(run);
  const double most = BytesOf(prediction, BufferRole::kTemporary);
  // Of several stages the fullest need not be the last.
  if (run.degrees.pipeline > 1) return each > 0 || most >= passing * logits ? each * logits : 0;
  if (each >= 0) return std::max(0.0, (passing + each) * logits - std::max(most, passing * logits));
  return (AtLoss(run, prediction) ? each : std::min(0.0, each + passing)) * logits;
}

// What a layer's backward pass has for itself, about: a gradient of each wide product's result, and of a layer that is
// run again what it keeps: both norms' inputs and results, queries, keys and values, attention's result, those of the
// wide products and of the activation, and what goes to each of a token's experts and comes from it.
double LayerPassing(const TrainingRun& run) {
  const DecoderConfig& model = run.model;
  const double gated = IsGated(model.activation) ? 2 : 1;
  const double wide = WidthOfToken(run);
  double elements = gated * wide;
  if (RunsLayersAgain(run)) {
    const double heads = Number((model.heads + model.kv_heads) * (ScoreWidth(model) + ValueWidth(model)));
    elements += 4 * Number(model.hidden) + heads + (gated + 1) * wide;
    if (model.experts > 1) elements += 2 * ExpertsOf(run) * Number(model.hidden);
  }
  return elements * SizeOfWeights(run) * TokensOf(run) / Number(run.degrees.tensor);
}

// Of parameters or gradients, what a rank has whole for a while where ranks hold parts: the embedding and the head,
// which FSDP keeps gathered from the forward pass on, and the layers under way.
struct Passing {
  double ends = 0, layers = 0;
  double Sum() const { return ends + layers; }
};
Passing PassingOf(const TrainingRun& run, const Prediction& prediction, BufferRole role, double width) {
  if (!run.shard_parameters || run.frozen) return {};  // LessOfFrozen has those
  const double owned = OwnedOf(prediction);
  const double narrower = role == BufferRole::kParameter ? NarrowerWeights(run) : 0;
  const double parts = owned * width - narrower * std::max(0.0, owned - EndsOf(run) / RanksThatSplit(run));
  const double all = std::max(0.0, BytesOf(prediction, role) - parts);
  const double ends = std::min(all, (run.model.tied_embeddings ? 1 : 2) * EmbeddingOf(run) * width);
  return {ends, all - ends};
}

// Of an embedding that each rank has whole, what the program has of the other ranks' parts: the weights, their gradient
// and the state of the optimizer, of which replicas own parts.
double WholeTableOf(const TrainingRun& run) {
  if (!run.copies.whole_table || run.degrees.tensor == 1) return 0;
  const double others = EmbeddingOf(run) * Number(run.degrees.tensor - 1);
  const double gradient = std::max(run.copies.sum, Number(SizeOf(run.gradient_dtype).raw()));
  const double ranks = run.shard_parameters || run.parallel_optimizer ? RanksThatSplit(run) : 1;
  return others * (SizeOfWeights(run) + gradient + (kMasterBytes + kAdamStateBytes + run.copies.owned) / ranks);
}

// Of experts that replicas do not split, what the program has split: gradient and state; of weights that it gathers and
// keeps (FSDP's ZeRO-2) it has a part too much instead.
double WholeExpertsOf(const TrainingRun& run) {
  if (!run.copies.whole_experts || run.frozen || Number(run.degrees.expert) >= RanksThatSplit(run)) return 0;
  const DecoderConfig& model = run.model;
  const double gated = IsGated(model.activation) ? 3 : 2;
  const double experts = LayersOf(run) * Number(model.experts) / Number(run.degrees.expert);
  const double local = gated * experts * Number(model.hidden) * Number(model.ffn);
  const double part = local * Number(run.degrees.expert) / RanksThatSplit(run);
  const double gradient = Number(SizeOf(run.gradient_dtype).raw());
  return (local - part) * (gradient + kMasterBytes + kAdamStateBytes + run.copies.owned) -
         (run.copies.shards ? part * SizeOfWeights(run) : 0);
}

// Of a tied embedding that the last stage has, too, the masters and moments: frameworks have a parameter of its own
// there, which its optimizer updates (Megatron-LM's initialize_word_embeddings, DeepSpeed's TiedLayerSpec), where
// programs send what the first stage updated. Of the last stage where the loss tells that it is the fullest.
double TiedStateOf(const TrainingRun& run, const Prediction& prediction) {
  if (!run.model.tied_embeddings || run.degrees.pipeline == 1 || run.frozen) return 0;
  if (BytesOf(prediction, BufferRole::kTemporary) < LossPassing(run) * LogitsOf(run)) return 0;
  const double ranks = run.shard_parameters || run.parallel_optimizer ? RanksThatSplit(run) : 1;
  return EmbeddingOf(run) * (kMasterBytes + kAdamStateBytes + run.copies.owned) / ranks;
}

// What a layer that is run again has beside what the program has of it.
double StepsAgain(const TrainingRun& run) {
  if (!RunsLayersAgain(run)) return 0;
  const int64_t width = ScoreWidth(run.model) + ValueWidth(run.model);
  const double keys = Number(run.model.kv_heads * width) * SizeOfWeights(run) * TokensOf(run);
  const bool splits = run.copies.gathered_keys && run.degrees.context > 1;
  const double gathered = splits ? keys * Number(run.degrees.context) : 0;
  return SplitStepsOfLayer(run) + gathered;
}

// What is not there at once of what the program has, of which the passes keep `kept`. A step takes most at the loss,
// behind the head's backward pass, in the first layer's, at the embedding's, or in the update; a program's arena is the
// sum.
double NotAtOnce(const TrainingRun& run, const Prediction& prediction, double kept) {
  const FrameworkCopies& copies = run.copies;
  const double width = Number(SizeOf(run.gradient_dtype).raw());
  const Passing gathered = PassingOf(run, prediction, BufferRole::kParameter, SizeOfWeights(run));
  const Passing passing = PassingOf(run, prediction, BufferRole::kGradient, width);
  // Without the whole ones of those who have pieces instead, which FrameworkCopies::whole takes away.
  const double whole = copies.pieces ? ParametersOf(run, prediction) - PiecesOf(run, prediction) : 0;
  const double all = std::max(0.0, BytesOf(prediction, BufferRole::kGradient) - passing.Sum() - whole * width);
  const double narrow = copies.narrow_passing ? SizeOfWeights(run) / width : 1;
  const double owned = OwnedOf(prediction);
  const double updated = copies.updated_at_once > 0 ? std::min(owned, copies.updated_at_once) : owned;
  const double update = updated * copies.update - gathered.Sum();
  const double sum = kept + all + passing.Sum();

  const double temporary = BytesOf(prediction, BufferRole::kTemporary);
  const bool at_loss = AtLoss(run, prediction);
  const double of_layer = (at_loss ? std::min(temporary, LayerPassing(run)) : temporary) + StepsAgain(run);
  const double loss = LogitsOf(run) * (copies.logits + (run.training.fused_loss ? kFusedLossBytes : kSplitLossBytes));
  if (copies.sum > 0 || !copies.fresh_gradients) {
    const double again = std::max(0.0, StepsAgain(run) > 0 ? of_layer - (at_loss ? loss : temporary) : 0);
    const double passed = copies.sum > 0 ? 0 : narrow * passing.Sum();
    return std::max(kept + again + all + passed, all + update) - sum;
  }
  const double gradients = copies.one_gradient ? EmbeddingOf(run) * width : all;
  const double forward = at_loss ? std::max(kept - gathered.layers, kept - loss + of_layer)
                                 : kept - std::min(loss, gathered.layers) + StepsAgain(run);
  // The head's gradient is made beside that of the logits, and the embedding's beside the head's where they are one
  // parameter, which autograd sums (input_buffer.cpp, accumulate).
  const double table = run.frozen ? 0 : EmbeddingOf(run) * SizeOfWeights(run);
  const double head = kept - gathered.layers - std::max(0.0, loss - SizeOfWeights(run) * LogitsOf(run)) + table;
  const double twice = run.model.tied_embeddings ? table : 0;
  return std::max({forward, head, gradients + (narrow * passing.layers - gathered.layers) / 2 + of_layer - temporary,
                   gradients + narrow * passing.ends + twice - gathered.layers - temporary,
                   gradients + update - temporary}) -
         sum;
}

// What frozen layers take less than the program has of them, which are as wide as products read them: where they are
// quantized or in the host's memory. Where ranks have parts of them, two layers are whole beside these; embeddings and
// head are neither.
double LessOfFrozen(const TrainingRun& run, const Prediction& prediction) {
  if (!run.frozen) return 0;
  const double ends = EndsOf(run), weight = SizeOfWeights(run) - NarrowerWeights(run);
  // Experts are on a part of the replicas as it is.
  const bool parts = run.shard_parameters && run.degrees.expert == 1;
  const double ranks = parts ? RanksThatSplit(run) : 1;
  const double whole = std::min(1.0, 2 / LayersOf(run));
  const double program = ranks > 1 ? 1 / ranks + whole : 1;
  const double layers = std::max(0.0, ParametersOf(run, prediction) - ends) / program;
  const double held = (run.copies.host_weights ? 0 : (1 - whole) / ranks) + whole;
  const double size = run.quantized ? kQuantizedWeightBytes : weight;
  const double wider = run.copies.wide_rest ? ends * SizeOfWeights(run) : 0;
  return layers * (program * weight - held * size - run.copies.flat_gradients) - wider;
}

// What adapters take with their gradients and their optimizer's state, of which ranks have parts where they have parts
// of the weights.
double AdaptersOf(const TrainingRun& run) {
  const double ranks = run.shard_parameters ? RanksThatSplit(run) : 1;
  const double adapters = run.adapters + run.expert_adapters / Number(run.degrees.expert);
  return adapters * run.copies.adapters / ranks / Number(run.degrees.tensor * run.degrees.pipeline);
}

// What is on the host of weights that train, where ranks have parts: those, their gradients and state (PyTorch's
// CPUOffloadPolicy).
double OnHost(const TrainingRun& run, const Prediction& prediction) {
  if (!run.copies.host_weights || run.frozen || !run.shard_parameters) return 0;
  const double gradient = Number(SizeOf(run.gradient_dtype).raw());
  return OwnedOf(prediction) *
         (SizeOfWeights(run) + gradient + kMasterBytes + kAdamStateBytes + std::min(0.0, run.copies.owned));
}

// The inputs of a layer's two wide products as tensor parallelism gathered them, where the program has the rank's part.
double GatheredOf(const TrainingRun& run) {
  if (!run.copies.gathered_inputs || !run.degrees.sequence_parallel) return 0;
  const double others = 1 - 1 / Number(run.degrees.tensor);
  return 2 * others * LayersOf(run) * SizeOfWeights(run) * TokensOf(run) * Number(run.model.hidden);
}

}  // namespace

Bytes GroupBytes(const TrainingRun& run, const Prediction& prediction) {
  const Degrees& d = run.degrees;
  const Cluster& cluster = run.cluster;
  const int64_t node = cluster.devices_per_node;
  int64_t inside = 1;
  Bytes bytes;
  int64_t splits = 0;
  for (const int64_t ranks : {d.tensor, d.data * d.context, d.pipeline}) {
    const CommunicatorUse use = {ranks, std::clamp<int64_t>(node / inside, 1, ranks), true, false, run.early_nccl};
    bytes += CommunicatorBytes(use, cluster);
    inside *= ranks;
    splits += ranks > 1 ? 1 : 0;
  }
  if (splits > 1) {
    const auto over = [&](int64_t ranks) {
      const CommunicatorUse use = {ranks, std::min(node, ranks), true, false, run.early_nccl};
      bytes += CommunicatorBytes(use, cluster);
    };
    over(inside);
    if (d.tensor > 1 && d.pipeline > 1) over(d.tensor * d.pipeline);
    if (run.copies.node_group && node < inside) over(node);
  }
  bytes = std::max(Bytes(), bytes - CommunicatorsIn(prediction));
  // The program's own workspace is among those that HeldBesideArena has.
  if (run.copies.workspaces > 0) bytes -= WorkspaceBytes(cluster);
  return run.early_context ? bytes + kEarlyContextBytes - kContextBytes : bytes;
}

Bytes HeldBesideArena(const TrainingRun& run, const Strategy& strategy, const Prediction& prediction) {
  const double parameters = ParametersOf(run, prediction);
  const double whole = parameters * run.copies.whole + std::max(0.0, parameters - EndsOf(run)) * run.copies.weights;
  const double owned = OwnedOf(prediction) * (run.copies.owned + RanksThatSplit(run) * run.copies.sum);
  const double saved =
      BytesOf(prediction, BufferRole::kActivation) * ((1 + run.copies.activations) * ShareUnderWay(strategy) - 1);
  double steps = SplitStepsOf(run, strategy) + GatheredOf(run) + LossBeside(run, prediction);
  steps -= ResultsOfExperts(run, strategy) + ConvolutionsOf(run, strategy);
  if (run.copies.offloads && RunsLayersAgain(run)) {
    steps -= LayersOf(run) * TokensOf(run) * SizeOfWeights(run) * Number(run.model.hidden);
  }
  const double kept = BytesOf(prediction, BufferRole::kActivation) + saved + steps;
  const double not_at_once = NotAtOnce(run, prediction, kept);
  const double tables = WholeTableOf(run) + TiedStateOf(run, prediction) + WholeExpertsOf(run);
  const double less = DoneInPlace(run) + LessOfFrozen(run, prediction) + OnHost(run, prediction);
  return Bytes(std::llround(whole + PiecesBeside(run, prediction) + owned + saved + steps + tables + not_at_once +
                            AdaptersOf(run) - less)) +
         WorkspaceBytes(run.cluster) * run.copies.workspaces;
}

Bytes CachedBesideArena(const TrainingRun& run, const Prediction& prediction) {
  const double room = Number((prediction.capacity - prediction.peak).raw());
  if (room <= 0) return Bytes();
  if (!run.copies.gathers_lists) {
    if (!run.copies.caches) return Bytes();
    const double slack = Number(prediction.arena.raw()) * kAllocatorSlack;
    return Bytes(std::llround(std::min(room, slack + Number(run.copies.buckets.raw()))));
  }
  const Degrees& d = run.degrees;
  const double lists = ListsOf(run, prediction);
  double cached = lists;
  // PyTorch keeps the input of a collective until the collective's stream is done with it (ProcessGroupNCCL's
  // recordStream), and the CPU runs ahead of the device: what the two products of each layer give before it is
  // scattered is not used again in a forward pass.
  if (d.sequence_parallel) {
    cached += 2 * LayersOf(run) * SizeOfWeights(run) * TokensOf(run) * Number(run.model.hidden);
  }
  const double embedding = EmbeddingOf(run) * SizeOfWeights(run);
  if (d.pipeline > 1 && embedding > LargestBlock(run)) cached += embedding;
  if (cached > room) {
    const double passing = BytesOf(prediction, BufferRole::kActivation) + BytesOf(prediction, BufferRole::kTemporary);
    cached = std::min(room, std::max(0.0, lists - passing));
  }
  return Bytes(std::llround(cached));
}

}  // namespace meshwright
