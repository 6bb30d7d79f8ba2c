// Whole descriptions to clusters: what is written is read by the reader of --cluster, and is the machine it should be.
#include "tools/import/cluster.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "costmodel/library.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/files.h"
#include "ir/testing.h"
#include "tools/cluster_flags.h"
#include "tools/import/testing.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

std::string Notes(const Imported& imported) { return absl::StrJoin(imported.notes, "\n"); }

// The cluster that --cluster=FILE makes of the text.
absl::StatusOr<Cluster> ReadBack(const Imported& imported) {
  const std::string path = testing::TempDir() + "/cluster.yaml";
  MESHWRIGHT_RETURN_IF_ERROR(WriteWholeFile(path, imported.text));
  return OpenCluster(path);
}

ClusterHints Named(absl::string_view device) { return {std::string(device), std::nullopt}; }

// 5 + 4 + 4 + 5 = 18 links x 25 GB/s = 450 GB/s, each of 8 cards 400,000 Mbit/s; the two for storage are no device's.
TEST(ImportClusterTest, TheTopologyOfADgxH100IsItsUsualMachine) {
  ASSERT_OK_AND_ASSIGN(const Imported imported, ImportCluster(DgxH100Topology(), "topo.xml", Named("h100")));
  EXPECT_EQ(imported.text,
            "# From an NCCL topology, topo.xml. What is not here is of the device's usual machine.\n"
            "device: h100-sxm\n"
            "nodes: 1\n"
            "devices_per_node: 8\n"
            "intra_link: nvswitch\n"
            "intra_bandwidth: 450 GB/s\n"
            "nics_per_node: 8\n"
            "inter_bandwidth: 400 Gb/s\n"
            "nic_ll128: yes\n"
            "cpu: intel\n");
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, ReadBack(imported));
  ASSERT_OK_AND_ASSIGN(const Cluster usual, MakeCluster("h100-sxm", 1, 8));
  EXPECT_EQ(cluster, usual);
  EXPECT_EQ(Notes(imported),
            "one node: the file describes a machine and not how many there are; --nodes=N says so\n"
            "left out of the network cards: \"mlx5_8\", \"mlx5_9\"; no device shares a PCIe switch with them\n"
            "what the file does not say is that of h100-sxm's usual machine: nic_latency 0 us, oversubscription 1, "
            "price_per_device_hour 6.88 USD/h");
}

TEST(ImportClusterTest, FlagsSayHowManyNodesThereAre) {
  ASSERT_OK_AND_ASSIGN(const Imported imported, ImportCluster(DgxH100Topology(), "topo.xml", {"h200", 16}));
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, ReadBack(imported));
  ASSERT_OK_AND_ASSIGN(const Cluster usual, MakeCluster("h200", 16, 8));
  EXPECT_EQ(cluster, usual);
  EXPECT_THAT(Notes(imported), Not(HasSubstr("One node")));
  EXPECT_THAT(ImportCluster(DgxH100Topology(), "topo.xml", {"h200", 0}), StatusIs(kInvalid, "found 0 nodes, wanted"));
}

TEST(ImportClusterTest, ATopologyHasNoNameAndSaysWhichThereAre) {
  EXPECT_THAT(
      ImportCluster(DgxH100Topology(), "topo.xml", {}),
      StatusIs(kInvalid,
               "topo.xml:5:10: found compute capability 90 and no device's name, wanted to know which device of "
               "it; give e.g. --device=h100-sxm; there are h100-sxm, h200, h100-sxm-96gb, h100-sxm-64gb, "
               "h800-sxm, h20"));
  EXPECT_THAT(ImportCluster(DgxH100Topology(), "topo.xml", Named("a100")),
              StatusIs(kInvalid, "found compute capability 90, wanted 80, that of --device=a100-sxm-80gb; give e.g."));
  EXPECT_THAT(ImportCluster(DgxH100Topology(), "topo.xml", Named("h1000")),
              StatusIs(absl::StatusCode::kInvalidArgument, "--device"));
}

// 3 peers x 4 links x 25 GB/s = 300 GB/s. The library takes several nodes of four for such boards.
TEST(ImportClusterTest, ABoardOfFourA100IsWired) {
  ASSERT_OK_AND_ASSIGN(const Imported imported, ImportCluster(HgxA100Topology(), "topo.xml", {"a100-sxm-80gb", 2}));
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, ReadBack(imported));
  ASSERT_OK_AND_ASSIGN(Cluster expected, MakeCluster("a100-sxm-80gb", 2, 4));
  EXPECT_EQ(expected.intra_kind, LinkKind::kNvLinkMesh);
  EXPECT_EQ(expected.intra_bandwidth, GBps(300));
  expected.nics_per_node = 2;
  EXPECT_EQ(cluster, expected);
  EXPECT_THAT(imported.text, HasSubstr("intra_link: nvlink_mesh\nintra_bandwidth: 300 GB/s\nnics_per_node: 2\n"));
}

// 16 lanes of generation 4: 31.5 GB/s. Both ports of the card share its guid and are two; no GPU is on their switch.
TEST(ImportClusterTest, CardsInSlotsAreJoinedByPcie) {
  ASSERT_OK_AND_ASSIGN(const Imported imported, ImportCluster(kPcieTopology, "topo.xml", Named("l40s")));
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, ReadBack(imported));
  ASSERT_OK_AND_ASSIGN(Cluster expected, MakeCluster("l40s", 1, 2));
  expected.nics_per_node = 2;
  expected.nic_bandwidth = GBps(12.5);
  expected.nic_ll128 = false;
  expected.cpu = CpuVendor::kAmd;
  EXPECT_EQ(cluster, expected);
}

// 10 x 44,712 MB/s = 447.12 GB/s. No other device of capability 90 has an ARM and one GPU.
TEST(ImportClusterTest, AGraceHopperIsKnownByItsLinks) {
  ASSERT_OK_AND_ASSIGN(const Imported imported, ImportCluster(kGraceTopology, "topo.xml", {}));
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, ReadBack(imported));
  ASSERT_OK_AND_ASSIGN(Cluster expected, MakeCluster("gh200", 1, 1));
  expected.intra_bandwidth = GBps(447.12);
  EXPECT_EQ(cluster, expected);
  EXPECT_THAT(imported.text, HasSubstr("intra_link: c2c\nintra_bandwidth: 447.12 GB/s\n"));
  EXPECT_THAT(Notes(imported), HasSubstr("the device is taken for gh200, the only one of compute capability 90"));
}

// 18 links between each two of eight would be 126 of a chip that has 18, so a switch joins them.
TEST(ImportClusterTest, AMatrixAndAListAreADgx) {
  for (const std::string& text :
       {DgxH100Matrix() + GpuList("NVIDIA H100 80GB HBM3", 8), GpuList("NVIDIA H100 80GB HBM3", 8) + DgxH100Matrix()}) {
    ASSERT_OK_AND_ASSIGN(const Imported imported, ImportCluster(text, "node.txt", {}));
    ASSERT_OK_AND_ASSIGN(const Cluster cluster, ReadBack(imported));
    ASSERT_OK_AND_ASSIGN(const Cluster usual, MakeCluster("h100-sxm", 1, 8));
    EXPECT_EQ(cluster, usual);
    EXPECT_THAT(imported.text, HasSubstr("intra_link: nvswitch\nintra_bandwidth: 450 GB/s\nnics_per_node: 8\n"));
    EXPECT_THAT(Notes(imported), HasSubstr("\"mlx5_8\", \"mlx5_9\""));
    EXPECT_THAT(Notes(imported), HasSubstr("inter_bandwidth 400 Gb/s"));
  }
  EXPECT_THAT(ImportCluster(DgxH100Matrix(), "node.txt", {}),
              StatusIs(kInvalid, "node.txt:1:1: found no device's name, wanted one; give it, e.g. --device=h100-sxm"));
}

// The rule of costmodel/power_clock.h, with 0.155 of a card's own limit drawn idle: of 350 W 54.25 are, so 280 W leave
// (280 - 54.25) / (350 - 54.25) = 0.763 of the power. At the L40S's own clock, 0.87 of the highest, V is
// 1 + 0.28 x 0.10 / 0.23 = 1.122 and the power 0.87 x 1.122^2 = 1.095. 0.763 of it, 0.836, is that at 0.792, where V is
// 1.027: 0.792 / 0.87 = 0.910 of the clock, and of its 0.82 in training 0.747.
TEST(ImportClusterTest, ATableSaysWhatThePowerLimitIs) {
  ASSERT_OK_AND_ASSIGN(const Imported imported, ImportCluster(kL40sTable, "gpus.csv", {}));
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, ReadBack(imported));
  ASSERT_OK_AND_ASSIGN(Cluster expected, MakeCluster("l40s", 1, 2));
  EXPECT_NEAR(cluster.device.kernels.sustained_clock, 0.747, 0.002);
  expected.device.kernels.sustained_clock = cluster.device.kernels.sustained_clock;
  EXPECT_EQ(cluster, expected);  // 46,068 MiB is 1.1 % more than the library's 44.5 GiB: the driver's own
  EXPECT_THAT(imported.text, HasSubstr("intra_bandwidth: 31.5 GB/s\n"));
  EXPECT_THAT(imported.text, Not(HasSubstr("memory")));
}

TEST(ImportClusterTest, MemoryThatIsNotTheDevicesIsWritten) {
  ASSERT_OK_AND_ASSIGN(const Imported imported,
                       ImportCluster("name, memory.total [MiB]\nNVIDIA GH200 144G HBM3e, 146831\n", "gpus.csv", {}));
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, ReadBack(imported));
  EXPECT_EQ(cluster.device.name, "gh200");
  EXPECT_EQ(cluster.device.memory, MiB(146831));
  EXPECT_THAT(Notes(imported), HasSubstr("\"NVIDIA GH200 144G HBM3e\" is taken for gh200, the nearest one"));
}

TEST(ImportClusterTest, SlurmsNodesAndSwitchesAreACluster) {
  ASSERT_OK_AND_ASSIGN(const Imported imported, ImportCluster(SlurmNodes(3) + kSwitches, "slurm.txt", {}));
  EXPECT_EQ(imported.text,
            "# From Slurm's nodes, slurm.txt. What is not here is of the device's usual machine.\n"
            "device: h100-sxm\n"
            "nodes: 3\n"
            "devices_per_node: 8\n"
            "nodes_per_leaf: 32\n");
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, ReadBack(imported));
  ASSERT_OK_AND_ASSIGN(Cluster expected, MakeCluster("h100-sxm", 3, 8));
  expected.nodes_per_leaf = 32;
  EXPECT_EQ(cluster, expected);
  EXPECT_THAT(Notes(imported), HasSubstr("left out: 1 nodes without GPUs"));
  EXPECT_THAT(Notes(imported), HasSubstr("1 of the 3 nodes are down or drained"));
  EXPECT_THAT(Notes(imported), HasSubstr("the switches have 64 nodes, of which 3 are described as having GPUs"));
}

TEST(ImportClusterTest, SwitchesAloneCountNodes) {
  ASSERT_OK_AND_ASSIGN(const Imported imported, ImportCluster(kSwitches, "topology.conf", Named("a100")));
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, ReadBack(imported));
  ASSERT_OK_AND_ASSIGN(Cluster expected, MakeCluster("a100", 64));
  expected.nodes_per_leaf = 32;
  EXPECT_EQ(cluster, expected);
  EXPECT_THAT(Notes(imported), HasSubstr("usual machine: devices_per_node 8, intra_link nvswitch"));
}

// The machine by its matrix and the number of nodes by Slurm, in one file.
TEST(ImportClusterTest, OneFileMayHoldMachineAndNodes) {
  ASSERT_OK_AND_ASSIGN(const Imported imported, ImportCluster(SlurmNodes(5) + DgxH100Matrix(), "all.txt", {}));
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, ReadBack(imported));
  ASSERT_OK_AND_ASSIGN(const Cluster usual, MakeCluster("h100-sxm", 5, 8));
  EXPECT_EQ(cluster, usual);
  EXPECT_THAT(imported.text, HasSubstr("# From the matrix of nvidia-smi topo -m and Slurm's nodes, all.txt."));
  EXPECT_THAT(ImportCluster(SlurmNodes(5) + GpuList("NVIDIA H100 80GB HBM3", 4), "all.txt", {}),
              StatusIs(kInvalid, "all.txt:10:4: found 8 GPUs of a node, wanted 4, as nvidia-smi says"));
}

// Names as drivers print them.
TEST(ImportClusterTest, NamesOfDriversAreKnown) {
  constexpr std::pair<absl::string_view, absl::string_view> kNames[] = {
      {"Tesla V100-SXM2-16GB", "v100-sxm-16gb"},
      {"Tesla V100-SXM2-32GB", "v100-sxm-32gb"},
      {"Tesla V100-SXM3-32GB", "v100-sxm3-32gb"},
      {"Tesla V100-PCIE-16GB", "v100-pcie-16gb"},
      {"Tesla T4", "t4"},
      {"NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"},
      {"NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"},
      {"NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"},
      {"NVIDIA A100 80GB PCIe", "a100-pcie-80gb"},
      {"NVIDIA A800-SXM4-80GB", "a800-sxm"},
      {"NVIDIA A10G", "a10g"},
      {"NVIDIA A40", "a40"},
      {"NVIDIA RTX A6000", "rtx-a6000"},
      {"NVIDIA GeForce RTX 3090", "rtx-3090"},
      {"NVIDIA GeForce RTX 4090", "rtx-4090"},
      {"NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"},
      {"NVIDIA L4", "l4"},
      {"NVIDIA L40", "l40"},
      {"NVIDIA L40S", "l40s"},
      {"NVIDIA H100 80GB HBM3", "h100-sxm"},
      {"NVIDIA H100 PCIe", "h100-pcie"},
      {"NVIDIA H100 NVL", "h100-nvl"},
      {"NVIDIA H800", "h800-sxm"},
      {"NVIDIA H20", "h20"},
      {"NVIDIA H200", "h200"},
      {"NVIDIA GH200 480GB", "gh200"},
      {"NVIDIA GH200 120GB", "gh200"},
      {"NVIDIA B200", "b200"},
      {"NVIDIA GB200", "gb200"},
      {"NVIDIA GB300", "gb300"},
      {"NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"},
  };
  for (const auto& [name, device] : kNames) {
    ASSERT_OK_AND_ASSIGN(const Imported imported, ImportCluster(GpuList(name, 4), "gpus.txt", {}));
    EXPECT_THAT(imported.text, HasSubstr(absl::StrCat("\ndevice: ", device, "\nnodes: 1\ndevices_per_node: 4\n")))
        << name;
  }
}

// Of the matrix: four links of each pair are 12 of a chip, wired; a pair of cards with a bridge of 12; a switch where
// all that a device has go to its only peer, as in its usual machine; RTX A6000: four of 14.0625 GB/s.
TEST(ImportClusterTest, TheDeviceTellsWhetherPairsAreWired) {
  const auto matrix = [](int gpus, absl::string_view cell) {
    std::string text;
    for (int i = 0; i < gpus; ++i) absl::StrAppend(&text, "\tGPU", i);
    absl::StrAppend(&text, "\tCPU Affinity\n");
    for (int i = 0; i < gpus; ++i) {
      absl::StrAppend(&text, "GPU", i);
      for (int j = 0; j < gpus; ++j) absl::StrAppend(&text, "\t", i == j ? "X" : cell);
      absl::StrAppend(&text, "\t0-63\n");
    }
    return text;
  };
  struct Case {
    int gpus;
    absl::string_view cell, device;
    LinkKind kind;
    double gigabytes;
  };
  for (const Case& c : std::vector<Case>{{4, "NV4", "NVIDIA A100-SXM4-80GB", LinkKind::kNvLinkMesh, 300},
                                         {8, "NV12", "NVIDIA A100-SXM4-80GB", LinkKind::kNvSwitch, 300},
                                         {2, "NV12", "NVIDIA A100-SXM4-80GB", LinkKind::kNvSwitch, 300},
                                         {2, "NV12", "NVIDIA A100 80GB PCIe", LinkKind::kNvLinkMesh, 300},
                                         {8, "NV8", "NVIDIA H800", LinkKind::kNvSwitch, 200},
                                         {2, "NV12", "NVIDIA H100 NVL", LinkKind::kNvLinkMesh, 300},
                                         {4, "NV18", "NVIDIA GB200", LinkKind::kNvSwitch, 900},
                                         {4, "NV6", "NVIDIA GH200 120GB", LinkKind::kNvLinkMesh, 450},
                                         {2, "NV4", "NVIDIA RTX A6000", LinkKind::kNvLinkMesh, 56.25},
                                         {16, "NV6", "Tesla V100-SXM3-32GB", LinkKind::kNvSwitch, 150},
                                         {4, "SYS", "NVIDIA H100 80GB HBM3", LinkKind::kPcie, 63},
                                         {4, "SYS", "NVIDIA GeForce RTX 4090", LinkKind::kPcieHost, 31.5}}) {
    SCOPED_TRACE(absl::StrCat(c.gpus, " x ", c.device, " ", c.cell));
    ASSERT_OK_AND_ASSIGN(const Imported imported,
                         ImportCluster(matrix(c.gpus, c.cell) + GpuList(c.device, c.gpus), "node.txt", {}));
    ASSERT_OK_AND_ASSIGN(const Cluster cluster, ReadBack(imported));
    EXPECT_EQ(cluster.devices_per_node, c.gpus);
    EXPECT_EQ(NameOf(cluster.intra_kind), NameOf(c.kind));
    EXPECT_EQ(cluster.intra_bandwidth, GBps(c.gigabytes));
  }
  EXPECT_THAT(ImportCluster(matrix(2, "NV4") + GpuList("NVIDIA L40S", 2), "node.txt", {}),
              StatusIs(kInvalid, "found NVLinks, wanted none, as l40s has none"));
}

TEST(ImportClusterTest, CardsOfTheSpeedThatCarriesMostAreTaken) {
  const std::string text = absl::StrReplaceAll(
      DgxH100Topology(),
      {{"dev=\"7\" latency=\"0.000000\" speed=\"400000\"", "dev=\"7\" latency=\"0.000000\" speed=\"800000\""}});
  ASSERT_OK_AND_ASSIGN(const Imported imported, ImportCluster(text, "topo.xml", Named("h100")));
  EXPECT_THAT(imported.text, HasSubstr("nics_per_node: 7\ninter_bandwidth: 400 Gb/s\n"));
  EXPECT_THAT(Notes(imported), HasSubstr("left out of the network cards: \"mlx5_7\"; the others have 400 Gb/s"));
}

TEST(ImportClusterTest, WhatNamesOfCardsTellIsSaid) {
  const auto notes = [](absl::string_view name) {
    const std::string text = absl::StrReplaceAll(kPcieTopology, {{"mlx5_0", name}});
    return Notes(ImportCluster(text, "topo.xml", Named("l40s")).value_or(Imported()));
  };
  EXPECT_THAT(notes("eth0"), HasSubstr("bytes go through TCP"));
  EXPECT_THAT(notes("ens5"), HasSubstr("bytes go through TCP"));
  EXPECT_THAT(notes("rdmap16s27"), HasSubstr("Elastic Fabric Adapters"));
  EXPECT_THAT(notes("mlx5_7"), Not(HasSubstr("have names of")));
}

// The device is the flag's, a file too: its links are the file's, by the generation.
TEST(ImportClusterTest, ADeviceOfAFileMayBeGiven) {
  const std::string path = testing::TempDir() + "/my_gpu.yaml";
  ASSERT_OK_AND_ASSIGN(const std::string own, ReadWholeFile("costmodel/data/h100-sxm.yaml", 1 << 20));
  ASSERT_OK(WriteWholeFile(path, own));
  ASSERT_OK_AND_ASSIGN(const Imported imported, ImportCluster(DgxH100Topology(), "topo.xml", Named(path)));
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, ReadBack(imported));
  EXPECT_EQ(cluster.device.name, path);
  EXPECT_EQ(cluster.intra_bandwidth, GBps(450));
}

TEST(ImportClusterTest, PartOfARackIsTold) {
  ASSERT_OK_AND_ASSIGN(const Imported imported, ImportCluster(GpuList("NVIDIA GB200", 4), "gpus.txt", {}));
  EXPECT_THAT(Notes(imported),
              HasSubstr("NVLink reaches 72 gb200 of a rack, which is one node here; the file describes 4"));
}

TEST(ImportClusterTest, TheFlagWinsOverTheFile) {
  ASSERT_OK_AND_ASSIGN(const Imported imported,
                       ImportCluster(GpuList("NVIDIA H100 80GB HBM3", 8), "gpus.txt", Named("h200")));
  EXPECT_THAT(imported.text, HasSubstr("device: h200\n"));
  EXPECT_THAT(Notes(imported), HasSubstr("the device is h200, as --device says; the file describes h100-sxm"));
  ASSERT_OK_AND_ASSIGN(const Imported fewer, ImportCluster(SlurmNodes(4), "slurm.txt", {std::nullopt, 2}));
  EXPECT_THAT(fewer.text, HasSubstr("nodes: 2\n"));
  EXPECT_THAT(Notes(fewer), HasSubstr("there are 2 nodes, as --nodes says; the file lists 4"));
}

TEST(ImportClusterTest, UnknownDevicesAreAnErrorAndNameNoFile) {
  EXPECT_THAT(
      ImportCluster(GpuList("NVIDIA Z900", 8), "gpus.txt", {}),
      StatusIs(absl::StatusCode::kNotFound, "gpus.txt:1:8: found \"NVIDIA Z900\", wanted one of the devices a10,"));
  const absl::StatusOr<Imported> file = ImportCluster(GpuList("/etc/hostile.yaml", 8), "gpus.txt", {});
  EXPECT_THAT(file, StatusIs(absl::StatusCode::kNotFound, "gpus.txt:1:8: found \"/etc/hostile.yaml\", wanted one of"));
  EXPECT_THAT(ImportCluster(GpuList(std::string(1 << 20, ' ') + "h", 1), "gpus.txt", {}),
              StatusIs(absl::StatusCode::kNotFound, "gpus.txt:1:8: found \""));
}

TEST(ImportClusterTest, LooksAreByContent) {
  for (const std::string& text :
       {DgxH100Topology(), std::string(kPcieTopology), DgxH100Matrix(), std::string(kL40sTable),
        GpuList("NVIDIA L4", 1), SlurmNodes(1), std::string(kSwitches)}) {
    EXPECT_TRUE(LooksLikeCluster(text)) << text.substr(0, 80);
  }
  for (const absl::string_view text :
       {"", "{\"model_type\": \"llama\"}", "cluster: h100-sxm\n", "--tensor-model-parallel-size 8\n", "<html><system/>",
        "<topology><object type=\"Machine\"/></topology>", "name,gpu_type,gpus\nllama,h100,8\n", "GPU_COUNT=8\n"}) {
    EXPECT_FALSE(LooksLikeCluster(text)) << text;
  }
  EXPECT_THAT(ImportCluster("x: 1\n", "x.yaml", {}),
              StatusIs(kInvalid, "x.yaml:1:1: found no description of a cluster"));
}

TEST(ImportClusterTest, TooLongATextIsRefused) {
  const std::string text = DgxH100Topology() + std::string(kMaxDescriptionBytes, ' ');
  EXPECT_THAT(ImportCluster(text, "topo.xml", {}), StatusIs(kInvalid, "wanted at most 16777216"));
}

}  // namespace
}  // namespace meshwright
