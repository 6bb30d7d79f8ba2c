// F26: recompute (S13.1, S13.2), gradient accumulation (S13.4) and operators on the host (S13.5).
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/error_kind.h"
#include "ir/testing.h"
#include "simulator/simulate.h"
#include "simulator/testing.h"
#include "tests/semantics/pipelines.h"
#include "tests/semantics/play.h"

namespace meshwright {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Strategy With(Recompute recompute, int64_t stages = 1) {
  Strategy strategy;
  strategy.mesh = Mesh::Factored(stages, 1);
  strategy.stages = stages;
  strategy.microbatches = 4;
  strategy.gradient_dtype = DType::kFloat64;
  strategy.recompute = recompute;
  return strategy;
}

// S13.1: the same bits, no higher peak, more time. A layer is in + relu(in v) u; `selective` runs the ReLU a second
// time, `full` and `layer` what backward reads of a layer, or all of it.
TEST(F26, RecomputeKeepsLossesBitForBitAndLowersThePeak) {
  for (const int64_t stages : {1, 2}) {
    ASSERT_OK_AND_ASSIGN(const Graph graph, Stack(4, 64));
    ASSERT_OK_AND_ASSIGN(const Program plain, LowerVerified(graph, With(Recompute::kNone, stages)));
    ASSERT_OK_AND_ASSIGN(const RunResult expected, RunSteps(plain, 2));
    ASSERT_OK_AND_ASSIGN(const SimulationResult plain_time, Simulate(plain, UnitPrices(plain)));
    for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull, Recompute::kLayer}) {
      SCOPED_TRACE(absl::StrCat(stages, " stages, ", NameOf(recompute)));
      ASSERT_OK_AND_ASSIGN(const Program program, LowerVerified(graph, With(recompute, stages)));
      ASSERT_OK_AND_ASSIGN(const RunResult found, RunSteps(program, 2));
      ExpectSameTraining(found, expected, 0);
      for (size_t rank = 0; rank < found.arenas.size(); ++rank) EXPECT_LT(found.arenas[rank], expected.arenas[rank]);
      ASSERT_OK_AND_ASSIGN(const SimulationResult time, Simulate(program, UnitPrices(program)));
      EXPECT_GT(time.makespan, plain_time.makespan);
    }
  }
}

// S13.2: of a cell (here a layer) all operators are run again but the output operator, whose value is kept: the next
// layer's input. The second run is part of the backward pass, which starts when its gradient has arrived.
TEST(F26, TheOutputOfACellIsKept) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, Stack(4, 4));
  ASSERT_OK_AND_ASSIGN(const Program program, LowerVerified(graph, With(Recompute::kFull, 2)));
  for (const RankClass& c : program.classes) {
    std::vector<std::string> again;
    for (const Block& block : c.blocks) {
      for (const Instruction& instruction : block.instructions) {
        const auto* compute = std::get_if<Compute>(&instruction.work);
        if (compute == nullptr || !compute->recompute) continue;
        EXPECT_EQ(block.name, "layers backward");
        again.push_back(instruction.origin);
      }
    }
    EXPECT_FALSE(again.empty());
    for (const std::string& origin : again) EXPECT_FALSE(absl::StartsWith(origin, "layers/sum")) << origin;
  }
  // On stage 0 the gradient of a micro-batch is received, and waited for, before the pass that computes again.
  int64_t received = -1;
  for (const Slot& slot : program.classes[0].slots) {
    const Block& block = program.classes[0].blocks[slot.block.index()];
    if (absl::StartsWith(block.name, "receive layers/gradient")) {
      EXPECT_TRUE(std::holds_alternative<Sync>(block.instructions.back().work));
      received = slot.microbatch;
    }
    if (block.name == "layers backward") {
      EXPECT_EQ(received, slot.microbatch);
    }
  }
}

// The knob, on a decoder.
TEST(F26, TheKnobRecompute) {
  const auto decoder = [](absl::string_view recompute) {
    return PlanModel(absl::StrCat(R"(name: tiny
architecture:
  decoder: {layers: 4, hidden: 16, heads: 2, vocab: 128, ffn: 64, positions: learned, tied_embeddings: true}
training: {batch: 8, sequence: 16, dtype: float64, optimizer: {adamw: {learning_rate: 0.01}}}
parallel: {pipeline_stages: 2, micro_batches: 4, data_parallel: 1, tensor_parallel: 1, recompute: )",
                                  recompute, "}\ncluster: {device: host, nodes: 1, devices_per_node: 2}\n"));
  };
  ASSERT_OK_AND_ASSIGN(const PlannedRun plain, decoder("none"));
  ASSERT_OK_AND_ASSIGN(const RunResult expected, RunSteps(plain.program, 3));
  for (const char* recompute : {"selective", "full"}) {
    ASSERT_OK_AND_ASSIGN(const PlannedRun planned, decoder(recompute));
    EXPECT_EQ(NameOf(planned.strategy.recompute), recompute);
    ASSERT_OK_AND_ASSIGN(const RunResult found, RunSteps(planned.program, 3));
    EXPECT_EQ(found.losses, expected.losses);
    for (size_t rank = 0; rank < 2; ++rank) EXPECT_LT(found.arenas[rank], expected.arenas[rank]) << recompute;
  }
}

// Two blocks of two products with a ReLU between them; the keys of `parallel:`, of the second block's ReLU, and of
// `cells:`.
std::string TwoBlocks(absl::string_view parallel, absl::string_view relu, absl::string_view cells, int64_t devices) {
  return absl::StrCat(R"(name: blocks
inputs:
  x: {shape: [64, 8], init: {formula: {a: 7, b: 3, mod: 11, sub: 5, div: 11}}}
  label: {shape: [64, 8], init: {formula: {a: 5, b: 2, mod: 13, sub: 0, div: 13}}}
parameters:
  u1: {shape: [8, 256], init: {normal: 0.3}}
  v1: {shape: [256, 8], init: {normal: 0.3}}
  u2: {shape: [8, 256], init: {normal: 0.3}}
  v2: {shape: [256, 8], init: {normal: 0.3}}
operators:
  - {name: block1.up, op: MatMul, inputs: [x, u1]}
  - {name: block1.relu, op: ReLU, inputs: [block1.up]}
  - {name: block1.down, op: MatMul, inputs: [block1.relu, v1]}
  - {name: block2.up, op: MatMul, inputs: [block1.down, u2]}
  - {name: block2.relu, op: ReLU, inputs: [block2.up])",
                      relu, R"(}
  - {name: block2.down, op: MatMul, inputs: [block2.relu, v2]}
  - {name: loss, op: MSELoss, inputs: [block2.down, label]}
training: {dtype: float64, optimizer: {momentum: {learning_rate: 0.1, momentum: 0.5}}}
parallel: {parallel_mode: semi_auto_parallel)",
                      parallel, "}\n", cells, "\ncluster: {device: host, nodes: 1, devices_per_node: ", devices, "}\n");
}

// The operators that a program runs a second time.
std::set<std::string> RunAgain(const Program& program) {
  std::set<std::string> again;
  for (const Block& block : program.classes[0].blocks) {
    for (const Instruction& instruction : block.instructions) {
      const auto* compute = std::get_if<Compute>(&instruction.work);
      if (compute != nullptr && compute->recompute) again.insert(instruction.origin);
    }
  }
  return again;
}

// S13.1, S13.2: what the file says of operators and cells. A block keeps its input then, which the block before made,
// and not the 32 x 256 numbers between its products: of two blocks one at a time is there. What leaves a cell is kept.
TEST(F26, SingleOperatorsAndCells) {
  ASSERT_OK_AND_ASSIGN(const PlannedRun plain, PlanModel(TwoBlocks("", "", "", 2)));
  EXPECT_THAT(RunAgain(plain.program), IsEmpty());
  ASSERT_OK_AND_ASSIGN(const RunResult expected, RunSteps(plain.program, 3));
  struct Row {
    const char* relu;
    const char* cells;
    std::set<std::string> again;
    bool lower;
  };
  const std::string b1 = "model/block1.", b2 = "model/block2.";
  const Row rows[] = {
      // Instead of the ReLU's output the product's is kept: as much.
      {", recompute: true", "", {b2 + "relu"}, false},
      {"", "cells: {block2: {recompute: true}}", {b2 + "up", b2 + "relu"}, false},
      {"",
       "cells: {block1: {recompute: true}, block2: {recompute: true}}",
       {b1 + "up", b1 + "relu", b2 + "up", b2 + "relu"},
       true},
      // An operator's own word counts, and so does the later cell.
      {", recompute: false",
       "cells: {block1: {recompute: true}, block2: {recompute: true}}",
       {b1 + "up", b1 + "relu", b2 + "up"},
       false},
      {"",
       "cells: {\"\": {recompute: true}, block2: {recompute: false}}",
       {b1 + "up", b1 + "relu", b1 + "down"},
       false},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(absl::StrCat(row.relu, " ", row.cells));
    ASSERT_OK_AND_ASSIGN(const PlannedRun planned, PlanModel(TwoBlocks("", row.relu, row.cells, 2)));
    EXPECT_EQ(RunAgain(planned.program), row.again);
    ASSERT_OK_AND_ASSIGN(const RunResult found, RunSteps(planned.program, 3));
    ExpectSameTraining(found, expected, 0);
    EXPECT_LE(found.arenas[0], expected.arenas[0]);
    if (row.lower) {
      EXPECT_LT(found.arenas[0], expected.arenas[0]);
    }
    EXPECT_GT(planned.prediction.step, plain.prediction.step);
  }
}

TEST(F26, ErrorsOfRecompute) {
  const auto error = [](absl::string_view relu, absl::string_view cells) {
    return std::string(PlanModel(TwoBlocks("", relu, cells, 2)).status().message());
  };
  EXPECT_THAT(error(", recompute: 1", ""), HasSubstr("operators[4].recompute: found \"1\", wanted true or false"));
  EXPECT_THAT(error(", recompute: 1", ""), EndsWith("[E-TYPE]"));
  EXPECT_THAT(error("", "cells: {block3: {recompute: true}}"),
              HasSubstr("cells.block3: found \"block3\", wanted the beginning of an operator's name"));
  EXPECT_THAT(error("", "cells: {block1: {recompute: 1}}"), EndsWith("[E-TYPE]"));
  EXPECT_THAT(PlanModel("name: tiny\narchitecture: {decoder: {layers: 2, hidden: 16, heads: 2, vocab: 128, ffn: 64}}\n"
                        "training: {batch: 8, sequence: 16}\ncells: {mlp1: {recompute: true}}\n"
                        "cluster: {device: host, nodes: 1, devices_per_node: 2}\n"),
              StatusIs(absl::StatusCode::kFailedPrecondition, "parallel.recompute"));
}

int GradientCalls(const Program& program, CollectiveKind kind) {
  int calls = 0;
  for (const Slot& slot : program.classes[0].slots) {
    for (const Instruction& instruction : program.classes[0].blocks[slot.block.index()].instructions) {
      const auto* collective = std::get_if<Collective>(&instruction.work);
      if (collective != nullptr && collective->purpose == Purpose::kGradient && collective->kind == kind) ++calls;
    }
  }
  return calls;
}

// S13.4: K = 4 micro-batches on one set of devices give the pipeline's sums (S18.1), with one optimizer step and one
// reduction for all of them.
TEST(F26, AccumulationEqualsThePipelinesSum) {
  const std::vector<double> as_mean = {0.294782409, 0.286509286, 0.270991507};
  ASSERT_OK_AND_ASSIGN(const PlannedRun pipeline,
                       PlanModel(OracleB("pipeline_stages: 2, micro_batches: 4", 2,
                                         {.matmul = "pipeline_stage: 0", .matmul2 = "pipeline_stage: 1"})));
  ASSERT_OK_AND_ASSIGN(const RunResult expected, RunSteps(pipeline.program, 3));
  struct Row {
    int64_t devices;
    std::string parallel, matmul;
  };
  for (const Row& row : {Row{1, "", ""}, Row{4, "", "shard: [[4, 1], [1, 1]]"}, Row{8, "", "shard: [[2, 4], [4, 1]]"},
                         Row{4,
                             ", enable_parallel_optimizer: true, parallel_optimizer_config: "
                             "{parallel_optimizer_threshold: 0, gradient_accumulation_shard: false}",
                             "shard: [[4, 1], [1, 1]]"}}) {
    SCOPED_TRACE(absl::StrCat(row.devices, " devices", row.parallel));
    ASSERT_OK_AND_ASSIGN(
        const PlannedRun planned,
        PlanModel(OracleB(absl::StrCat("grad_accumulation_step: 4, dataset_strategy: full_batch", row.parallel),
                          row.devices, {.matmul = row.matmul})));
    EXPECT_EQ(planned.strategy.microbatches, 4);
    ASSERT_OK_AND_ASSIGN(const RunResult found, RunSteps(planned.program, 3));
    EXPECT_NEAR(found.losses[0], 1.179129635, 1e-9);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(found.losses[i] / 4, as_mean[i], 1e-9) << "step " << i + 1;
    ExpectSameParameters(found, expected, 1e-12);
    if (row.devices == 1) continue;
    EXPECT_EQ(GradientCalls(planned.program, CollectiveKind::kAllReduce) +
                  GradientCalls(planned.program, CollectiveKind::kReduceScatter),
              row.devices == 8 ? 2 : 1);  // w and w2 have the same replicas, or different ones
  }
}

Bytes BytesOfGradients(const Program& program) {
  Bytes bytes;
  for (const Buffer& buffer : program.classes[0].buffers) {
    if (buffer.role == BufferRole::kGradient && !buffer.alias.valid()) bytes += buffer.bytes * buffer.layers;
  }
  return bytes;
}

// S11.10: with `gradient_accumulation_shard` each of the 4 micro-batches scatters its gradients, in one call, and the
// rank's rows are what is accumulated; without it whole gradients are, and rows of their sum. Parameters have
// 4 x 2048 elements of 8 bytes, and 4 replicas.
TEST(F26, GradientsAccumulatedAsRows) {
  for (const char* pipeline : {"grad_accumulation_step: 4", "pipeline_stages: 2, micro_batches: 4"}) {
    SCOPED_TRACE(pipeline);
    const bool stages = absl::StartsWith(pipeline, "pipeline");
    const auto plan = [&](absl::string_view config) {
      std::string yaml =
          TwoBlocks(absl::StrCat(", dataset_strategy: full_batch, ", pipeline, config), "", "", stages ? 8 : 4);
      if (stages) {
        yaml = absl::StrReplaceAll(yaml, {{"block1.up, op: MatMul", "block1.up, op: MatMul, pipeline_stage: 0"},
                                          {"block2.up, op: MatMul", "block2.up, op: MatMul, pipeline_stage: 1"}});
      }
      return PlanModel(yaml);
    };
    const auto with = [&](absl::string_view shard) {
      return plan(
          absl::StrCat(", enable_parallel_optimizer: true, parallel_optimizer_config: "
                       "{parallel_optimizer_threshold: 0",
                       shard, "}"));
    };
    ASSERT_OK_AND_ASSIGN(const PlannedRun plain, plan(""));
    ASSERT_OK_AND_ASSIGN(const PlannedRun whole, with(", gradient_accumulation_shard: false"));
    ASSERT_OK_AND_ASSIGN(const PlannedRun usual, with(""));  // X18
    ASSERT_OK_AND_ASSIGN(const PlannedRun rows, with(", gradient_accumulation_shard: true"));
    EXPECT_FALSE(whole.strategy.gradient_accumulation_shard);
    EXPECT_EQ(ToText(usual.strategy), ToText(rows.strategy));
    EXPECT_TRUE(rows.strategy.gradient_accumulation_shard);

    EXPECT_EQ(GradientCalls(whole.program, CollectiveKind::kReduceScatter), 1);
    EXPECT_EQ(GradientCalls(rows.program, CollectiveKind::kReduceScatter), 4);
    const Bytes gradients = KiB(stages ? 32 : 64);
    EXPECT_EQ(BytesOfGradients(whole.program), gradients);  // rows of their sum lie inside
    EXPECT_EQ(BytesOfGradients(rows.program), gradients / 4);
    EXPECT_GT(rows.prediction.step, whole.prediction.step);

    ASSERT_OK_AND_ASSIGN(const RunResult expected, RunSteps(plain.program, 3));
    for (const PlannedRun* planned : {&whole, &rows}) {
      ASSERT_OK_AND_ASSIGN(const RunResult found, RunSteps(planned->program, 3));
      ExpectSameTraining(found, expected, 1e-12);
    }
  }
}

// Of a decoder's twelve layers two are whole at one time.
TEST(F26, GradientsOfADecoderAsRows) {
  const auto decoder = [](absl::string_view shard) {
    return PlanModel(absl::StrCat(R"(name: tiny
architecture:
  decoder: {layers: 12, hidden: 16, heads: 2, vocab: 128, ffn: 64, positions: learned, tied_embeddings: true}
training: {batch: 16, sequence: 16, dtype: float64, optimizer: {adamw: {learning_rate: 0.01}}}
parallel: {micro_batches: 4, data_parallel: 2, tensor_parallel: 1, pipeline_stages: 1, recompute: none,
           enable_parallel_optimizer: true, parallel_optimizer_config: {parallel_optimizer_threshold: 0)",
                                  shard, "}}\ncluster: {device: host, nodes: 1, devices_per_node: 2}\n"));
  };
  ASSERT_OK_AND_ASSIGN(const PlannedRun usual, decoder(""));
  EXPECT_FALSE(usual.strategy.gradient_accumulation_shard);
  ASSERT_OK_AND_ASSIGN(const PlannedRun rows, decoder(", gradient_accumulation_shard: true"));
  EXPECT_TRUE(rows.strategy.gradient_accumulation_shard);
  for (const Buffer& buffer : rows.program.classes[0].buffers) {
    if (buffer.name == "dmlp1.weight") {
      EXPECT_EQ(buffer.layers, 2);
    } else if (buffer.name == "dmlp1.weight@whole") {
      EXPECT_EQ(buffer.layers, 12);
    }
  }
  EXPECT_LT(rows.program.classes[0].arena, usual.program.classes[0].arena);
  ASSERT_OK_AND_ASSIGN(const RunResult expected, RunSteps(usual.program, 3));
  ASSERT_OK_AND_ASSIGN(const RunResult found, RunSteps(rows.program, 3));
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-12 * expected.losses[i]);
}

// --- S13.5

constexpr OperatorKeys kReluOnHost = {.matmul = "shard: [[2, 1], [1, 2]]", .relu = "device_target: CPU"};

int64_t KernelsOnHost(const Program& program, absl::string_view op) {
  int64_t kernels = 0;
  for (const Block& block : program.classes[0].blocks) {
    for (const Instruction& instruction : block.instructions) {
      const auto* const compute = std::get_if<Compute>(&instruction.work);
      if (compute == nullptr || !compute->on_host) continue;
      EXPECT_THAT(instruction.origin, HasSubstr(std::string(op)));
      ++kernels;
    }
  }
  return kernels;
}

// The operator and its gradient run on the host, nothing else does; values and the device's memory stay as they are.
TEST(F26, AnOperatorOnTheHost) {
  for (const char* const parallel :
       {"dataset_strategy: full_batch", "dataset_strategy: full_batch, micro_batches: 4"}) {
    const std::string pinned = OracleB(parallel, 4, kReluOnHost);
    const std::string plain = absl::StrReplaceAll(pinned, {{", device_target: CPU", ""}});
    ASSERT_NE(pinned, plain);
    ASSERT_OK_AND_ASSIGN(const PlannedRun on_host, PlanModel(pinned));
    ASSERT_OK_AND_ASSIGN(const PlannedRun on_device, PlanModel(plain));
    EXPECT_EQ(KernelsOnHost(on_host.program, "relu"), 2);
    EXPECT_EQ(KernelsOnHost(on_device.program, ""), 0);
    EXPECT_EQ(on_host.program.classes[0].arena, on_device.program.classes[0].arena);
    ASSERT_OK_AND_ASSIGN(const RunResult found, RunSteps(on_host.program, 4));
    ASSERT_OK_AND_ASSIGN(const RunResult expected, RunSteps(on_device.program, 4));
    ExpectSameTraining(found, expected, 0);
  }
}

// With a GPU the step is longer by the copies and the host's kernels; on the host there is nothing to copy.
TEST(F26, TheHostsKernelsHaveTheirPrice) {
  const auto step = [](absl::string_view device, absl::string_view keys) {
    const std::string yaml =
        absl::StrReplaceAll(OracleB("dataset_strategy: full_batch", 4, {.relu = keys}), {{"device: host", device}});
    const absl::StatusOr<PlannedRun> planned = PlanModel(yaml);
    EXPECT_OK(planned);
    return planned.ok() ? planned->prediction.step : Nanos();
  };
  EXPECT_EQ(step("device: host", "device_target: CPU"), step("device: host", ""));
  // Forward one copy down and one up, backward two down and one up, 5 us of issuing each, on one stream.
  EXPECT_GE(step("device: h100-sxm", "device_target: CPU"), step("device: h100-sxm", "") + Micros(5 * 5));
  EXPECT_EQ(step("device: h100-sxm", "device_target: GPU"), step("device: h100-sxm", ""));
}

// An accumulator is copied down before it is added to: the loss and a bias on the host.
TEST(F26, AccumulatorsOnTheHost) {
  const std::string pinned = OracleB("dataset_strategy: full_batch, micro_batches: 2", 2,
                                     {.matmul2 = "device_target: CPU", .loss = "device_target: CPU"});
  ASSERT_OK_AND_ASSIGN(const RunResult found, RunModel(pinned, 3));
  ASSERT_OK_AND_ASSIGN(const RunResult expected,
                       RunModel(absl::StrReplaceAll(pinned, {{", device_target: CPU", ""}}), 3));
  if (!DevicesSumInAnotherOrder()) {
    EXPECT_EQ(found.losses, expected.losses);
  }
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (size_t step = 0; step < found.losses.size(); ++step) {
    EXPECT_NEAR(found.losses[step], expected.losses[step], 1e-12 * expected.losses[step]);  // S0.4, fp64
  }
}

TEST(F26, ErrorsOfTheHost) {
  const auto expect = [](const std::string& yaml, const std::string& what) {
    const absl::Status status = PlanModel(yaml).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, what));
    EXPECT_EQ(KindOf(status), "E-VALUE") << status;
  };
  expect(OracleB("dataset_strategy: full_batch", 2, {.relu = "device_target: TPU"}),
         "operators[1].device_target: found \"TPU\", wanted one of CPU, GPU");
  const std::string by_hand = absl::StrReplaceAll(
      OracleB("parallel_mode: hybrid_parallel", 2, {}),
      {{"name: relu, op: ReLU, inputs: [matmul]", "name: relu, op: AllReduce, inputs: [matmul], device_target: CPU"}});
  expect(by_hand, "device_target: found CPU, wanted no AllReduce, by which devices talk");
}

}  // namespace
}  // namespace meshwright
