#include "models/decoder.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

Training TrainingOf(int64_t batch, int64_t sequence) {
  Training training;
  training.batch = batch;
  training.sequence = sequence;
  return training;
}

absl::StatusOr<DecoderConfig> Read(absl::string_view section, const Training& training) {
  const absl::StatusOr<Document> document = ParseDocument(absl::StrCat("decoder: ", section, "\n"), "m.yaml");
  if (!document.ok()) return document.status();
  return ReadDecoder(document->root()["decoder"], training);
}

// The graph of a decoder for one micro-batch of 2 rows of 16 tokens.
absl::StatusOr<Graph> Build(absl::string_view section, const Training& training = TrainingOf(4, 16)) {
  const absl::StatusOr<DecoderConfig> config = Read(section, training);
  if (!config.ok()) return config.status();
  return BuildDecoder(*config, training, "d", 2);
}

const Shape& ShapeOf(const Graph& graph, absl::string_view tensor) {
  EXPECT_TRUE(graph.FindTensor(tensor).valid()) << tensor;
  return graph.tensor(graph.FindTensor(tensor)).shape;
}

// A product has A of its inputs by the rank and B of the rank by its columns beside it, which train alone. Of a swiglu
// layer with 2 heads of 4, 1 of keys and values, ffn 24 and the rank 3:
TEST(DecoderTest, Adapters) {
  Training training = TrainingOf(4, 16);
  training.lora = Lora{.rank = 3, .alpha = 6};
  constexpr absl::string_view kSizes =
      "{hidden: 8, layers: 5, heads: 2, kv_heads: 1, ffn: 24, vocab: 32, activation: swiglu, norm: rms_norm";
  ASSERT_OK_AND_ASSIGN(const Graph graph, Build(absl::StrCat(kSizes, "}"), training));
  const std::string text = ToText(graph);
  for (const absl::string_view line : {
           "qkv.lora_a: MatMul(norm1, qkv.lora_a.weight) -> qkv.lora_a  [s b h, h l -> s b l]",
           "qkv.lora_scale: Scale(qkv.lora_a) -> qkv.lora_scale  [s b l -> s b l]",
           "qkv.lora_b: MatMul(qkv.lora_scale, qkv.lora_b.weight) -> qkv.lora_b  [s b l, l g r d -> s b g r d]",
           "qkv.lora_add: Add(qkv, qkv.lora_b) -> qkv.lora_add  [s b g r d, s b g r d -> s b g r d]",
           "proj.lora_a: MatMul(attention:0, proj.lora_a.weight) -> proj.lora_a  [s b g q d, g q d l -> s b l]",
           "add1: Add(proj, proj.lora_b, layers/in) -> add1  [s b h, s b h, s b h -> s b h]",
           "mlp1.lora_b: MatMul(mlp1.lora_scale, mlp1.lora_b.weight) -> mlp1.lora_b  [s b l, l t f -> s b t f]",
           "mlp2.lora_a: MatMul(activation, mlp2.lora_a.weight) -> mlp2.lora_a  [s b f, f l -> s b l]",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_EQ(graph.op(graph.FindOp("qkv.lora_scale")).attrs.scale, 2);  // 6 / 3
  EXPECT_EQ(graph.tensor(graph.FindTensor("mlp2.lora_a.weight")).init.high, 1 / std::sqrt(24.0));
  // In and out of qkv 8 + 16, proj 8 + 8, mlp1 8 + 48, mlp2 24 + 8.
  EXPECT_EQ(graph.NumTrainableParameters(), 5 * 3 * (24 + 16 + 56 + 32));
  training.lora.reset();
  ASSERT_OK_AND_ASSIGN(const Graph without, Build(absl::StrCat(kSizes, "}"), training));
  EXPECT_EQ(graph.NumParameters(), without.NumParameters() + graph.NumTrainableParameters());
  EXPECT_EQ(without.NumTrainableParameters(), without.NumParameters());

  // With experts, those of each; a token's idle ones are idle with theirs. No scale where it is 1.
  training.lora = Lora{.rank = 3, .qkv = false, .proj = false};
  const std::string experts = absl::StrCat(kSizes, ", experts: 4, experts_per_token: 1}");
  ASSERT_OK_AND_ASSIGN(const Graph sparse, Build(experts, training));
  EXPECT_EQ(ShapeOf(sparse, "mlp1.lora_a.weight"), (Shape{4, 8, 3}));
  EXPECT_EQ(ShapeOf(sparse, "mlp2.lora_b.weight"), (Shape{4, 3, 8}));
  EXPECT_FALSE(sparse.FindOp("mlp1.lora_scale").valid());
  EXPECT_FALSE(sparse.FindTensor("qkv.lora_a.weight").valid());
  EXPECT_EQ(sparse.NumTrainableParameters(), 5 * 4 * 3 * (56 + 32));
  ASSERT_OK_AND_ASSIGN(const DecoderConfig config, Read(experts, training));
  EXPECT_EQ(IdleParameters(config, training), 5 * (4 - 1) * (3 * 8 * 24 + 3 * (56 + 32)));

  // A classifier's output layer is new, and trains, too.
  training.lora = Lora{.rank = 3, .mlp1 = false, .mlp2 = false};
  ASSERT_OK_AND_ASSIGN(const Graph classifier, Build(absl::StrCat(kSizes, ", classes: 7}"), training));
  EXPECT_EQ(classifier.NumTrainableParameters(), 5 * 3 * (24 + 16) + 7 * 8);
}

TEST(DecoderTest, GptStyle) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, Build("{hidden: 8, layers: 3, heads: 2, vocab: 32, bias: true, "
                                                "tied_embeddings: true, max_positions: 24}"));
  EXPECT_EQ(ToText(graph), R"(graph d
  input tokens int32 (2, 16)
  input labels int32 (2, 16)
  parameter embedding float32 (32, 8)
  parameter positions float32 (24, 8)
  parameter norm1.gamma float32 (8)
  parameter norm1.beta float32 (8)
  parameter qkv.weight float32 (8, 2, 3, 4)
  parameter qkv.bias float32 (2, 3, 4)
  parameter proj.weight float32 (8, 2, 1, 4)
  parameter add1.bias float32 (8)
  parameter norm2.gamma float32 (8)
  parameter norm2.beta float32 (8)
  parameter mlp1.weight float32 (8, 32)
  parameter mlp1.bias float32 (32)
  parameter mlp2.weight float32 (32, 8)
  parameter add2.bias float32 (8)
  parameter norm.gamma float32 (8)
  parameter norm.beta float32 (8)
  loss loss float32 ()
  segment embed x1
    forward  embed: Gather(embedding, tokens) -> embed  [v h, b s -> s b h]
    forward  add_positions: AddPositions(embed, positions) -> add_positions  [s b h, p! h -> s b h]
  segment layers x3
    forward  norm1: LayerNorm(layers/in, norm1.gamma, norm1.beta) -> norm1  [s b h!, h!, h! -> s b h!]
    forward  qkv: MatMul(norm1, qkv.weight, qkv.bias) -> qkv  [s b h!, h! g r d, g r d -> s b g r d]
    forward  attention: Attention(qkv) -> attention:0, attention:1  [s! b g r! d! -> s! b g q! d!, s! b g q!]
    forward  proj: MatMul(attention:0, proj.weight) -> proj  [s b g q d, h g q d -> s b h]
    forward  add1: Add(proj, add1.bias, layers/in) -> add1  [s b h, h, s b h -> s b h]
    forward  norm2: LayerNorm(add1, norm2.gamma, norm2.beta) -> norm2  [s b h!, h!, h! -> s b h!]
    forward  mlp1: MatMul(norm2, mlp1.weight, mlp1.bias) -> mlp1  [s b h!, h! f, f -> s b f]
    forward  activation: GeLU(mlp1) -> activation  [s b f -> s b f]
    forward  mlp2: MatMul(activation, mlp2.weight) -> mlp2  [s b f, f h -> s b h]
    forward  add2: Add(mlp2, add2.bias, add1) -> add2  [s b h, h, s b h -> s b h]
  segment head x1
    forward  norm: LayerNorm(layers/out, norm.gamma, norm.beta) -> norm  [s b h!, h!, h! -> s b h!]
    forward  logits: MatMul(norm, embedding) -> logits  [s b h, v h -> s b v]
    forward  row_max: RowMax(logits) -> row_max  [s b v -> s b]
    forward  exp_sum: ExpSumAndPick(logits, row_max, labels) -> exp_sum:0, exp_sum:1  [s b v, s b, b s -> s b, s b]
    forward  loss: LossFromPartials(row_max, exp_sum:0, exp_sum:1) -> loss  [s b, s b, s b -> ]
)");
  // vh + ph + L (12 h^2 + 13 h) + 2h with h 8, v 32, p 24, L 3
  EXPECT_EQ(graph.NumParameters(), 32 * 8 + 24 * 8 + 3 * (12 * 64 + 13 * 8) + 16);
  EXPECT_EQ(graph.op(graph.FindOp("loss")).attrs.scale, 1.0 / 32);  // 2 rows of 16 tokens
  EXPECT_EQ(graph.op(graph.FindOp("attention")).attrs.scale, 0.5);  // 1 / sqrt(4)
  EXPECT_EQ(graph.op(graph.FindOp("attention")).recompute_group, "attention");
  EXPECT_EQ(graph.op(graph.FindOp("norm2")).recompute_group, "activation");
  EXPECT_EQ(graph.op(graph.FindOp("activation")).recompute_group, "activation");
  EXPECT_EQ(ShapeOf(graph, "attention:0"), (Shape{16, 2, 2, 1, 4}));
  EXPECT_EQ(ShapeOf(graph, "logits"), (Shape{16, 2, 32}));
}

TEST(DecoderTest, LlamaStyleGroupsQueriesByKvHead) {
  ASSERT_OK_AND_ASSIGN(const Graph graph,
                       Build("{hidden: 16, layers: 2, heads: 4, kv_heads: 2, ffn: 24, vocab: 32, activation: swiglu, "
                             "norm: rms_norm, positions: rotary, rope_theta: 500000}"));
  EXPECT_EQ(ShapeOf(graph, "qkv.weight"), (Shape{16, 2, 4, 4}));  // 2 groups of 2 queries, a key and a value
  EXPECT_EQ(ShapeOf(graph, "attention:1"), (Shape{16, 2, 2, 2}));
  EXPECT_EQ(ShapeOf(graph, "mlp1.weight"), (Shape{16, 2, 24}));
  EXPECT_EQ(ShapeOf(graph, "activation"), (Shape{16, 2, 24}));
  EXPECT_EQ(graph.op(graph.FindOp("rotary")).attrs.theta, 500000);
  EXPECT_FALSE(graph.FindTensor("norm1.beta").valid());
  EXPECT_FALSE(graph.FindTensor("positions").valid());
  // 2vh + L (2 h^2 + 2 h k + 3 h f + 2h) + h with h 16, k 8, f 24, v 32, L 2
  EXPECT_EQ(graph.NumParameters(), 2 * 32 * 16 + 2 * (2 * 256 + 2 * 16 * 8 + 3 * 16 * 24 + 32) + 16);
}

TEST(DecoderTest, HeadSizeNeedNotBeHiddenByHeads) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, Build("{hidden: 16, layers: 1, heads: 3, head_dim: 8, vocab: 32}"));
  EXPECT_EQ(ShapeOf(graph, "qkv.weight"), (Shape{16, 3, 3, 8}));
  EXPECT_EQ(ShapeOf(graph, "proj.weight"), (Shape{16, 3, 1, 8}));
}

// DeepSeek-V2, section 2.1, of 2 heads of 4 + 2, values of 3, queries from 5 elements, keys and values from 7.
TEST(DecoderTest, LatentAttention) {
  constexpr absl::string_view kSizes =
      "{hidden: 8, layers: 5, heads: 2, head_dim: 4, rope_head_dim: 2, value_head_dim: 3, kv_lora_rank: 7, ffn: 24, "
      "vocab: 32, activation: swiglu, norm: rms_norm, positions: rotary";
  ASSERT_OK_AND_ASSIGN(const Graph graph, Build(absl::StrCat(kSizes, ", q_lora_rank: 5}")));
  const std::string text = ToText(graph);
  for (const absl::string_view line : {
           "q_down: MatMul(norm1, q_down.weight) -> q_down  [s b h, h a -> s b a]",
           "q_norm: RMSNorm(q_down, q_norm.gamma) -> q_norm  [s b a!, a! -> s b a!]",
           "q_up: MatMul(q_norm, q_up.weight) -> q_up  [s b a, a g d -> s b g d]",
           "kv_down: MatMul(norm1, kv_down.weight) -> kv_down  [s b h, h m -> s b m]",
           "kv_norm: RMSNorm(kv_split:0, kv_norm.gamma) -> kv_norm  [s b k!, k! -> s b k!]",
           "kv_up: MatMul(kv_norm, kv_up.weight) -> kv_up  [s b k, k g u -> s b g u]",
           "latent_heads: LatentHeads(q_up, kv_split:1, kv_up) -> latent_heads",
           "proj: MatMul(attention:0, proj.weight) -> proj  [s b g q u, h g q u -> s b h]",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_EQ(ShapeOf(graph, "q_up.weight"), (Shape{5, 2, 6}));
  EXPECT_EQ(ShapeOf(graph, "kv_down.weight"), (Shape{8, 9}));
  EXPECT_EQ(ShapeOf(graph, "kv_up.weight"), (Shape{7, 2, 7}));
  EXPECT_EQ(ShapeOf(graph, "latent_heads"), (Shape{16, 2, 2, 15}));
  EXPECT_EQ(ShapeOf(graph, "attention:0"), (Shape{16, 2, 2, 1, 3}));
  EXPECT_EQ(ShapeOf(graph, "proj.weight"), (Shape{8, 2, 1, 3}));
  const Op& attention = graph.op(graph.tensor(graph.FindTensor("attention:0")).producer);
  EXPECT_DOUBLE_EQ(attention.attrs.scale, 1 / std::sqrt(6.0));
  // 8 x 5 + 5 x 12, 8 x 9, 7 x 14, and 6 x 8.
  ASSERT_OK_AND_ASSIGN(DecoderConfig config, Read(absl::StrCat(kSizes, ", q_lora_rank: 5}"), TrainingOf(4, 16)));
  EXPECT_EQ(AttentionParameters(config), 40 + 60 + 72 + 98 + 48);
  ASSERT_OK_AND_ASSIGN(const Graph whole, Build(absl::StrCat(kSizes, "}")));
  EXPECT_FALSE(whole.FindTensor("q_down").valid());
  EXPECT_EQ(ShapeOf(whole, "q_up.weight"), (Shape{8, 2, 6}));
}

// 7 layers, of which every third sees all: two runs of three, and one that is left over.
TEST(DecoderTest, Windows) {
  constexpr absl::string_view kSizes = "{hidden: 8, layers: 7, heads: 2, vocab: 32, sliding_window: 4";
  const auto window_of = [](const Graph& graph, absl::string_view tensor) {
    return graph.op(graph.tensor(graph.FindTensor(tensor)).producer).attrs.window;
  };
  ASSERT_OK_AND_ASSIGN(const Graph graph, Build(absl::StrCat(kSizes, ", full_attention_every: 3}")));
  ASSERT_EQ(graph.segments.size(), 4u);
  EXPECT_EQ(graph.segments[1].repeat, 2);
  EXPECT_EQ(graph.segments[1].layers(), 3);
  EXPECT_EQ(graph.segments[2].name, "last_layers");
  EXPECT_EQ(graph.segments[2].repeat, 1);
  EXPECT_EQ(window_of(graph, "window0_attention:0"), 4);
  EXPECT_EQ(window_of(graph, "window1_attention:0"), 4);
  EXPECT_EQ(window_of(graph, "attention:0"), 0);
  EXPECT_EQ(window_of(graph, "last_attention:0"), 4);
  ASSERT_OK_AND_ASSIGN(const Graph alike, Build(absl::StrCat(kSizes, "}")));
  EXPECT_EQ(alike.segments[1].repeat, 7);
  EXPECT_EQ(window_of(alike, "attention:0"), 4);
  EXPECT_EQ(alike.NumParameters(), graph.NumParameters());
  // A window that holds the whole sequence is none.
  ASSERT_OK_AND_ASSIGN(const Graph idle, Build(absl::StrCat(kSizes, ", full_attention_every: 3}"), TrainingOf(4, 4)));
  EXPECT_EQ(idle.segments[1].repeat, 7);
  EXPECT_EQ(window_of(idle, "attention:0"), 0);
  // Beside first layers without experts: of four kinds, and of two where no window binds.
  const std::string mixed = absl::StrCat(kSizes, ", full_attention_every: 3, experts: 2, experts_per_token: 1, ",
                                         "dense_layers: 1, dense_ffn: 16}");
  ASSERT_OK_AND_ASSIGN(const Graph dense, Build(mixed, TrainingOf(4, 4)));
  EXPECT_EQ(dense.segments[1].repeat, 1);
  EXPECT_EQ(dense.segments[2].repeat, 6);
  ASSERT_OK_AND_ASSIGN(const Graph both, Build(mixed));
  EXPECT_EQ(both.NumParameters(), dense.NumParameters() + (16 - 4) * 8) << "positions of 16 tokens, not of 4";
  EXPECT_EQ(window_of(both, "attention:0"), 4);
  EXPECT_EQ(window_of(both, "part2_window0_attention:0"), 4);
  EXPECT_EQ(window_of(both, "part2_layer1_attention:0"), 0);
  EXPECT_EQ(window_of(both, "part2_attention:0"), 4);
}

// GPT-J's and GPT-NeoX's: both halves take the same, and what they make is added at once, so that partial sums of both
// are one sum.
TEST(DecoderTest, LayersSideBySide) {
  constexpr absl::string_view kSizes = "{hidden: 8, layers: 2, heads: 2, vocab: 32, bias: true, layer_form: ";
  ASSERT_OK_AND_ASSIGN(const Graph two, Build(absl::StrCat(kSizes, "parallel}")));
  const std::string text = ToText(two);
  for (const char* const line : {
           "mlp1: MatMul(norm2, mlp1.weight, mlp1.bias) -> mlp1",
           "sum: Add(proj, mlp2) -> sum",
           "add: Add(sum, add1.bias, add2.bias, layers/in) -> add  [s b h, h, h, s b h -> s b h]",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  ASSERT_OK_AND_ASSIGN(const Graph one, Build(absl::StrCat(kSizes, "parallel_one_norm}")));
  EXPECT_THAT(ToText(one), HasSubstr("mlp1: MatMul(norm1, mlp1.weight, mlp1.bias) -> mlp1"));
  EXPECT_EQ(two.NumParameters() - one.NumParameters(), 2 * 2 * 8);
  EXPECT_THAT(Build(absl::StrCat(kSizes, "parallel, norm_places: both}")).status().message(),
              HasSubstr("norm_places: found both, wanted before, since layer_form is not serial"));
}

// Gemma 2's and OLMo 2's. With a bias, that is added before the norm.
TEST(DecoderTest, NormsBehindTheHalves) {
  constexpr absl::string_view kSizes = "{hidden: 8, layers: 2, heads: 2, vocab: 32, norm: rms_norm, norm_places: ";
  ASSERT_OK_AND_ASSIGN(const Graph after, Build(absl::StrCat(kSizes, "after}")));
  const std::string text = ToText(after);
  for (const char* const line : {
           "qkv: MatMul(layers/in, qkv.weight) -> qkv",
           "norm1_after: RMSNorm(proj, norm1_after.gamma) -> norm1_after",
           "add1: Add(norm1_after, layers/in) -> add1",
           "mlp1: MatMul(add1, mlp1.weight) -> mlp1",
           "add2: Add(norm2_after, add1) -> add2",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  ASSERT_OK_AND_ASSIGN(const Graph both, Build(absl::StrCat(kSizes, "both, bias: true}")));
  EXPECT_THAT(ToText(both), HasSubstr("qkv: MatMul(norm1, qkv.weight, qkv.bias) -> qkv"));
  EXPECT_THAT(ToText(both), HasSubstr("norm2_after: RMSNorm(sum2, norm2_after.gamma) -> norm2_after"));
}

TEST(DecoderTest, NormsOfQueriesAndKeysAndPositionsOfAPart) {
  constexpr absl::string_view kSizes = "{hidden: 16, layers: 1, heads: 4, kv_heads: 2, vocab: 32, positions: rotary";
  ASSERT_OK_AND_ASSIGN(const Graph graph, Build(absl::StrCat(kSizes, ", qk_norm: true, rotary_factor: 0.5}")));
  EXPECT_THAT(ToText(graph), HasSubstr("qk_norm: NormHeads(qkv, qk_norm.gamma) -> qk_norm"));
  EXPECT_THAT(ToText(graph), HasSubstr("rotary: Rotary(qk_norm) -> rotary"));
  EXPECT_EQ(ShapeOf(graph, "qk_norm.gamma"), (Shape{2, 4}));
  EXPECT_EQ(graph.op(graph.FindOp("rotary")).attrs.turned, 2);
  // A factor made of a number of elements gives that number back.
  DecoderConfig config;
  for (config.head_dim = 2; config.head_dim <= 256; config.head_dim += 2) {
    for (int64_t turned = 2; turned <= config.head_dim; turned += 2) {
      config.rotary_factor = static_cast<double>(turned) / static_cast<double>(config.head_dim);
      ASSERT_EQ(TurnedElements(config, config.head_dim), turned) << "of " << config.head_dim;
    }
  }
  EXPECT_THAT(
      Build(absl::StrCat(kSizes, ", rotary_factor: 0.3}")).status().message(),
      HasSubstr("rotary_factor: found 0.3, wanted positions: rotary, and a share that is at least two elements"));
}

// DeepSeek-V3's: what is behind the last layer, and the embedding of the next token, through a layer more and the same
// output layer; labels are one token further on.
TEST(DecoderTest, LayersThatPredictFurtherTokens) {
  constexpr absl::string_view kSizes =
      "{hidden: 8, layers: 3, heads: 2, ffn: 12, vocab: 32, norm: rms_norm, experts: 4, experts_per_token: 2, "
      "dense_layers: 1, dense_ffn: 16, mtp_layers: 2, mtp_loss_weight: 0.3}";
  ASSERT_OK_AND_ASSIGN(const Graph graph, Build(kSizes));
  const std::string text = ToText(graph);
  for (const char* const line : {
           "next_embed: Gather(embedding, labels) -> next_embed",
           "next_join: Concat(next_token_norm, next_state_norm) -> next_join  [s b x!, s b y! -> s b j!]",
           "next_joined: MatMul(next_join, next_joined.weight) -> next_joined",
           "next_add1: Add(next_proj, next_joined) -> next_add1",
           "next_dispatch: Dispatch(next_norm2, next_router) -> next_dispatch",
           "next_logits: MatMul(next_norm, head) -> next_logits",
           "losses1: Add(loss, next_loss) -> losses1",
           "next2_embed: Gather(embedding, labels2) -> next2_embed",
           "next2_state_norm: RMSNorm(next_add2, next2_state_norm.gamma) -> next2_state_norm",
           "losses: Add(losses1, next2_loss) -> losses",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_EQ(graph.tensor(graph.loss).name, "losses");
  // Of 32 tokens a micro-batch, half of 0.3 each.
  EXPECT_DOUBLE_EQ(graph.op(graph.FindOp("loss")).attrs.scale, 1.0 / 32);
  EXPECT_DOUBLE_EQ(graph.op(graph.FindOp("next_loss")).attrs.scale, 0.15 / 32);
  // Attention 4 x 8 x 8, experts 4 x 2 x 8 x 12, router 8 x 4, two norms; joined 16 x 8 and three norms.
  ASSERT_OK_AND_ASSIGN(const Graph without,
                       Build(absl::StrReplaceAll(kSizes, {{", mtp_layers: 2, mtp_loss_weight: 0.3", ""}})));
  EXPECT_EQ(graph.NumParameters() - without.NumParameters(), 2 * (256 + 768 + 32 + 16 + 128 + 24));
  EXPECT_THAT(Build("{hidden: 8, layers: 3, heads: 2, vocab: 32, classes: 2, mtp_layers: 1}").status().message(),
              HasSubstr("mtp_layers: found 1, wanted 0, since there are classes"));
}

TEST(DecoderTest, ExpertsHaveSlots) {
  const Training training = TrainingOf(4, 16);
  const absl::string_view section =
      "{hidden: 8, layers: 2, heads: 2, ffn: 12, vocab: 32, activation: swiglu, norm: rms_norm, positions: none, "
      "experts: 4, experts_per_token: 2}";
  ASSERT_OK_AND_ASSIGN(const Graph graph, Build(section, training));
  // 32 tokens x 2 x 1.25 / 4 experts = 20 slots, which 2 rows divide.
  EXPECT_EQ(ShapeOf(graph, "dispatch"), (Shape{4, 20, 8}));
  EXPECT_EQ(ShapeOf(graph, "mlp1.weight"), (Shape{8, 4, 2, 12}));
  EXPECT_EQ(ShapeOf(graph, "mlp2"), (Shape{4, 20, 8}));
  EXPECT_EQ(ShapeOf(graph, "combine"), (Shape{16, 2, 8}));
  EXPECT_EQ(graph.op(graph.FindOp("combine")).attrs.top_k, 2);
  EXPECT_EQ(ToText(graph.op(graph.FindOp("mlp1")).rule), "e c h, h e t f -> e c t f");
  EXPECT_EQ(graph.NumParameters(), 2 * 32 * 8 + 2 * (4 * 64 + 3 * 4 * 8 * 12 + 8 * 4 + 16) + 8);
}

// DeepSeekMoE 16B (Dai et al. 2024, section 6.1: 28 layers, hidden 2048, 16 heads of 128, 64 experts of 1408 of which a
// token has 6, two shared ones beside them) with experts in its first layer, too: a layer has 4 x 2048^2 of attention,
// 3 x 2048 x (64 x 1408 + 2816) of experts, a router of 2048 x 64 and two norms, the ends 2 x 2048 x 102400 and a norm.
TEST(DecoderTest, ASharedExpertTakesEveryToken) {
  constexpr absl::string_view kText =
      "{hidden: 2048, layers: 28, heads: 16, ffn: 1408, vocab: 102400, experts: 64, experts_per_token: 6, "
      "shared_expert_ffn: 2816, activation: swiglu, norm: rms_norm, positions: rotary}";
  ASSERT_OK_AND_ASSIGN(const Graph graph, Build(kText));
  constexpr int64_t kLayer = 4 * 2048 * 2048 + 3 * 2048 * (64 * 1408 + 2816) + 2048 * 64 + 2 * 2048;
  EXPECT_EQ(graph.NumParameters(), 28 * kLayer + 2 * 2048 * 102400 + 2048);
  EXPECT_EQ(ShapeOf(graph, "shared_mlp1.weight"), (Shape{2048, 2, 2816}));
  EXPECT_EQ(ShapeOf(graph, "shared_mlp2.weight"), (Shape{2816, 2048}));
  // All experts but six are idle: the shared one is not.
  ASSERT_OK_AND_ASSIGN(const DecoderConfig config, Read(kText, TrainingOf(4, 16)));
  EXPECT_EQ(IdleParameters(config, Training()), int64_t{28} * 58 * 3 * 2048 * 1408);
  EXPECT_THAT(ToText(graph), HasSubstr("shared_mlp2"));
}

TEST(DecoderTest, RoutersMayChooseOfSomeGroups) {
  const absl::string_view section =
      "{hidden: 8, layers: 1, heads: 2, vocab: 32, experts: 8, experts_per_token: 2, choice_groups: 4, "
      "choice_groups_per_token: 2}";
  ASSERT_OK_AND_ASSIGN(const Graph graph, Build(section, TrainingOf(4, 16)));
  for (const char* const name : {"dispatch", "combine"}) {
    EXPECT_EQ(graph.op(graph.FindOp(name)).attrs.choice_groups, 4);
    EXPECT_EQ(graph.op(graph.FindOp(name)).attrs.top_choice_groups, 2);
  }
}

TEST(DecoderTest, CapacityIsRoundedUpToAMultipleOfTheRows) {
  DecoderConfig config;
  config.experts = 8;
  config.experts_per_token = 2;
  config.capacity_factor = 1;
  EXPECT_EQ(ExpertCapacity(config, 4 * 16, 4), 16);  // 64 x 2 / 8
  EXPECT_EQ(ExpertCapacity(config, 3 * 5, 3), 6);    // 15 x 2 / 8 = 3.75, rounded up to a multiple of 3
  config.capacity_factor = 1.25;
  EXPECT_EQ(ExpertCapacity(config, 4 * 16, 4), 20);
}

TEST(DecoderTest, UnfusedAttentionKeepsTheProbabilities) {
  Training training = TrainingOf(4, 16);
  training.fused_attention = false;
  training.dtype = DType::kBFloat16;
  ASSERT_OK_AND_ASSIGN(const Graph graph, Build("{hidden: 8, layers: 1, heads: 2, vocab: 32}", training));
  EXPECT_EQ(ShapeOf(graph, "attention:1"), (Shape{16, 2, 2, 1, 16}));
  EXPECT_EQ(graph.tensor(graph.FindTensor("attention:1")).dtype, DType::kBFloat16);
  EXPECT_FALSE(graph.op(graph.FindOp("attention")).attrs.fused);
}

TEST(DecoderTest, UnfusedNorms) {
  Training training = TrainingOf(4, 16);
  training.fused_norms = false;
  constexpr char kLlama[] =
      "{hidden: 8, layers: 1, heads: 2, vocab: 32, norm: rms_norm, positions: rotary, activation: swiglu}";
  ASSERT_OK_AND_ASSIGN(const Graph llama, Build(kLlama, training));
  for (const char* op : {"norm1", "norm2", "norm", "rotary", "activation"}) {
    EXPECT_FALSE(llama.op(llama.FindOp(op)).attrs.fused) << op;
  }
  // Layer norms and GeLU are kernels of PyTorch.
  ASSERT_OK_AND_ASSIGN(const Graph gpt, Build("{hidden: 8, layers: 1, heads: 2, vocab: 32}", training));
  for (const char* op : {"norm1", "activation"}) EXPECT_TRUE(gpt.op(gpt.FindOp(op)).attrs.fused) << op;
}

TEST(DecoderTest, AnUnfusedLossHasFloat32Logits) {
  Training training = TrainingOf(4, 16);
  training.fused_loss = false;
  training.dtype = DType::kBFloat16;
  ASSERT_OK_AND_ASSIGN(const Graph graph, Build("{hidden: 8, layers: 1, heads: 2, vocab: 32}", training));
  EXPECT_EQ(graph.tensor(graph.FindTensor("logits")).dtype, DType::kBFloat16);
  EXPECT_EQ(graph.tensor(graph.FindTensor("logits_cast")).dtype, DType::kFloat32);
  EXPECT_FALSE(graph.op(graph.FindOp("exp_sum")).attrs.fused);
  training.dtype = DType::kFloat32;  // nothing to cast
  ASSERT_OK_AND_ASSIGN(const Graph exact, Build("{hidden: 8, layers: 1, heads: 2, vocab: 32}", training));
  EXPECT_FALSE(exact.FindTensor("logits_cast").valid());
}

// A classifier has an output layer of its own, tied or not; labels are of its classes.
TEST(DecoderTest, ClassesHaveAHeadOfTheirOwn) {
  ASSERT_OK_AND_ASSIGN(const Graph graph,
                       Build("{hidden: 8, layers: 1, heads: 2, vocab: 32, classes: 3, tied_embeddings: true}"));
  EXPECT_THAT(graph.tensor(graph.FindTensor("head")).shape, ::testing::ElementsAre(3, 8));
  EXPECT_THAT(graph.tensor(graph.FindTensor("logits")).shape, ::testing::ElementsAre(16, 2, 3));
  EXPECT_THAT(graph.tensor(graph.FindTensor("embedding")).shape, ::testing::ElementsAre(32, 8));
  EXPECT_EQ(graph.tensor(graph.FindTensor("labels")).init.high, 3);
  EXPECT_EQ(graph.tensor(graph.FindTensor("tokens")).init.high, 32);
}

TEST(DecoderTest, LossAndWhatItIsMadeOfAreFloat32) {
  Training training = TrainingOf(4, 16);
  training.dtype = DType::kBFloat16;
  ASSERT_OK_AND_ASSIGN(const Graph graph, Build("{hidden: 8, layers: 1, heads: 2, vocab: 32}", training));
  for (const absl::string_view name : {"row_max", "exp_sum:0", "exp_sum:1", "loss", "attention:1"}) {
    EXPECT_EQ(graph.tensor(graph.FindTensor(name)).dtype, DType::kFloat32) << name;
  }
  EXPECT_EQ(graph.tensor(graph.FindTensor("logits")).dtype, DType::kBFloat16);
  EXPECT_EQ(graph.tensor(graph.FindTensor("embedding")).dtype, DType::kBFloat16);
}

TEST(DecoderTest, EveryKindOfHalfLayerBuilds) {
  for (const absl::string_view activation : {"gelu", "relu", "swiglu"}) {
    for (const absl::string_view norm : {"layer_norm", "rms_norm"}) {
      for (const absl::string_view positions : {"learned", "rotary", "none"}) {
        for (const absl::string_view rest :
             {"bias: true", "bias: false", "qkv_bias: true", "experts: 4, experts_per_token: 1",
              "experts: 4, experts_per_token: 1, shared_expert_ffn: 16"}) {
          const std::string section =
              absl::StrCat("{hidden: 8, layers: 1, heads: 2, vocab: 32, activation: ", activation, ", norm: ", norm,
                           ", positions: ", positions, ", ", rest, "}");
          EXPECT_THAT(Build(section), IsOk()) << section;
        }
      }
    }
  }
}

TEST(DecoderTest, InitialValues) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, Build("{hidden: 8, layers: 8, heads: 2, vocab: 32, bias: true}"));
  const auto init = [&](absl::string_view name) { return graph.tensor(graph.FindTensor(name)).init; };
  EXPECT_EQ(init("qkv.weight").kind, Initializer::Kind::kNormal);
  EXPECT_EQ(init("qkv.weight").value, 0.02);
  EXPECT_EQ(init("proj.weight").value, 0.005);  // 0.02 / sqrt(2 x 8)
  EXPECT_EQ(init("mlp2.weight").value, 0.005);
  EXPECT_EQ(init("norm1.gamma").kind, Initializer::Kind::kConstant);
  EXPECT_EQ(init("norm1.gamma").value, 1);
  EXPECT_EQ(init("mlp1.bias").value, 0);
  EXPECT_EQ(init("tokens").high, 32);
}

TEST(DecoderTest, SizesThatDoNotFitAreErrorsAtTheirField) {
  const auto error = [](absl::string_view section, int64_t batch = 4) {
    return std::string(Read(section, TrainingOf(batch, 16)).status().message());
  };
  EXPECT_EQ(error("{hidden: 10, layers: 1, heads: 3, vocab: 8}"),
            "m.yaml:1:41: decoder.heads: found 3, wanted a divisor of hidden = 10; or write head_dim");
  EXPECT_THAT(error("{hidden: 12, layers: 1, heads: 6, kv_heads: 4, vocab: 8}"),
              HasSubstr("decoder.kv_heads: found 4, wanted a divisor of heads = 6"));
  EXPECT_THAT(error("{hidden: 6, layers: 1, heads: 2, vocab: 8, positions: rotary}"),
              HasSubstr("decoder.head_dim: found 3, wanted an even number"));
  EXPECT_THAT(error("{hidden: 8, layers: 1, heads: 2, vocab: 8, max_positions: 8}"),
              HasSubstr("decoder.max_positions: found 8, wanted at least training.sequence = 16"));
  EXPECT_THAT(error("{hidden: 8, layers: 1, heads: 2, vocab: 8, experts: 2, experts_per_token: 3}"),
              HasSubstr("decoder.experts_per_token: found 3, wanted at most experts = 2"));
  EXPECT_THAT(error("{hidden: 8, layers: 1, heads: 2, vocab: 8, experts: 4, experts_per_token: 3, choice_groups: 3}"),
              HasSubstr("decoder.choice_groups: found 3, wanted a divisor of experts = 4"));
  EXPECT_THAT(error("{hidden: 8, layers: 1, heads: 2, vocab: 8, experts: 4, experts_per_token: 3, choice_groups: 2}"),
              HasSubstr("decoder.choice_groups_per_token: found 1, wanted groups with at least experts_per_token = 3"));
  EXPECT_THAT(error("{hidden: 8, layers: 1, heads: 2, vocab: 8, experts: 4, experts_per_token: 1, choice_groups: 2, "
                    "choice_groups_per_token: 3}"),
              HasSubstr("decoder.choice_groups_per_token: found 3, wanted at most choice_groups = 2"));
  EXPECT_THAT(error("{hidden: 8, layers: 1, heads: 2, vocab: 8, choice_groups: 2}"),
              HasSubstr("decoder.choice_groups: found it without experts"));
  EXPECT_THAT(error("{hidden: 8, layers: 1, heads: 2, vocab: 8, shared_expert_ffn: 8}"),
              HasSubstr("decoder.shared_expert_ffn: found it without experts"));
  EXPECT_THAT(error("{hidden: 8, layers: 4, heads: 2, vocab: 8, full_attention_every: 2}"),
              HasSubstr("decoder.full_attention_every: found it where all layers are alike, wanted `sliding_window` or "
                        "`linear_attention` beside it"));
  EXPECT_THAT(error("{hidden: 8, layers: 4, heads: 2, vocab: 8, sliding_window: 4, full_attention_every: 5}"),
              HasSubstr("decoder.full_attention_every: found 5, wanted from 2 to layers = 4"));
  const auto latent = [&](absl::string_view more) {
    return error(absl::StrCat("{hidden: 8, layers: 1, heads: 2, vocab: 8, kv_lora_rank: 4, ", more, "}"));
  };
  EXPECT_THAT(latent("positions: rotary"), HasSubstr("decoder.rope_head_dim: found nothing"));
  EXPECT_THAT(latent("positions: rotary, rope_head_dim: 3"),
              HasSubstr("rope_head_dim: found 3, wanted an even number"));
  EXPECT_THAT(latent("rope_head_dim: 2"), HasSubstr("kv_lora_rank: found 4, wanted positions: rotary"));
  EXPECT_THAT(latent("rope_head_dim: 2, positions: rotary, kv_heads: 1"),
              HasSubstr("kv_heads: found 1, wanted heads = 2, each of which has a key of its own"));
  EXPECT_THAT(latent("rope_head_dim: 2, positions: rotary, bias: true"), HasSubstr("bias and qkv_bias: false"));
  EXPECT_THAT(error("{hidden: 8, layers: 1, heads: 2, vocab: 8, q_lora_rank: 4}"),
              HasSubstr("decoder.q_lora_rank: found it without latent attention, wanted `kv_lora_rank` beside it"));
  const auto dense = [&](absl::string_view fields) {
    return error(absl::StrCat("{hidden: 8, layers: 5, heads: 2, vocab: 8, ", fields, "}"));
  };
  EXPECT_THAT(dense("dense_layers: 1"), HasSubstr("decoder.dense_layers: found it without experts"));
  EXPECT_THAT(dense("expert_every: 1"), HasSubstr("decoder.expert_every: found it without experts"));
  EXPECT_THAT(dense("experts: 2, experts_per_token: 1, dense_ffn: 8"),
              HasSubstr("decoder.dense_ffn: found it without layers that have no experts, wanted `dense_layers` or"));
  EXPECT_THAT(dense("experts: 2, experts_per_token: 1, dense_layers: 5"),
              HasSubstr("decoder.dense_layers: found 5, wanted fewer than layers = 5"));
  EXPECT_THAT(dense("experts: 2, experts_per_token: 1, expert_every: 2"),
              HasSubstr("decoder.expert_every: found 2, wanted a divisor of the 5 layers"));
  EXPECT_THAT(dense("experts: 2, experts_per_token: 1, dense_layers: 1, expert_every: 3"),
              HasSubstr("decoder.expert_every: found 3, wanted a divisor of the 4 layers behind the first dense ones"));
  EXPECT_THAT(error("{hidden: 8, layers: 1, heads: 2, vocab: 8, experts: 2}"),
              HasSubstr("decoder.experts_per_token: found nothing"));
  EXPECT_THAT(error("{hidden: 8, layers: 1, heads: 2, vocab: 8, experts_per_token: 2}"),
              HasSubstr("decoder.experts_per_token: found it without experts"));
  EXPECT_THAT(error("{hidden: 8, layers: 1, heads: 2, vocab: 8, bias: true, experts: 2, experts_per_token: 1}"),
              HasSubstr("decoder.bias: found true"));
  EXPECT_THAT(error("{hidden: 16777216, layers: 2048, heads: 2, vocab: 8}"), HasSubstr("at most 2^50 parameters"));
  EXPECT_THAT(error("{hidden: 8, layers: 1, heads: 2, vocab: 16777216}", int64_t{1} << 32),
              HasSubstr("at most 2^56 elements"));
  EXPECT_THAT(error("{hidden: 8, layers: 1, heads: 2, vocab: 8, classes: 16777216}", int64_t{1} << 32),
              HasSubstr("decoder.classes: found 16777216, wanted tensors of at most 2^56 elements"));
  EXPECT_THAT(error("{hidden: 8, layer: 1, heads: 2, vocab: 8}"), HasSubstr("did you mean \"layers\"?"));
  EXPECT_THAT(error("{hidden: 8, layers: 1, heads: 2, vocab: 8, activation: silu}"),
              HasSubstr("found \"silu\", wanted one of gelu, relu, squared_relu, swiglu, geglu"));
}

// The first layer dense, then twice one dense and one with experts. Of hidden 8, 2 heads of 4 and one of keys and
// values, a layer has norms 2 x 8 and attention 8 x 4 x (2 + 2) + 8 x 8 = 192, the dense ones 3 x 8 x 20, the others a
// router 8 x 4, experts 4 x 3 x 8 x 6 and a shared one 3 x 8 x 5.
TEST(DecoderTest, SomeLayersHaveNoExperts) {
  constexpr absl::string_view kSizes =
      "{hidden: 8, layers: 5, heads: 2, kv_heads: 1, ffn: 6, vocab: 32, activation: swiglu, norm: rms_norm, "
      "positions: rotary, experts: 4, experts_per_token: 2, shared_expert_ffn: 5, dense_layers: 1, expert_every: 2";
  ASSERT_OK_AND_ASSIGN(const Graph graph, Build(absl::StrCat(kSizes, ", dense_ffn: 20}")));
  ASSERT_EQ(graph.segments.size(), 4u);
  EXPECT_EQ(graph.segments[1].name, "dense_layers");
  EXPECT_EQ(graph.segments[1].repeat, 1);
  EXPECT_EQ(graph.segments[2].repeat, 2);
  EXPECT_EQ(graph.segments[2].layers(), 2);
  EXPECT_EQ(ShapeOf(graph, "dense_mlp1.weight"), (Shape{8, 2, 20}));
  EXPECT_EQ(ShapeOf(graph, "dense0_mlp2.weight"), (Shape{20, 8}));
  EXPECT_EQ(ShapeOf(graph, "mlp2.weight"), (Shape{8, 4, 6}));
  const int64_t around = 2 * 32 * 8 + 8, layer = 16 + 192, dense = 480, experts = 32 + 576 + 120;
  EXPECT_EQ(graph.NumParameters(), around + 5 * layer + 3 * dense + 2 * experts);
  ASSERT_OK_AND_ASSIGN(const DecoderConfig config, Read(absl::StrCat(kSizes, "}"), TrainingOf(4, 16)));
  EXPECT_EQ(config.dense_ffn, 2 * 6 + 5);
  EXPECT_EQ(ExpertLayers(config), 2);
  EXPECT_EQ(IdleParameters(config, Training()), 2 * 2 * 3 * 8 * 6);
}

// Mixtral 8x7B: 46,702,792,704 parameters less 32 layers x 6 experts x 3 x 4096 x 14336: "12.9B" (Jiang et al. 2024).
TEST(DecoderTest, ATokenUsesSomeOfTheExperts) {
  DecoderConfig config;
  config.hidden = 4096;
  config.layers = 32;
  config.ffn = 14336;
  config.activation = Activation::kSwiglu;
  EXPECT_EQ(IdleParameters(config, Training()), 0);
  config.experts = 8;
  config.experts_per_token = 2;
  EXPECT_EQ(46'702'792'704 - IdleParameters(config, Training()), 12'879'925'248);
}

}  // namespace
}  // namespace meshwright
