// What must hold for the price of a collective, a transfer or a kernel on every device of the library, measured or not.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "costmodel/collective_cost.h"
#include "costmodel/kernel_cost.h"
#include "costmodel/library.h"
#include "gtest/gtest.h"
#include "ir/cluster.h"
#include "ir/collective.h"
#include "ir/dtype.h"
#include "ir/kernel_work.h"
#include "ir/quantities.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

constexpr int64_t kSmallest = 1 << 10, kLargest = int64_t{8} << 30;

// Sizes from 1 KiB to 8 GiB, four to each doubling.
std::vector<int64_t> Sizes() {
  std::vector<int64_t> sizes;
  for (int64_t base = kSmallest; base < kLargest; base *= 2) {
    for (int64_t quarter = 4; quarter < 8; ++quarter) sizes.push_back(base / 4 * quarter);
  }
  sizes.push_back(kLargest);
  return sizes;
}

// Groups that fill nodes evenly: within one node any number of its devices, over nodes one, half or all of each.
std::vector<GroupShape> Groups(const Cluster& cluster) {
  std::vector<GroupShape> groups;
  const int64_t most = cluster.devices_per_node;
  for (int64_t ranks = 2; ranks <= most; ranks = ranks < 8 ? ranks + 1 : ranks * 3 / 2) {
    groups.push_back({ranks, 1, ranks, 1});
  }
  if (most > 8) groups.push_back({most, 1, most, 1});
  for (int64_t per_node : {int64_t{1}, std::max<int64_t>(1, most / 2), most}) {
    for (int64_t nodes = 2; nodes * per_node <= 1024; nodes *= 2) {
      groups.push_back({nodes * per_node, nodes, per_node, 1});
    }
  }
  return groups;
}

class EveryDeviceTest : public testing::TestWithParam<std::string> {
 protected:
  static Cluster Nodes(int64_t nodes) { return *MakeCluster(GetParam(), nodes); }
};

std::string Describe(const CollectiveInfo& row, int64_t size, const GroupShape& group, const CollectiveCost& cost) {
  return absl::StrCat(row.name, " of ", size, " bytes, ", group.nodes, " x ", group.ranks_per_node, ": ",
                      NameOf(cost.algorithm), " ", NameOf(cost.protocol), ", ", cost.time.raw(), " ns");
}

// NCCL goes by its own estimates, so that its next choice may be faster than the last: by less than this share.
constexpr double kChangeOfMind = 0.65;
bool SameWay(const CollectiveCost& a, const CollectiveCost& b) {
  return a.algorithm == b.algorithm && a.protocol == b.protocol;
}

// The most that a rank's link and a node's cards can carry: what leaves a rank at least, over its link. In-switch
// reduction and copies halve what an all-reduce sends.
double LeastSeconds(CollectiveKind kind, int64_t size, const GroupShape& group, const CollectiveCost& cost,
                    const Cluster& cluster) {
  const double bytes = static_cast<double>(size), nodes = static_cast<double>(group.nodes);
  double inside = group.nodes > 1 ? 0 : BusFactor(kind, group.ranks) * bytes / cluster.intra_bandwidth.raw();
  if (cost.algorithm == Algorithm::kNvls) inside /= 2;
  const double cards = std::min<double>(cluster.nics_per_node, std::max<double>(1, group.ranks_per_node));
  const double all_to_all = kind == CollectiveKind::kAllToAll ? static_cast<double>(group.ranks_per_node) : 1;
  // Each byte of the tensor has to reach each node and, reduced, to leave it.
  const double across = (nodes - 1) / nodes * bytes * all_to_all / (cards * cluster.nic_bandwidth.raw());
  return std::max(inside, group.nodes > 1 ? across : 0);
}

TEST_P(EveryDeviceTest, CollectivesGrowSmoothlyAndKeepWithinTheLinks) {
  const Cluster one = Nodes(1);
  for (const GroupShape& group : Groups(one)) {
    const Cluster cluster = Nodes(group.nodes);
    for (const CollectiveInfo& row : kCollectives) {
      CollectiveCost last;
      for (int64_t size : Sizes()) {
        const CollectiveCost cost = PriceCollective(row.kind, Bytes(size), group, cluster);
        const double seconds = ToSeconds(cost.time), before = ToSeconds(last.time);
        SCOPED_TRACE(Describe(row, size, group, cost));
        EXPECT_GE(seconds, 1e-6);
        EXPECT_LT(seconds, 3600);
        EXPECT_GE(seconds, LeastSeconds(row.kind, size, group, cost, cluster));
        EXPECT_GE(seconds, (SameWay(cost, last) ? 0.999 : kChangeOfMind) * before) << "less than a smaller call";
        if (before > 0) {
          EXPECT_LE(seconds, 2 * before) << "a jump";
        }
        if (size >= 1 << 30) {
          EXPECT_NE(cost.protocol, Protocol::kLl);
        }
        last = cost;
      }
    }
  }
}

// Links that are faster than the device's own, inside of a node: NCCL keeps to its choice for those, so all of a call
// that is not waiting shrinks. (Below, as between nodes, it changes its mind by tables that may be wrong.)
TEST_P(EveryDeviceTest, FasterLinksAreNotSlower) {
  Cluster own = Nodes(1);
  const Generation generation = own.device.generation;
  if (own.intra_kind != LinkKind::kNvSwitch) GTEST_SKIP() << "no NVSwitch";
  // Those of the whole chip: 12 of 25 GB/s (A100), 18 of 25 and 18 of 50 (Hopper, Blackwell).
  own.intra_bandwidth = GBps(generation < Generation::kHopper ? 300 : generation == Generation::kHopper ? 450 : 900);
  for (const GroupShape& group : Groups(own)) {
    if (group.nodes > 1) continue;
    for (const CollectiveInfo& row : kCollectives) {
      for (const int64_t size : Sizes()) {
        CollectiveCost last = PriceCollective(row.kind, Bytes(size), group, own);
        for (const double faster : {1.03, 1.06, 1.17, 1.5, 2.0}) {
          Cluster fast = own;
          fast.intra_bandwidth = own.intra_bandwidth * faster;
          const CollectiveCost cost = PriceCollective(row.kind, Bytes(size), group, fast);
          ASSERT_LE(cost.time, last.time) << faster << " x " << Describe(row, size, group, cost);
          last = cost;
        }
      }
    }
  }
}

TEST_P(EveryDeviceTest, MoreNodesAreNotFaster) {
  const int64_t most = Nodes(1).devices_per_node;
  for (const CollectiveInfo& row : kCollectives) {
    for (int64_t nodes = 8; nodes * most <= 1024; nodes *= 2) {  // NCCL's tables for two nodes are others
      const Cluster half = Nodes(nodes / 2), whole = Nodes(nodes);
      const GroupShape group = {nodes * most, nodes, most, 1};
      for (int64_t size : Sizes()) {
        const CollectiveCost few = PriceCollective(row.kind, Bytes(size), {nodes / 2 * most, nodes / 2, most, 1}, half);
        const CollectiveCost many = PriceCollective(row.kind, Bytes(size), group, whole);
        const double least = SameWay(few, many) ? 0.99 : kChangeOfMind;
        EXPECT_GE(ToSeconds(many.time), least * ToSeconds(few.time))
            << Describe(row, size, group, many) << "; half as many nodes " << NameOf(few.algorithm) << " "
            << NameOf(few.protocol);
      }
    }
  }
}

TEST_P(EveryDeviceTest, TransfersKeepWithinTheLink) {
  const Cluster cluster = Nodes(2);
  for (bool crosses : {false, true}) {
    double last = 0;
    for (int64_t size : Sizes()) {
      const double seconds = ToSeconds(PriceSendRecv(Bytes(size), crosses, cluster).time);
      const double rate = (crosses ? cluster.nic_bandwidth : cluster.intra_bandwidth).raw();
      EXPECT_GE(seconds, 1e-6) << size;
      EXPECT_GE(seconds, static_cast<double>(size) / rate) << size;
      EXPECT_GE(seconds, last) << size;
      if (last > 0) {
        EXPECT_LE(seconds, 2 * last) << size;
      }
      last = seconds;
    }
  }
}

KernelWork Product(DType dtype, int64_t m, int64_t n, int64_t k) {
  KernelWork work;
  work.kernel = KernelClass::kContraction;
  work.dtype = dtype;
  work.m = m, work.n = n, work.k = k;
  work.flops = Flops(2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
  work.read = SizeOf(dtype) * (m * k + k * n);
  work.written = SizeOf(dtype) * (m * n);
  return work;
}

// Peak of the type, or of the next slower one that the device has.
double PeakRate(DType dtype, const Device& device) {
  double peak = 0;
  for (DType type : {dtype, DType::kBFloat16, DType::kFloat16, DType::kTFloat32, DType::kFloat32}) {
    if (peak == 0) peak = device.Peak(type).raw();
  }
  return peak;
}

TEST_P(EveryDeviceTest, ProductsGrowSmoothlyAndKeepBelowThePeak) {
  const Device device = Nodes(1).device;
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat8}) {
    for (int64_t n : {64, 1000, 4096, 12288}) {
      for (int64_t k : {64, 1000, 4096, 12288}) {
        double last = 0;
        for (int64_t m = 1; m <= 1 << 18; m = std::max(m + 1, m * 5 / 4)) {
          const KernelWork work = Product(dtype, m, n, k);
          const double seconds = ToSeconds(PriceKernel(work, device));
          SCOPED_TRACE(absl::StrCat(NameOf(dtype), " ", m, " x ", n, " x ", k, ": ", 1e6 * seconds, " us"));
          EXPECT_GE(seconds, 1e-6);
          EXPECT_GE(seconds, work.flops.raw() / PeakRate(dtype, device));
          EXPECT_GE(seconds, 0.999 * last) << "less than a smaller product";
          if (last > 0) {
            EXPECT_LE(seconds, 2.001 * last) << "a jump";
          }
          last = seconds;
        }
      }
    }
  }
}

TEST_P(EveryDeviceTest, ProductsInFloat64HaveARateOfTheirOwn) {
  const Device device = Nodes(1).device;
  ASSERT_GT(device.Peak(DType::kFloat64).raw(), 0);
  for (int64_t n : {64, 1000, 4096, 12288}) {
    const KernelWork work = Product(DType::kFloat64, n, n, n);
    EXPECT_GE(ToSeconds(PriceKernel(work, device)), work.flops.raw() / device.Peak(DType::kFloat64).raw()) << n;
  }
}

TEST_P(EveryDeviceTest, AttentionGrowsWithTheSequenceAndKeepsBelowThePeak) {
  const Device device = Nodes(1).device;
  for (bool causal : {false, true}) {
    for (bool fused : {false, true}) {
      for (bool backward : {false, true}) {
        for (int64_t width : {32, 64, 128, 256}) {
          double last = 0;
          for (int64_t sequence = 128; sequence <= 1 << 16; sequence += std::max<int64_t>(64, sequence / 256 * 64)) {
            KernelWork work = Product(DType::kBFloat16, sequence, sequence, width);
            work.kernel = KernelClass::kAttention;
            work.batch = 32;
            work.causal = causal, work.fused = fused, work.backward = backward;
            work.flops = work.flops * (64.0 * (causal ? 0.5 : 1) * (backward ? 2.5 : 1));
            work.read = Bytes(2 * 3 * 32 * sequence * width);
            work.written = Bytes(2 * 32 * sequence * width);
            const double seconds = ToSeconds(PriceKernel(work, device));
            SCOPED_TRACE(absl::StrCat(sequence, " of heads of ", width, causal ? ", causal" : "",
                                      fused ? ", fused" : "", backward ? ", backward: " : ": ", 1e6 * seconds, " us"));
            EXPECT_GE(seconds, 1e-6);
            EXPECT_GE(seconds, work.flops.raw() / PeakRate(DType::kBFloat16, device));
            EXPECT_GE(seconds, 0.999 * last) << "less than a shorter sequence";
            if (last > 0) {
              EXPECT_LE(seconds, 2.6 * last) << "a jump";
            }
            last = seconds;
          }
        }
      }
    }
  }
}

std::string TestName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Library, EveryDeviceTest, testing::ValuesIn(DeviceNames()), TestName);

}  // namespace
}  // namespace meshwright
