// Files of users that have been damaged, of every reader that has no fuzz test beside itself (ir, models, planner and
// executor have): reading ends with a value or with an error that says what was found, is not our bug, and is short.
// What was read is used as the tools use it.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "costmodel/library.h"
#include "executor/data.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/damage.h"
#include "ir/document.h"
#include "ir/testing.h"
#include "models/model_file.h"
#include "planner/search/search.h"
#include "simulator/simulate.h"
#include "tools/cluster_flags.h"
#include "tools/exit_code.h"
#include "tools/measure/nccl_json.h"
#include "tools/measure/nccl_log.h"
#include "tools/plan_file.h"
#include "tools/trace_comparison.h"
#include "tools/validate/csv.h"
#include "tools/validate/price_table.h"

namespace meshwright {
namespace {

constexpr absl::string_view kTokens[] = {"-1",    "0",          "1e9",  "9223372036854775808",
                                         "1e400", "nan",        "[",    "]",
                                         "{",     "}",          ",",    ":",
                                         "\"",    "null",       "\n",   "\t",
                                         "#",     "GB",         "true", "|2",
                                         "- ",    "4294967296", "0.5",  "us",
                                         "%",     "="};

// Reads `seeds` damaged texts. Errors name the file.
void ReadDamaged(const std::string& text, const std::string& file, uint32_t seeds,
                 const std::function<absl::Status(const std::string&)>& read) {
  EXPECT_OK(read(text));
  int count = 0;
  for (uint32_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const absl::Status status = read(Damaged(text, kTokens, 3, random));
    if (status.ok()) {
      ++count;
      continue;
    }
    EXPECT_NE(ExitCodeOf(status), ExitCode::kBug) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(file));
    EXPECT_LT(status.message().size(), 4096u);
  }
  EXPECT_GT(count, 0);
  EXPECT_LT(count, static_cast<int>(seeds));
}

absl::StatusOr<Plan> MakePlan() {
  const SourceFile source = {"m.yaml",
                             "name: m\n"
                             "architecture: {decoder: {hidden: 32, layers: 4, heads: 4, ffn: 64, vocab: 64, "
                             "activation: swiglu, norm: rms_norm, positions: rotary, tied_embeddings: false, bias: "
                             "false}}\n"
                             "training: {batch: 8, sequence: 16, dtype: bfloat16, optimizer: adamw}\n"
                             "cluster: {device: h100-sxm, nodes: 1, devices_per_node: 4}\n"};
  Plan plan;
  MESHWRIGHT_ASSIGN_OR_RETURN(plan.session, OpenModel(source, Flags()));
  plan.session.problem.stages = 2;
  plan.session.problem.tensor_parallel = 2;
  MESHWRIGHT_ASSIGN_OR_RETURN(const SearchResult found, Search(plan.session.problem, {.keep = 1}));
  plan.strategy = found.ranked.front().strategy;
  plan.promise = PromiseOf(found.ranked.front().prediction);
  return plan;
}

TEST(DamagedFilesTest, Plans) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan());
  ReadDamaged(ToYaml(plan), "plan.yaml", 1500, [](const std::string& text) -> absl::Status {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Plan read, ParsePlan(SourceFile{"plan.yaml", text}));
    const absl::Status lowered = ProgramOf(read).status();
    return absl::IsInvalidArgument(lowered) ? absl::OkStatus() : lowered;  // a strategy that does not fit the model
  });
}

TEST(DamagedFilesTest, Clusters) {
  constexpr char kCluster[] =
      "device: a100-sxm-80gb\nmemory: 40 GB\nmemory_bandwidth: 1.5 TB/s\nnodes: 4\ndevices_per_node: 8\n"
      "intra_link: nvswitch\nintra_bandwidth: 300 GB/s\nnics_per_node: 8\ninter_bandwidth: 200 Gb/s\n"
      "nic_latency: 5 us\noversubscription: 2\nnodes_per_leaf: 2\ncpu: amd\nprice_per_device_hour: 2.5 USD/h\n";
  ReadDamaged(kCluster, "c.yaml", 3000, [](const std::string& text) -> absl::Status {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Document document, ParseDocument(text, "c.yaml"));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Cluster cluster, ReadCluster(document.root()));
    return ToYaml(cluster).empty() ? absl::InternalError("no text") : absl::OkStatus();
  });
}

TEST(DamagedFilesTest, HuggingFaceConfigs) {
  constexpr char kConfig[] =
      "{\"model_type\": \"mixtral\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,\n"
      "\"num_key_value_heads\": 2, \"intermediate_size\": 96, \"vocab_size\": 512, \"num_local_experts\": 8,\n"
      "\"num_experts_per_tok\": 2, \"sliding_window\": null, \"rope_theta\": 1e6, \"attention_dropout\": 0.1,\n"
      "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, \"layer_types\": [\"full_attention\", \"full_attention\"]}";
  ReadDamaged(kConfig, "c.json", 3000, [](const std::string& text) {
    return ParseModelFile("name: m\nhuggingface: c.json\ntraining: {batch: 2, sequence: 16}\n", "m.yaml", text)
        .status();
  });
}

TEST(DamagedFilesTest, Timelines) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan());
  ASSERT_OK_AND_ASSIGN(const Program program, ProgramOf(plan));
  ASSERT_OK_AND_ASSIGN(const Prices prices, PriceProgram(program, CostModel(plan.session.problem.cluster)));
  ASSERT_OK_AND_ASSIGN(const SimulationResult result, Simulate(program, prices, {.trace = TraceDetail::kInstructions}));
  const std::string json = ToChromeJson(result.trace, program);
  ASSERT_OK_AND_ASSIGN(const NamedTrace simulated, ParseNamedTrace(json, "sim.json"));
  ReadDamaged(json, "run.json", 300, [&](const std::string& text) -> absl::Status {
    MESHWRIGHT_ASSIGN_OR_RETURN(const NamedTrace trace, ParseNamedTrace(text, "run.json"));
    const absl::Status compared = Compare(simulated, trace).status();
    return absl::IsInvalidArgument(compared) ? absl::OkStatus() : compared;  // two simulated ones
  });
}

TEST(DamagedFilesTest, LogsOfNcclTests) {
  constexpr char kLog[] =
      "# nThread 1 nGpus 2 minBytes 8 maxBytes 1024 collective: all_reduce\n#  Rank  0 Group  0 Pid  1 on a device 0\n"
      "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw\n"
      "        8192          2048     float     sum      -1    12.50    0.66    0.66      0    12.40    0.66    0.66  "
      "0\n"
      "     1048576        262144     float     sum      -1    31.50   33.29   33.29      0    31.40   33.39   33.39  "
      "0\n"
      "# Avg bus bandwidth    : 1.2\n";
  ReadDamaged(kLog, "x.log", 3000, [](const std::string& text) { return ParseNcclLog(text, "x.log").status(); });
}

TEST(DamagedFilesTest, ReportsOfNcclTests) {
  constexpr char kReport[] =
      R"({"args": ["./all_reduce_perf"], "nccl_version": 22703, "config": {"nthreads": 1, "ngpus": 2, "devices":
[{"hostname": "n0", "device_info": "NVIDIA H100"}]}, "results": [{"size": 1024, "type": "float", "redop": "sum",
"root": "    -1", "out_of_place": {"time": 9.5, "alg_bw": 0.1, "bus_bw": 0.1}, "in_place": null}]})";
  ReadDamaged(kReport, "x.json", 3000, [](const std::string& text) { return ParseNcclJson(text, "x.json").status(); });
}

TEST(DamagedFilesTest, TablesOfMeasurements) {
  constexpr char kKernels[] =
      "gpu_type,dtype,op,impl,batch,heads,head_dim,seq_len,causal,time_ms\n"
      "A100,bf16,,FlashAttention-2,4,16,128,4096,yes,1\n\"A100\",bf16,,xformers,4,16,128,4096,no,2.5\n";
  ReadDamaged(kKernels, "t.csv", 2000, [](const std::string& text) -> absl::Status {
    MESHWRIGHT_ASSIGN_OR_RETURN(const CsvTable table, ParseCsv(text, "t.csv"));
    return PriceKernelTable(table, {}).status();
  });
}

TEST(DamagedFilesTest, Digits) {
  const auto word = [](uint32_t n) {
    return std::string{static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8),
                       static_cast<char>(n)};
  };
  const std::string folder = testing::TempDir(), images = folder + "/images", labels = folder + "/labels";
  std::ofstream(labels, std::ios::binary) << word(0x801) << word(4) << std::string("\1\2\3\4", 4);
  const std::string pictures = word(0x803) + word(4) + word(2) + word(3) + std::string(24, 'x');
  // 2^31 x 2^31 x 4 images of nothing: a product that 64 bits would make 0.
  std::ofstream(images, std::ios::binary) << word(0x803) << word(1u << 31) << word(1u << 31) << word(4);
  EXPECT_THAT(MnistData::Load(images, labels, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, "promises 18446744073709551616 bytes, it has 0"));
  int64_t most = 0;
  ReadDamaged(pictures, "images", 500, [&](const std::string& text) -> absl::Status {
    std::ofstream(images, std::ios::binary) << text;
    MESHWRIGHT_ASSIGN_OR_RETURN(const MnistData data, MnistData::Load(images, labels, 1));
    most = std::max(most, data.pixels());
    return absl::OkStatus();
  });
  EXPECT_EQ(most, 6);
}

}  // namespace
}  // namespace meshwright
