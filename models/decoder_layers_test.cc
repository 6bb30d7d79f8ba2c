// Layers of several kinds: linear attention, state spaces, patterns of halves.
#include "models/decoder_layers.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "models/decoder.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<DecoderConfig> Read(absl::string_view more) {
  const std::string text = absl::StrCat("decoder: {hidden: 8, heads: 2, vocab: 32, norm: rms_norm, ", more, "}\n");
  const absl::StatusOr<Document> document = ParseDocument(text, "m.yaml");
  if (!document.ok()) return document.status();
  Training training;
  training.batch = 4;
  training.sequence = 16;
  return ReadDecoder(document->root()["decoder"], training);
}

absl::StatusOr<Graph> Build(absl::string_view more, Training training = {}) {
  const absl::StatusOr<DecoderConfig> config = Read(more);
  if (!config.ok()) return config.status();
  training.batch = 4;
  training.sequence = 16;
  return BuildDecoder(*config, training, "d", 2);
}

// Names of parameters that are of `dtype`, in order.
std::vector<std::string> ParametersOf(DType dtype, const Graph& graph) {
  std::vector<std::string> names;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::kParameter && tensor.dtype == dtype) names.push_back(tensor.name);
  }
  return names;
}

// Linear layers alone are quantised: no tables, norms, biases, routers, gates of shared experts or adapters.
TEST(DecoderWeightsTest, LinearLayersMayLieInFloat8) {
  Training training;
  training.dtype = DType::kBFloat16;
  training.float8_parameters = true;
  ASSERT_OK_AND_ASSIGN(const Graph dense, Build("layers: 2, ffn: 24, positions: learned, bias: true", training));
  EXPECT_THAT(ParametersOf(DType::kFloat8, dense),
              ElementsAre("qkv.weight", "proj.weight", "mlp1.weight", "mlp2.weight"));
  EXPECT_THAT(ParametersOf(DType::kBFloat16, dense),
              ElementsAre("embedding", "positions", "norm1.gamma", "qkv.bias", "add1.bias", "norm2.gamma", "mlp1.bias",
                          "add2.bias", "head", "norm.gamma"));
  training.lora = Lora{.rank = 3, .qkv = false, .mlp1 = false, .mlp2 = false};
  ASSERT_OK_AND_ASSIGN(const Graph experts,
                       Build("layers: 2, ffn: 24, experts: 4, experts_per_token: 2, shared_expert_ffn: 8, "
                             "shared_expert_gate: true, activation: swiglu",
                             training));
  EXPECT_THAT(ParametersOf(DType::kFloat8, experts),
              ElementsAre("qkv.weight", "proj.weight", "mlp1.weight", "mlp2.weight", "shared_mlp1.weight",
                          "shared_mlp2.weight"));
  // What they are multiplied with and give stays as it is.
  for (const absl::string_view product : {"qkv", "proj", "mlp1", "mlp2"}) {
    EXPECT_EQ(experts.tensor(experts.FindTensor(product)).dtype, DType::kBFloat16) << product;
  }
}

std::string ErrorOf(absl::string_view more) { return std::string(Read(more).status().message()); }

// Segments between the embedding and the head: "name repeat x layers of a run".
std::vector<std::string> Stretches(const Graph& graph) {
  std::vector<std::string> stretches;
  for (size_t s = 1; s + 1 < graph.segments.size(); ++s) {
    const Segment& segment = graph.segments[s];
    stretches.push_back(absl::StrCat(segment.name, " ", segment.repeat, " x ", segment.layers()));
  }
  return stretches;
}

// Two values of 3 to each of 2 keys of 4: a group has 2 x 4 + 2 x 3 elements that are mixed, 6 of the gate and two
// logits for each head.
TEST(DecoderLayersTest, LinearAttention) {
  ASSERT_OK_AND_ASSIGN(
      const Graph graph,
      Build("layers: 4, full_attention_every: 2, attention_gate: true, linear_attention: {key_heads: 2, "
            "value_heads: 4, key_dim: 4, value_dim: 3}"));
  EXPECT_THAT(Stretches(graph), ElementsAre("layers 2 x 2"));
  const std::string text = ToText(graph);
  for (const char* const line : {
           "linear0_in_proj: MatMul(linear0_norm1, linear0_in_proj.weight) -> linear0_in_proj  [s b h, h o r -> s b o "
           "r]",
           "linear0_in_split: Split(linear0_in_proj) -> linear0_in_split:0, linear0_in_split:1, linear0_in_split:2",
           "linear0_conv: CausalConv(linear0_in_split:0, linear0_conv.weight) -> linear0_conv",
           "linear0_linear_attention: LinearAttention(linear0_conv, linear0_in_split:2, "
           "linear0_linear_attention.log_rate, linear0_linear_attention.step_bias) -> linear0_linear_attention",
           "linear0_gated_norm: GatedRMSNorm(linear0_linear_attention, linear0_gate_heads, linear0_gated_norm.gamma)",
           "linear0_out_proj: MatMul(linear0_gated_norm, linear0_out_proj.weight) -> linear0_out_proj  [s b o t u, h o "
           "t u "
           "-> s b h]",
           "attention_gate: MatMul(norm1, attention_gate.weight) -> attention_gate  [s b h, h g q d -> s b g q d]",
           "gated_attention: Mul(attention:0, attention_share) -> gated_attention",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_EQ(graph.tensor(graph.FindTensor("linear0_in_proj.weight")).shape, (Shape{8, 2, 14 + 6 + 4}));
}

// Two heads of 4 x 3: logits of 4 decays for each, and of how much is written one for each.
TEST(DecoderLayersTest, KimiDeltaAttention) {
  constexpr absl::string_view kModel =
      "layers: 4, full_attention_every: 2, linear_attention: {form: kimi_delta, value_heads: 2, key_dim: 4, value_dim: "
      "3, decay_rank: 5";
  ASSERT_OK_AND_ASSIGN(const Graph graph, Build(absl::StrCat(kModel, ", gate_rank: 6}")));
  const std::string text = ToText(graph);
  for (const char* const line : {
           "linear0_in_split: Split(linear0_in_proj) -> linear0_in_split:0, linear0_in_split:1 ",
           "linear0_gate_up: MatMul(linear0_gate_down, linear0_gate_up.weight) -> linear0_gate_up  [s b a, a o i -> s "
           "b "
           "o i]",
           "linear0_linear_attention: LinearAttention(linear0_conv, linear0_decay_up, "
           "linear0_linear_attention.log_rate, "
           "linear0_linear_attention.step_bias, linear0_in_split:1) -> linear0_linear_attention",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  const auto shape = [&graph](const char* name) { return graph.tensor(graph.FindTensor(name)).shape; };
  EXPECT_EQ(shape("linear0_in_proj.weight"), (Shape{8, 2, 8 + 3 + 1}));
  EXPECT_EQ(shape("linear0_decay_down.weight"), (Shape{8, 5}));
  EXPECT_EQ(shape("linear0_decay_up.weight"), (Shape{5, 2, 4}));
  EXPECT_EQ(shape("linear0_linear_attention.step_bias"), (Shape{2, 1, 4}));
  // The gate from the hidden state: as with the gated delta rule.
  ASSERT_OK_AND_ASSIGN(const Graph whole, Build(absl::StrCat(kModel, ", gate_rank: 0}")));
  EXPECT_EQ(whole.tensor(whole.FindTensor("linear0_in_proj.weight")).shape, (Shape{8, 2, 8 + 3 + 3 + 1}));
  ASSERT_OK_AND_ASSIGN(const DecoderConfig config, Read(absl::StrCat(kModel, ", gate_rank: 6}")));
  // Of products: 8 x 24, 2 x (8 + 3) x 6 or rather 8 x 6 + 6 x 6, 8 x 5 + 5 x 8, 6 x 8; and 2 x 11 x 4 taps.
  EXPECT_EQ(LinearAttentionParameters(config), 8 * 24 + 8 * 6 + 6 * 6 + 8 * 5 + 5 * 8 + 6 * 8 + 2 * 11 * 4);
  EXPECT_THAT(ErrorOf("layers: 4, linear_attention: {value_heads: 2, decay_rank: 4}"),
              HasSubstr("decay_rank: found it of another form, wanted `form: kimi_delta` beside it"));
}

// By layer: w and W have a window, a and A see all; of the small ones the feed-forward layer is dense.
TEST(DecoderLayersTest, WindowsBesideDenseLayers) {
  const auto layers_of = [](int64_t layers, int64_t dense, int64_t every, int64_t at, int64_t expert_every = 1) {
    DecoderConfig c;
    c.layers = layers;
    c.dense_layers = dense;
    c.sliding_window = 4;
    c.full_attention_every = every;
    c.full_attention_at = at;
    c.experts = 2;
    c.expert_every = expert_every;
    std::string text;
    for (const LayerKind& kind : KindsOf(c)) {
      text.push_back(kind.experts ? kind.window > 0 ? 'W' : 'A' : kind.window > 0 ? 'w' : 'a');
    }
    return text;
  };
  EXPECT_EQ(layers_of(9, 1, 4, 0), "wWWAWWWAW");
  EXPECT_EQ(layers_of(8, 5, 3, 1), "awwawWAW");
  EXPECT_EQ(layers_of(5, 0, 4, 1), "AWWWA");
  EXPECT_EQ(layers_of(8, 0, 3, 0, 2), "wWaWwAwW");
  EXPECT_EQ(layers_of(7, 1, 3, 0, 2), "wwAwWaW");
  ASSERT_OK_AND_ASSIGN(const Graph graph,
                       Build("layers: 16, sliding_window: 4, full_attention_every: 4, dense_layers: 1, dense_ffn: 16, "
                             "experts: 2, experts_per_token: 1"));
  EXPECT_THAT(Stretches(graph), ElementsAre("layers 1 x 4", "layers2 3 x 4"));
}

// K: whole, w: a window.
TEST(DecoderLayersTest, LayersInNoPeriod) {
  ASSERT_OK_AND_ASSIGN(const DecoderConfig c, Read("layers: 6, sliding_window: 4, full_attention_layers: [0, 3, 4]"));
  std::string text;
  for (const LayerKind& kind : KindsOf(c)) text.push_back(kind.window > 0 ? 'w' : 'K');
  EXPECT_EQ(text, "KwwKKw");
  EXPECT_EQ(NextKind(c).window, 4);  // as the last
  ASSERT_OK(Build("layers: 6, sliding_window: 4, full_attention_layers: [0, 3, 4]"));
  EXPECT_THAT(ErrorOf("layers: 6, sliding_window: 4, full_attention_layers: [0, 3, 3]"),
              HasSubstr("full_attention_layers: found 3, wanted numbers of layers from 0 to 5, in order"));
  EXPECT_THAT(ErrorOf("layers: 6, sliding_window: 4, full_attention_layers: [6]"),
              HasSubstr("found 6, wanted numbers"));
  EXPECT_THAT(ErrorOf("layers: 6, sliding_window: 4, full_attention_every: 2, full_attention_layers: [1]"),
              HasSubstr("either it or `full_attention_layers`"));
  EXPECT_THAT(ErrorOf("layers: 6, full_attention_layers: [1]"), HasSubstr("where all layers are alike"));
}

// Kimi Linear's order, but for its first layer's kind: dense, then experts, with attention in each fourth.
TEST(DecoderLayersTest, LinearAttentionBehindDenseLayers) {
  ASSERT_OK_AND_ASSIGN(const DecoderConfig c,
                       Read("layers: 8, full_attention_every: 4, dense_layers: 1, dense_ffn: 16, experts: 2, "
                            "experts_per_token: 1, linear_attention: {value_heads: 2, key_dim: 4}"));
  std::string text;
  for (const LayerKind& kind : KindsOf(c)) text.push_back(kind.linear ? kind.experts ? 'L' : 'l' : 'A');
  EXPECT_EQ(text, "lLLALLLA");
}

// Weights of one group are of its queries, a key and a value.
TEST(DecoderLayersTest, HeadsByKindOfLayer) {
  constexpr absl::string_view kModel =
      "layers: 4, kv_heads: 1, head_dim: 4, sliding_window: 4, positions: rotary, "
      "qk_norm: true, attention_gate: true, full_attention_every: 2";
  ASSERT_OK_AND_ASSIGN(const Graph graph,
                       Build(absl::StrCat(kModel, ", full_attention_heads: {heads: 6, kv_heads: 3, head_dim: 6}")));
  const auto shape = [&graph](const char* name) { return graph.tensor(graph.FindTensor(name)).shape; };
  EXPECT_EQ(shape("window0_qkv.weight"), (Shape{8, 1, 2 + 2, 4}));
  EXPECT_EQ(shape("qkv.weight"), (Shape{8, 3, 2 + 2, 6}));
  EXPECT_EQ(shape("window0_proj.weight"), (Shape{8, 1, 2, 4}));
  EXPECT_EQ(shape("proj.weight"), (Shape{8, 3, 2, 6}));
  EXPECT_EQ(shape("attention_gate.weight"), (Shape{8, 3, 2, 6}));
  EXPECT_EQ(shape("qk_norm.gamma"), (Shape{2, 6}));
  // Not given: as the others have it.
  ASSERT_OK_AND_ASSIGN(const DecoderConfig wide, Read(absl::StrCat(kModel, ", full_attention_heads: {head_dim: 6}")));
  EXPECT_EQ(wide.full_attention_heads, (AttentionHeads{2, 1, 6}));
  // q, k, v, the gate and the result: 8 x 4 x (2 + 1 + 1 + 2 + 2) of a window.
  EXPECT_EQ(AttentionParameters(wide, 4), 8 * 4 * 8);
  EXPECT_EQ(AttentionParameters(wide), 8 * 6 * 8);
  for (const auto& [heads, found] :
       {std::pair("{heads: 5, kv_heads: 2}", "found kv_heads of 2, wanted a divisor of heads = 5"),
        std::pair("{head_dim: 5}", "found head_dim of 5, wanted an even number"), std::pair("{width: 5}", "width")}) {
    EXPECT_THAT(ErrorOf(absl::StrCat(kModel, ", full_attention_heads: ", heads)), HasSubstr(found));
  }
  EXPECT_THAT(ErrorOf("layers: 4, full_attention_heads: {heads: 4}"), HasSubstr("where all attention is alike"));
  EXPECT_THAT(ErrorOf("layers: 4, sliding_window: 4, full_attention_every: 2, positions: rotary, kv_lora_rank: 4, "
                      "rope_head_dim: 2, full_attention_heads: {heads: 4}"),
              HasSubstr("it beside latent attention"));
}

// Of a group 2 queries and a key of 4, and a value of 2: 14 columns, of which 12 are turned. Weights by hand: 2 groups
// of 14 columns, and 2 x 2 x 2 that go back; with a gate as many more.
TEST(DecoderLayersTest, ValuesNarrowerThanKeys) {
  constexpr absl::string_view kModel = "layers: 4, kv_heads: 1, head_dim: 4, positions: rotary";
  ASSERT_OK_AND_ASSIGN(const Graph graph, Build(absl::StrCat(kModel, ", value_head_dim: 2, attention_gate: true")));
  const auto shape = [&graph](const char* name) { return graph.tensor(graph.FindTensor(name)).shape; };
  EXPECT_EQ(shape("qkv.weight"), (Shape{8, 1, 14}));
  EXPECT_EQ(shape("proj.weight"), (Shape{8, 1, 2, 2}));
  EXPECT_EQ(shape("attention_gate.weight"), (Shape{8, 1, 2, 2}));
  EXPECT_EQ(graph.op(graph.FindOp("rotary")).attrs.head_width, 4);
  ASSERT_OK_AND_ASSIGN(const DecoderConfig narrow, Read(absl::StrCat(kModel, ", value_head_dim: 2")));
  EXPECT_EQ(AttentionParameters(narrow), 8 * (14 + 2 * 2));
  ASSERT_OK_AND_ASSIGN(const DecoderConfig same, Read(absl::StrCat(kModel, ", value_head_dim: 4")));
  ASSERT_OK_AND_ASSIGN(const DecoderConfig plain, Read(kModel));
  EXPECT_EQ(same, plain);
  EXPECT_THAT(ErrorOf(absl::StrCat(kModel, ", value_head_dim: 6")),
              HasSubstr("head_dim: found 4, wanted more than value_head_dim = 6"));
  EXPECT_THAT(ErrorOf(absl::StrCat(kModel, ", value_head_dim: 3")),
              HasSubstr("value_head_dim: found 3, wanted an even"));
  EXPECT_THAT(ErrorOf(absl::StrCat(kModel, ", value_head_dim: 2, qk_norm: true")), HasSubstr("qk_norm: false"));
}

// Attention first, and leftover layers behind the last run have none.
TEST(DecoderLayersTest, WhichLayerHasAttention) {
  constexpr absl::string_view kSpace =
      "linear_attention: {form: state_space, key_heads: 1, value_heads: 2, key_dim: 4, value_dim: 3}";
  ASSERT_OK_AND_ASSIGN(const Graph graph,
                       Build(absl::StrCat("layers: 7, full_attention_every: 3, full_attention_at: 2, ", kSpace)));
  EXPECT_THAT(Stretches(graph), ElementsAre("layers 2 x 3", "last_layers 1 x 1"));
  const std::string text = ToText(graph);
  EXPECT_THAT(text, HasSubstr("layer1_attention: Attention("));
  EXPECT_THAT(text, HasSubstr("last_linear_attention: LinearAttention("));
  EXPECT_THAT(text, HasSubstr("forward  linear_attention: LinearAttention("));
  // What is left over has attention, too: *MM*MM*M.
  ASSERT_OK_AND_ASSIGN(const Graph whole,
                       Build(absl::StrCat("layers: 8, full_attention_every: 3, full_attention_at: 1, ", kSpace)));
  EXPECT_THAT(Stretches(whole), ElementsAre("layers 1 x 2", "layers2 2 x 3"));
  EXPECT_THAT(ToText(whole), HasSubstr("part2_layer1_attention: Attention("));
  EXPECT_THAT(ErrorOf(absl::StrCat("layers: 6, full_attention_every: 3, full_attention_at: 4, ", kSpace)),
              HasSubstr("full_attention_at: found 4, wanted at most full_attention_every = 3"));
  EXPECT_THAT(ErrorOf(absl::StrCat("layers: 6, full_attention_at: 1, ", kSpace)),
              HasSubstr("`full_attention_every` beside it"));
  EXPECT_THAT(ErrorOf(absl::StrCat("layers: 6, sliding_window: 4, ", kSpace)),
              HasSubstr("sliding_window: found 4, wanted none beside linear_attention"));
  EXPECT_THAT(ErrorOf("layers: 6, linear_attention: {key_heads: 2, value_heads: 3}"),
              HasSubstr("key_heads: found 2, wanted a divisor of value_heads = 3"));
}

// As few letters written out as may be, a run counting as one more.
TEST(DecoderLayersTest, PatternsAreRunsThatRepeat) {
  const auto stretches = [](absl::string_view pattern) {
    const absl::StatusOr<Graph> graph = Build(absl::StrCat(
        "layer_pattern: \"", pattern, "\", experts: 2, experts_per_token: 1, linear_attention: {value_heads: 2}"));
    EXPECT_OK(graph);
    return graph.ok() ? Stretches(*graph) : std::vector<std::string>();
  };
  EXPECT_THAT(stretches("MEMEMEM*E"), ElementsAre("layers 3 x 2", "layers2 1 x 3"));
  // Nemotron 3 Nano's
  EXPECT_THAT(stretches("MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"),
              ElementsAre("layers 5 x 7", "layers2 3 x 2", "layers3 1 x 3", "layers4 4 x 2"));
  EXPECT_THAT(stretches("-"), ElementsAre("layers 1 x 1"));
}

TEST(DecoderLayersTest, WrongPatternsAreErrors) {
  constexpr absl::string_view kLinear = ", linear_attention: {value_heads: 2}";
  EXPECT_THAT(ErrorOf(absl::StrCat("layer_pattern: \"M-X-\"", kLinear)),
              HasSubstr("layer_pattern: found \"X\" in place 3, wanted letters M"));
  EXPECT_THAT(ErrorOf("layer_pattern: \"M-\""),
              HasSubstr("found M, linear attention, wanted `linear_attention` beside"));
  EXPECT_THAT(ErrorOf("layer_pattern: \"*E\""), HasSubstr("found E, experts, wanted `experts` beside it"));
  EXPECT_THAT(ErrorOf("layer_pattern: \"**\""), HasSubstr("wanted a layer with a feed-forward layer or experts"));
  EXPECT_THAT(ErrorOf("layer_pattern: \"*-\", layers: 3"), HasSubstr("found 2 letters, wanted one for each of the 3"));
  EXPECT_THAT(ErrorOf("layer_pattern: \"\""), HasSubstr("found 0 letters"));
  EXPECT_THAT(ErrorOf("layer_pattern: \"*-\", sliding_window: 4"),
              HasSubstr("sliding_window: found it beside layer_pattern"));
}

// A token is brought to 4 elements in front of the experts, and back.
TEST(DecoderLayersTest, ExpertsOfNarrowTokens) {
  ASSERT_OK_AND_ASSIGN(const Graph graph,
                       Build("layers: 1, ffn: 16, experts: 4, experts_per_token: 2, expert_hidden: 4, "
                             "shared_expert_ffn: 8, shared_expert_gate: true"));
  EXPECT_EQ(graph.tensor(graph.FindTensor("mlp1.weight")).shape, (Shape{4, 4, 16}));
  EXPECT_EQ(graph.tensor(graph.FindTensor("expert_up.weight")).shape, (Shape{4, 8}));
  const std::string text = ToText(graph);
  EXPECT_THAT(text, HasSubstr("dispatch: Dispatch(expert_down, router) -> dispatch"));
  EXPECT_THAT(text,
              HasSubstr("shared_gated: Mul(shared_activation, shared_share) -> shared_gated  [s b f, s b 1 -> s b f]"));
  EXPECT_THAT(ErrorOf("layers: 1, shared_expert_gate: true"), HasSubstr("found it without a shared expert"));
  EXPECT_THAT(ErrorOf("layers: 1, expert_hidden: 4"), HasSubstr("found it without experts"));
}

}  // namespace
}  // namespace meshwright
