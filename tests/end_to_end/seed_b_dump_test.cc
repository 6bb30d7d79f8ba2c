// Seed B's plan, seen from rank 0 (S16.11, S17.7): the rows of the execute dump, in order.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "costmodel/cost_model.h"
#include "costmodel/library.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/document.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "models/model_file.h"
#include "planner/lower.h"

namespace meshwright {
namespace {

TEST(SeedBDumpTest, SixRowsOfTheSemantics) {
  ASSERT_OK_AND_ASSIGN(const std::string text, ReadTextFile("models/configs/matmul_relu.yaml"));
  ASSERT_OK_AND_ASSIGN(const ModelFile model, ParseModelFile(text, "matmul_relu.yaml"));
  ASSERT_OK_AND_ASSIGN(const Graph graph, BuildGraph(model, 16));
  Strategy strategy;
  strategy.mesh = Mesh::Factored(1, 8);
  // What sharding propagation finds (S15.6): relu and matmul2 follow matmul.
  for (const auto& [name, pieces] :
       std::vector<std::pair<std::string, std::vector<std::vector<int64_t>>>>{{"matmul", {{2, 4}, {4, 1}}},
                                                                              {"relu", {{2, 4}}},
                                                                              {"matmul2", {{2, 4}, {4, 1}}},
                                                                              {"loss", {{8, 1}, {8, 1}}}}) {
    ASSERT_OK_AND_ASSIGN(strategy.ops[name], FromTuples(graph.op(graph.FindOp(name)), graph, pieces, strategy.mesh, 8));
  }
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, MakeCluster("h100-sxm", 1));
  const CostModel costs(cluster);
  const UpdateRule momentum{OpKind::kMomentum, {}};
  ASSERT_OK_AND_ASSIGN(const Program program, Lower(graph, strategy, momentum, PriceSteps(costs, strategy.mesh)));
  std::vector<std::string> rows;
  for (const absl::string_view line : absl::StrSplit(DumpRank(program, 0), '\n')) {
    // Without the leading number.
    if (line.find(' ') != line.npos) rows.push_back(std::string(line.substr(line.find(' ') + 1)));
  }
  const auto first = std::find(rows.begin(), rows.end(), "MatMul (8, 8) (8, 16) -> (8, 16)");
  ASSERT_NE(first, rows.end());
  const std::vector<std::string> found(first, std::min(first + 8, rows.end()));
  EXPECT_THAT(found,
              testing::ElementsAre("MatMul (8, 8) (8, 16) -> (8, 16)", "AllReduce sum ranks 0-1-2-3 fusion 0 (8, 16)",
                                   "StridedSlice begin (0, 0) end (8, 4) strides (1, 1) (8, 16) -> (8, 4)",
                                   "ReLU (8, 4) -> (8, 4)", "Load w2 (4, 16)", "MatMul (8, 4) (4, 16) -> (8, 16)",
                                   "AllReduce sum ranks 0-1-2-3 fusion 0 (8, 16)",
                                   "StridedSlice begin (0, 0) end (2, 16) strides (1, 1) (8, 16) -> (2, 16)"));
}

}  // namespace
}  // namespace meshwright
