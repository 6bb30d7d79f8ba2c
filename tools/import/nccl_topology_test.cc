#include "tools/import/nccl_topology.h"

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

absl::StatusOr<ClusterFacts> Read(absl::string_view text) { return ReadNcclTopology(text, "t.xml"); }

// A machine of one CPU with these PCI elements.
std::string Machine(absl::string_view pci) {
  return absl::StrCat("<system version=\"1\"><cpu arch=\"x86_64\" vendor=\"AuthenticAMD\">\n", pci, "</cpu></system>");
}
std::string Gpu(absl::string_view bus, int sm, absl::string_view links) {
  return absl::StrCat("<pci busid=\"", bus, "\" class=\"0x030200\"><gpu dev=\"0\" sm=\"", sm, "\">", links,
                      "</gpu></pci>\n");
}
std::string Link(absl::string_view target, int count, absl::string_view type) {
  return absl::StrCat("<nvlink target=\"", target, "\" count=\"", count, "\" tclass=\"", type, "\"/>");
}

TEST(NcclTopologyTest, ReadsWhatTheFileSays) {
  ASSERT_OK_AND_ASSIGN(const ClusterFacts facts, Read(DgxH100Topology()));
  EXPECT_EQ(facts.capability, 90);
  EXPECT_EQ(facts.devices_per_node, 8);
  EXPECT_EQ(facts.nvlinks->shape, Shape::kSwitch);
  EXPECT_EQ(facts.nvlinks->links, 18);
  EXPECT_EQ(facts.pcie, GBps(63));  // 16 lanes of generation 5
  EXPECT_EQ(facts.cpu, CpuVendor::kIntel);
  ASSERT_EQ(facts.cards.size(), 10u);
  EXPECT_EQ(facts.cards[0].name, "mlx5_0");
  EXPECT_EQ(facts.cards[0].megabits, 400000);
  EXPECT_TRUE(facts.cards[0].near);
  EXPECT_EQ(facts.cards[4].name, "mlx5_8");
  EXPECT_FALSE(facts.cards[4].near);
  EXPECT_FALSE(facts.c2c.has_value());
  EXPECT_FALSE(facts.nodes.has_value());
}

TEST(NcclTopologyTest, LinksBetweenGpusAreAMesh) {
  ASSERT_OK_AND_ASSIGN(const ClusterFacts facts, Read(HgxA100Topology()));
  EXPECT_EQ(facts.nvlinks->shape, Shape::kMesh);
  EXPECT_EQ(facts.nvlinks->links, 12);
  EXPECT_THAT(facts.notes, ElementsAre());
}

// Bridges of two join no four; what is joined through others is joined: 0 - 1 - 2 has 4 links at its ends.
TEST(NcclTopologyTest, LinksThatLeavePartsAreNone) {
  const std::string a = "0000:0a:00.0", b = "0000:0b:00.0", c = "0000:0c:00.0", gpu = "0x030000";
  ASSERT_OK_AND_ASSIGN(const ClusterFacts parts,
                       Read(Machine(Gpu(a, 86, Link(b, 4, gpu)) + Gpu(b, 86, Link(a, 4, gpu)) + Gpu(c, 86, ""))));
  EXPECT_EQ(parts.nvlinks->shape, Shape::kNone);
  EXPECT_THAT(parts.notes, ElementsAre(HasSubstr("they join some of the devices and not all")));
  ASSERT_OK_AND_ASSIGN(const ClusterFacts chain,
                       Read(Machine(Gpu(a, 86, Link(b, 4, gpu)) + Gpu(b, 86, Link(a, 4, gpu) + Link(c, 4, gpu)) +
                                    Gpu(c, 86, Link("0000:0B:00.0", 4, gpu)))));
  EXPECT_EQ(chain.nvlinks->shape, Shape::kMesh);
  EXPECT_EQ(chain.nvlinks->links, 4);
  EXPECT_THAT(chain.notes, ElementsAre("devices have from 4 to 8 NVLinks: all are taken to have 4"));
}

// Two of four on a board: 4 of their 12 links are for each other, 8 end in GPUs that the run did not see.
TEST(NcclTopologyTest, LinksToGpusOfNoFileAreLeftOut) {
  const std::string a = "0000:0a:00.0", b = "0000:0b:00.0", gpu = "0x030200";
  const std::string rest = Link("0000:0c:00.0", 4, gpu) + Link("0000:0d:00.0", 4, gpu);
  ASSERT_OK_AND_ASSIGN(const ClusterFacts facts,
                       Read(Machine(Gpu(a, 80, Link(b, 4, gpu) + rest) + Gpu(b, 80, Link(a, 4, gpu) + rest))));
  EXPECT_EQ(facts.nvlinks->shape, Shape::kMesh);
  EXPECT_EQ(facts.nvlinks->links, 4);
  EXPECT_THAT(facts.notes, ElementsAre("left out: 16 NVLinks that end in no GPU of the file and in no switch"));
}

TEST(NcclTopologyTest, LinksOfPowersCpuAreNoSwitch) {
  const std::string a = "0000:0a:00.0", b = "0000:0b:00.0";
  ASSERT_OK_AND_ASSIGN(const ClusterFacts facts,
                       Read("<system version=\"1\"><cpu arch=\"ppc64\" vendor=\"IBM\">" +
                            Gpu(a, 70, Link(b, 3, "0x030200") + Link("0004:00:00.0", 3, "0x068001")) +
                            Gpu(b, 70, Link(a, 3, "0x030200")) + "</cpu></system>"));
  EXPECT_EQ(facts.nvlinks->shape, Shape::kMesh);
  EXPECT_EQ(facts.nvlinks->links, 3);
  EXPECT_FALSE(facts.cpu.has_value());
  EXPECT_THAT(facts.notes, ElementsAre("the CPU is left out: \"ppc64\" of \"IBM\" is none of intel, amd and arm",
                                       "left out: 3 NVLinks that end in no GPU of the file and in no switch"));
}

// One name twice is one card; names joined by + are the cards they join.
TEST(NcclTopologyTest, CardsAreCountedOnce) {
  ASSERT_OK_AND_ASSIGN(const ClusterFacts facts, Read(Machine(Gpu("0000:0a:00.0", 80, "") + R"(
      <nic>
        <net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x1"/>
        <net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x1" coll="1"/>
        <net name="mlx5_0+mlx5_1" dev="1" speed="400000" port="1" guid="0x1"/>
        <net name="mlx5_2" dev="2" speed="-1" port="1" guid="0x2"/>
      </nic>)")));
  ASSERT_EQ(facts.cards.size(), 3u);
  EXPECT_EQ(facts.cards[0].name, "mlx5_0");
  EXPECT_EQ(facts.cards[1].name, "mlx5_2");
  EXPECT_EQ(facts.cards[1].megabits, 0);
  EXPECT_EQ(facts.cards[2].name, "mlx5_1");
  EXPECT_EQ(facts.cards[2].megabits, 200000);
}

// Machines that one NVLink joins are in one file, with the same addresses on each.
TEST(NcclTopologyTest, SeveralMachinesMayBeOneNode) {
  std::string text = "<system version=\"1\">";
  for (const char* host : {"0x1", "0x2"}) {
    absl::StrAppend(&text, "<cpu host_hash=\"", host, "\" arch=\"arm64\">",
                    Gpu("0008:01:00.0", 100, Link("fffffff:ffff:ff", 18, "0x068000")),
                    "<nic><net name=\"mlx5_0\" speed=\"400000\" port=\"1\" guid=\"0x5\"/></nic></cpu>");
  }
  ASSERT_OK_AND_ASSIGN(const ClusterFacts facts, Read(text + "</system>"));
  EXPECT_EQ(facts.devices_per_node, 2);
  EXPECT_EQ(facts.cards.size(), 2u);
  EXPECT_EQ(facts.nvlinks->links, 18);
}

TEST(NcclTopologyTest, FilesOfCloudsHaveNoGpuElements) {
  ASSERT_OK_AND_ASSIGN(const ClusterFacts facts, Read(Machine(R"(
    <pci busid="ffff:ff:01.0" class="0x060400" link_speed="16 GT/s" link_width="16">
      <pci busid="0001:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
      <pci busid="0101:00:00.0" class="0x020700" link_speed="16 GT/s" link_width="16"/>
      <pci busid="0002:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
    </pci>)")));
  EXPECT_EQ(facts.devices_per_node, 2);
  EXPECT_EQ(facts.capability, 0);
  EXPECT_FALSE(facts.nvlinks.has_value());
  EXPECT_EQ(facts.pcie, GBps(31.5));
  ASSERT_EQ(facts.cards.size(), 1u);
  EXPECT_TRUE(facts.cards[0].near);
}

TEST(NcclTopologyTest, DifferentGpusAreAnError) {
  EXPECT_THAT(
      Read(Machine(Gpu("0000:0a:00.0", 80, "") + Gpu("0000:0b:00.0", 70, ""))),
      StatusIs(kInvalid,
               "t.xml:3:45: found compute capability 70, wanted 80, as the GPU at \"0000:0a:00.0\" has; devices of "
               "a cluster are equal: write the file in a run that uses one kind (CUDA_VISIBLE_DEVICES)"));
  EXPECT_THAT(Read(Machine(Gpu("a", 80, Link("f", 12, "0x068000")) + Gpu("b", 80, ""))),
              StatusIs(kInvalid, "t.xml:3:34: found a GPU without links to a switch, wanted 12 of them"));
  EXPECT_THAT(Read("<system><cpu arch=\"arm64\"/><cpu arch=\"x86_64\" vendor=\"GenuineIntel\"/></system>"),
              StatusIs(kInvalid, "found a CPU of intel, wanted arm as before"));
}

TEST(NcclTopologyTest, WrongFilesAreErrorsWithTheirPlace) {
  EXPECT_THAT(Read(""), StatusIs(kInvalid, "t.xml:1:1: found no XML (No document element found)"));
  EXPECT_THAT(Read("<system>\n <cpu>\n</system>"),
              StatusIs(kInvalid, "t.xml:3:3: found no XML (Start-end tags mismatch)"));
  EXPECT_THAT(Read("<topology/>"), StatusIs(kInvalid, "t.xml:1:2: found \"topology\", wanted one element, system"));
  EXPECT_THAT(Read("<system/><system/>"), StatusIs(kInvalid, "t.xml:1:11: found \"system\", wanted one element"));
  EXPECT_THAT(Read("<system version=\"2\"/>"), StatusIs(kInvalid, "t.xml:1:2: found version \"2\", wanted version 1"));
  EXPECT_THAT(Read("<system/>"), StatusIs(kInvalid, "t.xml:1:1: found no GPU, wanted a machine with one"));
  EXPECT_THAT(Read(Machine("<pci><gpu sm=\"9.0\"/></pci>")),
              StatusIs(kInvalid, "t.xml:2:7: gpu.sm: found \"9.0\", wanted an integer from 10 to 999"));
  EXPECT_THAT(Read(Machine(Gpu("a", 80, "<nvlink count=\"99999999999999999999\"/>"))),
              StatusIs(kInvalid, "nvlink.count: found \"99999999999999999999\", wanted an integer from 1 to 64"));
  EXPECT_THAT(Read(Machine(Gpu("a", 80, Link("b", 4, "0x0108")))),
              StatusIs(kInvalid, "found an end of class \"0x0108\", wanted a GPU (0x0302..) or a switch (0x0680..)"));
  EXPECT_THAT(Read(Machine(Gpu("a", 80, "") + "<net name=\"a\" speed=\"fast\"/>")),
              StatusIs(kInvalid, "net.speed: found \"fast\""));
}

TEST(NcclTopologyTest, NothingIsDefinedAndNothingIsOpened) {
  const std::string entities = "<!DOCTYPE system [<!ENTITY a SYSTEM \"file:///etc/passwd\">]>\n<system>&a;</system>";
  EXPECT_TRUE(LooksLikeNcclTopology(entities));
  EXPECT_THAT(Read(entities), StatusIs(kInvalid, "found a DOCTYPE, wanted none; take it out"));
  ASSERT_OK_AND_ASSIGN(const ClusterFacts facts,
                       Read(Machine(Gpu("a", 80, "") + "<net name=\"&a;&lt;\" speed=\"100000\"/>")));
  EXPECT_EQ(facts.cards[0].name, "&a;<");
}

TEST(NcclTopologyTest, NcclsLimitsAreOurs) {
  std::string attributes, children, nested;
  for (int i = 0; i < 17; ++i) absl::StrAppend(&attributes, " a", i, "=\"\"");
  for (int i = 0; i < 641; ++i) children += "<pci/>";
  for (int i = 0; i < 65; ++i) nested = "<pci>" + nested + "</pci>";
  EXPECT_THAT(Read("<system" + attributes + "/>"),
              StatusIs(kInvalid, "t.xml:1:2: found more attributes, wanted at most 16"));
  EXPECT_THAT(Read("<system>" + children + "</system>"), StatusIs(kInvalid, "found more children, wanted at most 640"));
  EXPECT_THAT(Read("<system>" + nested + "</system>"),
              StatusIs(kInvalid, "found elements nested deeper, wanted at most 64"));
  EXPECT_THAT(Read("<system a=\"" + std::string(256, 'x') + "\"/>"),
              StatusIs(kInvalid, "found a value of 256 characters, wanted at most 255"));
}

}  // namespace
}  // namespace meshwright
