#include "tools/import/accelerate.h"

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

// As `accelerate config` writes it.
constexpr absl::string_view kFsdp1 = R"(compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
enable_cpu_affinity: false
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: false
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 2
num_processes: 16
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
use_cpu: false
)";

constexpr absl::string_view kFsdp2 = R"(distributed_type: FSDP
fsdp_config:
  fsdp_activation_checkpointing: false
  fsdp_reshard_after_forward: true
  fsdp_version: 2
mixed_precision: bf16
num_machines: 1
num_processes: 8
parallelism_config:
  parallelism_config_cp_size: 1
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 2
  parallelism_config_tp_size: 2
)";

constexpr absl::string_view kMegatron = R"(distributed_type: MEGATRON_LM
megatron_lm_config:
  megatron_lm_gradient_clipping: 1.0
  megatron_lm_num_micro_batches: 8
  megatron_lm_pp_degree: 2
  megatron_lm_recompute_activations: true
  megatron_lm_sequence_parallelism: true
  megatron_lm_tp_degree: 4
  megatron_lm_use_distributed_optimizer: true
mixed_precision: bf16
num_machines: 2
num_processes: 16
)";

constexpr absl::string_view kDeepSpeed = R"(deepspeed_config:
  gradient_accumulation_steps: 4
  offload_optimizer_device: none
  offload_param_device: none
  zero3_init_flag: true
  zero_stage: 3
distributed_type: DEEPSPEED
mixed_precision: fp16
num_machines: 1
num_processes: 8
)";

using Changes = std::vector<std::pair<absl::string_view, absl::string_view>>;

absl::StatusOr<Imported> Import(absl::string_view text, const ImportHints& hints = LlamaHints()) {
  return ImportConfiguration(text, "runs/fsdp.yaml", "", hints);
}

// What of the lines under `parallel:` is asked for by a test, or the error.
std::string Split(absl::string_view text, const Changes& changes, const ImportHints& hints = LlamaHints()) {
  const absl::StatusOr<Imported> imported = Import(absl::StrReplaceAll(text, changes), hints);
  if (!imported.ok()) return std::string(imported.status().message());
  const absl::StatusOr<Session> session = OpenImported(imported->text);
  if (!session.ok()) return std::string(session.status().message());
  const Problem& p = session->problem;
  return absl::StrCat("data ", p.data_parallel.value_or(0), " tensor ", p.tensor_parallel.value_or(0), " context ",
                      p.context_parallel.value_or(0),
                      p.shard_parameters.value_or(false)     ? " parameters"
                      : p.gradient_accumulation_shard        ? " gradients"
                      : p.parallel_optimizer.value_or(false) ? " optimizer"
                                                             : " nothing",
                      " over ", p.optimizer_shard_size.value_or(0));
}

TEST(AccelerateTest, FsdpOfTwoNodes) {
  ASSERT_OK_AND_ASSIGN(const Imported imported, Import(kFsdp1));
  ASSERT_OK_AND_ASSIGN(const Session session, OpenImported(imported.text));
  EXPECT_EQ(std::get<DecoderConfig>(session.file->model).layers, 32);
  EXPECT_EQ(session.problem.cluster.nodes, 2);
  EXPECT_EQ(session.problem.cluster.devices_per_node, 8);
  EXPECT_EQ(session.problem.data_parallel, 16);
  EXPECT_EQ(session.problem.shard_parameters, true);
  EXPECT_EQ(session.problem.recompute, Recompute::kFull);
  EXPECT_EQ(session.problem.batch, 128);
  EXPECT_EQ(session.file->training.dtype, DType::kBFloat16);
  EXPECT_EQ(session.problem.gradient_dtype, DType::kBFloat16);  // reduce_dtype of its set_mixed_precision
  EXPECT_THAT(imported.notes,
              ElementsAre("the optimizer is the training code's: planned as adamw",
                          "how large a micro-batch is is not said: the plan chooses it, or --microbatch=N"));
}

TEST(AccelerateTest, WhatFsdpSplits) {
  const auto strategy = [](absl::string_view name) {
    return Split(kFsdp1, {{"strategy: FULL_SHARD", absl::StrCat("strategy: ", name)}});
  };
  EXPECT_EQ(strategy("FULL_SHARD"), "data 16 tensor 1 context 1 parameters over -1");
  EXPECT_EQ(strategy("1"), "data 16 tensor 1 context 1 parameters over -1");
  EXPECT_EQ(strategy("SHARD_GRAD_OP"), "data 16 tensor 1 context 1 gradients over -1");
  EXPECT_EQ(strategy("NO_SHARD"), "data 16 tensor 1 context 1 nothing over 0");
  EXPECT_EQ(strategy("HYBRID_SHARD"), "data 16 tensor 1 context 1 parameters over 8");  // of 2 nodes
  EXPECT_EQ(strategy("HYBRID_SHARD_ZERO2"), "data 16 tensor 1 context 1 gradients over 8");
  EXPECT_THAT(strategy("SOME"), HasSubstr("runs/fsdp.yaml:12:27: fsdp_config.fsdp_sharding_strategy: found \"SOME\""));
  EXPECT_EQ(Split(kFsdp1, {{"FSDP", "MULTI_GPU"}}), "data 16 tensor 1 context 1 nothing over 0");
  EXPECT_EQ(Split(kFsdp1, {{"distributed_type: FSDP", "distributed_type: 'NO'"},
                           {"_processes: 16", "_processes: 1"},
                           {"_machines: 2", "_machines: 1"}}),
            "data 1 tensor 1 context 1 nothing over 0");
  EXPECT_THAT(Split(kFsdp1, {{"offload_params: false", "offload_params: true"}}),
              HasSubstr("fsdp_config.fsdp_offload_params: found it switched on, wanted parameters on the devices"));
  EXPECT_THAT(Split(kFsdp1, {{"distributed_type: FSDP", "distributed_type: XLA"}}),
              HasSubstr("runs/fsdp.yaml:3:19: distributed_type: found \"XLA\""));
}

TEST(AccelerateTest, Degrees) {
  EXPECT_EQ(Split(kFsdp2, {}), "data 4 tensor 2 context 1 parameters over 2");
  EXPECT_EQ(Split(kFsdp2, {{"forward: true", "forward: false"}}), "data 4 tensor 2 context 1 gradients over 2");
  // One sequence on 8 ranks, which have all parameters between them.
  const Changes context = {{"cp_size: 1", "cp_size: 8"},
                           {"replicate_size: 2", "replicate_size: 1"},
                           {"shard_size: 2", "shard_size: 1"},
                           {"tp_size: 2", "tp_size: 1"}};
  EXPECT_EQ(Split(kFsdp2, context), "data 1 tensor 1 context 8 parameters over -1");
  EXPECT_THAT(Split(kFsdp2, {{"shard_size: 2", "shard_size: 4"}}),
              HasSubstr("parallelism_config: found 8 replicas, wanted 4, as the devices have"));
  EXPECT_THAT(Split(kFsdp2, {{"tp_size: 2", "tp_size: 3"}}), HasSubstr("wanted a divisor of the 8 devices"));
}

TEST(AccelerateTest, Megatron) {
  ASSERT_OK_AND_ASSIGN(const Imported imported, Import(kMegatron));
  ASSERT_OK_AND_ASSIGN(const Session session, OpenImported(imported.text));
  const Problem& p = session.problem;
  EXPECT_EQ(p.data_parallel, 2);  // 16 / 4 / 2
  EXPECT_EQ(p.tensor_parallel, 4);
  EXPECT_EQ(p.stages, 2);
  EXPECT_EQ(p.microbatch, 8);  // 128 / 8 / 2
  EXPECT_EQ(p.sequence_parallel, true);
  EXPECT_EQ(p.parallel_optimizer, true);
  EXPECT_EQ(p.recompute, Recompute::kSelective);
  EXPECT_EQ(p.gradient_dtype, DType::kFloat32);
}

TEST(AccelerateTest, DeepSpeedOfItsOwnKeys) {
  ASSERT_OK_AND_ASSIGN(const Imported imported, Import(kDeepSpeed));
  ASSERT_OK_AND_ASSIGN(const Session session, OpenImported(imported.text));
  EXPECT_EQ(session.problem.shard_parameters, true);
  EXPECT_EQ(session.problem.microbatch, 4);  // 128 / 4 / 8
  EXPECT_EQ(session.file->training.dtype, DType::kFloat16);
  EXPECT_EQ(Split(kDeepSpeed, {{"  zero_stage: 3\n", ""}}), "data 8 tensor 1 context 1 gradients over -1");
  EXPECT_THAT(Split(kDeepSpeed, {{"param_device: none", "param_device: cpu"}}),
              HasSubstr("deepspeed_config.offload_param_device: found it switched on"));
  EXPECT_THAT(Split(kDeepSpeed, {}, {}), HasSubstr("runs/fsdp.yaml:1:1: found nothing of the model"));
}

TEST(AccelerateTest, DeepSpeedOfAFileThatItNames) {
  const Changes named = {{"  gradient_accumulation_steps: 4\n", "  deepspeed_config_file: ../ds.json\n"}};
  EXPECT_EQ(Split(kDeepSpeed, named),
            "runs/fsdp.yaml:2:26: deepspeed_config.deepspeed_config_file: found a file that is named, \"../ds.json\", "
            "wanted the file itself; give it as --deepspeed=../ds.json");
  ImportHints hints = LlamaHints();
  hints.deepspeed = {"ds.json",
                     R"({"zero_optimization": {"stage": 1}, "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
                         "train_micro_batch_size_per_gpu": 2})"};
  EXPECT_EQ(Split(kDeepSpeed, named, hints), "data 8 tensor 1 context 1 optimizer over -1");
  ASSERT_OK_AND_ASSIGN(const Imported imported, Import(absl::StrReplaceAll(kDeepSpeed, named), hints));
  EXPECT_THAT(imported.text, HasSubstr("  dtype: float16\n"));  // the launcher's, where the file has auto
  EXPECT_THAT(imported.text, HasSubstr("  micro_batch: 2\n"));
}

TEST(AccelerateTest, Precision) {
  const auto imported = [](absl::string_view precision, absl::string_view device) {
    ImportHints hints = LlamaHints();
    hints.device = std::string(device);
    return Import(absl::StrReplaceAll(kFsdp1, {{"mixed_precision: bf16\n", precision}}), hints);
  };
  ASSERT_OK_AND_ASSIGN(const Imported float8, imported("mixed_precision: fp8\n", "h100"));
  EXPECT_THAT(float8.text, HasSubstr("products: float8}"));
  EXPECT_THAT(float8.text, HasSubstr("  dtype: bfloat16\n"));
  ASSERT_OK_AND_ASSIGN(const Imported elsewhere, imported("mixed_precision: fp8\n", ""));
  EXPECT_THAT(elsewhere.notes, Contains(HasSubstr("plan with --products=float8")));
  ASSERT_OK_AND_ASSIGN(const Imported none, imported("mixed_precision: 'no'\n", "h100"));
  EXPECT_THAT(none.text, HasSubstr("  dtype: float32\n"));
  ASSERT_OK_AND_ASSIGN(const Imported unsaid, imported("", "h100"));
  EXPECT_THAT(unsaid.notes, Contains(HasSubstr("no mixed_precision is said: planned in float32")));
  ASSERT_OK_AND_ASSIGN(const Imported unknown, imported("mixed_precision: bf16\nnew_key: 1\n", "h100"));
  EXPECT_THAT(unknown.notes, Contains("not looked at: \"new_key\""));
}

}  // namespace
}  // namespace meshwright
