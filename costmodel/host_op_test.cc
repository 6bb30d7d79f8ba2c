#include "costmodel/host_op.h"

#include "costmodel/kernel_cost.h"
#include "costmodel/testing.h"
#include "gtest/gtest.h"

namespace meshwright {
namespace {

Device OneCore() {
  Device core = A100Cluster(1).device;
  core.generation = Generation::kHost;
  core.memory_bandwidth = GBps(8);
  return core;
}

TEST(HostOpTest, LinksOfGenerations) {
  EXPECT_DOUBLE_EQ(HostLinkBandwidth(A100Cluster(1)).raw(), 31.5e9 * 0.88);
  EXPECT_DOUBLE_EQ(HostLinkBandwidth(H100Cluster(1)).raw(), 63e9 * 0.88);  // 55.44 GB/s
  Cluster grace = H100Cluster(1);
  grace.intra_kind = LinkKind::kC2c;
  EXPECT_EQ(HostLinkBandwidth(grace), grace.intra_bandwidth);
  Cluster host = A100Cluster(1);
  host.device.generation = Generation::kHost;
  EXPECT_EQ(HostLinkBandwidth(host), BytesPerSecond(0));
}

// Two copies of 55.44 MB take 5 us + 1 ms each, besides the kernel.
TEST(HostOpTest, CopiesAndTheKernelOfACore) {
  KernelWork work;
  work.kernel = KernelClass::kMemory;
  work.dtype = DType::kFloat32;
  work.read = Bytes(8'000'000);
  const Bytes copies[] = {Bytes(55'440'000), Bytes(55'440'000)};
  const Nanos kernel = PriceKernel(work, OneCore());
  EXPECT_EQ(PriceOnHost(work, copies, H100Cluster(1), OneCore()), kernel + Micros(2 * 1005));
  EXPECT_GT(kernel, PriceKernel(work, H100Cluster(1).device));
}

// On the host there is nothing to copy, and nowhere else to run.
TEST(HostOpTest, OnTheHostItIsTheKernel) {
  Cluster host = A100Cluster(1);
  host.device = OneCore();
  KernelWork work;
  work.kernel = KernelClass::kMemory;
  work.dtype = DType::kFloat32;
  work.read = Bytes(8'000'000);
  const Bytes copies[] = {Bytes(55'440'000)};
  EXPECT_EQ(PriceOnHost(work, copies, host, host.device), PriceKernel(work, host.device));
}

}  // namespace
}  // namespace meshwright
