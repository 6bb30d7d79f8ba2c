// The tests of this folder as one program, for a machine without Bazel; or the programs of the semantics suite:
//
//   gpu_tests [GOOGLETEST FLAGS]
//   gpu_tests --cases=DIR [--seconds=N]    # as a rank of a job (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT): every
//   case
//                                          # of as many ranks, on device 0; after N seconds none is begun
//   gpu_tests --cases=DIR --host           # the same on the host, to see that the cases and this program are right
//
// Rank 0 says of each case whether its losses are those of the host. Exit codes: 0 all of them, 1 something failed, 2
// usage.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
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
  bool host = false;
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
  return RunInJob(suite_case.program, options, world, [&](Endpoint& endpoint) {
    return cuda::RunRankOnGpu(suite_case.program, options, data, endpoint, 0);
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

}  // namespace
}  // namespace meshwright

int main(int argc, char** argv) {
  meshwright::Request request;
  for (int i = 1; i < argc; ++i) {
    absl::string_view value = argv[i];
    if (absl::ConsumePrefix(&value, "--cases=")) request.folder = std::string(value);
    if (absl::ConsumePrefix(&value, "--seconds=") && !absl::SimpleAtoi(value, &request.seconds)) {
      std::fprintf(stderr, "gpu_tests: found \"%s\", wanted --seconds=N\n", argv[i]);
      return 2;
    }
    if (value == "--host") request.host = true;
  }
  if (!request.folder.empty()) return meshwright::Run(request);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
