// The gradient of every differentiable operator, through the whole chain: Differentiate, Lower, a step of SGD on one
// rank. Each element of each input against a difference quotient of the loss.
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "executor/host/run_on_threads.h"
#include "executor/op_examples.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "planner/lower.h"

namespace meshwright {
namespace {

constexpr uint64_t kSeed = 3;
constexpr double kStep = 1e-5;   // of the difference quotients; their error is about kStep^2 + 1e-16 / kStep
constexpr double kBound = 1e-8;  // of the loss's own size

// Inputs "shift0", "shift1", ... are zero but for one element of one of them.
class Shifted : public DataSource {
 public:
  Shifted(std::string name, int64_t element, double shift)
      : others_(kSeed), name_(std::move(name)), element_(element), shift_(shift) {}
  absl::Status Fill(absl::string_view name, const Initializer& init, int64_t step,
                    const TensorView& piece) const override {
    if (!absl::StartsWith(name, "shift")) return others_.Fill(name, init, step, piece);
    std::memset(piece.data, 0, static_cast<size_t>(piece.bytes()));
    if (name == name_) reinterpret_cast<double*>(piece.data)[element_] = shift_;
    return absl::OkStatus();
  }

 private:
  SyntheticData others_;
  std::string name_;
  int64_t element_;
  double shift_;
};

// The example's operator on parameters w0, w1, ..., or on their sums with the inputs shift0, ..., and a loss behind it.
absl::StatusOr<Graph> Model(const OpExample& example, bool shifted) {
  GraphBuilder b("example");
  b.BeginSegment("model");
  std::vector<TensorId> inputs;
  for (size_t i = 0; i < example.inputs.size(); ++i) {
    const Shape& shape = example.inputs[i];
    if (i < example.ids.size() && example.ids[i] > 0) {
      const Initializer ids{.kind = Initializer::Kind::kTokens, .high = static_cast<double>(example.ids[i])};
      inputs.push_back(b.Input(absl::StrCat("ids", i), DType::kInt32, shape, ids));
      continue;
    }
    const Initializer values{.kind = Initializer::Kind::kUniform, .low = example.low, .high = example.high};
    // A loss has no gradient with respect to its target.
    if (example.op == OpKind::kMseLoss && i == 1) {
      inputs.push_back(b.Input("target", DType::kFloat64, shape, values));
      continue;
    }
    TensorId input = b.Parameter(absl::StrCat("w", i), DType::kFloat64, shape, values);
    if (shifted) {
      const TensorId shift = b.Input(absl::StrCat("shift", i), DType::kFloat64, shape, {});
      MESHWRIGHT_ASSIGN_OR_RETURN(
          input, b.AddOne({.name = absl::StrCat("sum", i), .kind = OpKind::kAdd, .inputs = {input, shift}}));
    }
    inputs.push_back(input);
  }
  TensorId y;
  if (example.op == OpKind::kLossFromPartials) {
    // Its gradient is that of the whole split cross entropy: w0 are the logits.
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId max,
                                b.AddOne({.name = "max", .kind = OpKind::kRowMax, .inputs = {inputs[0]}}));
    MESHWRIGHT_ASSIGN_OR_RETURN(
        const std::vector<TensorId> sums,
        b.Add({.name = "sums", .kind = OpKind::kExpSumAndPick, .inputs = {inputs[0], max, inputs[1]}}));
    MESHWRIGHT_ASSIGN_OR_RETURN(
        y, b.AddOne({.name = "op", .kind = example.op, .inputs = {max, sums[0], sums[1]}, .attrs = example.attrs}));
  } else {
    GraphBuilder::OpSpec spec{.name = "op", .kind = example.op, .inputs = inputs, .rule = example.rule};
    spec.attrs = example.attrs;
    spec.output_shapes = example.outputs;
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> outputs, b.Add(std::move(spec)));
    y = outputs[0];
  }
  const bool loss =
      example.op == OpKind::kMseLoss || example.op == OpKind::kCrossEntropy || example.op == OpKind::kLossFromPartials;
  if (!loss) {
    const Initializer values{.kind = Initializer::Kind::kUniform, .low = -1, .high = 1};
    const TensorId target = b.Input("goal", DType::kFloat64, b.graph().tensor(y).shape, values);
    MESHWRIGHT_ASSIGN_OR_RETURN(y, b.AddOne({.name = "loss", .kind = OpKind::kMseLoss, .inputs = {y, target}}));
  }
  b.SetLoss(y);
  MESHWRIGHT_RETURN_IF_ERROR(VerifyGraph(b.graph()));
  return std::move(b).Build();
}

absl::StatusOr<Program> OneRank(const Graph& graph) {
  Strategy strategy;
  strategy.mesh = Mesh::Factored(1, 1);
  strategy.gradient_dtype = DType::kFloat64;
  UpdateRule sgd{OpKind::kSgd, {}};
  sgd.attrs.learning_rate = 1;
  const StepPrice free = [](const Shape&, DType, const Work&, const Layout&, const Layout&) { return Nanos(0); };
  MESHWRIGHT_ASSIGN_OR_RETURN(Program program, Lower(graph, strategy, sgd, free));
  MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(program));
  return program;
}

absl::StatusOr<RunResult> Run(const Program& program, int64_t steps, const DataSource& data) {
  RunOptions options;
  options.steps = steps;
  options.seed = kSeed;
  options.trace = false;
  options.keep_parameters = true;
  return RunOnThreads(program, options, data);
}

using Gradients = std::map<std::string, std::vector<double>>;

// What one step of SGD with rate 1 takes off the parameters.
absl::StatusOr<Gradients> GradientsOf(const Program& program) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const RunResult before, Run(program, 0, SyntheticData(kSeed)));
  MESHWRIGHT_ASSIGN_OR_RETURN(const RunResult after, Run(program, 1, SyntheticData(kSeed)));
  Gradients gradients;
  for (const auto& [key, start] : before.parameters) {
    for (size_t i = 0; i < start.values.size(); ++i) {
      gradients[key.first].push_back(start.values[i] - after.parameters.at(key).values[i]);
    }
  }
  return gradients;
}

// Returns how many elements were compared.
void Check(const OpExample& example, int64_t& compared) {
  // The labels of the split loss are its second input here, whatever the operator's own are.
  OpExample inputs = example;
  if (example.op == OpKind::kLossFromPartials) {
    inputs.inputs = {{4, 2, 8}, {4, 2}};
    inputs.ids = {0, 8};
  }
  ASSERT_OK_AND_ASSIGN(const Graph direct, Model(inputs, false));
  ASSERT_OK_AND_ASSIGN(const Program program, OneRank(direct));
  ASSERT_OK_AND_ASSIGN(const Gradients gradients, GradientsOf(program));
  // Behind a sum, the gradient is that of a value, not of a parameter: it goes another way and must be the same.
  ASSERT_OK_AND_ASSIGN(const Graph behind_sums, Model(inputs, true));
  ASSERT_OK_AND_ASSIGN(const Program shifted, OneRank(behind_sums));
  for (const auto& [name, gradient] : gradients) {
    const std::string shift = absl::StrCat("shift", name.substr(1));
    for (size_t i = 0; i < gradient.size(); ++i) {
      const auto element = static_cast<int64_t>(i);
      ASSERT_OK_AND_ASSIGN(const RunResult up, Run(shifted, 1, Shifted(shift, element, kStep)));
      ASSERT_OK_AND_ASSIGN(const RunResult down, Run(shifted, 1, Shifted(shift, element, -kStep)));
      const double quotient = (up.losses[0] - down.losses[0]) / (2 * kStep);
      ASSERT_NEAR(gradient[i], quotient, kBound * (1 + std::abs(up.losses[0]))) << name << ", element " << i;
      ++compared;
    }
  }
  ASSERT_OK_AND_ASSIGN(const Gradients of_sums, GradientsOf(shifted));
  for (const auto& [name, gradient] : gradients) {
    for (size_t i = 0; i < gradient.size(); ++i) {
      ASSERT_NEAR(of_sums.at(name)[i], gradient[i], 1e-12 * (1 + std::abs(gradient[i]))) << name << ", element " << i;
    }
  }
}

TEST(GradientsTest, EveryDifferentiableOperator) {
  for (const OpInfo& row : kOps) {
    // An Exchange is of programs that are split by hand: tests/semantics F34 compares its gradient; a MergeAttention of
    // context parallelism: context_parallel_test does.
    if (!row.differentiable || row.kind == OpKind::kExchange || row.kind == OpKind::kMergeAttention) continue;
    const std::vector<OpExample> examples = ExamplesOf(row.kind);
    EXPECT_FALSE(examples.empty()) << row.name << " has no example";
    int64_t compared = 0;
    for (const OpExample& example : examples) {
      if (example.attrs.shift >= 0) continue;  // a block of the same
      SCOPED_TRACE(absl::StrCat(row.name, " ", example.rule));
      Check(example, compared);
    }
    EXPECT_GT(compared, 0) << row.name;
  }
}

}  // namespace
}  // namespace meshwright
