// F03: the same program with and without mpirun (S2.6, S2.7, S2.9), and the launcher command (S2.8). What may go wrong
// while a job forms or runs, and R7, is in executor/manual/launch_test.cc too: too few workers, a surplus one, two with
// one id, a worker that dies or is silent, MS_ROLE beside mpirun's variables.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "executor/host/testing.h"
#include "executor/manual/launch.h"
#include "executor/steady_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/error_kind.h"
#include "ir/testing.h"
#include "tests/semantics/job.h"
#include "tools/launcher.h"

namespace meshwright {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kModel[] = "models/configs/oracle_b.yaml";

std::string LossLines(const std::string& text) {
  std::string lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line.find(", loss is ") != absl::string_view::npos) absl::StrAppend(&lines, line, "\n");
  }
  return lines;
}

// Runs a line of the shell; its output and exit status.
struct Shell {
  explicit Shell(const std::string& line) {
    const std::string folder = NewFolder();
    const absl::Time begin = SteadyNow();
    const int ended = std::system(absl::StrCat("(", line, ") > ", folder, "/out 2>&1").c_str());
    took = SteadyNow() - begin;
    status = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
    output = ReadAll(folder + "/out");
    std::system(absl::StrCat("rm -r ", folder).c_str());
  }
  std::string output;
  int status = -1;
  absl::Duration took;
};

TEST(LaunchTest, OneProgramThreeWays) {
  const Shell threads(absl::StrCat("tools/run ", kModel, " --ranks=8"));
  ASSERT_EQ(threads.status, 0) << threads.output;
  const std::string wanted = LossLines(threads.output);
  EXPECT_THAT(wanted, HasSubstr("step: 1, loss is 0.29478240883880"));
  const JobOutput sockets = RunOverSockets(8, {"tools/run", kModel});
  ASSERT_OK(sockets.status) << sockets.ranks[0];
  EXPECT_EQ(LossLines(sockets.ranks[0]), wanted);
  EXPECT_THAT(sockets.scheduler, IsEmpty()) << "the scheduler runs no training code";
  if (!HasMpirun()) GTEST_SKIP() << "needs mpirun, which is not installed";
  const JobOutput mpi = RunUnderMpirun(8, {"tools/run", kModel});
  ASSERT_OK(mpi.status);
  EXPECT_EQ(LossLines(mpi.ranks[0]), wanted);
}

// What torchrun sets for each process, and what srun does beside a master's address.
TEST(LaunchTest, ByTheVariablesOfOtherLaunchers) {
  const ReservedPort port;
  const std::string master = absl::StrCat("MASTER_ADDR=127.0.0.1 MASTER_PORT=", port.number());
  const std::string run = absl::StrCat("tools/run ", kModel, " --steps=2 --ignore_shards");
  const Shell torchrun(
      absl::StrCat("RANK=1 WORLD_SIZE=2 ", master, " ", run, " & RANK=0 WORLD_SIZE=2 ", master, " ", run, "; wait"));
  EXPECT_EQ(torchrun.status, 0) << torchrun.output;
  EXPECT_THAT(torchrun.output, HasSubstr("step: 2, loss is 0.2927389"));
  const Shell srun(absl::StrCat("SLURM_PROCID=1 SLURM_NTASKS=2 ", master, " ", run, " & SLURM_PROCID=0 SLURM_NTASKS=2 ",
                                master, " ", run, "; wait"));
  EXPECT_EQ(srun.status, 0) << srun.output;
  EXPECT_THAT(srun.output, HasSubstr("step: 2, loss is 0.2927389"));
}

// R7, S2.7: every variable that is missing is named, and nothing is waited for: that would take half an hour. (It takes
// less than 5 seconds on a machine that is not busy.)
TEST(LaunchTest, MissingVariablesAreNamed) {
  const Shell some(absl::StrCat("MS_ROLE=MS_WORKER MS_WORKER_NUM=2 tools/run ", kModel));
  EXPECT_EQ(some.status, 5);
  EXPECT_THAT(some.output,
              AllOf(HasSubstr("MS_SCHED_HOST, MS_SCHED_PORT are not set. Start the program with mpirun -np N"),
                    HasSubstr("[E-LAUNCH]")));
  EXPECT_LT(some.took, kHang);
  const Shell torchrun(absl::StrCat("RANK=0 MASTER_ADDR=127.0.0.1 tools/run ", kModel));
  EXPECT_EQ(torchrun.status, 5);
  EXPECT_THAT(torchrun.output, HasSubstr("WORLD_SIZE, MASTER_PORT are not set"));
  const absl::Status init = manual::Launch({.environment = [](const char*) -> const char* { return nullptr; }},
                                           [](manual::Context& context) { return context.Init(); });
  EXPECT_EQ(KindOf(init), "E-LAUNCH");
  EXPECT_THAT(std::string(init.message()),
              HasSubstr("MS_ROLE, MS_SCHED_HOST, MS_SCHED_PORT, MS_WORKER_NUM are not set"));
}

TEST(LaunchTest, WrongValuesAreRefused) {
  const std::string good = "MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT=8118 MS_WORKER_NUM=2 MS_ROLE=MS_WORKER ";
  for (const char* wrong : {"MS_ROLE=MS_BOSS", "MS_SCHED_PORT=80", "MS_SCHED_PORT=65536", "MS_WORKER_NUM=0"}) {
    const Shell run(absl::StrCat(good, wrong, " tools/run ", kModel));
    EXPECT_EQ(run.status, 5) << wrong;
    EXPECT_THAT(run.output, HasSubstr("[E-LAUNCH]")) << wrong;
    EXPECT_LT(run.took, kHang);
  }
}

// S2.7: how many arrived, on every process that did. Where the machine is so busy that the one does not arrive in time
// either, once more with more time.
TEST(LaunchTest, TooFewWorkers) {
  for (const int seconds : {1, 8, 64}) {
    const ReservedPort port;
    const std::string run =
        absl::StrCat(" MS_SCHED_HOST=127.0.0.1 MS_WORKER_NUM=3 MS_SCHED_PORT=", port.number(), " tools/run ", kModel);
    const Shell both(absl::StrCat("MS_ROLE=MS_SCHED MS_TOPO_TIMEOUT=", seconds, run,
                                  " & MS_ROLE=MS_WORKER MS_TOPO_TIMEOUT=", seconds + 100, run, "; wait"));
    if (seconds < 64 && !absl::StrContains(both.output, "1 of 3")) continue;
    const std::string want = absl::StrCat("1 of 3 workers arrived at the scheduler within ",
                                          absl::FormatDuration(absl::Seconds(seconds)), " [E-LAUNCH]");
    EXPECT_THAT(both.output, AllOf(HasSubstr(want), EndsWith(absl::StrCat(want, "\n"))));
    const std::vector<std::string> parts = absl::StrSplit(both.output, want);
    EXPECT_EQ(parts.size(), 3u) << "the scheduler and the worker say it: " << both.output;
    return;
  }
}

// S2.9: nothing launched it and nothing asks for ranks: one.
TEST(LaunchTest, WithoutALauncherThereIsOneRank) {
  const Shell alone(absl::StrCat("tools/run ", kModel, " --steps=1"));
  EXPECT_EQ(alone.status, 0) << alone.output;
  EXPECT_THAT(alone.output, HasSubstr("oracle_b on 1 rank,"));
}

// --- the launcher command (S2.8) -------------------------------------------------------------------------------------

TEST(LauncherTest, WritesALogForEachProcess) {
  const std::string folder = NewFolder();
  const ReservedPort port;
  const Shell launch(absl::StrCat("tools/launch --worker_num=2 --join --master_port=", port.number(),
                                  " --log_dir=", folder, "/logs -- run ", kModel, " --steps=2 --ignore_shards"));
  EXPECT_EQ(launch.status, 0) << launch.output;
  EXPECT_THAT(ReadAll(folder + "/logs/worker_0.log"), HasSubstr("step: 2, loss is 0.2927389"));
  EXPECT_THAT(ReadAll(folder + "/logs/worker_1.log"), Not(HasSubstr("error")));
  EXPECT_EQ(std::system(absl::StrCat("test -f ", folder, "/logs/scheduler.log && rm -r ", folder).c_str()), 0);
}

TEST(LauncherTest, WithoutJoinTheJobRunsOn) {
  const std::string folder = NewFolder();
  const ReservedPort port;
  const Shell launch(absl::StrCat("tools/launch --worker_num=2 --master_port=", port.number(), " --log_dir=", folder,
                                  " -- run ", kModel, " --steps=2 --ignore_shards"));
  EXPECT_EQ(launch.status, 0) << launch.output;
  EXPECT_THAT(launch.output, HasSubstr("started 2 workers; their output is in "));
  std::string log;
  const absl::Time hangs = SteadyNow() + kHang;
  while (log.find("memory of") == std::string::npos && SteadyNow() < hangs) {
    absl::SleepFor(absl::Milliseconds(50));
    log = ReadAll(folder + "/worker_0.log");
  }
  EXPECT_THAT(log, HasSubstr("step: 2, loss is 0.2927389"));
  std::system(absl::StrCat("rm -r ", folder).c_str());
}

// Whether a process runs whose command line is this, its words with a '\0' behind each.
bool IsRunning(const std::string& command) {
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
    if (ReadAll(entry.path() / "cmdline") == command) return true;
  }
  return false;
}

// Worker 2 dies: the others, and what they started, are stopped; the exit status is not zero.
TEST(LauncherTest, WhenOneDiesNobodyIsLeftBehind) {
  const std::string mark = absl::StrCat("3", getpid(), ".25");  // of this test's own sleepers
  const std::string worker =
      absl::StrCat("if [ \"$MS_NODE_ID\" = 2 ]; then sleep 1; exit 3; fi; sleep ", mark, " & wait");
  LaunchedJob job;
  job.command = {"sh", "-c", worker};
  job.workers = job.local_workers = 4;
  job.log_dir = NewFolder();
  job.to_end = absl::Seconds(1);
  EXPECT_THAT(RunJob(job), StatusIs(absl::StatusCode::kAborted, "worker_2 ended with 3, see "));
  const std::string sleeper = absl::StrCat("sleep", std::string(1, '\0'), mark, std::string(1, '\0'));
  const absl::Time hangs = SteadyNow() + kHang;
  while (IsRunning(sleeper) && SteadyNow() < hangs) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_FALSE(IsRunning(sleeper)) << "left behind";
  std::system(absl::StrCat("rm -r ", job.log_dir).c_str());
}

// Several that end badly, the cause last: a worker that is killed makes the others stop with an error, and workers that
// do make the scheduler stop.
TEST(LauncherTest, TheCauseIsNamedNotWhatItBroughtDown) {
  LaunchedJob job;
  job.workers = job.local_workers = 3;
  job.log_dir = NewFolder();
  const auto run = [&](const std::string& process) {
    job.command = {"sh", "-c", process};
    return RunJob(job);
  };
  EXPECT_THAT(run("if [ \"$MS_NODE_ID\" = 1 ]; then sleep 0.5; kill -9 $$; fi; exit 5"),
              StatusIs(absl::StatusCode::kAborted, "worker_1 was stopped by signal 9, see "));
  EXPECT_THAT(run("if [ \"$MS_NODE_ID\" = 2 ]; then sleep 0.5; exit 3; fi; test $MS_ROLE = MS_WORKER"),
              StatusIs(absl::StatusCode::kAborted, "worker_2 ended with 3, see "));
  std::system(absl::StrCat("rm -r ", job.log_dir).c_str());
}

TEST(LauncherTest, TheExitStatusSaysThatAWorkerFailed) {
  const std::string folder = NewFolder();
  const ReservedPort port;
  const Shell launch(absl::StrCat("tools/launch --worker_num=2 --join --master_port=", port.number(),
                                  " --log_dir=", folder, " -- run no_such_model.yaml"));
  EXPECT_EQ(launch.status, 5);
  EXPECT_THAT(launch.output, HasSubstr(" ended with "));
  EXPECT_LT(launch.took, kHang);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(ReadAll(absl::StrCat(folder, "/worker_", rank, ".log")), HasSubstr("no_such_model.yaml"));
  }
  std::system(absl::StrCat("rm -r ", folder).c_str());
}

TEST(LauncherTest, LogsThatCannotBeWrittenAreAFilesMistake) {
  const Shell launch(absl::StrCat("tools/launch --worker_num=2 --join --log_dir=/dev/null/logs -- run ", kModel));
  EXPECT_EQ(launch.status, 6);
  EXPECT_THAT(launch.output, HasSubstr("/dev/null/logs: the folder cannot be made: Not a directory"));
}

// In the background nobody would see it.
TEST(LauncherTest, AProgramThatIsNotThereIsSaidAtOnce) {
  LaunchedJob job;
  job.command = {"true"};
  EXPECT_OK(CheckProgram(job));
  job.command = {"/bin/sh"};
  EXPECT_OK(CheckProgram(job));
  job.command = {"no_such_program"};
  EXPECT_EQ(KindOf(CheckProgram(job)), "E-LAUNCH");
  EXPECT_EQ(Shell("env -u PATH tools/launch --worker_num=1 -- true").status, 0);
  const Shell launch("tools/launch --worker_num=2 -- ./no_such_program");
  EXPECT_EQ(launch.status, 2);
  EXPECT_THAT(launch.output, HasSubstr("./no_such_program: cannot be started: No such file or directory"));
}

TEST(LauncherTest, NumbersMustFitTogether) {
  LaunchedJob job;
  job.command = {"true"};
  EXPECT_OK(CheckJob(job));
  job.local_workers = 9;
  EXPECT_EQ(KindOf(CheckJob(job)), "E-VALUE");
  job.local_workers = 4;
  job.node = 1;
  EXPECT_OK(CheckJob(job));  // ranks 4 to 7
  job.node = 2;
  EXPECT_EQ(KindOf(CheckJob(job)), "E-VALUE");
  job.command.clear();
  EXPECT_EQ(KindOf(CheckJob(job)), "E-VALUE");
}

}  // namespace
}  // namespace meshwright
