// Everything that measure does, on the host: its programs, its fit, its files.
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "costmodel/library.h"
#include "executor/host/run_on_threads.h"
#include "gtest/gtest.h"
#include "ir/document.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "tools/measure/experiments.h"
#include "tools/measure/fit.h"
#include "tools/measure/nccl_json.h"
#include "tools/measure/nccl_log.h"
#include "tools/measure/report.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ExperimentsTest, EveryProgramPassesTheVerifier) {
  for (const MeasurePlan& plan : {HostPlan(), GpuPlan()}) {
    ASSERT_OK_AND_ASSIGN(std::vector<Experiment> all, KernelExperiments(plan));
    for (const int64_t ranks : {2, 8}) {
      ASSERT_OK_AND_ASSIGN(const std::vector<Experiment> more, CollectiveExperiments(plan, ranks));
      all.insert(all.end(), more.begin(), more.end());
    }
    for (const Experiment& experiment : all) EXPECT_OK(VerifyProgram(experiment.program)) << experiment.name;
  }
}

TEST(ExperimentsTest, EveryKindRunsOnTheHost) {
  const MeasurePlan plan = QuickPlan(HostPlan());
  ASSERT_OK_AND_ASSIGN(std::vector<Experiment> all, KernelExperiments(plan));
  ASSERT_OK_AND_ASSIGN(const std::vector<Experiment> more, CollectiveExperiments(plan, 2));
  all.insert(all.end(), more.begin(), more.end());
  std::vector<bool> seen(std::size(kSampleKindNames));
  for (const Experiment& experiment : all) {
    ASSERT_OK_AND_ASSIGN(const Sample sample, Measure(experiment, RunOnThreads));
    EXPECT_GT(sample.time, Nanos(0)) << sample.name;
    EXPECT_GE(sample.runs, 4) << sample.name;  // five, without the first
    seen[static_cast<size_t>(sample.kind)] = true;
  }
  for (size_t kind = 0; kind < seen.size(); ++kind) EXPECT_TRUE(seen[kind]) << kSampleKindNames[kind];
}

TEST(ExperimentsTest, LargerPlansGoDownInQuarters) {
  const MeasurePlan plan = LargerPlan(HostPlan(), MiB(64));
  EXPECT_THAT(plan.collectives, ElementsAre(1 << 10, 1 << 14, 1 << 17, 1 << 20, 8 << 20, 16 << 20, 64 << 20));
  EXPECT_EQ(LargerPlan(HostPlan(), MiB(4)).collectives, HostPlan().collectives);
}

// On the host a reduction of one number is before each collective, so that the ranks begin it together.
TEST(ExperimentsTest, RanksOfTheHostMeet) {
  for (const MeasurePlan& plan : {HostPlan(), GpuPlan()}) {
    ASSERT_OK_AND_ASSIGN(const std::vector<Experiment> all, CollectiveExperiments(plan, 4));
    for (const Experiment& experiment : all) {
      const std::vector<Instruction>& block = experiment.program.classes[0].blocks[0].instructions;
      ASSERT_EQ(block.size(), plan.together ? 4u : 2u);
      EXPECT_EQ(experiment.measured, block.size() - 1);
    }
  }
}

// Samples that a machine with known constants would give: the fit finds those constants again. The grids have 40 steps:
// of a share from 0.05 to 1 one is 7.8 %, of a bandwidth over four decades 26 %.
TEST(FitTest, FindsTheConstantsOfAMachine) {
  ASSERT_OK_AND_ASSIGN(Cluster machine, MakeClusterOfDevices("host", 2));
  machine.device.kernels.startup = Nanos(400);
  machine.device.kernels.memory_share = 0.5;
  machine.device.kernels.memory_ramp = Bytes(9000);
  machine.device.kernels.matmul_share = 0.6;
  machine.device.attention[0].forward_share = 0.11;
  machine.device.attention[0].backward_share = 0.03;
  machine.device.kernels.normalize_backward_share = 0.2;
  machine.device.kernels.sustained_clock = 0.4;
  machine.device.kernels.host_launch = Micros(20);
  machine.intra_bandwidth = GBps(3);
  ASSERT_OK_AND_ASSIGN(std::vector<Experiment> all, KernelExperiments(HostPlan()));
  ASSERT_OK_AND_ASSIGN(const std::vector<Experiment> more, CollectiveExperiments(HostPlan(), 2));
  all.insert(all.end(), more.begin(), more.end());
  std::vector<Sample> samples;
  for (const Experiment& experiment : all) {
    Sample sample;
    sample.kind = experiment.kind;
    sample.dtype = experiment.dtype;
    sample.collective = experiment.collective;
    sample.size = experiment.size;
    sample.ranks = experiment.program.mesh.num_ranks();
    const RankClass& ranks = experiment.program.classes[0];
    const Instruction& instruction = ranks.blocks[0].instructions[experiment.measured];
    if (const auto* compute = std::get_if<Compute>(&instruction.work)) {
      sample.work = WorkOf(instruction, *compute, ranks, experiment.program.mesh);
    }
    sample.time = sample.kind == SampleKind::kLaunch ? machine.device.kernels.startup : PriceOf(sample, machine);
    samples.push_back(sample);
  }
  ASSERT_OK_AND_ASSIGN(const Cluster guess, MakeClusterOfDevices("host", 2));
  const Fit fit = FitConstants(samples, Nanos(700), guess);
  const Device& found = fit.cluster.device;
  EXPECT_EQ(found.kernels.startup, Nanos(400));
  EXPECT_NEAR(std::log(ToSeconds(found.kernels.host_launch) / 20e-6), 0, 0.2);
  EXPECT_NEAR(found.kernels.sustained_clock, 0.4, 0.03);
  EXPECT_NEAR(std::log(fit.cluster.intra_bandwidth.raw() / 3e9), 0, 0.15);
  // Of shares that multiply a rate only the product counts.
  EXPECT_NEAR(std::log(found.memory_bandwidth.raw() * found.kernels.memory_share / (8e9 * 0.5)), 0, 0.06);
  EXPECT_NEAR(std::log(found.Peak(DType::kFloat32).raw() * found.kernels.matmul_share * found.kernels.sustained_clock /
                       (40e9 * 0.6 * 0.4)),
              0, 0.06);
  for (const FitError& error : fit.after) EXPECT_LT(error.mean, 0.12) << NameOf(error.kind);
  ASSERT_EQ(fit.before.size(), fit.after.size());
  EXPECT_GT(fit.before[1].mean, fit.after[1].mean);

  // In a job: what is between ranks alone.
  const Fit links = FitCollectives(samples, guess);
  EXPECT_NEAR(std::log(links.cluster.intra_bandwidth.raw() / 3e9), 0, 0.15);
  EXPECT_NEAR(std::log(ToSeconds(links.cluster.device.kernels.host_launch) / 20e-6), 0, 0.2);
  EXPECT_EQ(links.cluster.device.kernels.startup, guess.device.kernels.startup);
  EXPECT_EQ(links.cluster.device.kernels.memory_share, guess.device.kernels.memory_share);
}

TEST(ReportTest, TheClusterFileReadsBack) {
  ASSERT_OK_AND_ASSIGN(Cluster machine, MakeClusterOfDevices("host", 2));
  Fit fit;
  fit.cluster = machine;
  fit.cluster.device.kernels_estimated = false;
  fit.cluster.device.kernels.matmul_share = 0.43;
  fit.cluster.device.peak[static_cast<size_t>(DType::kFloat32)] = FlopsPerSecond(77e9);
  fit.cluster.device.attention[0].forward_share = 0.09;
  fit.cluster.intra_bandwidth = GBps(2.5);
  fit.after = {{SampleKind::kProduct, 4, 0.02, 0.01, 0.05}};
  const std::string text = ToClusterFile(fit, {}, {"2026-11-22", "one core, of a kind", "measure --out=x.yaml"});
  ASSERT_OK_AND_ASSIGN(const Document document, ParseDocument(text, "x.yaml"));
  ASSERT_OK_AND_ASSIGN(const Cluster read, ReadCluster(document.root()));
  EXPECT_EQ(read.device.kernels, fit.cluster.device.kernels);
  EXPECT_EQ(read.device.peak, fit.cluster.device.peak);
  EXPECT_EQ(read.device.attention[0].forward_share, 0.09);
  EXPECT_EQ(read.intra_bandwidth, GBps(2.5));
  EXPECT_FALSE(read.device.kernels_estimated);
  EXPECT_THAT(read.device.provenance.back().source, HasSubstr("measure, 2026-11-22, one core"));
}

constexpr char kLog[] =
    R"(# nThread 1 nGpus 4 minBytes 8 maxBytes 1048576 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1
# Using devices
#  Rank  0 Group  0 Pid  41 on   somewhere device  0 [0000:01:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  41 on   somewhere device  1 [0000:02:00] NVIDIA H100 80GB HBM3
somewhere:41:41 NCCL INFO something
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        8192          2048     float     sum      -1    14.20    0.58    0.58      0    13.90    0.59    0.59      0
     1048576        262144     float     sum      -1    31.50   33.29   33.29    N/A    31.20   33.61   33.61    N/A
# Out of bounds values : 0 OK
)";

TEST(NcclLogTest, ReadsWhatNcclTestsPrint) {
  ASSERT_OK_AND_ASSIGN(const NcclLog log, ParseNcclLog(kLog, "x.log"));
  EXPECT_EQ(log.ranks, 2);
  EXPECT_EQ(log.gpus_per_thread, 4);
  EXPECT_FALSE(log.collective.has_value());
  ASSERT_EQ(log.rows.size(), 2u);
  EXPECT_EQ(log.rows[0].size, Bytes(8192));
  EXPECT_EQ(log.rows[1].time, Nanos(31500));
}

// Launchers write in front of each line: SkyPilot a bracket before mpirun's, srun -l the rank.
TEST(NcclLogTest, WhatLaunchersWriteInFront) {
  for (const char* front : {"(head, rank=0, pid=3808) [1,0]<stdout>:", "(Worker pid=7, ip=10.0.0.2) ", "0: "}) {
    std::string text;
    for (const absl::string_view line : absl::StrSplit(kLog, '\n')) absl::StrAppend(&text, front, line, "\n");
    EXPECT_TRUE(LooksLikeNcclLog(text)) << front;
    ASSERT_OK_AND_ASSIGN(const NcclLog log, ParseNcclLog(text, "x.log"));
    EXPECT_EQ(log.ranks, 2) << front;
    EXPECT_EQ(log.rows.size(), 2u) << front;
  }
}

// However many of them.
TEST(NcclLogTest, BracketsWithoutEnd) {
  std::string front;
  for (int i = 0; i < 1'000'000; ++i) front += "() ";
  EXPECT_TRUE(LooksLikeNcclLog(front + "# nThread 1 nGpus 8"));
}

// With -C 1 the CPU's time stands where the call's did.
TEST(NcclLogTest, TheCpusTimeIsNone) {
  const std::string text = absl::StrReplaceAll(kLog, {{" time ", " cputime "}});
  EXPECT_THAT(std::string(ParseNcclLog(text, "x.log").status().message()),
              HasSubstr("x.log:7:1: found cputime alone, wanted time; nccl-tests prints the CPU's in its place"));
}

// What nccl-tests writes with -J: it lists the first device of each process, here two of four.
TEST(NcclJsonTest, ReadsAReport) {
  constexpr char kReport[] = R"({"version": 1, "args": ["./build/alltoall_perf", "-g", "4", "-J", "x.json"],
"nccl_version": 22703, "config": {"nthreads": 1, "ngpus": 4, "devices": [
  {"rank": 0, "group": 0, "pid": 7, "hostname": "n0", "device": 0, "device_info": "NVIDIA H100 80GB HBM3"},
  {"rank": 4, "group": 0, "pid": 9, "hostname": "n1", "device": 0, "device_info": "NVIDIA H100 80GB HBM3"}]},
"results": [
  {"size": 1024, "count": 32, "type": "float", "redop": "none", "root": "    -1",
   "out_of_place": {"time": 20.5, "alg_bw": 0.05, "bus_bw": 0.044, "nwrong": null},
   "in_place": {"time": 20.1, "alg_bw": 0.05, "bus_bw": 0.044, "nwrong": null}},
  {"size": 2048, "count": 64, "type": "float", "redop": "none", "root": "    -1", "out_of_place": null}]})";
  EXPECT_TRUE(LooksLikeNcclJson(kReport));
  ASSERT_OK_AND_ASSIGN(const NcclLog log, ParseNcclJson(kReport, "x.json"));
  EXPECT_EQ(log.program, "alltoall");
  EXPECT_EQ(log.ranks, 8);
  EXPECT_EQ(log.nodes, 2);
  EXPECT_EQ(log.gpus_per_thread, 4);
  EXPECT_EQ(log.device, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(log.version, "2.27.3");
  ASSERT_EQ(log.rows.size(), 1u);
  EXPECT_EQ(log.rows[0].size, Bytes(1024));
  EXPECT_EQ(log.rows[0].time, Nanos(20500));
  EXPECT_EQ(log.rows[0].in_place, Nanos(20100));
  EXPECT_FALSE(log.rows[0].reduces);
  EXPECT_THAT(std::string(ParseNcclJson("{\"results\": []}", "x.json").status().message()),
              HasSubstr("x.json: found no result with a time out of place"));
}

// Older logs have no #wrong or `redop`; mpirun names the rank in front, scripts put commas between.
TEST(NcclLogTest, OtherForms) {
  ASSERT_OK_AND_ASSIGN(const std::vector<NcclLog> logs, ParseNcclLogs(R"($ mpirun -np 4 ./build/sendrecv_perf -b 8
[1,0]<stdout>:# nThread 1 nGpus 1 minBytes 8
[1,0]<stdout>:#   Rank  0 Pid  41 on  one device  0 [0x07] Tesla V100-SXM3-32GB
[1,0]<stdout>:#   Rank  1 Pid  42 on  one device  1 [0x08] Tesla V100-SXM3-32GB
[1,0]<stdout>:#   Rank  2 Pid  43 on  two device  0 [0x07] Tesla V100-SXM3-32GB
[1,0]<stdout>:#   Rank  3 Pid  44 on  two device  1 [0x08] Tesla V100-SXM3-32GB
one:41:41 [0] NCCL INFO NCCL version 2.8.3+cuda11.0
[1,0]<stdout>:#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
[1,0]<stdout>:        8192          2048   float    14.20    0.58    0.87  0e+00    13.90    0.59    0.89  0e+00
# Out of bounds values : 0 OK
# nThread 1 nGpus 4 minBytes 8
# Collective test starting: all_gather_perf
# size, count, type, redop, root, time, algbw, busbw, #wrong, time, algbw, busbw, #wrong
1024, 64, float, none, -1, 7.5, 0.14, 0.1, 0, 7.4, 0.14, 0.1, 0
)",
                                                                      "x.log"));
  ASSERT_EQ(logs.size(), 2u);
  EXPECT_EQ(logs[0].program, "sendrecv");
  EXPECT_EQ(logs[0].ranks, 4);
  EXPECT_EQ(logs[0].nodes, 2);
  EXPECT_EQ(logs[0].device, "Tesla V100-SXM3-32GB");
  EXPECT_EQ(logs[0].version, "2.8.3");
  ASSERT_EQ(logs[0].rows.size(), 1u);
  EXPECT_EQ(logs[0].rows[0].in_place, Nanos(13900));
  EXPECT_NEAR(logs[0].rows[0].bus_factor, 1.5, 1e-9);
  EXPECT_EQ(logs[1].collective, CollectiveKind::kAllGather);
  EXPECT_EQ(logs[1].rows[0].time, Nanos(7500));
  EXPECT_EQ(logs[1].rows[0].line, 14);
}

TEST(NcclLogTest, SeveralTestsAreMoreThanOneLog) {
  EXPECT_TRUE(LooksLikeNcclLog(kLog));
  EXPECT_FALSE(LooksLikeNcclLog("collective,size,count,type\n"));
  EXPECT_THAT(ParseNcclLog(std::string(kLog) + kLog, "x.log"),
              StatusIs(absl::StatusCode::kInvalidArgument, "found a second test"));
}

TEST(NcclLogTest, SaysWhereALogIsWrong) {
  EXPECT_THAT(ParseNcclLog("# nothing\n", "x.log"), StatusIs(absl::StatusCode::kInvalidArgument, "x.log:1:1"));
  EXPECT_THAT(ParseNcclLog("#\n 8 2 float sum\n", "x.log"),
              StatusIs(absl::StatusCode::kInvalidArgument, "x.log:2:1: found 4 columns, wanted 13"));
  EXPECT_THAT(ParseNcclLog("8 2 float sum -1 fast 1 1 0 1 1 1 0\n", "x.log"),
              StatusIs(absl::StatusCode::kInvalidArgument, "\"fast\" as time"));
}

// 1 MiB in 100 us is 10.49 GB/s; over 4 ranks an all-reduce's bus carries 6/4 of it.
TEST(NcclLogTest, WhatItWritesItReads) {
  Sample sample;
  sample.kind = SampleKind::kCollective;
  sample.size = MiB(1);
  sample.ranks = 4;
  sample.time = Micros(100);
  const std::string text = ToNcclLog(CollectiveKind::kAllReduce, 4, {sample}, "a device");
  EXPECT_THAT(text, HasSubstr("100.00   10.49   15.73"));
  ASSERT_OK_AND_ASSIGN(const NcclLog log, ParseNcclLog(text, "x.log"));
  EXPECT_EQ(log.collective, CollectiveKind::kAllReduce);
  EXPECT_EQ(log.ranks, 4);
  ASSERT_EQ(log.rows.size(), 1u);
  EXPECT_EQ(log.rows[0].time, Micros(100));
}

TEST(ReportTest, ALogBesideThePrediction) {
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, MakeCluster("h100-sxm", 1));
  ASSERT_OK_AND_ASSIGN(const NcclLog log, ParseNcclLog(kLog, "x.log"));
  const std::string text = CompareLog(log, CollectiveKind::kAllReduce, 2, cluster);
  EXPECT_THAT(text, HasSubstr("all_reduce over 2 ranks on 1 node"));
  EXPECT_THAT(text, HasSubstr("1048576"));
}

}  // namespace
}  // namespace meshwright
