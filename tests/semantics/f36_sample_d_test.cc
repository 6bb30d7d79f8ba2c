// F36: sample D, layouts (S17.8 to S17.10), and its small oracle D' (S18.2).
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "costmodel/library.h"
#include "executor/data.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/files.h"
#include "ir/graph_dump.h"
#include "ir/testing.h"
#include "planner/search/search.h"
#include "tests/cli/run_tool.h"
#include "tests/semantics/play.h"
#include "tools/cluster_flags.h"
#include "tools/session.h"

namespace meshwright {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

constexpr char kSeedD[] = "models/configs/samples/seed_d.yaml";
constexpr char kOracleD[] = "models/configs/oracle_d.yaml";

struct Planned {
  Graph graph;
  Strategy strategy;
  Program program;
};
// For the file's own cluster, eight GPUs, whose prices choose the sequences of S17.9; or for so many ranks of this
// host.
absl::StatusOr<Planned> Plan(const std::string& file, int64_t host_ranks = 0) {
  std::vector<FlagSpec> specs = StrategyFlags();
  specs.insert(specs.end(), ClusterFlags().begin(), ClusterFlags().end());
  MESHWRIGHT_ASSIGN_OR_RETURN(const Flags flags, Flags::Parse(specs, {}));
  std::optional<Cluster> cluster;
  if (host_ranks > 0) {
    MESHWRIGHT_ASSIGN_OR_RETURN(cluster, MakeClusterOfDevices("host", host_ranks));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const SourceFile source, ReadSource(file));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Session session, OpenModel(source, flags, std::move(cluster)));
  MESHWRIGHT_ASSIGN_OR_RETURN(const SearchResult found, Search(session.problem, {}));
  Planned planned;
  planned.strategy = found.ranked.front().strategy;
  MESHWRIGHT_ASSIGN_OR_RETURN(Evaluation evaluation, Evaluate(session.problem, planned.strategy));
  MESHWRIGHT_ASSIGN_OR_RETURN(planned.graph, session.problem.graph(session.problem.batch));
  planned.program = std::move(evaluation.program);
  return planned;
}

// "(128, 196) (196, 512) -> (128, 512)"
std::string Shapes(const DumpNode& node) {
  const auto shape = [](absl::string_view type) {
    const size_t begin = type.find('(');
    return std::string(type.substr(begin, type.find(')', begin) - begin + 1));
  };
  std::string row;
  for (const std::string& input : node.inputs) absl::StrAppend(&row, shape(input), " ");
  absl::StrAppend(&row, "->");
  for (const std::string& output : node.outputs) absl::StrAppend(&row, " ", shape(output));
  return row;
}

// The forward computations of a rank, by operator.
std::map<std::string, std::string> Local(const Program& program, int64_t rank) {
  std::map<std::string, std::string> rows;
  for (const DumpNode& node : DumpExecution(program, rank)) {
    if (!node.in_strategy.empty() && absl::EndsWith(node.scope, "forward")) rows[node.name] = Shapes(node);
  }
  return rows;
}

// group_ranks of the collectives whose instance name begins so, of the operator or tensor.
std::vector<std::string> Groups(const Program& program, int64_t rank, absl::string_view prefix, absl::string_view of) {
  std::vector<std::string> groups;
  for (const DumpNode& node : DumpExecution(program, rank)) {
    if (!absl::StartsWith(node.instance, prefix) || node.name != of) continue;
    const size_t begin = node.attrs.find("group_ranks: ") + 13;
    groups.push_back(node.attrs.substr(begin, node.attrs.find(',', begin) - begin));
  }
  return groups;
}

// S17.9, column "local", on every rank.
TEST(F36, LocalShapes) {
  ASSERT_OK_AND_ASSIGN(const Planned d, Plan(kSeedD));
  for (int64_t rank = 0; rank < 8; ++rank) {
    const std::map<std::string, std::string> rows = Local(d.program, rank);
    EXPECT_EQ(rows.at("flatten"), "(32, 1, 28, 28) -> (32, 784)");
    EXPECT_EQ(rows.at("matmul1"), "(128, 196) (196, 512) -> (128, 512)");
    EXPECT_EQ(rows.at("relu1"), "(64, 512) -> (64, 512)");
    EXPECT_EQ(rows.at("matmul2"), "(256, 64) (64, 512) -> (256, 512)");
    EXPECT_EQ(rows.at("relu2"), "(32, 512) -> (32, 512)");
    EXPECT_EQ(rows.at("matmul3"), "(32, 512) (512, 10) -> (32, 10)");
    EXPECT_EQ(rows.at("loss"), "(32, 10) (32) -> ()");
  }
}

// S17.9, column "collective": matmul1 over {0,2,4,6} and {1,3,5,7} (the order of the layout is 0,4,2,6, and an
// AllReduce may use any), matmul2 over all, matmul3 none.
TEST(F36, Collectives) {
  ASSERT_OK_AND_ASSIGN(const Planned d, Plan(kSeedD));
  const auto sorted = [](const std::vector<std::string>& groups) {
    EXPECT_EQ(groups.size(), 1u);
    std::vector<std::string> ranks = absl::StrSplit(groups.empty() ? "" : groups[0], '-');
    std::sort(ranks.begin(), ranks.end());
    return absl::StrJoin(ranks, "-");
  };
  for (int64_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(sorted(Groups(d.program, rank, "forward_op", "matmul1")), rank % 2 == 0 ? "0-2-4-6" : "1-3-5-7");
    EXPECT_EQ(sorted(Groups(d.program, rank, "forward_op", "matmul2")), "0-1-2-3-4-5-6-7");
    EXPECT_THAT(Groups(d.program, rank, "forward_op", "matmul3"), testing::IsEmpty());
    // The mean loss is added up over all ranks.
    EXPECT_THAT(Groups(d.program, rank, "forward_op", "loss"), ElementsAre("0-1-2-3-4-5-6-7"));
  }
  // matmul2 -> relu2 is local: a StridedSlice of 32 rows.
  for (int64_t rank = 0; rank < 8; ++rank) {
    std::vector<std::string> slices;
    for (const DumpNode& node : DumpExecution(d.program, rank)) {
      if (node.op == "StridedSlice" && Shapes(node) == "(256, 512) -> (32, 512)") slices.push_back(node.args[1]);
    }
    EXPECT_THAT(slices, Contains(absl::StrCat("(", 32 * rank, ", 0)")));
  }
}

// S17.9, column "weight mirror": w1 over {0,1} {2,3} {4,5} {6,7}, w2 none, w3 over all.
TEST(F36, Mirrors) {
  ASSERT_OK_AND_ASSIGN(const Planned d, Plan(kSeedD));
  for (int64_t rank = 0; rank < 8; ++rank) {
    std::vector<std::string> groups;
    for (const DumpNode& node : DumpExecution(d.program, rank)) {
      if (!absl::StartsWith(node.instance, "mirror_op")) continue;
      const size_t begin = node.attrs.find("group_ranks: ") + 13;
      groups.push_back(absl::StrCat(Shapes(node), " ", node.attrs.substr(begin, node.attrs.find(',', begin) - begin)));
    }
    const int64_t even = rank / 2 * 2;
    EXPECT_THAT(groups, testing::UnorderedElementsAre(absl::StrCat("(196, 512) -> (196, 512) ", even, "-", even + 1),
                                                      "(512, 10) -> (512, 10) 0-1-2-3-4-5-6-7"));
  }
}

// S17.8: rows that ranks hold of matmul1 and of relu1 (S6.9, S7.8). The replicas of w3 get all of it.
TEST(F36, Slices) {
  ASSERT_OK_AND_ASSIGN(const Planned d, Plan(kSeedD));
  const Mesh& mesh = d.strategy.mesh;
  const OpStrategy &matmul1 = d.strategy.ops.at("matmul1"), &relu1 = d.strategy.ops.at("relu1");
  const int64_t columns[] = {0, 0, 392, 392, 196, 196, 588, 588};  // S6.9
  for (int64_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(SliceBegin({256, 784}, matmul1.inputs[0], mesh, rank), Shape({rank % 2 * 128, columns[rank]}));
    EXPECT_EQ(SliceBegin({784, 512}, matmul1.inputs[1], mesh, rank), Shape({columns[rank], 0}));
    EXPECT_EQ(SliceBegin({256, 512}, relu1.inputs[0], mesh, rank), Shape({64 * (rank / 2), 0}));
  }
}

// The sample as a user runs it: 8 equal lines a step, in the form of D's own loop, first loss 2.30 +- 0.01 (ln 10 is
// 2.3026), and it learns.
TEST(F36, TheSampleTrains) {
  ::unsetenv("DATA_PATH");
  const ToolResult result =
      RunTool("run", {DataPath(kSeedD), "--ranks=8", "--steps=101"}, {.folder = std::string(testing::TempDir())});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("digits that are made up"));
  std::vector<std::string> steps;
  std::vector<double> losses;
  std::map<std::string, std::vector<std::string>> values;
  for (const absl::string_view line : absl::StrSplit(result.out, '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, ", loss is ");
    if (parts.size() != 2) continue;
    if (values[parts[0]].empty()) {
      steps.push_back(parts[0]);
      EXPECT_TRUE(absl::SimpleAtod(parts[1], &losses.emplace_back()));
    }
    values[parts[0]].push_back(parts[1]);
  }
  EXPECT_THAT(steps, ElementsAre("epoch: 0, step: 0", "epoch: 0, step: 10", "epoch: 0, step: 20", "epoch: 0, step: 30",
                                 "epoch: 0, step: 40", "epoch: 0, step: 50", "epoch: 0, step: 60", "epoch: 0, step: 70",
                                 "epoch: 0, step: 80", "epoch: 0, step: 90", "epoch: 0, step: 100"));
  for (const auto& [step, lines] : values) {
    EXPECT_EQ(lines.size(), 8u) << step;
    EXPECT_THAT(lines, Each(lines[0])) << step;
  }
  ASSERT_FALSE(losses.empty());
  EXPECT_THAT(losses[0], AllOf(Ge(2.29), Le(2.31)));
  EXPECT_LT(losses.back(), losses[0] - 0.1);
}

// S1.8, D's "28GB": the executor stays below it. 100 kB are less than a rank's arena.
TEST(F36, TheMemoryLimitHolds) {
  const std::string folder(testing::TempDir());
  std::string text = ReadText(DataPath(kSeedD));
  const size_t at = text.find("28GB");
  ASSERT_NE(at, std::string::npos);
  EXPECT_OK(WriteWholeFile(folder + "/small.yaml", text.replace(at, 4, "0.0001GB")));
  const ToolResult small = RunTool("run", {"small.yaml", "--ranks=8", "--steps=1"}, {.folder = folder});
  EXPECT_EQ(small.exit_code, 4) << small.err;  // nothing fits
}

// ---- D' -----------------------------------------------------------------------------------------------------------

TEST(F36, OracleLossesOnOneAndEightRanks) {
  for (const int64_t ranks : {1, 8}) {
    ASSERT_OK_AND_ASSIGN(const Planned d, Plan(kOracleD, ranks));
    RunOptions options;
    options.steps = 6;
    ASSERT_OK_AND_ASSIGN(const RunResult run, Play(d.program, options, SyntheticData(1)));
    // The table has nine decimals.
    EXPECT_THAT(run.losses, ElementsAre(DoubleNear(1.379620138, 6e-10), DoubleNear(1.363466394, 6e-10),
                                        DoubleNear(1.354297826, 6e-10), DoubleNear(1.344983313, 6e-10),
                                        DoubleNear(1.334692313, 6e-10), DoubleNear(1.319384193, 6e-10)));
    for (const std::vector<double>& losses : run.rank_losses) EXPECT_EQ(losses, run.losses);
  }
}

TEST(F36, OracleLocalShapesAndSlices) {
  ASSERT_OK_AND_ASSIGN(const Planned d, Plan(kOracleD, 8));
  const std::map<std::string, std::string> rows = Local(d.program, 5);
  EXPECT_EQ(rows.at("matmul1"), "(4, 3) (3, 8) -> (4, 8)");
  EXPECT_EQ(rows.at("relu1"), "(2, 8) -> (2, 8)");
  EXPECT_EQ(rows.at("matmul2"), "(8, 1) (1, 8) -> (8, 8)");
  EXPECT_EQ(rows.at("relu2"), "(1, 8) -> (1, 8)");
  EXPECT_EQ(rows.at("matmul3"), "(1, 8) (8, 4) -> (1, 4)");
  // Rank 5's slice of X: rows 4:8, columns 3:6.
  const Layout& x = d.strategy.ops.at("matmul1").inputs[0];
  EXPECT_EQ(SliceBegin({8, 12}, x, d.strategy.mesh, 5), Shape({4, 3}));
  EXPECT_EQ(LocalShape({8, 12}, x, d.strategy.mesh), Shape({4, 3}));
}

// The sums over the ranks' columns of X and rows of W1, for element (0, 0) of the first product.
TEST(F36, OraclePartialSums) {
  ASSERT_OK_AND_ASSIGN(const Planned d, Plan(kOracleD, 8));
  const Layout& x = d.strategy.ops.at("matmul1").inputs[0];
  const std::pair<int64_t, double> wanted[] = {
      {0, 0.1636363636}, {2, -0.2090909091}, {4, -0.1363636364}, {6, 0.0636363636}};
  double total = 0;
  for (const auto& [rank, partial] : wanted) {
    const int64_t begin = SliceBegin({8, 12}, x, d.strategy.mesh, rank)[1];
    double sum = 0;  // X = v(7,3,11)/11, W1 = (v(3,5,7) - 3)/10
    for (int64_t k = begin; k < begin + 3; ++k) {
      sum += static_cast<double>(3 * k % 11) / 11 * static_cast<double>(3 * k % 7 - 3) / 10;
    }
    EXPECT_NEAR(sum, partial, 6e-11) << rank;
    total += sum;
  }
  EXPECT_NEAR(total, -0.1181818182, 6e-11);
}

// The sums of the absolute gradients at step 1: SGD moved the weights by learning rate times gradient.
TEST(F36, OracleGradients) {
  for (const int64_t ranks : {1, 8}) {
    ASSERT_OK_AND_ASSIGN(const Planned d, Plan(kOracleD, ranks));
    RunOptions options;
    options.keep_parameters = true;
    options.steps = 0;
    ASSERT_OK_AND_ASSIGN(const RunResult before, Play(d.program, options, SyntheticData(1)));
    options.steps = 1;
    ASSERT_OK_AND_ASSIGN(const RunResult after, Play(d.program, options, SyntheticData(1)));
    const std::pair<const char*, double> wanted[] = {{"w1", 1.4161884408}, {"w2", 0.3912230629}, {"w3", 0.1617362261}};
    for (const auto& [name, sum] : wanted) {
      const std::vector<double>&old = before.parameters.at({name, 0}).values,
            &now = after.parameters.at({name, 0}).values;
      double moved = 0;
      for (size_t i = 0; i < old.size(); ++i) moved += std::abs(old[i] - now[i]) / 0.5;
      EXPECT_NEAR(moved, sum, 6e-11) << name << " on " << ranks;
    }
  }
}

// One row of the batch of D', with a label of the test's own.
class OneRow : public DataSource {
 public:
  OneRow(int64_t row, std::vector<double> label) : row_(row), label_(std::move(label)) {}
  absl::Status Fill(absl::string_view name, const Initializer&, int64_t, const TensorView& piece) const override {
    for (int64_t j = 0; j < piece.size(); ++j) {
      if (name == "x") {
        piece.as<double>()[j] = static_cast<double>((7 * row_ + 3 * j) % 11) / 11;
      } else if (piece.dtype == DType::kInt32) {
        piece.as<int32_t>()[j] = static_cast<int32_t>(label_[static_cast<size_t>(j)]);
      } else {
        piece.as<double>()[j] = label_[static_cast<size_t>(j)];
      }
    }
    return absl::OkStatus();
  }

 private:
  const int64_t row_;
  const std::vector<double> label_;
};

// The first loss of the network on that row alone, on one rank; with `squares` the mean square distance of the logits
// from the label instead.
absl::StatusOr<double> LossOfRow(int64_t row, std::vector<double> label, bool squares) {
  MESHWRIGHT_ASSIGN_OR_RETURN(std::string text, ReadWholeFile(kOracleD, 1 << 20));
  const std::string labels = "label: {shape: [8], dtype: int32, init: {formula: {a: 1, mod: 4}}}";
  text = absl::StrReplaceAll(text, {{"x: {shape: [8, 12]", "x: {shape: [1, 12]"},
                                    {labels, squares ? "label: {shape: [1, 4], init: ones}"
                                                     : "label: {shape: [1], dtype: int32, init: zeros}"},
                                    {"CrossEntropyLoss", squares ? "MSELoss" : "CrossEntropyLoss"}});
  const std::string path = absl::StrCat(testing::TempDir(), "/row.yaml");
  MESHWRIGHT_RETURN_IF_ERROR(WriteWholeFile(path, text));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Planned planned, Plan(path, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(const RunResult run, Play(planned.program, {}, OneRow(row, std::move(label))));
  return run.losses[0];
}

// Row r of the last product is on rank r, so a rank's own loss is that of its row, with label r mod 4.
TEST(F36, OracleLossesOfTheRanks) {
  const double wanted[] = {1.362272018, 1.387599815, 1.475430959, 1.374895291,
                           1.369826823, 1.305829668, 1.414050161, 1.347056369};
  ASSERT_OK_AND_ASSIGN(const Planned d, Plan(kOracleD, 8));
  for (int64_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(SliceBegin({8, 8}, d.strategy.ops.at("matmul3").inputs[0], d.strategy.mesh, rank), Shape({rank, 0}));
    ASSERT_OK_AND_ASSIGN(const double loss, LossOfRow(rank, {static_cast<double>(rank % 4)}, false));
    EXPECT_NEAR(loss, wanted[rank], 6e-10) << rank;
  }
}

// y_c from mean squares: with label 0 it is S0 = sum(y^2)/4, with the c-th unit vector S0 + (1 - 2 y_c)/4.
TEST(F36, OracleLogitsOfRankFive) {
  const double wanted[] = {0.037171717, 0.088080808, -0.061010101, -0.041010101};
  ASSERT_OK_AND_ASSIGN(const double from_zero, LossOfRow(5, {0, 0, 0, 0}, true));
  for (size_t c = 0; c < 4; ++c) {
    std::vector<double> unit(4, 0);
    unit[c] = 1;
    ASSERT_OK_AND_ASSIGN(const double from_unit, LossOfRow(5, unit, true));
    EXPECT_NEAR((1 - 4 * (from_unit - from_zero)) / 2, wanted[c], 6e-10) << c;
  }
}

}  // namespace
}  // namespace meshwright
