#include "tools/export/trainer_prediction.h"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "costmodel/memory_overheads.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/quantities.h"
#include "ir/status.h"
#include "ir/testing.h"
#include "planner/search/degrees.h"
#include "tools/validate/csv.h"
#include "tools/validate/predict_run.h"
#include "tools/validate/training_row.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Llama 3 8B, 64 x 8,192 tokens a step.
std::string Llama(absl::string_view cluster) {
  return absl::StrCat(
      "name: llama3_8b\narchitecture: {decoder: {hidden: 4096, layers: 32, heads: 32, kv_heads: 8, ffn: 14336, vocab: "
      "128256, activation: swiglu, norm: rms_norm, positions: rotary, bias: false}}\n"
      "training: {batch: 64, sequence: 8192, dtype: bfloat16, optimizer: adamw}\ncluster: ",
      cluster, "\n");
}
constexpr char kNode[] = "{device: h100-sxm, nodes: 1, devices_per_node: 8}";

absl::StatusOr<Plan> PlanOf(const std::string& text, const Degrees& degrees,
                            const std::vector<std::string>& flags_text) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Flags flags, Flags::Parse(StrategyFlags(), flags_text));
  Plan plan;
  MESHWRIGHT_ASSIGN_OR_RETURN(plan.session, OpenModel({"m.yaml", text}, flags));
  MESHWRIGHT_ASSIGN_OR_RETURN(plan.strategy, FromDegrees(plan.session.problem, degrees));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Evaluation own, Evaluate(plan.session.problem, plan.strategy));
  plan.promise = PromiseOf(own.prediction);
  return plan;
}

const Trainer& Named(absl::string_view name) {
  for (const Trainer& trainer : kTrainers) {
    if (trainer.name == name) return trainer;
  }
  ADD_FAILURE() << name;
  return kTrainers[0];
}

absl::StatusOr<Prediction> Under(absl::string_view name, const Plan& plan) {
  MESHWRIGHT_ASSIGN_OR_RETURN(TrainerPrediction under, PredictUnder(Named(name), plan));
  return std::move(under.prediction);
}

// What `validate` says of a row of the same run.
absl::StatusOr<Prediction> OfRow(absl::string_view cells) {
  MESHWRIGHT_ASSIGN_OR_RETURN(
      const CsvTable table,
      ParseCsv(absl::StrCat("model,layers,hidden,heads,kv_heads,ffn,vocab,seq_len,global_batch_seqs,micro_batch_seqs,"
                            "dtype,gpu_type,gpus,tp,pp,vpp,dp,seq_parallel,zero_fsdp,recompute,attention,other_opts\n"
                            "Llama 3 8B,32,4096,32,8,14336,128256,8192,64,",
                            cells, "\n"),
               "t.csv"));
  MESHWRIGHT_ASSIGN_OR_RETURN(TrainingRun run, ReadTrainingRun(CsvCells(table, table.rows[0]), {}));
  run.early_nccl = false;  // which nanotron's rows, of 2023 and 2024, have
  return PredictRun(run);
}

struct Case {
  std::string trainer;
  Degrees degrees;
  std::vector<std::string> flags;
  std::string cells;  // of the same run, from micro_batch_seqs on
};

TEST(PredictUnderTest, IsWhatValidateSaysOfARowOfThatRun) {
  const Case cases[] = {
      {"megatron",
       {.data = 4, .tensor = 2, .sequence_parallel = true, .microbatch = 1},
       {"--parallel_optimizer", "--bucket=160 MB", "--recompute=full"},
       "1,bf16,h100-sxm,8,2,1,1,4,yes,ZeRO-1,full,,\"Megatron-Core, overlap-grad-reduce, overlap-param-gather\""},
      {"megatron",
       {.data = 2, .tensor = 2, .pipeline = 2, .sequence_parallel = true, .microbatch = 2},
       {"--noparallel_optimizer", "--bucket=160 MB", "--recompute=none"},
       "2,bf16,h100-sxm,8,2,2,1,2,yes,none,none,,\"Megatron-Core, overlap-grad-reduce\""},
      {"nemo",
       {.data = 2, .tensor = 4, .sequence_parallel = true, .microbatch = 1},
       {"--parallel_optimizer", "--recompute=none"},
       "1,bf16,h100-sxm,8,4,1,1,2,yes,ZeRO-1,none,,\"NeMo, Megatron-Core, gradients in float32\""},
      {"torchtitan",
       {.data = 8, .microbatch = 1},
       {"--parallel_optimizer", "--shard_parameters", "--recompute=full"},
       "1,bf16,h100-sxm,8,1,1,1,8,no,FSDP2,full,sdpa,\"torchtitan, full iteration graphs\""},
      {"nanotron",
       {.data = 4, .tensor = 2, .sequence_parallel = true, .microbatch = 1},
       {"--parallel_optimizer", "--recompute=full"},
       "1,bf16,h100-sxm,8,2,1,1,4,yes,ZeRO-1,full,flash_attention_2,nanotron"},
      {"deepspeed",
       {.data = 8, .microbatch = 1},
       {"--parallel_optimizer", "--shard_parameters", "--recompute=full"},
       "1,bf16,h100-sxm,8,1,1,1,8,no,ZeRO-3 with overlap_comm,full,flash_attention_2,\"Hugging Face, DeepSpeed 0.17, "
       "gradients in float32\""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(absl::StrCat(c.trainer, " ", c.cells));
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(Llama(kNode), c.degrees, c.flags));
    ASSERT_OK_AND_ASSIGN(const Prediction under, Under(c.trainer, plan));
    ASSERT_OK_AND_ASSIGN(const Prediction row, OfRow(c.cells));
    EXPECT_EQ(under.step, row.step);
    EXPECT_EQ(under.peak, row.peak);
  }
}

// 64 x 8,192 tokens in a step, whose share of the peak is of the model's operations, also where some are run again in a
// part of the layers (torchtitan's selective checkpoints) and where replicas do not divide the parameters' rows.
TEST(PredictUnderTest, RatesAreThoseOfTheStep) {
  const std::string odd = Llama("{device: h100-sxm, nodes: 3, devices_per_node: 8}");
  for (const char* const recompute : {"--recompute=selective", "--recompute=none"}) {
    for (const int64_t data : {4, 12}) {
      ASSERT_OK_AND_ASSIGN(Plan plan,
                           PlanOf(data == 4 ? Llama(kNode) : absl::StrReplaceAll(odd, {{"batch: 64", "batch: 96"}}),
                                  {.data = data, .tensor = 2, .microbatch = 1}, {"--parallel_optimizer", recompute}));
      ASSERT_OK_AND_ASSIGN(const Prediction under, Under("torchtitan", plan));
      const double seconds = ToSeconds(under.step), own = ToSeconds(plan.promise.step);
      EXPECT_DOUBLE_EQ(under.tokens_per_second * seconds, static_cast<double>(plan.session.problem.batch * 8192));
      EXPECT_NEAR(under.mfu * seconds, plan.promise.mfu * own, 1e-3 * plan.promise.mfu * own)
          << recompute << " " << data;
    }
  }
}

// What is listed of memory and time is all of it.
TEST(PredictUnderTest, MemoryAndTimeAddUp) {
  // Of torchtitan's selective checkpoints a part of the layers runs some operators again: between all and none.
  const std::pair<const char*, const char*> cases[] = {
      {"megatron", "--recompute=full"}, {"torchtitan", "--recompute=selective"}, {"torchtitan", "--recompute=none"}};
  for (const auto& [trainer, recompute] : cases) {
    SCOPED_TRACE(absl::StrCat(trainer, " ", recompute));
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(Llama(kNode), {.data = 4, .tensor = 2, .microbatch = 1},
                                                 {"--parallel_optimizer", recompute}));
    ASSERT_OK_AND_ASSIGN(const Prediction under, Under(trainer, plan));
    Bytes sum = std::accumulate(under.memory.begin(), under.memory.end(), Bytes());
    for (const auto& [name, bytes] : under.outside) sum += bytes;
    EXPECT_EQ(sum, under.peak);
    EXPECT_EQ(under.outside.back().first, "framework's difference");
    Nanos time;
    for (size_t i = 0; i < kNumTimeUses; ++i) time += under.time[static_cast<TimeUse>(i)];
    EXPECT_EQ(time, under.step);
  }
}

// 32 x (4096 x (4096 + 2 x 1024) + 4096 x 4096 + 3 x 4096 x 14336) = 6,979,321,856 weights: a byte and that of their
// transposes, where they were two and two beside them; on Blackwell, without transposes, one where they were two and
// one.
TEST(PredictUnderTest, WeightsInFloat8) {
  constexpr double kWeights = 6'979'321'856;
  for (const char* device : {"h100-sxm", "b200"}) {
    SCOPED_TRACE(device);
    const std::string text = Llama(absl::StrCat("{device: ", device, ", devices_per_node: 8, products: float8}"));
    const auto under = [&](const std::vector<std::string>& flags) -> absl::StatusOr<Prediction> {
      MESHWRIGHT_ASSIGN_OR_RETURN(const Plan plan, PlanOf(text, {.data = 8, .microbatch = 1}, flags));
      return Under("megatron", plan);
    };
    for (const char* recompute : {"--recompute=full", "--recompute=none"}) {
      ASSERT_OK_AND_ASSIGN(const Prediction wide, under({"--parallel_optimizer", recompute}));
      ASSERT_OK_AND_ASSIGN(const Prediction narrow, under({"--parallel_optimizer", recompute, "--parameters=float8"}));
      EXPECT_NEAR(static_cast<double>((wide.peak - narrow.peak).raw()), 2 * kWeights, 1e6);
      EXPECT_LE(narrow.step, wide.step);
    }
  }
}

TEST(PredictUnderTest, ADeviceThatNoTableHasIsTheOneOfThePlan) {
  const std::string slow = Llama("{device: h100-sxm, nodes: 1, devices_per_node: 8, sustained_clock: 0.42}");
  ASSERT_OK_AND_ASSIGN(const Plan usual, PlanOf(Llama(kNode), {.data = 8, .microbatch = 1}, {"--shard_parameters"}));
  ASSERT_OK_AND_ASSIGN(Plan plan, PlanOf(slow, {.data = 8, .microbatch = 1}, {"--shard_parameters"}));
  plan.session.problem.cluster.device.name = "nobody's";
  ASSERT_OK_AND_ASSIGN(const Prediction fast, Under("torchtitan", usual));
  ASSERT_OK_AND_ASSIGN(const Prediction under, Under("torchtitan", plan));
  EXPECT_GT(under.step, fast.step * 1.5);  // half of the clock, of kernels that memory does not bind
}

// ZeRO-2, which torchtitan makes of a split optimizer, is priced as ZeRO-1.
TEST(PredictUnderTest, SaysWhatItIsTakenFor) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(Llama(kNode), {.data = 8, .microbatch = 1},
                                               {"--parallel_optimizer", "--noshard_parameters"}));
  ASSERT_OK_AND_ASSIGN(const TrainerPrediction under, PredictUnder(Named("torchtitan"), plan));
  EXPECT_THAT(under.approximations, ElementsAre("ZeRO-2 as ZeRO-1"));
  ASSERT_OK_AND_ASSIGN(const TrainerPrediction exact, PredictUnder(Named("megatron"), plan));
  EXPECT_THAT(exact.approximations, IsEmpty());
}

// Of a matrix Muon keeps one tensor where AdamW keeps two: of 8.03 billion parameters 1.05 are no matrices for it,
// embedding and head, so that 4 x 6.98 + 8 x 1.05 bytes are left of 8 x 8.03, 0.565.
TEST(PredictUnderTest, Muon) {
  const std::string muon = absl::StrReplaceAll(Llama(kNode), {{"optimizer: adamw", "optimizer: muon"}});
  const std::vector<std::string> flags = {"--parallel_optimizer", "--noshard_parameters", "--recompute=full"};
  const auto state = [](const Prediction& p) { return p.memory[static_cast<size_t>(BufferRole::kOptimizerState)]; };
  const Degrees degrees = {.data = 4, .tensor = 2, .sequence_parallel = true, .microbatch = 1};
  ASSERT_OK_AND_ASSIGN(const Plan by_adamw, PlanOf(Llama(kNode), degrees, flags));
  ASSERT_OK_AND_ASSIGN(const Plan by_muon, PlanOf(muon, degrees, flags));
  for (const absl::string_view trainer : {"megatron", "nemo"}) {
    ASSERT_OK_AND_ASSIGN(const Prediction two, Under(trainer, by_adamw));
    ASSERT_OK_AND_ASSIGN(const Prediction one, Under(trainer, by_muon));
    const double share = static_cast<double>(state(one).raw()) / static_cast<double>(state(two).raw());
    EXPECT_NEAR(share, 0.565, 0.001) << trainer;
    EXPECT_GT(one.step, two.step) << trainer;  // products for each matrix, and gathers that nothing hides
    EXPECT_LT(ToSeconds(one.step), 1.2 * ToSeconds(two.step)) << trainer;
  }
}

// Groups of replicas that share the optimizer's state alone hold whole parameters: 16 GB of them, which groups that
// share these, too, hold an eighth of and of two layers.
TEST(PredictUnderTest, GroupsOfReplicasShareWhatThePlanSays) {
  const std::string text = absl::StrReplaceAll(Llama(kNode), {{"nodes: 1", "nodes: 2"}});
  const Degrees degrees = {.data = 16, .copies = 2, .microbatch = 1};
  ASSERT_OK_AND_ASSIGN(const Plan state, PlanOf(text, degrees, {"--parallel_optimizer", "--noshard_parameters"}));
  ASSERT_OK_AND_ASSIGN(const TrainerPrediction whole, PredictUnder(Named("megatron"), state));
  EXPECT_THAT(whole.approximations, ElementsAre("optimizer split over all replicas"));
  const auto parameters = [](const Prediction& p) { return p.memory[static_cast<size_t>(BufferRole::kParameter)]; };
  EXPECT_GT(parameters(whole.prediction), GiB(14));
  ASSERT_OK_AND_ASSIGN(const Plan all, PlanOf(text, degrees, {"--parallel_optimizer", "--shard_parameters"}));
  ASSERT_OK_AND_ASSIGN(const Prediction split, Under("megatron", all));
  EXPECT_LT(parameters(split), GiB(6));
}

// Scores in memory take time that fused attention does not.
TEST(PredictUnderTest, AttentionThatTheModelFixesIsTheRuns) {
  const std::vector<std::string> flags = {"--parallel_optimizer", "--recompute=full"};
  const Degrees degrees = {.data = 4, .tensor = 2, .microbatch = 1};
  ASSERT_OK_AND_ASSIGN(const Plan fused, PlanOf(Llama(kNode), degrees, flags));
  ASSERT_OK_AND_ASSIGN(
      const Plan unfused,
      PlanOf(absl::StrReplaceAll(Llama(kNode), {{"optimizer: adamw", "optimizer: adamw, attention: unfused"}}), degrees,
             flags));
  ASSERT_OK_AND_ASSIGN(const Prediction fast, Under("megatron", fused));
  ASSERT_OK_AND_ASSIGN(const Prediction slow, Under("megatron", unfused));
  EXPECT_GT(slow.step, fast.step);
}

// Stages of eight layers, of which each fifth sees all, cut runs of five.
TEST(PredictUnderTest, LayersThatTheFileDealsAreTheRuns) {
  const auto step = [](absl::string_view layers) -> absl::StatusOr<Nanos> {
    const std::string text = absl::StrCat(absl::StrReplaceAll(Llama(kNode), {{"bias: false",
                                                                              "bias: false, sliding_window: 1024, "
                                                                              "full_attention_every: 5"}}),
                                          "parallel: {pipeline_stages: 4, layers_per_stage: ", layers, "}\n");
    MESHWRIGHT_ASSIGN_OR_RETURN(const Plan plan, PlanOf(text, {.data = 1, .tensor = 2, .pipeline = 4}, {}));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Prediction under, Under("megatron", plan));
    return under.step;
  };
  ASSERT_OK_AND_ASSIGN(const Nanos even, step("[8, 8, 8, 8]"));
  ASSERT_OK_AND_ASSIGN(const Nanos uneven, step("[4, 12, 8, 8]"));
  EXPECT_LT(even, uneven);
}

TEST(PredictUnderTest, AMemoryLimitOfTheFileHolds) {
  ASSERT_OK_AND_ASSIGN(Plan plan, PlanOf(Llama(kNode), {.data = 8, .microbatch = 1}, {"--shard_parameters"}));
  plan.session.problem.memory_limit = GiB(10);
  ASSERT_OK_AND_ASSIGN(const Prediction under, Under("torchtitan", plan));
  EXPECT_EQ(under.capacity, GiB(10));
  EXPECT_FALSE(under.fits());
}

TEST(PredictUnderTest, WhatATrainerCannotRunIsItsWritersError) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(Llama(kNode), {.data = 8, .microbatch = 1},
                                               {"--parallel_optimizer", "--shard_parameters"}));
  EXPECT_THAT(PredictUnder(Named("nanotron"), plan),
              StatusIs(absl::StatusCode::kUnimplemented, "nanotron has no ZeRO-3; plan with --noshard_parameters"));
  EXPECT_THAT(PredictUnder(Named("mindspore"), plan),
              StatusIs(absl::StatusCode::kUnimplemented, "what MindSpore does besides a program is not known"));
  EXPECT_EQ(TrainerWithTitle("MindSpore"), nullptr);
  EXPECT_EQ(TrainerWithTitle("Colossal-AI"), nullptr);
  ASSERT_NE(TrainerWithTitle("Megatron-LM"), nullptr);
  EXPECT_EQ(TrainerWithTitle("Megatron-LM")->name, "megatron");
}

TEST(RankUnderTest, TheTrainersFastestIsFirstAndWhatItLacksIsCounted) {
  ASSERT_OK_AND_ASSIGN(const Flags flags, Flags::Parse(StrategyFlags(), {}));
  ASSERT_OK_AND_ASSIGN(const Session session, OpenModel({"m.yaml", Llama(kNode)}, flags));
  ASSERT_OK_AND_ASSIGN(const SearchResult found, Search(session.problem, {.keep = kPredictedUnder}));
  ASSERT_OK_AND_ASSIGN(const SearchResult ranked, RankUnder(Named("nanotron"), session, found, 3, 1));
  ASSERT_EQ(ranked.ranked.size(), 3u);
  for (const Candidate& candidate : ranked.ranked) {
    EXPECT_FALSE(candidate.strategy.shard_parameters);  // nanotron has no ZeRO-3
    EXPECT_TRUE(candidate.prediction.fits());
    ASSERT_OK_AND_ASSIGN(const Prediction again, Under("nanotron", {session, candidate.strategy, PlanPromise()}));
    EXPECT_EQ(candidate.prediction.step, again.step);
  }
  EXPECT_LE(ranked.ranked[0].prediction.step, ranked.ranked[1].prediction.step);
  EXPECT_LE(ranked.ranked[1].prediction.step, ranked.ranked[2].prediction.step);
  EXPECT_GT(ranked.pruned.at("not to be had of nanotron"), 0);
}

// 70B on 512 devices, whose best plans have stages: DeepSpeed's are searched without.
TEST(SearchForTest, WhatATrainerHasNoChoiceOfIsNotSearched) {
  ASSERT_OK_AND_ASSIGN(const Flags flags, Flags::Parse(StrategyFlags(), {}));
  ASSERT_OK_AND_ASSIGN(const SourceFile source, ReadSource("models/configs/llama3_70b.yaml"));
  ASSERT_OK_AND_ASSIGN(const Session session, OpenModel(source, flags));
  ASSERT_OK_AND_ASSIGN(const SearchResult own, SearchFor(nullptr, session, {.keep = 1}));
  EXPECT_GT(own.ranked[0].degrees.pipeline, 1);
  ASSERT_OK_AND_ASSIGN(const SearchResult found, SearchFor(&Named("deepspeed"), session, {.keep = 1}));
  ASSERT_EQ(found.ranked.size(), 1u);
  EXPECT_EQ(found.ranked[0].degrees.pipeline, 1);
  // What the user fixed stays, and is the writer's error.
  ASSERT_OK_AND_ASSIGN(const Flags staged, Flags::Parse(StrategyFlags(), {"--stages=4"}));
  ASSERT_OK_AND_ASSIGN(const Session fixed, OpenModel(source, staged));
  EXPECT_THAT(SearchFor(&Named("deepspeed"), fixed, {.keep = 1}),
              StatusIs(absl::StatusCode::kUnimplemented, "DeepSpeed's configuration has no pipeline"));
}

TEST(PredictUnderTest, HostsAreNoMachinesOfATrainer) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(Llama("{device: host, nodes: 1, devices_per_node: 8}"),
                                               {.data = 8, .microbatch = 1}, {}));
  EXPECT_THAT(PredictUnder(Named("megatron"), plan),
              StatusIs(absl::StatusCode::kUnimplemented, "found a cluster of hosts, wanted one of GPUs"));
}

TEST(RankUnderTest, NothingThatFitsSaysByHowMuch) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(Llama(kNode), {.data = 8, .microbatch = 1},
                                               {"--parallel_optimizer", "--recompute=none", "--microbatch=1"}));
  SearchResult found;
  found.ranked.push_back({plan.strategy, {.data = 8, .microbatch = 1}, {}});
  Session small = plan.session;
  small.problem.cluster.device.memory = GiB(20);
  EXPECT_THAT(RankUnder(Named("megatron"), small, found, 5, 1),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "none of the plans that were looked at fits as Megatron-LM runs it: the nearest takes "));
}

}  // namespace
}  // namespace meshwright
