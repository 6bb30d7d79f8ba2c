#include "tools/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "executor/host/rendezvous.h"
#include "executor/steady_clock.h"
#include "ir/error_kind.h"
#include "ir/files.h"
#include "ir/status.h"

namespace meshwright {
namespace {

constexpr int kNotStarted = 127;  // as shells have it
constexpr absl::Duration kToStop = absl::Seconds(5), kBetweenLooks = absl::Milliseconds(20);

volatile std::sig_atomic_t g_signal = 0;
void NoteSignal(int signal) { g_signal = signal; }

// SIGINT and SIGTERM are noted while this lives.
class NotedSignals {
 public:
  NotedSignals() {
    g_signal = 0;
    struct sigaction note = {};
    note.sa_handler = NoteSignal;
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &note, &before_[i]);
  }
  ~NotedSignals() {
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  NotedSignals(const NotedSignals&) = delete;
  NotedSignals& operator=(const NotedSignals&) = delete;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM};
  struct sigaction before_[2];
};

struct Process {
  std::string name;  // "worker_3"
  std::string log;
  pid_t pid = -1;
  bool ended = false;
  int status = 0;  // as waitpid says it

  bool ended_badly() const { return ended && status != 0; }
  std::string HowItEnded() const {
    if (WIFSIGNALED(status)) return absl::StrCat("was stopped by signal ", WTERMSIG(status));
    return absl::StrCat("ended with ", WEXITSTATUS(status));
  }
};

// The program beside this one, or the name itself, for PATH.
std::string Resolve(const std::string& program) {
  if (program.find('/') != std::string::npos) return program;
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path));
  if (size <= 0) return program;
  std::string beside(path, static_cast<size_t>(size));
  beside = absl::StrCat(beside.substr(0, beside.rfind('/') + 1), program);
  return ::access(beside.c_str(), X_OK) == 0 ? beside : program;
}

class Job {
 public:
  explicit Job(const LaunchedJob& job) : job_(job) {}
  ~Job() { Stop(absl::ZeroDuration()); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  absl::Status Run() {
    MESHWRIGHT_RETURN_IF_ERROR(CreateFolders(job_.log_dir));
    if (HasScheduler()) MESHWRIGHT_RETURN_IF_ERROR(Start("scheduler", {{"MS_ROLE", "MS_SCHED"}}));
    processes_.reserve(static_cast<size_t>(job_.local_workers) + 1);  // first_bad_ points at one
    for (int64_t i = 0; i < job_.local_workers; ++i) {
      const int64_t rank = std::max<int64_t>(0, job_.node) * job_.local_workers + i;
      Variables variables = {{"MS_ROLE", "MS_WORKER"},
                             {"LOCAL_RANK", absl::StrCat(i)},
                             {"LOCAL_WORLD_SIZE", absl::StrCat(job_.local_workers)}};
      if (job_.node >= 0 || job_.local_workers == job_.workers)
        variables.emplace_back("MS_NODE_ID", absl::StrCat(rank));
      MESHWRIGHT_RETURN_IF_ERROR(Start(absl::StrCat("worker_", rank), variables));
    }
    return Watch();
  }

 private:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  bool HasScheduler() const {
    return job_.node == 0 ||
           (job_.node < 0 && Scheduler::Listen({.scheduler = {job_.address, 0}}).ok());  // an address of this machine
  }

  absl::Status Start(const std::string& name, Variables variables) {
    variables.emplace_back("MS_SCHED_HOST", job_.address);
    variables.emplace_back("MS_SCHED_PORT", absl::StrCat(job_.port));
    variables.emplace_back("MS_WORKER_NUM", absl::StrCat(job_.workers));
    variables.emplace_back("MS_TOPO_TIMEOUT", absl::StrCat(absl::ToInt64Seconds(job_.timeout)));
    Process process{.name = name, .log = absl::StrCat(job_.log_dir, "/", name, ".log")};
    const int log = ::open(process.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (log < 0) return FileError(absl::StrCat(process.log, ": cannot be written: ", std::strerror(errno)));
    std::vector<std::string> command = job_.command;
    command[0] = Resolve(command[0]);
    std::vector<char*> argv;
    for (std::string& argument : command) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const pid_t parent = ::getpid();
    process.pid = ::fork();
    if (process.pid == 0) Become(argv, variables, log, parent);
    ::close(log);
    if (process.pid < 0) return LaunchError(name, " cannot be started: ", std::strerror(errno));
    ::setpgid(process.pid, process.pid);
    processes_.push_back(std::move(process));
    return absl::OkStatus();
  }

  // In the new process.
  [[noreturn]] static void Become(const std::vector<char*>& argv, const Variables& variables, int log, pid_t parent) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kNotStarted);  // it was killed before the line above
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    const std::string why = absl::StrCat(argv[0], " cannot be started: ", std::strerror(errno), "\n");
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, why.data(), why.size());
    ::_exit(kNotStarted);
  }

  // Notes who has ended; the first that ended badly.
  const Process* Look() {
    for (Process& process : processes_) {
      if (process.ended) continue;
      siginfo_t ended = {};
      ::waitid(P_PID, static_cast<id_t>(process.pid), &ended, WEXITED | WNOHANG | WNOWAIT);
      if (ended.si_pid != process.pid) continue;
      ::kill(-process.pid, SIGKILL);  // what it left behind; its number is not another's until it has been waited for
      process.ended = ::waitpid(process.pid, &process.status, 0) == process.pid;
      if (process.ended_badly() && first_bad_ == nullptr) first_bad_ = &process;
    }
    return first_bad_;
  }
  bool AllEnded() const {
    return std::all_of(processes_.begin(), processes_.end(), [](const Process& process) { return process.ended; });
  }
  void WaitUntil(absl::Time deadline) {
    for (Look(); !AllEnded() && SteadyNow() < deadline; Look()) absl::SleepFor(kBetweenLooks);
  }

  void Stop(absl::Duration to_end) {
    WaitUntil(SteadyNow() + to_end);
    first_bad_ = ToBlame();
    for (const int signal : {SIGTERM, SIGKILL}) {
      for (const Process& process : processes_) {
        if (!process.ended) ::kill(-process.pid, signal);
      }
      WaitUntil(SteadyNow() + kToStop);
    }
  }

  // Of those that ended by themselves, several between two looks: others stop where one is killed, and the scheduler
  // where a worker is.
  const Process* ToBlame() const {
    const Process* worst = first_bad_;
    const auto is_worker = [](const Process& process) { return process.name != "scheduler"; };
    for (const Process& process : processes_) {
      if (!process.ended_badly()) continue;
      const bool killed = WIFSIGNALED(process.status), worst_killed = worst != nullptr && WIFSIGNALED(worst->status);
      const bool worse = worst == nullptr || (killed && !worst_killed) ||
                         (killed == worst_killed && is_worker(process) && !is_worker(*worst));
      if (worse) worst = &process;
    }
    return worst;
  }

  absl::Status Watch() {
    while (!AllEnded() && Look() == nullptr && g_signal == 0) absl::SleepFor(kBetweenLooks);
    if (first_bad_ == nullptr && g_signal == 0) return absl::OkStatus();
    Stop(g_signal == 0 ? job_.to_end : absl::ZeroDuration());
    if (g_signal != 0) return absl::AbortedError(absl::StrCat("stopped by signal ", g_signal));
    return absl::AbortedError(absl::StrCat(first_bad_->name, " ", first_bad_->HowItEnded(), ", see ", first_bad_->log,
                                           "; the others were stopped"));
  }

  const LaunchedJob& job_;
  std::vector<Process> processes_;  // the scheduler first
  const Process* first_bad_ = nullptr;
};

}  // namespace

absl::Status CheckJob(const LaunchedJob& job) {
  if (job.command.empty()) return ValueError("no program to launch");
  if (job.local_workers > job.workers) {
    return ValueError("--local_worker_num: ", job.local_workers, " of a job of ", job.workers, " workers");
  }
  if (job.node >= 0 && (job.node + 1) * job.local_workers > job.workers) {
    return ValueError("--node_rank: machine ", job.node, " would have the ranks ", job.node * job.local_workers, " to ",
                      (job.node + 1) * job.local_workers - 1, " of a job of ", job.workers, " workers");
  }
  return absl::OkStatus();
}

absl::Status CheckProgram(const LaunchedJob& job) {
  const std::string program = Resolve(job.command[0]);
  if (program.find('/') != std::string::npos) {
    if (::access(program.c_str(), X_OK) == 0) return absl::OkStatus();
    return LaunchError(program, ": cannot be started: ", std::strerror(errno));
  }
  const char* const path = std::getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "/bin:/usr/bin" : path, ':')) {  // as execvp
    if (::access(absl::StrCat(folder, folder.empty() ? "" : "/", program).c_str(), X_OK) == 0) return absl::OkStatus();
  }
  return LaunchError("found no program ", program, " beside this one or on PATH");
}

absl::Status RunJob(const LaunchedJob& job) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckJob(job));
  const NotedSignals signals;
  return Job(job).Run();
}

}  // namespace meshwright
