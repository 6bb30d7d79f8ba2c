// Megatron-LM's options of layers that are not Llama's, and of Muon.
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tools/export/testing.h"
#include "tools/export/writers.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

TEST(MegatronTest, LatentAttention) {
  const std::string latent = absl::StrReplaceAll(
      Llama(", q_lora_rank: 24, kv_lora_rank: 16, rope_head_dim: 4, value_head_dim: 6"), {{", kv_heads: 4", ""}});
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(latent, {.data = 4, .tensor = 2, .microbatch = 1}));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToMegatron(plan));
  const std::map<std::string, std::string> o = OptionsOf(exported.text);
  EXPECT_EQ(o.count("--multi-latent-attention"), 1u);
  EXPECT_EQ(o.count("--qk-layernorm"), 1u);
  EXPECT_EQ(o.count("--kv-channels"), 0u);
  EXPECT_EQ(NumberOf(o, "--q-lora-rank"), 24);
  EXPECT_EQ(NumberOf(o, "--kv-lora-rank"), 16);
  EXPECT_EQ(NumberOf(o, "--qk-head-dim"), 8);  // hidden 64 by 8 heads
  EXPECT_EQ(NumberOf(o, "--qk-pos-emb-head-dim"), 4);
  EXPECT_EQ(NumberOf(o, "--v-head-dim"), 6);
  EXPECT_EQ(o.at("--rope-type"), "rope");  // yarn unasked
  EXPECT_THAT(ToNanotron(plan).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("has no latent attention")));
}

// Its states are shared out by its own kind of optimizer, and updates are as large as the plan's.
TEST(MegatronTest, Muon) {
  const std::string text =
      absl::StrReplaceAll(Llama(), {{"{adamw: {learning_rate: 6e-4}}",
                                     "{muon: {learning_rate: 6e-4, momentum: 0.9, beta2: 0.95, weight_decay: 0.1}}"}});
  const Degrees degrees = {.data = 8, .tensor = 2, .microbatch = 1};
  ASSERT_OK_AND_ASSIGN(Plan plan, PlanOf(text, degrees, {"--parallel_optimizer", "--noshard_parameters"}));
  ASSERT_OK_AND_ASSIGN(const Exported megatron, ToMegatron(plan));
  const std::map<std::string, std::string> o = OptionsOf(megatron.text);
  EXPECT_EQ(o.at("--optimizer"), "dist_muon");
  EXPECT_EQ(o.at("--muon-momentum"), "0.9");
  EXPECT_EQ(o.at("--adam-beta2"), "0.95");
  EXPECT_EQ(o.at("--muon-tp-mode"), "duplicated");
  EXPECT_EQ(o.count("--use-distributed-optimizer"), 0u);
  EXPECT_EQ(o.count("--overlap-param-gather"), 0u);
  ASSERT_OK_AND_ASSIGN(const Exported nemo, ToNemo(plan));
  EXPECT_THAT(nemo.text, HasSubstr("muon_momentum: 0.9"));
  EXPECT_THAT(nemo.text, HasSubstr("muon_split_qkv: false"));
  ASSERT_OK_AND_ASSIGN(plan, PlanOf(text, degrees, {"--noparallel_optimizer"}));
  ASSERT_OK_AND_ASSIGN(const Exported whole, ToMegatron(plan));
  EXPECT_EQ(OptionsOf(whole.text).at("--optimizer"), "muon");
  ASSERT_OK_AND_ASSIGN(plan, PlanOf(text, degrees, {"--parallel_optimizer", "--shard_parameters"}));
  EXPECT_THAT(ToMegatron(plan).status(), StatusIs(absl::StatusCode::kUnimplemented, "--noshard_parameters"));
}

// Megatron counts the tokens before, and a layer is whole where its number, from 1, is a multiple of the frequency
// (core/transformer/utils.py, is_layer_window_attention).
TEST(MegatronTest, Windows) {
  ASSERT_OK_AND_ASSIGN(const Plan plan,
                       PlanOf(Llama(", sliding_window: 16, full_attention_every: 3"), {.data = 8, .microbatch = 1}));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToMegatron(plan));
  const std::map<std::string, std::string> o = OptionsOf(exported.text);
  EXPECT_EQ(o.at("--window-size"), "15,0");
  EXPECT_EQ(NumberOf(o, "--window-attn-skip-freq"), 3);
  EXPECT_THAT(ToNanotron(plan).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("has no attention windows")));
  ASSERT_OK_AND_ASSIGN(const Plan first, PlanOf(Llama(", sliding_window: 16, full_attention_every: 2, "
                                                      "full_attention_at: 1"),
                                                {.data = 8, .microbatch = 1}));
  ASSERT_OK_AND_ASSIGN(const Exported listed, ToMegatron(first));
  EXPECT_THAT(listed.text, HasSubstr("--window-attn-skip-freq '[0,1,0,1"));
  ASSERT_OK_AND_ASSIGN(const Exported yaml, ToNemo(first));
  EXPECT_THAT(yaml.text, HasSubstr("window_attn_skip_freq: [0,1,0,1"));
  // Other heads without a window: what torchtitan splits has to divide those of both kinds.
  ASSERT_OK_AND_ASSIGN(const Plan wide, PlanOf(Llama(", sliding_window: 16, full_attention_every: 3, "
                                                     "full_attention_heads: {heads: 8, kv_heads: 2, head_dim: 16}"),
                                               {.data = 2, .tensor = 4, .microbatch = 1}));
  for (const absl::Status& status : {ToMegatron(wide).status(), ToNemo(wide).status()}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("no option for heads of layers without")));
  }
  EXPECT_THAT(ToTorchtitan(wide).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("--tensor_parallel=2")));
  ASSERT_OK_AND_ASSIGN(const Plan narrow, PlanOf(Llama(", value_head_dim: 4"), {.data = 8, .microbatch = 1}));
  for (const absl::Status& status : {ToMegatron(narrow).status(), ToNemo(narrow).status()}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("values narrower than keys")));
  }
}

// Qwen 3's and Nemotron's layers have options; Gemma's and GPT-NeoX's have none.
TEST(MegatronTest, FormsOfLayers) {
  const auto exported = [](const std::string& text) -> absl::StatusOr<Exported> {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Plan plan, PlanOf(text, {.data = 8, .microbatch = 1}));
    EXPECT_THAT(ToNanotron(plan).status(),
                StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("is written for models built as Llama is")));
    return ToMegatron(plan);
  };
  ASSERT_OK_AND_ASSIGN(const Exported normed, exported(Llama(", qk_norm: true, rotary_factor: 0.5")));
  std::map<std::string, std::string> o = OptionsOf(normed.text);
  EXPECT_EQ(o.count("--qk-layernorm"), 1u);
  EXPECT_EQ(o.at("--rotary-percent"), "0.5");
  EXPECT_EQ(o.count("--swiglu"), 1u);
  const auto with = [](const std::string& activation) {
    return absl::StrReplaceAll(Llama(""), {{"activation: swiglu", "activation: " + activation}});
  };
  ASSERT_OK_AND_ASSIGN(const Exported squared, exported(with("squared_relu")));
  o = OptionsOf(squared.text);
  EXPECT_EQ(o.count("--squared-relu"), 1u);
  EXPECT_EQ(o.count("--swiglu"), 0u);
  const auto refused = [](const std::string& what) {
    return StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(what));
  };
  EXPECT_THAT(exported(with("geglu")), refused("has no option for GELU of gates"));
  EXPECT_THAT(exported(Llama(", layer_form: parallel")), refused("side by side"));
  EXPECT_THAT(exported(Llama(", norm_places: both")), refused("norms behind attention"));
}

// Megatron-Bridge's keys, each option's own value; what it has no key for is said.
TEST(NemoTest, OptionsBecomeYaml) {
  ASSERT_OK_AND_ASSIGN(const Plan plan,
                       PlanOf(Llama(", experts: 8, experts_per_token: 2, dense_layers: 1, dense_ffn: 256"),
                              {.data = 8, .tensor = 2, .expert = 4, .sequence_parallel = true}));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToNemo(plan));
  for (const char* line :
       {"\nmixed_precision: bf16_mixed\n", "\nmodel:\n", "\n  num_moe_experts: 8\n", "\n  gated_linear_unit: true\n",
        "\n  add_bias_linear: false\n", "\n  moe_layer_freq: \"([0]*1+[1]*5)\"\n", "\ntrain:\n  micro_batch_size: 1\n",
        "\n  adam_eps: 1.0e-08\n", "\ndataset:\n  seq_length: 32\n", "--nnodes 2 --nproc-per-node 8\n"}) {
    EXPECT_THAT(exported.text, HasSubstr(line));
  }
  EXPECT_THAT(exported.differences, testing::Each(testing::Not(HasSubstr("no key is known"))));
  ASSERT_OK_AND_ASSIGN(const Plan other,
                       PlanOf(absl::StrReplaceAll(Llama(), {{"swiglu", "squared_relu"}}), {.data = 16}));
  ASSERT_OK_AND_ASSIGN(const Exported without, ToNemo(other));
  EXPECT_THAT(without.differences,
              testing::Contains("the activation function is the recipe's, squared ReLU in the plan"));
}

// Gemma's layers are no option's, but its recipes have them.
TEST(NemoTest, LayersThatRecipesHaveAreTheirs) {
  const auto exported = [](const std::string& more) -> absl::StatusOr<Exported> {
    MESHWRIGHT_ASSIGN_OR_RETURN(
        const Plan plan, PlanOf(absl::StrReplaceAll(Llama(more), {{"swiglu", "geglu"}}), {.data = 8, .microbatch = 1}));
    return ToNemo(plan);
  };
  ASSERT_OK_AND_ASSIGN(const Exported gemma,
                       exported(", norm_places: both, qk_norm: true, sliding_window: 16, full_attention_every: 6"));
  EXPECT_THAT(gemma.differences, testing::IsSupersetOf({HasSubstr("is the recipe's, GELU of gates in the plan"),
                                                        HasSubstr("windows and rotary positions are the recipe's")}));
  EXPECT_THAT(gemma.text, testing::Not(testing::ContainsRegex("window_size|window_attn|rotary_base")));
  EXPECT_THAT(exported(", norm_places: both").status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("plan with training: {attention: unfused}")));
  EXPECT_THAT(exported(", norm_places: after").status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("norms behind attention")));
}

// Qwen3-Next's layers are GPT's with options; a state space is a layer of hybrid models, whose pattern has halves and
// says where the pipeline is cut.
TEST(MegatronTest, LinearAttention) {
  constexpr absl::string_view kHeads = "key_heads: 8, value_heads: 16, key_dim: 8, value_dim: 4";
  const auto exported = [](const std::string& more, const Degrees& degrees) -> absl::StatusOr<Exported> {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Plan plan, PlanOf(Llama(more), degrees));
    EXPECT_THAT(ToNanotron(plan).status(),
                StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("is written for models built as Llama is")));
    return ToMegatron(plan);
  };
  const std::string delta =
      absl::StrCat(", attention_gate: true, full_attention_every: 3, linear_attention: {", kHeads, "}");
  ASSERT_OK_AND_ASSIGN(const Exported next, exported(delta, {.data = 8, .microbatch = 1}));
  std::map<std::string, std::string> o = OptionsOf(next.text);
  EXPECT_EQ(o.at("--experimental-attention-variant"), "gdn");
  EXPECT_EQ(o.at("--linear-attention-freq"), "3");
  EXPECT_EQ(NumberOf(o, "--linear-num-key-heads"), 8);
  EXPECT_EQ(NumberOf(o, "--linear-num-value-heads"), 16);
  EXPECT_EQ(NumberOf(o, "--linear-value-head-dim"), 4);
  EXPECT_EQ(o.count("--attention-output-gate"), 1u);
  EXPECT_THAT(next.text, HasSubstr("/pretrain_gpt.py"));
  ASSERT_OK_AND_ASSIGN(const Exported first,
                       exported(absl::StrCat(delta.substr(0, delta.size() - 1), "}, full_attention_at: 1"),
                                {.data = 8, .microbatch = 1}));
  EXPECT_EQ(OptionsOf(first.text).at("--linear-attention-freq"), "'[0,1,1,0,1,1]'");
  const std::string space = absl::StrCat(", full_attention_every: 3, linear_attention: {form: state_space, ", kHeads);
  ASSERT_OK_AND_ASSIGN(const Exported hybrid, exported(absl::StrCat(space, ", convolution_bias: true}"),
                                                       {.data = 4, .pipeline = 2, .microbatch = 1}));
  o = OptionsOf(hybrid.text);
  EXPECT_EQ(o.at("--hybrid-layer-pattern"), "'M-M-*-|M-M-*-'");
  EXPECT_EQ(NumberOf(o, "--mamba-num-heads"), 16);
  EXPECT_EQ(NumberOf(o, "--mamba-state-dim"), 8);
  EXPECT_EQ(o.count("--num-layers"), 0u);
  EXPECT_THAT(hybrid.text, HasSubstr("/pretrain_hybrid.py"));
  EXPECT_THAT(exported(absl::StrCat(space, "}"), {.data = 8, .microbatch = 1}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("state space with a convolution of other")));
}

// Layers without experts are as wide as the options of other layers say, and the list says which. Three of the layers
// that alternate are on each stage, as Megatron-LM deals them by itself.
TEST(MegatronTest, LayersWithoutExperts) {
  const auto options = [](absl::string_view more, const Degrees& degrees) {
    const absl::StatusOr<Plan> plan = PlanOf(Llama(absl::StrCat(", experts: 4, experts_per_token: 2", more)), degrees);
    EXPECT_OK(plan);
    const absl::StatusOr<Exported> exported = ToMegatron(*plan);
    EXPECT_OK(exported);
    return OptionsOf(exported->text);
  };
  std::map<std::string, std::string> o =
      options(", dense_layers: 2, dense_ffn: 320", {.data = 16, .expert = 4, .microbatch = 1});
  EXPECT_EQ(NumberOf(o, "--ffn-hidden-size"), 320);
  EXPECT_EQ(NumberOf(o, "--moe-ffn-hidden-size"), 192);
  EXPECT_EQ(o.at("--moe-layer-freq"), "'([0]*2+[1]*4)'");
  o = options(", expert_every: 2", {.data = 8, .pipeline = 2, .microbatch = 1});
  EXPECT_EQ(NumberOf(o, "--ffn-hidden-size"), 2 * 192);
  EXPECT_EQ(o.at("--moe-layer-freq"), "'(([0]*1+[1])*3)'");
  EXPECT_EQ(o.count("--pipeline-model-parallel-layout"), 0u);
  EXPECT_EQ(options("", {.data = 16, .expert = 4, .microbatch = 1}).count("--moe-layer-freq"), 0u);
}

}  // namespace
}  // namespace meshwright
