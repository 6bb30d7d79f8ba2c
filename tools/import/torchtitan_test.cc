#include "tools/import/torchtitan.h"

#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "models/model_file.h"
#include "tools/import/configuration_testing.h"

namespace meshwright {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// As its train_configs had them in 2025, and in 2024.
constexpr absl::string_view k2025 = R"([job]
dump_folder = "./outputs"

[model]
name = "llama3"
flavor = "8B"
converters = []

[optimizer]
name = "AdamW"
lr = 3e-4

[training]
local_batch_size = 2
global_batch_size = -1
seq_len = 8192
steps = 1_000
dataset = "c4"

[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 2
pipeline_parallel_degree = 1
context_parallel_degree = 1

[compile]
enable = true

[activation_checkpoint]
mode = "full"
)";

constexpr absl::string_view k2024 = R"(
[model]
name = "llama3"
flavor = "70B"
norm_type = "rmsnorm"

[training]
batch_size = 8
seq_len = 8192
warmup_steps = 200
data_parallel_degree = 4
tensor_parallel_degree = 8
compile = false

[experimental]
pipeline_parallel_degree = 1

[activation_checkpoint]
mode = 'selective'
selective_ac_option = 'op'

[float8]
enable_float8_linear = true
)";

using Changes = std::vector<std::pair<absl::string_view, absl::string_view>>;

absl::StatusOr<Imported> Import(absl::string_view text, int64_t devices = 16) {
  ImportHints hints;
  hints.device = "h100";
  if (devices > 0) hints.devices = devices;
  return ImportConfiguration(text, "runs/llama3.toml", "", hints);
}

// A line of the model file, or the error.
std::string Line(absl::string_view key, const Changes& changes, int64_t devices = 16) {
  const absl::StatusOr<Imported> imported = Import(absl::StrReplaceAll(k2025, changes), devices);
  if (!imported.ok()) return std::string(imported.status().message());
  const size_t at = imported->text.find(absl::StrCat("  ", key, ": "));
  return at == std::string::npos ? "" : imported->text.substr(at + 2, imported->text.find('\n', at) - at - 2);
}

TEST(TorchtitanTest, AFlavorOf2025) {
  ASSERT_OK_AND_ASSIGN(const Imported imported, Import(k2025));
  ASSERT_OK_AND_ASSIGN(const Session session, OpenImported(imported.text));
  const DecoderConfig& c = std::get<DecoderConfig>(session.file->model);
  EXPECT_EQ(c.layers, 32);
  EXPECT_EQ(c.ffn, 14336);
  EXPECT_EQ(c.kv_heads, 8);
  EXPECT_FALSE(c.tied_embeddings);
  const Problem& p = session.problem;
  EXPECT_EQ(p.data_parallel, 8);  // 16 / 2
  EXPECT_EQ(p.tensor_parallel, 2);
  EXPECT_EQ(p.sequence_parallel, true);
  EXPECT_EQ(p.batch, 16);  // 2 x 8
  EXPECT_EQ(p.microbatch, 2);
  EXPECT_EQ(p.shard_parameters, true);
  EXPECT_EQ(p.optimizer_shard_size, -1);
  EXPECT_EQ(p.recompute, Recompute::kFull);
  EXPECT_EQ(p.gradient_dtype, DType::kFloat32);
  const Training& t = session.file->training;
  EXPECT_EQ(t.sequence, 8192);
  EXPECT_EQ(t.steps, 1000);
  EXPECT_TRUE(t.fused_norms && t.fused_loss);
  EXPECT_DOUBLE_EQ(t.optimizer.beta2, 0.95);
  EXPECT_THAT(imported.notes, IsEmpty());
}

TEST(TorchtitanTest, AFileOf2024) {
  ASSERT_OK_AND_ASSIGN(const Imported imported, Import(k2024, 0));
  ASSERT_OK_AND_ASSIGN(const Session session, OpenImported(imported.text));
  EXPECT_EQ(std::get<DecoderConfig>(session.file->model).ffn, 28672);
  EXPECT_EQ(session.problem.cluster.num_devices(), 32);  // 4 x 8
  EXPECT_EQ(session.problem.data_parallel, 4);
  EXPECT_EQ(session.problem.batch, 32);
  EXPECT_EQ(session.problem.recompute, Recompute::kSelective);
  EXPECT_FALSE(session.file->training.fused_norms || session.file->training.fused_loss);
  EXPECT_THAT(imported.text, HasSubstr("products: float8}"));
  EXPECT_THAT(imported.notes, ElementsAre(HasSubstr("selective checkpointing keeps products")));
}

TEST(TorchtitanTest, WhatIsSplit) {
  const Changes hybrid = {{"replicate_degree = 1", "replicate_degree = 2"}};
  EXPECT_EQ(Line("optimizer_weight_shard_size", hybrid), "optimizer_weight_shard_size: 4");  // of 8 replicas
  const Changes copies = {{"replicate_degree = 1", "replicate_degree = 8"}, {"shard_degree = -1", "shard_degree = 1"}};
  EXPECT_EQ(Line("enable_parallel_optimizer", copies), "enable_parallel_optimizer: false");
  EXPECT_EQ(Line("comm_fusion", copies), "comm_fusion: {allreduce: {mode: size, config: 100}}");
  const Changes never = {{"[parallelism]", "[parallelism]\nfsdp_reshard_after_forward = \"never\""}};
  EXPECT_EQ(Line("shard_parameters", never), "shard_parameters: false");
  EXPECT_EQ(Line("parallel_optimizer_config", never), "parallel_optimizer_config: {gradient_accumulation_shard: true}");
  EXPECT_EQ(Line("context_exchange", {{"context_parallel_degree = 1", "context_parallel_degree = 2"}}),
            "context_exchange: all_gather");
  EXPECT_EQ(Line("micro_batch", {{"global_batch_size = -1", "global_batch_size = 64"}}), "micro_batch: 2");
  EXPECT_EQ(Line("batch", {{"global_batch_size = -1", "global_batch_size = 64"}}), "batch: 64");
  EXPECT_EQ(Line("recompute", {{"\"full\"", "\"none\""}}), "recompute: none");
}

TEST(TorchtitanTest, Pipelines) {
  const auto with = [](absl::string_view key, absl::string_view more) {
    return Line(key, {{"pipeline_parallel_degree = 1", absl::StrCat("pipeline_parallel_degree = 2\n", more)},
                      {"local_batch_size = 2", "local_batch_size = 8"}});
  };
  // 32 layers and two more for embedding and head: 17 of each stage, less one.
  EXPECT_EQ(with("layers_per_stage", ""), "layers_per_stage: [16, 16]");
  EXPECT_EQ(with("micro_batch", ""), "micro_batch: 1");
  EXPECT_EQ(with("micro_batch", "pipeline_parallel_microbatch_size = 4"), "micro_batch: 4");
  // 34 / 4 = 8 and two over, which the first two parts take.
  EXPECT_EQ(with("layers_per_stage", "pipeline_parallel_schedule = \"Interleaved1F1B\""),
            "layers_per_stage: [8, 9, 8, 7]");
  EXPECT_EQ(with("virtual_pipeline_stages", "pipeline_parallel_schedule = \"Interleaved1F1B\""),
            "virtual_pipeline_stages: 2");
  EXPECT_EQ(with("layers_per_stage", "pipeline_parallel_split_points = [\"layers.20\"]"), "layers_per_stage: [20, 12]");
  EXPECT_EQ(with("shard_parameters", ""), "shard_parameters: false");  // "default" keeps them with a pipeline
  EXPECT_THAT(
      with("", "pipeline_parallel_schedule = \"1F1B1\""),
      HasSubstr("runs/llama3.toml:25:30: \"parallelism.pipeline_parallel_schedule\": found 1F1B1, wanted 1F1B"));
  EXPECT_THAT(with("", "pipeline_parallel_layers_per_stage = 5"), HasSubstr("wanted one for each of the 2 stages"));
  EXPECT_THAT(DealLayers(126, 16, 1, 1), ElementsAre(7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7));
  EXPECT_THAT(DealLayers(2, 4, 1, 1), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(DealLayers(1, 4, 1, 1), IsEmpty());
}

TEST(TorchtitanTest, Errors) {
  EXPECT_THAT(Line("", {{"\"8B\"", "\"9B\""}}),
              HasSubstr("runs/llama3.toml:6:10: \"model.flavor\": found the model llama3 9B, wanted Llama 3 of 8B, 70B "
                        "or 405B; of another one give --model=config.json"));
  EXPECT_THAT(Line("", {{"seq_len = 8192", "seq_len = \"8k\""}}), HasSubstr("runs/llama3.toml:16:11: "));
  EXPECT_THAT(Line("", {{"[compile]", "[compile"}}), HasSubstr("runs/llama3.toml:27:9: "));
  EXPECT_THAT(Line("", {{"dataset = \"c4\"", "enable_cpu_offload = true"}}), HasSubstr("found it switched on"));
  EXPECT_THAT(Line("", {{"shard_degree = -1", "shard_degree = 4"}}),
              HasSubstr("found 1 x 4 replicas, wanted 8, as the devices have"));
  ASSERT_OK_AND_ASSIGN(const Imported unknown, Import(absl::StrReplaceAll(k2025, {{"dataset =", "data_set ="}})));
  EXPECT_THAT(unknown.notes, Contains("not looked at: \"training.data_set\""));
}

}  // namespace
}  // namespace meshwright
