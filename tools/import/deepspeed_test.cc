#include "tools/import/deepspeed.h"

#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "models/model_file.h"
#include "tools/export/testing.h"
#include "tools/export/writers.h"
#include "tools/import/configuration_testing.h"

namespace meshwright {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// As Hugging Face's users write them: what the Trainer knows is auto.
constexpr absl::string_view kZero3 = R"({
    "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16},
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto"}},
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": true,
        "contiguous_gradients": true,
        "sub_group_size": 1e9,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_max_live_parameters": 1e9
    },
    "gradient_accumulation_steps": "auto",
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "wall_clock_breakdown": false
})";

// One whose numbers are all said: 4 x 8 x 16 replicas = 512 sequences.
constexpr absl::string_view kZero2 = R"({
  "train_batch_size": 512, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8,
  "bf16": {"enabled": true}, "communication_data_type": "fp32", "data_types": {"grad_accum_dtype": "fp32"},
  "optimizer": {"type": "Adam", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
  "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 5e8},
  "gradient_clipping": 1.0, "steps_per_print": 10
})";

absl::StatusOr<Imported> Import(absl::string_view text, const ImportHints& hints = LlamaHints()) {
  return ImportConfiguration(text, "runs/ds_config.json", "", hints);
}

ImportHints OfTheFile() {
  ImportHints hints = LlamaHints();
  hints.batch.reset();
  return hints;
}

TEST(DeepSpeedTest, WhatIsAutoIsLeftOpen) {
  ImportHints hints = LlamaHints();
  hints.devices = 16;
  ASSERT_OK_AND_ASSIGN(const Imported imported, Import(kZero3, hints));
  ASSERT_OK_AND_ASSIGN(const Session session, OpenImported(imported.text));
  const DecoderConfig& c = std::get<DecoderConfig>(session.file->model);
  EXPECT_EQ(session.file->name, "ds_config");
  EXPECT_EQ(c.layers, 32);
  EXPECT_EQ(c.kv_heads, 8);
  EXPECT_EQ(session.file->training.sequence, 4096);
  EXPECT_EQ(session.file->training.dtype, DType::kBFloat16);
  EXPECT_EQ(session.problem.batch, 128);
  EXPECT_EQ(session.problem.data_parallel, 16);
  EXPECT_EQ(session.problem.shard_parameters, true);
  EXPECT_EQ(session.problem.optimizer_shard_size, -1);
  EXPECT_FALSE(session.problem.microbatch.has_value());
  EXPECT_FALSE(session.problem.recompute.has_value());
  // The Trainer's: the square of the hidden size, 4096 x 4096 x 2 bytes = 32 MiB.
  EXPECT_EQ(session.problem.bucket, MiB(32));
  EXPECT_THAT(imported.notes,
              ElementsAre("bf16 and fp16 are auto: planned in bfloat16; plan with --precision=float16 for the other",
                          std::string(kRecomputeIsCode),
                          "how large a micro-batch is is not said: the plan chooses it, or --microbatch=N"));
}

TEST(DeepSpeedTest, WhatIsSaidIsPlanned) {
  ASSERT_OK_AND_ASSIGN(const Imported imported, Import(kZero2, OfTheFile()));
  ASSERT_OK_AND_ASSIGN(const Session session, OpenImported(imported.text));
  const Problem& problem = session.problem;
  EXPECT_EQ(problem.cluster.num_devices(), 16);  // 512 / (4 x 8)
  EXPECT_EQ(problem.cluster.nodes, 2);
  EXPECT_EQ(problem.data_parallel, 16);
  EXPECT_EQ(problem.batch, 512);
  EXPECT_EQ(problem.microbatch, 4);
  EXPECT_EQ(problem.parallel_optimizer, true);
  EXPECT_TRUE(problem.gradient_accumulation_shard);
  EXPECT_EQ(problem.shard_parameters, false);
  EXPECT_EQ(problem.gradient_dtype, DType::kFloat32);
  EXPECT_EQ(problem.bucket, MiB(1908));  // 5e8 x 4 bytes, rounded up
  EXPECT_EQ(session.file->training.optimizer.kind, OpKind::kAdamW);
  EXPECT_DOUBLE_EQ(session.file->training.optimizer.beta2, 0.95);
  EXPECT_DOUBLE_EQ(session.file->training.optimizer.weight_decay, 0.1);
  EXPECT_THAT(imported.notes, ElementsAre(std::string(kRecomputeIsCode)));
}

TEST(DeepSpeedTest, Stages) {
  const auto told = [](const std::vector<std::pair<absl::string_view, absl::string_view>>& changes) -> std::string {
    const absl::StatusOr<Imported> imported = Import(absl::StrReplaceAll(kZero2, changes), OfTheFile());
    if (!imported.ok()) return std::string(imported.status().message());
    const absl::StatusOr<Session> session = OpenImported(imported->text);
    if (!session.ok()) return std::string(session.status().message());
    const Problem& p = session->problem;
    return absl::StrCat(p.parallel_optimizer.value_or(false), p.gradient_accumulation_shard,
                        p.shard_parameters.value_or(false), " groups of ", p.optimizer_shard_size.value_or(0));
  };
  EXPECT_EQ(told({{"\"stage\": 2", "\"stage\": 0"}}), "000 groups of 0");
  EXPECT_EQ(told({{"\"stage\": 2", "\"stage\": 1"}}), "100 groups of -1");
  EXPECT_EQ(told({}), "110 groups of -1");
  EXPECT_EQ(told({{"\"stage\": 2", "\"stage\": 3"}}), "101 groups of -1");
  EXPECT_EQ(told({{"\"stage\": 2", "\"stage\": 3, \"mics_shard_size\": 8"}}), "101 groups of 8");
  EXPECT_EQ(told({{"\"stage\": 2", "\"stage\": 3, \"zero_hpz_partition_size\": 8"}}), "101 groups of -1");
  EXPECT_EQ(told({{R"({"stage": 2, "overlap_comm": true, "reduce_bucket_size": 5e8})", "true"}}), "100 groups of -1");
  EXPECT_THAT(told({{"\"stage\": 2", "\"stage\": 4"}}),
              HasSubstr("zero_optimization.stage: found \"4\", wanted an integer from 0 to 3"));
  EXPECT_THAT(told({{"\"stage\": 2", "\"stage\": 3, \"mics_shard_size\": 5"}}),
              HasSubstr("zero_optimization.mics_shard_size: found 5, wanted a divisor of the 16 replicas"));
}

TEST(DeepSpeedTest, TypesAndScales) {
  const auto training = [](const std::vector<std::pair<absl::string_view, absl::string_view>>& changes) {
    const absl::StatusOr<Imported> imported = Import(absl::StrReplaceAll(kZero2, changes), OfTheFile());
    EXPECT_OK(imported.status());
    const absl::StatusOr<Session> session = OpenImported(imported.ok() ? imported->text : "");
    EXPECT_OK(session.status());
    return session.ok() ? session->file->training : Training();
  };
  constexpr absl::string_view kTypes =
      R"("communication_data_type": "fp32", "data_types": {"grad_accum_dtype": "fp32"},)";
  constexpr absl::string_view kBrain = R"("bf16": {"enabled": true},)";
  // Sums are the model's type under ZeRO, float32 without it (runtime/engine.py, get_data_types).
  EXPECT_EQ(training({{kTypes, ""}}).gradient_dtype, DType::kBFloat16);
  EXPECT_EQ(training({{kTypes, ""}, {"\"stage\": 2", "\"stage\": 0"}}).gradient_dtype, DType::kFloat32);
  EXPECT_EQ(training({{kBrain, ""}, {kTypes, ""}}).dtype, DType::kFloat32);
  Training half = training({{kBrain, R"("fp16": {"enabled": true},)"}});
  EXPECT_EQ(half.dtype, DType::kFloat16);
  EXPECT_EQ(half.loss_scaling, (LossScaling{65536, 2, 0.5, 1000}));  // 2^16
  half = training({{kBrain, R"("fp16": {"enabled": true, "initial_scale_power": 12, "loss_scale_window": 500},)"}});
  EXPECT_EQ(half.loss_scaling, (LossScaling{4096, 2, 0.5, 500}));
  half = training({{kBrain, R"("fp16": {"enabled": true, "loss_scale": 128},)"}});
  EXPECT_EQ(half.loss_scaling, (LossScaling{128, 1, 1, 1}));
}

TEST(DeepSpeedTest, Optimizers) {
  const auto written = [](absl::string_view type, absl::string_view more = "") -> std::string {
    const std::string text =
        absl::StrReplaceAll(kZero2, {{R"("Adam", "params": {)", absl::StrCat("\"", type, R"(", "params": {)", more)}});
    const absl::StatusOr<Imported> imported = Import(text, OfTheFile());
    if (!imported.ok()) return std::string(imported.status().message());
    const size_t at = imported->text.find("optimizer: {");
    return absl::StrCat(imported->text.substr(at, imported->text.find(": {", at + 12) - at), " ", NotesOf(*imported));
  };
  EXPECT_THAT(written("AdamW"), HasSubstr("optimizer: {adamw"));
  EXPECT_THAT(written("Lamb"), HasSubstr("optimizer: {lamb"));
  EXPECT_THAT(written("Muon"), HasSubstr("optimizer: {muon"));
  EXPECT_THAT(written("SGD"), HasSubstr("optimizer: {sgd"));
  EXPECT_THAT(written("SGD", "\"momentum\": 0.9, "), HasSubstr("optimizer: {momentum"));
  EXPECT_THAT(written("OneBitAdam"), HasSubstr("the optimizer \"OneBitAdam\" is planned as adamw"));
}

TEST(DeepSpeedTest, Degrees) {
  const auto with = [](absl::string_view more, ImportHints hints = OfTheFile()) {
    return Import(absl::StrReplaceAll(kZero2, {{"\"steps_per_print\": 10", more}}), hints);
  };
  ASSERT_OK_AND_ASSIGN(const Imported tensor, with(R"("tensor_parallel": {"autotp_size": 4})"));
  EXPECT_THAT(tensor.text, HasSubstr("  data_parallel: 16\n  tensor_parallel: 4\n"));
  EXPECT_THAT(tensor.text, HasSubstr("nodes: 8, devices_per_node: 8"));  // 16 x 4 devices
  ASSERT_OK_AND_ASSIGN(const Imported context, with(R"("sequence_parallel_size": 2, "data_parallel_size": 16)"));
  EXPECT_THAT(context.text, HasSubstr("  data_parallel: 16\n  tensor_parallel: 1\n  context_parallel: 2\n"));
  EXPECT_THAT(context.notes, Contains(HasSubstr("exchange heads there (Ulysses)")));
  ASSERT_OK_AND_ASSIGN(const Imported pipeline,
                       with(R"("pipeline": {"stages": 2, "activation_checkpoint_interval": 1})"));
  EXPECT_THAT(pipeline.text, HasSubstr("  pipeline_stages: 2\n"));
  EXPECT_THAT(pipeline.text, HasSubstr("  recompute: full\n"));
  ASSERT_OK_AND_ASSIGN(const Imported again, with(R"("activation_checkpointing": {"partition_activations": true})"));
  EXPECT_THAT(again.text, HasSubstr("  recompute: full\n"));
  // A section that switches nothing on says nothing.
  ASSERT_OK_AND_ASSIGN(const Imported off, with(R"("activation_checkpointing": {"partition_activations": false,
                       "cpu_checkpointing": false, "number_checkpoints": null})"));
  EXPECT_THAT(off.text, Not(HasSubstr("recompute")));
  EXPECT_THAT(std::string(Import(kZero2, {}).status().message()),
              HasSubstr("ds_config.json:1:1: found nothing of the model, which its code says, wanted the config.json"));
}

// Of batch, micro-batch and accumulation two make the third (runtime/config.py, _set_batch_related_parameters).
TEST(DeepSpeedTest, WhatAStepIsMadeOf) {
  constexpr absl::string_view kStep =
      R"("train_batch_size": 512, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8,)";
  const auto step = [&](absl::string_view keys, int64_t devices, std::optional<int64_t> batch = {}) -> std::string {
    ImportHints hints = OfTheFile();
    hints.devices = devices;
    hints.batch = batch;
    const absl::StatusOr<Imported> imported = Import(absl::StrReplaceAll(kZero2, {{kStep, keys}}), hints);
    if (!imported.ok()) return std::string(imported.status().message());
    const absl::StatusOr<Session> session = OpenImported(imported->text);
    if (!session.ok()) return std::string(session.status().message());
    return absl::StrCat(session->problem.batch, " in ", session->problem.microbatch.value_or(0));
  };
  EXPECT_EQ(step(kStep, 16), "512 in 4");
  EXPECT_EQ(step(R"("train_batch_size": 512, "gradient_accumulation_steps": 4,)", 16), "512 in 8");  // 512 / 4 / 16
  EXPECT_EQ(step(R"("train_batch_size": 512,)", 16), "512 in 32");                                   // one micro-batch
  EXPECT_EQ(step(R"("train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8,)", 8), "256 in 4");
  EXPECT_EQ(step(R"("train_micro_batch_size_per_gpu": 4,)", 8), "32 in 4");
  EXPECT_EQ(step(R"("train_micro_batch_size_per_gpu": 4, "train_batch_size": "auto",)", 8, 64), "64 in 4");
  EXPECT_THAT(step(R"("train_micro_batch_size_per_gpu": 4, "train_batch_size": "auto",)", 8),
              HasSubstr("wanted the sequences of a step; give them as --batch=1024"));
  EXPECT_THAT(step(kStep, 8), HasSubstr("found 512 sequences of a step, wanted 4 of a micro-batch x 8 micro-batches x "
                                        "8 replicas; --devices=N and --batch=N say how many there are"));
  EXPECT_THAT(step(kStep, 8, 100), HasSubstr("found 100 sequences of a step, wanted a multiple of 4 on 8 replicas"));
}

TEST(DeepSpeedTest, WhatThePlanDoesNotHave) {
  const auto with = [](absl::string_view zero) {
    return Import(absl::StrReplaceAll(kZero2, {{"\"stage\": 2", absl::StrCat("\"stage\": 3, ", zero)}}), OfTheFile());
  };
  ASSERT_OK_AND_ASSIGN(const Imported host, with(R"("offload_optimizer": {"device": "cpu", "pin_memory": true})"));
  EXPECT_THAT(host.notes, Contains("zero_optimization.offload_optimizer: the optimizer is on the host there, on the "
                                   "devices in the plan"));
  ASSERT_OK_AND_ASSIGN(const Imported none, with(R"("offload_optimizer": {"device": "none"}, "offload_param": null)"));
  EXPECT_THAT(none.notes, ElementsAre(std::string(kRecomputeIsCode)));
  const absl::Status refused = with("\n  \"offload_param\": {\"device\": \"nvme\"}").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(refused.message(),
            "runs/ds_config.json:6:20: zero_optimization.offload_param: found it switched on, wanted parameters on the "
            "devices; without it the plan says what they need there");
  ASSERT_OK_AND_ASSIGN(const Imported unknown, with(R"("stage4": true, "zero_quantized_weights": true)"));
  EXPECT_THAT(unknown.notes,
              ElementsAre("zero_optimization.zero_quantized_weights: weights are gathered in 8 bits there, in 16 in "
                          "the plan",
                          "not looked at: \"zero_optimization.stage4\"", std::string(kRecomputeIsCode)));
  ASSERT_OK_AND_ASSIGN(const Imported slow,
                       Import(absl::StrReplaceAll(kZero2, {{"\"overlap_comm\": true, ", ""}}), OfTheFile()));
  EXPECT_THAT(slow.notes, Contains("gradients are reduced behind the backward pass there, beside it in the plan"));
}

// What is exported and read again is the same run.
TEST(DeepSpeedTest, WhatIsExportedIsReadAgain) {
  for (const char* const flag : {"--parallel_optimizer", "--shard_parameters", "--noparallel_optimizer"}) {
    SCOPED_TRACE(flag);
    ASSERT_OK_AND_ASSIGN(Plan plan, PlanOf(Llama(), {.data = 8, .tensor = 2, .microbatch = 3}, {flag}));
    plan.strategy.parallel_optimizer = flag[2] != 'n';
    plan.strategy.shard_parameters = flag[2] == 's';
    plan.strategy.gradient_dtype = flag[2] == 'n' ? DType::kBFloat16 : plan.strategy.gradient_dtype;
    const absl::StatusOr<Exported> exported = ToDeepSpeed(plan);
    if (flag[2] == 'n' && !exported.ok()) continue;  // types that DeepSpeed has with ZeRO alone
    ASSERT_OK(exported.status());
    SCOPED_TRACE(exported->text);
    ImportHints hints;
    hints.device = "h100-sxm";
    hints.model = {"llama.yaml", Llama()};
    ASSERT_OK_AND_ASSIGN(const Imported imported, Import(exported->text, hints));
    ASSERT_OK_AND_ASSIGN(const Session session, OpenImported(imported.text));
    EXPECT_TRUE(std::get<DecoderConfig>(session.file->model) == std::get<DecoderConfig>(plan.session.file->model));
    EXPECT_EQ(session.problem.cluster.num_devices(), 16);
    EXPECT_EQ(session.problem.data_parallel, 8);
    EXPECT_EQ(session.problem.tensor_parallel, 2);
    EXPECT_EQ(session.problem.batch, 48);
    EXPECT_EQ(session.problem.microbatch, 3);
    EXPECT_EQ(session.problem.parallel_optimizer, plan.strategy.parallel_optimizer);
    EXPECT_EQ(session.problem.shard_parameters, plan.strategy.shard_parameters);
    EXPECT_EQ(session.problem.gradient_dtype, plan.strategy.gradient_dtype);
    EXPECT_EQ(session.file->training.optimizer, plan.session.file->training.optimizer);
  }
}

}  // namespace
}  // namespace meshwright
