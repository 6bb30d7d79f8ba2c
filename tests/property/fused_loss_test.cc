// Decoders under random plans, with the logits read once and written over, and without: the same losses and parameters
// on the host, to the bit where the vocabulary is whole; and on stand-ins for GPUs, by the devices' kernels, losses
// that differ by roundings alone.
#include <cstdlib>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/program.h"
#include "tests/property/random_model.h"
#include "tests/property/with_and_without.h"

namespace meshwright {
namespace {

constexpr uint64_t kNumPlans = 16;

struct Drawn {
  std::string model;  // without its last line, "  fuse_loss: ..."
  int64_t ranks = 1, tensor = 1;
  bool whole_losses = true;  // the gradients of parameters do not run apart
};

Drawn DrawModel(uint64_t seed) {
  Draw draw(seed);
  Drawn drawn;
  drawn.tensor = 1 + draw.Below(2);
  const int64_t data = 1 + draw.Below(2), stages = 1 + draw.Below(2);
  const std::string recompute = draw.Of(std::vector<std::string>{"none", "selective", "full"});
  drawn.whole_losses = stages == 1 || draw.Chance(70);
  drawn.ranks = drawn.tensor * data * stages;
  drawn.model = absl::StrCat(
      "name: drawn\narchitecture:\n  decoder: {layers: ", stages * (1 + draw.Below(2)),
      ", hidden: 16, heads: 4, vocab: ", draw.Of(std::vector<int64_t>{26, 512, 770}), ", ffn: 32, activation: gelu}\n",
      "training: {batch: 8, sequence: 8, dtype: ", draw.Of(std::vector<std::string>{"bfloat16", "float16", "float32"}),
      ", optimizer: {adamw: {learning_rate: 0.01}}}\nparallel:\n", "  tensor_parallel: ", drawn.tensor,
      "\n  data_parallel: ", data, "\n  pipeline_stages: ", stages, "\n  micro_batches: ", draw.Chance(50) ? 2 : 4,
      "\n  recompute: ", recompute, "\n",
      drawn.whole_losses ? "" : "  pipeline_config: {pipeline_scheduler: zero_bubble_h1}\n");
  return drawn;
}

struct Counts {
  int64_t read_once = 0, joined = 0, written_over = 0;
  Bytes saved;  // of the arenas
};

void Count(const Program& program, Counts& counts) {
  for (const RankClass& c : program.classes) {
    for (const Block& block : c.blocks) {
      for (const Instruction& instruction : block.instructions) {
        const auto* const compute = std::get_if<Compute>(&instruction.work);
        if (compute == nullptr) continue;
        counts.read_once += compute->op == OpKind::kRowPartials ? 1 : 0;
        counts.joined += compute->op == OpKind::kJoinPartials ? 1 : 0;
        if (compute->op != OpKind::kPartialsGrad) continue;
        counts.written_over += c.buffers[instruction.writes[0].buffer.index()].alias.valid() ? 1 : 0;
      }
    }
  }
}

void Check(uint64_t seed, Counts& counts) {
  const Drawn drawn = DrawModel(seed);
  SCOPED_TRACE(absl::StrCat("MESHWRIGHT_SEED=", seed, "\n", drawn.model));
  const auto [with, without] =
      ExpectTheSameWithout("fuse_loss", drawn.model, drawn.ranks, seed, /*to_the_bit=*/drawn.tensor == 1);
  Counts none, here;
  Count(without.program, none);
  Count(with.program, here);
  EXPECT_EQ(none.read_once + none.joined + none.written_over, 0);
  EXPECT_TRUE(here.written_over == 1 || !drawn.whole_losses);
  for (const Bytes& arena : with.result.arenas) counts.saved += Bytes() - arena;
  for (const Bytes& arena : without.result.arenas) counts.saved += arena;
  counts.read_once += here.read_once;
  counts.joined += here.joined;
  counts.written_over += here.written_over;
}

TEST(FusedLossTest, TheSameLossesWithAndWithout) {
  Counts counts;
  if (const char* const seed = std::getenv("MESHWRIGHT_SEED")) return Check(std::strtoull(seed, nullptr, 10), counts);
  for (uint64_t seed = 1; seed <= kNumPlans && !HasFailure(); ++seed) Check(seed, counts);
  if (HasFailure()) return;
  EXPECT_GE(counts.read_once, static_cast<int64_t>(kNumPlans) / 3);
  EXPECT_GE(counts.joined, static_cast<int64_t>(kNumPlans) / 8);
  EXPECT_LT(counts.joined, counts.read_once);
  // Of logits this small the columns of a split vocabulary may take a little more.
  EXPECT_GT(counts.saved, Bytes());
  EXPECT_GE(counts.written_over, static_cast<int64_t>(kNumPlans) / 2);
}

}  // namespace
}  // namespace meshwright
