// The property that everything rests on (S1.6, S18.3 b): whatever the strategy, many ranks compute what one computes.
//
// Random graphs, random legal strategies. What differs is the order of sums, so that in float64 (S0.4) losses of
// several steps agree to 1e-12 of their size, and gradients to 1e-12 of the largest entry of any of them. Parameters
// after the steps agree to 1e-12, or 1e-11 where the optimizer divides by the root of a mean square. The program passes
// the verifier after every pass.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "executor/host/run_on_threads.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "planner/lower.h"
#include "planner/passes/testing.h"
#include "planner/schedule.h"
#include "tests/property/random_model.h"

namespace meshwright {
namespace {

constexpr int kNumGraphs = 500;
constexpr int64_t kSteps = 3;
constexpr int64_t kRows = 48;  // of a step
constexpr double kBound = 1e-12;
// AdamW and LAMB divide by sqrt(v) + 1e-5, so where gradients are small they multiply the error of one by up to
// learning rate / 1e-5 = 1000. Of the cases here the worst parameter differs by 3e-13, the worst gradient by 6e-15.
constexpr double kAdaptiveBound = 1e-11;
// Muon makes errors that are small beside the norm of a matrix larger by up to its five slopes at 0. Of the cases here
// the worst parameter differs by 4e-11.
constexpr double kMuonGrowth = 3.4445 * 3.4445 * 3.4445 * 3.4445 * 3.4445;  // 485

// SGD's p - rate g with this rate is -rate g but for 2^-80 p, which is nothing beside the rounding of g.
constexpr double kRateOfGradients = 0x1p80;

// What the programs were made of, by name: that the random cases reach everything is checked at the end.
using Coverage = std::map<std::string, int64_t>;

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

void Count(const Program& program, Coverage& coverage) {
  for (const RankClass& c : program.classes) {
    for (const Block& block : c.blocks) {
      for (const Instruction& instruction : block.instructions) {
        const auto split = [&](const auto& operands) {
          return std::any_of(operands.begin(), operands.end(), [&](const Operand& operand) {
            const Layout& layout = c.buffers[operand.buffer.index()].layout;
            return !Layout{layout.dims, {}, Reduction::kSum}.IsReplicated();
          });
        };
        const std::string name = std::visit(
            Overloaded{[&](const Compute& work) {
                         return absl::StrCat(NameOf(work.op), split(instruction.reads) ? " split" : "",
                                             work.recompute ? " again" : "");
                       },
                       [&](const Collective& work) {
                         return absl::StrCat(NameOf(work.kind), " ", NameOf(work.reduction), " ", NameOf(work.purpose));
                       },
                       [](const Slice&) { return std::string("slice"); },
                       [](const Permute&) { return std::string("permute"); },
                       [](const Transfer& work) { return absl::StrCat("transfer ", NameOf(work.purpose)); },
                       [](const Sync&) { return std::string("sync"); }},
            instruction.work);
        ++coverage[name];
      }
    }
  }
}

absl::StatusOr<RunResult> Run(const Graph& graph, const Strategy& strategy, const UpdateRule& optimizer,
                              const StepPrice& price, Coverage& coverage, int64_t steps = kSteps) {
  absl::StatusOr<Program> program = Lower(graph, strategy, optimizer, price, VerifiedAfter);
  if (!program.ok()) return program.status();
  Count(*program, coverage);
  RunOptions options;
  options.steps = steps;
  options.trace = false;
  options.keep_parameters = true;
  return RunOnThreads(*program, options, SyntheticData(5));
}

// Of its own size or, where it is the difference of larger numbers, of `size`.
bool Near(double a, double b, double bound, double size = 1) {
  return std::abs(a - b) <= bound * std::max({size, std::abs(a), std::abs(b)});
}

void ExpectEqualLosses(const RunResult& sharded, const RunResult& whole, double bound) {
  ASSERT_EQ(sharded.losses.size(), whole.losses.size());
  for (size_t i = 0; i < whole.losses.size(); ++i) {
    EXPECT_TRUE(Near(sharded.losses[i], whole.losses[i], bound, 0))
        << "loss of step " << i + 1 << " is " << sharded.losses[i] << ", one rank has " << whole.losses[i];
  }
}

double LargestOf(const RunResult& result) {
  double largest = 0;
  for (const auto& [key, tensor] : result.parameters) {
    for (double value : tensor.values) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

void ExpectEqualTensors(const RunResult& sharded, const RunResult& whole, double bound, double size) {
  ASSERT_EQ(sharded.parameters.size(), whole.parameters.size());
  for (const auto& [key, expected] : whole.parameters) {
    const auto found = sharded.parameters.find(key);
    ASSERT_NE(found, sharded.parameters.end()) << key.first << ", layer " << key.second;
    ASSERT_EQ(found->second.values.size(), expected.values.size());
    size_t wrong = 0, first = 0;
    for (size_t i = expected.values.size(); i-- > 0;) {
      if (Near(found->second.values[i], expected.values[i], bound, size)) continue;
      ++wrong;
      first = i;
    }
    EXPECT_EQ(wrong, 0u) << key.first << ", layer " << key.second << ": of " << expected.values.size()
                         << " elements; element " << first << " is " << found->second.values[first] << ", one rank has "
                         << expected.values[first];
  }
}

struct Case {
  ModelOptions model;
  int64_t stages = 1, chunks = 1, ranks_per_stage = 1, microbatches = 1;
};

Case RandomCase(uint64_t seed) {
  Draw draw(seed);
  Case c;
  const int64_t form = draw.Below(4);
  c.model.form = form < 2 ? ModelForm::kFlat : form == 2 ? ModelForm::kLayers : ModelForm::kSegments;
  c.model.mixes_rows = c.model.form == ModelForm::kFlat && draw.Chance(30);
  c.model.has_masks = draw.Chance(40);
  const int64_t ranks = draw.Of(std::vector<int64_t>{2, 4, 6, 8});
  if (c.model.form != ModelForm::kFlat) {
    std::vector<int64_t> stages = {1, 2};
    if (c.model.form == ModelForm::kSegments) {
      for (int64_t s : {3, 4}) {
        if (ranks % s == 0) stages.push_back(s);
      }
    }
    c.stages = draw.Of(stages);
  }
  // An interleaved pipeline: segments are parts, stacks have layers for two chunks of two stages, or not.
  if (c.model.form != ModelForm::kFlat && c.stages > 1) c.chunks = 1 + draw.Below(2);
  c.model.num_stages = c.stages * c.chunks;
  c.ranks_per_stage = ranks / c.stages;
  c.microbatches = draw.Of(std::vector<int64_t>{1, 1, 2, 4});
  c.model.rows = kRows / c.microbatches;
  return c;
}

RandomSplit SplitOf(uint64_t seed, const Graph& graph, const Case& c) {
  RandomSplit split = RandomStrategy(seed, graph, c.stages, c.ranks_per_stage, c.microbatches);
  int64_t layers = 0;
  for (const Segment& segment : graph.segments) layers += segment.carries.empty() ? 0 : segment.repeat;
  const bool enough = layers == 0 || layers >= c.stages * c.chunks;
  const bool zero_bubble = c.stages > 1 && seed % 3 == 0;
  const auto use = [&](Schedule schedule) {
    split.forms.erase(absl::StrCat("schedule ", NameOf(split.strategy.schedule)));
    split.strategy.schedule = schedule;
    split.forms.insert(absl::StrCat("schedule ", NameOf(schedule)));
  };
  const bool turns = seed % 2 == 0;
  const auto fits = [&](Schedule schedule) { return CheckSchedule(schedule, c.stages, c.microbatches).ok(); };
  if (zero_bubble && c.chunks == 1) {
    use(turns && fits(Schedule::kDualPipe) ? Schedule::kDualPipe : Schedule::kZeroBubbleH1);
  }
  if (c.chunks == 1 || !enough) return split;
  if (zero_bubble && c.chunks == 2) {
    use(turns && fits(Schedule::kDualPipeV) ? Schedule::kDualPipeV : Schedule::kZeroBubbleV);
  }
  split.strategy.chunks = c.chunks;
  split.strategy.layers_per_stage.clear();
  split.forms.insert("chunks");
  return split;
}

// One rank, all plain.
Strategy OneRank(int64_t microbatches) {
  Strategy strategy;
  strategy.mesh = Mesh::Factored(1, 1);
  strategy.microbatches = microbatches;
  strategy.loss_divisor = static_cast<double>(microbatches);
  strategy.gradient_dtype = DType::kFloat64;
  return strategy;
}

// On one stage; segments keep their order.
Graph WithoutStages(Graph graph) {
  for (Segment& segment : graph.segments) segment.stage = -1;
  return graph;
}

void Check(uint64_t seed, Coverage& coverage) {
  Coverage unused;
  const Case c = RandomCase(seed);
  SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", c.stages, " stages of ", c.ranks_per_stage, " ranks, ", c.microbatches,
                            " micro-batches"));
  ASSERT_OK_AND_ASSIGN(const Graph graph, RandomModel(seed, c.model));
  const RandomSplit split = SplitOf(seed, graph, c);
  const Strategy& strategy = split.strategy;
  for (const std::string& form : split.forms) ++coverage[absl::StrCat("strategy: ", form)];
  ++coverage[absl::StrCat("ranks ", c.stages * c.ranks_per_stage)];
  const UpdateRule optimizer = RandomOptimizer(seed);
  const bool adaptive = optimizer.kind == OpKind::kAdamW || optimizer.kind == OpKind::kLamb;
  const double growth = optimizer.kind == OpKind::kMuon ? kMuonGrowth : 1;
  const StepPrice price = RandomPrice(seed);
  // Where rows do not mix, the mean over micro-batches is that over the batch, so one rank takes it whole.
  ModelOptions one = c.model;
  one.rows = one.mixes_rows ? c.model.rows : kRows;
  ASSERT_OK_AND_ASSIGN(const Graph plain, RandomModel(seed, one));
  const auto run_whole = [&](const UpdateRule& rule, int64_t steps) {
    return Run(WithoutStages(plain), OneRank(kRows / one.rows), rule, price, unused, steps);
  };
  ASSERT_OK_AND_ASSIGN(const RunResult whole, run_whole(optimizer, kSteps));
  const absl::StatusOr<RunResult> sharded = Run(graph, strategy, optimizer, price, coverage);
  ASSERT_OK(sharded) << ToText(graph) << ToText(strategy);
  ExpectEqualLosses(*sharded, whole, kBound * growth);
  ExpectEqualTensors(*sharded, whole, adaptive ? kAdaptiveBound : kBound * growth, 1);
  UpdateRule to_gradients{OpKind::kSgd, {}};
  to_gradients.attrs.learning_rate = kRateOfGradients;
  ASSERT_OK_AND_ASSIGN(const RunResult gradients, Run(graph, strategy, to_gradients, price, unused, 1));
  ASSERT_OK_AND_ASSIGN(const RunResult whole_gradients, run_whole(to_gradients, 1));
  SCOPED_TRACE("gradients times -2^80");
  ExpectEqualTensors(gradients, whole_gradients, kBound, LargestOf(whole_gradients));
  if (testing::Test::HasFailure()) FAIL() << ToText(graph) << ToText(strategy);
}

// Fails with the name of every operator, form of strategy, collective and other work that no case had.
void ExpectEverythingOccurred(Coverage& coverage) {
  std::vector<std::string> wanted;
  for (const OpInfo& row : kOps) {
    // Exchanges are of programs that are split by hand (tests/semantics F34), merged attention of decoders
    // (context_parallel_test), epilogues and losses of 16-bit types (fused_epilogues_test, fused_loss_test).
    if (row.epilogue != OpKind::kNumOps) continue;
    if (row.kind == OpKind::kRowPartials || row.kind == OpKind::kJoinPartials) continue;
    if (row.kind == OpKind::kNumOps || row.kind == OpKind::kExchange || row.kind == OpKind::kMergeAttention) continue;
    // What reads nothing, or scalars alone, has no operand that could be split.
    const bool has_dims = row.kind != OpKind::kFill && row.kind != OpKind::kFeed && row.kind != OpKind::kAdjustScale;
    wanted.push_back(absl::StrCat(row.name, has_dims ? " split" : ""));
  }
  for (const absl::string_view form : kStrategyForms) wanted.push_back(absl::StrCat("strategy: ", form));
  wanted.push_back("strategy: chunks");
  for (const int64_t ranks : {2, 4, 6, 8}) wanted.push_back(absl::StrCat("ranks ", ranks));
  for (const CollectiveInfo& row : kCollectives) {
    // Programs that are planned have no broadcast: parameters start equal, since each rank draws its slice of one
    // value.
    if (row.kind != CollectiveKind::kBroadcast) wanted.push_back(absl::StrCat(row.name, " sum activation"));
  }
  for (const char* name :
       {"all_reduce max activation", "all_reduce sum gradient", "all_reduce sum report", "all_reduce max report",
        "reduce_scatter sum gradient", "all_gather sum parameter", "slice", "permute", "transfer activation",
        "transfer parameter", "transfer gradient", "transfer report", "sync", "MatMul split again"}) {
    wanted.push_back(name);
  }
  for (const std::string& name : wanted) {
    EXPECT_GT(coverage[name], 0) << "no random case had \"" << name << "\"";
  }
}

// MESHWRIGHT_SEED=N runs that one alone.
TEST(ShardedEqualsWholeTest, RandomGraphsAndStrategies) {
  Coverage coverage;
  if (const char* seed = std::getenv("MESHWRIGHT_SEED")) return Check(std::strtoull(seed, nullptr, 10), coverage);
  for (uint64_t seed = 1; seed <= kNumGraphs && !HasFailure(); ++seed) Check(seed, coverage);
  if (HasFailure()) return;
  ExpectEverythingOccurred(coverage);
}

// S8.4: with gradients_mean, a parameter's gradient is divided by the number of its own replicas. So after one step of
// SGD it has moved so much less than on one rank.
TEST(GradientsMeanTest, EveryParameterMovesByItsOwnShare) {
  UpdateRule sgd{OpKind::kSgd, {}};
  sgd.attrs.learning_rate = 0.1;
  std::map<int64_t, int> seen;  // replica counts
  for (uint64_t seed = 1; seed <= 40 && !HasFailure(); ++seed) {
    const Case c = RandomCase(seed);
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    ASSERT_OK_AND_ASSIGN(const Graph graph, RandomModel(seed, c.model));
    Strategy strategy = SplitOf(seed, graph, c).strategy;
    strategy.gradients_mean = true;
    std::map<std::string, int64_t> replicas;
    RunOptions options;
    options.keep_parameters = true;
    const auto run = [&](const Graph& of, const Strategy& by, int64_t steps) -> absl::StatusOr<RunResult> {
      MESHWRIGHT_ASSIGN_OR_RETURN(const Program program, Lower(of, by, sgd, RandomPrice(seed)));
      MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(program));
      for (const RankClass& rank_class : program.classes) {
        for (const Buffer& buffer : rank_class.buffers) {
          if (buffer.role != BufferRole::kParameter) continue;
          const int64_t pieces =
              NumElements(buffer.shape) / NumElements(LocalShape(buffer.shape, buffer.layout, by.mesh));
          replicas[buffer.name] = program.ranks_per_class() / pieces;
        }
      }
      options.steps = steps;
      return RunOnThreads(program, options, SyntheticData(5));
    };
    ASSERT_OK_AND_ASSIGN(const RunResult before, run(WithoutStages(graph), OneRank(c.microbatches), 0));
    ASSERT_OK_AND_ASSIGN(const RunResult whole, run(WithoutStages(graph), OneRank(c.microbatches), 1));
    ASSERT_OK_AND_ASSIGN(const RunResult sharded, run(graph, strategy, 1));
    for (const auto& [key, values] : whole.parameters) {
      const auto share = static_cast<double>(replicas.at(key.first));
      for (size_t i = 0; i < values.values.size(); ++i) {
        const double start = before.parameters.at(key).values[i];
        const double expected = start + (values.values[i] - start) / share;
        ASSERT_TRUE(Near(sharded.parameters.at(key).values[i], expected, kBound)) << key.first << ", element " << i;
      }
      ++seen[replicas.at(key.first)];
    }
  }
  EXPECT_GE(seen.size(), 5u);  // 1, 2, 3, 4, 6, 8 or so
}

}  // namespace
}  // namespace meshwright
