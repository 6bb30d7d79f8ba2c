// F32: checkpoints, merged and re-sharded (S16.5 to S16.7).
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "costmodel/library.h"
#include "executor/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/files.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "planner/search/search.h"
#include "tests/semantics/play.h"
#include "tools/run_callbacks.h"
#include "tools/session.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// Seed B's network on S18.1's data, in float64: matmul ((2,4),(4,1)) on 8 ranks, momentum.
constexpr char kOracle[] = "models/configs/oracle_b.yaml";

std::string Folder(absl::string_view name) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/", name);
  std::filesystem::remove_all(folder);
  return folder;
}

absl::StatusOr<Program> Planned(const std::string& text, int64_t ranks, const std::vector<std::string>& args = {}) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Flags flags, Flags::Parse(StrategyFlags(), args));
  MESHWRIGHT_ASSIGN_OR_RETURN(Cluster host, MakeClusterOfDevices("host", ranks));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Session session, OpenModel({"model.yaml", text}, flags, std::move(host)));
  MESHWRIGHT_ASSIGN_OR_RETURN(const SearchResult found, Search(session.problem, {}));
  MESHWRIGHT_ASSIGN_OR_RETURN(Evaluation evaluation, Evaluate(session.problem, found.ranked.front().strategy));
  return std::move(evaluation.program);
}

std::string OracleText() { return ReadWholeFile(kOracle, 1 << 20).value_or(""); }

struct Start {
  const SavedState* state = nullptr;
  std::string directory = "";
  bool integrated = true;
  int64_t steps_per_epoch = 0;
};
absl::StatusOr<RunResult> Train(const Program& program, int64_t steps, const Start& start = {}) {
  RunOptions options;
  options.steps = steps;
  options.keep_parameters = true;
  options.initial = start.state;
  options.first_step = start.state == nullptr ? 0 : start.state->steps_done;
  if (!start.directory.empty()) {
    options.checkpoint = CheckpointOptions{
        .directory = start.directory, .integrated = start.integrated, .steps_per_epoch = start.steps_per_epoch};
  }
  return Play(program, options, SyntheticData(1));
}

std::vector<std::string> Notices(const Program& program, const SavedState& state) {
  const absl::StatusOr<std::vector<std::string>> notices = CheckFits(program, state);
  EXPECT_OK(notices);
  return notices.value_or(std::vector<std::string>{"an error"});
}

std::vector<std::string> Names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

absl::StatusOr<Checkpoint> Read(const std::string& path) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(path, size_t{1} << 30));
  return ParseCheckpoint(bytes, path);
}

const StatePiece* Find(const Checkpoint& checkpoint, absl::string_view name) {
  for (const StatePiece& piece : checkpoint.pieces) {
    if (piece.name == name) return &piece;
  }
  return nullptr;
}

// S16.5: 5 epochs of 4 steps are 20 saves; the last five stay, and the graph besides, in each rank's directory.
TEST(F32, FiveCheckpointsAreKept) {
  const std::string folder = Folder("device");
  ASSERT_OK_AND_ASSIGN(const Program program, Planned(OracleText(), 8));
  EXPECT_OK(Train(program, 20, {.directory = folder + "/{rank_id}", .steps_per_epoch = 4}));
  for (const char* const rank : {"0", "7"}) {
    EXPECT_THAT(Names(absl::StrCat(folder, "/", rank)),
                UnorderedElementsAre("CKP-4_4.ckpt", "CKP-5_1.ckpt", "CKP-5_2.ckpt", "CKP-5_3.ckpt", "CKP-5_4.ckpt",
                                     "CKP-graph.meta"));
  }
  // The meta file is the program: it can be read again.
  ASSERT_OK_AND_ASSIGN(const std::string meta, ReadWholeFile(folder + "/0/CKP-graph.meta", 1 << 20));
  EXPECT_EQ(meta, ToText(program));
  EXPECT_OK(ParseProgram(meta));
  // A second run's files are newer than those that it finds. Other files are nobody's business.
  EXPECT_OK(WriteWholeFile(folder + "/0/CKP-best.ckpt", "mine"));
  EXPECT_OK(Train(program, 2, {.directory = folder + "/{rank_id}", .steps_per_epoch = 4}));
  EXPECT_THAT(Names(folder + "/0"), UnorderedElementsAre("CKP-5_2.ckpt", "CKP-5_3.ckpt", "CKP-5_4.ckpt", "CKP-1_1.ckpt",
                                                         "CKP-1_2.ckpt", "CKP-graph.meta", "CKP-best.ckpt"));
}

// With one file kept, the older one goes when all ranks have written theirs: of a save that one of them cannot finish,
// all keep what they had. Rank 1's folder is taken away between the steps.
TEST(F32, AnotherRanksFailureLosesNoCheckpoint) {
  const std::string folder = Folder("keep_one");
  ASSERT_OK_AND_ASSIGN(const Program program, Planned(OracleText(), 8));
  RunOptions options;
  options.steps = 2;
  options.checkpoint = CheckpointOptions{.directory = folder + "/{rank_id}", .keep = 1};
  options.on_loss = [&](int64_t step, double, bool first) {
    if (step == 0 || !first) return;
    std::filesystem::remove_all(folder + "/1");
    EXPECT_OK(WriteWholeFile(folder + "/1", "no folder"));
  };
  EXPECT_THAT(Play(program, options, SyntheticData(1)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(folder + "/1/CKP-1_2.ckpt: cannot be opened")));
  for (const char* const rank : {"/0", "/2", "/7"}) {
    EXPECT_THAT(Names(folder + rank), ::testing::Contains("CKP-1_1.ckpt")) << rank;
  }
}

// What a writer left that was killed goes when the next one comes; files that are not of these checkpoints stay.
TEST(F32, WhatAKilledWriterLeftGoes) {
  const std::string folder = Folder("left");
  ASSERT_OK_AND_ASSIGN(const Program program, Planned(OracleText(), 1));
  std::filesystem::create_directories(folder);
  for (const char* const name : {"CKP-1_7.ckpt.4711.tmp", "CKP-graph.meta.4711.tmp", "CKP-best.ckpt.4711.tmp",
                                 "other-1_7.ckpt.4711.tmp", "CKP-1_7.ckpt.tmp"}) {
    EXPECT_OK(WriteWholeFile(absl::StrCat(folder, "/", name), "a part"));
  }
  EXPECT_OK(Train(program, 1, {.directory = folder}));
  EXPECT_THAT(Names(folder), UnorderedElementsAre("CKP-1_1.ckpt", "CKP-graph.meta", "CKP-best.ckpt.4711.tmp",
                                                  "other-1_7.ckpt.4711.tmp", "CKP-1_7.ckpt.tmp"));
}

// S16.7: replicas that differ are E-VALUE. A whole tensor is one value, so ranks that draw their own are told before
// anything runs; each rank's own file has its own values.
TEST(F32, RanksThatDifferHaveNoWholeTensors) {
  const auto planned = [](const char* more) {
    return Planned(absl::StrCat(R"(name: drawn
inputs: {x: {shape: [4, 2]}, t: {shape: [4, 2]}}
parameters: {w: {shape: [2, 2], init: {normal: 1}}, z: {shape: [2, 2], init: zeros}}
operators:
  - {name: h, op: MatMul, inputs: [x, w]}
  - {name: y, op: MatMul, inputs: [h, z]}
  - {name: loss, op: MSELoss, inputs: [y, t]}
training: {dtype: float64, seed_per_rank: true}
parallel: {parallel_mode: data_parallel)",
                                more, "}\n"),
                   2);
  };
  const std::string folder = Folder("differ");
  RunOptions options;
  options.seed_per_rank = true;
  options.checkpoint = CheckpointOptions{.directory = folder + "/{rank_id}"};
  ASSERT_OK_AND_ASSIGN(const Program differ, planned(""));
  EXPECT_THAT(
      Play(differ, options, SyntheticData(1)),
      StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("\"w\" is whole in an integrated checkpoint"),
                                                         HasSubstr("integrated_save: false"), HasSubstr("[E-VALUE]"))));
  EXPECT_FALSE(std::filesystem::exists(folder + "/0/CKP-1_1.ckpt"));
  ASSERT_OK_AND_ASSIGN(const Program sent, planned(", parameter_broadcast: true"));
  EXPECT_OK(Play(sent, options, SyntheticData(1)));
  EXPECT_OK(LoadState(folder + "/{rank_id}/CKP-1_1.ckpt"));
  options.checkpoint->integrated = false;
  EXPECT_OK(Play(differ, options, SyntheticData(1)));
  ASSERT_OK_AND_ASSIGN(const SavedState of_0, LoadState(folder + "/0/CKP-1_1.ckpt"));
  ASSERT_OK_AND_ASSIGN(const SavedState of_1, LoadState(folder + "/1/CKP-1_1.ckpt"));
  EXPECT_NE(of_0.tensors.at("w").bytes, of_1.tensors.at("w").bytes);
  // Ranks that start from one file are equal, whatever they would have drawn.
  options.checkpoint->integrated = true;
  options.initial = &of_1;
  EXPECT_OK(Play(differ, options, SyntheticData(1)));
}

// S16.5: E-STATE.
TEST(F32, TwoRanksInOneDirectoryAreRefused) {
  const std::string folder = Folder("same");
  ASSERT_OK_AND_ASSIGN(const Program program, Planned(OracleText(), 8));
  EXPECT_THAT(
      Train(program, 1, {.directory = folder}),
      StatusIs(absl::StatusCode::kFailedPrecondition, AllOf(HasSubstr("ranks 0 and 1"), HasSubstr("[E-STATE]"))));
  EXPECT_FALSE(std::filesystem::exists(folder));
  EXPECT_THAT(CheckDirectories({"a/0", "a/b/../0"}), StatusIs(absl::StatusCode::kFailedPrecondition, "[E-STATE]"));
  EXPECT_OK(CheckDirectories({"a/0", "a/1"}));
  // As the tool says it, before anything runs.
  ASSERT_OK_AND_ASSIGN(const Flags flags, Flags::Parse(CallbackFlags(), {"--checkpoint_dir=out"}));
  EXPECT_THAT(CheckpointsOf(flags, {}, 0, 2), StatusIs(absl::StatusCode::kFailedPrecondition, "[E-STATE]"));
  EXPECT_OK(CheckpointsOf(flags, {}, 0, 1));
}

// S16.7 and S4.6: w (32,16), map [1,0] over [2,4,1]: rank r has rows (r%4)*8 to +8; {0,4} {1,5} {2,6} {3,7} hold the
// same. The whole tensor is the slices of ranks 0 to 3, or 4 to 7, rows in order.
TEST(F32, SlicesMergeToTheWholeTensor) {
  const std::string whole = Folder("whole"), slices = Folder("slices");
  ASSERT_OK_AND_ASSIGN(const Program program, Planned(OracleText(), 8));
  ASSERT_OK_AND_ASSIGN(const RunResult run, Train(program, 1, {.directory = whole + "/{rank_id}"}));
  EXPECT_OK(Train(program, 1, {.directory = slices + "/{rank_id}", .integrated = false}));
  std::vector<Checkpoint> ranks;
  for (int64_t rank = 0; rank < 8; ++rank) {
    ASSERT_OK_AND_ASSIGN(Checkpoint slice, Read(absl::StrCat(slices, "/", rank, "/CKP-1_1.ckpt")));
    const StatePiece* const w = Find(slice, "w");
    ASSERT_NE(w, nullptr);
    EXPECT_EQ(w->global, Shape({32, 16}));
    EXPECT_EQ(w->tensor.shape, Shape({8, 16}));
    EXPECT_EQ(w->begin, Shape({rank % 4 * 8, 0}));
    EXPECT_EQ(w->layout, "{x2.x1 | -}");
    EXPECT_NE(Find(slice, "w@m"), nullptr);  // momentum
    ranks.push_back(std::move(slice));
  }
  const std::vector<std::string> where = {"rank 0", "rank 1", "rank 2", "rank 3",
                                          "rank 4", "rank 5", "rank 6", "rank 7"};
  ASSERT_OK_AND_ASSIGN(const SavedState all, Merge(ranks, where));
  const absl::Span<const Checkpoint> span(ranks);
  for (const size_t first : {size_t{0}, size_t{4}}) {
    ASSERT_OK_AND_ASSIGN(const SavedState half, Merge(span.subspan(first, 4), where));
    EXPECT_EQ(half.tensors.at("w").bytes, all.tensors.at("w").bytes);
  }
  EXPECT_EQ(std::memcmp(all.tensors.at("w").bytes.data(), run.parameters.at({"w", 0}).values.data(), 32 * 16 * 8), 0);
  // S16.6: integrated, every rank's file holds the same whole tensors.
  for (int64_t rank = 0; rank < 8; ++rank) {
    ASSERT_OK_AND_ASSIGN(const Checkpoint file, Read(absl::StrCat(whole, "/", rank, "/CKP-1_1.ckpt")));
    EXPECT_TRUE(file.integrated());
    ASSERT_EQ(file.pieces.size(), 4u);  // w, w2 and their momentum
    for (const StatePiece& piece : file.pieces) {
      EXPECT_EQ(piece.tensor.bytes, all.tensors.at(piece.name).bytes) << piece.name;
    }
  }
  // Three of the four are not enough.
  EXPECT_THAT(Merge(span.subspan(0, 3), where),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("\"w\""), HasSubstr("element 384"), HasSubstr("[E-VALUE]"))));
  // Replicas that differ: one bit of rank 5's w, which rank 1 holds too. Element 3 of row 8.
  for (StatePiece& piece : ranks[5].pieces) {
    if (piece.name == "w") piece.tensor.bytes[3 * 8] ^= 1;
  }
  EXPECT_THAT(Merge(ranks, where), StatusIs(absl::StatusCode::kInvalidArgument,
                                            AllOf(HasSubstr("\"w\""), HasSubstr("element 131"), HasSubstr("rank 1"),
                                                  HasSubstr("rank 5"), HasSubstr("[E-VALUE]"))));
}

void ExpectSameParameters(const RunResult& a, const RunResult& b) {
  for (const auto& [key, whole] : a.parameters) EXPECT_EQ(whole.values, b.parameters.at(key).values) << key.first;
}

// The promise (executor/checkpoint.h): weights and optimizer state are loaded bit for bit under any plan. So
//   - the plan that saved goes on with the very losses of a run that never stopped;
//   - under another plan the next loss is that of a run of this plan that has these weights, however they came in;
//   - between plans it is equal to rounding, since the order of the sums differs (S0.4: 1e-12 in float64).
TEST(F32, EightRanksThenOneThenFour) {
  const std::string eight = Folder("eight"), one = Folder("one");
  ASSERT_OK_AND_ASSIGN(const Program on8, Planned(OracleText(), 8));
  ASSERT_OK_AND_ASSIGN(const Program on1, Planned(OracleText(), 1));
  const std::string other = absl::StrReplaceAll(OracleText(), {{"shard: [[2, 4], [4, 1]]", "shard: [[2, 1], [1, 2]]"}});
  ASSERT_OK_AND_ASSIGN(const Program on4,
                       Planned(other, 4, {"--parallel_optimizer", "--parallel_optimizer_threshold=0B"}));

  ASSERT_OK_AND_ASSIGN(const RunResult never_stopped,
                       Train(on8, 6, {.directory = eight + "/{rank_id}", .integrated = false}));
  ASSERT_OK_AND_ASSIGN(const SavedState after3, LoadState(eight + "/{rank_id}/CKP-1_3.ckpt"));
  EXPECT_EQ(after3.steps_done, 3);
  ASSERT_OK_AND_ASSIGN(const RunResult resumed, Train(on8, 3, {.state = &after3}));
  EXPECT_THAT(resumed.losses, ElementsAre(never_stopped.losses[3], never_stopped.losses[4], never_stopped.losses[5]));
  ExpectSameParameters(resumed, never_stopped);

  // One rank. S18.1 has the loss of step 4.
  EXPECT_THAT(Notices(on1, after3), IsEmpty());
  ASSERT_OK_AND_ASSIGN(const RunResult single, Train(on1, 1, {.state = &after3, .directory = one}));
  EXPECT_NEAR(single.losses[0], 0.287596576, 1e-9);
  EXPECT_NEAR(single.losses[0], never_stopped.losses[3], 1e-12 * never_stopped.losses[3]);
  // The same weights by another way: merged, written and read again.
  Checkpoint merged;
  merged.steps_done = 3;
  for (const auto& [name, tensor] : after3.tensors) {
    merged.pieces.push_back({name, tensor.shape, Shape(tensor.shape.size(), 0), "", tensor});
  }
  EXPECT_OK(WriteWholeFile(eight + "/merged.safetensors", ToBytes(merged)));
  ASSERT_OK_AND_ASSIGN(const SavedState from_merged, LoadState(eight + "/merged.safetensors"));
  ASSERT_OK_AND_ASSIGN(const RunResult same, Train(on1, 1, {.state = &from_merged}));
  EXPECT_EQ(same.losses, single.losses);
  ExpectSameParameters(same, single);

  // Four ranks, other strategies, optimizer state split over replicas.
  ASSERT_OK_AND_ASSIGN(const SavedState after4, LoadState(one + "/CKP-1_4.ckpt"));
  EXPECT_EQ(after4.steps_done, 4);
  EXPECT_THAT(Notices(on4, after4), IsEmpty());
  ASSERT_OK_AND_ASSIGN(const RunResult start, Train(on4, 0, {.state = &after4}));
  ExpectSameParameters(start, single);
  ASSERT_OK_AND_ASSIGN(const RunResult four, Train(on4, 2, {.state = &after4}));
  EXPECT_NEAR(four.losses[0], 0.284185660, 1e-9);
  EXPECT_NEAR(four.losses[0], never_stopped.losses[4], 1e-12 * never_stopped.losses[4]);
  EXPECT_NEAR(four.losses[1], never_stopped.losses[5], 1e-12 * never_stopped.losses[5]);
  for (const std::vector<double>& losses : four.rank_losses) EXPECT_EQ(losses, four.losses);
}

// Where no sum rounds, the next loss has the same bits under every plan. One product of integers below 11 and quarters,
// a mean over 256 elements, learning rates 2^-4 and 0: after a step weights are multiples of 2^-13 below 2^10, so a
// loss is a sum of squares of multiples of 2^-13 below 2^14: less than 2^(2*27+8) of 2^-26, and these here fit in 53
// bits.
TEST(F32, TheNextLossIsTheSameToTheBit) {
  const auto text = [](const char* rate) {
    return absl::StrCat(R"(name: exact
inputs:
  x: {shape: [16, 32], init: {formula: {a: 7, b: 3, mod: 3, sub: 1, div: 1}}}
  label: {shape: [16, 16], init: {formula: {a: 5, b: 2, mod: 5, sub: 0, div: 1}}}
parameters:
  w: {shape: [32, 16], init: {formula: {a: 3, b: 5, mod: 7, sub: 3, div: 4}}}
operators:
  - {name: matmul, op: MatMul, inputs: [x, w], shard: [[2, 4], [4, 1]]}
  - {name: relu, op: ReLU, inputs: [matmul]}
  - {name: loss, op: MSELoss, inputs: [relu, label]}
training: {dtype: float64, optimizer: {sgd: {learning_rate: )",
                        rate, R"(}}, steps: 1}
parallel: {parallel_mode: semi_auto_parallel}
cluster: {device: host, nodes: 1, devices_per_node: 8}
)");
  };
  const std::string eight = Folder("exact8"), one = Folder("exact1");
  ASSERT_OK_AND_ASSIGN(const Program on8, Planned(text("0.0625"), 8));
  ASSERT_OK_AND_ASSIGN(const RunResult whole, Train(on8, 2, {.directory = eight + "/{rank_id}", .integrated = false}));
  EXPECT_NE(whole.losses[0], whole.losses[1]);
  const double next = whole.losses[1];

  ASSERT_OK_AND_ASSIGN(const Program on1, Planned(text("0"), 1));
  ASSERT_OK_AND_ASSIGN(const SavedState first, LoadState(eight + "/{rank_id}/CKP-1_1.ckpt"));
  ASSERT_OK_AND_ASSIGN(const RunResult single, Train(on1, 1, {.state = &first, .directory = one}));
  EXPECT_EQ(single.losses[0], next);

  ASSERT_OK_AND_ASSIGN(const Program on4,
                       Planned(absl::StrReplaceAll(text("0"), {{"[[2, 4], [4, 1]]", "[[1, 2], [2, 2]]"}}), 4));
  ASSERT_OK_AND_ASSIGN(const SavedState second, LoadState(one + "/CKP-1_2.ckpt"));
  ASSERT_OK_AND_ASSIGN(const RunResult four, Train(on4, 1, {.state = &second}));
  EXPECT_EQ(four.losses[0], next);
}

// The format is safetensors: what a user's Python wrote can be loaded, what we write can be read there.
TEST(F32, AnySafetensorsFileIsACheckpoint) {
  const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";  // 54 bytes
  std::string file = {static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0};
  file += header;
  const float values[] = {1.5f, -2.25f};
  file.append(reinterpret_cast<const char*>(values), sizeof(values));
  ASSERT_OK_AND_ASSIGN(const Checkpoint read, ParseCheckpoint(file, "python.safetensors"));
  EXPECT_TRUE(read.integrated());
  EXPECT_EQ(read.steps_done, 0);
  double wide[2] = {};
  EXPECT_OK(
      CopyPiece("w", read.pieces[0].tensor, {reinterpret_cast<std::byte*>(wide), DType::kFloat64, {2}, {2}, {0}}));
  EXPECT_THAT(wide, ElementsAre(1.5, -2.25));
}

TEST(F32, DamagedFilesSayWhere) {
  Checkpoint checkpoint;
  checkpoint.pieces = {{"w", {2}, {0}, "", {DType::kFloat32, {2}, "12345678"}}};
  const std::string bytes = ToBytes(checkpoint);
  const auto error = [](const std::string& text) { return ParseCheckpoint(text, "f.ckpt").status(); };
  const auto with = [&](absl::string_view from, absl::string_view to) {
    return absl::StrReplaceAll(bytes, {{from, to}});
  };
  const std::pair<std::string, std::string> cases[] = {
      {"1234", "f.ckpt: found 4 bytes, wanted at least the 8"},
      {bytes.substr(0, 40), "f.ckpt: found a header of"},
      {bytes.substr(0, bytes.size() - 1),
       "w.data_offsets: found [0, 8], wanted two numbers 8 apart within the 7 bytes"},
      {bytes + "x", "f.ckpt: found 9 bytes behind the header, wanted the 8"},
      {with("F32", "F3Q"), "w.dtype: found \"F3Q\", wanted"},
      {with("[0, 8]", "[1, 9]"), "w.data_offsets"},
      {with("\"shape\": [2]", "\"shape\": [x]"), "w.shape[0]: found \"x\""},
      {with("\"ranks\": \"1\"", "\"ranks\": \"0\""), "__metadata__.ranks"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(error(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                      AllOf(HasSubstr("f.ckpt"), HasSubstr(message), HasSubstr("[E-VALUE]"))))
        << message;
  }
}

// It would be read to its end, which it has not.
TEST(F32, AnotherKindOfFileIsNotReadWhole) {
  EXPECT_THAT(LoadState("/dev/zero"),
              StatusIs(absl::StatusCode::kInvalidArgument, "/dev/zero: found no { behind the eight bytes of a length"));
}

TEST(F32, WhatDoesNotFitIsNamed) {
  ASSERT_OK_AND_ASSIGN(const Program program, Planned(OracleText(), 1));
  SavedState state;
  state.tensors["w"] = {DType::kFloat64, {32, 16}, std::string(32 * 16 * 8, '\0')};
  EXPECT_THAT(CheckFits(program, state), StatusIs(absl::StatusCode::kNotFound, "lacks the parameter \"w2\""));
  state.tensors["w2"] = {DType::kFloat64, {16, 8}, std::string(16 * 8 * 8, '\0')};
  EXPECT_THAT(CheckFits(program, state),
              StatusIs(absl::StatusCode::kInvalidArgument, "\"w2\" as (16, 8), the program as (16, 16)"));
  state.tensors["w2"] = {DType::kFloat64, {16, 16}, std::string(16 * 16 * 8, '\0')};
  state.tensors["head"] = state.tensors["w2"];
  EXPECT_THAT(Notices(program, state), ElementsAre(HasSubstr("no optimizer state w2@m, w@m; it starts anew"),
                                                   HasSubstr("what nothing reads: head")));
}

}  // namespace
}  // namespace meshwright
