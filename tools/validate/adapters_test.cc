#include "tools/validate/adapters.h"

#include "gtest/gtest.h"
#include "models/decoder.h"
#include "simulator/price.h"
#include "tools/validate/framework.h"
#include "tools/validate/signs.h"

namespace meshwright {
namespace {

Framework HuggingFaceWith(SignSet signs) {
  Framework framework;
  framework.eager = true;
  framework.signs = signs;
  framework.signs.Add(Sign::kHuggingFace);
  return framework;
}

// Hidden 8, two heads of 4 that share keys and values, gates of 16.
DecoderConfig SmallLlama() {
  DecoderConfig model;
  model.hidden = 8;
  model.heads = 2;
  model.kv_heads = 1;
  model.head_dim = 4;
  model.ffn = 16;
  model.activation = Activation::kSwiglu;
  return model;
}

HostPace With(const Framework& framework, bool quantized = false) {
  HostPace host;
  host.kernel = Micros(52);
  AddAdapters(framework, SmallLlama(), quantized, &host);
  return host;
}

// An operator of PEFT's takes the CPU 13.48 us, one of ours 52.
constexpr double kEach = 13.48 / 52;

// Inputs of 8 each, results of 8 and 4: forward 7 * 16 + 12 * 12 bytes, backward 15 * 16 + 8 * 12, for 8 queries.
TEST(AdaptersTest, OfQueriesAndValues) {
  const HostPace host = With(HuggingFaceWith({}));
  EXPECT_DOUBLE_EQ(host.queries.forward, (7 * 16 + 12 * 12) / 8.0);
  EXPECT_DOUBLE_EQ(host.queries.backward, (15 * 16 + 8 * 12) / 8.0);
  EXPECT_DOUBLE_EQ(host.products, 1 + kEach * 5 * 2 / 4.0);
}

// FSDP gathers an adapter's two matrices by themselves, with hooks of 1 ms around each pass: of two products four.
TEST(AdaptersTest, AreUnitsOfFsdp) {
  const HostPace host = With(HuggingFaceWith({Sign::kFsdp, Sign::kPyTorchFsdp}));
  EXPECT_EQ(host.layer_forward, Millis(4));
  EXPECT_EQ(host.layer_backward, Millis(4));
  EXPECT_EQ(With(HuggingFaceWith({Sign::kFsdp})).layer_forward, Nanos());
}

// Inputs: 8 six times and 16; results 8 + 4 + 4, 8, 16 + 16, 8. In one product or three, queries, keys and values have
// as many results.
TEST(AdaptersTest, OfAllProducts) {
  const HostPace apart = With(HuggingFaceWith({Sign::kAllAdapted}));
  EXPECT_DOUBLE_EQ(apart.queries.forward, (7 * 64 + 12 * 64) / 8.0);
  EXPECT_DOUBLE_EQ(apart.queries.backward, (15 * 64 + 8 * 64) / 8.0);
  EXPECT_DOUBLE_EQ(apart.products, 1 + kEach * 5 * 7 / 4.0);
  const HostPace joined = With(HuggingFaceWith({Sign::kAllAdapted, Sign::kJoinedQueries}));
  EXPECT_DOUBLE_EQ(joined.queries.forward, (7 * 48 + 12 * 64) / 8.0);
  EXPECT_DOUBLE_EQ(joined.products, 1 + kEach * 5 * 5 / 4.0);
}

// Under autocast, inputs are made float32 for the adapters and narrow again: 16 bytes more each way.
TEST(AdaptersTest, WideOnesHaveTheirInputsCast) {
  Framework autocast = HuggingFaceWith({});
  autocast.autocast = true;
  EXPECT_DOUBLE_EQ(With(autocast).queries.forward, (23 * 16 + 12 * 12) / 8.0);
  EXPECT_DOUBLE_EQ(With(autocast).queries.backward, (31 * 16 + 8 * 12) / 8.0);
  EXPECT_DOUBLE_EQ(With(autocast, true).queries.forward, (7 * 16 + 12 * 12) / 8.0);
  for (const Sign narrow : {Sign::kNarrowPeft, Sign::kFusedAdapters, Sign::kDeepSpeed, Sign::kFsdp}) {
    Framework framework = HuggingFaceWith({narrow});
    framework.autocast = true;
    EXPECT_DOUBLE_EQ(With(framework).queries.forward, (7 * 16 + 12 * 12) / 8.0);
  }
  Framework units = HuggingFaceWith({Sign::kFsdp, Sign::kPyTorchFsdp});
  units.autocast = true;
  EXPECT_DOUBLE_EQ(With(units).queries.forward, (23 * 16 + 12 * 12) / 8.0);
}

TEST(AdaptersTest, OfOthersAreTheirOwn) {
  Framework nemo;
  nemo.eager = true;
  nemo.signs = {Sign::kNemo};
  HostPace unchanged;
  unchanged.kernel = Micros(52);
  EXPECT_EQ(With(nemo), unchanged);
}

// Beside those of attention: inputs 4 x 8, results 8 + 4 + 4 + 8, of two layers; PEFT's rank is 8 where none is named.
TEST(AdaptersTest, ParametersAreOfTheRank) {
  DecoderConfig model = SmallLlama();
  model.layers = 2;
  const Framework attention = HuggingFaceWith({Sign::kAttentionAdapted});
  EXPECT_DOUBLE_EQ(AdapterParameters(attention, model, "peft lora"), 8 * 2 * (32 + 24));
  EXPECT_DOUBLE_EQ(AdapterParameters(attention, model, "lora, rank 64"), 64 * 2 * (32 + 24));
  EXPECT_DOUBLE_EQ(AdapterParameters(attention, model, "lora (r=16, alpha=32)"), 16 * 2 * (32 + 24));
  // As LLaMA-Factory and LitGPT call their options.
  EXPECT_DOUBLE_EQ(AdapterParameters(attention, model, "lora_rank: 64"), 64 * 2 * (32 + 24));
  EXPECT_DOUBLE_EQ(AdapterParameters(attention, model, "lora_r=16"), 16 * 2 * (32 + 24));
  EXPECT_DOUBLE_EQ(AdapterParameters(attention, model, "lora, rank 99999"), (1 << 14) * 2 * (32 + 24));
}

// 3 bytes of each input: two of 8, or one that LitGPT's queries, keys and values share.
TEST(AdaptersTest, WhatTheyKeepIsOfTheirInputs) {
  EXPECT_DOUBLE_EQ(AdaptersKeep(HuggingFaceWith({}), SmallLlama()), 3 * 16);
  EXPECT_DOUBLE_EQ(AdaptersKeep(HuggingFaceWith({Sign::kLitGpt}), SmallLlama()), 3 * 8);
}

// bitsandbytes: half a byte, 4 / 64 of a scale, and 2. AutoGPTQ: 0.5 + 4, 4 + 1, 1 + 1, 1 + 1, 1 + 2; in a backward
// block one of two reads does that, or none.
TEST(AdaptersTest, WeightsOf4BitsAreUnpackedForEachProduct) {
  EXPECT_EQ(UnpackedWeights(false, true), (EagerBytes{2.5625, 2.5625}));
  EXPECT_EQ(UnpackedWeights(true, true), (EagerBytes{16.5, 8.25}));
  EXPECT_EQ(UnpackedWeights(true, false), (EagerBytes{16.5, 0}));
}

// Of four experts three beside the first, with inputs of 8 twice and 16 and results of 16 twice and 8, in two layers.
TEST(AdaptersTest, ExpertsHaveTheirOwn) {
  DecoderConfig model = SmallLlama();
  model.layers = 2;
  model.experts = 4;
  Framework framework;
  framework.signs = {Sign::kMegatron, Sign::kAllAdapted};
  EXPECT_DOUBLE_EQ(ExpertAdapterParameters(framework, model, "lora, rank 32"), 32 * 2 * 3 * (32 + 40));
  EXPECT_EQ(ExpertAdapterParameters(HuggingFaceWith({Sign::kAllAdapted}), model, "lora"), 0);
  model.experts = 0;
  EXPECT_EQ(ExpertAdapterParameters(framework, model, "lora"), 0);
}

}  // namespace
}  // namespace meshwright
