#include "tools/cluster_flags.h"

#include <fstream>
#include <string>
#include <vector>

#include "costmodel/library.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tools/exit_code.h"

namespace meshwright {
namespace {

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// The cluster of a file whose section is `section`, with flags.
absl::StatusOr<Cluster> Read(const std::string& section, const std::vector<std::string>& args) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Document document, ParseDocument("name: x\n" + section, "x.yaml"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Flags flags, Flags::Parse(ClusterFlags(), args));
  return ClusterFrom(document.root()["cluster"], flags);
}

constexpr char kTwoNodes[] = "cluster: {device: h100-sxm, nodes: 2, inter_bandwidth: 100 Gb/s}\n";

TEST(ClusterFlagsTest, WithoutFlagsItIsTheSection) {
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, Read(kTwoNodes, {}));
  EXPECT_EQ(cluster.num_devices(), 16);
  EXPECT_EQ(cluster.nic_bandwidth, GBps(12.5));
}

TEST(ClusterFlagsTest, CountsKeepTheLinks) {
  ASSERT_OK_AND_ASSIGN(const Cluster more, Read(kTwoNodes, {"--devices=64"}));
  EXPECT_EQ(more.nodes, 8);
  EXPECT_EQ(more.nic_bandwidth, GBps(12.5));
  ASSERT_OK_AND_ASSIGN(const Cluster part, Read(kTwoNodes, {"--devices=4"}));
  EXPECT_EQ(part.nodes, 1);
  EXPECT_EQ(part.devices_per_node, 4);
  EXPECT_EQ(part.nics_per_node, 4);  // of 8
  ASSERT_OK_AND_ASSIGN(const Cluster nodes, Read(kTwoNodes, {"--nodes=3", "--devices_per_node=4"}));
  EXPECT_EQ(nodes.num_devices(), 12);
}

// Nodes of four A100, whose links are no switch, and quads of GH200, by flags and by a file.
TEST(ClusterFlagsTest, CountsMakeTheMachineThatAFileMakes) {
  for (const std::string device : {"a100", "gh200"}) {
    ASSERT_OK_AND_ASSIGN(const Cluster flags, Read("", {"--device=" + device, "--nodes=2", "--devices_per_node=4"}));
    ASSERT_OK_AND_ASSIGN(const Cluster file,
                         Read("cluster: {device: " + device + ", nodes: 2, devices_per_node: 4}\n", {}));
    EXPECT_EQ(flags.intra_kind, LinkKind::kNvLinkMesh) << device;
    EXPECT_EQ(ToText(flags), ToText(file));
  }
  const std::string switched = "cluster: {device: a100, nodes: 2, devices_per_node: 4, intra_link: nvswitch}\n";
  ASSERT_OK_AND_ASSIGN(const Cluster more, Read(switched, {"--nodes=8"}));
  EXPECT_EQ(more.intra_kind, LinkKind::kNvSwitch) << "as the file has it";
}

TEST(ClusterFlagsTest, AnotherDeviceBringsItsOwnMachine) {
  ASSERT_OK_AND_ASSIGN(const Cluster same_count, Read(kTwoNodes, {"--device=a100"}));
  EXPECT_EQ(same_count.device.name, "a100-sxm-80gb");
  EXPECT_EQ(same_count.num_devices(), 16);
  EXPECT_EQ(same_count.nic_bandwidth, GBps(25));
  ASSERT_OK_AND_ASSIGN(const Cluster counted, Read("", {"--device=a100", "--devices=1024"}));
  EXPECT_EQ(counted.nodes, 128);
}

TEST(ClusterFlagsTest, EveryKeyIsAFlag) {
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, Read(kTwoNodes, {"--memory=40GB", "--oversubscription=2"}));
  EXPECT_EQ(cluster.device.memory, Bytes(40'000'000'000));
  EXPECT_EQ(cluster.oversubscription, 2);
}

TEST(ClusterFlagsTest, ErrorsNameTheFlag) {
  const absl::Status status = Read(kTwoNodes, {"--memory=40"}).status();
  EXPECT_THAT(status, StatusIs(kInvalid, "--memory: found \"40\""));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  EXPECT_THAT(Read(kTwoNodes, {"--devices=12"}), StatusIs(kInvalid, "--devices: found 12, wanted whole nodes of 8"));
  EXPECT_THAT(Read(kTwoNodes, {"--devices=8", "--nodes=1"}), StatusIs(kInvalid, "--devices: found --nodes"));
  EXPECT_THAT(Read(kTwoNodes, {"--device=h10"}), StatusIs(kInvalid, "--device: found \"h10\""));
  EXPECT_THAT(Read(kTwoNodes, {"--devices=0"}), StatusIs(kInvalid, "--devices: found \"0\""));
  EXPECT_THAT(Read("", {}), StatusIs(kInvalid, "or give --device"));
}

TEST(ClusterFlagsTest, ErrorsInAFileAreOfTheFile) {
  const std::string path = testing::TempDir() + "my_gpu.yaml";
  std::ofstream(path) << "name: my_gpu\nmemroy: 80 GB\n";
  const absl::Status status = Read(kTwoNodes, {"--device=" + path}).status();
  EXPECT_THAT(status, StatusIs(kInvalid, path + ":2:1: memroy: found an unknown key"));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kBadInput);
  EXPECT_EQ(ExitCodeOf(Read(kTwoNodes, {"--device=none.yaml"}).status()), ExitCode::kIo);
}

TEST(ClusterFlagsTest, AClusterFileMayBeASectionOfAModelFile) {
  const std::string path = testing::TempDir() + "section.yaml";
  std::ofstream(path) << "cluster: {device: l40s, nodes: 2, devices_per_node: 4}\n";
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, Read("", {"--cluster=" + path}));
  EXPECT_EQ(cluster.device.name, "l40s");
  EXPECT_EQ(cluster.num_devices(), 8);
  std::ofstream(path) << "name: m\ncluster: l40s\n";
  EXPECT_THAT(Read("", {"--cluster=" + path}), StatusIs(kInvalid, ":1:1: name: found an unknown key"));
}

// What a plan writes down is what it was made for.
TEST(ClusterToYamlTest, ReadsBackAsTheSame) {
  std::vector<std::string> sections;
  for (const std::string& device : DeviceNames()) {
    sections.push_back("{device: " + device + ", nodes: 3, devices_per_node: 4}");
  }
  sections.push_back(
      "{device: a100, nodes: 2, devices_per_node: 7, memory: 39.7 GiB, memory_bandwidth: 1.7 TB/s, "
      "sustained_clock: 0.8, intra_link: pcie, intra_bandwidth: 24.3 GB/s, nics_per_node: 3, "
      "inter_bandwidth: 95 Gb/s, nic_latency: 12.3 us, nic_in_order: no, nic_ll128: no, oversubscription: 1.7, "
      "nodes_per_leaf: 12, cpu: intel, cpu_slowdown: 1.8, "
      "price_per_device_hour: 1.99 USD/h}");
  sections.push_back(
      "{device: h100, attention: flash3, kernels: {source: measured here, matmul_share: 0.7123, startup: 1.7 us}}");
  sections.push_back(
      "{device: host, kernels: {source: measured here, peak_float32: 51.7 GFLOP/s, attention_forward_share: 0.07, "
      "attention_setup_keys: 3, core_sharing: 1.97}}");
  for (const std::string& section : sections) {
    SCOPED_TRACE(section);
    ASSERT_OK_AND_ASSIGN(const Cluster cluster, Read("cluster: " + section + "\n", {}));
    const std::string text = "cluster: " + ToYaml(cluster) + "\n";
    ASSERT_OK_AND_ASSIGN(const Cluster again, Read(text, {}));
    EXPECT_TRUE(again == cluster) << text;
    EXPECT_EQ("cluster: " + ToYaml(again) + "\n", text);
  }
}

TEST(ClusterToYamlTest, NarrowProductsReadBackAsTheSame) {
  for (const auto& [device, products] : {std::pair("h100-sxm", "float8"), std::pair("gb300", "float4")}) {
    ASSERT_OK_AND_ASSIGN(Cluster cluster, MakeCluster(device, 2));
    ASSERT_OK(SetClusterKey("products", products, &cluster));
    ASSERT_OK_AND_ASSIGN(const Document document, ParseDocument(ToYaml(cluster), "plan.yaml"));
    ASSERT_OK_AND_ASSIGN(const Cluster read, ReadCluster(document.root()));
    EXPECT_EQ(read.device.kernels, cluster.device.kernels);
    EXPECT_EQ(read.device.peak, cluster.device.peak);
    EXPECT_EQ(read.device.attention[0].forward_share, cluster.device.attention[0].forward_share);
    EXPECT_EQ(read.device.attention[0].backward_share, cluster.device.attention[0].backward_share);
  }
}

// A file of before the key has what was quantised in 8 bits.
TEST(ClusterToYamlTest, BitsOfProductsAre8Or4) {
  const auto read = [](absl::string_view kernels) {
    return Read(absl::StrCat("cluster: {device: b200, kernels: {source: mine, ", kernels, "}}\n"), {});
  };
  ASSERT_OK_AND_ASSIGN(const Cluster older, read("quantize_bytes: 3 B"));
  EXPECT_EQ(older.device.kernels.product_bits, 8);
  EXPECT_THAT(read("quantize_bytes: 3 B, product_bits: 6").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "product_bits: found 6, wanted 4 or 8"));
}

TEST(ClusterToYamlTest, AUsualMachineIsShort) {
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, MakeCluster("h100-sxm", 4));
  EXPECT_EQ(ToYaml(cluster), "{device: h100-sxm, nodes: 4, devices_per_node: 8}");
}

}  // namespace
}  // namespace meshwright
