// Configurations of Hugging Face's users that have been damaged: reading them ends well, and what is written is a model
// file.
#include <cstdint>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/damage.h"
#include "ir/testing.h"
#include "models/model_file.h"
#include "tools/exit_code.h"
#include "tools/import/configuration_testing.h"

namespace meshwright {
namespace {

constexpr absl::string_view kTokens[] = {"-1",    "0",    "2",     "9223372036854775808",
                                         "1e400", "nan",  "auto",  "{",
                                         "}",     "[",    "]",     ":",
                                         ",",     "\"",   "'",     "\n",
                                         "\t",    "true", "false", "no",
                                         "null",  "&a",   "*a",    "!!str",
                                         "FSDP",  "NO",   "fp8",   "5e8",
                                         "#",     "3.5",  "\xff"};

constexpr absl::string_view kDeepSpeed = R"({"bf16": {"enabled": "auto"}, "fp16": {"enabled": true, "loss_scale": 0,
  "initial_scale_power": 16, "loss_scale_window": 1000}, "communication_data_type": "fp32",
  "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": "auto"}},
  "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8, "mics_shard_size": 8, "zero_hpz_partition_size": 8,
  "offload_optimizer": {"device": "none"}}, "tensor_parallel": {"autotp_size": 2}, "sequence_parallel_size": 2,
  "pipeline": {"stages": 1, "activation_checkpoint_interval": 0}, "train_batch_size": 512,
  "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8})";

constexpr absl::string_view kAccelerate = R"(distributed_type: FSDP
deepspeed_config: {zero_stage: 3, gradient_accumulation_steps: 4, deepspeed_config_file: null}
fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true, fsdp_sharding_strategy: HYBRID_SHARD}
megatron_lm_config: {megatron_lm_tp_degree: 2, megatron_lm_pp_degree: 2, megatron_lm_num_micro_batches: 4}
mixed_precision: bf16
num_machines: 2
num_processes: 16
parallelism_config:
  parallelism_config_cp_size: 2
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 2
  parallelism_config_tp_size: 2
)";

constexpr absl::string_view kTorchtitan = R"([model]
name = "llama3"
flavor = "8B"
converters = ["float8"]
[training]
local_batch_size = 8
global_batch_size = 128
seq_len = 8192
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 4
tensor_parallel_degree = 2
context_parallel_degree = 1
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "Interleaved1F1B"
pipeline_parallel_split_points = ["layers.8", "layers.16", "layers.24"]
[activation_checkpoint]
mode = "selective"
selective_ac_option = "2"
)";

void ReadDamaged(absl::string_view text, absl::string_view kind, const ImportHints& hints) {
  constexpr uint32_t kSeeds = 2000;
  EXPECT_OK(ImportConfiguration(text, "text.yaml", kind, hints));
  uint32_t read = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const std::string damaged = Damaged(std::string(text), kTokens, 4, random);
    const absl::StatusOr<Imported> imported = ImportConfiguration(damaged, "text.yaml", kind, hints);
    if (!imported.ok()) {
      EXPECT_NE(ExitCodeOf(imported.status()), ExitCode::kBug) << imported.status();
      EXPECT_THAT(std::string(imported.status().message()), testing::HasSubstr("text.yaml:"));
      EXPECT_LT(imported.status().message().size(), 4096u);
      continue;
    }
    ++read;
    EXPECT_LT(imported->notes.size(), 32u);
    EXPECT_OK(ParseModelFile(imported->text, "model.yaml").status());
  }
  EXPECT_GT(read, 20u);
  EXPECT_LT(read, kSeeds);
}

TEST(ConfigurationFuzzTest, DeepSpeed) {
  ImportHints hints = LlamaHints();
  ReadDamaged(kDeepSpeed, "deepspeed", hints);
  hints.batch.reset();
  ReadDamaged(kDeepSpeed, "deepspeed", hints);
}

TEST(ConfigurationFuzzTest, Accelerate) { ReadDamaged(kAccelerate, "accelerate", LlamaHints()); }

TEST(ConfigurationFuzzTest, Torchtitan) {
  ImportHints hints;
  hints.device = "h100";
  ReadDamaged(kTorchtitan, "torchtitan", hints);
}

// The model may be damaged as well: its file is named where that is what is wrong.
void ReadDamagedModel(absl::string_view model) {
  uint32_t read = 0;
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    ImportHints hints = LlamaHints();
    hints.model.text = Damaged(std::string(model), kTokens, 4, random);
    const absl::StatusOr<Imported> imported = ImportConfiguration(kDeepSpeed, "text.yaml", "deepspeed", hints);
    if (imported.ok()) {
      ++read;
      continue;
    }
    EXPECT_NE(ExitCodeOf(imported.status()), ExitCode::kBug) << imported.status();
    EXPECT_THAT(std::string(imported.status().message()),
                testing::AnyOf(testing::HasSubstr("config.json:"), testing::HasSubstr("text.yaml")));
  }
  EXPECT_GT(read, 20u);
}

TEST(ConfigurationFuzzTest, Models) {
  ReadDamagedModel(LlamaHints().model.text);
  ReadDamagedModel(R"({"model_type": "gemma3", "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
      "num_hidden_layers": 34, "sliding_window": 1024}, "vision_config": {"hidden_size": 1152}})");
}

}  // namespace
}  // namespace meshwright
