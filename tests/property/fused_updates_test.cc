// Models under random plans, with each update on its own and with those that are alike in one: the same losses and
// parameters on the host, to the bit, in the same memory but for LAMB's steps; and on stand-ins for GPUs, by the host's
// kernels to the bit and by the devices' but for roundings.
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/program.h"
#include "tests/property/random_model.h"
#include "tests/property/with_and_without.h"

namespace meshwright {
namespace {

constexpr uint64_t kNumPlans = 24;

struct Drawn {
  std::string model;  // without its last line, "  fuse_updates: ..."
  int64_t ranks = 1;
};

std::string DrawOptimizer(Draw& draw) {
  return draw.Of(std::vector<std::string>{"adamw: {learning_rate: 0.01, weight_decay: 0.1}",
                                          "momentum: {learning_rate: 0.1, momentum: 0.5}", "sgd: {learning_rate: 0.1}",
                                          "adamw: {learning_rate: 0.01}", "lamb: {learning_rate: 0.01}"});
}

// Three dense layers on ranks that share the batch, where each parameter may have an owner.
Drawn DrawDense(Draw& draw) {
  Drawn drawn;
  drawn.ranks = 2 + 2 * draw.Below(2);
  const bool owners = draw.Chance(50);
  drawn.model = absl::StrCat(
      R"(name: dense
inputs: {x: {shape: [8, 12]}, t: {shape: [8, 4]}}
parameters:
  w1: {shape: [12, 16], init: {normal: 0.5}}
  b1: {shape: [16]}
  w2: {shape: [16, 8], init: {normal: 0.5}}
  b2: {shape: [8]}
  w3: {shape: [8, 4], init: {normal: 0.5}}
  b3: {shape: [4]}
operators:
  - {name: m1, op: MatMul, inputs: [x, w1]}
  - {name: a1, op: BiasAdd, inputs: [m1, b1]}
  - {name: r1, op: Tanh, inputs: [a1]}
  - {name: m2, op: MatMul, inputs: [r1, w2]}
  - {name: a2, op: BiasAdd, inputs: [m2, b2]}
  - {name: r2, op: Tanh, inputs: [a2]}
  - {name: m3, op: MatMul, inputs: [r2, w3]}
  - {name: a3, op: BiasAdd, inputs: [m3, b3]}
  - {name: loss, op: MSELoss, inputs: [a3, t]}
training: {dtype: )",
      draw.Chance(50) ? "float32" : "float64", ", optimizer: {",
      owners ? "adamw: {learning_rate: 0.01}" : DrawOptimizer(draw), "}", draw.Chance(50) ? ", loss_scale: 64" : "",
      "}\nparallel:\n  parallel_mode: data_parallel\n  gradients_mean: ", draw.Chance(50) ? "true" : "false",
      "\n  enable_parallel_optimizer: ", owners ? "true" : "false", "\n");
  return drawn;
}

Drawn DrawDecoder(Draw& draw) {
  const int64_t tensor = 1 + draw.Below(2), data = 1 + draw.Below(2), stages = 1 + draw.Below(2);
  const std::string dtype = draw.Of(std::vector<std::string>{"float32", "bfloat16", "float16"});
  const std::string sharing = draw.Of(std::vector<std::string>{
      "", "  enable_parallel_optimizer: true\n  parallel_optimizer_config: {parallel_optimizer_threshold: 0}\n",
      "  enable_parallel_optimizer: true\n  shard_parameters: true\n"});
  Drawn drawn;
  drawn.ranks = tensor * data * stages;
  drawn.model = absl::StrCat(
      "name: drawn\narchitecture:\n  decoder: {layers: ", stages * (1 + draw.Below(2)),
      ", hidden: 16, heads: 4, vocab: 32, ffn: 32, activation: ", draw.Chance(50) ? "gelu" : "relu",
      ", bias: ", draw.Chance(60) ? "true" : "false", draw.Chance(50) ? ", tied_embeddings: true" : "",
      "}\ntraining: {batch: 8, sequence: 8, dtype: ", dtype, ", optimizer: {", DrawOptimizer(draw), "}}\nparallel:\n",
      "  tensor_parallel: ", tensor, "\n  data_parallel: ", data, "\n  pipeline_stages: ", stages,
      "\n  micro_batches: ", draw.Chance(50) ? 2 : 4, "\n", data > 1 ? sharing : "");
  return drawn;
}

struct Updates {
  int64_t instructions = 0, tensors = 0, lamb = 0;
};
Updates CountUpdates(const Program& program) {
  Updates updates;
  for (const RankClass& c : program.classes) {
    for (const Block& block : c.blocks) {
      for (const Instruction& instruction : block.instructions) {
        const auto* const compute = std::get_if<Compute>(&instruction.work);
        if (compute == nullptr || !IsOptimizer(compute->op)) continue;
        ++updates.instructions;
        updates.tensors += compute->attrs->tensors;
        updates.lamb += compute->op == OpKind::kLambStep ? 1 : 0;
      }
    }
  }
  return updates;
}

void Check(uint64_t seed, Updates& saved) {
  Draw draw(seed);
  const Drawn drawn = draw.Chance(30) ? DrawDense(draw) : DrawDecoder(draw);
  SCOPED_TRACE(absl::StrCat("MESHWRIGHT_SEED=", seed, "\n", drawn.model));
  const auto [with, without] = ExpectTheSameWithout("fuse_updates", drawn.model, drawn.ranks, seed);
  const Updates fused = CountUpdates(with.program), apart = CountUpdates(without.program);
  EXPECT_EQ(apart.instructions, apart.tensors);
  EXPECT_EQ(fused.tensors, apart.tensors);
  saved.instructions += apart.instructions - fused.instructions;
  saved.lamb += apart.lamb - fused.lamb;
  if (apart.lamb == 0) {
    EXPECT_EQ(with.result.arenas, without.result.arenas);
  }
}

TEST(FusedUpdatesTest, TheSameStepsWithAndWithout) {
  Updates saved;
  if (const char* const seed = std::getenv("MESHWRIGHT_SEED")) return Check(std::strtoull(seed, nullptr, 10), saved);
  for (uint64_t seed = 1; seed <= kNumPlans && !HasFailure(); ++seed) Check(seed, saved);
  if (HasFailure()) return;
  EXPECT_GT(saved.instructions, 5 * static_cast<int64_t>(kNumPlans));
  EXPECT_GT(saved.lamb, 5);
}

}  // namespace
}  // namespace meshwright
