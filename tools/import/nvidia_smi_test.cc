#include "tools/import/nvidia_smi.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tools/import/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Shape = NvLinks::Shape;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<ClusterFacts> Read(absl::string_view text) { return ReadNvidiaSmi(text, "n.txt"); }

TEST(NvidiaSmiTest, ReadsAMatrixThatATerminalShowed) {
  ASSERT_OK_AND_ASSIGN(const ClusterFacts facts, Read(DgxH100Matrix()));
  EXPECT_EQ(facts.devices_per_node, 8);
  EXPECT_EQ(facts.nvlinks->shape, Shape::kEveryPair);
  EXPECT_EQ(facts.nvlinks->links, 18);
  ASSERT_EQ(facts.cards.size(), 10u);
  EXPECT_TRUE(facts.cards[7].near);
  EXPECT_FALSE(facts.cards[8].near);
  EXPECT_EQ(facts.cards[8].megabits, 0);
  EXPECT_EQ(facts.cards[8].name, "mlx5_8") << "as the legend has it";
  EXPECT_EQ(facts.device_name, "");
}

// The cube of a DGX-1 with V100: two links along some edges, one along others, six of each GPU; spaces for tabs, names
// of cards in the header, as older drivers have them.
TEST(NvidiaSmiTest, AMatrixOfDifferentPairsIsAMesh) {
  ASSERT_OK_AND_ASSIGN(const ClusterFacts facts, Read(R"($ nvidia-smi topo -m
       GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7 mlx5_0 CPU Affinity
GPU0   X    NV1  NV1  NV2  NV2  SYS  SYS  SYS  PIX    0-19,40-59
GPU1   NV1  X    NV2  NV1  SYS  NV2  SYS  SYS  PIX    0-19,40-59
GPU2   NV1  NV2  X    NV2  SYS  SYS  NV1  SYS  PHB    0-19,40-59
GPU3   NV2  NV1  NV2  X    SYS  SYS  SYS  NV1  PHB    0-19,40-59
GPU4   NV2  SYS  SYS  SYS  X    NV1  NV1  NV2  SYS    20-39,60-79
GPU5   SYS  NV2  SYS  SYS  NV1  X    NV2  NV1  SYS    20-39,60-79
GPU6   SYS  SYS  NV1  SYS  NV1  NV2  X    NV2  SYS    20-39,60-79
GPU7   SYS  SYS  SYS  NV1  NV2  NV1  NV2  X    SYS    20-39,60-79
mlx5_0 PIX  PIX  PHB  PHB  SYS  SYS  SYS  SYS  X
)"));
  EXPECT_EQ(facts.devices_per_node, 8);
  EXPECT_EQ(facts.nvlinks->shape, Shape::kMesh);
  EXPECT_EQ(facts.nvlinks->links, 6);
  ASSERT_EQ(facts.cards.size(), 1u);
  EXPECT_EQ(facts.cards[0].name, "mlx5_0");
  EXPECT_TRUE(facts.cards[0].near);
}

TEST(NvidiaSmiTest, AMatrixWithoutLinksSaysSo) {
  ASSERT_OK_AND_ASSIGN(const ClusterFacts facts,
                       Read("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-7\nGPU1\tPHB\t X \t0-7\n"));
  EXPECT_EQ(facts.nvlinks->shape, Shape::kNone);
  EXPECT_TRUE(facts.cards.empty());
  ASSERT_OK_AND_ASSIGN(const ClusterFacts one, Read("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-7\t0\n"));
  EXPECT_EQ(one.devices_per_node, 1);
  EXPECT_EQ(one.nvlinks->shape, Shape::kNone);
}

TEST(NvidiaSmiTest, ReadsATable) {
  for (const std::string& text :
       {std::string(kL40sTable),
        absl::StrReplaceAll(kL40sTable, {{"46068 MiB", "46068"}, {" W,", ","}, {" MHz,", ","}}),
        absl::StrReplaceAll(kL40sTable, {{"\n", "\r\n"}})}) {
    ASSERT_OK_AND_ASSIGN(const ClusterFacts facts, Read(text));
    EXPECT_EQ(facts.device_name, "NVIDIA L40S");
    EXPECT_EQ(facts.device_place.line, 2u);
    EXPECT_EQ(facts.devices_per_node, 2);
    EXPECT_EQ(facts.memory, MiB(46068));
    EXPECT_EQ(facts.pcie, GBps(31.5));  // 16 lanes of generation 4
    EXPECT_EQ(facts.power_limit, 280);
    EXPECT_EQ(facts.own_power, 350);
    EXPECT_FALSE(facts.nvlinks.has_value());
  }
}

TEST(NvidiaSmiTest, WhatACardDoesNotTellIsLeftOut) {
  ASSERT_OK_AND_ASSIGN(const ClusterFacts facts, Read("index, name, memory.total [MiB], power.limit [W], "
                                                      "pcie.link.gen.max\n0, NVIDIA L4, [N/A], [Not Supported], 4\n"));
  EXPECT_EQ(facts.device_name, "NVIDIA L4");
  EXPECT_FALSE(facts.memory.has_value());
  EXPECT_FALSE(facts.power_limit.has_value());
  EXPECT_FALSE(facts.pcie.has_value());
}

TEST(NvidiaSmiTest, ReadsAList) {
  ASSERT_OK_AND_ASSIGN(const ClusterFacts facts,
                       Read("user@node:~$ nvidia-smi -L\n" + GpuList("NVIDIA A100-SXM4-80GB", 4)));
  EXPECT_EQ(facts.device_name, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(facts.device_place.line, 2u);
  EXPECT_EQ(facts.device_place.column, 8u);
  EXPECT_EQ(facts.devices_per_node, 4);
}

TEST(NvidiaSmiTest, DifferentGpusAreAnError) {
  EXPECT_THAT(
      Read(GpuList("NVIDIA L4", 1) + GpuList("NVIDIA T4", 1)),
      StatusIs(kInvalid,
               "n.txt:2:8: found \"NVIDIA T4\", wanted \"NVIDIA L4\" as the first GPU is; devices of a cluster are "
               "equal: leave the lines of one kind"));
  EXPECT_THAT(Read("name, memory.total [MiB]\nNVIDIA A, 40960 MiB\nNVIDIA A, 81920 MiB\n"),
              StatusIs(kInvalid, "n.txt:3:1: found \"NVIDIA A\" with 81920 MiB, wanted \"NVIDIA A\" with 40960 MiB"));
  EXPECT_THAT(Read(DgxH100Matrix() + GpuList("NVIDIA H100 80GB HBM3", 4)),
              StatusIs(kInvalid, "found 4 GPUs, wanted 8, as elsewhere in the file; paste what one machine prints"));
  EXPECT_THAT(Read(DgxH100Matrix() + DgxH100Matrix()),
              StatusIs(kInvalid, "found a second matrix, wanted that of one machine; leave one of equal nodes"));
  EXPECT_THAT(Read(absl::StrCat(kL40sTable, kL40sTable)), StatusIs(kInvalid, "n.txt:4:1: found a second table"));
}

TEST(NvidiaSmiTest, SlicesOfGpusAreAnError) {
  EXPECT_THAT(Read(GpuList("NVIDIA H100 80GB HBM3", 1) + "  MIG 1g.10gb     Device  0: (UUID: MIG-1)\n"),
              StatusIs(kInvalid, "n.txt:2:3: found a MIG device, wanted whole GPUs; switch MIG off"));
  EXPECT_THAT(Read("name, mig.mode.current\nNVIDIA H100 PCIe, Enabled\n"), StatusIs(kInvalid, "found MIG devices"));
}

TEST(NvidiaSmiTest, WrongMatricesAreErrorsWithTheirPlace) {
  const std::string head = "\tGPU0\tGPU1\tCPU Affinity\n";
  EXPECT_THAT(Read(head), StatusIs(kInvalid, "n.txt:1:1: found 0 rows of GPUs, wanted 2, one for each column"));
  EXPECT_THAT(Read(head + "GPU0 X NV4 0-7\n"), StatusIs(kInvalid, "n.txt:1:1: found 1 rows of GPUs, wanted 2"));
  EXPECT_THAT(Read(head + "GPU0 X\n"), StatusIs(kInvalid, "n.txt:2:1: found 1 cells, wanted 2"));
  EXPECT_THAT(Read(head + "GPU0 X NV4\nGPU1 NV2 X\n"),
              StatusIs(kInvalid, "n.txt:1:1: found 2 NVLinks from GPU1 to GPU0 and 4 back, wanted as many"));
  EXPECT_THAT(Read(head + "GPU0 X NVL\n"), StatusIs(kInvalid, "n.txt:2:8: found \"NVL\", wanted NV1 to NV64"));
  EXPECT_THAT(Read(head + "GPU0 X NV0\n"), StatusIs(kInvalid, "n.txt:2:8: found \"NV0\", wanted NV1 to NV64"));
  EXPECT_THAT(Read(head + "GPU0 X X\n"), StatusIs(kInvalid, "n.txt:2:8: found \"X\", wanted how the two are joined"));
  EXPECT_THAT(Read(head + "GPU0 SYS SYS\n"), StatusIs(kInvalid, "n.txt:2:6: found \"SYS\", wanted X, the GPU itself"));
  EXPECT_THAT(Read(head + "GPU0 X ???\n"),
              StatusIs(kInvalid, "n.txt:2:8: found \"???\", wanted one of X, NV with a number"));
}

TEST(NvidiaSmiTest, WrongTablesAreErrorsWithTheirPlace) {
  EXPECT_THAT(Read("uuid, memory.total [MiB]\na, 1\n"),
              StatusIs(kInvalid, "n.txt:1:1: found no column name, wanted one"));
  EXPECT_THAT(Read("name, uuid\n"), StatusIs(kInvalid, "n.txt:1:1: found a table without rows"));
  EXPECT_THAT(Read("name, uuid\na, b, c\n"),
              StatusIs(kInvalid, "n.txt:2:1: found 3 fields, wanted 2, as the header has"));
  EXPECT_THAT(Read("name, uuid\n, b\n"), StatusIs(kInvalid, "n.txt:2:1: found no name, wanted one"));
  EXPECT_THAT(Read("name, memory.total [MiB]\na, 80 GB\n"),
              StatusIs(kInvalid, "n.txt:2:4: found \"80 GB\", wanted a number from 1 to 16777216 MiB, or [N/A]"));
  EXPECT_THAT(Read("name, power.limit [W]\na, nan W\n"),
              StatusIs(kInvalid, "n.txt:2:4: found \"nan W\", wanted a power in W"));
}

}  // namespace
}  // namespace meshwright
