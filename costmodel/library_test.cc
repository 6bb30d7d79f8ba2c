#include "costmodel/library.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "costmodel/device_data.h"
#include "costmodel/device_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/document.h"
#include "ir/dtype.h"
#include "ir/files.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<Cluster> Read(absl::string_view text) {
  absl::StatusOr<Document> document = ParseDocument(text, "c.yaml");
  if (!document.ok()) return document.status();
  return ReadCluster(document->root()["cluster"]);
}

std::string ErrorOf(absl::string_view text) {
  const absl::StatusOr<Cluster> cluster = Read(text);
  return cluster.ok() ? "OK" : std::string(cluster.status().message());
}

TEST(LibraryTest, AFileIsADeviceOfTheUsersOwn) {
  const std::string file = testing::TempDir() + "my_gpu.yaml";
  std::string text;
  for (const DeviceData& data : kDeviceData) {
    if (absl::EndsWith(data.file, "/a100-sxm-80gb.yaml")) text = std::string(data.text);
  }
  ASSERT_NE(text, "");
  ASSERT_OK(WriteWholeFile(file, absl::StrReplaceAll(text, {{"bfloat16: 312 TFLOP/s", "bfloat16: 624 TFLOP/s"}})));
  ASSERT_OK_AND_ASSIGN(const Device own, FindDevice(file));
  ASSERT_OK_AND_ASSIGN(const Device known, FindDevice("a100"));
  EXPECT_EQ(own.Peak(DType::kBFloat16).raw(), 2 * known.Peak(DType::kBFloat16).raw());
  EXPECT_EQ(own.Peak(DType::kFloat16), known.Peak(DType::kFloat16));
  EXPECT_EQ(own.name, file);  // by which it is found again
  ASSERT_OK_AND_ASSIGN(const Cluster two, Read("cluster: {device: " + file + ", nodes: 2}"));
  EXPECT_EQ(two.device, own);
  EXPECT_EQ(two.num_devices(), 16);

  EXPECT_TRUE(IsFileError(FindDevice(testing::TempDir() + "none.yaml").status()));
  EXPECT_TRUE(IsFileError(Read("cluster: {device: none.yaml}").status()));
  EXPECT_THAT(std::string(Read("cluster: {device: none.yaml}").status().message()),
              HasSubstr("c.yaml:1:19: cluster.device: none.yaml: cannot be opened: "));
  ASSERT_OK(WriteWholeFile(file, "name: x\n"));
  EXPECT_THAT(std::string(FindDevice(file).status().message()), HasSubstr("my_gpu.yaml:"));
}

TEST(LibraryTest, KnowsTheseDevices) {
  EXPECT_THAT(
      DeviceNames(),
      ElementsAre("a10", "a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm-40gb", "a100-sxm-64gb", "a100-sxm-80gb", "a10g",
                  "a30", "a40", "a800-sxm", "b200", "b300", "gb200", "gb300", "gh200", "gh200-quad", "h100-nvl",
                  "h100-pcie", "h100-sxm", "h100-sxm-64gb", "h100-sxm-96gb", "h20", "h200", "h800-sxm", "host", "l20",
                  "l4", "l40", "l40s", "quadro-rtx-8000", "rtx-2080-ti", "rtx-3090", "rtx-3090-ti", "rtx-4090",
                  "rtx-5090", "rtx-6000-ada", "rtx-a5000", "rtx-a6000", "rtx-pro-6000", "t4", "titan-rtx",
                  "v100-pcie-16gb", "v100-pcie-32gb", "v100-sxm-16gb", "v100-sxm-32gb", "v100-sxm3-32gb", "vr200"));
}

// FlashAttention-2 was fitted on A100 (forward_share 0.858, softmax_width 21.9, setup_keys 188). Softmax, setup and
// what else keeps the matrix units waiting forward take a multiprocessor as long everywhere, so beside slower matrix
// units they weigh less: those of A100 do 312 TFLOP/s / (2 x 108 x 1410 MHz) = 1024 multiply-adds a clock, those of
// GA102, Ada and GB202 512: 1 / share = 1 + 0.5 (1 / 0.858 - 1), width = 0.5 x 21.9 / 0.858 x share. GeForce, A10G and
// L40 are sold half of that with sums in float32.
TEST(LibraryTest, SoftmaxWeighsByTheMatrixUnitsBesideIt) {
  struct Case {
    const char* device;
    double share, width, keys;
  };
  for (const Case& c : std::vector<Case>{{"a100-sxm-80gb", 0.858, 21.9, 188},
                                         {"a30", 0.858, 21.9, 188},
                                         {"a40", 0.924, 11.7, 94},
                                         {"rtx-a5000", 0.924, 11.7, 94},
                                         {"l4", 0.924, 11.7, 94},
                                         {"l40s", 0.924, 11.7, 94},
                                         {"rtx-pro-6000", 0.924, 11.7, 94},
                                         {"a10g", 0.960, 6.1, 47},
                                         {"l20", 0.960, 6.1, 47},
                                         {"l40", 0.960, 6.1, 47},
                                         {"rtx-3090", 0.960, 6.1, 47},
                                         {"rtx-3090-ti", 0.960, 6.1, 47},
                                         {"rtx-4090", 0.960, 6.1, 47},
                                         {"rtx-5090", 0.960, 6.1, 47}}) {
    ASSERT_OK_AND_ASSIGN(const Device device, FindDevice(c.device));
    const AttentionConstants& flash2 = device.attention.front();
    EXPECT_EQ(flash2.kernel, "flash2") << c.device;
    EXPECT_NEAR(flash2.forward_share, c.share, 0.0015) << c.device;
    EXPECT_NEAR(flash2.softmax_width, c.width, 0.2) << c.device;
    EXPECT_NEAR(flash2.setup_keys, c.keys, 1.5) << c.device;
    EXPECT_EQ(flash2.backward_share, 0.737) << c.device;  // of smaller blocks, where shared memory is short
  }
}

// Each device by its name and every alias, however it is spelled; and no name stands for two devices.
TEST(LibraryTest, EveryNameLeadsToItsDevice) {
  for (const std::string& name : DeviceNames()) {
    ASSERT_OK_AND_ASSIGN(const Device device, FindDevice(name));
    EXPECT_EQ(device.name, name);
    for (const std::string& alias : device.aliases) {
      ASSERT_OK_AND_ASSIGN(const Device found, FindDevice(alias));
      EXPECT_EQ(found.name, name) << alias;
    }
  }
}

TEST(LibraryTest, FreeTextResolves) {
  struct Case {
    absl::string_view text, name;
  };
  for (const Case& c : std::vector<Case>{{"A100", "a100-sxm-80gb"},
                                         {"A100 SXM 80GB", "a100-sxm-80gb"},
                                         {"A100-80GB", "a100-sxm-80gb"},
                                         {"A100 80GB SXM", "a100-sxm-80gb"},
                                         {"NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"},
                                         {"A100 PCIe", "a100-pcie-80gb"},
                                         {"H100", "h100-sxm"},
                                         {"H100 SXM", "h100-sxm"},
                                         {"NVIDIA H100 80GB HBM3", "h100-sxm"},
                                         {"H200 SXM", "h200"},
                                         {"Tesla V100-SXM2-32GB", "v100-sxm-32gb"},
                                         {"Tesla V100-PCIE-32GB", "v100-pcie-32gb"},
                                         {"GH200 SXM", "gh200"},
                                         {"quad GH200", "gh200-quad"},
                                         {"CPU", "host"}}) {
    ASSERT_OK_AND_ASSIGN(const Device device, FindDevice(c.text));
    EXPECT_EQ(device.name, c.name) << c.text;
  }
}

TEST(LibraryTest, UnknownDeviceListsTheKnownOnes) {
  const absl::Status status = FindDevice("h100-sxn").status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, "found \"h100-sxn\", wanted one of a10, a100-pcie-40gb, "));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, "did you mean \"h100-sxm\"?"));
  EXPECT_THAT(FindDevice(""), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(FindDevice("nvidia gpu"),
              StatusIs(absl::StatusCode::kNotFound, "or a file that describes it, such as my_gpu.yaml"));
}

// Data sheets are consistent: peak = clock x multiply-adds per multiprocessor and cycle x 2 x multiprocessors.
// A100: 1410 MHz x 1024 x 2 x 108 = 312 TFLOP/s. H100: 1830 MHz x 2048 x 2 x 132 = 989 TFLOP/s.
TEST(LibraryTest, PeaksFollowFromClockAndMultiprocessors) {
  ASSERT_OK_AND_ASSIGN(const Device a100, FindDevice("a100"));
  EXPECT_NEAR(a100.Peak(DType::kBFloat16).raw(), a100.boost_mhz * 1e6 * 1024 * 2 * a100.sms, 1e12);
  ASSERT_OK_AND_ASSIGN(const Device h100, FindDevice("h100"));
  EXPECT_NEAR(h100.Peak(DType::kBFloat16).raw(), h100.boost_mhz * 1e6 * 2048 * 2 * h100.sms, 1e12);
  EXPECT_EQ(a100.Peak(DType::kFloat8).raw(), 0);
}

// Products in float64 run on tensor cores of A100, A30, H100 and B200 and on half as many cores as float32's on V100.
// Multiprocessors of the others have two units for them beside 64 cores (Turing) or 128; H800, H20, B300 and GB300 were
// cut down to hardly more.
TEST(LibraryTest, EveryDeviceHasARateOfFloat64) {
  const auto share = [](absl::string_view name) {
    const Device device = *FindDevice(name);
    return device.Peak(DType::kFloat64).raw() / device.Peak(DType::kFloat32).raw();
  };
  for (const std::string& name : DeviceNames()) {
    EXPECT_GT(share(name), 1.0 / 70) << name;
    EXPECT_LE(share(name), 1.01) << name;
  }
  for (absl::string_view name : {"a100-sxm-80gb", "a100-pcie-40gb", "a100-sxm-64gb", "a30", "h100-sxm"}) {
    EXPECT_NEAR(share(name), 1, 0.01) << name;
  }
  for (absl::string_view name : {"v100-sxm-32gb", "b200", "gb200"}) EXPECT_NEAR(share(name), 0.5, 0.05) << name;
  for (absl::string_view name : {"rtx-3090", "a10g", "rtx-4090", "l40s", "l4", "rtx-5090", "rtx-pro-6000"}) {
    EXPECT_NEAR(share(name), 1.0 / 64, 1e-4) << name;
  }
  for (absl::string_view name : {"t4", "rtx-2080-ti", "titan-rtx"}) EXPECT_NEAR(share(name), 1.0 / 32, 1e-4) << name;
  for (absl::string_view name : {"h800-sxm", "h20", "b300", "gb300"}) EXPECT_LT(share(name), 1.0 / 40) << name;
}

TEST(LibraryTest, EveryNumberHasASource) {
  for (const std::string& name : DeviceNames()) {
    ASSERT_OK_AND_ASSIGN(const Device device, FindDevice(name));
    EXPECT_GE(device.provenance.size(), 5u) << name;  // chip, memory, peak, kernels, attention, node
    for (const Provenance& p : device.provenance) EXPECT_FALSE(p.source.empty()) << name << " " << p.what;
    EXPECT_GT(device.memory.raw(), 0) << name;
    EXPECT_GT(device.kernels.matmul_share, 0) << name;
    EXPECT_FALSE(device.attention.empty()) << name;
  }
}

TEST(LibraryTest, ConstantsOfOtherDevicesAreMarkedEstimated) {
  ASSERT_OK_AND_ASSIGN(const Device a100, FindDevice("a100"));
  EXPECT_FALSE(a100.kernels_estimated);
  ASSERT_OK_AND_ASSIGN(const Device v100, FindDevice("v100"));
  EXPECT_TRUE(v100.kernels_estimated);
}

TEST(LibraryTest, MakesUsualMachines) {
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, MakeCluster("h100", 16));
  EXPECT_EQ(ToText(cluster), "16 nodes x 8 h100-sxm, nvswitch 450 GB/s, 8 NICs x 50 GB/s");
  ASSERT_OK_AND_ASSIGN(const Cluster half, MakeCluster("h100", 16, 4));
  EXPECT_EQ(ToText(half), "16 nodes x 4 h100-sxm, nvlink_mesh 450 GB/s, 4 NICs x 50 GB/s");
}

// Of three peers' links, one device finds one third.
TEST(LibraryTest, BoardsOfFourAreWired) {
  ASSERT_OK_AND_ASSIGN(Cluster pair, MakeCluster("h200", 1, 2));
  WireBoard(&pair);
  EXPECT_EQ(ToText(pair), "1 node x 2 h200, nvlink_mesh 150 GB/s");
  ASSERT_OK_AND_ASSIGN(const Cluster part, MakeCluster("a100", 1, 4));
  EXPECT_EQ(part.intra_kind, LinkKind::kNvSwitch);
  ASSERT_OK_AND_ASSIGN(Cluster whole, MakeCluster("a100", 2));
  WireBoard(&whole);
  EXPECT_EQ(whole.intra_kind, LinkKind::kNvSwitch);
  ASSERT_OK_AND_ASSIGN(const Cluster trays, MakeCluster("b200", 2, 4));
  EXPECT_EQ(trays.intra_kind, LinkKind::kNvSwitch);
  // Two of Leonardo's four, and two of a board that is there.
  ASSERT_OK_AND_ASSIGN(const Cluster four, MakeCluster("a100-sxm-64gb", 1));
  ASSERT_OK_AND_ASSIGN(const Cluster two, MakeClusterOfDevices("a100-sxm-64gb", 2));
  EXPECT_EQ(two.intra_bandwidth, four.intra_bandwidth * (1.0 / 3));
  ASSERT_OK_AND_ASSIGN(Cluster board, MakeCluster("h200", 2, 4));
  Resize(1, 2, &board);
  EXPECT_EQ(ToText(board), ToText(pair));
}

TEST(LibraryTest, LaysDevicesOutOnUsualMachines) {
  ASSERT_OK_AND_ASSIGN(const Cluster part, MakeClusterOfDevices("a100", 4));
  EXPECT_EQ(part.nodes, 1);
  EXPECT_EQ(part.devices_per_node, 4);
  ASSERT_OK_AND_ASSIGN(const Cluster whole, MakeClusterOfDevices("a100", 64));
  EXPECT_EQ(whole.nodes, 8);
  EXPECT_THAT(MakeClusterOfDevices("a100", 12),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "found 12 devices, wanted whole nodes of 8 a100-sxm-80gb; give nodes and devices_per_node"));
  // 2,048 are no whole racks of 72, but 64 of each of 32; 100 are neither.
  ASSERT_OK_AND_ASSIGN(const Cluster racks, MakeClusterOfDevices("gb300", 2304));
  EXPECT_EQ(ToText(racks), "32 nodes x 72 gb300, nvswitch 900 GB/s, 72 NICs x 100 GB/s");
  ASSERT_OK_AND_ASSIGN(const Cluster most, MakeClusterOfDevices("gb300", 2048));
  EXPECT_EQ(ToText(most), "32 nodes x 64 gb300, nvswitch 900 GB/s, 64 NICs x 100 GB/s");
  EXPECT_THAT(MakeClusterOfDevices("gb300", 100),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "found 100 devices, wanted whole nodes of 72 gb300, or 64 of each; give nodes and "
                       "devices_per_node for other machines"));
  EXPECT_THAT(MakeClusterOfDevices("a100", 0), StatusIs(absl::StatusCode::kInvalidArgument, "found 0 devices"));
  ASSERT_OK_AND_ASSIGN(const Cluster host, MakeClusterOfDevices("host", 16));
  EXPECT_EQ(host.nodes, 1);  // threads share one machine
}

// One superchip has its own link to the host's processor; four on a board are wired to each other.
TEST(LibraryTest, SuperchipsOnOneBoardAreWired) {
  ASSERT_OK_AND_ASSIGN(const Cluster one, MakeCluster("gh200", 2));
  EXPECT_EQ(one.intra_kind, LinkKind::kC2c);
  ASSERT_OK_AND_ASSIGN(const Cluster quads, MakeCluster("gh200", 2, 4));
  EXPECT_EQ(quads.intra_kind, LinkKind::kNvLinkMesh);
}

TEST(ReadClusterTest, NameAloneIsOneUsualNode) {
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, Read("cluster: h100-sxm\n"));
  EXPECT_EQ(ToText(cluster), "1 node x 8 h100-sxm, nvswitch 450 GB/s");
}

TEST(ReadClusterTest, KeysOverrideTheUsualMachine) {
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, Read(R"(cluster:
  device: a100-80gb
  nodes: 2
  nics_per_node: 4
  inter_bandwidth: 100 Gb/s
  nic_latency: 15 us
  nic_in_order: no
  nic_ll128: no
  intra_bandwidth: 200 GB/s
  oversubscription: 2
  memory: 40 GB
  cpu: intel
  cpu_slowdown: 1.8
  price_per_device_hour: 2.5 USD/h
)"));
  EXPECT_EQ(ToText(cluster), "2 nodes x 8 a100-sxm-80gb, nvswitch 200 GB/s, 4 NICs x 12.5 GB/s, oversubscribed 2:1");
  EXPECT_EQ(cluster.device.memory, Bytes(40000000000));
  EXPECT_EQ(cluster.nic_latency, Micros(15));
  EXPECT_FALSE(cluster.nic_in_order);
  EXPECT_FALSE(cluster.nic_ll128);
  EXPECT_EQ(cluster.cpu, CpuVendor::kIntel);
  EXPECT_EQ(cluster.cpu_slowdown, 1.8);
  ASSERT_TRUE(cluster.price.has_value());
  EXPECT_DOUBLE_EQ(cluster.price->dollars_per_hour, 2.5);
  EXPECT_EQ(cluster.price->source, "given by the user");
}

TEST(ReadClusterTest, DevicesAreLaidOut) {
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, Read("cluster: {device: h200, devices: 24}\n"));
  EXPECT_EQ(cluster.nodes, 3);
  EXPECT_EQ(
      ErrorOf("cluster: {device: h200, devices: 24, nodes: 3}\n"),
      "c.yaml:1:45: cluster.nodes: found nodes beside devices, wanted one of the two; devices are laid out on usual "
      "nodes");
}

TEST(ReadClusterTest, MeasuredConstantsReplaceThoseOfTheLibrary) {
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, Read(R"(cluster:
  device: v100
  kernels: {source: "measure, 30 runs", matmul_share: 0.7, startup: 4 us}
)"));
  EXPECT_DOUBLE_EQ(cluster.device.kernels.matmul_share, 0.7);
  EXPECT_EQ(cluster.device.kernels.startup, Micros(4));
  EXPECT_FALSE(cluster.device.kernels_estimated);
  EXPECT_THAT(ErrorOf("cluster: {device: v100, kernels: {matmul_share: 0.7}}\n"), HasSubstr("kernels.source"));
  EXPECT_EQ(cluster.device.kernels.core_sharing, 1);  // of files that do not say
  ASSERT_OK_AND_ASSIGN(const Cluster shared,
                       Read("cluster: {device: host, kernels: {source: x, core_sharing: 2.5}}\n"));
  EXPECT_EQ(shared.device.kernels.core_sharing, 2.5);
  for (const std::string wrong : {"0.5", "2000", "twice"}) {
    EXPECT_THAT(ErrorOf("cluster: {device: host, kernels: {source: x, core_sharing: " + wrong + "}}\n"),
                AllOf(HasSubstr("cluster.kernels.core_sharing"), HasSubstr(wrong)));
  }
}

TEST(ReadClusterTest, AttentionKernelCanBeChosen) {
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, Read("cluster: {device: h100-sxm, attention: flash3}\n"));
  EXPECT_EQ(cluster.device.attention.front().kernel, "flash3");
  EXPECT_EQ(ErrorOf("cluster: {device: h100-sxm, attention: flash4}\n"),
            "c.yaml:1:40: cluster.attention: found \"flash4\", wanted one of flash2, flash3, flash1, triton, "
            "xformers, trtllm; did you "
            "mean \"flash2\"?");
}

// H100: 1979 TFLOP/s in float8 where it has 989.4 in bfloat16. Attention's shares are of the peak, and it stays as
// fast.
TEST(ReadClusterTest, ProductsMayRunInFloat8) {
  ASSERT_OK_AND_ASSIGN(const Device plain, FindDevice("h100-sxm"));
  ASSERT_OK_AND_ASSIGN(Cluster cluster, MakeCluster("h100-sxm", 1));
  for (int times = 0; times < 2; ++times) {  // twice is as once
    ASSERT_OK(SetClusterKey("products", "float8", &cluster));
    const Device& device = cluster.device;
    EXPECT_EQ(device.Peak(DType::kBFloat16), plain.Peak(DType::kFloat8));
    EXPECT_EQ(device.Peak(DType::kFloat32), plain.Peak(DType::kFloat32));
    EXPECT_DOUBLE_EQ(device.kernels.matmul_share, 0.91 * plain.kernels.matmul_share_fp8);
    EXPECT_EQ(device.kernels.quantize_bytes, Bytes(3));
    EXPECT_EQ(device.kernels.wide_peak, plain.Peak(DType::kBFloat16));
    EXPECT_EQ(device.kernels.wide_share, plain.kernels.matmul_share);
    EXPECT_NEAR(device.attention[0].forward_share * device.Peak(DType::kBFloat16).raw(),
                plain.attention[0].forward_share * plain.Peak(DType::kBFloat16).raw(), 1e3);
  }
  EXPECT_THAT(SetClusterKey("products", "bfloat16", &cluster),
              StatusIs(absl::StatusCode::kInvalidArgument, "wanted float8, as the cluster has it"));
  ASSERT_OK_AND_ASSIGN(Cluster old, MakeCluster("a100-sxm-80gb", 1));
  EXPECT_THAT(SetClusterKey("products", "bfloat16", &old), IsOk());
  EXPECT_THAT(SetClusterKey("products", "float8", &old),
              StatusIs(absl::StatusCode::kInvalidArgument, "a100-sxm-80gb has no products in float8"));
  EXPECT_THAT(SetClusterKey("products", "int4", &old),
              StatusIs(absl::StatusCode::kInvalidArgument, "wanted one of bfloat16, float8, float4"));
}

// B200: 4500 TFLOP/s in float8, 1.9 times as many in NVFP4; attention and what stays wide are those of 16 bits.
TEST(ReadClusterTest, ProductsMayRunInFloat4) {
  ASSERT_OK_AND_ASSIGN(const Device plain, FindDevice("b200"));
  ASSERT_OK_AND_ASSIGN(Cluster cluster, MakeCluster("b200", 1));
  ASSERT_OK(SetClusterKey("products", "float8", &cluster));  // a cluster's own, which a flag may narrow
  for (int times = 0; times < 2; ++times) {
    ASSERT_OK(SetClusterKey("products", "float4", &cluster));
    const Device& device = cluster.device;
    EXPECT_NEAR(device.Peak(DType::kBFloat16).raw(), 1.9 * 4500e12, 1e9);
    EXPECT_EQ(device.Peak(DType::kFloat8), plain.Peak(DType::kFloat8));
    EXPECT_EQ(device.kernels.product_bits, 4);
    EXPECT_EQ(device.kernels.wide_peak, plain.Peak(DType::kBFloat16));
    EXPECT_NEAR(device.attention[0].backward_share * device.Peak(DType::kBFloat16).raw(),
                plain.attention[0].backward_share * plain.Peak(DType::kBFloat16).raw(), 1e3);
  }
  for (const char* wider : {"float8", "bfloat16"}) {
    EXPECT_THAT(SetClusterKey("products", wider, &cluster),
                StatusIs(absl::StatusCode::kInvalidArgument, "wanted float4, as the cluster has it"));
  }
  ASSERT_OK_AND_ASSIGN(Cluster old, MakeCluster("h100-sxm", 1));
  EXPECT_THAT(SetClusterKey("products", "float4", &old),
              StatusIs(absl::StatusCode::kInvalidArgument, "h100-sxm has no products in float4"));
  EXPECT_EQ(old.device.kernels.product_bits, 0);  // as it was
}

TEST(ReadClusterTest, MistakesAreNamedWithTheirPlace) {
  EXPECT_THAT(ErrorOf("cluster: {device: h100-sxn}\n"),
              HasSubstr("c.yaml:1:19: cluster.device: found \"h100-sxn\", wanted one of "));
  EXPECT_EQ(Read("cluster: h101\n").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorOf("cluster:\n  nodes: 1\n"), "c.yaml:2:3: cluster.device: found nothing, wanted text; add it");
  EXPECT_EQ(
      ErrorOf("cluster:\n  device: h100-sxm\n  intra_bandwidth: 450\n"),
      "c.yaml:3:20: cluster.intra_bandwidth: found \"450\", which has no unit, wanted a rate; write e.g. \"450 GB/s\"");
  EXPECT_EQ(ErrorOf("cluster:\n  device: h100-sxm\n  intra_bandwidth: nan GB/s\n"),
            "c.yaml:3:20: cluster.intra_bandwidth: found \"nan GB/s\", wanted a rate; write e.g. \"450 GB/s\"");
  EXPECT_EQ(ErrorOf("cluster:\n  device: h100-sxm\n  inter_bandwidth: 0 Gb/s\n"),
            "c.yaml:3:20: cluster.inter_bandwidth: found \"0 Gb/s\", wanted a rate above zero");
  EXPECT_EQ(ErrorOf("cluster:\n  device: h100-sxm\n  inter_bandwidth: -400 Gb/s\n"),
            "c.yaml:3:20: cluster.inter_bandwidth: found \"-400 Gb/s\", wanted a rate above zero");
  EXPECT_EQ(ErrorOf("cluster:\n  device: h100-sxm\n  nodes: 0\n"),
            "c.yaml:3:10: cluster.nodes: found \"0\", wanted an integer from 1 to 1048576");
  EXPECT_EQ(ErrorOf("cluster:\n  device: h100-sxm\n  nodes: 9223372036854775808\n"),
            "c.yaml:3:10: cluster.nodes: found \"9223372036854775808\", wanted an integer from 1 to 1048576");
  EXPECT_EQ(ErrorOf("cluster:\n  device: h100-sxm\n  devices_per_node: -8\n"),
            "c.yaml:3:21: cluster.devices_per_node: found \"-8\", wanted an integer from 1 to 4096");
  const std::string unknown = ErrorOf("cluster:\n  device: h100-sxm\n  nods: 2\n");
  EXPECT_THAT(unknown, HasSubstr("c.yaml:3:3: cluster.nods: found an unknown key, wanted one of device, nodes, "));
  EXPECT_THAT(unknown, HasSubstr("did you mean \"nodes\"?"));
  EXPECT_EQ(ErrorOf("cluster:\n  device: h100-sxm\n  memory: 80\n"),
            "c.yaml:3:11: cluster.memory: found \"80\", which has no unit, wanted a size; write e.g. \"80 GB\"");
}

TEST(ReadClusterTest, FlagsUseTheSameKeys) {
  ASSERT_OK_AND_ASSIGN(Cluster cluster, MakeCluster("h100-sxm", 2));
  EXPECT_OK(SetClusterKey("inter_bandwidth", "200 Gb/s", &cluster));
  EXPECT_EQ(cluster.nic_bandwidth, GBps(25));
  EXPECT_THAT(SetClusterKey("inter_bandwith", "200 Gb/s", &cluster),
              StatusIs(absl::StatusCode::kInvalidArgument, "did you mean \"inter_bandwidth\"?"));
  EXPECT_THAT(SetClusterKey("oversubscription", "0.5", &cluster), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(DeviceFileTest, NumbersWithoutASourceAreRefused) {
  ASSERT_OK_AND_ASSIGN(const Document document,
                       ParseDocument("name: x\naliases: []\ngeneration: ampere\nchip: {sms: 1}\n", "x.yaml"));
  EXPECT_THAT(ReadDeviceFile(document.root()), StatusIs(absl::StatusCode::kInvalidArgument,
                                                        "x.yaml:4:7: chip.source: found nothing, wanted text; add it"));
}

}  // namespace
}  // namespace meshwright
