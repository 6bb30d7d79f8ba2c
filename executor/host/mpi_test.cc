// Runs mpi_check under mpirun and compares what it prints with the same program on threads. Skipped where there is no
// mpirun.
#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"
#include "executor/host/run_on_threads.h"
#include "executor/testing.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

// What a command printed, and how it ended.
struct Ended {
  int status = -1;
  std::string output;
};
Ended Shell(const std::string& command) {
  Ended ended;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return ended;
  char text[4096];
  while (const size_t n = std::fread(text, 1, sizeof(text), pipe)) ended.output.append(text, n);
  ended.status = pclose(pipe);
  return ended;
}

class MpiTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Shell("command -v mpirun").output.empty()) GTEST_SKIP() << "needs mpirun, which is not installed";
  }

  // Runs the program on `ranks` processes, which may be more than there are cores.
  static Ended UnderMpirun(int ranks, const std::string& text, int steps, int deadline_seconds = 60) {
    const std::string file = absl::StrCat(::testing::TempDir(), "/program");
    std::ofstream(file) << text;
    // A job of one machine: no remote shell, shared memory without ptrace; a folder of its own with a short path for
    // its sockets, since process ids of two sandboxes may be equal. What Open MPI itself does not free is not ours to
    // report.
    return Shell(absl::StrCat(
        "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm=isolated OMPI_MCA_pml=ob1 "
        "OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_rmaps_base_oversubscribe=1 "
        "ASAN_OPTIONS=detect_leaks=0; folder=$(mktemp -d /tmp/mpiXXXXXX); "
        "export TMPDIR=$folder HOME=$folder OMPI_MCA_btl_vader_backing_directory=$folder; timeout 100 mpirun -np ",
        ranks, " executor/host/mpi_check ", file, " ", steps, " ", deadline_seconds,
        " 2>&1; code=$?; rm -rf $folder; exit $code"));
  }
};

std::string OnThreads(const std::string& text, int64_t steps) {
  const absl::StatusOr<RunResult> result =
      RunOnThreads(ProgramFromText(text), {.steps = steps, .keep_parameters = true}, SyntheticData(1));
  if (!result.ok()) return result.status().ToString();
  std::string printed;
  for (const double loss : result->losses) absl::StrAppendFormat(&printed, "loss %a\n", loss);
  for (const auto& [key, whole] : result->parameters) {
    absl::StrAppend(&printed, key.first, " ", key.second);
    for (const double value : whole.values) absl::StrAppendFormat(&printed, " %a", value);
    absl::StrAppend(&printed, "\n");
  }
  return absl::StrCat(printed, "spans ", result->trace.spans.size(), "\n");
}

// Shows the beginnings only: the texts are long.
void ExpectSame(const std::string& a, const std::string& b) {
  EXPECT_TRUE(a == b) << a.substr(0, 1000) << "\n--- and on threads\n" << b.substr(0, 1000);
}

TEST_F(MpiTest, DataParallelTrainingIsBitForBitThatOfThreads) {
  const std::string text = absl::Substitute(kOracleDataParallel, 0.125);
  const std::string want = OnThreads(text, 3);
  ASSERT_THAT(want, HasSubstr("loss 0x1.2ddb7"));  // 0.29478...
  ExpectSame(UnderMpirun(8, text, 3).output, want);
}

TEST_F(MpiTest, APipelineIsBitForBitThatOfThreads) {
  const std::string want = OnThreads(kOraclePipeline, 3);
  ASSERT_THAT(want, HasSubstr("loss 0x1.2ddb7"));  // 4 * 0.29478...
  ExpectSame(UnderMpirun(4, kOraclePipeline, 3).output, want);
}

TEST_F(MpiTest, OneRankStopsAllAndEveryRankSaysWhy) {
  const std::string output = UnderMpirun(8, kOneRankFails, 1).output;
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_THAT(output, HasSubstr(absl::StrCat("rank ", rank, ": INVALID_ARGUMENT: rank 7 (all), slot 0")));
  }
}

TEST_F(MpiTest, AJobOfAnotherSizeIsRefused) {
  EXPECT_THAT(UnderMpirun(2, kOraclePipeline, 1).output,
              HasSubstr("FAILED_PRECONDITION: the program has 4 ranks, the job has 2; start it with as many processes, "
                        "e.g. mpirun -np 4"));
}

}  // namespace
}  // namespace meshwright
