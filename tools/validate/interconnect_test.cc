#include "tools/validate/interconnect.h"

#include <cstdint>
#include <initializer_list>
#include <tuple>

#include "gtest/gtest.h"
#include "ir/cluster.h"
#include "ir/quantities.h"

namespace meshwright {
namespace {

TEST(SetInternodeTest, Forms) {
  Cluster cluster;
  cluster.nics_per_node = 8;
  EXPECT_TRUE(SetInternode("8x200Gb/s HDR InfiniBand per node", &cluster));
  EXPECT_EQ(cluster.nic_bandwidth, GBps(25));
  EXPECT_TRUE(SetInternode("1600 Gbps RoCE per node", &cluster));
  EXPECT_EQ(cluster.nic_bandwidth, GBps(25));
  EXPECT_EQ(cluster.nics_per_node, 8);
  EXPECT_TRUE(SetInternode("800 Gb/s per node", &cluster));  // half of the usual cards
  EXPECT_EQ(cluster.nics_per_node, 4);
  EXPECT_EQ(cluster.nic_bandwidth, GBps(25));
  EXPECT_FALSE(SetInternode("InfiniBand", &cluster));
  EXPECT_EQ(cluster.nic_latency, Nanos());
  EXPECT_TRUE(SetInternode("2x p5.48xlarge, EFA 32x100Gb per node", &cluster));
  EXPECT_EQ(cluster.nic_latency, Micros(22));
  EXPECT_TRUE(SetInternode("2x p4de.24xlarge, EFA 4x100Gb per node", &cluster));
  EXPECT_EQ(cluster.nic_latency, Micros(17));
  EXPECT_FALSE(cluster.nic_in_order);
  Cluster before_p4 = cluster;  // which has no GPUDirect
  before_p4.device.generation = Generation::kVolta;
  EXPECT_TRUE(SetInternode("g4dn.metal, EFA, 1 x 100 Gb/s", &before_p4));
  EXPECT_EQ(before_p4.nic_latency, Micros(8.5));
  EXPECT_EQ(before_p4.nic_bandwidth, GBps(3.45));  // of 12.5: half of 6.9, which a thread copies one way
  EXPECT_EQ(before_p4.nics_per_node, 1);
  EXPECT_FALSE(before_p4.nic_ll128);
  before_p4.device.name = "v100-sxm-32gb";  // P3dn's, whether the text says so or not: four cards of 100 / 4 Gb/s
  EXPECT_TRUE(SetInternode("EFA, 1 x 100 Gb/s", &before_p4));
  EXPECT_EQ(before_p4.nic_latency, Micros(34));
  EXPECT_EQ(before_p4.nic_bandwidth, GBps(3.125));
  EXPECT_EQ(before_p4.nics_per_node, 4);
  before_p4.nics_per_node = 4;  // as of a DGX-1, where the text has no rate
  before_p4.nic_bandwidth = GBps(12.5);
  SetInternode("EFA", &before_p4);
  EXPECT_EQ(before_p4.nic_bandwidth, GBps(3.125));
  EXPECT_TRUE(SetInternode("a3-megagpu, 8x 200Gb/s GPUDirect-TCPXO", &cluster));
  EXPECT_EQ(cluster.nic_latency, Micros(55));
  EXPECT_EQ(cluster.nics_per_node, 8);
  cluster.nic_bandwidth = GBps(50);
  EXPECT_FALSE(SetInternode("GPUDirect-TCPXO", &cluster));  // its cards, as many as the machine has
  EXPECT_EQ(cluster.nic_bandwidth, GBps(25));
  cluster.nic_in_order = true;
  EXPECT_TRUE(SetInternode("GPUDirect-TCPX, 4 x 200 Gb/s", &cluster));
  EXPECT_EQ(cluster.nic_latency, Micros(155));
  EXPECT_FALSE(cluster.nic_in_order);
  EXPECT_TRUE(SetInternode("RoCE 8 x 400 Gb/s (gIB)", &cluster));
  EXPECT_EQ(cluster.nic_latency, Micros(5));
  cluster.nic_latency = Nanos();
  EXPECT_FALSE(SetInternode("InfiniBand, 25 GiB/s", &cluster));  // a unit
  EXPECT_EQ(cluster.nic_latency, Nanos());
  EXPECT_TRUE(SetInternode("InfiniBand 8x50 GB/s", &cluster));  // bytes
  EXPECT_EQ(cluster.nic_bandwidth, GBps(50));
  EXPECT_TRUE(SetInternode("8x400 GB InfiniBand", &cluster));  // bits: no card moves so many bytes
  EXPECT_EQ(cluster.nic_bandwidth, GBps(50));
  EXPECT_TRUE(SetInternode("4 x 200Gb/s", &cluster));
  EXPECT_TRUE(SetInternode("3.2 Tb/s per node", &cluster));
  EXPECT_EQ(cluster.nic_bandwidth, GBps(100));  // over the four cards of the line before
  EXPECT_TRUE(SetInternode("4 x 100Gb Omni-Path per node", &cluster));
  EXPECT_NEAR(cluster.nic_bandwidth.raw(), 5.27e9, 1e7);
  EXPECT_TRUE(SetInternode("HDR100 InfiniBand", &cluster));  // half a port's lanes
  EXPECT_EQ(cluster.nic_bandwidth, GBps(12.5));
  EXPECT_TRUE(SetInternode("NDR InfiniBand", &cluster));
  EXPECT_EQ(cluster.nic_bandwidth, GBps(50));
  EXPECT_TRUE(SetInternode("400 Gb/s per GPU", &cluster));
  EXPECT_EQ(cluster.nic_bandwidth, GBps(50));
}

// A3 High has four cards of 200 Gb/s, a port of Slingshot as much; of cards alone the rate is the usual machine's.
TEST(SetInternodeTest, CardsThatGoWithoutSaying) {
  Cluster high;
  high.nics_per_node = 8;
  high.nic_bandwidth = GBps(50);
  EXPECT_FALSE(SetInternode("GPUDirect-TCPX", &high));
  EXPECT_EQ(high.nics_per_node, 4);
  EXPECT_EQ(high.nic_bandwidth, GBps(25));
  Cluster quad;
  quad.nics_per_node = 4;
  quad.nic_bandwidth = GBps(50);
  EXPECT_TRUE(SetInternode("Slingshot", &quad));
  EXPECT_EQ(quad.nics_per_node, 4);
  EXPECT_EQ(quad.nic_bandwidth, GBps(25));
  EXPECT_FALSE(quad.nic_ll128);
  EXPECT_TRUE(SetInternode("Slingshot 11, 2 NICs a node", &quad));
  EXPECT_EQ(quad.nics_per_node, 2);
  EXPECT_EQ(quad.nic_bandwidth, GBps(25));
  quad.nic_bandwidth = GBps(50);
  EXPECT_FALSE(SetInternode("one of a hundred nodes", &quad));  // no "ndr"
  EXPECT_TRUE(SetInternode("HPE slingshot-11", &quad));
  EXPECT_EQ(quad.nic_bandwidth, GBps(25));
  EXPECT_TRUE(SetInternode("Slingshot 10", &quad));
  EXPECT_EQ(quad.nic_bandwidth, GBps(12.5));
  Cluster eight;
  eight.nics_per_node = 8;
  eight.nic_bandwidth = GBps(50);
  EXPECT_TRUE(SetInternode("4 NICs", &eight));
  EXPECT_EQ(eight.nics_per_node, 4);
  EXPECT_EQ(eight.nic_bandwidth, GBps(50));
  EXPECT_FALSE(SetInternode("0 NICs", &eight));  // says nothing
  EXPECT_EQ(eight.nics_per_node, 4);
}

// The machine's name says its network, and a word that holds "efa" does not.
TEST(SetInternodeTest, MachinesByName) {
  for (const auto& [text, latency, cards] :
       std::initializer_list<std::tuple<const char*, double, int64_t>>{{"A3 Mega", 55, 8},
                                                                       {"a3-megagpu-8g", 55, 8},
                                                                       {"A3 High", 155, 4},
                                                                       {"a3-highgpu-8g", 155, 4},
                                                                       {"A3 Ultra", 5, 8},
                                                                       {"A4", 5, 8},
                                                                       {"EFAv2", 22, 8},
                                                                       {"p3dn.24xlarge, EFA", 34, 8},
                                                                       {"p5en, EFA", 12.6, 8},
                                                                       {"p6-b200, EFA", 12.6, 8},
                                                                       {"EFAv3", 12.6, 8},
                                                                       {"default", 0, 8},
                                                                       {"8 x A40", 0, 8}}) {
    Cluster cluster;
    cluster.nics_per_node = 8;
    cluster.nic_bandwidth = GBps(50);
    SetInternode(text, &cluster);
    EXPECT_EQ(cluster.nic_latency, Micros(latency)) << text;
    EXPECT_EQ(cluster.nics_per_node, cards) << text;
  }
}

// One thread and one card, where the text counts none: 42 Gb/s of 100 or of all of a machine's; less where the card is
// slower. Two threads on Amazon's machines, four on Google's: 84 and 168 Gb/s. Google's TCPX is none of it.
TEST(SetInternodeTest, TcpIsACoreAndTheKernel) {
  struct Case {
    const char* text;
    int64_t cards;
    double gigabytes;
  };
  for (const Case& c : {Case{"TCP", 1, 5.25}, Case{"100 Gb/s TCP per node", 1, 5.25}, Case{"TCP, 10 Gb/s", 1, 1.25},
                        Case{"NET/Socket, 4 x 100 Gb/s", 4, 5.25}, Case{"TCP, 1 x 200 Gb/s (gVNIC)", 1, 21},
                        Case{"TCP, 1 x 100 Gb/s (ENA)", 1, 10.5}}) {
    Cluster cluster;
    cluster.nics_per_node = 8;
    cluster.nic_bandwidth = GBps(50);
    SetInternode(c.text, &cluster);
    EXPECT_EQ(cluster.nic_latency, Micros(20)) << c.text;
    EXPECT_FALSE(cluster.nic_ll128) << c.text;
    EXPECT_EQ(cluster.nics_per_node, c.cards) << c.text;
    EXPECT_NEAR(cluster.nic_bandwidth.raw(), c.gigabytes * 1e9, 1) << c.text;
  }
  for (const char* none : {"8 x 400 Gb/s RoCE, TCP for bootstrap", "8 x 400 Gb/s InfiniBand; no TCP"}) {
    Cluster rdma;
    SetInternode(none, &rdma);
    EXPECT_EQ(rdma.nic_bandwidth, GBps(50)) << none;
  }
  Cluster tcpx;
  tcpx.nics_per_node = 8;
  SetInternode("GPUDirect-TCPX", &tcpx);
  EXPECT_EQ(tcpx.nics_per_node, 4);
  EXPECT_TRUE(tcpx.nic_ll128);
}

TEST(SetIntranodeTest, BridgesPcieAndSwitches) {
  Cluster pair;
  pair.device.name = "h100-pcie";
  pair.intra_kind = LinkKind::kPcie;
  pair.intra_bandwidth = GBps(63);
  SetIntranode("PCIe", 1, &pair);
  EXPECT_EQ(pair.intra_kind, LinkKind::kPcie);
  SetIntranode("NVLink bridge", 8, &pair);  // joins two
  EXPECT_EQ(pair.intra_kind, LinkKind::kPcieHost);
  SetIntranode("PCIe switch", 8, &pair);
  EXPECT_EQ(pair.intra_kind, LinkKind::kPcie);
  SetIntranode("PCIe 4.0 x8", 2, &pair);
  EXPECT_EQ(pair.intra_kind, LinkKind::kPcieHost);
  EXPECT_EQ(pair.intra_bandwidth, GBps(15.75));
  SetIntranode("PCIe gen3", 2, &pair);
  EXPECT_EQ(pair.intra_bandwidth, GBps(15.75));
  SetIntranode("PCIe Gen5", 2, &pair);
  EXPECT_EQ(pair.intra_bandwidth, GBps(63));
  SetIntranode("3 NVLink bridges, PCIe 5", 2, &pair);
  EXPECT_EQ(pair.intra_kind, LinkKind::kNvLinkMesh);
  EXPECT_EQ(pair.intra_bandwidth, GBps(300));
  Cluster turing;
  turing.intra_kind = LinkKind::kPcieHost;
  turing.device.name = "rtx-2080-ti";
  SetIntranode("NVLink bridge", 2, &turing);  // two links of 25 GB/s each way
  EXPECT_EQ(turing.intra_kind, LinkKind::kNvLinkMesh);
  EXPECT_EQ(turing.intra_bandwidth, GBps(50));
  for (const absl::string_view unjoined : {"PCIe host bridge (PHB)", "no NVLink bridge", "PCIe 3.0, without bridge"}) {
    turing.intra_kind = LinkKind::kPcie;
    SetIntranode(unjoined, 2, &turing);
    EXPECT_EQ(turing.intra_kind, LinkKind::kPcieHost) << unjoined;
  }
  Cluster geforce;
  geforce.intra_kind = LinkKind::kPcieHost;
  SetIntranode("PCIe 3.0 x16", 2, &geforce);  // says nothing of peers
  EXPECT_EQ(geforce.intra_kind, LinkKind::kPcieHost);
  EXPECT_EQ(geforce.intra_bandwidth, GBps(15.75));
  SetIntranode("PCIe 4.0 with peer access", 4, &geforce);
  EXPECT_EQ(geforce.intra_kind, LinkKind::kPcie);
  SetIntranode("PCIe 4.0, NCCL_P2P_DISABLE=1", 4, &geforce);
  EXPECT_EQ(geforce.intra_kind, LinkKind::kPcieHost);
  SetIntranode("PCIe 4.0 (PIX)", 4, &geforce);
  EXPECT_EQ(geforce.intra_kind, LinkKind::kPcie);
  for (const absl::string_view apart : {"PCIe 4.0, via SHM", "PCIe 4.0, P2P: no", "PCIe 4.0, P2P is off",
                                        "PCIe 4.0, not PIX", "PCIe 4.0, no PCIe switch"}) {
    SetIntranode("PXB", 4, &geforce);
    EXPECT_EQ(geforce.intra_kind, LinkKind::kPcie);
    SetIntranode(apart, 4, &geforce);
    EXPECT_EQ(geforce.intra_kind, LinkKind::kPcieHost) << apart;
  }
  SetIntranode("PCIe 4.0, NCCL_P2P_DISABLE=0", 4, &geforce);  // says nothing
  EXPECT_EQ(geforce.intra_kind, LinkKind::kPcieHost);
  SetIntranode("PCIe 4.0 x8 without peers", 2, &geforce);
  EXPECT_EQ(geforce.intra_kind, LinkKind::kPcieHost);
  EXPECT_EQ(geforce.intra_bandwidth, GBps(15.75));
  Cluster volta;
  volta.intra_kind = LinkKind::kNvLinkMesh;
  SetIntranode("", 8, &volta);
  EXPECT_EQ(volta.intra_kind, LinkKind::kNvLinkMesh);
  SetIntranode("NVSwitch (DGX-2)", 8, &volta);
  EXPECT_EQ(volta.intra_kind, LinkKind::kNvSwitch);
  SetIntranode("NVLink, no NVLS", 8, &volta);  // wires: the switch adds nothing up
  EXPECT_EQ(volta.intra_kind, LinkKind::kNvLinkMesh);
}

}  // namespace
}  // namespace meshwright
