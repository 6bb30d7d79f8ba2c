// F22: the parallel optimizer in data_parallel (S11.1 to S11.3).
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/checkpoint.h"
#include "executor/data.h"
#include "executor/runner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/error_kind.h"
#include "ir/testing.h"
#include "tests/semantics/calls.h"
#include "tests/semantics/pipelines.h"
#include "tests/semantics/play.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;

constexpr char kLamb[] = "lamb: {learning_rate: 0.01}";
constexpr char kAdam[] = "adamw: {learning_rate: 0.01}";

// Seed A's six parameters in small: three dense layers with bias, on so many ranks.
std::string SixParameters(int64_t devices, const std::string& optimizer, const std::string& parallel) {
  return absl::StrCat(R"(name: six
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
training: {dtype: float64, optimizer: {)",
                      optimizer, "}}\nparallel: {", parallel,
                      "}\ncluster: {device: host, nodes: 1, devices_per_node: ", devices, "}\n");
}
constexpr char kData[] = "parallel_mode: data_parallel";
constexpr char kOwners[] = "parallel_mode: data_parallel, enable_parallel_optimizer: true";

// S11.3: 6 parameters on 4 ranks have the owners 0,1,2,3,0,1, and four rounds of broadcasts make all equal again.
TEST(F22Owners, ParameterIOfRankIModN) {
  ASSERT_OK_AND_ASSIGN(const PlannedRun planned, PlanModel(SixParameters(4, kAdam, kOwners)));
  const std::vector<std::string> names = {"w1", "b1", "w2", "b2", "w3", "b3"};
  const std::vector<int64_t> owners = {0, 1, 2, 3, 0, 1};
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(BufferNamed(planned.program, names[i] + "@m").owner, owners[i]) << names[i];
    EXPECT_EQ(BufferNamed(planned.program, names[i] + "@v").owner, owners[i]) << names[i];
  }
  EXPECT_THAT(CallsOf(planned.program, Purpose::kParameter),
              ElementsAre("broadcast {0,1,2,3}: w1 w3", "broadcast {0,1,2,3}: b1 b3", "broadcast {0,1,2,3}: w2",
                          "broadcast {0,1,2,3}: b2"));
  std::vector<int64_t> roots;
  for (const Block& block : planned.program.classes[0].blocks) {
    for (const Instruction& instruction : block.instructions) {
      const auto* call = std::get_if<Collective>(&instruction.work);
      if (call != nullptr && call->kind == CollectiveKind::kBroadcast) roots.push_back(call->root);
    }
  }
  EXPECT_THAT(roots, ElementsAre(0, 1, 2, 3));
}

// S11: weights and losses are those without it, on all ranks.
TEST(F22Owners, SameWeightsAsWithout) {
  for (const char* optimizer : {kAdam, kLamb}) {
    for (const char* mean : {"", ", gradients_mean: true"}) {
      SCOPED_TRACE(absl::StrCat(optimizer, mean));
      ASSERT_OK_AND_ASSIGN(const RunResult all, RunModel(SixParameters(4, optimizer, absl::StrCat(kData, mean)), 5));
      ASSERT_OK_AND_ASSIGN(const RunResult owners,
                           RunModel(SixParameters(4, optimizer, absl::StrCat(kOwners, mean)), 5));
      for (const std::vector<double>& losses : owners.rank_losses) EXPECT_EQ(losses, owners.losses);
      ExpectSameTraining(owners, all, 0);
    }
  }
}

// State is at the owner alone: of the 2 x 372 numbers of all ranks' states the fullest rank has w1's and w3's.
TEST(F22Owners, StateOnlyAtTheOwner) {
  ASSERT_OK_AND_ASSIGN(const PlannedRun all, PlanModel(SixParameters(4, kAdam, kData)));
  ASSERT_OK_AND_ASSIGN(const PlannedRun owners, PlanModel(SixParameters(4, kAdam, kOwners)));
  const auto state = [](const PlannedRun& planned) {
    return planned.prediction.memory[static_cast<size_t>(BufferRole::kOptimizerState)].raw();
  };
  // In units of 256 bytes (kAlignment), float64: w1 1536 = 6, b1 128 = 1, w2 1024 = 4, b2 64 = 1, w3 256 = 1, b3 32
  // = 1.
  EXPECT_EQ(state(all), 2 * 256 * (6 + 1 + 4 + 1 + 1 + 1));
  EXPECT_EQ(state(owners), 2 * 256 * (6 + 1));
  EXPECT_EQ(all.program.classes[0].arena - owners.program.classes[0].arena, Bytes(state(all) - state(owners)));
  ASSERT_OK_AND_ASSIGN(const RunResult run, RunSteps(owners.program, 1));
  for (const Bytes arena : run.arenas) EXPECT_EQ(arena, owners.program.classes[0].arena);
}

// The simulator counts the work of the busiest owner and the broadcasts.
// F32: a run that stops and goes on has the losses of one that never stopped. What lies in the place of another's state
// on a rank is not that state, whoever saves it.
TEST(F22Owners, StateIsSavedByItsOwner) {
  for (const char* optimizer : {kAdam, kLamb}) {
    ASSERT_OK_AND_ASSIGN(const PlannedRun planned, PlanModel(SixParameters(4, optimizer, kOwners)));
    ASSERT_OK_AND_ASSIGN(const RunResult whole, RunSteps(planned.program, 6));
    for (const bool integrated : {true, false}) {
      const std::string folder =
          absl::StrCat(testing::TempDir(), "/owners_", std::string(optimizer, 4), integrated ? "_whole" : "_pieces");
      std::filesystem::remove_all(folder);
      RunOptions first;
      first.steps = 3;
      first.checkpoint = CheckpointOptions{.directory = folder + "/{rank_id}", .every = 3, .integrated = integrated};
      ASSERT_OK(Play(planned.program, first, SyntheticData(1)));
      ASSERT_OK_AND_ASSIGN(const SavedState state,
                           LoadState(absl::StrCat(folder, integrated ? "/2" : "/{rank_id}", "/CKP-1_3.ckpt")));
      RunOptions rest;
      rest.steps = 3;
      rest.initial = &state;
      rest.first_step = state.steps_done;
      ASSERT_OK_AND_ASSIGN(const RunResult found, Play(planned.program, rest, SyntheticData(1)));
      ASSERT_EQ(found.losses.size(), 3u);
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(found.losses[i], whole.losses[i + 3]) << folder << " " << i;
    }
  }
}

TEST(F22Owners, TheSimulatorCountsBroadcasts) {
  ASSERT_OK_AND_ASSIGN(const PlannedRun all, PlanModel(SixParameters(4, kAdam, kData)));
  ASSERT_OK_AND_ASSIGN(const PlannedRun owners, PlanModel(SixParameters(4, kAdam, kOwners)));
  EXPECT_EQ(all.prediction.time[TimeUse::kParameterCollective], Nanos(0));
  EXPECT_GT(owners.prediction.time[TimeUse::kParameterCollective], Nanos(0));
  EXPECT_LT(owners.prediction.time[TimeUse::kOptimizer], all.prediction.time[TimeUse::kOptimizer]);
}

// LAMB on one device against its formula (You et al., arXiv:1904.00962): one weight w = 2, gradient g = 2 w = 4 of the
// loss w^2. m^ = 4, v^ = 16, step = 4 / (4 + 1e-6) + 0.01 w; the trust ratio makes the change lr |w| whatever the step.
TEST(F22Owners, LambTakesItsStepFromTheWeight) {
  const std::string model = R"(name: lamb
inputs: {x: {shape: [1, 1], init: ones}, t: {shape: [1, 1], init: zeros}}
parameters: {w: {shape: [1, 1], init: {constant: 2}}}
operators:
  - {name: y, op: MatMul, inputs: [x, w]}
  - {name: loss, op: MSELoss, inputs: [y, t]}
training: {dtype: float64, optimizer: {lamb: {learning_rate: 0.1}}}
parallel: {parallel_mode: stand_alone}
cluster: {device: host, nodes: 1, devices_per_node: 1}
)";
  ASSERT_OK_AND_ASSIGN(const RunResult result, RunModel(model, 1));
  EXPECT_NEAR(result.parameters.at({"w", 0}).values[0], 2 - 0.1 * 2, 1e-14);
}

// R22.
TEST(F22Owners, Errors) {
  const auto kind = [](const std::string& model) { return std::string(KindOf(PlanModel(model).status())); };
  EXPECT_EQ(kind(SixParameters(4, "sgd: {learning_rate: 0.1}", kOwners)), "E-STATE");
  EXPECT_EQ(kind(SixParameters(4, "momentum: {learning_rate: 0.1}", kOwners)), "E-STATE");
  EXPECT_EQ(kind(SixParameters(8, kAdam, kOwners)), "E-STATE");
  EXPECT_THAT(PlanModel(SixParameters(8, kAdam, kOwners)).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "found 6 parameters for 8 ranks"));
  EXPECT_EQ(kind(SixParameters(4, kAdam, "parallel_mode: stand_alone, enable_parallel_optimizer: true")), "E-STATE");
  EXPECT_EQ(kind(SixParameters(4, kAdam, "parallel_mode: hybrid_parallel, enable_parallel_optimizer: true")),
            "E-STATE");
  EXPECT_EQ(kind(SixParameters(2, kAdam, kOwners)), "");  // as many parameters as ranks, or more (X16)
}

}  // namespace
}  // namespace meshwright
