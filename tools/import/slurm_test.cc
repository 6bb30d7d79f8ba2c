#include "tools/import/slurm.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tools/import/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<ClusterFacts> Read(absl::string_view text) { return ReadSlurm(text, "s.txt"); }

TEST(CountHostsTest, ListsAreCounted) {
  const auto count = [](absl::string_view list) { return CountHosts(list).value_or(-1); };
  EXPECT_EQ(count("gpu1"), 1);
  EXPECT_EQ(count("login,gpu1"), 2);
  EXPECT_EQ(count("gpu[001-004,007]"), 5);
  EXPECT_EQ(count("gpu[001-004]-ib,cpu[1-2]"), 6);
  EXPECT_EQ(count("rack[0-1]node[0-2]"), 6);
  EXPECT_EQ(count("a[0-1048575]"), 1 << 20);
  EXPECT_EQ(count("a[0-1023]b[0-1023]"), 1 << 20);
}

TEST(CountHostsTest, WhatIsNoListOrTooLongIsAnError) {
  for (const absl::string_view list :
       {"a[0-999999999]", "a[0-999999999999999999]", "a[0-1048576]", "a[0-1023]b[0-1024]", "a[0-1048575],b",
        "a[0-99999][0-99999][0-99999][0-99999][0-99999]"}) {
    EXPECT_THAT(CountHosts(list), StatusIs(kInvalid, "found more hosts, wanted at most 1048576")) << list;
  }
  EXPECT_THAT(CountHosts("a[0-9999999999999999999]"),
              StatusIs(kInvalid, "wanted a host's number, of at most 18 digits"));
  EXPECT_THAT(CountHosts("a[4-1]"),
              StatusIs(kInvalid, "found \"4-1\", wanted a range whose end is not before its begin"));
  EXPECT_THAT(CountHosts("a[x]"), StatusIs(kInvalid, "found \"x\", wanted a host's number"));
  EXPECT_THAT(CountHosts("a[-1]"), StatusIs(kInvalid, "found \"\", wanted a host's number"));
  EXPECT_THAT(CountHosts("a[]"), StatusIs(kInvalid, "found \"\", wanted a host's number"));
  for (const absl::string_view list : {"a[", "a]", "a[1", "a[[1]]", "a]1["}) {
    EXPECT_THAT(CountHosts(list), StatusIs(kInvalid, "wanted brackets in pairs")) << list;
  }
  for (const absl::string_view list : {"", ",", "a,", "a,,b"}) {
    EXPECT_THAT(CountHosts(list), StatusIs(kInvalid, "found no host, wanted one between commas")) << list;
  }
}

TEST(SlurmTest, ReadsNodes) {
  ASSERT_OK_AND_ASSIGN(const ClusterFacts facts, Read(SlurmNodes(4)));
  EXPECT_EQ(facts.nodes, 4);
  EXPECT_EQ(facts.devices_per_node, 8);
  EXPECT_EQ(facts.device_name, "h100");
  EXPECT_FALSE(facts.cpu.has_value()) << "x86_64 is intel or amd";
  EXPECT_FALSE(facts.nodes_per_leaf.has_value());
  EXPECT_THAT(facts.notes, ElementsAre("left out: 1 nodes without GPUs",
                                       "1 of the 4 nodes are down or drained, and counted all the same"));
}

// A line for each node (scontrol -o); a configuration; other resources beside GPUs.
TEST(SlurmTest, ReadsLinesAndLists) {
  ASSERT_OK_AND_ASSIGN(const ClusterFacts lines, Read("NodeName=a Arch=aarch64 Gres=gpu:gh200:1 State=IDLE\n"
                                                      "NodeName=b Arch=aarch64 Gres=gpu:gh200:1 State=IDLE\n"));
  EXPECT_EQ(lines.nodes, 2);
  EXPECT_EQ(lines.cpu, CpuVendor::kArm);
  ASSERT_OK_AND_ASSIGN(
      const ClusterFacts conf,
      Read("# slurm.conf\nClusterName=x\nNodeName=DEFAULT CPUs=64 Gres=gpu:v100:4\n"
           "nodename=g[001-128] CPUs=64 \\\n  gres=shard:32,gpu:a100:4(S:0,1),gpu:a100:4(S:2,3),nic:2\n"
           "PartitionName=all Nodes=g[001-128] Gres=gpu:t4:1\n"));
  EXPECT_EQ(conf.nodes, 128);
  EXPECT_EQ(conf.devices_per_node, 8);
  EXPECT_EQ(conf.device_name, "a100");
  ASSERT_OK_AND_ASSIGN(const ClusterFacts untyped, Read("NodeName=a Gres=gpu:8\n"));
  EXPECT_EQ(untyped.devices_per_node, 8);
  EXPECT_EQ(untyped.device_name, "");
}

TEST(SlurmTest, ReadsSwitches) {
  ASSERT_OK_AND_ASSIGN(const ClusterFacts facts, Read(kSwitches));
  EXPECT_EQ(facts.nodes, 64);
  EXPECT_EQ(facts.nodes_per_leaf, 32);
  EXPECT_THAT(facts.notes, ElementsAre());
  ASSERT_OK_AND_ASSIGN(const ClusterFacts uneven, Read("SwitchName=a Nodes=n[1-16] LinkSpeed=1\nSwitchName=b \\\n"
                                                       "  Nodes=n[17-32]\nSwitchName=c Nodes=n[33-36]\n"));
  EXPECT_EQ(uneven.nodes, 36);
  EXPECT_EQ(uneven.nodes_per_leaf, 16);
  EXPECT_THAT(uneven.notes, ElementsAre("switches have from 4 to 16 nodes: all are taken to have 16, as most do"));
}

TEST(SlurmTest, DifferentNodesAreAnError) {
  EXPECT_THAT(Read("NodeName=a Gres=gpu:h100:8\nNodeName=b Gres=gpu:a100:4\n"),
              StatusIs(kInvalid,
                       "s.txt:2:12: found gpu:a100:4 of \"b\", wanted gpu:h100:8, as \"a\" has; nodes of a cluster are "
                       "equal: leave those that you train on, e.g. scontrol show node LIST"));
  EXPECT_THAT(Read("NodeName=a Gres=gpu:h100:4,gpu:l4:2\n"),
              StatusIs(kInvalid, "s.txt:1:12: found GPUs of type \"l4\" beside \"h100\", wanted one kind"));
  EXPECT_THAT(Read("NodeName=a Arch=aarch64 Gres=gpu:8\nNodeName=b Arch=x86_64 Gres=gpu:8\n"),
              StatusIs(kInvalid, "found gpu:8 of \"b\", wanted gpu:8 beside an ARM, as \"a\" has"));
}

TEST(SlurmTest, WrongFilesAreErrorsWithTheirPlace) {
  EXPECT_THAT(Read("NodeName=a Gres=(null)\n"), StatusIs(kInvalid, "s.txt:1:1: found no node with GPUs"));
  EXPECT_THAT(Read("NodeName=a[0-\n"), StatusIs(kInvalid, "s.txt:1:1: found \"a[0-\", wanted brackets in pairs"));
  EXPECT_THAT(Read("NodeName=a\nNodeName=a\n"), StatusIs(kInvalid, "s.txt:2:1: found node \"a\" a second time"));
  EXPECT_THAT(Read("NodeName=a\n  Gres=gpu:h100:many\n"),
              StatusIs(kInvalid, "s.txt:2:3: found \"gpu:h100:many\", wanted GPUs, as gpu:8 or gpu:h100:8"));
  EXPECT_THAT(Read("NodeName=a Gres=gpu:-1\n"), StatusIs(kInvalid, "wanted GPUs, as gpu:8"));
  EXPECT_THAT(Read("NodeName=a Gres=gpu:a100_3g.20gb:2\n"),
              StatusIs(kInvalid, "s.txt:1:12: found MIG devices, \"a100_3g.20gb\", wanted whole GPUs"));
  EXPECT_THAT(Read("SwitchName=a Switches=b\n"), StatusIs(kInvalid, "s.txt:1:1: found no switch with nodes"));
  EXPECT_THAT(Read("SwitchName=a Nodes=ALL\n"), StatusIs(kInvalid, "s.txt:1:14: found ALL, wanted a list of nodes"));
  EXPECT_THAT(Read("SwitchName=a Nodes=n[0-1048575]\nSwitchName=b Nodes=m\n"),
              StatusIs(kInvalid, "s.txt:2:14: found more hosts, wanted at most 1048576"));
}

}  // namespace
}  // namespace meshwright
