#include "tests/semantics/job.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "executor/host/testing.h"
#include "executor/steady_clock.h"
#include "tools/launcher.h"

namespace meshwright {
namespace {

// One machine: no remote shell, shared memory without ptrace; a short path for sockets, since the jobs of several
// sandboxes have the same process ids. What Open MPI itself does not free is not ours to report.
constexpr char kMpiSettings[] =
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm=isolated OMPI_MCA_pml=ob1 "
    "OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_rmaps_base_oversubscribe=1 "
    "ASAN_OPTIONS=detect_leaks=0";

std::string Quoted(const std::string& text) { return absl::StrCat("'", text, "'"); }

}  // namespace

bool HasMpirun() { return std::system("command -v mpirun > /dev/null 2>&1") == 0; }

std::string NewFolder() {
  char folder[] = "/tmp/jobXXXXXX";
  if (::mkdtemp(folder) != nullptr) return folder;
  std::perror("no folder can be made in /tmp");
  std::abort();
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void WriteAll(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::string ErrorLine(const std::string& output) {
  for (const absl::string_view line : absl::StrSplit(output, '\n')) {
    if (absl::StartsWith(line, "run: ")) return std::string(line);
  }
  return "";
}

JobOutput RunUnderMpirun(int64_t ranks, const std::vector<std::string>& command) {
  const std::string folder = NewFolder();
  std::string line =
      absl::StrCat(kMpiSettings, " TMPDIR=", folder, " HOME=", folder, " OMPI_MCA_btl_vader_backing_directory=", folder,
                   " timeout -k 5 ", absl::ToInt64Seconds(kHang), " mpirun -np ", ranks, " --output-filename ", folder,
                   "/log_output");
  for (const std::string& word : command) absl::StrAppend(&line, " ", Quoted(word));
  const absl::Time begin = SteadyNow();
  const int ended = std::system(absl::StrCat(line, " > ", folder, "/all 2>&1").c_str());
  JobOutput output;
  output.took = SteadyNow() - begin;
  if (ended != 0) {
    output.status = absl::AbortedError(
        absl::StrCat("mpirun ended with ", WIFEXITED(ended) ? WEXITSTATUS(ended) : -1, ": ", ReadAll(folder + "/all")));
  }
  // S2.6: log_output/1/rank.R/stdout, with R as wide as the largest.
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const std::string number = absl::StrCat(rank), widest = absl::StrCat(ranks - 1);
    const std::string at =
        absl::StrCat(folder, "/log_output/1/rank.", std::string(widest.size() - number.size(), '0'), number);
    output.ranks.push_back(absl::StrCat(ReadAll(at + "/stdout"), ReadAll(at + "/stderr")));
  }
  std::filesystem::remove_all(folder);
  return output;
}

JobOutput RunOverSockets(int64_t ranks, const std::vector<std::string>& command) {
  const std::string folder = NewFolder();
  LaunchedJob job;
  job.command = command;
  job.workers = job.local_workers = ranks;
  const ReservedPort port;
  job.port = port.number();
  job.log_dir = folder;
  job.timeout = job.to_end = kHang;
  const absl::Time begin = SteadyNow();
  JobOutput output;
  output.status = RunJob(job);
  output.took = SteadyNow() - begin;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    output.ranks.push_back(ReadAll(absl::StrCat(folder, "/worker_", rank, ".log")));
  }
  output.scheduler = ReadAll(folder + "/scheduler.log");
  std::filesystem::remove_all(folder);
  return output;
}

}  // namespace meshwright
