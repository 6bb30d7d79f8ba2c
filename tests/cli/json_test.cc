// What the commands print with --format=json, held to docs/json.md.
#include "nlohmann/json.hpp"

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/run_tool.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using Json = nlohmann::json;

constexpr char kTiny[] = "models/configs/gpt2_tiny.yaml";
constexpr char kOracleB[] = "models/configs/oracle_b.yaml";

std::string TempPath(const std::string& name) { return absl::StrCat(std::string(testing::TempDir()), "/", name); }

// The keys below `json`, but for those that are the program's own: uses of time, roles of memory, reasons, labels.
void CollectKeys(const Json& json, std::set<std::string>& keys) {
  static const std::set<std::string> kOwn = {"time_s",   "busy_s", "memory_bytes", "peak_memory_bytes",
                                             "pruned",   "rules",  "skipped",      "approximations",
                                             "defaults", "groups", "time_ns"};
  for (const auto& [key, value] : json.items()) {
    if (json.is_object()) keys.insert(key);
    if (value.is_structured() && !(json.is_object() && kOwn.count(key) > 0)) CollectKeys(value, keys);
  }
}

// Uses and roles are keys as others are, which a script names without quotes.
void ExpectPlainKeys(const Json& json) {
  for (const auto& [key, value] : json.items()) {
    const bool named = key == "time_s" || key == "busy_s" || key == "time_ns" || key == "memory_bytes";
    if (named && json.is_object()) {
      for (const auto& [name, amount] : value.items()) EXPECT_THAT(name, MatchesRegex("[a-z_]+")) << amount;
    }
    if (value.is_structured()) ExpectPlainKeys(value);
  }
}

TEST(JsonTest, EveryFieldIsInItsDocument) {
  const std::string plan = TempPath("json.yaml"), sim = TempPath("json_sim.json"), run = TempPath("json_run.json");
  const std::string training = TempPath("json_training.csv"), kernels = TempPath("json_kernels.csv");
  std::ofstream(training) << "model,layers,hidden,heads,seq_len,global_batch_seqs,micro_batch_seqs,gpu_type,gpus,tp,pp,"
                             "peak_mem_gb,step_time_s,gpu_type\n"
                             "GPT,2,256,4,128,8,1,A100,2,2,1,2,0.01,x\nGPT,2,256,4,128,8,1,A100,2,1,1,2,0.01,x\n"
                             "GPT,2,256,4,128,8,1,A100,2,1,2,2,0.01,x\nGPT,2,256,4,128,8,1,abacus,2,1,2,2,0.01,x\n";
  const std::string log = TempPath("json_train.log");
  std::ofstream(log) << "iteration 1/ 2 | elapsed time per iteration (ms): 5.0 |\n";
  const std::string profile = TempPath("json_profile.json");
  std::ofstream(profile) << R"({"schemaVersion": 1, "distributedInfo": {"rank": 1, "world_size": 2}, "traceEvents": [
      {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#2", "ts": 1, "dur": 90},
      {"ph": "X", "cat": "kernel", "name": "x", "ts": 1, "dur": 5, "args": {"stream": 7}},
      {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "ts": 9, "dur": 5, "args": {
          "Collective name": "allreduce", "In msg nelems": 8, "Group size": 2, "dtype": "BFloat16"}}]})";
  std::ofstream(kernels) << "m,n,k,gpu_type,time_us\n4096,4096,4096,A100,600\n4096,4096,4096,abacus,600\n";
  const std::vector<std::vector<std::string>> commands = {
      {"validate/validate", "training", training, "--rows"},
      {"validate/validate", "kernels", kernels, "--rows"},
      {"plan", kTiny, "--stages=2", "--devices=2", "--out=" + plan},
      {"plan", kOracleB, "--out="},
      {"plan", kTiny, "--device=a100", "--devices=8", "--trainer=megatron", "--out="},
      {"simulate", plan, "--jitter=0.02", "--trace=" + sim},
      {"run", plan, "--precision=float32", "--steps=3", "--trace=" + run},
      {"compare", sim, run},
      {"compare", plan, log},
      {"compare", plan, profile},
      {"whatif", kTiny, "--devices=1,2", "--device=h100", "--tokens=1e9"},
  };
  const std::string page = ReadText(DataPath("docs/json.md"));
  std::set<std::string> keys = {"schema"};
  for (const std::vector<std::string>& command : commands) {
    std::vector<std::string> args(command.begin() + 1, command.end());
    args.push_back("--format=json");
    const ToolResult result = RunTool(command[0], args);
    ASSERT_EQ(result.exit_code, 0) << command[0] << ": " << result.err;
    const Json report = Json::parse(result.out);
    const Json& first = report.is_array() ? report.at(0) : report;
    const std::string name = report.is_array() ? absl::StrCat("validate ", command[1]) : command[0];
    EXPECT_THAT(page, HasSubstr(absl::StrCat("`", name, "`")));
    EXPECT_THAT(page, HasSubstr(absl::StrCat("`: ", first.at("schema").get<std::string>(), "\n")));
    CollectKeys(report, keys);
    ExpectPlainKeys(report);
  }
  keys.erase("schema");
  EXPECT_GT(keys.size(), 60u);
  for (const std::string& key : keys) EXPECT_THAT(page, HasSubstr(absl::StrCat("`", key, "`")));
}

}  // namespace
}  // namespace meshwright
