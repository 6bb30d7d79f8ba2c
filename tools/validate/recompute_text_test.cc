#include "tools/validate/recompute_text.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace meshwright {
namespace {

using Ops = std::set<std::string>;

RecomputeText Read(const std::string& text) { return ReadRecomputeText(text, 48, false); }

TEST(RecomputeTextTest, NothingOrAll) {
  for (const char* const none : {"", "no", "none", "false", "off", "disabled", "without checkpoints"}) {
    EXPECT_EQ(Read(none).recompute, Recompute::kNone) << none;
    EXPECT_TRUE(Read(none).known) << none;
  }
  for (const char* const all : {"full", "yes", "true", "on", "uniform", "every layer", "activation checkpointing"}) {
    EXPECT_EQ(Read(all).recompute, Recompute::kLayer) << all;
    EXPECT_EQ(Read(all).share, 1) << all;
    EXPECT_FALSE(Read(all).some_layers) << all;
  }
}

TEST(RecomputeTextTest, WordsThatBeginLikeNo) {
  EXPECT_EQ(Read("nothing_saveable").recompute, Recompute::kLayer);  // jax.checkpoint's: nothing is saved
  EXPECT_EQ(Read("everything_saveable").recompute, Recompute::kNone);
  EXPECT_EQ(Read("non-reentrant full").recompute, Recompute::kLayer);
  EXPECT_EQ(Read("no recompute").recompute, Recompute::kNone);
  EXPECT_EQ(Read("all").recompute, Recompute::kLayer);
  EXPECT_EQ(Read("16/32 layers").share, 16.0 / 48);
}

TEST(RecomputeTextTest, SomeLayers) {
  EXPECT_EQ(Read("block, 12 layers").share, 0.25);  // of 48
  EXPECT_EQ(Read("every 4th layer").share, 0.25);
  EXPECT_EQ(Read("selective layer").share, 0.5);
  EXPECT_EQ(Read("block, 96 layers").share, 1);
  EXPECT_TRUE(Read("block, 12 layers").some_layers);
  EXPECT_EQ(Read("12").share, 0.25);  // under "num-ckpt-layers"
  EXPECT_TRUE(Read("12").some_layers);
}

TEST(RecomputeTextTest, PartsOfALayer) {
  EXPECT_EQ(Read("selective").recompute, Recompute::kSelective);
  EXPECT_EQ(Read("recompute gelu").ops, Ops{"activation"});
  EXPECT_EQ(Read("checkpoint_lvl=2").ops, (Ops{"mlp1", "activation"}));
  const RecomputeText mixed = Read("mlp checkpoint_lvl=1 for 24 layers, 2 for 24");
  EXPECT_EQ(mixed.ops, Ops{"activation"});
  EXPECT_EQ(mixed.more, Ops{"mlp1"});
  EXPECT_EQ(mixed.share, 0.5);
  EXPECT_FALSE(mixed.some_layers);
}

TEST(RecomputeTextTest, ModulesOfMegatron) {
  EXPECT_EQ(Read("moe_act, layernorm").ops, (Ops{"activation", "norm1", "norm2"}));
  EXPECT_EQ(Read("['layernorm', 'moe']").ops,
            (Ops{"activation", "combine", "dispatch", "expert_down", "expert_up", "mlp1", "mlp2", "norm1", "norm2",
                 "router", "shared_activation", "shared_mlp1", "shared_mlp2"}));
  EXPECT_EQ(Read("core_attn, shared_experts").ops, (Ops{"attention", "shared_activation", "shared_mlp1"}));
  EXPECT_EQ(Read("norm, act").ops, (Ops{"activation", "norm1", "norm2"}));
  EXPECT_EQ(Read("mlp").ops, (Ops{"activation", "mlp1"}));
  EXPECT_EQ(ReadRecomputeText("mlp", 48, true).ops, Ops());  // of layers without experts
  EXPECT_EQ(Read("mla_up_proj").ops, (Ops{"q_norm", "q_up", "kv_norm", "kv_up", "latent_heads"}));
  EXPECT_FALSE(Read("layernorm, something").known);
  EXPECT_FALSE(Read("norms").known);  // does not say no
}

TEST(RecomputeTextTest, AnotherWordIsNotKnown) {
  EXPECT_FALSE(Read("sometimes").known);
  EXPECT_EQ(Read("sometimes").recompute, Recompute::kNone);
}

TEST(RecomputeTextTest, PoliciesOfJax) {
  const Ops but_products = {"norm1", "qk_norm", "rotary", "latent_heads", "attention", "norm2", "activation"};
  EXPECT_EQ(Read("save_dot_only").ops, but_products);
  Ops with_mlp = but_products;
  with_mlp.insert("mlp1");
  EXPECT_EQ(Read("save_qkv_out_proj").ops, with_mlp);
  EXPECT_EQ(Read("save_dot_except_mlpwi").ops, with_mlp);
  with_mlp.insert({"proj", "add1"});
  EXPECT_EQ(Read("save_qkv_proj").ops, with_mlp);
  EXPECT_EQ(Read("save_dot_only").recompute, Recompute::kNone);
}

TEST(RecomputeTextTest, OneAndZeroAndMaxText) {
  EXPECT_EQ(ReadRecomputeText("1", 32, false).recompute, Recompute::kLayer);
  EXPECT_EQ(ReadRecomputeText("0", 32, false).recompute, Recompute::kNone);
  EXPECT_TRUE(ReadRecomputeText("0", 32, false).known);
  EXPECT_EQ(ReadRecomputeText("save_dot_with_context_except_mlp", 32, false).ops,
            (std::set<std::string>{"activation", "mlp1"}));
}

}  // namespace
}  // namespace meshwright
