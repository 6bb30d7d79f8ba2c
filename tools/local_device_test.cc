#include "tools/local_device.h"

#include <map>
#include <string>

#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tools/exit_code.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

MATCHER_P(Holds, device, "") { return arg.ok() && *arg == device; }

absl::StatusOr<int64_t> DeviceWith(const std::map<std::string, std::string>& variables, int64_t rank, int64_t ranks,
                                   int64_t devices) {
  const manual::Environment environment = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  return LocalDevice(environment, rank, ranks, devices);
}

TEST(LocalDeviceTest, TheLaunchersNumber) {
  EXPECT_THAT(DeviceWith({{"LOCAL_RANK", "2"}}, 10, 16, 8), Holds(2));
  EXPECT_THAT(DeviceWith({{"OMPI_COMM_WORLD_LOCAL_RANK", "7"}}, 15, 16, 8), Holds(7));
  EXPECT_THAT(DeviceWith({{"SLURM_LOCALID", "0"}}, 8, 16, 8), Holds(0));
  // torchrun inside of srun: its own word counts.
  EXPECT_THAT(DeviceWith({{"LOCAL_RANK", "3"}, {"SLURM_LOCALID", "0"}}, 3, 8, 8), Holds(3));
}

TEST(LocalDeviceTest, AProcessThatSeesOneDeviceTakesIt) {
  EXPECT_THAT(DeviceWith({{"LOCAL_RANK", "5"}}, 5, 8, 1), Holds(0));
  EXPECT_THAT(DeviceWith({}, 5, 8, 1), Holds(0));
}

TEST(LocalDeviceTest, WithoutANumberRanksOfOneMachine) {
  EXPECT_THAT(DeviceWith({}, 3, 4, 8), Holds(3));
  EXPECT_THAT(DeviceWith({}, 3, 16, 8), StatusIs(absl::StatusCode::kUnavailable, "set LOCAL_RANK"));
}

TEST(LocalDeviceTest, NumbersThatDoNotFit) {
  EXPECT_THAT(DeviceWith({{"LOCAL_RANK", "8"}}, 8, 16, 8),
              StatusIs(absl::StatusCode::kUnavailable, "LOCAL_RANK is 8, this machine has 8 GPUs"));
  EXPECT_THAT(DeviceWith({{"SLURM_LOCALID", "-1"}}, 1, 16, 8),
              StatusIs(absl::StatusCode::kUnavailable, "SLURM_LOCALID is \"-1\""));
  EXPECT_THAT(DeviceWith({{"LOCAL_RANK", "first"}}, 1, 16, 8),
              StatusIs(absl::StatusCode::kUnavailable, "LOCAL_RANK is \"first\"; wants a whole number"));
}

TEST(LocalDeviceTest, NoGpuCannotBeMet) {
  EXPECT_EQ(ExitCodeOf(NoGpu("none")), ExitCode::kNothingFits);
  EXPECT_THAT(std::string(NoGpu("CUDA finds none").message()), HasSubstr("CUDA finds none"));
}

}  // namespace
}  // namespace meshwright
