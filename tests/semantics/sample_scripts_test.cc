// The scripts of the samples, as a user starts them, but for building first: each with all its flags and ranks, to the
// end of its training where that is short (S17.1, S17.4, S17.8).
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/semantics/job.h"

namespace meshwright {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct ScriptRun {
  int status = 0;
  std::string folder, output, errors;
};

// models/configs/samples/run_seed_X.sh with these flags, in a folder of its own, where Open MPI's files are, too: jobs
// of several sandboxes have the same process ids. What Open MPI itself does not free is not ours to report.
ScriptRun RunScript(const std::string& name, const std::string& flags) {
  const std::string root = std::filesystem::current_path().string();
  ScriptRun run;
  run.folder = NewFolder();
  const std::string command = absl::StrCat(
      "cd ", run.folder, " && export TMPDIR=", run.folder, " OMPI_MCA_btl_vader_backing_directory=", run.folder,
      " && ASAN_OPTIONS=detect_leaks=0 MESHWRIGHT_RUN=", root, "/tools/run ", root, "/models/configs/samples/run_",
      name, ".sh ", flags, " > out.txt 2> err.txt");
  run.status = std::system(command.c_str());
  run.output = ReadAll(absl::StrCat(run.folder, "/out.txt"));
  run.errors = ReadAll(absl::StrCat(run.folder, "/err.txt"));
  return run;
}

// The losses that it printed, in order.
std::vector<std::string> LossesOf(const ScriptRun& run) {
  std::vector<std::string> losses;
  for (const absl::string_view line : absl::StrSplit(run.output, '\n')) {
    const size_t at = line.find("loss is ");
    if (at != absl::string_view::npos) losses.emplace_back(line.substr(at + 8));
  }
  return losses;
}

// Two hundred steps, a line each: a longer way down than the text's, which begins at 2.3 too.
TEST(SampleScriptsTest, SampleATrainsToItsEnd) {
  const ScriptRun run = RunScript("seed_a", "");
  ASSERT_EQ(run.status, 0) << run.errors;
  const std::vector<std::string> losses = LossesOf(run);
  ASSERT_THAT(losses, SizeIs(200));
  EXPECT_NEAR(std::stod(losses.front()), 2.30, 0.05);
  EXPECT_LT(std::stod(losses.back()), 0.5 * std::stod(losses.front()));
  EXPECT_THAT(run.errors, HasSubstr("warning: after 200 steps the ranks' weights differ"));
}

// Five epochs of four steps, eight equal lines a step; the last five checkpoints of each rank and its dumps are there.
TEST(SampleScriptsTest, SampleBTrainsToItsEnd) {
  const ScriptRun run = RunScript("seed_b", "");
  ASSERT_EQ(run.status, 0) << run.errors;
  const std::vector<std::string> losses = LossesOf(run);
  ASSERT_THAT(losses, SizeIs(160));
  for (size_t step = 0; step < 20; ++step) {
    EXPECT_THAT(std::vector<std::string>(losses.begin() + 8 * step, losses.begin() + 8 * (step + 1)),
                Each(losses[8 * step]));
  }
  EXPECT_NEAR(std::stod(losses.front()), 0.385659, 0.001);
  EXPECT_LT(std::stod(losses.back()), std::stod(losses.front()));
  for (int rank = 0; rank < 8; ++rank) {
    int checkpoints = 0;
    for (const auto& entry : std::filesystem::directory_iterator(absl::StrCat(run.folder, "/device/", rank))) {
      checkpoints += absl::EndsWith(entry.path().string(), ".ckpt") ? 1 : 0;
    }
    EXPECT_EQ(checkpoints, 5) << rank;
    EXPECT_TRUE(std::filesystem::exists(absl::StrCat(run.folder, "/saved_graph/rank_", rank)));
  }
}

// Ten epochs would take minutes: its first 31 steps, a line of every rank at 0, 10, 20 and 30.
TEST(SampleScriptsTest, SampleDTrains) {
  const ScriptRun run = RunScript("seed_d", "--steps=31");
  ASSERT_EQ(run.status, 0) << run.errors;
  const std::vector<std::string> losses = LossesOf(run);
  ASSERT_THAT(losses, SizeIs(32));
  EXPECT_NEAR(std::stod(losses.front()), 2.30, 0.01);
  EXPECT_LT(std::stod(losses.back()), std::stod(losses.front()));
}

// As processes: what each rank prints lies where mpirun puts it, and is what the threads printed.
TEST(SampleScriptsTest, UnderMpirunToo) {
  if (!HasMpirun()) GTEST_SKIP() << "needs mpirun, which is not installed";
  for (const std::string name : {"seed_a", "seed_b", "seed_d"}) {
    SCOPED_TRACE(name);
    const ScriptRun processes = RunScript(name, "--mpirun --steps=3"), threads = RunScript(name, "--steps=3");
    ASSERT_EQ(processes.status, 0) << processes.errors;
    ASSERT_EQ(threads.status, 0) << threads.errors;
    EXPECT_THAT(LossesOf(processes), Each(testing::AnyOfArray(LossesOf(threads))));
    EXPECT_FALSE(LossesOf(processes).empty());
    for (int rank = 0; rank < 8; ++rank) {
      EXPECT_TRUE(std::filesystem::exists(absl::StrCat(processes.folder, "/log_output/1/rank.", rank, "/stdout")));
    }
  }
}

// A wrong flag ends the script with run's own status and message.
TEST(SampleScriptsTest, FailsAsRunDoes) {
  const ScriptRun run = RunScript("seed_b", "--no_such_flag");
  EXPECT_NE(run.status, 0);
  EXPECT_THAT(run.errors, HasSubstr("no_such_flag"));
}

}  // namespace
}  // namespace meshwright
