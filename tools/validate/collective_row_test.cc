#include "tools/validate/collective_row.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "costmodel/collective_cost.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tools/validate/csv.h"
#include "tools/validate/price_columns.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<CollectiveRow> Read(const std::string& columns, const std::string& cells) {
  absl::StatusOr<CsvTable> table = ParseCsv(columns + "\n" + cells + "\n", "t.csv");
  if (!table.ok()) return table.status();
  MESHWRIGHT_ASSIGN_OR_RETURN(const CsvTable known, WithCollectiveColumns(*std::move(table)));
  return ReadCollectiveRow(CsvCells(known, known.rows[0]), {});
}

constexpr char kColumns[] = "collective,gpu_type,nodes,ranks,interconnect,size_bytes,time_us";

TEST(CollectiveRowTest, CallsByTheirNames) {
  struct Case {
    const char* name;
    NcclCall call;
  };
  for (const Case& c : {Case{"all_reduce", NcclCall::kAllReduce}, Case{"ncclAllReduce", NcclCall::kAllReduce},
                        Case{"all_reduce_perf_mpi", NcclCall::kAllReduce}, Case{"AllGather", NcclCall::kAllGather},
                        Case{"reduce_scatter_tensor", NcclCall::kReduceScatter}, Case{"a2a", NcclCall::kAllToAll},
                        Case{"alltoall_perf", NcclCall::kAllToAll}, Case{"send/recv", NcclCall::kSendRecv},
                        Case{"Bcast", NcclCall::kBroadcast}, Case{"reduce", NcclCall::kReduce},
                        Case{"gather", NcclCall::kGather}, Case{"hypercube", NcclCall::kHypercube}}) {
    ASSERT_OK_AND_ASSIGN(const NcclCall call, CallNamed(c.name));
    EXPECT_EQ(call, c.call) << c.name;
  }
  EXPECT_THAT(std::string(CallNamed("barrier").status().message()), HasSubstr("known are all_reduce"));
}

// Two nodes of 8 by any two of the three counts; by ranks alone, usual machines.
TEST(CollectiveRowTest, Counts) {
  for (const auto& [columns, cells] : {std::pair("nodes,ranks", "2,16"), std::pair("nodes,gpus_per_node", "2,8"),
                                       std::pair("world_size", "16"), std::pair("num_gpus,gpus_per_node", "16,8")}) {
    ASSERT_OK_AND_ASSIGN(const CollectiveRow row, Read(std::string("op,gpu,size,time,") + columns,
                                                       std::string("all_reduce,H100,1 MiB,50,") + cells));
    EXPECT_EQ(row.shape.ranks, 16) << columns;
    EXPECT_EQ(row.shape.nodes, 2) << columns;
    EXPECT_EQ(row.size, MiB(1));
  }
  EXPECT_THAT(std::string(Read(kColumns, "all_reduce,H100,3,16,,1024,5").status().message()),
              HasSubstr("nodes that are not full"));
  EXPECT_THAT(std::string(Read(kColumns, "all_reduce,H100,1,1,,1024,5").status().message()), HasSubstr("one rank"));
}

// Four cards for four devices a node: one each, and the rate of all of them. Where nothing counts the devices of a
// node, the usual eight share the four.
TEST(CollectiveRowTest, AsManyCardsAsDevicesAreOneEach) {
  ASSERT_OK_AND_ASSIGN(const CollectiveRow quads, Read("op,gpu,nodes,gpus_per_node,interconnect,size,time",
                                                       "all_reduce,A100,2,4,InfiniBand HDR 4 x 200 Gb/s,1 GiB,20000"));
  EXPECT_EQ(quads.cluster.devices_per_node, 4);
  EXPECT_EQ(quads.cluster.nics_per_node, 4);
  ASSERT_OK_AND_ASSIGN(const CollectiveRow halves, Read("op,gpu,nodes,ranks,interconnect,size,time",
                                                        "all_reduce,A100,2,8,InfiniBand HDR 4 x 200 Gb/s,1 GiB,20000"));
  EXPECT_EQ(halves.cluster.devices_per_node, 8);
  // Two cards for four devices: the group has both. Eight for two are a machine's, which runs with two of its devices.
  ASSERT_OK_AND_ASSIGN(const CollectiveRow pairs, Read("op,gpu,nodes,gpus_per_node,interconnect,size,time",
                                                       "all_reduce,H100,16,4,Slingshot 2 x 200 Gb/s,1 GiB,46000"));
  EXPECT_EQ(pairs.cluster.devices_per_node, 4);
  EXPECT_EQ(pairs.cluster.nics_per_node, 2);
  ASSERT_OK_AND_ASSIGN(const CollectiveRow two, Read("op,gpu,nodes,gpus_per_node,interconnect,size,time",
                                                     "all_reduce,H100,2,2,8 x 400 Gb/s,1 GiB,11000"));
  EXPECT_EQ(two.cluster.devices_per_node, 8);
  EXPECT_EQ(two.cluster.nics_per_node, 8);
}

// What NCCL was told, by its own words, holds; "no SHARP" is no algorithm. 1 KiB over an H100 node: the switch's start
// of 5 us, where a ring with LL, which NCCL would choose, takes 0.725 x 6.6 + 1.367 x 14 x 0.6 and a little growth.
TEST(CollectiveRowTest, AlgorithmAndProtocol) {
  ASSERT_OK_AND_ASSIGN(const CollectiveRow pinned,
                       Read("op,gpu,ranks,size,time,NCCL_ALGO,NCCL_PROTO", "all_reduce,H100,8,1024,5,NVLS,Simple"));
  EXPECT_EQ(pinned.pins.algorithm, Algorithm::kNvls);
  EXPECT_EQ(pinned.pins.protocol, Protocol::kSimple);
  EXPECT_LT(SecondsOfCollective(pinned, pinned.cluster.device), 6e-6);
  ASSERT_OK_AND_ASSIGN(const CollectiveRow free,
                       Read("op,gpu,ranks,size,time,algo", "all_reduce,H100,8,1024,25,no SHARP"));
  EXPECT_EQ(free.pins.algorithm, Algorithm::kNone);
  EXPECT_GT(SecondsOfCollective(free, free.cluster.device), 15e-6);
}

// 1 GiB over 8 ranks at a bus of 400 GB/s: 2 x 7/8 of it. An all-gather's count is one rank's.
TEST(CollectiveRowTest, BandwidthsAndCounts) {
  ASSERT_OK_AND_ASSIGN(const CollectiveRow bus,
                       Read("op,gpu,ranks,size (GiB),busbw (GB/s)", "all_reduce,H100,8,1,400"));
  EXPECT_NEAR(bus.seconds, 1073741824.0 * 1.75 / 400e9, 1e-9);
  ASSERT_OK_AND_ASSIGN(const CollectiveRow algorithm, Read("op,gpu,ranks,size,algbw", "broadcast,H100,8,1g,100"));
  EXPECT_NEAR(algorithm.seconds, 1073741824.0 / 100e9, 1e-9);
  ASSERT_OK_AND_ASSIGN(const CollectiveRow count,
                       Read("op,gpu,ranks,count,dtype,time", "all_gather,H100,8,1024,bf16,10"));
  EXPECT_EQ(count.size, Bytes(8 * 2 * 1024));
  EXPECT_THAT(std::string(Read("op,gpu,ranks,size,busbw", "all_reduce,H100,8,64,0.02").status().message()),
              HasSubstr("no time or rate"));
}

// 16 trays of 4 are one domain of 64 on one switch, 32 are two; the row may say that the switch joins none.
TEST(CollectiveRowTest, TraysOfADomain) {
  ASSERT_OK_AND_ASSIGN(const CollectiveRow one, Read(kColumns, "all_reduce,GB200,16,64,NVLink,1024,50"));
  EXPECT_EQ(one.shape, (GroupShape{64, 1, 64, 1}));
  ASSERT_OK_AND_ASSIGN(const CollectiveRow two, Read(kColumns, "all_reduce,GB200,32,128,4x400Gb per node,1024,50"));
  EXPECT_EQ(two.shape, (GroupShape{128, 2, 64, 1}));
  EXPECT_EQ(two.cluster.nics_per_node, 64);  // each tray's four
  ASSERT_OK_AND_ASSIGN(const CollectiveRow apart,
                       Read(kColumns, "all_reduce,GB200,2,8,\"4x400Gb per node, no MNNVL\",1024,50"));
  EXPECT_EQ(apart.shape, (GroupShape{8, 2, 4, 1}));
  ASSERT_OK_AND_ASSIGN(const CollectiveRow b200, Read(kColumns, "all_reduce,B200,2,16,,1024,50"));
  EXPECT_EQ(b200.shape.nodes, 2);
  ASSERT_OK_AND_ASSIGN(const CollectiveRow parted,
                       Read(kColumns, "all_reduce,GB200,3,12,\"three NVLink partitions, InfiniBand between\",1024,5"));
  EXPECT_EQ(parted.shape.nodes, 3);
}

// 8 trays of 4 that the row says lie in two domains, and 2 of which each is in one of its own.
TEST(CollectiveRowTest, DomainsThatARowCounts) {
  const auto shape = [](absl::string_view counts, absl::string_view words) {
    const absl::StatusOr<CollectiveRow> row =
        Read(kColumns, absl::StrCat("all_reduce,GB300,", counts, ",\"", words, ", 4 x 800 Gb/s\",1024,5"));
    return row.ok() ? row->shape : GroupShape{};
  };
  EXPECT_EQ(shape("8,32", "one NVLink domain"), (GroupShape{32, 1, 32, 1}));
  EXPECT_EQ(shape("8,32", "two NVLink domains"), (GroupShape{32, 2, 16, 1}));
  EXPECT_EQ(shape("2,8", "2 NVLink domains"), (GroupShape{8, 2, 4, 1}));
  EXPECT_EQ(shape("2,8", "0 NVLink domains"), (GroupShape{8, 1, 8, 1}));
  EXPECT_EQ(shape("2,8", "three NVLink domains"), (GroupShape{8, 2, 4, 1}));  // more than there are machines
}

// A reduce goes one chain as a broadcast does; a hypercube of 4 in a node exchanges twice.
TEST(CollectiveRowTest, CallsPricedAsOthers) {
  ASSERT_OK_AND_ASSIGN(const CollectiveRow reduce, Read(kColumns, "reduce,A100,1,8,,1048576,50"));
  ASSERT_OK_AND_ASSIGN(const CollectiveRow broadcast, Read(kColumns, "broadcast,A100,1,8,,1048576,50"));
  EXPECT_EQ(SecondsOfCollective(reduce, reduce.cluster.device),
            SecondsOfCollective(broadcast, broadcast.cluster.device));
  for (const char* call : {"sendrecv", "hypercube", "gather", "scatter"}) {
    for (const char* shape : {"1,8", "2,16", "2,2"}) {
      const auto seconds = [&](const char* size) {
        const auto row = Read(kColumns, absl::StrCat(call, ",A100,", shape, ",,", size, ",50"));
        EXPECT_OK(row);
        return SecondsOfCollective(*row, row->cluster.device);
      };
      EXPECT_GT(seconds("1024"), 0) << call << " " << shape;
      EXPECT_GT(seconds("1073741824"), 50 * seconds("1048576")) << call << " " << shape;
    }
  }
}

// One thread starts the kernels of eight devices in 8 x 5 us; what takes longer does not wait for it.
TEST(CollectiveRowTest, OneThreadForAllDevices) {
  const std::string columns = absl::StrCat(kColumns, ",notes,gpus_per_thread");
  const auto seconds = [&columns](absl::string_view row) {
    const auto read = Read(columns, std::string(row));
    EXPECT_OK(read);
    return SecondsOfCollective(*read, read->cluster.device);
  };
  EXPECT_DOUBLE_EQ(seconds("all_reduce,A100,1,8,NVLink,8,44,one process for all devices,"), 40e-6);
  EXPECT_DOUBLE_EQ(seconds("all_reduce,A100,1,8,NVLink,8,44,,8"), 40e-6);
  EXPECT_LT(seconds("all_reduce,A100,1,8,NVLink,8,44,,1"), 30e-6);
  EXPECT_EQ(seconds("all_reduce,A100,1,8,NVLink,268435456,2200,one process,"),
            seconds("all_reduce,A100,1,8,NVLink,268435456,2200,,"));
}

constexpr char kTest[] =
    R"(#  Rank  0 Group  0 Pid  41 on   somewhere device  0 [0000:01:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  41 on   somewhere device  1 [0000:02:00] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid  41 on   somewhere device  2 [0000:03:00] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1    31.50   33.29   44.38      0    31.20   33.61   44.81      0
)";

TEST(CollectiveRowTest, ALogIsATable) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table, TableOfNcclLog(absl::StrCat("# nThread 1 nGpus 3 minBytes 8\n"
                                                                         "# Collective test starting: sendrecv_perf\n",
                                                                         kTest),
                                                            "x.log"));
  ASSERT_EQ(table.rows.size(), 2u);
  const CsvCells cells(table, table.rows[1]);
  EXPECT_EQ(cells.Text("placement"), "in-place");
  ASSERT_OK_AND_ASSIGN(const CollectiveRow row, ReadCollectiveRow(cells, {}));
  EXPECT_EQ(row.call, NcclCall::kSendRecv);
  EXPECT_EQ(row.shape, (GroupShape{3, 1, 3, 1}));
  EXPECT_EQ(row.launches, 3);
  EXPECT_DOUBLE_EQ(row.seconds, 31.20e-6);
  // Without a name: the file's, else what its bus says.
  const auto call = [](const char* path) {
    const auto unnamed = TableOfNcclLog(kTest, path);
    EXPECT_OK(unnamed);
    return CsvCells(*unnamed, unnamed->rows[0]).Text("collective");
  };
  EXPECT_EQ(call("logs/h100-reduce_scatter_perf.log"), "reduce_scatter");
  EXPECT_EQ(call("logs/h100_alltoall.txt"), "all_to_all");
  EXPECT_EQ(call("x.log"), "all_reduce");
}

// What two ranks ran: sums whose bus carries all of the bytes or half of them, with a root or without.
TEST(CollectiveRowTest, ALogOfTwoRanksWithoutAName) {
  const auto call = [](const char* redop_and_root, const char* bus) {
    const std::string text =
        absl::StrCat("#  Rank  0 Group  0 Pid 41 on one device  0 [0x01] NVIDIA H100\n",
                     "#  Rank  1 Group  0 Pid 42 on one device  1 [0x02] NVIDIA H100\n", "1048576 262144 float ",
                     redop_and_root, " 20 50 ", bus, " 0 20 50 ", bus, " 0\n");
    const auto table = TableOfNcclLog(text, "x.log");
    EXPECT_OK(table);
    return CsvCells(*table, table->rows[0]).Text("collective");
  };
  EXPECT_EQ(call("sum -1", "50"), "all_reduce");
  EXPECT_EQ(call("sum -1", "25"), "reduce_scatter");
  EXPECT_EQ(call("sum 0", "50"), "reduce");
  EXPECT_EQ(call("none 0", "50"), "broadcast");
  EXPECT_EQ(call("none -1", "25"), "");
}

// The title tells before the file's name; two of them tell nothing.
TEST(CollectiveRowTest, ACallThatNoColumnHas) {
  const auto call = [](const char* title, const char* file) {
    auto table = ParseCsv(absl::StrCat("# ", title, "\nsize,time\n8,1\n"), file);
    EXPECT_OK(table);
    NameCollective(&*table);
    return CsvCells(*table, table->rows[0]).Text("collective") + " " +
           (table->remarks.empty() ? "" : table->remarks[0]);
  };
  EXPECT_EQ(call("OSU MPI-CUDA Allreduce Latency Test v7.5", "all_gather.csv"),
            "all_reduce collective all_reduce, by the title");
  EXPECT_EQ(call("h100", "runs/all-gather.csv"), "all_gather collective all_gather, by the file's name");
  EXPECT_EQ(call("all-gather and broadcast", "x.csv"), " ");
  RowOverrides flags;
  flags.ranks = 8;
  flags.collective = "all_gather";
  ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv("gpu_type,size_bytes,time_us\nH100,1048576,50\n", "t.csv"));
  ASSERT_OK_AND_ASSIGN(const CollectiveRow row, ReadCollectiveRow(CsvCells(table, table.rows[0]), flags));
  EXPECT_EQ(row.call, NcclCall::kAllGather);
  EXPECT_EQ(row.shape.ranks, 8);
}

// 1 MiB in 50 us are 21 GB/s, so 168 are its bits.
TEST(CollectiveRowTest, TimeAndRateMustAgree) {
  const std::string columns = "collective,gpu_type,ranks,size_bytes,time_us,algbw_gbps";
  EXPECT_OK(Read(columns, "all_reduce,H100,8,1048576,50,21").status());
  EXPECT_THAT(std::string(Read(columns, "all_reduce,H100,8,1048576,50,168").status().message()),
              HasSubstr("time and rate disagree: 20.97 GB/s by its time, 168 printed"));
}

// What a row does not say is taken from the usual machine, and which NCCL the price is of is said.
TEST(CollectiveRowTest, DefaultsAndTheReleaseAreNamed) {
  const std::string columns = "collective,gpu_type,ranks,nodes,interconnect,nccl_version,size_bytes,time_us";
  ASSERT_OK_AND_ASSIGN(const CollectiveRow empty, Read(columns, "all_reduce,H100,16,,,,1024,10"));
  EXPECT_EQ(empty.defaults,
            (std::vector<std::string>{"nodes 2", "interconnect of the usual h100-sxm machine", "nccl_version 2.28.9"}));
  ASSERT_OK_AND_ASSIGN(const CollectiveRow said,
                       Read(columns, "all_reduce,H100,16,2,8x400Gb/s,2.18.5+cuda12.2,1024,10"));
  EXPECT_EQ(said.defaults, std::vector<std::string>());
  EXPECT_EQ(said.approximations, (std::vector<std::string>{"NCCL 2.18.5+cuda12.2 as 2.28.9"}));
  ASSERT_OK_AND_ASSIGN(const CollectiveRow same, Read(columns, "all_reduce,H100,8,1,NVLink,2.28.9,1024,10"));
  EXPECT_EQ(same.approximations, std::vector<std::string>());
}

}  // namespace
}  // namespace meshwright
