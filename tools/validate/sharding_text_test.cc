#include "tools/validate/sharding_text.h"

#include "gtest/gtest.h"

namespace meshwright {
namespace {

TEST(ShardingTextTest, OneWordForWhatSourcesWriteInMany) {
  EXPECT_EQ(ShardingText("ZeRO-1"), "zero-1 zero-1");
  EXPECT_EQ(ShardingText("DeepSpeed ZeRO stage 3"), "deepspeed zero stage 3 zero-3");
  EXPECT_EQ(ShardingText("sharding stage2"), "sharding stage2 zero-2");
  EXPECT_EQ(ShardingText("zero_3"), "zero_3 zero-3");
  EXPECT_EQ(ShardingText("z2"), "z2 zero-2");
  EXPECT_EQ(ShardingText("fully sharded data parallel"), "fully sharded data parallel fsdp");
  EXPECT_EQ(ShardingText("FSDP FULL_SHARD (ZeRO-3)"), "fsdp full_shard (zero-3) zero-3 fsdp");
  EXPECT_EQ(ShardingText("HYBRID_SHARD"), "hybrid_shard hsdp");
  EXPECT_EQ(ShardingText("SHARD_GRAD_OP"), "shard_grad_op zero-2");
  EXPECT_EQ(ShardingText("FSDP, not resharded"), "fsdp, not resharded zero-2");
  EXPECT_EQ(ShardingText("FSDP2 reshard_after_forward=False"), "fsdp2 reshard_after_forward=false zero-2");
  EXPECT_EQ(ShardingText("plain data parallel"), "plain data parallel zero-0");
  EXPECT_EQ(ShardingText("distributed optimizer (ZeRO-1)"), "distributed optimizer (zero-1) zero-1");
  EXPECT_EQ(ShardingText("distributed Adam"), "distributed adam zero-1");
  EXPECT_EQ(ShardingText(""), "");
}

TEST(ShardingTextTest, WhatIsDenied) {
  for (const char* none :
       {"NO_SHARD", "no shard", "no ZeRO", "without ZeRO", "ZeRO: off", "ZeRO disabled", "not FSDP"}) {
    EXPECT_EQ(ShardingText(none), "none") << none;
  }
  EXPECT_EQ(ShardingText("ZeRO-1 (no FSDP)"), "zero-1 () zero-1");
  EXPECT_EQ(ShardingText("DDP + ZeRO-1"), "dp + zero-1 zero-1");
  EXPECT_EQ(ShardingText("fully_shard"), "fully_shard fsdp");
  EXPECT_EQ(ShardingText("no reshard after forward"), "no reshard after forward zero-2");
}

TEST(ShardingTextTest, HowManyShare) {
  EXPECT_EQ(RanksThatShare("hsdp 2x32", 64), 32);

  EXPECT_EQ(RanksThatShare(ShardingText("ZeRO-1 within groups of 8 GPUs"), 32), 8);
  EXPECT_EQ(RanksThatShare(ShardingText("HSDP, dp_shard=4, dp_replicate=8"), 32), 4);
  EXPECT_EQ(RanksThatShare(ShardingText("data_parallel_replicate_degree: 4"), 32), 8);
  EXPECT_EQ(RanksThatShare(ShardingText("dp_replicate 3"), 32), 0);
  EXPECT_EQ(RanksThatShare(ShardingText("HSDP 16"), 32), 16);
  EXPECT_EQ(RanksThatShare(ShardingText("HYBRID_SHARD"), 32), std::nullopt);
  EXPECT_EQ(ShardingText("dp_replicate=4"), "dp_replicate=4 hsdp");
}

TEST(ShardingTextTest, WordsThatSayNothing) {
  EXPECT_TRUE(SaysSharding(ShardingText("none (ZeRO not stated)")));
  EXPECT_TRUE(SaysSharding(ShardingText("no")));
  EXPECT_TRUE(SaysSharding(ShardingText("DDP")));
  EXPECT_FALSE(SaysSharding(ShardingText("AMSP")));
  EXPECT_FALSE(SaysSharding(ShardingText("\xff")));
}

}  // namespace
}  // namespace meshwright
