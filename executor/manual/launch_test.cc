// Feature row F3: the same program on threads, under mpirun and by environment variables, and every way in which a job
// may fail to form or to end (S2.6 to S2.9). Processes are started on the loopback address; each test bounds its time.
#include "executor/manual/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "executor/host/rendezvous.h"
#include "executor/manual/toy.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright::manual {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr auto kLaunch = absl::StatusCode::kUnavailable;
using Variables = std::map<std::string, std::string>;

// A process with just these variables; what it prints goes to a file.
class Process {
 public:
  Process(std::vector<std::string> arguments, const Variables& variables) {
    static int count = 0;
    file_ = absl::StrCat(::testing::TempDir(), "/output_", getpid(), "_", count++);
    std::vector<std::string> texts = {"PATH=/usr/bin:/bin"};
    for (const auto& [name, value] : variables) texts.push_back(absl::StrCat(name, "=", value));
    std::vector<char*> argv, envp;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    for (std::string& text : texts) envp.push_back(text.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, file_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    if (posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), envp.data()) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (!ended_ && pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    unlink(file_.c_str());
  }

  // The exit status, -1 when it has not ended in time.
  int Wait(absl::Duration most) {
    const absl::Time deadline = absl::Now() + most;
    int status = 0;
    while (pid_ > 0 && !ended_) {
      ended_ = waitpid(pid_, &status, WNOHANG) == pid_;
      if (ended_) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (absl::Now() > deadline) return -1;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return -1;
  }
  void Signal(int signal) const { kill(pid_, signal); }
  std::string Output() const {
    std::ifstream file(file_);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
  std::string file_;
};

constexpr char kCheck[] = "executor/manual/launch_check";

int FreePort() {
  const absl::StatusOr<std::unique_ptr<Scheduler>> scheduler = Scheduler::Listen({});
  return scheduler.ok() ? (*scheduler)->port() : 0;
}

Variables ForRole(const std::string& role, int port, int workers) {
  return {{"MS_ROLE", role},
          {"MS_SCHED_HOST", "127.0.0.1"},
          {"MS_SCHED_PORT", absl::StrCat(port)},
          {"MS_WORKER_NUM", absl::StrCat(workers)},
          {"MS_TOPO_TIMEOUT", "20"}};
}

std::string Sorted(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  std::sort(lines.begin(), lines.end());
  return absl::StrJoin(lines, "\n");
}

// What two ranks of the toy print on threads.
std::string ToyOnThreads() {
  std::vector<std::string> lines(2);
  EXPECT_OK(LaunchOnThreads(2, {}, [&](Context& context) -> absl::Status {
    MESHWRIGHT_ASSIGN_OR_RETURN(const ToyResult result, TrainToy(context, GradientUse::kAsWritten, 3));
    const int64_t rank = context.GetRank().value();
    lines[rank] = absl::StrFormat("rank %d of 2: w %.17g loss %.17g", rank, result.w, result.loss);
    return absl::OkStatus();
  }));
  return Sorted(absl::StrJoin(lines, "\n"));
}

TEST(LaunchTest, ByVariablesTheSameProgramPrintsTheSame) {
  const int port = FreePort();
  Process scheduler({kCheck, "toy"}, ForRole("MS_SCHED", port, 2));
  Process a({kCheck, "toy"}, ForRole("MS_WORKER", port, 2)), b({kCheck, "toy"}, ForRole("MS_WORKER", port, 2));
  EXPECT_EQ(a.Wait(absl::Seconds(20)), 0) << a.Output();
  EXPECT_EQ(b.Wait(absl::Seconds(5)), 0) << b.Output();
  EXPECT_EQ(scheduler.Wait(absl::Seconds(5)), 0);
  EXPECT_EQ(Sorted(a.Output() + b.Output()), ToyOnThreads());
  EXPECT_THAT(scheduler.Output(), IsEmpty()) << "it runs no training code";
}

// Jobs under mpirun, each in a folder of its own with a short path for its sockets: jobs of several sandboxes have the
// same process ids.
class MpirunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Process found({"sh", "-c", "command -v mpirun"}, {});
    if (found.Wait(absl::Seconds(10)) != 0) GTEST_SKIP() << "needs mpirun, which is not installed";
    ASSERT_NE(mkdtemp(folder_), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // One machine: no remote shell, shared memory without ptrace. What Open MPI itself does not free is not ours to
  // report.
  Variables Settings() const {
    return {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
            {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
            {"OMPI_MCA_plm", "isolated"},
            {"OMPI_MCA_pml", "ob1"},
            {"OMPI_MCA_btl", "self,vader"},
            {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
            {"OMPI_MCA_btl_vader_backing_directory", folder_},
            {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
            {"TMPDIR", folder_},
            {"HOME", folder_},
            {"ASAN_OPTIONS", "detect_leaks=0"}};
  }

 private:
  char folder_[16] = "/tmp/mpiXXXXXX";
};

TEST_F(MpirunTest, TheSameProgramPrintsTheSame) {
  Process job({"mpirun", "-np", "2", kCheck, "toy"}, Settings());
  EXPECT_EQ(job.Wait(absl::Seconds(40)), 0) << job.Output();
  EXPECT_EQ(Sorted(job.Output()), ToyOnThreads());
}

// R9. Every rank has the message of rank 0; mpirun may end the job before all have printed it, and adds its own lines.
TEST_F(MpirunTest, AMistakeIsTheSameErrorOnAllRanks) {
  Process job({"mpirun", "-np", "4", kCheck, "scatter"}, Settings());
  EXPECT_EQ(job.Wait(absl::Seconds(40)), 1) << job.Output();
  int errors = 0;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(job.Output(), '\n'))) {
    if (line.rfind("error: ", 0) != 0) continue;
    ++errors;
    EXPECT_EQ(line,
              "error: INVALID_ARGUMENT: rank 0: ReduceScatter: dim 0 of (6, 2) is 6, which 4 ranks do not divide "
              "[E-VALUE]");
  }
  EXPECT_GE(errors, 1) << job.Output();
}

TEST(LaunchTest, MissingVariablesAreNamedAtOnce) {
  Process none({kCheck, "toy"}, {});
  EXPECT_EQ(none.Wait(absl::Seconds(5)), 1);
  EXPECT_THAT(none.Output(), AllOf(HasSubstr("UNAVAILABLE: init: no launcher: MS_ROLE, MS_SCHED_HOST, MS_SCHED_PORT, "
                                             "MS_WORKER_NUM are not set. Start the program with mpirun -np N, or"),
                                   HasSubstr("[E-LAUNCH]")));
  Variables variables = ForRole("MS_WORKER", 8118, 2);
  variables.erase("MS_SCHED_PORT");
  Process one({kCheck, "toy"}, variables);
  EXPECT_EQ(one.Wait(absl::Seconds(5)), 1);
  EXPECT_THAT(one.Output(), HasSubstr("no launcher: MS_SCHED_PORT is not set. Start"));
}

TEST(LaunchTest, TooFewWorkersEndTheJobOnAll) {
  const int port = FreePort();
  Variables scheduler_variables = ForRole("MS_SCHED", port, 2), worker_variables = ForRole("MS_WORKER", port, 2);
  scheduler_variables["MS_TOPO_TIMEOUT"] = worker_variables["MS_TOPO_TIMEOUT"] = "1";
  Process scheduler({kCheck, "toy"}, scheduler_variables), worker({kCheck, "toy"}, worker_variables);
  for (Process* process : {&worker, &scheduler}) {
    EXPECT_EQ(process->Wait(absl::Seconds(10)), 1);
    EXPECT_THAT(process->Output(), HasSubstr("1 of 2 workers arrived at the scheduler within 1s [E-LAUNCH]"));
  }
}

TEST(LaunchTest, ASurplusWorkerIsRefusedAndTheJobGoesOn) {
  const int port = FreePort();
  Process scheduler({kCheck, "wait"}, ForRole("MS_SCHED", port, 1));
  Process first({kCheck, "wait"}, ForRole("MS_WORKER", port, 1)),
      second({kCheck, "wait"}, ForRole("MS_WORKER", port, 1));
  const int first_status = first.Wait(absl::Seconds(20)), second_status = second.Wait(absl::Seconds(20));
  EXPECT_EQ(scheduler.Wait(absl::Seconds(5)), 0) << scheduler.Output();
  EXPECT_EQ(first_status + second_status, 1);  // one of them, whoever came later
  EXPECT_THAT(first.Output() + second.Output(),
              AllOf(HasSubstr("rank 0: met 1\n"),
                    HasSubstr("the job has its 1 workers already; this one is one too many [E-LAUNCH]")));
}

TEST(LaunchTest, TwoWorkersWithOneIdDoNotMakeAJob) {
  const int port = FreePort();
  Variables variables = ForRole("MS_WORKER", port, 2);
  variables["MS_NODE_ID"] = "1";
  Process scheduler({kCheck, "toy"}, ForRole("MS_SCHED", port, 2));
  Process a({kCheck, "toy"}, variables), b({kCheck, "toy"}, variables);
  for (Process* process : {&a, &b, &scheduler}) {
    EXPECT_EQ(process->Wait(absl::Seconds(10)), 1);
    EXPECT_THAT(process->Output(), HasSubstr("two workers have the node id 1 [E-LAUNCH]"));
  }
}

TEST(LaunchTest, WhenAWorkerDiesTheOthersStop) {
  const int port = FreePort();
  Process scheduler({kCheck, "die", "1"}, ForRole("MS_SCHED", port, 3));
  Process a({kCheck, "die", "1"}, ForRole("MS_WORKER", port, 3)),
      b({kCheck, "die", "1"}, ForRole("MS_WORKER", port, 3)), c({kCheck, "die", "1"}, ForRole("MS_WORKER", port, 3));
  std::vector<int> statuses;
  for (Process* process : {&a, &b, &c}) statuses.push_back(process->Wait(absl::Seconds(20)));
  std::sort(statuses.begin(), statuses.end());
  EXPECT_THAT(statuses, ::testing::ElementsAre(1, 1, 9));
  EXPECT_EQ(scheduler.Wait(absl::Seconds(5)), 1);
  EXPECT_THAT(scheduler.Output(), HasSubstr("worker 1 was lost: its connection closed [E-LAUNCH]"));
  EXPECT_THAT(absl::StrCat(a.Output(), b.Output(), c.Output()), HasSubstr("error: CANCELLED: stopped: "));
}

TEST(LaunchTest, AWorkerThatIsSilentIsLost) {
  const int port = FreePort();
  Variables variables = ForRole("MS_SCHED", port, 2);
  variables["MS_NODE_TIMEOUT"] = "1";
  Process scheduler({kCheck, "wait"}, variables);
  variables["MS_ROLE"] = "MS_WORKER";
  Process silent({kCheck, "wait"}, variables), other({kCheck, "wait"}, variables);
  absl::SleepFor(absl::Seconds(1));  // they have met, and sleep for two seconds
  silent.Signal(SIGSTOP);
  EXPECT_EQ(scheduler.Wait(absl::Seconds(15)), 1);
  EXPECT_THAT(scheduler.Output(), HasSubstr(" was lost: silent for 1s [E-LAUNCH]"));
  EXPECT_EQ(other.Wait(absl::Seconds(10)), 1);
  EXPECT_THAT(other.Output(), HasSubstr(" was lost: silent for 1s"));
  silent.Signal(SIGCONT);
  EXPECT_EQ(silent.Wait(absl::Seconds(10)), 1);
}

TEST(LaunchTest, WhenARankFailsTheOthersSayWhy) {
  const int port = FreePort();
  Process scheduler({kCheck, "fail", "0"}, ForRole("MS_SCHED", port, 2));
  Process a({kCheck, "fail", "0"}, ForRole("MS_WORKER", port, 2)),
      b({kCheck, "fail", "0"}, ForRole("MS_WORKER", port, 2));
  EXPECT_EQ(a.Wait(absl::Seconds(20)), 1);
  EXPECT_EQ(b.Wait(absl::Seconds(5)), 1);
  EXPECT_EQ(scheduler.Wait(absl::Seconds(5)), 0);  // all left in good order
  EXPECT_EQ(Sorted(a.Output() + b.Output()),
            "error: CANCELLED: stopped by another rank: out of cheese\nerror: INTERNAL: out of cheese");
}

TEST(LaunchTest, MsRoleWinsOverMpirunWithAWarning) {
  const int port = FreePort();
  Process scheduler({kCheck, "toy"}, ForRole("MS_SCHED", port, 1));
  Variables variables = ForRole("MS_WORKER", port, 1);
  variables["OMPI_COMM_WORLD_RANK"] = "3";
  Process worker({kCheck, "toy"}, variables);
  EXPECT_EQ(worker.Wait(absl::Seconds(20)), 0);
  EXPECT_EQ(scheduler.Wait(absl::Seconds(5)), 0);
  EXPECT_THAT(worker.Output(), AllOf(HasSubstr("warning: both mpirun and MS_ROLE are in the environment; MS_ROLE is"),
                                     HasSubstr("rank 0 of 1: w ")));
}

TEST(LaunchTest, MpirunWithoutMpiIsExplained) {
  const Environment environment = [](const char* name) {
    return std::string(name) == "OMPI_COMM_WORLD_RANK" ? "0" : nullptr;
  };
  EXPECT_THAT(Launch({.environment = environment}, [](Context& context) { return context.Init(); }),
              StatusIs(kLaunch, "the program was built without MPI; set MS_ROLE, "));
}

// Reads the good settings with one of them changed.
absl::StatusOr<LaunchSettings> ReadWith(const std::string& name, const std::string& value) {
  Variables variables = ForRole("MS_WORKER", 8118, 2);
  variables[name] = value;
  return ReadLaunchSettings([&](const char* wanted) -> const char* {
    const auto found = variables.find(wanted);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(LaunchTest, SettingsHaveTheirDefaults) {
  ASSERT_OK_AND_ASSIGN(const LaunchSettings settings, ReadWith("MS_TOPO_TIMEOUT", ""));
  EXPECT_FALSE(settings.is_scheduler);
  EXPECT_EQ(ToText(settings.rendezvous.scheduler), "127.0.0.1:8118");
  EXPECT_EQ(settings.rendezvous.num_workers, 2);
  EXPECT_EQ(settings.rendezvous.topology_timeout, absl::Seconds(1800));
  EXPECT_EQ(settings.rendezvous.node_timeout, absl::Seconds(300));
  EXPECT_EQ(settings.node_id, "");
}

TEST(LaunchTest, SettingsOutOfRangeAreRefused) {
  const struct {
    const char *name, *value, *message;
  } cases[] = {
      {"MS_ROLE", "MS_BOSS", "MS_ROLE is \"MS_BOSS\"; wants MS_SCHED or MS_WORKER [E-LAUNCH]"},
      {"MS_SCHED_PORT", "80", "MS_SCHED_PORT is \"80\"; wants a whole number from 1024 to 65535 [E-LAUNCH]"},
      {"MS_SCHED_PORT", "65536", "MS_SCHED_PORT is \"65536\""},
      {"MS_SCHED_PORT", "http", "MS_SCHED_PORT is \"http\""},
      {"MS_WORKER_NUM", "0", "MS_WORKER_NUM is \"0\"; wants a whole number from 1 to 4096 [E-LAUNCH]"},
      {"MS_WORKER_NUM", "-1", "MS_WORKER_NUM is \"-1\""},
      {"MS_TOPO_TIMEOUT", "0", "MS_TOPO_TIMEOUT is \"0\""},
      {"MS_NODE_TIMEOUT", "soon", "MS_NODE_TIMEOUT is \"soon\""},
  };
  for (const auto& c : cases) EXPECT_THAT(ReadWith(c.name, c.value), StatusIs(kLaunch, c.message));
}

}  // namespace
}  // namespace meshwright::manual
