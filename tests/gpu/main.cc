// The tests of this folder as one program, for a machine without Bazel; or the programs of the semantics suite:
//
//   gpu_tests [GOOGLETEST FLAGS]
//   gpu_tests --from=N [--each=SECONDS]    # the tests from number N on, each with so long; "test N: NAME" before each
//   gpu_tests --machine                    # what CUDA finds, with versions
//   gpu_tests --cases=DIR [--seconds=N]    # as a rank of a job (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT): every
//   case
//                                          # of as many ranks, on device 0; after N seconds none is begun
//   gpu_tests --cases=DIR --host           # the same on the host, to see that the cases and this program are right
//
// A test that does not end, or leaves a device on which nothing runs any more (an error of a kernel lasts as long as
// the process), ends a process with --from: the tests behind it are another's, so that they say something of
// themselves.
//
// Rank 0 says of each case whether its losses are those of the host. Exit codes: 0 all of them, 1 something failed, 2
// usage, 3 the process ended at a test (--from), 4 no GPU (--machine).
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "executor/cuda/real_driver.h"
#include "executor/cuda/run_on_gpus.h"
#include "executor/host/run_in_job.h"
#include "executor/host/run_on_endpoint.h"
#include "executor/manual/launch.h"
#include "executor/steady_clock.h"
#include "gtest/gtest.h"
#include "ir/status.h"
#include "tests/gpu/suite_case.h"

namespace meshwright {
namespace {

struct Request {
  std::string folder;
  int64_t seconds = 100000;
  bool host = false, machine = false;
  int64_t from = -1, each = 100000;
};

// Rank 0's clock decides for all whether there is another one.
absl::StatusOr<bool> GoesOn(Endpoint& world, absl::Time end) {
  std::byte more{static_cast<unsigned char>(SteadyNow() < end)};
  if (world.rank() != 0) {
    MESHWRIGHT_RETURN_IF_ERROR(world.Receive(0, Channel::kReport, absl::MakeSpan(&more, 1)));
  } else {
    for (int64_t rank = 1; rank < world.num_ranks(); ++rank) {
      MESHWRIGHT_RETURN_IF_ERROR(world.Send(rank, Channel::kReport, absl::MakeConstSpan(&more, 1)));
    }
  }
  return more != std::byte{0};
}

absl::StatusOr<RunResult> PlayCase(const SuiteCase& suite_case, bool host, Endpoint& world) {
  RunOptions options = suite_case.options;
  options.trace = false;
  const SyntheticData data(suite_case.data_seed);
  if (host) return RunOnEndpoint(suite_case.program, options, data, world);
  // Ranks that take turns on one device are slow, and do not hang.
  cuda::CudaOptions patient;
  patient.deadline_floor = absl::Minutes(1);
  return RunInJob(suite_case.program, options, world, [&](Endpoint& endpoint) {
    return cuda::RunRankOnGpu(suite_case.program, options, data, endpoint, 0, patient);
  });
}

absl::Status Named(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

absl::Status PlayCases(const Request& request, Endpoint& world, int64_t& wrong) {
  const absl::Time end = SteadyNow() + absl::Seconds(request.seconds);
  const std::string mine = absl::StrCat(world.num_ranks(), "_ranks_");
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(request.folder)) {
    if (absl::StartsWith(entry.path().filename().string(), mine)) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  size_t played = 0;
  for (const std::string& path : paths) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const bool goes_on, GoesOn(world, end));
    if (!goes_on) break;
    ++played;
    std::ifstream file(path);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const absl::StatusOr<SuiteCase> suite_case = ParseSuiteCase(text);
    if (!suite_case.ok()) return Named(path, suite_case.status());
    const absl::StatusOr<RunResult> result = PlayCase(*suite_case, request.host, world);
    if (!result.ok()) return Named(path, result.status());
    if (world.rank() != 0) continue;
    const absl::Status same = CompareLosses(*suite_case, result->losses);
    if (same.ok()) continue;
    ++wrong;
    std::printf("%s (%s): FAILED: %s\n", path.c_str(), suite_case->program.name.c_str(),
                std::string(same.message()).c_str());
  }
  if (world.rank() == 0) {
    std::printf("%zu of %zu programs of %d ranks played, %d with other losses than the host's\n", played, paths.size(),
                static_cast<int>(world.num_ranks()), static_cast<int>(wrong));
  }
  return absl::OkStatus();
}

int Run(const Request& request) {
  const auto world = manual::JoinByVariables(manual::OwnEnvironment(), absl::Minutes(2));
  absl::Status status = world.status();
  if (status.ok() && *world == nullptr) return 0;  // the scheduler's process
  int64_t wrong = 0;
  if (status.ok()) {
    status = PlayCases(request, **world, wrong);
    if (!status.ok()) (*world)->Abort(status);
  }
  if (!status.ok()) std::fprintf(stderr, "gpu_tests: %s\n", status.ToString().c_str());
  return status.ok() && wrong == 0 ? 0 : 1;
}

// Says which test it is, and ends the process at one after which the others could say nothing.
class Minder : public ::testing::EmptyTestEventListener {
 public:
  Minder(const Request& request, bool device) : number_(request.from - 1), device_(device), each_(request.each) {
    std::thread([this] {
      while (true) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        const int64_t end = end_.load();
        if (end > 0 && Now() > end) Quit("does not end within " + std::to_string(each_) + " s");
      }
    }).detach();
  }
  void OnTestStart(const ::testing::TestInfo& test) override {
    name_ = std::string(test.test_suite_name()) + "." + test.name();
    std::printf("test %d: %s\n", static_cast<int>(++number_), name_.c_str());
    std::fflush(stdout);
    end_ = Now() + each_ * 1000;
  }
  void OnTestEnd(const ::testing::TestInfo&) override {
    end_ = 0;
    if (!device_) return;
    const absl::Status status = cuda::CheckDevice();
    if (!status.ok()) Quit("leaves a device that is lost: " + std::string(status.message()));
  }

 private:
  static int64_t Now() { return absl::ToUnixMillis(SteadyNow()); }
  void Quit(const std::string& why) {
    std::printf("test %d: %s: %s\n", static_cast<int>(number_), name_.c_str(), why.c_str());
    std::fflush(stdout);
    _exit(3);
  }
  int64_t number_;
  const bool device_;
  const int64_t each_;  // seconds
  std::string name_;
  std::atomic<int64_t> end_{0};  // milliseconds, of the test that runs
};

// The tests from number `from` on, by name: as googletest runs them.
std::string FilterFrom(int64_t from) {
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  std::string filter;
  int64_t number = 0;
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      if (number++ < from) continue;
      absl::StrAppend(&filter, filter.empty() ? "" : ":", suite.name(), ".", suite.GetTestInfo(t)->name());
    }
  }
  return filter;
}

int RunTests(const Request& request) {
  if (request.from >= 0) {
    const absl::StatusOr<int64_t> devices = cuda::CountDevices();
    const std::string filter = FilterFrom(request.from);
    if (filter.empty()) return 0;
    GTEST_FLAG_SET(filter, filter);
    ::testing::UnitTest::GetInstance()->listeners().Append(new Minder(request, devices.ok() && *devices > 0));
  }
  const int code = RUN_ALL_TESTS();
  if (request.from >= 0) std::printf("all tests were begun\n");
  return code;
}

// 13000 is 13.0; 22809 is NCCL's 2.28.9.
std::string CudaVersion(int n) { return absl::StrCat(n / 1000, ".", n % 1000 / 10); }
std::string NcclVersion(int n) { return absl::StrCat(n / 10000, ".", n / 100 % 100, ".", n % 100); }

int SayMachine() {
  const absl::StatusOr<int64_t> devices = cuda::CountDevices();
  if (!devices.ok() || *devices == 0) {
    std::printf("no GPU that can be used: %s\n",
                devices.ok() ? "CUDA finds none" : std::string(devices.status().message()).c_str());
    return 4;
  }
  int code = 0;
  for (int64_t d = 0; d < *devices; ++d) {
    const absl::StatusOr<cuda::DeviceInfo> info = cuda::DescribeDevice(d);
    if (!info.ok()) {
      std::printf("device %d: %s\n", static_cast<int>(d), info.status().ToString().c_str());
      code = 1;
      continue;
    }
    std::printf("device %d: %s, compute capability %d.%d, %d multiprocessors, %.1f of %.1f GiB free\n",
                static_cast<int>(d), info->name.c_str(), info->major, info->minor, info->multiprocessors,
                static_cast<double>(info->free_memory.raw()) / (1 << 30),
                static_cast<double>(info->memory.raw()) / (1 << 30));
    if (d > 0) continue;
    std::printf("driver for CUDA %s, runtime %s, NCCL %s\n", CudaVersion(info->driver_version).c_str(),
                CudaVersion(info->runtime_version).c_str(), NcclVersion(info->nccl_version).c_str());
  }
  return code;
}

// A number from 0, or usage.
bool ParseCount(absl::string_view& value, absl::string_view flag, int64_t& count, bool& usage) {
  if (!absl::ConsumePrefix(&value, flag)) return false;
  usage = usage || !absl::SimpleAtoi(value, &count) || count < 0;
  return true;
}

}  // namespace
}  // namespace meshwright

int main(int argc, char** argv) {
  meshwright::Request request;
  for (int i = 1; i < argc; ++i) {
    absl::string_view value = argv[i];
    bool usage = false;
    if (absl::ConsumePrefix(&value, "--cases=")) request.folder = std::string(value);
    meshwright::ParseCount(value, "--seconds=", request.seconds, usage);
    meshwright::ParseCount(value, "--from=", request.from, usage);
    meshwright::ParseCount(value, "--each=", request.each, usage);
    if (usage) {
      std::fprintf(stderr, "gpu_tests: found \"%s\", wanted --seconds=N, --from=N or --each=N\n", argv[i]);
      return 2;
    }
    if (value == "--host") request.host = true;
    if (value == "--machine") request.machine = true;
  }
  if (request.machine) return meshwright::SayMachine();
  if (!request.folder.empty()) return meshwright::Run(request);
  testing::InitGoogleTest(&argc, argv);
  return meshwright::RunTests(request);
}
