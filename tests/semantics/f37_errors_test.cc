// F37: the error catalogue, R1 to R32: one line a trigger, with the kind of the error and words that its message must
// have. Each goes in where a user would meet it: a model file, the knobs of a C++ program, a function that ranks call.
// Then: the same message on all ranks, no hang, out within 5 seconds; as threads, over sockets and under mpirun.
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "executor/manual/collectives.h"
#include "executor/manual/context.h"
#include "executor/manual/launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/error_kind.h"
#include "ir/testing.h"
#include "models/knob_context.h"
#include "planner/search/compatible_costs.h"
#include "planner/search/dynamic_programming.h"
#include "planner/search/testing.h"
#include "tests/semantics/job.h"
#include "tests/semantics/model_run.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using Map = KnobValue::Map;
using List = KnobValue::List;

// --- where errors come from ------------------------------------------------------------------------------------------

// Seed B's network on 8 devices. `matmul` is what its first product says of itself, `parallel` the section.
std::string SeedB(absl::string_view matmul, absl::string_view parallel) {
  return absl::StrCat(R"(
name: seed_b
inputs: {x: {shape: [16, 32], init: {uniform: [0, 1]}}, label: {shape: [16, 16], init: {uniform: [0, 1]}}}
parameters: {w: {shape: [32, 16]}, w2: {shape: [16, 16]}}
operators:
  - {name: matmul, op: MatMul, inputs: [x, w])",
                      matmul, R"(}
  - {name: relu, op: ReLU, inputs: [matmul]}
  - {name: matmul2, op: MatMul, inputs: [relu, w2]}
  - {name: loss, op: MSELoss, inputs: [matmul2, label]}
training: {optimizer: {momentum: {learning_rate: 0.4, momentum: 0.1}}}
parallel: {)",
                      parallel, "}\n");
}

absl::Status Plan8(const std::string& text) { return PlanModel(text, 8).status(); }
absl::Status Semi(absl::string_view matmul) { return Plan8(SeedB(matmul, "parallel_mode: semi_auto_parallel")); }
absl::Status With(absl::string_view parallel) { return Plan8(SeedB("", parallel)); }
absl::Status Auto(absl::string_view knobs) { return With(absl::StrCat("parallel_mode: auto_parallel, ", knobs)); }
absl::Status SemiWith(absl::string_view knobs) {
  return With(absl::StrCat("parallel_mode: semi_auto_parallel, ", knobs));
}
absl::Status Set(const Map& knobs) { return KnobContext().Set(knobs); }
std::function<absl::Status()> Sets(Map knobs) {
  return [knobs = std::move(knobs)] { return Set(knobs); };
}

// A product whose layouts lie on a device matrix.
absl::Status Layouts(absl::string_view matrix, absl::string_view in_strategy) {
  const std::string text =
      SeedB(absl::StrCat(", shard: {layout: l, in_strategy: ", in_strategy, "}"), "parallel_mode: semi_auto_parallel");
  return Plan8(absl::StrCat(text, "layouts: {l: ", matrix, "}\n"));
}

// Seed E's Mul and Mul, which share weight1.
std::string SharedWeight() {
  return R"(
name: seed_e
inputs: {x: {shape: [8, 8], init: {uniform: [0, 1]}}, label: {shape: [8, 8], init: zeros}}
parameters: {weight1: {shape: [8, 8]}}
operators:
  - {name: mul1, op: Mul, inputs: [x, weight1], shard: [[1, 8], [1, 8]]}
  - {name: mul2, op: Mul, inputs: [mul1, weight1], shard: [[8, 1], [8, 1]]}
  - {name: loss, op: MSELoss, inputs: [mul2, label]}
parallel: {parallel_mode: semi_auto_parallel}
)";
}

// Three products with biases, each rank of eight to own a parameter.
std::string SixParameters() {
  return R"(
name: six
inputs: {x: {shape: [16, 8], init: {uniform: [0, 1]}}, label: {shape: [16, 8], init: zeros}}
parameters: {w1: {shape: [8, 8]}, b1: {shape: [8]}, w2: {shape: [8, 8]}, b2: {shape: [8]}, w3: {shape: [8, 8]},
             b3: {shape: [8]}}
operators:
  - {name: matmul1, op: MatMul, inputs: [x, w1]}
  - {name: bias1, op: BiasAdd, inputs: [matmul1, b1]}
  - {name: matmul2, op: MatMul, inputs: [bias1, w2]}
  - {name: bias2, op: BiasAdd, inputs: [matmul2, b2]}
  - {name: matmul3, op: MatMul, inputs: [bias2, w3]}
  - {name: bias3, op: BiasAdd, inputs: [matmul3, b3]}
  - {name: loss, op: MSELoss, inputs: [bias3, label]}
training: {optimizer: {adamw: {}}}
parallel: {parallel_mode: data_parallel, enable_parallel_optimizer: true}
)";
}

// S15.4 on S14.9's chain.
absl::Status ChainIn24575Bytes() {
  constexpr int64_t kRanks = 4;
  const absl::StatusOr<Graph> graph = BuildChain();
  if (!graph.ok()) return graph.status();
  const Mesh mesh = Mesh::Factored(1, kRanks);
  const absl::StatusOr<CompatibleCosts> costs = CompatibleCosts::Make(*graph, mesh, kRanks, {}, false);
  if (!costs.ok()) return costs.status();
  OperatorProblem problem;
  problem.graph = &*graph;
  problem.mesh = &mesh;
  problem.prices = &*costs;
  problem.ranks_per_stage = kRanks;
  problem.memory_capacity = 24575;
  return PlanByDynamicProgramming(problem).status();
}

std::string SoftmaxNet() {
  return R"(
name: softmax
inputs: {x: {shape: [16, 32], init: {uniform: [0, 1]}}, label: {shape: [16, 16], init: zeros}}
parameters: {w: {shape: [32, 16]}}
operators:
  - {name: matmul, op: MatMul, inputs: [x, w]}
  - {name: softmax, op: Softmax, inputs: [matmul], shard: [[1, 8]]}
  - {name: loss, op: MSELoss, inputs: [softmax, label]}
parallel: {parallel_mode: semi_auto_parallel}
)";
}

std::string ByHand(absl::string_view op, absl::string_view parallel = "") {
  return absl::StrCat(R"(
name: by_hand
inputs: {x: {shape: [24, 4], init: {uniform: [0, 1]}}}
parameters: {w: {shape: [6, 4]}}
operators:
  - {name: own, op: RankSlice, inputs: [x]}
  - {name: z, op: Mul, inputs: [own, w]}
  - {name: y, )",
                      op, R"(, inputs: [z]}
  - {name: loss, op: ReduceMean, inputs: [y]}
parallel: {)",
                      parallel, "}\n");
}
absl::Status OnFour(const std::string& text) { return PlanModel(text, 4).status(); }

// Four operators in two stages; `first` and `second` are those of matmul and matmul2.
std::string Stages(absl::string_view first, absl::string_view second, absl::string_view more = "") {
  return absl::StrReplaceAll(SeedB(absl::StrCat(", pipeline_stage: ", first),
                                   absl::StrCat("parallel_mode: semi_auto_parallel, pipeline_stages: 2", more)),
                             {{"inputs: [relu, w2]", absl::StrCat("inputs: [relu, w2], pipeline_stage: ", second)}});
}

// What a function that ranks call says; the first rank's error.
absl::Status OnThreads(int64_t ranks, const manual::Body& body) {
  return manual::LaunchOnThreads(ranks, {}, [&](manual::Context& context) -> absl::Status {
    if (const absl::Status init = context.Init(); !init.ok()) return init;
    return body(context);
  });
}
absl::Status Group(absl::Span<const int64_t> ranks, bool again = false) {
  return OnThreads(8, [&](manual::Context& context) {
    if (again) {
      if (const absl::Status first = context.CreateGroup("g", {0, 1}); !first.ok()) return first;
    }
    return context.CreateGroup("g", ranks);
  });
}

// --- the catalogue ---------------------------------------------------------------------------------------------------

struct Row {
  int number;
  const char* trigger;
  std::function<absl::Status()> meet;
  absl::string_view kind;
  std::vector<std::string> words;
};

std::vector<Row> KnobRows() {
  return {
      {1, "device_num 0", Sets({{"device_num", 0}}), "E-VALUE", {"device_num", "\"0\""}},
      {1, "device_num -1", Sets({{"device_num", -1}}), "E-VALUE", {"device_num", "\"-1\""}},
      {1, "device_num 4097", Sets({{"device_num", 4097}}), "E-VALUE", {"device_num", "4097"}},
      {1, "device_num \"8\"", Sets({{"device_num", "8"}}), "E-TYPE", {"device_num"}},
      {1, "device_num \"8\" in a file", [] { return Auto("device_num: \"8\""); }, "E-TYPE", {"parallel.device_num"}},
      {2, "global_rank -1", Sets({{"global_rank", -1}}), "E-VALUE", {"global_rank", "-1"}},
      {2, "global_rank 4096", Sets({{"global_rank", 4096}}), "E-VALUE", {"global_rank", "4096"}},
      {2,
       "global_rank 8 of 8",
       Sets({{"global_rank", 8}, {"device_num", 8}}),
       "E-VALUE",
       {"global_rank", "below device_num = 8"}},
      {3, "parallel_mode auto", Sets({{"parallel_mode", "auto"}}), "E-VALUE", {"parallel_mode", "auto"}},
      {3, "parallel_mode auto in a file", [] { return With("parallel_mode: auto"); }, "E-VALUE", {"parallel_mode"}},
      {3, "an unknown key", Sets({{"gradient_mean", true}}), "E-VALUE", {"gradient_mean"}},
      {3, "an unknown key in a file", [] { return With("gradient_mean: true"); }, "E-VALUE", {"gradient_mean"}},
      {4, "gradients_mean 1", Sets({{"gradients_mean", 1}}), "E-TYPE", {"gradients_mean", "1"}},
      {18,
       "full_batch in data_parallel",
       [] { return With("parallel_mode: data_parallel, full_batch: true"); },
       "E-STATE",
       {"full_batch", "data_parallel"}},
      {19,
       "fusion list [35, 20]",
       Sets({{"all_reduce_fusion_config", List{35, 20}}}),
       "E-VALUE",
       {"all_reduce_fusion_config", "20 after 35"}},
      {19, "fusion list [-1]", Sets({{"all_reduce_fusion_config", List{-1}}}), "E-VALUE", {"-1"}},
      {19, "fusion list [\"a\"]", Sets({{"all_reduce_fusion_config", List{"a"}}}), "E-TYPE", {"\"a\""}},
      {20,
       "allgather by index",
       [] { return Auto("comm_fusion: {allgather: {mode: index, config: [1]}}"); },
       "E-KEY",
       {"allgather", "index"}},
      {20, "no mode", [] { return Auto("comm_fusion: {allreduce: {config: 1}}"); }, "E-KEY", {"allreduce", "mode"}},
      {20,
       "an unknown operator",
       [] { return Auto("comm_fusion: {alltoall: {mode: auto, config: None}}"); },
       "E-KEY",
       {"alltoall"}},
      {28, "gamma 1.1", Sets({{"costmodel_gamma", 1.1}}), "E-VALUE", {"costmodel_gamma", "1.1"}},
      {28, "beta 0", Sets({{"costmodel_beta", 0}}), "E-VALUE", {"costmodel_beta", "0"}},
      {28, "memory 0", [] { return Auto("device_memory_capacity: 0"); }, "E-VALUE", {"device_memory_capacity", "0"}},
  };
}

std::vector<Row> RankRows() {
  using manual::Context;
  const auto refused = [](const char* target, const char* backend) {
    return [=] { return Context({.device_target = target}).Init(backend); };
  };
  return {
      {5, "get_rank before init", [] { return Context({}).GetRank().status(); }, "E-STATE", {"get_rank before init"}},
      {6, "init(\"mpi\")", refused("CPU", "mpi"), "E-STATE", {"\"mpi\""}},
      {6, "init(\"hccl\") on GPU", refused("GPU", "hccl"), "E-STATE", {"\"hccl\"", "GPU"}},
      {7,
       "init without launcher",
       [] {
         return manual::Launch({.environment = [](const char*) -> const char* { return nullptr; }},
                               [](Context& context) { return context.Init(); });
       },
       "E-LAUNCH",
       {"MS_ROLE, MS_SCHED_HOST, MS_SCHED_PORT, MS_WORKER_NUM", "mpirun"}},
      {8,
       "create_group [0, 0]",
       [] {
         return Group({0, 0});
       },
       "E-VALUE",
       {"[0, 0]", "twice"}},
      {8, "create_group []", [] { return Group({}); }, "E-VALUE", {"\"g\""}},
      {8, "create_group [9] of 8", [] { return Group({9}); }, "E-VALUE", {"no rank 9 in a job of 8"}},
      {8,
       "another list for an old name",
       [] {
         return Group({0, 2}, true);
       },
       "E-VALUE",
       {"stands for the ranks [0, 1]"}},
      {9,
       "ReduceScatter of 6 rows on 4",
       [] {
         return OnThreads(4, [](Context& context) {
           return ReduceScatter(context, manual::Tensor::Zeros({6, 2}, DType::kFloat32)).status();
         });
       },
       "E-VALUE",
       {"ReduceScatter", "6", "4 ranks"}},
      {9,
       "AlltoAll split_count 3 on 4",
       [] {
         return OnThreads(4, [](Context& context) {
           return AlltoAll(context, manual::Tensor::Zeros({12}, DType::kFloat32), {3, 0, 0}).status();
         });
       },
       "E-VALUE",
       {"split_count is 3", "4 ranks"}},
      {9,
       "ReduceScatter of 6 rows on 4, in a file",
       [] { return OnFour(ByHand("op: ReduceScatter")); },
       "E-VALUE",
       {"operators[2]", "ReduceScatter", "6", "4 ranks"}},
      {30,
       "AllReduce inside a semi_auto model",
       [] { return OnFour(ByHand("op: AllReduce", "parallel_mode: semi_auto_parallel")); },
       "E-STATE",
       {"operators[0].op", "semi_auto_parallel"}},
      {30,
       "AllReduce alone inside a semi_auto model",
       [] {
         return OnFour(
             absl::StrReplaceAll(SeedB("", "parallel_mode: semi_auto_parallel"), {{"op: ReLU", "op: AllReduce"}}));
       },
       "E-STATE",
       {"operators[1].op", "\"relu\" is AllReduce", "semi_auto_parallel"}},
  };
}

std::vector<Row> StrategyRows() {
  const auto semi = [](const char* matmul) { return [=] { return Semi(matmul); }; };
  const auto layouts = [](const char* matrix, const char* in) { return [=] { return Layouts(matrix, in); }; };
  const char* const two = "{device_matrix: [2, 2], alias_name: [a, b]}";
  const char* const cube = "{device_matrix: [2, 2, 2], alias_name: [dp, sp, mp]}";
  return {
      {10, "((2,4),(2,1))", semi(", shard: [[2, 4], [2, 1]]"), "E-LAYOUT", {"operators[0].shard"}},
      {10, "((2,4),(4,2)) on 8", semi(", shard: [[2, 4], [4, 2]]"), "E-LAYOUT", {"operators[0].shard", "8 devices"}},
      {10, "((3,1),(1,1)) of 16 rows", semi(", shard: [[3, 1], [1, 1]]"), "E-LAYOUT", {"operators[0].shard"}},
      {10, "one tuple only", semi(", shard: [[2, 4]]"), "E-LAYOUT", {"operators[0].shard"}},
      {10, "((2,4,1),(4,1))", semi(", shard: [[2, 4, 1], [4, 1]]"), "E-LAYOUT", {"operators[0].shard"}},
      {10, "((0,1),(1,1))", semi(", shard: [[0, 1], [1, 1]]"), "E-LAYOUT", {"operators[0].shard[0][0]"}},
      {11,
       "out_strategy ((4,1),) for ((2,4),(4,1))",
       semi(", shard: [[2, 4], [4, 1]], out_strategy: [[4, 1]]"),
       "E-LAYOUT",
       {"operators[0]"}},
      {11,
       "out_strategy on ReLU",
       [] {
         return Plan8(
             absl::StrReplaceAll(SeedB("", "parallel_mode: semi_auto_parallel"),
                                 {{"inputs: [matmul]", "inputs: [matmul], shard: [[8, 1]], out_strategy: [[8, 1]]"}}));
       },
       "E-LAYOUT",
       {"operators[1]"}},
      {12, "out_strategy alone", semi(", out_strategy: [[8, 1]]"), "E-VALUE", {"out_strategy"}},
      {13,
       "Layout((2,2),(\"a\",))",
       layouts("{device_matrix: [2, 2], alias_name: [a]}", "[[a, None], [None, None]]"),
       "E-VALUE",
       {"alias_name", "1 names"}},
      {13,
       "Layout((2,2),(\"a\",\"a\"))",
       layouts("{device_matrix: [2, 2], alias_name: [a, a]}", "[[a, None], [None, None]]"),
       "E-VALUE",
       {"\"a\" twice"}},
      {13,
       "Layout((2,2),(\"None\",\"b\"))",
       layouts("{device_matrix: [2, 2], alias_name: [None, b]}", "[[b, None], [None, None]]"),
       "E-VALUE",
       {"\"None\""}},
      {13, "layout(\"x\")", layouts(two, "[[x, None], [None, None]]"), "E-VALUE", {"\"x\""}},
      {13, "layout(\"a\",\"a\")", layouts(two, "[[a, a], [a, None]]"), "E-VALUE", {"\"a\""}},
      {14, "a Layout of 4 on 8 devices", layouts(two, "[[a, b], [b, None]]"), "E-LAYOUT", {"operators[0].shard"}},
      {14,
       "contracting axes in another order",
       layouts(cube, "[[mp, [sp, dp]], [[dp, sp], None]]"),
       "E-LAYOUT",
       {"model.yaml:6:", "operators[0].shard", "operator \"matmul\"", "over the same axes in the same order"}},
      {15,
       "seed E's shared weight",
       [] { return Plan8(SharedWeight()); },
       "E-LAYOUT",
       {"parameters.weight1: ", "weight1", "mul1", "mul2"}},
      {16, "Softmax split on its axis", [] { return Plan8(SoftmaxNet()); }, "E-LAYOUT", {"operators[1].shard"}},
      {17, "dataset_strategy \"x\"", [] { return SemiWith("dataset_strategy: x"); }, "E-VALUE", {"dataset_strategy"}},
      {17,
       "an input split in two dims",
       [] { return SemiWith("dataset_strategy: [[2, 4], [8, 1]]"); },
       "E-LAYOUT",
       {"dataset_strategy[0]"}},
      {17,
       "inputs in different counts",
       [] { return SemiWith("dataset_strategy: [[2, 1], [4, 1]]"); },
       "E-LAYOUT",
       {"dataset_strategy[1]"}},
      {21,
       "fusion -1",
       [] {
         return Plan8(absl::StrReplaceAll(SeedB("", "parallel_mode: semi_auto_parallel"),
                                          {{"w: {shape: [32, 16]}", "w: {shape: [32, 16], comm_fusion: -1}"}}));
       },
       "E-VALUE",
       {"parameters.w.comm_fusion", "-1"}},
      {32,
       "seed B's dataset read by position",
       [] {
         return Plan8(
             absl::StrReplaceAll(SeedB("", "parallel_mode: auto_parallel"), {{"shape: [16, 32]", "shape: [16, 4]"}}));
       },
       "E-LAYOUT",
       {"operators[0].inputs", "(16, 4)", "(32, 16)", "4", "32"}},
  };
}

std::vector<Row> PlanRows() {
  const std::pair<std::string, KnobValue> semi = {"parallel_mode", "semi_auto_parallel"};
  return {
      {22,
       "parallel optimizer with SGD in data_parallel",
       [] {
         return Plan8(absl::StrReplaceAll(SeedB("", "parallel_mode: data_parallel, enable_parallel_optimizer: true"),
                                          {{"{momentum: {learning_rate: 0.4, momentum: 0.1}}", "{sgd: {}}"}}));
       },
       "E-STATE",
       {"enable_parallel_optimizer", "Lamb, AdamWeightDecay"}},
      {22,
       "8 ranks and 6 parameters",
       [] { return Plan8(SixParameters()); },
       "E-STATE",
       {"enable_parallel_optimizer", "found 6 parameters for 8 ranks, wanted at least as many"}},
      {22,
       "parallel optimizer in stand_alone",
       [] { return With("enable_parallel_optimizer: true"); },
       "E-STATE",
       {"enable_parallel_optimizer", "stand_alone"}},
      {23,
       "pipeline_stages 3 of 8",
       [semi] {
         return Set({semi, {"device_num", 8}, {"pipeline_stages", 3}});
       },
       "E-VALUE",
       {"pipeline_stages", "3"}},
      {23, "pipeline_stages 0", Sets({{"pipeline_stages", 0}}), "E-VALUE", {"pipeline_stages", "0"}},
      {23,
       "M 2 < S 4",
       [semi] {
         return Set({semi, {"pipeline_stages", 4}, {"micro_batches", 2}});
       },
       "E-VALUE",
       {"micro_batches", "2", "pipeline_stages = 4"}},
      {23,
       "batch 10, M 4",
       [] {
         return Plan8(absl::StrReplaceAll(SeedB("", "parallel_mode: semi_auto_parallel, micro_batches: 4"),
                                          {{"shape: [16, 32], init", "shape: [10, 32], init"},
                                           {"label: {shape: [16, 16]", "label: {shape: [10, 16]"}}));
       },
       "E-VALUE",
       {"micro_batches", "4", "10 rows"}},
      {24, "stage order 1, 0", [] { return Plan8(Stages("1", "0")); }, "E-LAYOUT", {"stage"}},
      {24, "an unused stage", [] { return Plan8(Stages("0", "0")); }, "E-LAYOUT", {"stage"}},
      {25,
       "pipeline with dynamic_programming",
       [] {
         return Set(
             {{"parallel_mode", "auto_parallel"}, {"pipeline_stages", 2}, {"search_mode", "dynamic_programming"}});
       },
       "E-STATE",
       {"pipeline"}},
      {25,
       "a pipeline in data_parallel",  // S12.11: whatever its operators say of stages
       [] { return With("parallel_mode: data_parallel, pipeline_stages: 2"); },
       "E-STATE",
       {"pipeline_stages", "data_parallel"}},
      {26,
       "sharding_propagation with nothing configured",
       [] { return Auto("search_mode: sharding_propagation"); },
       "E-STATE",
       {"sharding_propagation"}},
      {27,
       "capacity 24575 in S15.4",
       ChainIn24575Bytes,
       "E-PLAN",
       {"24575 bytes", "the smallest memory", "24576 bytes"}},
      {27,
       "a capacity that no plan of a file fits",
       [] { return Auto("device_memory_capacity: 1 B"); },
       "E-PLAN",
       {"the capacity is 1 bytes", "the smallest memory"}},
      {29,
       "a strategy file that is malformed",
       [] {
         const std::string path = absl::StrCat(NewFolder(), "/bad.json");
         WriteAll(path, "{\"parallel_strategy_item\": {\n  \"MatMul_w\": 8}}");
         return PlanModel(SeedB("", "parallel_mode: semi_auto_parallel"), 8,
                          {absl::StrCat("--strategy_ckpt_load_file=", path)})
             .status();
       },
       "E-VALUE",
       {"bad.json:2:15: parallel_strategy_item.MatMul_w"}},
      {29,
       "a strategy file that is missing",
       [] { return SemiWith("strategy_ckpt_load_file: no_such_file.json"); },
       "E-VALUE",
       {"no_such_file.json"}},
      {31,
       "a loss that is NaN",
       [] {
         return RunModel(absl::StrReplaceAll(
                             SeedB("", ""), {{"w: {shape: [32, 16]}", "w: {shape: [32, 16], init: {constant: 1e30}}"}}),
                         1, 3)
             .status();
       },
       "E-VALUE",
       {"the loss is", "step 1"}},
  };
}

std::vector<Row> Catalogue() {
  std::vector<Row> rows;
  for (auto* part : {KnobRows, RankRows, StrategyRows, PlanRows}) {
    for (Row& row : part()) rows.push_back(std::move(row));
  }
  return rows;
}

absl::StatusCode CodeOf(absl::string_view kind) {
  if (kind == "E-STATE") return absl::StatusCode::kFailedPrecondition;
  if (kind == "E-LAUNCH") return absl::StatusCode::kUnavailable;
  if (kind == "E-PLAN") return absl::StatusCode::kResourceExhausted;
  return absl::StatusCode::kInvalidArgument;
}

TEST(ErrorsTest, TheCatalogue) {
  for (const Row& row : Catalogue()) {
    SCOPED_TRACE(absl::StrCat("R", row.number, ": ", row.trigger));
    const absl::Status status = row.meet();
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(KindOf(status), row.kind) << status;
    EXPECT_EQ(status.code(), CodeOf(row.kind)) << status;
    for (const std::string& word : row.words) EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

TEST(ErrorsTest, EveryRowOfTheCatalogueHasALine) {
  std::set<int> numbers;
  for (const Row& row : Catalogue()) numbers.insert(row.number);
  EXPECT_THAT(numbers, SizeIs(32));
}

// --- on all ranks alike ----------------------------------------------------------------------------------------------

// What a rank says, but for who it is: it names itself where it met the fault while it ran.
std::string WithoutRank(const std::string& line) {
  const size_t step = line.find("step ");
  return absl::StartsWith(line, "run: rank ") && step != std::string::npos ? line.substr(step) : line;
}

// What each rank of a job of four says of a model file: all the same, without a wait for anybody. (All are out within 5
// seconds on a machine that is not busy.)
void ExpectOneMessage(const JobOutput& job, const std::string& words) {
  EXPECT_FALSE(job.status.ok());
  EXPECT_LT(job.took, kHang);
  for (const std::string& rank : job.ranks) {
    EXPECT_THAT(rank, HasSubstr(words));
    EXPECT_EQ(rank, job.ranks[1]);
  }
}

TEST(ErrorsTest, AllRanksSayTheSameAndNobodyHangs) {
  const std::string folder = NewFolder();
  const struct {
    const char* name;
    std::string text;
    const char* words;
  } rows[] = {
      {"R4", SeedB("", "parallel_mode: data_parallel, gradients_mean: 1"), "[E-TYPE]"},
      {"R10", SeedB(", shard: [[2, 4], [2, 1]]", "parallel_mode: semi_auto_parallel"), "operators[0].shard"},
      {"R18", SeedB("", "parallel_mode: data_parallel, full_batch: true"), "[E-STATE]"},
      {"R30", ByHand("op: AllReduce", "parallel_mode: semi_auto_parallel"), "[E-STATE]"},
      {"R31",
       absl::StrReplaceAll(SeedB("", "parallel_mode: data_parallel"),
                           {{"w: {shape: [32, 16]}", "w: {shape: [32, 16], init: {constant: 1e30}}"}}),
       "step 1: the loss is inf"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    const std::string path = absl::StrCat(folder, "/", row.name, ".yaml");
    WriteAll(path, row.text);
    JobOutput sockets = RunOverSockets(4, {"tools/run", path});
    for (std::string& rank : sockets.ranks) rank = WithoutRank(ErrorLine(rank));
    ExpectOneMessage(sockets, row.words);
    if (!HasMpirun()) continue;
    // mpirun stops a job at the first rank that fails: those that had the time said the same.
    const JobOutput mpi = RunUnderMpirun(4, {"tools/run", path});
    EXPECT_FALSE(mpi.status.ok());
    EXPECT_LT(mpi.took, kHang);
    int said = 0;
    for (const std::string& rank : mpi.ranks) {
      const std::string line = WithoutRank(ErrorLine(rank));
      if (line.empty()) continue;
      ++said;
      EXPECT_EQ(line, sockets.ranks[0]);
    }
    EXPECT_GE(said, 1);
  }
}

}  // namespace
}  // namespace meshwright
