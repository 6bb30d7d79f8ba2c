#include "tools/import/links.h"

#include "costmodel/library.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

TEST(LinksTest, EveryDeviceHasItsCapability) {
  for (const std::string& name : DeviceNames()) {
    if (name == "host") continue;
    const int capability = ComputeCapability(name);
    EXPECT_GT(capability, 0) << name;
    const std::vector<std::string> of_it = DevicesOfCapability(capability);
    EXPECT_NE(std::find(of_it.begin(), of_it.end(), name), of_it.end()) << name;
  }
  EXPECT_EQ(ComputeCapability("host"), 0);
  EXPECT_EQ(DevicesOfCapability(90)[0], "h100-sxm");
}

TEST(LinksTest, RowsNameDevicesOfTheLibraryAndTheirGeneration) {
  for (const int capability : {70, 75, 80, 86, 89, 90, 100, 103, 107, 120}) {
    for (const std::string& name : DevicesOfCapability(capability)) {
      ASSERT_OK_AND_ASSIGN(const Device device, FindDevice(name));
      EXPECT_EQ(device.name, name);
      const Generation expected = capability < 80    ? Generation::kVolta
                                  : capability < 89  ? Generation::kAmpere
                                  : capability < 90  ? Generation::kAda
                                  : capability < 100 ? Generation::kHopper
                                                     : Generation::kBlackwell;
      EXPECT_EQ(device.generation, expected) << name;
    }
  }
}

// The usual machines have all links of the chip: so many of the rate.
TEST(LinksTest, LinksAddUpToUsualMachines) {
  for (const char* name : {"v100-sxm-32gb", "a100-sxm-80gb", "h100-sxm", "h200", "b200", "gb200", "vr200"}) {
    ASSERT_OK_AND_ASSIGN(const Cluster usual, MakeCluster(name, 1));
    EXPECT_EQ(*NvLinkRate(usual.device) * static_cast<double>(MostNvLinks(usual.device)), usual.intra_bandwidth)
        << name;
  }
  ASSERT_OK_AND_ASSIGN(const Device graphics, FindDevice("rtx-a6000"));
  EXPECT_EQ(*NvLinkRate(graphics) * 4.0, GBps(56.25));  // half of 112.5 both ways
  ASSERT_OK_AND_ASSIGN(const Device without, FindDevice("l40s"));
  EXPECT_FALSE(NvLinkRate(without).has_value());
}

TEST(LinksTest, LanesHaveTheRateOfDataSheets) {
  EXPECT_EQ(PcieRate(3, 16), GBps(15.75));
  EXPECT_EQ(PcieRate(4, 16), GBps(31.5));
  EXPECT_EQ(PcieRate(5, 16), GBps(63));
  EXPECT_EQ(PcieRate(4, 8), GBps(15.75));
  EXPECT_EQ(PcieRate(0, 16), std::nullopt);
  EXPECT_EQ(PcieRate(7, 16), std::nullopt);
  EXPECT_EQ(PcieRate(4, 0), std::nullopt);
  EXPECT_EQ(PcieRate(4, 64), std::nullopt);
  EXPECT_EQ(PcieRateOfSpeed("16.0 GT/s PCIe", 16), GBps(31.5));
  EXPECT_EQ(PcieRateOfSpeed("16 GT/s", 16), GBps(31.5));
  EXPECT_EQ(PcieRateOfSpeed("Unknown", 255), std::nullopt);
  EXPECT_EQ(PcieRateOfSpeed("nan GT/s", 16), std::nullopt);
  for (const char* name : {"v100-pcie-16gb", "a100-pcie-80gb", "l40s", "h100-pcie"}) {
    ASSERT_OK_AND_ASSIGN(const Cluster usual, MakeCluster(name, 1));
    EXPECT_EQ(UsualPcieRate(usual.device.generation), usual.intra_bandwidth) << name;
  }
}

}  // namespace
}  // namespace meshwright
