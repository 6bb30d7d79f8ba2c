#include "tools/import/configuration.h"

#include <random>
#include <string>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/status.h"
#include "ir/testing.h"
#include "models/model_file.h"
#include "tools/export/testing.h"
#include "tools/export/writers.h"
#include "tools/import/megatron.h"

namespace meshwright {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

absl::StatusOr<Session> Open(const std::string& text) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Flags flags, Flags::Parse(StrategyFlags(), {}));
  return OpenModel({"imported.yaml", text, ""}, flags);
}

absl::StatusOr<Imported> Import(absl::string_view text, const ImportHints& hints = {}) {
  return ImportConfiguration(text, "runs/train_8b.sh", "", hints);
}

struct RoundTrip {
  std::string name, more;
  Degrees degrees;
  std::vector<std::string> flags;
};

// What is exported and read again is the same model, in the same parts.
class RoundTripTest : public testing::TestWithParam<RoundTrip> {};

void GivesTheSame(const RoundTrip& param, absl::StatusOr<Exported> (*write)(const Plan& plan)) {
  ASSERT_OK_AND_ASSIGN(
      Plan plan, PlanOf(absl::StrReplaceAll(Llama(param.more),
                                            {{"kv_heads: 4", param.name == "Latent" ? "kv_heads: 8" : "kv_heads: 4"}}),
                        param.degrees, param.flags));
  const Problem& before = plan.session.problem;
  if (before.chunks.has_value()) plan.strategy.chunks = *before.chunks;
  if (before.recompute.has_value()) plan.strategy.recompute = *before.recompute;
  ASSERT_OK_AND_ASSIGN(const Exported exported, write(plan));
  SCOPED_TRACE(exported.text);
  ASSERT_OK_AND_ASSIGN(const Imported imported,
                       Import(exported.text, {.vocab = 1024, .devices = 16, .device = "h100-sxm"}));
  SCOPED_TRACE(imported.text);
  ASSERT_OK_AND_ASSIGN(const Session session, Open(imported.text));
  DecoderConfig model = std::get<DecoderConfig>(session.file->model);
  DecoderConfig wanted = std::get<DecoderConfig>(plan.session.file->model);
  // A capacity that is not exported, and a padding that is named with it: of what is padded to, the larger one.
  if (!absl::StrContains(exported.text, "capacity")) model.capacity_factor = wanted.capacity_factor;
  EXPECT_EQ(model.vocab_multiple % wanted.vocab_multiple, 0);
  model.vocab_multiple = wanted.vocab_multiple;
  EXPECT_EQ(model.vocab, wanted.vocab);
  EXPECT_TRUE(model == wanted);
  const Problem& problem = session.problem;
  const Degrees& d = param.degrees;
  EXPECT_EQ(problem.cluster.num_devices(), before.cluster.num_devices());
  EXPECT_EQ(problem.data_parallel, d.data);
  EXPECT_EQ(problem.tensor_parallel, d.tensor);
  EXPECT_EQ(problem.stages, d.pipeline);
  EXPECT_EQ(problem.context_parallel, d.context);
  if (d.context > 1) {
    EXPECT_EQ(problem.context_exchange, d.exchange);
  }
  if (wanted.experts > 0) {
    EXPECT_EQ(problem.expert_parallel, d.expert);
  }
  if (wanted.experts > 0 && d.tensor > 1) {
    EXPECT_EQ(problem.spread_experts, d.spread_experts);
  }
  EXPECT_EQ(problem.microbatch, d.microbatch);
  EXPECT_EQ(problem.sequence_parallel, d.sequence_parallel);
  EXPECT_EQ(problem.chunks.value_or(1), plan.strategy.chunks);
  EXPECT_EQ(problem.recompute, plan.strategy.recompute);
  EXPECT_EQ(problem.batch, before.batch);
  EXPECT_EQ(problem.gradient_dtype, before.gradient_dtype);
  EXPECT_EQ(session.file->training.dtype, plan.session.file->training.dtype);
  EXPECT_EQ(session.file->training.optimizer, plan.session.file->training.optimizer);
  EXPECT_EQ(problem.bucket, Bytes((plan.strategy.bucket.raw() + (1 << 20) - 1) >> 20 << 20));
}

TEST_P(RoundTripTest, ByMegatron) { GivesTheSame(GetParam(), ToMegatron); }
TEST_P(RoundTripTest, ByNemo) { GivesTheSame(GetParam(), ToNemo); }

constexpr absl::string_view kHeads = "key_heads: 8, value_heads: 16, key_dim: 8, value_dim: 4";
constexpr absl::string_view kLatent =
    ", kv_lora_rank: 32, q_lora_rank: 48, rope_head_dim: 8, head_dim: 16, value_head_dim: 8";

INSTANTIATE_TEST_SUITE_P(
    Exported, RoundTripTest,
    testing::Values(
        RoundTrip{"Dense", "", {.data = 4, .tensor = 4, .sequence_parallel = true, .microbatch = 2}, {}},
        RoundTrip{"Pipeline", "", {.data = 4, .tensor = 2, .pipeline = 2}, {"--recompute=full"}},
        RoundTrip{"Chunks", "", {.data = 8, .pipeline = 2}, {"--stages=2", "--virtual_pipeline_stages=3"}},
        RoundTrip{"Uneven", "", {.data = 4, .pipeline = 4}, {"--recompute=selective"}},
        RoundTrip{"Context", "", {.data = 4, .context = 4, .exchange = ContextExchange::kAllGather}, {}},
        RoundTrip{"Tied", ", tied_embeddings: true, qkv_bias: true, qk_norm: true", {.data = 16}, {}},
        RoundTrip{"Windows", ", sliding_window: 8, full_attention_every: 3", {.data = 16}, {}},
        RoundTrip{"WindowsInNoPeriod", ", sliding_window: 8, full_attention_layers: [0, 3, 4]", {.data = 16}, {}},
        RoundTrip{"Experts",
                  ", experts: 8, experts_per_token: 2",
                  {.data = 8, .tensor = 2, .expert = 4, .sequence_parallel = true},
                  {}},
        RoundTrip{"SpreadExperts",
                  ", experts: 8, experts_per_token: 2, shared_expert_ffn: 64",
                  {.data = 8, .tensor = 2, .expert = 4, .spread_experts = true, .sequence_parallel = true},
                  {}},
        RoundTrip{"DenseFirst",
                  ", experts: 8, experts_per_token: 2, dense_layers: 2, dense_ffn: 256",
                  {.data = 16, .expert = 8},
                  {}},
        RoundTrip{"EverySecond",
                  ", experts: 8, experts_per_token: 2, expert_every: 2, dense_ffn: 256",
                  {.data = 16, .expert = 8},
                  {}},
        RoundTrip{"Latent", absl::StrCat(absl::string_view(", mtp_layers: 1"), kLatent), {.data = 16}, {}},
        RoundTrip{"Delta",
                  absl::StrCat(", attention_gate: true, full_attention_every: 3, linear_attention: {", kHeads, "}"),
                  {.data = 16},
                  {}},
        RoundTrip{"DeltaFirst",
                  absl::StrCat(", full_attention_every: 3, full_attention_at: 1, linear_attention: {", kHeads, "}"),
                  {.data = 16},
                  {}}),
    [](const testing::TestParamInfo<RoundTrip>& info) { return info.param.name; });

// A state space is written as a pattern of halves, each a layer of its own.
TEST(MegatronTest, StateSpacesAreReadAsHalves) {
  const std::string more = absl::StrCat(", full_attention_every: 3, linear_attention: {form: state_space, ", kHeads,
                                        ", convolution_bias: true}");
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(Llama(more), {.data = 8, .pipeline = 2}));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToMegatron(plan));
  ASSERT_OK_AND_ASSIGN(const Imported imported, Import(exported.text, {.vocab = 1024, .device = "h100-sxm"}));
  EXPECT_THAT(imported.text, HasSubstr("layer_pattern: \"M-M-*-M-M-*-\""));
  EXPECT_THAT(imported.text, HasSubstr("layers_per_stage: [6, 6]"));
  EXPECT_THAT(imported.text, HasSubstr("form: state_space, key_heads: 8, value_heads: 16, key_dim: 8, value_dim: 4"));
}

constexpr absl::string_view kScript = R"(#!/bin/bash
#SBATCH --nodes=4
GPUS_PER_NODE=8
TP=${TP:-4}
PP=2
MODEL_ARGS=(
    --num-layers 24      # of GPT
    --hidden-size 2048
    --num-attention-heads 16
    --seq-length 2048
    --max-position-embeddings 2048
)
if [[ "$PRECISION" == "fp16" ]]; then
  DTYPE="--fp16"
else
  DTYPE="--bf16"
fi
DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes ${NNODES:-4}"
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py "${MODEL_ARGS[@]}" $DTYPE \
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --sequence-parallel \
    --micro-batch-size 2 --global-batch-size 256 --use-distributed-optimizer \
    --vocab-file $DATA/vocab.json --tokenizer-type GPT2BPETokenizer --lr 3e-4 2>&1 | tee log
)";

TEST(MegatronTest, ScriptAsPeopleWriteThem) {
  ASSERT_OK_AND_ASSIGN(const Imported imported, Import(kScript, {.device = "a100"}));
  ASSERT_OK_AND_ASSIGN(const Session session, Open(imported.text));
  const DecoderConfig& c = std::get<DecoderConfig>(session.file->model);
  EXPECT_EQ(session.file->name, "train_8b");
  EXPECT_EQ(c.layers, 24);
  EXPECT_EQ(c.ffn, 4 * 2048);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.vocab, 50257);
  EXPECT_EQ(c.vocab_multiple, 128 * 4);
  EXPECT_TRUE(c.tied_embeddings && c.bias);
  EXPECT_EQ(c.positions, Positions::kLearned);
  EXPECT_EQ(session.problem.cluster.num_devices(), 32);
  EXPECT_EQ(session.problem.data_parallel, 4);
  EXPECT_EQ(session.problem.parallel_optimizer, true);
  EXPECT_EQ(session.problem.microbatch, 2);
  EXPECT_EQ(session.file->training.dtype, DType::kBFloat16);
  EXPECT_THAT(imported.notes, Not(Contains(HasSubstr("not looked at"))));
  EXPECT_THAT(imported.notes, Contains("--hidden-dropout of 0.1 is left out: decoders have no dropout"));
  // Muon, whose states its own kind of optimizer shares out.
  ASSERT_OK_AND_ASSIGN(
      const Imported muon,
      Import(
          absl::StrReplaceAll(kScript, {{"--use-distributed-optimizer", "--optimizer dist_muon --muon-momentum 0.95"}}),
          {.device = "a100"}));
  EXPECT_THAT(muon.text, HasSubstr("optimizer: {muon: {learning_rate: 3e-04, momentum: 0.95, "));
  EXPECT_THAT(muon.text, HasSubstr("enable_parallel_optimizer: true"));
  EXPECT_THAT(muon.notes, Contains(HasSubstr("--muon-tp-mode blockwise")));
  // Variables of the environment, and devices that a flag says.
  ASSERT_OK_AND_ASSIGN(const Imported other,
                       Import(kScript, {.devices = 64, .device = "a100", .variables = {{"TP", "8"}}}));
  EXPECT_THAT(other.text, HasSubstr("  data_parallel: 4\n  tensor_parallel: 8\n"));
}

// As Megatron-LM prints them, of rank 0, with what came of each.
TEST(MegatronTest, ArgumentsInALog) {
  const std::string log = absl::StrCat(
      "using world size: 16, data-parallel size: 2\n------------------------ arguments ------------------------\n",
      "0:   add_bias_linear ................................. False\n",
      "  bf16 ............................................ True\n",
      "  context_parallel_size ........................... 1\n  expert_model_parallel_size ...................... 4\n",
      "  ffn_hidden_size ................................. 14336\n  global_batch_size ............................... "
      "64\n",
      "  group_query_attention ........................... True\n  hidden_dropout .................................. "
      "0.0\n",
      "  attention_dropout ............................... 0.0\n",
      // Listed whatever the model is: the layers once more, and what is off.
      "  encoder_num_layers .............................. 32\n  encoder_seq_length .............................. "
      "4096\n",
      "  hybrid_attention_ratio .......................... 0.0\n  softmax_type .................................... "
      "vanilla\n",
      "  padded_vocab_size ............................... None\n  kv_lora_rank .................................... "
      "32\n",
      "  hidden_size ..................................... 4096\n  kv_channels ..................................... "
      "128\n",
      "  micro_batch_size ................................ 1\n  moe_layer_freq .................................. 1\n",
      "  moe_router_topk ................................. 2\n  normalization ................................... "
      "RMSNorm\n",
      "  num_attention_heads ............................. 32\n  num_experts ..................................... 8\n",
      "  num_layers ...................................... 32\n  num_query_groups ................................ 8\n",
      "  make_vocab_size_divisible_by .................... 128\n  pipeline_model_parallel_size .................... "
      "8\n",
      "  position_embedding_type ......................... rope\n  recompute_granularity ........................... "
      "None\n",
      "  seq_length ...................................... 4096\n  sequence_parallel ............................... "
      "False\n",
      "  swiglu .......................................... True\n  tensor_model_parallel_size ...................... "
      "1\n",
      "  untie_embeddings_and_output_weights ............. True\n  use_distributed_optimizer ....................... "
      "True\n",
      "  overlap_grad_reduce ............................. True\n",
      "  virtual_pipeline_model_parallel_size ............ 2\n  world_size ...................................... 32\n",
      "-------------------- end of arguments ---------------------\n> building Llama2Tokenizer tokenizer ...\n",
      " > padded vocab (size: 32000) with 0 dummy tokens (new size: 32000)\n");
  ASSERT_OK_AND_ASSIGN(const Imported imported, Import(log, {.device = "h100"}));
  ASSERT_OK_AND_ASSIGN(const Session session, Open(imported.text));
  const DecoderConfig& c = std::get<DecoderConfig>(session.file->model);
  EXPECT_FALSE(c.bias || c.qkv_bias || c.tied_embeddings);
  EXPECT_EQ(c.vocab, 32000);
  EXPECT_EQ(c.experts, 8);
  EXPECT_EQ(c.kv_heads, 8);
  EXPECT_EQ(session.problem.chunks, 2);
  EXPECT_EQ(session.problem.data_parallel, 4);
  EXPECT_EQ(session.problem.cluster.nodes, 4);
  EXPECT_THAT(imported.notes, ElementsAre("experts have no capacity there; the plan takes tokens to be spread evenly",
                                          "tokens are gathered there, and exchanged in the plan"));
}

TEST(MegatronTest, LayersOfStages) {
  const auto stages = [](absl::string_view more) -> std::string {
    const absl::StatusOr<Imported> imported =
        Import(absl::StrCat(absl::StrReplaceAll(kScript, {{" 2>&1 | tee log", ""}}), more));
    if (!imported.ok()) return std::string(imported.status().message());
    const size_t at = imported->text.find("layers_per_stage: ");
    return at == std::string::npos ? "even" : imported->text.substr(at + 18, imported->text.find('\n', at) - at - 18);
  };
  EXPECT_EQ(stages(""), "[12, 12]");
  const auto with = [&](absl::string_view option) {
    return absl::StrReplaceAll(kScript, {{"--sequence-parallel", absl::StrCat("--sequence-parallel ", option)}});
  };
  const auto layers = [&](absl::string_view option) -> std::string {
    const absl::StatusOr<Imported> imported = Import(with(option));
    if (!imported.ok()) return std::string(imported.status().message());
    const size_t at = imported->text.find("layers_per_stage: ");
    return at == std::string::npos ? "even" : imported->text.substr(at + 18, imported->text.find('\n', at) - at - 18);
  };
  EXPECT_EQ(layers("--decoder-last-pipeline-num-layers 10"), "[14, 10]");
  EXPECT_EQ(layers("--decoder-first-pipeline-num-layers 11"), "[11, 13]");
  EXPECT_EQ(layers("--window-size 127,0 --window-attn-skip-freq 5"), "[12, 12]");
  EXPECT_EQ(layers("--window-size 127,0 --window-attn-skip-freq '([0,1,1,1]*6)'"), "[12, 12]");
  EXPECT_EQ(layers("--window-size 127,0 --window-attn-skip-freq '([0,1,0,0]*6)'"), "[12, 12]");
  EXPECT_THAT(layers("--window-size 127,0 --window-attn-skip-freq '([0,1,0,0]*5)'"),
              HasSubstr("window-attn-skip-freq"));
  EXPECT_EQ(layers("--pipeline-model-parallel-layout 'Et*5|t*7|(t*6|)*1t*6L'"), "[5, 7, 6, 6]");
  EXPECT_THAT(layers("--pipeline-model-parallel-layout 'Et*5|t*7|(t*6|)*1t*5L'"),
              HasSubstr("found 23 layers in 4 parts"));
  EXPECT_EQ(layers("--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"), "[12, 12]");
  EXPECT_THAT(layers("--pipeline-model-parallel-layout Et*5x"), HasSubstr("found \"x\", wanted E, t, m, L or |"));
}

TEST(MegatronTest, Lists) {
  EXPECT_THAT(ReadListExpression("([0]*3+[1]*2)").value(), ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT(ReadListExpression("'([0]*1 + [1]) * 2'").value(), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(ReadListExpression("[0, 1,1]").value(), ElementsAre(0, 1, 1));
  for (const char* wrong :
       {"", "[0]*", "[2]", "([0]", "[0]*99999999999", "[0]*2048*2048", "((((((((((((((((((([1]", "[0]]"}) {
    EXPECT_FALSE(ReadListExpression(wrong).ok()) << wrong;
  }
  EXPECT_THAT(ReadPipelineLayout("Et*3|(t*4|)*2t*3mL").value(), ElementsAre(3, 4, 4, 3));
  EXPECT_THAT(ReadPipelineLayout("E,t,t|tt|L").value(), ElementsAre(2, 2, 0));
  for (const char* wrong : {"Et*", "(t", "t)", "t*9999999", "(((((((((((((((((((((t"}) {
    EXPECT_FALSE(ReadPipelineLayout(wrong).ok()) << wrong;
  }
}

TEST(MegatronTest, Errors) {
  const auto error = [](const std::vector<std::pair<absl::string_view, absl::string_view>>& changes,
                        ImportHints hints = {}) {
    return std::string(Import(absl::StrReplaceAll(kScript, changes), hints).status().message());
  };
  EXPECT_EQ(
      error({{"${TP:-4}", "$TENSOR"}}),
      "runs/train_8b.sh:20: --tensor-model-parallel-size: found ${TENSOR}, wanted an integer from 1; the script does "
      "not say it itself: give what stands there as --set=NAME=VALUE, or put the number there");
  EXPECT_THAT(error({{"--tokenizer-type GPT2BPETokenizer", ""}}), HasSubstr("give it as --vocab=32000"));
  EXPECT_EQ(error({{"--tokenizer-type GPT2BPETokenizer", ""}}, {.vocab = 1000}), "");
  EXPECT_THAT(error({{"--hidden-size 2048", "--hidden-size 2049x"}}),
              HasSubstr("train_8b.sh:8: --hidden-size: found 2049x, wanted an integer from 1"));
  EXPECT_THAT(error({{"--global-batch-size 256", ""}, {"NNODES:-4", "NNODES:-$X"}, {"--nodes=4", ""}}),
              HasSubstr("found no --global-batch-size, wanted the sequences of a step; give them as --batch=1024"));
  EXPECT_THAT(error({{"pretrain_gpt.py", "pretrain_t5.py"}}), HasSubstr("wanted a trainer of decoders"));
  EXPECT_EQ(error({{"pretrain_gpt.py", "train_strict.py"}}), "");
  // Products of these would be 0 in 64 bits, and parts more than memory.
  EXPECT_THAT(
      error({{"${TP:-4}", "1073741824"}, {"PP=2", "PP=1073741824"}, {"--lr 3e-4", "--context-parallel-size 16"}}),
      HasSubstr("found 1073741824, wanted at most 32768"));
  EXPECT_THAT(
      error({{"PP=2", "PP=2048"},
             {"--lr 3e-4", "--account-for-loss-in-pipeline-split --num-virtual-stages-per-pipeline-rank 2147483647"}},
            {.devices = 8192}),
      HasSubstr("wanted at most 2048 parts"));
  EXPECT_THAT(error({{"--lr 3e-4", "--hybrid-attention-ratio 0.08"}}), HasSubstr("wanted --hybrid-layer-pattern"));
  EXPECT_THAT(error({{"--hidden-size 2048", "--hidden-size 99999999999"}}), HasSubstr("wanted at most 2147483647"));
  EXPECT_THAT(error({{"--global-batch-size 256", "--global-batch-size 255"}}),
              HasSubstr("found 255, wanted a multiple of 2 sequences on 4 replicas"));
  EXPECT_THAT(error({{"PP=2", "PP=3"}}), HasSubstr("wanted a divisor of the 32 devices"));
  EXPECT_THAT(error({{"--lr 3e-4", "--num-experts 8 --moe-layer-freq '[1,1,0]'"}}),
              HasSubstr("found 3 layers, wanted 24"));
  EXPECT_THAT(error({{"--lr 3e-4", "--num-experts 8 --moe-layer-freq 2"}}),
              HasSubstr("wanted experts in all layers behind the first ones, or in the last of each so many"));
  EXPECT_THAT(error({{"--lr 3e-4", "--use-checkpoint-args"}}), HasSubstr("wanted sizes in the arguments"));
  // Together they make no model.
  EXPECT_THAT(
      error({{"--num-attention-heads 16", "--num-attention-heads 16 --group-query-attention --num-query-groups 3"}}),
      HasSubstr("what was read of runs/train_8b.sh:"));
  EXPECT_THAT(Import("hello\n").status().message(),
              HasSubstr("found nothing that is known, wanted one of megatron_log, megatron, nemo, "));
}

// Weights in float8 are the model's; in MXFP8, which has them twice and gathers 16 bits, they are as in 16 bits.
TEST(MegatronTest, WeightsInFloat8) {
  const auto import = [](absl::string_view more, const std::string& device = "h100") {
    return Import(absl::StrReplaceAll(kScript, {{"--sequence-parallel", absl::StrCat("--sequence-parallel ", more)}}),
                  {.device = device});
  };
  const auto narrow = HasSubstr("\n  parameters: float8\n");
  ASSERT_OK_AND_ASSIGN(Imported imported, import("--fp8-format hybrid --fp8-param-gather"));
  EXPECT_THAT(imported.text, narrow);
  ASSERT_OK_AND_ASSIGN(const Session session, Open(imported.text));
  EXPECT_TRUE(session.file->training.float8_parameters);
  ASSERT_OK_AND_ASSIGN(imported, import("--fp8-format hybrid"));
  EXPECT_THAT(imported.text, Not(narrow));
  ASSERT_OK_AND_ASSIGN(imported, import("--fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather"));
  EXPECT_THAT(imported.text, Not(narrow));
  EXPECT_THAT(imported.notes, Contains(HasSubstr("weights in MXFP8 are planned in 16 bits")));
  ASSERT_OK_AND_ASSIGN(imported, import("--fp8-format hybrid --fp8-param-gather", ""));
  EXPECT_THAT(imported.text, Not(narrow));
  EXPECT_THAT(imported.notes, Contains(HasSubstr("plan with --parameters=float8, too")));
}

TEST(MegatronTest, ProductsInFloat4) {
  const std::string script =
      absl::StrReplaceAll(kScript, {{"--sequence-parallel", "--sequence-parallel --fp4-format e2m1"}});
  ASSERT_OK_AND_ASSIGN(Imported imported, Import(script, {.device = "gb300"}));
  EXPECT_THAT(imported.text, HasSubstr(", products: float4}\n"));
  ASSERT_OK_AND_ASSIGN(const Session session, Open(imported.text));
  EXPECT_EQ(session.problem.cluster.device.kernels.product_bits, 4);
  ASSERT_OK_AND_ASSIGN(imported, Import(script, {}));
  EXPECT_THAT(imported.notes, Contains(HasSubstr("plan with --products=float4")));
}

// Of a model of 64 with this type on a device.
std::string BridgeText(absl::string_view precision, const std::string& device) {
  const absl::StatusOr<Imported> imported =
      Import(absl::StrCat("mixed_precision: ", precision,
                          "\nmodel:\n  hidden_size: 64\n  num_layers: 4\n  num_attention_heads: 4\n  seq_length: 32\n"
                          "  tensor_model_parallel_size: 1\n  vocab_size: 256\ntrain: {global_batch_size: 8}\n"),
             {.devices = 8, .device = device});
  EXPECT_OK(imported.status());
  return imported.ok() ? imported->text : "";
}

TEST(BridgeTest, ProductsInFloat4) {
  const auto narrow = HasSubstr(", products: float4}\n");
  EXPECT_THAT(BridgeText("bf16_with_nvfp4_mixed", "gb300"), narrow);
  EXPECT_THAT(BridgeText("{bf16: true, fp8: null, fp4: e2m1, fp4_recipe: nvfp4}", "b200"), narrow);
  EXPECT_THAT(BridgeText("{bf16: true, fp8: null, fp4: null}", "b200"), Not(HasSubstr("products")));
}

TEST(BridgeTest, WeightsInFloat8) {
  const auto text = [](absl::string_view precision) { return BridgeText(precision, "h100"); };
  const auto narrow = HasSubstr("\n  parameters: float8\n");
  EXPECT_THAT(text("bf16_with_fp8_current_scaling_mixed"), narrow);
  EXPECT_THAT(text("bf16_with_fp8_subchannel_scaling_mixed"), Not(narrow));
  EXPECT_THAT(text("bf16_with_mxfp8_mixed"), Not(narrow));
  EXPECT_THAT(text("bf16_mixed"), Not(narrow));
  EXPECT_THAT(text("{bf16: true, fp8: hybrid, fp8_recipe: blockwise, fp8_param_gather: true}"), narrow);
  EXPECT_THAT(text("{bf16: true, fp8: e4m3, fp8_recipe: mxfp8, fp8_param: true}"), Not(narrow));
  EXPECT_THAT(text("{bf16: true, fp8: hybrid, fp8_param_gather: false}"), Not(narrow));
}

// As Megatron-Bridge keeps it with a checkpoint.
TEST(BridgeTest, RunConfig) {
  const std::string text =
      "_target_: megatron.bridge.training.config.ConfigContainer\nmixed_precision:\n  bf16: true\n  fp8: null\n"
      "  grad_reduce_in_fp32: false\nmodel:\n  _target_: megatron.bridge.models.llama.Llama31ModelProvider\n"
      "  activation_func: {_target_: torch.nn.functional.silu, _call_: false}\n  add_bias_linear: false\n"
      "  hidden_dropout: 0.0\n  attention_dropout: 0.0\n  ffn_hidden_size: 14336\n  gated_linear_unit: true\n"
      "  hidden_size: 4096\n  kv_channels: 128\n  num_attention_heads: 32\n  num_layers: 32\n  num_query_groups: 8\n"
      "  normalization: RMSNorm\n  position_embedding_type: rope\n  pipeline_model_parallel_layout:\n"
      "  - [embedding, decoder, decoder]\n  - [decoder, decoder]\n"
      "  pipeline_model_parallel_size: 2\n  seq_length: 8192\n  share_embeddings_and_output_weights: false\n"
      "  tensor_model_parallel_size: 2\n  sequence_parallel: true\n  vocab_size: 128256\n  recompute_modules: null\n"
      "train: {global_batch_size: 128, micro_batch_size: 1, train_iters: 50}\n"
      "ddp: {use_distributed_optimizer: true, overlap_grad_reduce: true}\n";
  const std::string four = absl::StrReplaceAll(text, {{"num_layers: 32", "num_layers: 4"}});
  ASSERT_OK_AND_ASSIGN(const Imported imported, Import(four, {.devices = 32, .device = "h100"}));
  ASSERT_OK_AND_ASSIGN(const Session session, Open(imported.text));
  const DecoderConfig& c = std::get<DecoderConfig>(session.file->model);
  EXPECT_EQ(c.kv_heads, 8);
  EXPECT_EQ(c.activation, Activation::kSwiglu);
  EXPECT_FALSE(c.bias || c.tied_embeddings);
  EXPECT_EQ(session.problem.data_parallel, 8);
  EXPECT_EQ(session.problem.layers_per_stage, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(session.problem.gradient_dtype, DType::kBFloat16);
  EXPECT_THAT(imported.notes, IsEmpty());
  EXPECT_THAT(std::string(Import(text, {.devices = 32}).status().message()),
              HasSubstr("found 4 layers in 2 parts of the pipeline, wanted 32 in 2"));
  EXPECT_EQ(
      std::string(Import(absl::StrReplaceAll(four, {{"hidden_size: 4096", "hidden_size: x"}})).status().message()),
      "runs/train_8b.sh:14: hidden_size: found x, wanted an integer from 1");
}

// Whatever becomes of a file's bytes, it is read or refused, and what is refused says where.
TEST(ConfigurationTest, DamagedFilesAreReadOrRefused) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(Llama(), {.data = 16}));
  ASSERT_OK_AND_ASSIGN(const Exported nanotron, ToNanotron(plan));
  ASSERT_OK_AND_ASSIGN(const Exported megatron, ToMegatron(plan));
  ASSERT_OK_AND_ASSIGN(const Exported nemo, ToNemo(plan));
  const std::string log =
      "  num_layers ........ 4\n  hidden_size ........ 64\n  seq_length ........ 8\n  world_size ........ 2\n";
  for (const std::string& text : {std::string(kScript), megatron.text, nemo.text, nanotron.text, log}) {
    for (unsigned seed = 0; seed < 300; ++seed) {
      SCOPED_TRACE(seed);
      std::mt19937 random(seed);
      std::string damaged = text;
      for (unsigned i = 0; i < 1 + seed % 5; ++i) {
        const size_t at = random() % damaged.size(), size = random() % 12;
        const std::string piece = damaged.substr(random() % damaged.size(), random() % 12);
        damaged.replace(at, size, random() % 2 == 0 ? piece : std::string(1, static_cast<char>(random())));
      }
      const absl::StatusOr<Imported> imported = Import(damaged, {.vocab = 512, .batch = 64, .device = "h100"});
      if (!imported.ok()) {
        EXPECT_FALSE(imported.status().message().empty());
      }
    }
  }
}

TEST(NanotronTest, WhatIsExportedIsReadAgain) {
  ASSERT_OK_AND_ASSIGN(const Plan plan,
                       PlanOf(Llama(), {.data = 4, .tensor = 4, .sequence_parallel = true, .microbatch = 3}));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToNanotron(plan));
  ASSERT_OK_AND_ASSIGN(const Imported imported, Import(exported.text, {.vocab = 1024, .device = "h100-sxm"}));
  ASSERT_OK_AND_ASSIGN(const Session session, Open(imported.text));
  EXPECT_TRUE(std::get<DecoderConfig>(session.file->model) == std::get<DecoderConfig>(plan.session.file->model));
  EXPECT_EQ(session.problem.data_parallel, 4);
  EXPECT_EQ(session.problem.tensor_parallel, 4);
  EXPECT_EQ(session.problem.microbatch, 3);
  EXPECT_EQ(session.problem.batch, 48);
  EXPECT_EQ(session.problem.sequence_parallel, true);
  EXPECT_EQ(session.file->training.optimizer, plan.session.file->training.optimizer);
  EXPECT_THAT(imported.notes, IsEmpty());
  ASSERT_OK_AND_ASSIGN(const Imported lion,
                       Import(absl::StrReplaceAll(exported.text, {{"name: adamW", "name: lion"}})));
  EXPECT_THAT(lion.notes, Contains("the optimizer lion is planned as adamw"));
  EXPECT_THAT(
      std::string(
          Import(absl::StrReplaceAll(exported.text, {{"hidden_size: 64", "hidden_size: x"}})).status().message()),
      HasSubstr("model.model_config.hidden_size: found \"x\""));
}

}  // namespace
}  // namespace meshwright
