// F31: strategy files, as users save and load them (S16.1 to S16.4, R29).
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/files.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "planner/group_file.h"
#include "planner/search/search.h"
#include "planner/strategy_file.h"
#include "tools/cluster_flags.h"
#include "tools/session.h"
#include "tools/strategy_files.h"

namespace meshwright {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kSeedB[] = "models/configs/matmul_relu.yaml";
constexpr char kSeedD[] = "models/configs/mnist_mlp_layout.yaml";
constexpr char kInterleaved[] = "models/configs/mlp_interleaved.yaml";
constexpr char kDecoder[] = "models/configs/gpt2_tiny.yaml";

std::string Temporary(absl::string_view name) { return absl::StrCat(testing::TempDir(), "/", name); }

struct Planned {
  Session session;
  Strategy strategy;
  Program program;
};

// What `plan MODEL FLAGS` does: load, search, save.
absl::StatusOr<Planned> Plan(const std::string& model, const std::vector<std::string>& args) {
  std::vector<FlagSpec> specs = StrategyFlags();
  for (const auto* more : {&StrategyFileFlags(), &ClusterFlags()}) {
    specs.insert(specs.end(), more->begin(), more->end());
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const Flags flags, Flags::Parse(specs, args));
  MESHWRIGHT_ASSIGN_OR_RETURN(const SourceFile source, ReadSource(model));
  Planned planned;
  MESHWRIGHT_ASSIGN_OR_RETURN(planned.session, OpenModel(source, flags));
  MESHWRIGHT_RETURN_IF_ERROR(LoadStrategies(flags, planned.session));
  MESHWRIGHT_ASSIGN_OR_RETURN(SearchResult found, Search(planned.session.problem, {}));
  planned.strategy = found.ranked.front().strategy;
  MESHWRIGHT_ASSIGN_OR_RETURN(Evaluation evaluation, Evaluate(planned.session.problem, planned.strategy));
  planned.program = std::move(evaluation.program);
  MESHWRIGHT_RETURN_IF_ERROR(SaveStrategies(flags, planned.session, planned.strategy, planned.program));
  return planned;
}

std::string Text(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadWholeFile(path, 1 << 20);
  EXPECT_OK(text);
  return text.value_or("");
}

void Write(const std::string& path, absl::string_view text) { EXPECT_OK(WriteWholeFile(path, text)); }

// S16.2, last paragraph.
constexpr char kSeedBFile[] = R"({
  "current_stage": 0,
  "parallel_strategy_item": {
    "MatMul_w": {"stage":0,"parallel_strategy":[[2,4],[4,1]]},
    "MatMul_w2": {"stage":0,"parallel_strategy":[[2,4],[4,1]]}
  },
  "parallel_layout_item": {
    "w": {"dev_matrix":[2,4,1],"tensor_map":[1,0],"tensor_shape":[32,16],"field":0,"opt_weight_shard_step":0,"opt_weight_shard_size":0},
    "w2": {"dev_matrix":[2,4,1],"tensor_map":[1,0],"tensor_shape":[16,16],"field":0,"opt_weight_shard_step":0,"opt_weight_shard_size":0}
  }
}
)";

// X23: a folder stands for strategy.json in it. Folders are made, nothing but the file stays in them.
TEST(F31, SeedBSavesItsWeightedOperators) {
  const std::string folder = Temporary("new/folder/");
  EXPECT_OK(Plan(kSeedB, {absl::StrCat("--strategy_ckpt_save_file=", folder)}));
  EXPECT_EQ(Text(folder + "strategy.json"), kSeedBFile);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  EXPECT_THAT(names, ElementsAre("strategy.json"));
  // The folder exists now: without the slash it stands for the same file.
  EXPECT_OK(Plan(kSeedB, {absl::StrCat("--strategy_ckpt_save_file=", Temporary("new/folder"))}));
}

TEST(F31, KnobsOfTheFileDoWhatTheFlagsDo) {
  std::string model = Text(kSeedB);
  const size_t at = model.find("{parallel_mode");
  ASSERT_NE(at, std::string::npos);
  model.insert(at + 1, absl::StrCat("strategy_ckpt_save_file: ", Temporary("knob.json"),
                                    ", group_ckpt_save_file: ", Temporary("groups.json"), ", "));
  Write(Temporary("model.yaml"), model);
  EXPECT_OK(Plan(Temporary("model.yaml"), {}));
  EXPECT_EQ(Text(Temporary("knob.json")), kSeedBFile);
  EXPECT_THAT(Text(Temporary("groups.json")), HasSubstr("[0, 4]"));
}

// S16.3: with the file, a program that configures nothing is planned as the one that was saved.
TEST(F31, RoundTripGivesTheIdenticalPlan) {
  for (const char* const ending : {"json", "pb"}) {
    const std::string path = Temporary(absl::StrCat("b.", ending));
    ASSERT_OK_AND_ASSIGN(const Planned saved, Plan(kSeedB, {absl::StrCat("--strategy_ckpt_save_file=", path)}));
    ASSERT_OK_AND_ASSIGN(const Planned loaded,
                         Plan(kSeedB, {"--ignore_shards", absl::StrCat("--strategy_ckpt_load_file=", path)}));
    // Operators without weights are searched again: the loss has another neighbour now.
    for (const char* const op : {"matmul", "matmul2"}) {
      EXPECT_EQ(loaded.strategy.ops.at(op).inputs, saved.strategy.ops.at(op).inputs) << op;
    }
    EXPECT_THAT(loaded.session.notices, IsEmpty());
  }
}

// Layouts with axes in another order than any tuple has (S6.5) keep it.
TEST(F31, LayoutsSurvive) {
  const std::string path = Temporary("d.json");
  ASSERT_OK_AND_ASSIGN(const Planned saved, Plan(kSeedD, {absl::StrCat("--strategy_ckpt_save_file=", path)}));
  // S6.4: layout("mp", ("sp","dp")) is [(0), (1,2)], layout(("sp","dp"), "None") is [(1,2), -1].
  EXPECT_THAT(Text(path), HasSubstr(R"("parallel_strategy":[[2,4],[4,1]],"in_layout":[{"device_matrix":[2,2,2],)"
                                    R"("tensor_map":[0,[1,2]],"interleaved_parallel":false},{"device_matrix":[2,2,2],)"
                                    R"("tensor_map":[[1,2],-1],"interleaved_parallel":false}]})"));
  EXPECT_THAT(Text(path), HasSubstr(R"("fc1_weight": {"dev_matrix":[2,2,2],"tensor_map":[[1,2],-1],)"));
  ASSERT_OK_AND_ASSIGN(const Planned loaded,
                       Plan(kSeedD, {"--ignore_shards", absl::StrCat("--strategy_ckpt_load_file=", path)}));
  for (const char* const op : {"matmul1", "matmul2", "matmul3"}) {
    EXPECT_EQ(loaded.strategy.ops.at(op).inputs, saved.strategy.ops.at(op).inputs) << op;
  }
  // The binary form keeps them in fields of its own.
  EXPECT_OK(Plan(kSeedD, {absl::StrCat("--strategy_ckpt_save_file=", Temporary("d.pb"))}));
  ASSERT_OK_AND_ASSIGN(
      const Planned binary,
      Plan(kSeedD, {"--ignore_shards", absl::StrCat("--strategy_ckpt_load_file=", Temporary("d.pb"))}));
  EXPECT_EQ(ToText(binary.program), ToText(loaded.program));
}

// S6.13, S6.14: a layout that is interleaved is written as such, and read back. Of the parameter a device holds a
// block.
TEST(F31, InterleavedLayoutsSurvive) {
  const std::string path = Temporary("interleaved.json");
  ASSERT_OK_AND_ASSIGN(const Planned saved, Plan(kInterleaved, {absl::StrCat("--strategy_ckpt_save_file=", path)}));
  EXPECT_THAT(Text(path), HasSubstr(R"("MatMul_w1": {"stage":0,"parallel_strategy":[[2,4],[4,1]],"in_layout":[)"
                                    R"({"device_matrix":[2,2,2],"tensor_map":[0,[2,1]],)"
                                    R"("interleaved_parallel":true},)"
                                    R"({"device_matrix":[2,2,2],"tensor_map":[[2,1],-1],)"
                                    R"("interleaved_parallel":true}]})"));
  EXPECT_THAT(Text(path), HasSubstr(R"("w1": {"dev_matrix":[2,2],"tensor_map":[[1,0],-1],)"));
  ASSERT_OK_AND_ASSIGN(const Planned loaded,
                       Plan(kInterleaved, {"--ignore_shards", absl::StrCat("--strategy_ckpt_load_file=", path)}));
  EXPECT_OK(Plan(kInterleaved, {absl::StrCat("--strategy_ckpt_save_file=", Temporary("interleaved.pb"))}));
  ASSERT_OK_AND_ASSIGN(
      const Planned binary,
      Plan(kInterleaved, {"--ignore_shards", absl::StrCat("--strategy_ckpt_load_file=", Temporary("interleaved.pb"))}));
  for (const char* const op : {"first", "second", "third"}) {
    for (const Planned* const planned : {&loaded, &binary}) {
      EXPECT_EQ(planned->strategy.ops.at(op).inputs, saved.strategy.ops.at(op).inputs) << op;
      EXPECT_EQ(planned->strategy.ops.at(op).interleaved, saved.strategy.ops.at(op).interleaved) << op;
    }
  }
  EXPECT_TRUE(saved.strategy.ops.at("first").interleaved.has_value());
}

// A decoder's file says its degrees of parallelism; what it does not say is found again. Of a plan over data and tensor
// ranks, with and without sequence parallelism (layouts that no tuple has), over stages, which have files of their own,
// and over ranks that share sequences.
TEST(F31, ADecodersRoundTripGivesTheIdenticalProgram) {
  const std::vector<std::string> plans[] = {{"--tensor_parallel=2", "--stages=1"},
                                            {"--tensor_parallel=2", "--stages=1", "--nosequence_parallel"},
                                            {"--tensor_parallel=1", "--stages=1"},
                                            {"--tensor_parallel=2", "--stages=2", "--sequence_parallel"},
                                            {"--tensor_parallel=2", "--stages=1", "--context_parallel=2"}};
  const std::string device = "--device=h100-sxm", devices = "--devices=8";
  for (size_t i = 0; i < std::size(plans); ++i) {
    for (const char* const ending : {"json", "pb"}) {
      SCOPED_TRACE(absl::StrCat(plans[i].back(), ", plan ", i, ", ", ending));
      const std::string path = Temporary(absl::StrCat("decoder", i, ".", ending));
      std::vector<std::string> args = plans[i];
      args.insert(args.end(), {device, devices, absl::StrCat("--strategy_ckpt_save_file=", path)});
      ASSERT_OK_AND_ASSIGN(const Planned saved, Plan(kDecoder, args));
      ASSERT_OK_AND_ASSIGN(const Planned loaded,
                           Plan(kDecoder, {device, devices, absl::StrCat("--strategy_ckpt_load_file=", path)}));
      EXPECT_EQ(ToText(loaded.program), ToText(saved.program));
      EXPECT_EQ(ToText(loaded.strategy), ToText(saved.strategy));
      EXPECT_THAT(loaded.session.notices, IsEmpty());
    }
  }
}

// The file counts, not what would be best: planned freely the model is split otherwise.
TEST(F31, ADecodersFileIsFollowed) {
  const std::string path = Temporary("slow.json"), device = "--device=h100-sxm", devices = "--devices=8";
  ASSERT_OK_AND_ASSIGN(const Planned saved, Plan(kDecoder, {device, devices, "--tensor_parallel=4", "--stages=1",
                                                            absl::StrCat("--strategy_ckpt_save_file=", path)}));
  ASSERT_OK_AND_ASSIGN(const Planned free, Plan(kDecoder, {device, devices}));
  EXPECT_NE(ToText(free.program), ToText(saved.program));
  // A knob that contradicts it.
  EXPECT_THAT(
      Plan(kDecoder,
           {device, devices, "--tensor_parallel=2", "--stages=1", absl::StrCat("--strategy_ckpt_load_file=", path)}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("slow.json:"), HasSubstr("found a strategy that no plan"), HasSubstr("[E-LAYOUT]"))));
}

// Files that do not fit a decoder, at the place of what does not.
TEST(F31, ADecodersFileMustFit) {
  const std::string path = Temporary("decoder.json"), device = "--device=h100-sxm", devices = "--devices=8";
  ASSERT_OK(Plan(kDecoder, {device, devices, "--tensor_parallel=2", "--stages=1", "--nosequence_parallel",
                            absl::StrCat("--strategy_ckpt_save_file=", path)}));
  const std::string text = Text(path);
  const auto load = [&](const std::string& changed, const std::string& on) {
    Write(Temporary("changed.json"), changed);
    return Plan(kDecoder, {device, on, absl::StrCat("--strategy_ckpt_load_file=", Temporary("changed.json"))}).status();
  };
  EXPECT_OK(load(text, devices));
  const auto where = [&](const std::string& key) {  // "changed.json:LINE:"
    const size_t at = text.find(absl::StrCat("\"", key, "\""));
    return absl::StrCat("changed.json:", 1 + std::count(text.begin(), text.begin() + static_cast<int64_t>(at), '\n'),
                        ":");
  };
  const auto wrong = [](const std::string& place, const std::string& words) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(HasSubstr(place), HasSubstr(words), HasSubstr("[E-LAYOUT]")));
  };
  // Eight devices' strategies on four.
  EXPECT_THAT(load(text, "--devices=4"), wrong("changed.json:", "a stage has 4"));
  // Two pieces of the batch and four of the feed-forward where the others have four and two: it fits its tensors, but
  // no plan has both.
  const std::string key = "MatMul_mlp1.weight";
  const size_t at = text.find(absl::StrCat("\"", key, "\": "));
  ASSERT_NE(at, std::string::npos) << text;
  std::string other = text;
  const size_t end = text.find('\n', at);
  other.replace(at, end - at, absl::StrCat("\"", key, "\": {\"stage\":0,\"parallel_strategy\":[[1,2,1],[1,4]]},"));
  EXPECT_THAT(load(other, devices), wrong(where(key), key));
  // A tuple of a wrong length.
  other = text;
  other.replace(at, end - at, absl::StrCat("\"", key, "\": {\"stage\":0,\"parallel_strategy\":[[1,2]]},"));
  EXPECT_THAT(load(other, devices), wrong(where(key), key));
}

// A repeat axis (S4.7): [2,2,1,2], w's map is [2,1]; and an output strategy.
TEST(F31, RepeatsAndOutputStrategies) {
  std::string model = Text(kSeedB);
  model.replace(model.find("[[2, 4], [4, 1]]"), 16, "[[2, 2], [2, 1]], out_strategy: [[4, 1]]");
  Write(Temporary("repeat.yaml"), model);
  const std::string path = Temporary("repeat.json");
  ASSERT_OK_AND_ASSIGN(const Planned saved,
                       Plan(Temporary("repeat.yaml"), {absl::StrCat("--strategy_ckpt_save_file=", path)}));
  EXPECT_THAT(Text(path),
              HasSubstr(R"("MatMul_w": {"stage":0,"parallel_strategy":[[2,2],[2,1]],"out_strategy":[4,1]})"));
  EXPECT_THAT(Text(path), HasSubstr(R"("w": {"dev_matrix":[2,2,1,2],"tensor_map":[2,1],)"));
  ASSERT_OK_AND_ASSIGN(const Planned loaded,
                       Plan(kSeedB, {"--ignore_shards", absl::StrCat("--strategy_ckpt_load_file=", path)}));
  EXPECT_EQ(loaded.strategy.ops.at("matmul").inputs, saved.strategy.ops.at("matmul").inputs);
  EXPECT_EQ(loaded.strategy.ops.at("matmul").output, saved.strategy.ops.at("matmul").output);
}

// An operator of a stage that the file is not of would be laid out without a word.
TEST(F31, AnOperatorOfAnotherStageIsRefused) {
  const std::string path = Temporary("stage.json");
  Write(path, R"({"current_stage": 0, "parallel_strategy_item": {
      "MatMul_w": {"stage": 3, "parallel_strategy": [[8, 1], [1, 1]]}}})");
  EXPECT_THAT(Plan(kSeedB, {absl::StrCat("--strategy_ckpt_load_file=", path)}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("stage.json:2:"), HasSubstr("\"MatMul_w\": stage: found 3, wanted 0"),
                             HasSubstr("[E-LAYOUT]"))));
}

// S16.3: the program wins, and says so where they differ; keys that nobody has are listed once.
TEST(F31, TheProgramWins) {
  const std::string path = Temporary("other.json");
  Write(path, R"({"current_stage": 0, "parallel_strategy_item": {
      "MatMul_w": {"stage": 0, "parallel_strategy": [[8, 1], [1, 1]]},
      "MatMul_a": {"stage": 0, "parallel_strategy": [[8, 1], [1, 1]]},
      "MatMul_b": {"stage": 0, "parallel_strategy": [[8, 1], [1, 1]]}}})");
  ASSERT_OK_AND_ASSIGN(const Planned planned, Plan(kSeedB, {absl::StrCat("--strategy_ckpt_load_file=", path)}));
  ASSERT_OK_AND_ASSIGN(const Planned usual, Plan(kSeedB, {}));
  EXPECT_EQ(ToText(planned.strategy), ToText(usual.strategy));
  EXPECT_THAT(planned.session.notices, ElementsAre(AllOf(HasSubstr("\"MatMul_w\" differs"), HasSubstr("\"matmul\"")),
                                                   HasSubstr("not in the model, and left out: MatMul_a, MatMul_b")));
}

// R29.
TEST(F31, MissingAndMalformedFilesAreLocated) {
  const auto load = [](const std::string& path) {
    return Plan(kSeedB, {absl::StrCat("--strategy_ckpt_load_file=", path)}).status();
  };
  EXPECT_THAT(load(Temporary("nowhere.json")),
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("nowhere.json"), HasSubstr("[E-VALUE]"))));
  const std::string path = Temporary("bad.json");
  const std::pair<const char*, const char*> cases[] = {
      {"{\n\"parallel_strategy_item\": {\n  \"MatMul_w\": {\"stage\": 0, \"parallel_strategy\": [[2, x]]}}}",
       "bad.json:3:54: parallel_strategy_item.MatMul_w.parallel_strategy[0][1]: found \"x\""},
      {"{\"parallel_strategy_item\": {}\n",
       "bad.json:1:1: found a list or map as a key, wanted `key: value`; is a closing bracket"},
      {"{\"parallel_strategies\": {}}", "bad.json:1:2: parallel_strategies"},
      {"[]", "bad.json:1:1"},
      {"", "bad.json"},
      {"\x08\x01\x12\x7f", "bad.json: the binary strategy file"},
  };
  for (const auto& [text, message] : cases) {
    Write(path, text);
    EXPECT_THAT(load(path),
                StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr(message), HasSubstr("[E-VALUE]"))))
        << text;
  }
}

// S16.3: a strategy that does not fit this number of devices (R10: it needs 8 of 4).
TEST(F31, StrategiesMustFitTheDevices) {
  const std::string path = Temporary("eight.json");
  Write(path, kSeedBFile);
  EXPECT_THAT(
      Plan(kSeedB, {"--ignore_shards", "--devices=4", absl::StrCat("--strategy_ckpt_load_file=", path)}),
      StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("eight.json"), HasSubstr("matmul"),
                                                         HasSubstr("needs 8 of 4 devices"), HasSubstr("[E-LAYOUT]"))));
}

TEST(F31, NoEffectOutsideThePlannedModes) {
  ASSERT_OK_AND_ASSIGN(const Planned planned,
                       Plan(kSeedB, {"--mode=data_parallel", "--strategy_ckpt_load_file=nowhere.json",
                                     absl::StrCat("--strategy_ckpt_save_file=", Temporary("not_written.json"))}));
  EXPECT_THAT(planned.session.notices, Contains(HasSubstr("strategy_ckpt_load_file has no effect")));
  EXPECT_FALSE(std::filesystem::exists(Temporary("not_written.json")));
}

// Each stage's own file (S16.1).
TEST(F31, PipelineStagesHaveTheirOwnFiles) {
  std::string model = Text(kSeedB);
  model.replace(model.find("[[2, 4], [4, 1]]"), 16, "[[2, 2], [2, 1]]");
  Write(Temporary("staged.yaml"), model);
  const std::string path = Temporary("staged.json");
  ASSERT_OK_AND_ASSIGN(const Planned saved,
                       Plan(Temporary("staged.yaml"),
                            {"--stages=2", "--microbatches=2", absl::StrCat("--strategy_ckpt_save_file=", path)}));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THAT(Text(Temporary("staged_stage0.json")),
              AllOf(HasSubstr("\"current_stage\": 0"), HasSubstr("\"MatMul_w\""), Not(HasSubstr("\"MatMul_w2\""))));
  EXPECT_THAT(Text(Temporary("staged_stage1.json")),
              AllOf(HasSubstr("\"current_stage\": 1"), HasSubstr("\"MatMul_w2\""), Not(HasSubstr("\"MatMul_w\""))));
  ASSERT_OK_AND_ASSIGN(const Planned loaded,
                       Plan(Temporary("staged.yaml"), {"--stages=2", "--microbatches=2", "--ignore_shards",
                                                       absl::StrCat("--strategy_ckpt_load_file=", path)}));
  for (const char* const op : {"matmul", "matmul2"}) {
    EXPECT_EQ(loaded.strategy.ops.at(op).inputs, saved.strategy.ops.at(op).inputs) << op;
  }
}

// The bytes that a protobuf writer makes of node_strategy.proto, written out by hand: tag = field * 8 + 2 for messages
// and text, field * 8 for numbers; text and messages have their length in front.
TEST(F31, BinaryFormIsTheOneOnTheWire) {
  const std::string pieces_x = {0x12, 0x04, 0x08, 0x02, 0x08, 0x04};  // parallel_strategy {dim: 2, dim: 4}
  const std::string pieces_w = {0x12, 0x04, 0x08, 0x04, 0x08, 0x01};
  const std::string strategies = std::string({0x08, 0x00}) + pieces_x + pieces_w;  // stage: 0, 14 bytes
  const std::string item = std::string({0x0a, 0x08}) + "MatMul_w" + std::string({0x12, 0x0e}) + strategies;
  const std::string map = std::string({0x08, 0x00, 0x12, static_cast<char>(item.size())}) + item;
  ASSERT_OK_AND_ASSIGN(const StrategyFile file, ParseStrategyFile(map, "map.pb"));
  ASSERT_EQ(file.operators.count("MatMul_w"), 1u);
  const OpSharding& sharding = file.operators.at("MatMul_w").sharding;
  ASSERT_EQ(sharding.inputs.size(), 2u);
  EXPECT_THAT(sharding.inputs[0].pieces, ElementsAre(2, 4));
  EXPECT_THAT(sharding.inputs[1].pieces, ElementsAre(4, 1));
  EXPECT_EQ(ToBinary(file), map);
}

// S16.4: rank 0 of seed B can be restored from 4. Gradients go over {0,4} {1,5} {2,6} {3,7}, products over the fours.
TEST(F31, GroupFileHasTheRestoreLists) {
  ASSERT_OK_AND_ASSIGN(const Planned planned, Plan(kSeedB, {}));
  const GroupFile file = GroupFileOf(planned.program);
  EXPECT_THAT(file.RestoreListOf(0), ElementsAre(0, 4));
  EXPECT_THAT(file.restore_lists,
              ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6), ElementsAre(3, 7)));
  for (const std::vector<int64_t>& group : std::vector<std::vector<int64_t>>{{0, 1, 2, 3}, {4, 5, 6, 7}, {0, 4}}) {
    EXPECT_THAT(file.groups, Contains(group));
  }
  EXPECT_THAT(ToJson(file), HasSubstr("\"restore_lists\": [\n    [0, 4],\n"));
}

}  // namespace
}  // namespace meshwright
