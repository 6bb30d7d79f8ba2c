#include "tools/session.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "costmodel/library.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/document.h"
#include "ir/error_kind.h"
#include "ir/testing.h"
#include "models/knobs.h"
#include "planner/search/search.h"
#include "tools/cluster_flags.h"
#include "tools/exit_code.h"
#include "tools/files.h"

namespace meshwright {
namespace {

using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<Session> Open(const std::string& text, const std::vector<std::string>& args = {}) {
  std::vector<FlagSpec> specs = StrategyFlags();
  specs.insert(specs.end(), ClusterFlags().begin(), ClusterFlags().end());
  MESHWRIGHT_ASSIGN_OR_RETURN(const Flags flags, Flags::Parse(specs, args));
  return OpenModel({"m.yaml", text}, flags);
}

std::string Decoder(const std::string& parallel = "") {
  return absl::StrCat(
      "name: d\narchitecture: {decoder: {hidden: 16, layers: 4, heads: 2, vocab: 32}}\n"
      "training: {batch: 16, sequence: 8, dtype: bfloat16}\ncluster: {device: h100-sxm, nodes: 1}\nparallel: {",
      parallel, "}\n");
}
std::string Operators(const std::string& parallel, const std::string& shard = "") {
  return absl::StrCat(
      "name: o\ninputs: {x: {shape: [16, 32]}, y: {shape: [16, 8]}}\nparameters: {w: {shape: [32, 8]}}\noperators:\n"
      "  - {name: matmul, op: MatMul, inputs: [x, w]",
      shard, "}\n  - {name: loss, op: MSELoss, inputs: [matmul, y]}\ncluster: h100-sxm\nparallel: {", parallel, "}\n");
}
constexpr char kShard[] = ", shard: [[2, 4], [4, 1]]";

TEST(SessionTest, ADecoderLeavesItsChoicesOpen) {
  ASSERT_OK_AND_ASSIGN(const Session session, Open(Decoder()));
  const Problem& problem = session.problem;
  EXPECT_EQ(problem.mode, SearchMode::kDecoder);
  EXPECT_EQ(problem.batch, 16);
  EXPECT_EQ(problem.tokens_per_row, 8);
  EXPECT_EQ(problem.cluster.num_devices(), 8);
  EXPECT_FALSE(problem.stages.has_value());
  EXPECT_FALSE(problem.parallel_optimizer.has_value());
  EXPECT_FALSE(problem.recompute.has_value());
  EXPECT_FALSE(problem.loss_is_sum);
  EXPECT_THAT(session.notices, ElementsAre(HasSubstr("optimizer is not given: adamw")));
}

TEST(SessionTest, WhatTheFileSaysIsFixed) {
  ASSERT_OK_AND_ASSIGN(const Session session,
                       Open(Decoder("pipeline_stages: 2, tensor_parallel: 2, enable_parallel_optimizer: true, "
                                    "recompute: full, micro_batches: 4, comm_fusion: {allreduce: {mode: size, config: "
                                    "32}, allgather: {mode: size, config: 8}}, pipeline_loss: sum")));
  const Problem& problem = session.problem;
  EXPECT_EQ(problem.stages, 2);
  EXPECT_EQ(problem.tensor_parallel, 2);
  EXPECT_EQ(problem.parallel_optimizer, true);
  EXPECT_EQ(problem.recompute, Recompute::kFull);
  EXPECT_EQ(problem.microbatches, 4);
  EXPECT_EQ(problem.bucket, MiB(32));
  EXPECT_EQ(problem.gather_bucket, MiB(8));
  EXPECT_TRUE(problem.loss_is_sum);
}

TEST(SessionTest, FlagsWinOverTheFile) {
  ASSERT_OK_AND_ASSIGN(
      const Session session,
      Open(Decoder("tensor_parallel: 2, recompute: full"),
           {"--tensor_parallel=4", "--recompute=none", "--stages=2", "--batch=32", "--precision=float64",
            "--noparallel_optimizer", "--bucket=1MiB", "--schedule=gpipe", "--pipeline_loss=sum", "--microbatch=2",
            "--context_parallel=1", "--context_exchange=ring"}));
  const Problem& problem = session.problem;
  EXPECT_EQ(problem.tensor_parallel, 4);
  EXPECT_EQ(problem.recompute, Recompute::kNone);
  EXPECT_EQ(problem.stages, 2);
  EXPECT_EQ(problem.batch, 32);
  EXPECT_EQ(problem.gradient_dtype, DType::kFloat64);
  EXPECT_EQ(problem.parallel_optimizer, false);
  EXPECT_EQ(problem.bucket, MiB(1));
  EXPECT_EQ(problem.schedule, Schedule::kGpipe);
  EXPECT_TRUE(problem.loss_is_sum);
  EXPECT_EQ(problem.microbatch, 2);
  EXPECT_EQ(problem.context_parallel, 1);
  EXPECT_EQ(problem.context_exchange, ContextExchange::kRing);
  EXPECT_EQ(session.changes.precision, DType::kFloat64);
  ASSERT_OK_AND_ASSIGN(const Graph graph, problem.graph(2));
  EXPECT_EQ(graph.tensor(graph.FindTensor("embedding")).dtype, DType::kFloat64);
}

TEST(SessionTest, ASequenceOfAFlagIsTheDecodersOwn) {
  ASSERT_OK_AND_ASSIGN(const Session session, Open(Decoder(), {"--sequence=32"}));
  EXPECT_EQ(session.problem.tokens_per_row, 32);
  EXPECT_EQ(session.changes.sequence, 32);
  ASSERT_OK_AND_ASSIGN(const Graph graph, session.problem.graph(2));
  EXPECT_EQ(graph.tensor(graph.FindTensor("tokens")).shape, (Shape{2, 32}));
  EXPECT_THAT(Open(Operators(""), {"--sequence=32"}),
              StatusIs(kInvalid, "--sequence: found a model of operators, wanted a decoder"));
}

// The rank alone: which products have adapters, and how they are scaled, stays the file's.
TEST(SessionTest, ARankOfAdaptersIsAFlagToo) {
  ASSERT_OK_AND_ASSIGN(const Session session, Open(Decoder(), {"--lora_rank=4"}));
  EXPECT_EQ(session.changes.lora_rank, 4);
  EXPECT_EQ(session.file->training.lora, (Lora{.rank = 4}));
  ASSERT_OK_AND_ASSIGN(const Graph graph, session.problem.graph(2));
  EXPECT_FALSE(graph.tensor(graph.FindTensor("embedding")).trainable);
  EXPECT_TRUE(graph.tensor(graph.FindTensor("qkv.lora_a.weight")).trainable);
  EXPECT_THAT(Open(Operators(""), {"--lora_rank=4"}),
              StatusIs(kInvalid, "--lora_rank: found a model of operators, wanted a decoder"));
  EXPECT_THAT(Open(Decoder(), {"--lora_rank=0"}), StatusIs(kInvalid, "--lora_rank"));
}

TEST(SessionTest, WeightsInFloat8AreOfProductsInIt) {
  const std::vector<std::string> narrow = {"--device=h100", "--precision=bfloat16", "--parameters=float8"};
  EXPECT_THAT(Open(Decoder(), narrow),
              StatusIs(kInvalid, "wanted 16-bit products that run in float8; give --products"));
  ASSERT_OK_AND_ASSIGN(const Session session, Open(Decoder(), {narrow[0], narrow[1], narrow[2], "--products=float8"}));
  EXPECT_EQ(session.changes.float8_parameters, true);
  EXPECT_TRUE(session.file->training.float8_parameters);
  EXPECT_THAT(Open(Operators(""), {"--parameters=float8"}), StatusIs(kInvalid, "--parameters: found a model of"));
}

TEST(SessionTest, ShortNamesOfTypesAreToldTheLongOnes) {
  EXPECT_THAT(Open(Decoder(), {"--precision=bf16"}),
              StatusIs(kInvalid, "--precision: found \"bf16\", wanted bfloat16"));
  EXPECT_THAT(
      Open(Decoder(), {"--precision=fp8"}),
      StatusIs(kInvalid, "wanted one of float32, float64, bfloat16, float16; --products=float8 multiplies in it"));
  EXPECT_THAT(Open("name: d\ntraining: {dtype: fp16}\n"),
              StatusIs(kInvalid, "m.yaml:2:19: training.dtype: found \"fp16\", wanted float16"));
}

TEST(SessionTest, DegreesHaveBounds) {
  const std::string file = Decoder(
      "max_pipeline_stages: 4, max_tensor_parallel: 8, max_data_parallel: 64, "
      "max_expert_parallel: 2, max_context_parallel: 1");
  ASSERT_OK_AND_ASSIGN(Session session, Open(file));
  EXPECT_EQ(session.problem.max_stages, 4);
  EXPECT_EQ(session.problem.max_tensor_parallel, 8);
  EXPECT_EQ(session.problem.max_data_parallel, 64);
  EXPECT_EQ(session.problem.max_expert_parallel, 2);
  EXPECT_EQ(session.problem.max_context_parallel, 1);
  EXPECT_FALSE(session.problem.stages.has_value());
  ASSERT_OK_AND_ASSIGN(session, Open(file, {"--max_stages=2", "--max_data_parallel=8", "--stages=2"}));
  EXPECT_EQ(session.problem.max_stages, 2);
  EXPECT_EQ(session.problem.max_data_parallel, 8);
  EXPECT_EQ(session.problem.stages, 2);
  // What is fixed is not above.
  EXPECT_THAT(Open(Decoder("tensor_parallel: 8, max_tensor_parallel: 4")),
              StatusIs(kInvalid, "max_tensor_parallel: found 4, wanted at least 8, which the degree is fixed at"));
  EXPECT_THAT(Open(Decoder(""), {"--max_stages=2", "--stages=4"}),
              StatusIs(kInvalid, "--max_stages: found 2, wanted at least 4, which the degree is fixed at"));
  EXPECT_THAT(Open(Decoder("max_pipeline_stages: 0")), StatusIs(kInvalid, "wanted an integer from 1 to "));
}

TEST(SessionTest, GroupsOfReplicasDivideThem) {
  const std::string file = Decoder("enable_parallel_optimizer: true, optimizer_weight_shard_size: 4");
  ASSERT_OK_AND_ASSIGN(Session session, Open(file));
  EXPECT_EQ(session.problem.optimizer_shard_size, 4);
  ASSERT_OK_AND_ASSIGN(session, Open(file, {"--optimizer_weight_shard_size=-1"}));
  EXPECT_EQ(session.problem.optimizer_shard_size, -1);
  ASSERT_OK_AND_ASSIGN(session, Open(Decoder("enable_parallel_optimizer: true")));
  EXPECT_FALSE(session.problem.optimizer_shard_size.has_value());
  // Of 8 devices, two have a part of each parameter.
  EXPECT_THAT(Open(Decoder("tensor_parallel: 2, parallel_optimizer_config: {optimizer_weight_shard_size: 8}")),
              StatusIs(kInvalid,
                       "parallel_optimizer_config.optimizer_weight_shard_size: found 8, wanted a divisor of "
                       "the 4 ranks that can have the same parameters; -1 is all of them"));
  EXPECT_THAT(Open(Decoder("data_parallel: 2, context_parallel: 2, optimizer_weight_shard_size: 3")),
              StatusIs(kInvalid, "m.yaml:5:"));
  EXPECT_THAT(Open(file, {"--optimizer_weight_shard_size=3"}),
              StatusIs(kInvalid, "--optimizer_weight_shard_size: found 3, wanted a divisor of the 8 ranks"));
  EXPECT_THAT(Open(file, {"--optimizer_weight_shard_size=0"}), StatusIs(kInvalid, "found 0, wanted -1"));
  // 4 ranks share a sequence: two of them have no copy.
  EXPECT_THAT(Open(Decoder("data_parallel: 2, context_parallel: 4, optimizer_weight_shard_size: 2")),
              StatusIs(kInvalid,
                       "found 2, wanted a divisor of the 8 ranks that can have the same parameters, and a "
                       "multiple of the 4 that share a sequence or the experts; -1 is all of them [E-VALUE]"));
}

TEST(SessionTest, GroupsThatSplitNothingAreTold) {
  const auto notices = [](absl::string_view parallel) {
    const absl::StatusOr<Session> session = Open(Decoder(std::string(parallel)));
    return session.ok() ? session->notices : std::vector<std::string>{std::string(session.status().message())};
  };
  EXPECT_THAT(notices("enable_parallel_optimizer: false, optimizer_weight_shard_size: 2"),
              Contains("optimizer_weight_shard_size 2 has no effect without the parallel optimizer"));
  EXPECT_THAT(notices("optimizer_weight_shard_size: 1"),
              Contains(HasSubstr("optimizer_weight_shard_size 1 is taken for -1, all replicas")));
  for (const char* const idle : {"optimizer_weight_shard_size: 2", "optimizer_weight_shard_size: -1",
                                 "enable_parallel_optimizer: false, optimizer_weight_shard_size: -1"}) {
    EXPECT_THAT(notices(idle), Not(Contains(HasSubstr("optimizer_weight_shard_size")))) << idle;
  }
}

TEST(SessionTest, AConfigOfHuggingFaceNeedsABatchAndASequence) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/tiny-llama");
  std::filesystem::create_directories(folder);
  const std::string path = absl::StrCat(folder, "/config.json");
  std::ofstream(path) << R"({"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 32,
      "num_attention_heads": 2, "intermediate_size": 16, "torch_dtype": "float16"})";
  std::vector<FlagSpec> specs = StrategyFlags();
  specs.insert(specs.end(), ClusterFlags().begin(), ClusterFlags().end());
  const auto flags = [&](std::vector<std::string> args) { return *Flags::Parse(specs, args); };
  const absl::Status missing = ReadModelSource(path, flags({"--batch=8"})).status();
  EXPECT_THAT(missing, StatusIs(kInvalid, "give --batch and --sequence, e.g. --batch=1024 --sequence=8192"));
  EXPECT_EQ(ExitCodeOf(missing), ExitCode::kUsage);

  const Flags given = flags({"--batch=8", "--sequence=16", "--device=h100-sxm", "--devices=8"});
  ASSERT_OK_AND_ASSIGN(const SourceFile source, ReadModelSource(path, given));
  ASSERT_OK_AND_ASSIGN(const Session session, OpenModel(source, given));
  EXPECT_EQ(session.problem.name, "tiny-llama");
  EXPECT_EQ(session.problem.batch, 8);
  EXPECT_EQ(session.problem.tokens_per_row, 16);
  EXPECT_EQ(session.problem.update.kind, OpKind::kAdamW);
  EXPECT_EQ(session.file->training.dtype, DType::kBFloat16) << "what is trained in, not what is stored";
  EXPECT_THAT(session.notices, ElementsAre(HasSubstr("planned in bfloat16 with AdamW")));
  const Flags wide = flags({"--batch=8", "--sequence=16", "--device=h100-sxm", "--devices=8", "--precision=float32"});
  ASSERT_OK_AND_ASSIGN(const Session of_wide, OpenModel(source, wide));
  EXPECT_THAT(of_wide.notices, ElementsAre(HasSubstr("planned in float32 with AdamW")));
  EXPECT_EQ(session.source.text, source.text) << "so that a plan holds both";
  EXPECT_EQ(session.source.config, source.config);
  ASSERT_OK_AND_ASSIGN(const SourceFile of_folder, ReadModelSource(folder, given));
  EXPECT_EQ(of_folder.path, path);
}

// 4e6 / 8192 = 488.3.
TEST(SessionTest, ABatchInTokensIsToldInSequences) {
  const auto batch = [](std::vector<std::string> args) {
    return BatchFrom(*Flags::Parse(StrategyFlags(), args)).status();
  };
  EXPECT_THAT(batch({"--batch=4M", "--sequence=8192"}),
              StatusIs(kInvalid,
                       "--batch: found \"4M\", wanted sequences of a step, an integer; 4M tokens are about "
                       "488 of 8192"));
  EXPECT_THAT(batch({"--batch=4M"}), StatusIs(kInvalid, "for 4M tokens, write 4M over the tokens of a sequence"));
  EXPECT_THAT(batch({"--batch=0.5"}), StatusIs(kInvalid, "wanted an integer from 1 to 4294967296"));
  EXPECT_OK(batch({"--batch=512"}));
  EXPECT_OK(batch({}));
}

// V100 has products in float16 alone; the host in neither.
TEST(SessionTest, ADeviceWithoutBfloat16IsTold) {
  const auto notices = [](const std::string& device, const std::string& precision) {
    const absl::StatusOr<Session> session = Open(Decoder(), {"--device=" + device, "--precision=" + precision});
    EXPECT_OK(session);
    return session.ok() ? session->notices : std::vector<std::string>();
  };
  EXPECT_THAT(
      notices("v100-sxm-32gb", "bfloat16"),
      Contains(HasSubstr("v100-sxm-32gb has no bfloat16, whose products are priced as in float16; --precision")));
  EXPECT_THAT(notices("host", "bfloat16"),
              Contains(HasSubstr("host has no bfloat16, whose products are priced as in float32")));
  EXPECT_THAT(notices("v100-sxm-32gb", "float16"), Not(Contains(HasSubstr("bfloat16"))));
  EXPECT_THAT(notices("a100", "bfloat16"), Not(Contains(HasSubstr("has no"))));
}

TEST(SessionTest, AFabricThatIsHalfSaidIsTold) {
  const auto notices = [](const std::vector<std::string>& flags) {
    const absl::StatusOr<Session> session = Open(Decoder(), flags);
    EXPECT_OK(session);
    return session.ok() ? session->notices : std::vector<std::string>();
  };
  const std::string over = "--oversubscription=4", leaves = "--nodes_per_leaf=2";
  EXPECT_THAT(notices({"--device=a100", "--devices=32", over}),
              Contains(HasSubstr("oversubscription slows all-to-alls alone, unless nodes_per_leaf says")));
  EXPECT_THAT(notices({"--device=a100", "--devices=32", leaves}),
              Contains(HasSubstr("nodes_per_leaf has no effect without oversubscription")));
  EXPECT_THAT(notices({"--device=a100", "--devices=32", over, leaves}), Not(Contains(HasSubstr("nodes_per_leaf"))));
  EXPECT_THAT(notices({"--device=a100", "--devices=8", over}), Not(Contains(HasSubstr("nodes_per_leaf"))));
}

TEST(SessionTest, ASlowCpuIsATrainers) {
  const std::vector<std::string> flags = {"--device=a100", "--cpu_slowdown=2"};
  ASSERT_OK_AND_ASSIGN(const Session session, Open(Decoder(), flags));
  EXPECT_THAT(session.notices, Contains(HasSubstr("cpu_slowdown has no effect on our own program")));
}

// docs/model_file.md: its first file is read, and it names every knob, every key of clusters and every device.
TEST(SessionTest, ThePageOfTheModelFileIsComplete) {
  ASSERT_OK_AND_ASSIGN(const std::string page, ReadFile("docs/model_file.md", kMaxDocumentBytes));
  const size_t begin = page.find("```yaml\n") + 8;
  ASSERT_OK_AND_ASSIGN(const Session session,
                       OpenModel({"page.yaml", page.substr(begin, page.find("```", begin) - begin)}, Flags()));
  EXPECT_EQ(session.problem.batch, 512);
  for (const Knob& knob : ParallelKnobs()) {
    EXPECT_THAT(page, HasSubstr(absl::StrCat("`", knob.name, "`"))) << "models/knobs.cc";
  }
  for (const ClusterKey& key : ClusterKeys()) EXPECT_THAT(page, HasSubstr(absl::StrCat("`", key.name, "`")));
  const absl::Status unknown =
      OpenModel({"m.yaml", "{name: m, huggingface: c.json, training: {batch: 1, sequence: 1}}", "{model_type: none}"},
                Flags())
          .status();
  const std::vector<std::string> parts = absl::StrSplit(unknown.message(), absl::ByAnyChar(";"));
  for (absl::string_view family : absl::StrSplit(parts[0].substr(parts[0].find("one of ") + 7), ", ")) {
    EXPECT_THAT(page, ContainsRegex(absl::StrCat("[ \n]", family, "[ ,.\n]"))) << "kFamilies of models/hugging_face.cc";
  }
  for (const std::string& device : DeviceNames()) EXPECT_THAT(page, ContainsRegex("[ \n]" + device + "[,.]"));
}

// 1f1b unless somebody says otherwise, chunks searched; a file that speaks of its pipeline has said so of both.
TEST(SessionTest, SchedulesAndChunks) {
  ASSERT_OK_AND_ASSIGN(const Session free, Open(Decoder("")));
  EXPECT_EQ(free.problem.schedule, Schedule::kOneFOneB);
  EXPECT_FALSE(free.problem.chunks.has_value());
  ASSERT_OK_AND_ASSIGN(const Session file, Open(Decoder("pipeline_config: {pipeline_scheduler: 1f1b}")));
  EXPECT_EQ(file.problem.chunks, 1);
  ASSERT_OK_AND_ASSIGN(const Session any, Open(Decoder(""), {"--schedule=any"}));
  EXPECT_FALSE(any.problem.schedule.has_value());
  ASSERT_OK_AND_ASSIGN(const Session v, Open(Decoder(""), {"--schedule=dualpipe_v"}));
  EXPECT_EQ(v.problem.chunks, 2);
  // Four layers: two chunks of each of two stages, but not three.
  ASSERT_OK_AND_ASSIGN(const Session two, Open(Decoder(""), {"--virtual_pipeline_stages=2"}));
  EXPECT_THAT(two.notices, Not(Contains(HasSubstr("leave pipelines out"))));
  ASSERT_OK_AND_ASSIGN(const Session three, Open(Decoder(""), {"--virtual_pipeline_stages=3"}));
  EXPECT_THAT(three.notices, Contains(HasSubstr("two stages have 6 chunks, and there are 4 layers")));
  EXPECT_THAT(Open(Decoder(""), {"--schedule=auto"}), StatusIs(absl::StatusCode::kInvalidArgument, "dualpipe, any"));
  EXPECT_THAT(Open(Operators(""), {"--schedule=any"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "wanted a model of repeated layers"));
}

TEST(SessionTest, ModesOfOperatorModels) {
  const std::vector<std::pair<std::string, SearchMode>> modes = {
      {"parallel_mode: stand_alone", SearchMode::kStandAlone},
      {"parallel_mode: data_parallel", SearchMode::kDataParallel},
      {"parallel_mode: hybrid_parallel", SearchMode::kDataParallel},
      {"parallel_mode: semi_auto_parallel", SearchMode::kDefaults},
      {"parallel_mode: auto_parallel", SearchMode::kDynamicProgramming},
      {"parallel_mode: auto_parallel, search_mode: dynamic_programming", SearchMode::kDynamicProgramming},
      {"parallel_mode: auto_parallel, search_mode: recursive_programming", SearchMode::kRecursiveProgramming},
      {"parallel_mode: auto_parallel, search_prices: simulation", SearchMode::kExhaustive},
      {"parallel_mode: auto_parallel, search_mode: sharding_propagation", SearchMode::kShardingPropagation},
  };
  for (const auto& [parallel, mode] : modes) {
    ASSERT_OK_AND_ASSIGN(const Session session, Open(Operators(parallel)));
    EXPECT_EQ(session.problem.mode, mode) << parallel;
    EXPECT_EQ(session.problem.stages, 1) << parallel;
    EXPECT_EQ(session.problem.parallel_optimizer, false) << parallel;
  }
  ASSERT_OK_AND_ASSIGN(const Session flag, Open(Operators(""), {"--mode=semi_auto_parallel"}));
  EXPECT_EQ(flag.problem.mode, SearchMode::kDefaults);
  // R25.
  EXPECT_THAT(Open(Operators("parallel_mode: auto_parallel"), {"--stages=2"}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "dynamic_programming (the default) plans no pipeline, and pipeline_stages is 2"));
}

TEST(SessionTest, CostModelOfOperatorModels) {
  ASSERT_OK_AND_ASSIGN(const Session session,
                       Open(Operators("parallel_mode: auto_parallel, costmodel_beta: 400, enable_alltoall: true, "
                                      "search_prices: time, device_memory_capacity: 61440")));
  EXPECT_EQ(session.problem.cost_model.beta, 400);
  EXPECT_EQ(session.problem.cost_model.device_memory_capacity, Bytes(61440));
  EXPECT_TRUE(session.problem.enable_alltoall);
  EXPECT_EQ(session.problem.search_prices, PriceKind::kTime);
}

// S8.7: the ranks' gradients are of their own rows' mean, and summed.
TEST(SessionTest, DataParallelScalesGradients) {
  ASSERT_OK_AND_ASSIGN(const Session sum, Open(Operators("parallel_mode: data_parallel")));
  EXPECT_EQ(sum.problem.gradient_scale, 8);
  EXPECT_FALSE(sum.problem.gradients_mean);
  ASSERT_OK_AND_ASSIGN(const Session mean, Open(Operators("parallel_mode: data_parallel, gradients_mean: true")));
  EXPECT_EQ(mean.problem.gradient_scale, 8);  // and divided by the 8 replicas
  EXPECT_TRUE(mean.problem.gradients_mean);
  ASSERT_OK_AND_ASSIGN(const Session semi, Open(Operators("parallel_mode: semi_auto_parallel, gradients_mean: true")));
  EXPECT_EQ(semi.problem.gradient_scale, 1);
  EXPECT_TRUE(semi.problem.gradients_mean);
}

TEST(SessionTest, ShardsAreTakenOrLeft) {
  const std::string text = Operators("parallel_mode: semi_auto_parallel", kShard);
  ASSERT_OK_AND_ASSIGN(const Session taken, Open(text));
  EXPECT_EQ(taken.problem.shards.count("matmul"), 1u);
  ASSERT_OK_AND_ASSIGN(const Session left, Open(text, {"--ignore_shards"}));
  EXPECT_THAT(left.problem.shards, IsEmpty());
  ASSERT_OK_AND_ASSIGN(const Session alone, Open(text, {"--devices=1"}));
  EXPECT_EQ(alone.problem.mode, SearchMode::kStandAlone);
  EXPECT_THAT(alone.notices, ElementsAre("on one rank `shard` has no effect"));
}

TEST(SessionTest, FlagsOfAnotherKindOfModelAreTold) {
  ASSERT_OK_AND_ASSIGN(const Session operators,
                       Open(Operators("parallel_mode: auto_parallel"), {"--tensor_parallel=2"}));
  EXPECT_THAT(operators.notices, ElementsAre("--tensor_parallel has no effect: it is for decoders"));
  ASSERT_OK_AND_ASSIGN(const Session decoder, Open(Decoder(), {"--ignore_shards", "--expert_parallel=2"}));
  EXPECT_THAT(decoder.notices,
              ElementsAre(HasSubstr("adamw"), "--expert_parallel has no effect: it is for decoders with experts",
                          "--ignore_shards has no effect: it is for models of operators"));
  for (const char* mode : {"data_parallel", "stand_alone"}) {
    ASSERT_OK_AND_ASSIGN(const Session by_rows,
                         Open(Decoder(), {absl::StrCat("--mode=", mode), "--tensor_parallel=2", "--microbatches=2"}));
    EXPECT_THAT(by_rows.notices,
                ElementsAre(HasSubstr("adamw"), absl::StrCat("--tensor_parallel has no effect in the mode ", mode)));
  }
}

// As of flags, so of the file's knobs; those at their defaults say nothing.
TEST(SessionTest, KnobsOfAnotherKindOfModelAreTold) {
  ASSERT_OK_AND_ASSIGN(const Session operators,
                       Open(Operators("parallel_mode: semi_auto_parallel, tensor_parallel: 2, micro_batch: 1, "
                                      "dispatcher: per_rank, max_data_parallel: 2")));
  EXPECT_THAT(operators.notices, ElementsAre("tensor_parallel has no effect: it is for decoders",
                                             "micro_batch has no effect: it is for decoders",
                                             "dispatcher has no effect: it is for decoders",
                                             "max_data_parallel has no effect: it is for decoders"));
  ASSERT_OK_AND_ASSIGN(
      const Session decoder,
      Open(Decoder("search_mode: sharding_propagation, dataset_strategy: data_parallel, "
                   "full_batch: true, costmodel_beta: 400, costmodel_alpha: 1.0, dispatcher: per_rank")));
  EXPECT_THAT(decoder.notices,
              ElementsAre(HasSubstr("adamw"), HasSubstr("full_batch and dataset_strategy are both set"),
                          "dispatcher has no effect: it is for decoders with experts",
                          "search_mode has no effect: it is for models of operators",
                          "full_batch has no effect: it is for models of operators",
                          "costmodel_beta has no effect: it is for models of operators"));
  ASSERT_OK_AND_ASSIGN(const Session by_rows, Open(Decoder("parallel_mode: data_parallel, micro_batch: 1")));
  EXPECT_THAT(by_rows.notices, ElementsAre(HasSubstr("adamw"), "micro_batch has no effect in the mode data_parallel"));
}

// S11.9, S12.9: parts of what is off.
TEST(SessionTest, KnobsWithoutWhatTheyArePartOfAreTold) {
  const std::string knobs =
      "parallel_mode: semi_auto_parallel, parallel_optimizer_config: {parallel_optimizer_threshold: 0}, "
      "optimizer_weight_shard_size: 2, shard_parameters: true, pipeline_config: {pipeline_scheduler: gpipe}";
  ASSERT_OK_AND_ASSIGN(const Session off, Open(Operators(knobs)));
  EXPECT_THAT(off.notices, ElementsAre("optimizer_weight_shard_size 2 has no effect without the parallel optimizer",
                                       "parallel_optimizer_config has no effect without the parallel optimizer",
                                       "shard_parameters has no effect without the parallel optimizer",
                                       "pipeline_config has no effect without a pipeline (pipeline_stages)"));
  EXPECT_FALSE(off.problem.shard_parameters.value_or(false));
  ASSERT_OK_AND_ASSIGN(const Session on,
                       Open(Operators(knobs), {"--parallel_optimizer", "--stages=2", "--microbatches=2"}));
  EXPECT_THAT(on.notices, ElementsAre("shard_parameters splits only the frozen parameters of a network of operators"));
}

// S1.2, S11.2, S12.11: what the file may not say in a mode, it may not say in the mode of a flag, and no more may a
// flag.
TEST(SessionTest, AModeFromAFlagHasTheKnobsOfThatMode) {
  const auto error = [](const std::string& knobs, const std::vector<std::string>& args) {
    const absl::StatusOr<Session> session = Open(Operators(knobs, kShard), args);
    return std::string(session.status().message());
  };
  EXPECT_THAT(error("parallel_mode: semi_auto_parallel, full_batch: true", {"--mode=data_parallel"}),
              HasSubstr("parallel.full_batch: needs semi_auto_parallel or auto_parallel, parallel_mode is "
                        "data_parallel [E-STATE]"));
  EXPECT_THAT(error("parallel_mode: data_parallel, parameter_broadcast: true", {"--mode=semi_auto_parallel"}),
              HasSubstr("parallel.parameter_broadcast: needs data_parallel or hybrid_parallel"));
  EXPECT_THAT(error("parallel_mode: semi_auto_parallel, enable_parallel_optimizer: true", {"--mode=data_parallel"}),
              HasSubstr("parallel.enable_parallel_optimizer: in data_parallel it works with the optimizers lamb and"));
  EXPECT_THAT(error("parallel_mode: data_parallel", {"--parallel_optimizer"}),
              HasSubstr("--parallel_optimizer: in data_parallel it works with the optimizers lamb and"));
  for (const char* flag : {"--parallel_optimizer", "--stages=2"}) {
    EXPECT_THAT(error("parallel_mode: hybrid_parallel", {flag}),
                HasSubstr("parallel_mode is hybrid_parallel [E-STATE]"));
  }
  EXPECT_THAT(std::string(Open(Decoder("parallel_mode: hybrid_parallel"), {"--shard_parameters"}).status().message()),
              HasSubstr("--shard_parameters: needs data_parallel, semi_auto_parallel or auto_parallel"));
  ASSERT_OK_AND_ASSIGN(
      const Session alone,
      Open(Operators("parallel_mode: data_parallel, gradients_mean: true", kShard), {"--mode=stand_alone"}));
  EXPECT_THAT(alone.notices, ElementsAre("gradients_mean has no effect in the mode stand_alone",
                                         "shard of \"matmul\" has no effect in the mode stand_alone",
                                         "on one rank `shard` has no effect"));
  ASSERT_OK_AND_ASSIGN(const Session split,
                       Open(Operators("parallel_mode: data_parallel", kShard), {"--mode=semi_auto_parallel"}));
  EXPECT_THAT(split.notices, IsEmpty());  // `shard` does have one
}

// S13.4: K micro-batches, of a decoder too; S12.3: which divide the batch. micro_batches says the same.
TEST(SessionTest, GradientAccumulationIsTheMicroBatchesOfAStep) {
  for (const std::string& text :
       {Decoder("grad_accumulation_step: 4"),
        Operators("parallel_mode: semi_auto_parallel, full_batch: true, grad_accumulation_step: 4")}) {
    ASSERT_OK_AND_ASSIGN(const Session session, Open(text));
    EXPECT_EQ(session.problem.microbatches, 4);
  }
  ASSERT_OK_AND_ASSIGN(const Session open, Open(Decoder("grad_accumulation_step: 1")));
  EXPECT_EQ(open.problem.microbatches, std::nullopt);
  const absl::StatusOr<Session> odd =
      Open(Operators("parallel_mode: semi_auto_parallel, grad_accumulation_step: 3", kShard));
  EXPECT_EQ(KindOf(odd.status()), "E-VALUE");
  EXPECT_THAT(odd,
              StatusIs(kInvalid, "parallel.grad_accumulation_step: found 3, wanted a divisor of the batch of 16 rows"));
  // 16 rows over 8 ranks: two each, of which 4 micro-batches have half a row. With whole batches they have 4 rows.
  for (const char* mode : {"semi_auto_parallel", "data_parallel"}) {
    const absl::StatusOr<Session> fed =
        Open(Operators(absl::StrCat("parallel_mode: ", mode, ", grad_accumulation_step: 4"), ""), {"--devices=8"});
    EXPECT_EQ(KindOf(fed.status()), "E-VALUE");
    EXPECT_THAT(
        fed, StatusIs(kInvalid, "grad_accumulation_step: found 4, wanted a divisor of the 2 rows of each of 8 ranks"));
  }
  EXPECT_OK(Open(Operators("parallel_mode: semi_auto_parallel, full_batch: true, grad_accumulation_step: 4")));
  EXPECT_THAT(Open(Operators("parallel_mode: semi_auto_parallel", kShard), {"--microbatches=3"}),
              StatusIs(kInvalid, "--microbatches: found 3, wanted a divisor of the batch of 16 rows"));
}

// Two operators on two stages, in order; a pipeline reports the sum of its micro-batches (S12.4).
TEST(SessionTest, StagesFromAFlagAreSpreadOverTheOperators) {
  ASSERT_OK_AND_ASSIGN(const Session session,
                       Open(Operators("parallel_mode: semi_auto_parallel"), {"--stages=2", "--microbatches=4"}));
  EXPECT_EQ(session.problem.stages, 2);
  EXPECT_TRUE(session.problem.loss_is_sum);
  ASSERT_OK_AND_ASSIGN(const Graph graph, session.problem.graph(4));
  ASSERT_EQ(graph.segments.size(), 2u);
  EXPECT_EQ(graph.segments[0].stage, 0);
  EXPECT_EQ(graph.segments[1].stage, 1);
  EXPECT_THAT(Open(Operators("parallel_mode: semi_auto_parallel"), {"--stages=3"}),
              StatusIs(kInvalid, "--stages: found 3, wanted at most 2, one per operator"));
}

TEST(SessionTest, ChoicesThatDoNotFitAreLocated) {
  EXPECT_THAT(Open(Decoder("pipeline_stages: 3")),
              StatusIs(kInvalid, "m.yaml:5:29: parallel.pipeline_stages: found 3, wanted a divisor of the 8 devices"));
  EXPECT_THAT(Open(Decoder("tensor_parallel: 4"), {"--stages=4"}),
              StatusIs(kInvalid,
                       "parallel.tensor_parallel: found 4, wanted a divisor of the 2 devices that the other "
                       "degrees leave of 8"));
  const absl::Status flag = Open(Decoder(), {"--data_parallel=3"}).status();
  EXPECT_THAT(flag, StatusIs(kInvalid, "--data_parallel: found 3, wanted a divisor of the 8 devices"));
  EXPECT_EQ(ExitCodeOf(flag), ExitCode::kUsage);
  EXPECT_THAT(Open(Decoder("tensor_parallel: 4"), {"--devices=1"}),
              StatusIs(kInvalid, "parallel.tensor_parallel: found 4, wanted 1, since there is one device"));
  EXPECT_THAT(Open(Decoder("device_num: 16")), StatusIs(kInvalid, "parallel.device_num: found 16, wanted 8"));
  EXPECT_OK(Open(Decoder("device_num: 16"), {"--devices=16"}));
  // S1.3: another kind of device is no other number of them. A flag that says another number holds, and says so.
  EXPECT_THAT(Open(Decoder("device_num: 16"), {"--device=a100-sxm-80gb"}),
              StatusIs(kInvalid, "parallel.device_num: found 16, wanted 8"));
  ASSERT_OK_AND_ASSIGN(const Session more, Open(Decoder("device_num: 16"), {"--devices=32"}));
  EXPECT_THAT(more.notices, Contains("device_num 16 of the file has no effect: there are 32 devices"));
  EXPECT_THAT(
      Open(Operators("parallel_mode: semi_auto_parallel", ", shard: [[4, 4], [4, 1]]")),
      StatusIs(kInvalid, "operators[0].shard: found ((4, 4), (4, 1)), wanted one that fits MatMul on 8 devices"));
  EXPECT_THAT(Open(Operators("parallel_mode: semi_auto_parallel"), {"--batch=32"}),
              StatusIs(kInvalid, "--batch: found a model of operators, wanted a decoder"));
}

// What the search finds is located, too: rows that do not divide at the knob, or where nobody gave it at the inputs.
TEST(SessionTest, InputsThatDoNotDivideAreLocated) {
  for (const auto& [feeding, place, remedy] :
       std::vector<std::array<std::string, 3>>{{"", "m.yaml:2:", "every rank has all rows"},
                                               {", dataset_strategy: data_parallel", "m.yaml:8:", "every rank has all"},
                                               {", dataset_strategy: [[3, 1], [3, 1]]", "m.yaml:8:", "needs 3 of 8"}}) {
    SCOPED_TRACE(feeding);
    const std::string devices = absl::StrContains(feeding, "3") ? "--devices_per_node=8" : "--devices_per_node=6";
    ASSERT_OK_AND_ASSIGN(const Session session,
                         Open(Operators(absl::StrCat("parallel_mode: semi_auto_parallel", feeding)), {devices}));
    const absl::Status status = Search(session.problem).status();
    EXPECT_THAT(status, StatusIs(kInvalid, place));
    EXPECT_THAT(status, StatusIs(kInvalid, "dataset_strategy: input \"x\" of (16, 32) in a micro-batch: "));
    EXPECT_THAT(status, StatusIs(kInvalid, remedy));
  }
}

TEST(IsPlanTest, LooksForTheSchema) {
  EXPECT_TRUE(IsPlan("# comment\nschema: meshwright/plan/1\n"));
  EXPECT_FALSE(IsPlan("name: x\nmodel: {schema: 1}\n  schema: no\n"));
}

}  // namespace
}  // namespace meshwright
