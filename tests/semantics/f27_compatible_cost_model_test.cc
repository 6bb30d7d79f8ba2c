// F27: the compatible cost model. The tables of S14.9 and S15.6, S7.6's cost columns in bytes, S14.8's memory, the
// knobs of S14.2 and their errors (R28).
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/error_kind.h"
#include "ir/testing.h"
#include "models/model_file.h"
#include "planner/search/compatible_costs.h"
#include "planner/search/testing.h"

namespace meshwright {
namespace {

constexpr int64_t kRanks = 4;

// S14.9: x (64, 128), w1 (128, 64), relu, w2 (64, 64) on 4 devices.
class ChainTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(graph_, BuildChain());
    mesh_ = Mesh::Factored(1, kRanks);
  }
  CompatibleCosts Costs(const CostModelKnobs& knobs = {}) const {
    return *CompatibleCosts::Make(graph_, mesh_, kRanks, knobs, false);
  }
  size_t Find(const std::string& name) const { return graph_.FindOp(name).index(); }
  OpCandidate Candidate(const std::string& op, const Pieces& pieces) const {
    return *MakeCandidate(graph_.ops[Find(op)], graph_, pieces, mesh_, kRanks);
  }
  std::string Edge(const std::string& from, const Pieces& from_pieces, const std::string& to,
                   const Pieces& to_pieces) const {
    const OpCandidate a = Candidate(from, from_pieces), b = Candidate(to, to_pieces);
    const TensorSide side = {OutputOf(graph_.ops[Find(from)], a, 0), BoundsOf(a.assignment, mesh_, kRanks)};
    const Cost cost = *Costs().OfUse(side, Find(to), 0, b);
    return absl::StrCat(cost.computation, ", ", cost.communication);
  }

  Graph graph_;
  Mesh mesh_;
};

// Labels of a product stand in the order m, k, n: (a, b, c) of S5.4.
TEST_F(ChainTest, OperatorsToTheByte) {
  struct Row {
    Pieces pieces;
    double computation[2], forward[2], partial[2];  // of both products
  };
  const std::vector<Row> rows = {
      {{1, 1, 1}, {65536, 32768}, {0, 0}, {32.768, 16.384}},
      {{1, 1, 4}, {40960, 20480}, {0, 0}, {0, 0}},
      {{1, 2, 2}, {32768, 20480}, {9216, 9216}, {9216, 9216}},
      {{1, 4, 1}, {32768, 24576}, {17408, 17408}, {17408, 17408}},
      {{2, 1, 2}, {32768, 16384}, {0, 0}, {16.384, 8.192}},
      {{2, 2, 1}, {32768, 20480}, {9216, 9216}, {9232.384, 9224.192}},
      {{4, 1, 1}, {40959, 20479}, {0, 0}, {32.768, 16.384}},
  };
  const CompatibleCosts costs = Costs();
  for (const Row& row : rows) {
    for (int i = 0; i < 2; ++i) {
      const std::string name = absl::StrCat("matmul", i + 1);
      const OpCandidate candidate = Candidate(name, row.pieces);
      SCOPED_TRACE(absl::StrCat(name, " (", row.pieces[0], ",", row.pieces[1], ",", row.pieces[2], ")"));
      EXPECT_EQ(costs.Operator(Find(name), candidate).computation, row.computation[i]);
      EXPECT_EQ(costs.Operator(Find(name), candidate).forward, row.forward[i]);
      EXPECT_DOUBLE_EQ(costs.OfOperator(Find(name), candidate)->communication, row.partial[i]);
    }
  }
  EXPECT_EQ(costs.Operator(Find("relu"), Candidate("relu", {1, 4})).computation, 4096);
  EXPECT_EQ(costs.Operator(Find("relu"), Candidate("relu", {2, 2})).computation, 4096);
  EXPECT_EQ(costs.Operator(Find("relu"), Candidate("relu", {4, 1})).computation, 4095);
  EXPECT_EQ(costs.Operator(Find("relu"), Candidate("relu", {1, 1})).computation, 16384);
}

TEST_F(ChainTest, EdgesToTheByte) {
  EXPECT_EQ(Edge("matmul1", {1, 1, 4}, "relu", {1, 4}), "0, 0");
  EXPECT_EQ(Edge("matmul1", {1, 1, 4}, "relu", {2, 2}), "57344, 14336");
  EXPECT_EQ(Edge("matmul1", {1, 1, 4}, "relu", {4, 1}), "40960, 12288");
  EXPECT_EQ(Edge("matmul1", {2, 1, 2}, "relu", {2, 2}), "0, 0");
  EXPECT_EQ(Edge("matmul1", {2, 1, 2}, "relu", {4, 1}), "32768, 8192");
  EXPECT_EQ(Edge("matmul1", {4, 1, 1}, "relu", {4, 1}), "0, 0");
  EXPECT_EQ(Edge("matmul1", {4, 1, 1}, "relu", {1, 4}), "8192, 12288");
  EXPECT_EQ(Edge("relu", {1, 4}, "matmul2", {1, 1, 4}), "36864, 12288");
  EXPECT_EQ(Edge("relu", {2, 2}, "matmul2", {2, 1, 2}), "20480, 8192");
  EXPECT_EQ(Edge("relu", {2, 2}, "matmul2", {2, 2, 1}), "0, 0");
  EXPECT_EQ(Edge("relu", {4, 1}, "matmul2", {4, 1, 1}), "0, 0");
}

// S15.4: 8192 (x) + 32768 (w1) + 4096 (relu's output) + 16384 (w2); matmul2's input is relu's output and counts once.
TEST_F(ChainTest, Memory) {
  const CompatibleCosts costs = Costs();
  EXPECT_EQ(costs.Memory(Find("matmul1"), Candidate("matmul1", {4, 1, 1})), 8192 + 32768);
  EXPECT_EQ(costs.Memory(Find("relu"), Candidate("relu", {4, 1})), 4096);
  EXPECT_EQ(costs.Memory(Find("matmul2"), Candidate("matmul2", {4, 1, 1})), 16384);
  // Inference: all three outputs are on the only path, and x is dropped.
  CostModelKnobs inference;
  inference.inference = true;
  const CompatibleCosts outputs = Costs(inference);
  EXPECT_EQ(outputs.Memory(Find("matmul1"), Candidate("matmul1", {4, 1, 1})), 32768 + 4096);
  EXPECT_EQ(outputs.Memory(Find("matmul2"), Candidate("matmul2", {4, 1, 1})), 16384 + 4096);
}

// Each knob moves what S14.2 says.
TEST_F(ChainTest, KnobsAct) {
  const size_t op = Find("matmul1");
  const auto partial = [&](const CostModelKnobs& knobs, const Pieces& pieces) {
    return Costs(knobs).OfOperator(op, Candidate("matmul1", pieces))->communication;
  };
  CostModelKnobs knobs;
  knobs.gamma = 0.5;
  EXPECT_EQ(partial(knobs, {4, 1, 1}), 16384);
  knobs = {};
  knobs.communi_bias = 0;
  EXPECT_EQ(partial(knobs, {1, 2, 2}), 8192);
  knobs.communi_threshold = 8192;
  EXPECT_EQ(partial(knobs, {1, 2, 2}), 3072);
  knobs.communi_const = 5;
  EXPECT_EQ(partial(knobs, {1, 2, 2}), 5);
  knobs = {};
  knobs.inference = true;  // F without the gradient
  EXPECT_EQ(partial(knobs, {2, 2, 1}), 9216);
  // S14.7: in inference only the way there, 32 x 64 x 4 x 0.5 x ... = 8192 + 1024, of (4,1,1) -> (1,4).
  const OpCandidate rows = Candidate("matmul1", {4, 1, 1}), columns = Candidate("relu", {1, 4});
  const TensorSide side = {OutputOf(graph_.ops[op], rows, 0), BoundsOf(rows.assignment, mesh_, kRanks)};
  EXPECT_EQ(Costs(knobs).OfUse(side, Find("relu"), 0, columns)->communication, 8192 + 1024);
  // Cutting rows and columns to multiples of 32: w1's (128, 64) over 4 would leave 16 columns.
  ASSERT_OK_AND_ASSIGN(const std::vector<OpCandidate> all, CandidatesOf(graph_.ops[op], graph_, mesh_, kRanks));
  ASSERT_OK_AND_ASSIGN(const std::vector<OpCandidate> aligned,
                       CandidatesOf(graph_.ops[op], graph_, mesh_, kRanks, {.align = 32}));
  EXPECT_EQ(all.size(), 7);      // (1,1,4) (1,2,2) (1,4,1) (2,1,2) (2,2,1) (4,1,1) (1,1,1)
  EXPECT_EQ(aligned.size(), 5);  // without (1,1,4) and (4,1,1)
  ASSERT_OK_AND_ASSIGN(const std::vector<OpCandidate> fewer,
                       CandidatesOf(graph_.ops[op], graph_, mesh_, kRanks, {.fully_use_devices = false}));
  EXPECT_EQ(fewer.size(), 10);  // and (1,1,2) (1,2,1) (2,1,1)
}

// S14.2's kinds of errors (R28), and the knobs as a model file has them.
absl::StatusOr<ModelFile> WithKnob(const std::string& knob) {
  return ParseModelFile(absl::StrCat(R"(
name: chain
inputs:     {x: {shape: [64, 128]}, label: {shape: [64, 64]}}
parameters: {w: {shape: [128, 64]}}
operators:
  - {name: matmul, op: MatMul,  inputs: [x, w]}
  - {name: loss,   op: MSELoss, inputs: [matmul, label]}
training: {optimizer: {sgd: {learning_rate: 0.1}}}
parallel: {parallel_mode: auto_parallel, )",
                                     knob, "}\n"),
                        "m.yaml");
}

TEST(KnobTest, ErrorsHaveTheirKinds) {
  for (const char* knob : {"costmodel_gamma: 1.1", "costmodel_beta: 0", "device_memory_capacity: 0",
                           "costmodel_alpha: -1", "costmodel_communi_threshold: -1", "run_phase: 2",
                           "tensor_slice_align_size: 0", "tensor_slice_align_size: 1025", "dp_algo_approxi_epsilon: 0",
                           "dp_algo_approxi_epsilon: 1.5", "rp_matmul_mem_coef: 0"}) {
    const absl::Status status = WithKnob(knob).status();
    EXPECT_EQ(KindOf(status), "E-VALUE") << knob << ": " << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(std::string(knob, std::string(knob).find(':'))));
  }
  for (const char* knob : {"costmodel_gamma: much", "costmodel_simplify_cal: 1", "run_phase: 0.5",
                           "fully_use_devices: none", "multi_subgraphs: 0", "dp_algo_single_loop: 2"}) {
    EXPECT_EQ(KindOf(WithKnob(knob).status()), "E-TYPE") << knob;
  }
}

TEST(KnobTest, DefaultsAreThoseOfTheTable) {
  const CostModelKnobs knobs;
  EXPECT_EQ(knobs.device_memory_capacity, GiB(16));
  EXPECT_EQ(knobs.alpha, 1);
  EXPECT_EQ(knobs.beta, 50);
  EXPECT_EQ(knobs.gamma, 0.001);
  EXPECT_EQ(Corrected(0, knobs), 0);
  EXPECT_EQ(Corrected(1, knobs), 3072);
  EXPECT_EQ(Corrected(2048, knobs), 3072);
  EXPECT_EQ(Corrected(2049, knobs), 2049 + 1024);
}

}  // namespace
}  // namespace meshwright
