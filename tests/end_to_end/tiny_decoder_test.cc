// Tiny decoders, shaped like GPT-2, Llama and Mixtral: under every strategy, ten steps of training give the losses of
// one rank.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/host/run_on_threads.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "models/model_file.h"
#include "planner/lower.h"
#include "planner/passes/testing.h"

namespace meshwright {
namespace {

constexpr char kModel[] = R"(
name: tiny
architecture:
  decoder: {hidden: 64, layers: LAYERS, vocab: 256, FAMILY}
training:
  batch: 16
  sequence: 32
  attention: ATTENTION
  dtype: float64
  gradient_dtype: float64
  optimizer: {adamw: {learning_rate: 0.001, weight_decay: 0.01}}
)";

constexpr char kGpt[] = "heads: 4, tied_embeddings: true, bias: true";
constexpr char kGptUntied[] = "heads: 4, bias: true";
constexpr char kLlama[] = "heads: 8, kv_heads: 4, ffn: 96, activation: swiglu, norm: rms_norm, positions: rotary";
constexpr char kMixtral[] =
    "heads: 8, kv_heads: 4, ffn: 64, activation: swiglu, norm: rms_norm, positions: rotary, experts: 4, "
    "experts_per_token: 2, capacity_factor: 2";

// Two of the four experts, of one of two groups.
constexpr char kLimited[] =
    "heads: 8, kv_heads: 4, ffn: 64, activation: swiglu, norm: rms_norm, positions: rotary, experts: 4, "
    "experts_per_token: 2, capacity_factor: 2, choice_groups: 2";

// A feed-forward layer beside the experts that takes every token.
const std::string kShared = absl::StrCat(kMixtral, ", shared_expert_ffn: 96");

struct Case {
  std::string name;
  std::vector<std::pair<std::string, int64_t>> axes;
  std::vector<std::pair<std::string, std::vector<std::string>>> rules;
  int64_t stages = 1, microbatches = 1;
  Recompute recompute = Recompute::kNone;
  bool parallel_optimizer = false;
  Bytes bucket = MiB(64);
  Schedule schedule = Schedule::kOneFOneB;
  int64_t layers = 2;
  int64_t expert_groups = 1;
  std::string family = kGpt;
  std::string attention = "fused";
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

absl::StatusOr<RunResult> Train(const Case& c) {
  std::string text = kModel;
  text.replace(text.find("LAYERS"), 6, absl::StrCat(c.layers));
  text.replace(text.find("FAMILY"), 6, c.family);
  text.replace(text.find("ATTENTION"), 9, c.attention);
  MESHWRIGHT_ASSIGN_OR_RETURN(const ModelFile model, ParseModelFile(text, "tiny.yaml"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, BuildGraph(model, 16 / c.microbatches));
  Strategy strategy;
  strategy.mesh = Mesh::RowMajor(c.axes);
  for (const auto& [label, names] : c.rules) {
    LabelRule rule{label, {}};
    for (const std::string& name : names) rule.axes.push_back(strategy.mesh.Find(name));
    strategy.rules.push_back(rule);
  }
  strategy.expert_groups = c.expert_groups;
  strategy.stages = c.stages;
  strategy.microbatches = c.microbatches;
  strategy.loss_divisor = static_cast<double>(c.microbatches);
  strategy.recompute = c.recompute;
  strategy.parallel_optimizer = c.parallel_optimizer;
  strategy.bucket = c.bucket;
  strategy.schedule = c.schedule;
  strategy.gradient_dtype = DType::kFloat64;
  const UpdateRule update{model.training.optimizer.kind, model.training.optimizer.Attrs()};
  const StepPrice bytes = [](const Shape& global, DType dtype, const Work& work, const Layout&, const Layout& after) {
    return std::holds_alternative<Slice>(work)
               ? Nanos(1)
               : Nanos((SizeOf(dtype) * NumElements(global)).raw()) + Nanos(after.dims.size());
  };
  MESHWRIGHT_ASSIGN_OR_RETURN(const Program program, Lower(graph, strategy, update, bytes, VerifiedAfter));
  RunOptions options;
  options.steps = 10;
  MESHWRIGHT_ASSIGN_OR_RETURN(RunResult result, RunOnThreads(program, options, SyntheticData(1)));
  for (size_t rank = 0; rank < result.arenas.size(); ++rank) {
    EXPECT_EQ(result.arenas[rank], program.classes[rank / program.ranks_per_class()].arena) << "rank " << rank;
  }
  return result;
}

class TinyDecoderTest : public testing::TestWithParam<Case> {};

TEST_P(TinyDecoderTest, LossesAreThoseOfOneRank) {
  Case one{.name = "one", .axes = {{"dp", 1}}, .rules = {}};
  one.layers = GetParam().layers;
  one.family = GetParam().family;
  one.attention = GetParam().attention;
  const auto expected = Train(one);
  ASSERT_OK(expected);
  const auto found = Train(GetParam());
  ASSERT_OK(found);
  ASSERT_EQ(found->losses.size(), 10u);
  for (size_t i = 0; i < 10; ++i) EXPECT_NEAR(found->losses[i], expected->losses[i], 1e-9) << "step " << i + 1;
  EXPECT_LT(found->losses[9], found->losses[0]);  // it learns
}

const std::vector<std::string> kDp = {"dp"}, kTp = {"tp"};

INSTANTIATE_TEST_SUITE_P(
    Strategies, TinyDecoderTest,
    testing::Values(
        Case{.name = "Dp8", .axes = {{"dp", 8}}, .rules = {{"b", kDp}}},
        Case{.name = "Dp8ParallelOptimizer", .axes = {{"dp", 8}}, .rules = {{"b", kDp}}, .parallel_optimizer = true},
        Case{.name = "Dp8OneByOne", .axes = {{"dp", 8}}, .rules = {{"b", kDp}}, .bucket = Bytes()},
        Case{.name = "Dp8SmallBuckets",
             .axes = {{"dp", 8}},
             .rules = {{"b", kDp}},
             .parallel_optimizer = true,
             .bucket = KiB(100)},
        Case{.name = "Tp4", .axes = {{"tp", 4}}, .rules = {{"g", kTp}, {"f", kTp}, {"v", kTp}}},
        Case{.name = "Tp4Sequence", .axes = {{"tp", 4}}, .rules = {{"g", kTp}, {"f", kTp}, {"v", kTp}, {"s", kTp}}},
        // Four heads over eight ranks: each head twice.
        Case{.name = "Tp8",
             .axes = {{"tpg", 4}, {"tpr", 2}},
             .rules = {{"g", {"tpg"}}, {"f", {"tpg", "tpr"}}, {"v", {"tpg", "tpr"}}, {"s", {"tpg", "tpr"}}}},
        Case{.name = "Dp2Tp4Full",
             .axes = {{"dp", 2}, {"tp", 4}},
             .rules = {{"b", kDp}, {"g", kTp}, {"f", kTp}, {"v", kTp}, {"s", kTp}},
             .recompute = Recompute::kFull,
             .parallel_optimizer = true},
        Case{.name = "Dp4MicroBatchesSelective",
             .axes = {{"dp", 4}},
             .rules = {{"b", kDp}},
             .microbatches = 4,
             .recompute = Recompute::kSelective},
        Case{.name = "Pp2", .axes = {{"pp", 2}}, .rules = {}, .stages = 2, .microbatches = 4},
        Case{.name = "Pp2Untied",
             .axes = {{"pp", 2}},
             .rules = {},
             .stages = 2,
             .microbatches = 4,
             .family = kGptUntied},
        Case{.name = "Pp2Gpipe",
             .axes = {{"pp", 2}},
             .rules = {},
             .stages = 2,
             .microbatches = 8,
             .schedule = Schedule::kGpipe},
        Case{.name = "Pp4", .axes = {{"pp", 4}}, .rules = {}, .stages = 4, .microbatches = 8, .layers = 5},
        Case{.name = "Pp2Tp2Dp2",
             .axes = {{"pp", 2}, {"dp", 2}, {"tp", 2}},
             .rules = {{"b", kDp}, {"g", kTp}, {"f", kTp}, {"v", kTp}},
             .stages = 2,
             .microbatches = 4,
             .recompute = Recompute::kFull,
             .parallel_optimizer = true},
        Case{.name = "Pp2Tp2Dp2Layer",
             .axes = {{"pp", 2}, {"dp", 2}, {"tp", 2}},
             .rules = {{"b", kDp}, {"g", kTp}, {"f", kTp}, {"v", kTp}, {"s", kTp}},
             .stages = 2,
             .microbatches = 4,
             .recompute = Recompute::kLayer},
        Case{.name = "Pp2Tp2Dp2Sequence",
             .axes = {{"pp", 2}, {"dp", 2}, {"tp", 2}},
             .rules = {{"b", kDp}, {"g", kTp}, {"f", kTp}, {"v", kTp}, {"s", kTp}},
             .stages = 2,
             .microbatches = 4,
             .recompute = Recompute::kSelective,
             .parallel_optimizer = true,
             .layers = 3},
        Case{.name = "LlamaTp4Sequence",
             .axes = {{"tp", 4}},
             .rules = {{"g", kTp}, {"f", kTp}, {"v", kTp}, {"s", kTp}},
             .family = kLlama},
        Case{.name = "LlamaTp4SequenceSelectiveUnfused",
             .axes = {{"tp", 4}},
             .rules = {{"g", kTp}, {"f", kTp}, {"v", kTp}, {"s", kTp}},
             .recompute = Recompute::kSelective,
             .family = kLlama,
             .attention = "unfused"},
        Case{.name = "LlamaPp2Dp2Tp2",
             .axes = {{"pp", 2}, {"dp", 2}, {"tp", 2}},
             .rules = {{"b", kDp}, {"g", kTp}, {"f", kTp}, {"v", kTp}, {"s", kTp}},
             .stages = 2,
             .microbatches = 4,
             .recompute = Recompute::kFull,
             .parallel_optimizer = true,
             .family = kLlama},
        Case{.name = "MixtralDp4", .axes = {{"dp", 4}}, .rules = {{"b", kDp}, {"c", kDp}}, .family = kMixtral},
        // Experts over the data-parallel ranks: tokens travel by all-to-all.
        Case{.name = "MixtralExpertParallel4",
             .axes = {{"dp", 4}},
             .rules = {{"e", kDp}, {"b", kDp}, {"c", kDp}},
             .parallel_optimizer = true,
             .family = kMixtral},
        // The same in two groups of two ranks: a token crosses once, then it goes to the group's experts.
        Case{.name = "MixtralGroups2x2",
             .axes = {{"ep", 2}, {"eg", 2}},
             .rules = {{"n", {"ep"}}, {"b", {"eg", "ep"}}, {"b", {"eg"}}, {"e", {"ep", "eg"}}},
             .parallel_optimizer = true,
             .expert_groups = 2,
             .family = kMixtral},
        // Groups of one rank, beside ranks that hold the same experts.
        Case{.name = "MixtralDp2Groups4",
             .axes = {{"dp", 2}, {"ep", 4}},
             .rules = {{"n", {"ep"}}, {"b", {"dp", "ep"}}, {"b", kDp}, {"e", {"ep"}}, {"c", kDp}},
             .microbatches = 2,
             .recompute = Recompute::kFull,
             .expert_groups = 4,
             .family = kMixtral},
        Case{.name = "MixtralPp2Groups2Tp2",
             .axes = {{"pp", 2}, {"ep", 2}, {"tp", 2}},
             .rules = {{"n", {"ep"}}, {"b", {"ep"}}, {"e", {"ep"}}, {"g", kTp}, {"f", kTp}, {"v", kTp}, {"s", kTp}},
             .stages = 2,
             .microbatches = 4,
             .recompute = Recompute::kSelective,
             .expert_groups = 2,
             .family = kMixtral},
        // A router that chooses of one of two groups of experts, which lie on a group of ranks each.
        Case{.name = "LimitedGroups2x2",
             .axes = {{"ep", 2}, {"eg", 2}},
             .rules = {{"n", {"ep"}}, {"b", {"eg", "ep"}}, {"b", {"eg"}}, {"e", {"ep", "eg"}}},
             .expert_groups = 2,
             .family = kLimited},
        // Whole experts on tensor-parallel ranks, too.
        Case{.name = "MixtralSpreadEp2Tp2",
             .axes = {{"ep", 2}, {"tp", 2}},
             .rules = {{"b", {"ep"}}, {"e", {"tp", "ep"}}, {"x", kTp}, {"g", kTp}, {"f", kTp}, {"v", kTp}, {"s", kTp}},
             .recompute = Recompute::kFull,
             .parallel_optimizer = true,
             .family = kMixtral},
        Case{.name = "MixtralSpreadTp4",
             .axes = {{"tp", 4}},
             .rules = {{"e", kTp}, {"x", kTp}, {"g", kTp}, {"f", kTp}, {"v", kTp}},
             .family = kMixtral},
        Case{.name = "MixtralTp4",
             .axes = {{"tp", 4}},
             .rules = {{"g", kTp}, {"f", kTp}, {"v", kTp}, {"s", kTp}},
             .family = kMixtral},
        Case{.name = "MixtralPp2Dp2Tp2",
             .axes = {{"pp", 2}, {"dp", 2}, {"tp", 2}},
             .rules = {{"b", kDp}, {"e", kDp}, {"c", kDp}, {"g", kTp}, {"f", kTp}, {"v", kTp}},
             .stages = 2,
             .microbatches = 4,
             .recompute = Recompute::kFull,
             .family = kMixtral},
        Case{.name = "SharedExpertParallel4",
             .axes = {{"dp", 4}},
             .rules = {{"e", kDp}, {"b", kDp}, {"c", kDp}},
             .parallel_optimizer = true,
             .family = kShared},
        Case{.name = "SharedGroups2x2",
             .axes = {{"ep", 2}, {"eg", 2}},
             .rules = {{"n", {"ep"}}, {"b", {"eg", "ep"}}, {"b", {"eg"}}, {"e", {"ep", "eg"}}},
             .parallel_optimizer = true,
             .expert_groups = 2,
             .family = kShared},
        // The experts are whole on tensor-parallel ranks, the shared one is split over them.
        Case{.name = "SharedSpreadEp2Tp2",
             .axes = {{"ep", 2}, {"tp", 2}},
             .rules = {{"b", {"ep"}}, {"e", {"tp", "ep"}}, {"x", kTp}, {"g", kTp}, {"f", kTp}, {"v", kTp}, {"s", kTp}},
             .recompute = Recompute::kFull,
             .parallel_optimizer = true,
             .family = kShared},
        Case{.name = "SharedTp4Selective",
             .axes = {{"tp", 4}},
             .rules = {{"g", kTp}, {"f", kTp}, {"v", kTp}},
             .microbatches = 2,
             .recompute = Recompute::kSelective,
             .family = kShared},
        Case{.name = "SharedPp2Dp2Tp2",
             .axes = {{"pp", 2}, {"dp", 2}, {"tp", 2}},
             .rules = {{"b", kDp}, {"e", kDp}, {"c", kDp}, {"g", kTp}, {"f", kTp}, {"v", kTp}, {"s", kTp}},
             .stages = 2,
             .microbatches = 4,
             .recompute = Recompute::kLayer,
             .family = kShared}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace meshwright
