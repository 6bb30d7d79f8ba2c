#include "tools/export/writers.h"

#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/document.h"
#include "ir/files.h"
#include "ir/status.h"
#include "ir/testing.h"
#include "nlohmann/json.hpp"
#include "planner/search/degrees.h"
#include "planner/search/search.h"
#include "tools/export/testing.h"
#include "tools/session.h"

namespace meshwright {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

constexpr char kGpt[] = R"(
name: gpt/small
architecture: {decoder: {hidden: 64, layers: 6, heads: 8, vocab: 1024, bias: true}}
training:
  batch: 48
  sequence: 32
  dtype: bfloat16
  optimizer: {adamw: {learning_rate: 6e-4, beta1: 0.9, beta2: 0.95, weight_decay: 0.1}}
cluster: {device: h100-sxm, nodes: 2, devices_per_node: 8}
)";

constexpr Degrees kMixed = {.data = 4, .tensor = 2, .pipeline = 2, .sequence_parallel = true, .microbatch = 2};

// 20,000 tokens in steps of 48 x 32 are 13.02 steps; the file's own number of steps counts before the file's tokens,
// and those of --tokens before both: 30,000 are 19.5 steps.
TEST(MegatronTest, AsManyStepsAsTheTokensTake) {
  const auto steps = [](const std::string& more, std::optional<double> flag = std::nullopt) {
    absl::StatusOr<Plan> plan =
        PlanOf(absl::StrReplaceAll(kGpt, {{"  batch: 48\n", absl::StrCat("  batch: 48\n", more)}}), kMixed);
    if (flag.has_value()) {
      ModelChanges changes = plan->session.changes;
      changes.tokens = flag;
      plan->session = *ReopenModel(plan->session.source, changes, plan->session.problem.cluster);
    }
    return NumberOf(OptionsOf(ToMegatron(*plan)->text), "--train-iters");
  };
  EXPECT_EQ(steps(""), 10);
  EXPECT_EQ(steps("  tokens: 20K\n"), 14);
  EXPECT_EQ(steps("  tokens: 20K\n  steps: 5\n"), 5);
  EXPECT_EQ(steps("  tokens: 20K\n  steps: 5\n", 30e3), 20);
}

TEST(MegatronTest, ThePlanComesOutOfItsOptions) {
  for (const Degrees& degrees :
       {Degrees{.data = 16, .microbatch = 3}, kMixed, Degrees{.data = 2, .tensor = 4, .pipeline = 2, .microbatch = 1},
        Degrees{.data = 8, .pipeline = 2, .microbatch = 1}}) {
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(kGpt, degrees, {"--parallel_optimizer"}));
    ASSERT_OK_AND_ASSIGN(const Exported exported, ToMegatron(plan));
    EXPECT_THAT(exported.differences, IsEmpty());
    const std::map<std::string, std::string> o = OptionsOf(exported.text);
    Degrees read;
    read.tensor = NumberOf(o, "--tensor-model-parallel-size");
    read.pipeline = NumberOf(o, "--pipeline-model-parallel-size");
    read.data = 16 / read.tensor / read.pipeline;
    read.microbatch = NumberOf(o, "--micro-batch-size");
    read.sequence_parallel = o.count("--sequence-parallel") > 0;
    EXPECT_EQ(read, degrees);
    EXPECT_EQ(NumberOf(o, "--global-batch-size"), 48);
    // What Megatron makes of it: micro-batches a step.
    EXPECT_EQ(48 / (read.microbatch * read.data), plan.strategy.microbatches);
    EXPECT_EQ(o.count("--use-distributed-optimizer"), 1u);
    EXPECT_EQ(NumberOf(o, "--ddp-bucket-size"), 64 * 1024 * 1024 / 4);  // 64 MiB of float32
    EXPECT_EQ(NumberOf(o, "--num-layers"), 6);
    EXPECT_EQ(NumberOf(o, "--ffn-hidden-size"), 256);
    EXPECT_EQ(o.count("--bf16"), 1u);
    EXPECT_EQ(o.count("--disable-bias-linear"), 0u);
    EXPECT_EQ(o.at("--lr"), "6e-04");
  }
}

TEST(MegatronTest, TheScriptIsOneForTheShell) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(kGpt, kMixed));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToMegatron(plan));
  EXPECT_THAT(exported.text, HasSubstr("# gpt_small on 2 nodes x 8 h100-sxm"));
  EXPECT_EQ(PlainName("a; rm -rf $HOME"), "a__rm_-rf__HOME");
  const std::string path = absl::StrCat(testing::TempDir(), "/train.sh");
  ASSERT_OK(WriteWholeFile(path, exported.text));
  EXPECT_EQ(std::system(absl::StrCat("bash -n ", path).c_str()), 0);
}

// Megatron-FSDP asserts both before it trains.
TEST(MegatronTest, SplitParametersWantTheirCheckpointsAndMoreThanOneConnection) {
  constexpr Degrees kData = {.data = 16, .microbatch = 3};
  ASSERT_OK_AND_ASSIGN(const Plan whole, PlanOf(kGpt, kData, {"--parallel_optimizer"}));
  ASSERT_OK_AND_ASSIGN(const Exported ddp, ToMegatron(whole));
  EXPECT_THAT(ddp.text, HasSubstr("\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n"));
  EXPECT_EQ(OptionsOf(ddp.text).count("--ckpt-format"), 0u);
  ASSERT_OK_AND_ASSIGN(const Plan split, PlanOf(kGpt, kData, {"--shard_parameters"}));
  ASSERT_OK_AND_ASSIGN(const Exported fsdp, ToMegatron(split));
  EXPECT_THAT(fsdp.text, HasSubstr("\nunset CUDA_DEVICE_MAX_CONNECTIONS\n"));
  EXPECT_EQ(OptionsOf(fsdp.text).at("--ckpt-format"), "fsdp_dtensor");
  EXPECT_EQ(OptionsOf(fsdp.text).at("--data-parallel-sharding-strategy"), "optim_grads_params");
  for (const char* const option : {"--no-gradient-accumulation-fusion", "--init-model-with-meta-device"}) {
    EXPECT_EQ(OptionsOf(fsdp.text).count(option), 1u) << option;
    EXPECT_EQ(OptionsOf(ddp.text).count(option), 0u) << option;
  }
}

TEST(MegatronTest, UnevenStagesAreALayout) {
  // 6 layers on 4 stages: 2, 2, 1, 1.
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(kGpt, {.data = 4, .pipeline = 4, .microbatch = 1}));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToMegatron(plan));
  EXPECT_EQ(OptionsOf(exported.text).at("--pipeline-model-parallel-layout"), "'Et*2|t*2|t*1|t*1L'");
}

// The modes that do not plan split rows over a mesh of prime axes: 2 x 2 x 2 x 2 ranks are 16 replicas.
TEST(MegatronTest, DataParallelismByModeIsDataParallelism) {
  for (const char* const mode : {"--mode=data_parallel", "--mode=hybrid_parallel"}) {
    ASSERT_OK_AND_ASSIGN(const Flags flags, Flags::Parse(StrategyFlags(), std::vector<std::string>{mode}));
    Plan plan;
    ASSERT_OK_AND_ASSIGN(plan.session, OpenModel({"m.yaml", kGpt}, flags));
    ASSERT_OK_AND_ASSIGN(const SearchResult found, Search(plan.session.problem, SearchOptions{}));
    plan.strategy = found.ranked.front().strategy;
    EXPECT_FALSE(plan.strategy.mesh.Find("dp").valid());
    ASSERT_OK_AND_ASSIGN(const Exported exported, ToMegatron(plan));
    const std::map<std::string, std::string> o = OptionsOf(exported.text);
    EXPECT_EQ(NumberOf(o, "--tensor-model-parallel-size"), 1);
    EXPECT_EQ(NumberOf(o, "--pipeline-model-parallel-size"), 1);
    EXPECT_EQ(NumberOf(o, "--micro-batch-size"), 3) << "48 rows on 16 ranks";
    EXPECT_THAT(exported.differences, ElementsAre(HasSubstr("the plan their sum, 16 times as much")));
  }
}

// A script of such a model trains something else unless its user adds them; torchtitan's registry has the model.
TEST(MegatronTest, WhatTheModelLacksIsTold) {
  const std::string text =
      "name: q\nhuggingface: config.json\ntraining: {batch: 16, sequence: 32, dtype: bfloat16, optimizer: adamw}\n"
      "cluster: {device: h100-sxm, nodes: 2, devices_per_node: 8}\n";
  const std::string config = R"({"model_type": "granite", "hidden_size": 64, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16, "intermediate_size": 128, "vocab_size": 1024})";
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(text, {.data = 16, .microbatch = 1}, {"--gradients_mean"}, config));
  for (const auto write : {ToMegatron, ToNanotron}) {
    ASSERT_OK_AND_ASSIGN(const Exported exported, write(plan));
    EXPECT_THAT(exported.differences,
                ElementsAre("multipliers of embeddings, scores, residuals and logits are left out"));
    EXPECT_THAT(exported.text,
                HasSubstr("# Differs: multipliers of embeddings, scores, residuals and logits are left out.\n"));
  }
  ASSERT_OK_AND_ASSIGN(const Exported other, ToTorchtitan(plan));
  EXPECT_THAT(other.text, Not(HasSubstr("multipliers")));
}

// As Megatron counts embedding and loss as layers: 6 layers on 4 stages of which the ends have none.
TEST(MegatronTest, EndsWithoutLayers) {
  ASSERT_OK_AND_ASSIGN(Plan plan, PlanOf(Llama(), {.data = 4, .pipeline = 4, .microbatch = 1}));
  plan.strategy.layers_per_stage = {0, 3, 3, 0};
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToMegatron(plan));
  EXPECT_EQ(OptionsOf(exported.text).at("--pipeline-model-parallel-layout"), "'E|t*3|t*3|L'");
  ASSERT_OK_AND_ASSIGN(const Exported torchtitan, ToTorchtitan(plan));
  EXPECT_THAT(torchtitan.text, HasSubstr("    p.module_fqns_per_model_part = parts_of([0, 3, 3, 0])\n"));
}

// 16 ranks in 2 groups of 8, in the words of each trainer.
TEST(WritersTest, GroupsOfReplicas) {
  ASSERT_OK_AND_ASSIGN(Plan plan, PlanOf(Llama(), {.data = 16, .copies = 2, .microbatch = 1}, {"--shard_parameters"}));
  ASSERT_OK_AND_ASSIGN(Exported exported, ToTorchtitan(plan));
  EXPECT_THAT(exported.text, HasSubstr("    p.data_parallel_replicate_degree = 2\n"));
  EXPECT_THAT(exported.text, HasSubstr("    p.data_parallel_shard_degree = 8\n"));
  ASSERT_OK_AND_ASSIGN(exported, ToMegatron(plan));
  std::map<std::string, std::string> o = OptionsOf(exported.text);
  EXPECT_EQ(o.at("--num-distributed-optimizer-instances"), "2");
  EXPECT_EQ(o.at("--outer-dp-sharding-strategy"), "no_shard");
  ASSERT_OK_AND_ASSIGN(exported, ToDeepSpeed(plan));
  EXPECT_THAT(exported.text, HasSubstr("\"mics_shard_size\": 8"));
  EXPECT_THAT(exported.differences, Contains(HasSubstr("MiCS")));

  ASSERT_OK_AND_ASSIGN(plan, PlanOf(Llama(), {.data = 16, .copies = 2, .microbatch = 1},
                                    {"--parallel_optimizer", "--noshard_parameters"}));
  ASSERT_OK_AND_ASSIGN(exported, ToMegatron(plan));
  o = OptionsOf(exported.text);
  EXPECT_EQ(o.at("--num-distributed-optimizer-instances"), "2");
  EXPECT_EQ(o.count("--outer-dp-sharding-strategy"), 0u);
  for (const auto& write : {ToNanotron, ToDeepSpeed}) {
    EXPECT_THAT(write(plan).status(),
                StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("--optimizer_weight_shard_size=-1")));
  }
  // Of one parameter's replicas, as networks of operators have it, trainers know nothing.
  plan.strategy.optimizer_shard_size = 8;
  EXPECT_THAT(ToMegatron(plan).status(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("not one of data")));
}

TEST(MegatronTest, ChunksAreVirtualStages) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(kGpt, kMixed, {"--virtual_pipeline_stages=3"}));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToMegatron(plan));
  EXPECT_EQ(NumberOf(OptionsOf(exported.text), "--num-virtual-stages-per-pipeline-rank"), 3);
}

// Groups have no fewer micro-batches than there are stages, the last one either.
TEST(MegatronTest, MicroBatchesThatAreNoWholeGroups) {
  const auto group_of = [](int64_t stages, int64_t microbatches) -> absl::StatusOr<std::pair<int64_t, size_t>> {
    const std::string text = absl::StrReplaceAll(
        kGpt, {{"layers: 6", absl::StrCat("layers: ", 2 * stages)},
               {"batch: 48", absl::StrCat("batch: ", microbatches)},
               {"nodes: 2, devices_per_node: 8", absl::StrCat("nodes: 1, devices_per_node: ", stages)}});
    MESHWRIGHT_ASSIGN_OR_RETURN(const Plan plan, PlanOf(text, {.data = 1, .pipeline = stages, .microbatch = 1},
                                                        {"--virtual_pipeline_stages=2"}));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Exported exported, ToMegatron(plan));
    const auto options = OptionsOf(exported.text);
    const std::string name = "--microbatch-group-size-per-virtual-pipeline-stage";
    return std::pair(options.count(name) == 0 ? int64_t{0} : NumberOf(options, name), exported.differences.size());
  };
  const auto expect = [&](int64_t stages, int64_t microbatches, int64_t group, size_t differences) {
    SCOPED_TRACE(absl::StrCat(stages, " stages, ", microbatches, " micro-batches"));
    ASSERT_OK_AND_ASSIGN(const auto found, group_of(stages, microbatches));
    EXPECT_EQ(found, std::pair(group, differences));
  };
  expect(4, 12, 0, 0);    // whole groups, which need no option
  expect(3, 4, 4, 0);     // one group, as in the plan
  expect(5, 48, 6, 1);    // of 5 the last would have 3
  expect(12, 64, 13, 1);  // of 12 the last would have 4, of 13 it has 12
  EXPECT_THAT(group_of(4, 3).status(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("which must be as many")));
}

TEST(MegatronTest, SaysWhatItDoesOtherwise) {
  ASSERT_OK_AND_ASSIGN(const Plan plan,
                       PlanOf(Llama(), {.data = 2, .tensor = 8, .microbatch = 1}, {"--recompute=selective"}));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToMegatron(plan));
  EXPECT_THAT(exported.differences, ElementsAre(HasSubstr("4 heads of keys and values over 8 ranks"),
                                                HasSubstr("more memory than predicted")));
  EXPECT_THAT(exported.text, HasSubstr("# Differs: 4 heads of keys and values over 8 ranks"));
}

TEST(MegatronTest, RefusesASchedule) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(kGpt, kMixed, {"--schedule=zero_bubble_h1"}));
  EXPECT_THAT(ToMegatron(plan).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("has no schedule zero_bubble_h1; plan with --schedule=1f1b")));
}

TEST(MegatronTest, SequencesAreSharedAsPlanned) {
  const Degrees degrees = {.data = 2,
                           .tensor = 2,
                           .context = 4,
                           .sequence_parallel = true,
                           .exchange = ContextExchange::kRing,
                           .microbatch = 1};
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(Llama(), degrees));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToMegatron(plan));
  const std::map<std::string, std::string> o = OptionsOf(exported.text);
  EXPECT_EQ(NumberOf(o, "--context-parallel-size"), 4);
  EXPECT_EQ(o.at("--cp-comm-type"), "p2p");
  EXPECT_EQ(o.count("--sequence-parallel"), 1u);
  EXPECT_THAT(ToDeepSpeed(plan).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("--context_parallel=1")));
}

TEST(MegatronTest, ExpertsAreSplitAsPlanned) {
  const std::string moe = Llama(", experts: 4, experts_per_token: 2, shared_expert_ffn: 96");
  Degrees degrees = {.data = 8, .tensor = 2, .expert = 4, .sequence_parallel = true, .microbatch = 1};
  ASSERT_OK_AND_ASSIGN(Plan plan, PlanOf(moe, degrees));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToMegatron(plan));
  const std::map<std::string, std::string> o = OptionsOf(exported.text);
  EXPECT_EQ(NumberOf(o, "--expert-model-parallel-size"), 4);
  EXPECT_EQ(NumberOf(o, "--num-experts"), 4);
  EXPECT_EQ(NumberOf(o, "--moe-shared-expert-intermediate-size"), 96);
  EXPECT_EQ(o.count("--moe-grouped-gemm"), 1u);  // without it they are computed one after the other
  EXPECT_EQ(o.at("--moe-expert-capacity-factor"), "1.25");
  // moe_layer.py raises in the first forward pass.
  degrees.sequence_parallel = false;
  ASSERT_OK_AND_ASSIGN(plan, PlanOf(moe, degrees));
  EXPECT_THAT(ToMegatron(plan).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("; plan with --sequence_parallel")));
  EXPECT_THAT(ToNanotron(plan).status(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("has no experts")));
}

// transformer_config.py: of heads of keys and values and ranks one must divide the other.
TEST(MegatronTest, HeadsOfKeysThatDoNotDivide) {
  const std::string six =
      absl::StrReplaceAll(Llama(), {{"heads: 8, kv_heads: 4", "heads: 24, kv_heads: 6, head_dim: 8"}});
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(six, {.data = 4, .tensor = 4, .microbatch = 1}));
  EXPECT_THAT(ToMegatron(plan).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("; plan with --tensor_parallel=2")));
}

// A vocabulary of 50,257 words is 50,304 rows, of which Megatron pads to the multiple times the ranks.
TEST(MegatronTest, VocabulariesAreAsPadded) {
  const std::string words = absl::StrReplaceAll(Llama(), {{"vocab: 1024", "vocab: 50257"}});
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(words, {.data = 4, .tensor = 4, .microbatch = 1}));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToMegatron(plan));
  EXPECT_EQ(NumberOf(OptionsOf(exported.text), "--make-vocab-size-divisible-by"), 32);  // 128 / 4
}

// What is computed otherwise than trainers do unasked is asked for, told, or refused.
TEST(WritersTest, ProductsInFloat8AndUnfusedAttention) {
  const std::string text = absl::StrReplaceAll(
      Llama(), {{"training: {", "training: {attention: unfused, "}, {"h100-sxm,", "h100-sxm, products: float8,"}});
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(text, {.data = 16, .microbatch = 1}));
  ASSERT_OK_AND_ASSIGN(const Exported megatron, ToMegatron(plan));
  const std::map<std::string, std::string> o = OptionsOf(megatron.text);
  EXPECT_EQ(o.at("--fp8-format"), "hybrid");
  EXPECT_EQ(o.at("--attention-backend"), "unfused");
  ASSERT_OK_AND_ASSIGN(const Exported torchtitan, ToTorchtitan(plan));
  EXPECT_THAT(torchtitan.differences, IsSupersetOf({HasSubstr("float8"), HasSubstr("unfused")}));
  for (const auto& write : {ToNanotron, ToDeepSpeed}) {
    EXPECT_THAT(write(plan).status(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("--products=bfloat16")));
  }
}

// Of Megatron-LM NVFP4 with its first format, of Megatron-Bridge the recipe's type, which gathers weights in it, too.
TEST(WritersTest, ProductsInFloat4) {
  const std::string text = absl::StrReplaceAll(Llama(), {{"h100-sxm,", "gb300, products: float4,"}});
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(text, {.data = 16, .microbatch = 1}));
  ASSERT_OK_AND_ASSIGN(const Exported megatron, ToMegatron(plan));
  EXPECT_EQ(OptionsOf(megatron.text).at("--fp4-format"), "e2m1");
  EXPECT_EQ(OptionsOf(megatron.text).count("--fp8-format"), 0u);
  ASSERT_OK_AND_ASSIGN(const Exported nemo, ToNemo(plan));
  EXPECT_THAT(nemo.text, HasSubstr("\nmixed_precision: bf16_with_nvfp4_mixed\n"));
  EXPECT_THAT(nemo.differences, Contains(HasSubstr("weights are gathered in NVFP4, in the plan in bfloat16")));
  EXPECT_THAT(nemo.differences, Not(Contains(HasSubstr("fp4-format"))));
  EXPECT_THAT(ToNanotron(plan).status(), StatusIs(absl::StatusCode::kUnimplemented, "has no float4"));
}

// Megatron-LM's option wants its distributed optimizer, torchao's casts what FSDP gathers, and NeMo's recipe has them.
TEST(WritersTest, WeightsInFloat8) {
  const std::string text = absl::StrReplaceAll(Llama(), {{"h100-sxm,", "h100-sxm, products: float8,"}});
  const Degrees degrees = {.data = 16, .microbatch = 1};
  ASSERT_OK_AND_ASSIGN(const Plan wide, PlanOf(text, degrees, {"--parallel_optimizer", "--noshard_parameters"}));
  ASSERT_OK_AND_ASSIGN(Exported out, ToMegatron(wide));
  EXPECT_EQ(OptionsOf(out.text).count("--fp8-param-gather"), 0u);
  ASSERT_OK_AND_ASSIGN(out, ToNemo(wide));
  EXPECT_THAT(out.differences, Contains(HasSubstr("in float8, in the plan in bfloat16; --parameters=float8")));
  const std::string narrow = absl::StrReplaceAll(text, {{"training: {", "training: {parameters: float8, "}});
  ASSERT_OK_AND_ASSIGN(Plan plan, PlanOf(narrow, degrees, {"--parallel_optimizer", "--noshard_parameters"}));
  ASSERT_OK_AND_ASSIGN(out, ToMegatron(plan));
  EXPECT_EQ(OptionsOf(out.text).count("--fp8-param-gather"), 1u);
  ASSERT_OK_AND_ASSIGN(out, ToNemo(plan));
  EXPECT_THAT(out.differences, Not(Contains(HasSubstr("float8"))));
  EXPECT_THAT(ToTorchtitan(plan).status(), StatusIs(absl::StatusCode::kUnimplemented, "--shard_parameters"));
  ASSERT_OK_AND_ASSIGN(plan, PlanOf(narrow, degrees, {"--shard_parameters"}));
  ASSERT_OK_AND_ASSIGN(out, ToTorchtitan(plan));
  EXPECT_THAT(out.differences, Contains(HasSubstr("enable_fsdp_float8_all_gather")));
  ASSERT_OK_AND_ASSIGN(plan, PlanOf(narrow, degrees, {"--noparallel_optimizer"}));
  EXPECT_THAT(ToMegatron(plan).status(), StatusIs(absl::StatusCode::kUnimplemented, "--parallel_optimizer"));
}

TEST(MegatronTest, RoutersThatChooseOfSomeGroups) {
  const std::string moe = Llama(", experts: 4, experts_per_token: 1, choice_groups: 4, choice_groups_per_token: 2");
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(moe, {.data = 16, .expert = 4, .microbatch = 1}));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToMegatron(plan));
  const std::map<std::string, std::string> o = OptionsOf(exported.text);
  EXPECT_EQ(NumberOf(o, "--moe-router-num-groups"), 4);
  EXPECT_EQ(NumberOf(o, "--moe-router-group-topk"), 2);
}

TEST(MegatronTest, HasNoClassifiers) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(Llama(", classes: 2"), {.data = 16, .microbatch = 1}));
  EXPECT_THAT(ToMegatron(plan).status(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("`classes`")));
}

TEST(WritersTest, Adapters) {
  const std::string adapted = absl::StrReplaceAll(Llama(""), {{"training: {", "training: {lora: {rank: 8}, "}});
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(adapted, {.data = 16, .microbatch = 1}));
  for (const auto& write : {ToMegatron, ToTorchtitan, ToNanotron}) {
    EXPECT_THAT(write(plan).status(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("--trainer=nemo")));
  }
  EXPECT_OK(ToNemo(plan));
  ASSERT_OK_AND_ASSIGN(const Plan zero, PlanOf(adapted, {.data = 16, .microbatch = 1}, {"--parallel_optimizer"}));
  ASSERT_OK_AND_ASSIGN(const Exported deepspeed, ToDeepSpeed(zero));
  EXPECT_THAT(deepspeed.differences, Contains(HasSubstr("LoraConfig(r=8, lora_alpha=8, ..)")));
}

TEST(RecipeTest, AdaptersInWords) {
  Recipe recipe;
  EXPECT_EQ(AdapterWords(recipe).value(), "");
  recipe.training.lora = Lora{.rank = 8};
  EXPECT_EQ(AdapterWords(recipe).value(), "PEFT LoRA of rank 8, all linear");
  recipe.training.lora->mlp1 = false;
  EXPECT_THAT(AdapterWords(recipe).status(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("lora.targets")));
  recipe.training.lora->mlp2 = false;
  EXPECT_EQ(AdapterWords(recipe).value(), "PEFT LoRA of rank 8, q_proj k_proj v_proj o_proj");
}

TEST(MegatronTest, DispatchersAndExpertsOnTensorParallelRanks) {
  const std::string moe = Llama(", experts: 4, experts_per_token: 2");
  ASSERT_OK_AND_ASSIGN(
      Plan plan, PlanOf(moe, {.data = 8, .tensor = 2, .expert = 2, .spread_experts = true, .sequence_parallel = true}));
  ASSERT_OK_AND_ASSIGN(Exported exported, ToMegatron(plan));
  std::map<std::string, std::string> o = OptionsOf(exported.text);
  EXPECT_EQ(NumberOf(o, "--expert-model-parallel-size"), 4);
  EXPECT_EQ(NumberOf(o, "--expert-tensor-parallel-size"), 1);
  EXPECT_EQ(o.at("--moe-token-dispatcher-type"), "alltoall");
  ASSERT_OK_AND_ASSIGN(plan, PlanOf(moe, {.data = 16, .expert = 4, .expert_groups = 2}));
  ASSERT_OK_AND_ASSIGN(exported, ToMegatron(plan));
  o = OptionsOf(exported.text);
  EXPECT_EQ(NumberOf(o, "--expert-model-parallel-size"), 4);
  EXPECT_EQ(o.at("--moe-token-dispatcher-type"), "flex");
}

TEST(TorchtitanTest, ThePlanComesOutOfItsFunction) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(Llama(), {.data = 4, .tensor = 2, .pipeline = 2, .microbatch = 2},
                                               {"--shard_parameters"}));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToTorchtitan(plan));
  EXPECT_THAT(exported.differences, IsEmpty());
  for (const char* line : {"\ndef plan_llama(cfg):\n", "    p.data_parallel_replicate_degree = 1\n",
                           "    p.data_parallel_shard_degree = 4\n", "    p.fsdp_reshard_after_forward = \"always\"\n",
                           "    p.tensor_parallel_degree = 2\n", "    p.enable_sequence_parallel = False\n",
                           "    p.pipeline_parallel_degree = 2\n", "    p.pipeline_parallel_schedule = \"1F1B\"\n",
                           // 48 sequences, 2 x 4 a micro-batch.
                           "    p.num_pp_microbatches = 6\n", "= parts_of([3, 3])\n",
                           "num_tokens_per_microbatch_per_dp_rank = 64  # 2 x 32\n",
                           "num_tokens_per_train_step = 1536  # 48 x 32\n", "cfg.training.disable_cuda_graphs = True\n",
                           "parts[-1] += [\"norm\", \"lm_head\"]\n", "cfg.activation_checkpoint = None\n"}) {
    EXPECT_THAT(exported.text, HasSubstr(line));
  }
}

TEST(TorchtitanTest, RunsAgainAndReducesAsItCan) {
  std::string text = Llama();
  text.replace(text.find("bfloat16"), 8, "bfloat16, gradient_dtype: bfloat16");
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(text, {.data = 16, .microbatch = 1}, {"--recompute=full"}));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToTorchtitan(plan));
  EXPECT_THAT(exported.text, AllOf(HasSubstr("\nfrom torchtitan.distributed.activation_checkpoint import FullAC\n"),
                                   HasSubstr("    cfg.activation_checkpoint = FullAC.Config()\n"),
                                   Not(HasSubstr("cuda_graphs")), Not(HasSubstr("mixed_precision_reduce"))));
  EXPECT_THAT(exported.differences, Contains(HasSubstr("reduces gradients in float32, the plan in bfloat16")));
}

// Six layers on two stages, forth and back.
TEST(TorchtitanTest, SchedulesHaveItsNames) {
  const Degrees degrees = {.data = 4, .pipeline = 2, .microbatch = 2};
  for (const auto& [schedule, name] : {std::pair("zero_bubble_v", "ZBVZeroBubble"), {"dualpipe_v", "DualPipeV"}}) {
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(Llama(), degrees, {absl::StrCat("--schedule=", schedule)}));
    ASSERT_OK_AND_ASSIGN(const Exported exported, ToTorchtitan(plan));
    EXPECT_THAT(exported.text, HasSubstr(absl::StrCat("p.pipeline_parallel_schedule = \"", name, "\"\n")));
    EXPECT_THAT(exported.text, HasSubstr("= parts_of([2, 2, 1, 1])\n"));
  }
  ASSERT_OK_AND_ASSIGN(const Plan both_ways, PlanOf(Llama(), degrees, {"--schedule=dualpipe"}));
  EXPECT_THAT(ToTorchtitan(both_ways).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("has no schedule dualpipe")));
}

// 12 micro-batches on 2 stages are 6 rounds of 2; 3 are one round; 5 would be 2 rounds and one left.
TEST(TorchtitanTest, InterleavesInRoundsOfAsManyMicroBatches) {
  const auto status_of = [](int64_t batch) -> absl::Status {
    const std::string text = absl::StrReplaceAll(Llama(), {{"batch: 48", absl::StrCat("batch: ", 2 * batch)}});
    MESHWRIGHT_ASSIGN_OR_RETURN(const Plan plan, PlanOf(text, {.data = 2, .tensor = 4, .pipeline = 2, .microbatch = 1},
                                                        {"--virtual_pipeline_stages=3"}));
    return ToTorchtitan(plan).status();
  };
  EXPECT_THAT(status_of(5), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("a multiple of the 2 rounds")));
  EXPECT_OK(status_of(3));
  EXPECT_OK(status_of(12));
}

TEST(TorchtitanTest, RefusesMoreRanksThanHeadsOfKeys) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(Llama(), {.data = 2, .tensor = 8, .microbatch = 1}));
  EXPECT_THAT(ToTorchtitan(plan).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("--tensor_parallel=4")));
}

TEST(NanotronTest, ThePlanComesOutOfItsSections) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(Llama(), kMixed, {"--parallel_optimizer", "--recompute=full"}));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToNanotron(plan));
  ASSERT_OK_AND_ASSIGN(const Document document, ParseDocument(exported.text, "nanotron.yaml"));
  const NodeRef parallelism = document.root()["parallelism"], tokens = document.root()["tokens"];
  const auto number = [](const NodeRef& in) { return in.AsInt(0).value_or(-1); };
  EXPECT_EQ(number(parallelism["dp"]), 4);
  EXPECT_EQ(number(parallelism["tp"]), 2);
  EXPECT_EQ(number(parallelism["pp"]), 2);
  EXPECT_EQ(number(tokens["micro_batch_size"]), 2);
  EXPECT_EQ(number(tokens["batch_accumulation_per_replica"]), 6);
  EXPECT_EQ(number(document.root()["optimizer"]["zero_stage"]), 1);
  EXPECT_EQ(number(document.root()["model"]["model_config"]["num_key_value_heads"]), 4);
  EXPECT_THAT(exported.text, HasSubstr("tp_mode: REDUCE_SCATTER"));
  EXPECT_THAT(exported.text, HasSubstr("recompute_layer: true"));
  // PyYAML reads 1e-08 as a text.
  EXPECT_THAT(exported.text, HasSubstr("adam_eps: 1.0e-08\n"));
}

TEST(NanotronTest, RefusesWhatItsLlamaDoesNotHave) {
  ASSERT_OK_AND_ASSIGN(Plan plan,
                       PlanOf(Llama(), {.data = 8, .context = 2, .exchange = ContextExchange::kRing, .microbatch = 1}));
  EXPECT_THAT(ToNanotron(plan).status(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("--context_parallel=1")));
  ASSERT_OK_AND_ASSIGN(plan, PlanOf(Llama(), {.data = 2, .tensor = 8, .microbatch = 1}));
  EXPECT_THAT(ToNanotron(plan).status(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("--tensor_parallel=4")));
  ASSERT_OK_AND_ASSIGN(plan, PlanOf(Llama(", head_dim: 16"), {.data = 16, .microbatch = 1}));
  EXPECT_THAT(ToNanotron(plan).status(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("hidden / heads")));
}

TEST(NanotronTest, RefusesWhatIsNoLlama) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(kGpt, kMixed));
  EXPECT_THAT(ToNanotron(plan).status(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("built as Llama is")));
}

TEST(DeepSpeedTest, ThePlanComesOutOfItsJson) {
  ASSERT_OK_AND_ASSIGN(const Plan plan,
                       PlanOf(Llama(), {.data = 8, .tensor = 2, .microbatch = 3}, {"--shard_parameters"}));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToDeepSpeed(plan));
  const auto json = nlohmann::json::parse(exported.text);
  EXPECT_EQ(json["train_batch_size"], 48);
  EXPECT_EQ(json["train_micro_batch_size_per_gpu"], 3);
  EXPECT_EQ(json["gradient_accumulation_steps"], 2);
  EXPECT_EQ(json["zero_optimization"]["stage"], 3);
  EXPECT_EQ(json["tensor_parallel"]["autotp_size"], 2);
  EXPECT_EQ(json["bf16"]["enabled"], true);
}

TEST(DeepSpeedTest, ScalesTheLossAsPlanned) {
  std::string text = Llama();
  text.replace(text.find("bfloat16"), 8, "float16, loss_scale: {initial: 1024, growth_interval: 100}");
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(text, {.data = 16, .microbatch = 1}, {"--parallel_optimizer"}));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToDeepSpeed(plan));
  const auto fp16 = nlohmann::json::parse(exported.text)["fp16"];
  EXPECT_EQ(fp16["initial_scale_power"], 10);  // 2^10
  EXPECT_EQ(fp16["loss_scale_window"], 100);
  ASSERT_OK_AND_ASSIGN(const Exported megatron, ToMegatron(plan));
  EXPECT_THAT(megatron.text, HasSubstr("  --initial-loss-scale 1024 "));
}

// One that stays is no dynamic one with a window of one step; none is 1, since without a word both scale by themselves.
TEST(DeepSpeedTest, ScalesThatStay) {
  for (const auto& [scale, expected] : {std::pair("128", 128), {"none", 1}}) {
    std::string text = Llama();
    text.replace(text.find("bfloat16"), 8, absl::StrCat("float16, loss_scale: ", scale));
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(text, {.data = 16, .microbatch = 1}, {"--parallel_optimizer"}));
    ASSERT_OK_AND_ASSIGN(const Exported exported, ToDeepSpeed(plan));
    const auto fp16 = nlohmann::json::parse(exported.text)["fp16"];
    EXPECT_EQ(fp16["loss_scale"], expected);
    EXPECT_FALSE(fp16.contains("loss_scale_window"));
    ASSERT_OK_AND_ASSIGN(const Exported megatron, ToMegatron(plan));
    EXPECT_EQ(NumberOf(OptionsOf(megatron.text), "--loss-scale"), expected);
    EXPECT_THAT(megatron.text, Not(HasSubstr("--loss-scale-window")));
  }
  std::string text = Llama();
  text.replace(text.find("bfloat16"), 8, "float16, loss_scale: {growth_factor: 4, backoff_factor: 0.25}");
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(text, {.data = 16, .microbatch = 1}, {"--parallel_optimizer"}));
  for (const auto& write : {ToMegatron, ToDeepSpeed}) {
    ASSERT_OK_AND_ASSIGN(const Exported exported, write(plan));
    EXPECT_THAT(exported.differences, Contains(HasSubstr("the plan's factors are 4 and 0.25")));
  }
}

// engine.py, _do_optimizer_sanity_check and communication_data_type.
TEST(DeepSpeedTest, GradientsOfAnotherType) {
  ASSERT_OK_AND_ASSIGN(Plan plan, PlanOf(Llama(), {.data = 16, .microbatch = 1}, {"--noparallel_optimizer"}));
  EXPECT_THAT(ToDeepSpeed(plan).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("--parallel_optimizer")));
  ASSERT_OK_AND_ASSIGN(plan, PlanOf(Llama(), {.data = 16, .microbatch = 1}, {"--parallel_optimizer"}));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToDeepSpeed(plan));
  EXPECT_EQ(nlohmann::json::parse(exported.text)["communication_data_type"], "fp32");
}

TEST(DeepSpeedTest, RefusesAPipeline) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(kGpt, kMixed));
  EXPECT_THAT(ToDeepSpeed(plan).status(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("--stages=1")));
}

TEST(RecipeTest, AStrategyThatDegreesDoNotSayIsRefused) {
  ASSERT_OK_AND_ASSIGN(Plan plan, PlanOf(kGpt, kMixed));
  plan.strategy.rules.erase(plan.strategy.rules.begin());  // the batch, over data-parallel ranks
  EXPECT_THAT(RecipeOf(plan).status(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("data, tensor, pipeline")));
}

}  // namespace
}  // namespace meshwright
