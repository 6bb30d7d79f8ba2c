#include "models/training.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

// Reads a section given as one line.
absl::StatusOr<Training> Read(absl::string_view section) {
  const absl::StatusOr<Document> document = ParseDocument(absl::StrCat("training: ", section, "\n"), "m.yaml");
  if (!document.ok()) return document.status();
  return ReadTraining(document->root()["training"]);
}

TEST(TrainingTest, EpochsAreStepsThatCanBeCounted) {
  ASSERT_OK_AND_ASSIGN(const Training training, Read("{epochs: 3, steps_per_epoch: 100}"));
  EXPECT_EQ(training.steps, 300);
  // 2^64 steps, which 64 bits would make 0.
  EXPECT_THAT(Read("{epochs: 4294967296, steps_per_epoch: 4294967296}"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "training.epochs: found 4294967296 epochs of 4294967296 steps, wanted at most 1099511627776"));
}

TEST(TrainingTest, AMissingSectionHasTheDefaults) {
  ASSERT_OK_AND_ASSIGN(const Document document, ParseDocument("a: 1\n", "m.yaml"));
  ASSERT_OK_AND_ASSIGN(const Training training, ReadTraining(document.root()["training"]));
  EXPECT_EQ(training.dtype, DType::kFloat32);
  EXPECT_EQ(training.optimizer.kind, OpKind::kSgd);
  EXPECT_EQ(training.optimizer.learning_rate, 0.01);
  EXPECT_TRUE(training.fused_attention);
  EXPECT_EQ(training.steps, 10);
}

TEST(TrainingTest, Muon) {
  ASSERT_OK_AND_ASSIGN(const Training plain, Read("{optimizer: muon}"));
  EXPECT_EQ(plain.optimizer, Optimizer::Default(OpKind::kMuon));
  EXPECT_EQ(plain.optimizer.momentum, 0.95);
  ASSERT_OK_AND_ASSIGN(
      const Training t,
      Read("{optimizer: {muon: {learning_rate: 2e-4, momentum: 0.9, beta2: 0.95, weight_decay: 0.1}}}"));
  // Muon's momentum is in its beta1, AdamW's of what is no matrix beside the same rate and decay.
  EXPECT_EQ(t.optimizer.Attrs().beta1, 0.9);
  EXPECT_EQ(t.optimizer.AttrsOfAdamW().beta1, 0.9);
  EXPECT_EQ(Optimizer::Default(OpKind::kMuon).AttrsOfAdamW().beta1, 0.9);
  EXPECT_EQ(t.optimizer.AttrsOfAdamW().beta2, 0.95);
  EXPECT_EQ(t.optimizer.AttrsOfAdamW().learning_rate, 2e-4);
  EXPECT_EQ(t.optimizer.AttrsOfAdamW().weight_decay, 0.1);
  EXPECT_THAT(Read("{optimizer: {muon: {turns: 5}}}"),
              StatusIs(absl::StatusCode::kInvalidArgument, "training.optimizer.muon.turns"));
}

TEST(TrainingTest, Lora) {
  ASSERT_OK_AND_ASSIGN(const Training all, Read("{lora: {rank: 16}}"));
  EXPECT_EQ(all.lora, (Lora{.rank = 16}));
  EXPECT_EQ(all.lora->scale(), 1);
  ASSERT_OK_AND_ASSIGN(const Training some, Read("{lora: {rank: 16, alpha: 32, targets: [proj, mlp1]}}"));
  EXPECT_EQ(some.lora, (Lora{.rank = 16, .alpha = 32, .qkv = false, .mlp2 = false}));
  EXPECT_EQ(some.lora->scale(), 2);
  const auto error = [](absl::string_view section) { return std::string(Read(section).status().message()); };
  EXPECT_EQ(error("{lora: 16}"), "m.yaml:1:18: training.lora: found \"16\", wanted a map");
  EXPECT_EQ(error("{lora: {alpha: 16}}"), "m.yaml:1:18: training.lora.rank: found nothing, wanted an integer; add it");
  EXPECT_EQ(error("{lora: {rank: 0}}"),
            "m.yaml:1:25: training.lora.rank: found \"0\", wanted an integer from 1 to 16384");
  EXPECT_EQ(error("{lora: {rank: 8, targets: [q_proj]}}"),
            "m.yaml:1:38: training.lora.targets[0]: found \"q_proj\", wanted one of qkv, proj, mlp1, mlp2; "
            "did you mean \"proj\"?");
  EXPECT_EQ(error("{lora: {rank: 8, targets: []}}"),
            "m.yaml:1:37: training.lora.targets: found an empty list, wanted products of a layer, e.g. [qkv, proj]");
  EXPECT_EQ(error("{lora: {rank: 8, targets: [qkv, qkv]}}"),
            "m.yaml:1:43: training.lora.targets[1]: found qkv again, wanted each product once");
}

TEST(TrainingTest, WeightsMayLieInFloat8) {
  ASSERT_OK_AND_ASSIGN(Training training, Read("{dtype: bfloat16, parameters: float8}"));
  EXPECT_EQ(training.dtype, DType::kBFloat16);
  EXPECT_EQ(training.TypeOfWeights(), DType::kFloat8);
  ASSERT_OK_AND_ASSIGN(training, Read("{dtype: float16, parameters: bfloat16}"));
  EXPECT_EQ(training.TypeOfWeights(), DType::kFloat16);
  EXPECT_EQ(Read("{parameters: fp8}").status().message(),
            "m.yaml:1:24: training.parameters: found \"fp8\", wanted one of bfloat16, float8");
}

TEST(TrainingTest, ReadsEveryKey) {
  ASSERT_OK_AND_ASSIGN(const Training training,
                       Read("{batch: 8, sequence: 128, dtype: bfloat16, gradient_dtype: bfloat16, optimizer: {adamw: "
                            "{learning_rate: 6e-4, beta1: 0.8, beta2: 0.95, epsilon: 1e-6, weight_decay: 0.1}}, "
                            "loss_reduction: sum, attention: unfused, loss: unfused, norms: unfused, data: {mnist: "
                            "{path: data/mnist}}, steps: 7, "
                            "seed: 3, tokens: 300B}"));
  EXPECT_EQ(training.batch, 8);
  EXPECT_EQ(training.sequence, 128);
  EXPECT_EQ(training.dtype, DType::kBFloat16);
  EXPECT_EQ(training.gradient_dtype, DType::kBFloat16);
  EXPECT_EQ(training.optimizer.kind, OpKind::kAdamW);
  EXPECT_EQ(training.optimizer.learning_rate, 6e-4);
  EXPECT_EQ(training.loss_reduction, LossReduction::kSum);
  EXPECT_FALSE(training.fused_attention);
  EXPECT_FALSE(training.fused_loss);
  EXPECT_FALSE(training.fused_norms);
  EXPECT_EQ(training.data, DataSet::kMnist);
  EXPECT_EQ(training.data_path, "data/mnist");
  EXPECT_EQ(training.steps, 7);
  EXPECT_EQ(training.seed, 3);
  EXPECT_EQ(training.tokens, 300e9);
  const OpAttrs attrs = training.optimizer.Attrs();
  EXPECT_EQ(attrs.beta1, 0.8);
  EXPECT_EQ(attrs.beta2, 0.95);
  EXPECT_EQ(attrs.epsilon, 1e-6);
  EXPECT_EQ(attrs.weight_decay, 0.1);
}

TEST(TrainingTest, GradientsAreSummedInFloat32OrBetter) {
  EXPECT_EQ(Read("{dtype: bfloat16}")->gradient_dtype, DType::kFloat32);
  EXPECT_EQ(Read("{dtype: float64}")->gradient_dtype, DType::kFloat64);
}

TEST(TrainingTest, Float16ScalesTheLossUnlessToldOtherwise) {
  EXPECT_FALSE(Read("{dtype: bfloat16}")->LossScale().has_value());
  EXPECT_FALSE(Read("{dtype: float16, loss_scale: none}")->LossScale().has_value());
  const OpAttrs usual = Read("{dtype: float16}")->LossScale().value().Attrs();
  EXPECT_EQ(usual.scale, 65536);
  EXPECT_EQ(usual.growth, 2);
  EXPECT_EQ(usual.backoff, 0.5);
  EXPECT_EQ(usual.interval, 2000);
  EXPECT_EQ(Read("{loss_scale: dynamic}")->LossScale().value().Attrs(), usual);
  const OpAttrs fixed = Read("{loss_scale: 1024}")->LossScale().value().Attrs();
  EXPECT_EQ(fixed.scale, 1024);
  EXPECT_EQ(fixed.growth, 1);
  EXPECT_EQ(fixed.backoff, 1);
  const OpAttrs own =
      Read("{loss_scale: {initial: 4096, growth_factor: 4, backoff_factor: 0.25, growth_interval: 100}}")
          ->LossScale()
          .value()
          .Attrs();
  EXPECT_EQ(own.scale, 4096);
  EXPECT_EQ(own.growth, 4);
  EXPECT_EQ(own.backoff, 0.25);
  EXPECT_EQ(own.interval, 100);
}

TEST(TrainingTest, MomentumIsWhatTheOperatorReadsAsBeta1) {
  ASSERT_OK_AND_ASSIGN(const Training training, Read("{optimizer: {momentum: {learning_rate: 0.2, momentum: 0.1}}}"));
  EXPECT_EQ(training.optimizer.Attrs().beta1, 0.1);
  EXPECT_EQ(training.optimizer.Attrs().learning_rate, 0.2);
  EXPECT_EQ(Read("{optimizer: momentum}")->optimizer.momentum, 0.9);
  EXPECT_EQ(Read("{optimizer: adamw}")->optimizer.learning_rate, 1e-3);
}

TEST(TrainingTest, ErrorsNameTheField) {
  const auto error = [](absl::string_view section) { return std::string(Read(section).status().message()); };
  EXPECT_EQ(
      error("{loss_scale: dynamical}"),
      "m.yaml:1:24: training.loss_scale: found \"dynamical\", wanted dynamic, none, a number of at least 2^-24, or "
      "{initial: 65536, ..}");
  EXPECT_EQ(
      error("{loss_scale: {scale_window: 1000}}"),
      "m.yaml:1:25: training.loss_scale.scale_window: found an unknown key, wanted one of initial, growth_factor, "
      "backoff_factor, growth_interval; remove it");
  EXPECT_EQ(error("{loss_scale: {growth_factor: 0.5}}"),
            "m.yaml:1:40: training.loss_scale.growth_factor: found \"0.5\", wanted a number from 1 to 1e+06");
  for (const char* const key : {"type", "name"}) {
    EXPECT_EQ(error(absl::StrCat("{optimizer: {", key, ": adamw}}")),
              absl::StrCat("m.yaml:1:30: training.optimizer.", key, ": found the optimizer behind `", key,
                           "`, wanted it as the key; e.g. `optimizer: {adamw: {learning_rate: 6e-4}}`"));
  }
  EXPECT_EQ(error("{optimizer: {adam: {}}}"),
            "m.yaml:1:24: training.optimizer.adam: found an unknown key, wanted one of "
            "sgd, momentum, adamw, lamb, muon; did you mean \"adamw\"?");
  EXPECT_EQ(
      error("{optimizer: {sgd: {momentum: 0.9}}}"),
      "m.yaml:1:30: training.optimizer.sgd.momentum: found an unknown key, wanted one of learning_rate; remove it");
  EXPECT_EQ(
      error("{dtype: float31}"),
      "m.yaml:1:19: training.dtype: found \"float31\", wanted one of float64, float32, tfloat32, float16, bfloat16, "
      "float8; did you mean \"float32\"?");
  EXPECT_THAT(error("{dtype: int32}"), testing::HasSubstr("found \"int32\", wanted one of float64"));
  EXPECT_THAT(error("{batch: 0}"), testing::HasSubstr("training.batch: found \"0\""));
  EXPECT_THAT(error("{optimizer: {momentum: {momentum: 1.5}}}"), testing::HasSubstr("wanted a number from 0 to 1"));
  EXPECT_THAT(error("{steps: }"), testing::HasSubstr("training.steps: found nothing"));
}

}  // namespace
}  // namespace meshwright
