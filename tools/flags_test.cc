#include "tools/flags.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tools/exit_code.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

const std::vector<FlagSpec>& Specs() {
  static const auto* const specs = new std::vector<FlagSpec>{
      {"steps", "N", "how many"},
      {"all_ranks", "", "one line for each rank that has a loss, in the order of the ranks, once the run is over"},
      {"mode", "MODE", "one of two"},
  };
  return *specs;
}

absl::StatusOr<Flags> Parse(const std::vector<std::string>& args) { return Flags::Parse(Specs(), args); }

TEST(FlagsTest, ValuesComeBehindAnEqualsSignOrNext) {
  for (const auto& args : {std::vector<std::string>{"a", "--steps=3", "b"}, {"a", "--steps", "3", "b"}}) {
    ASSERT_OK_AND_ASSIGN(const Flags flags, Parse(args));
    EXPECT_THAT(flags.arguments(), ElementsAre("a", "b"));
    ASSERT_OK_AND_ASSIGN(const int64_t steps, flags.IntOr("steps", 1, 1, 10));
    EXPECT_EQ(steps, 3);
  }
}

TEST(FlagsTest, TheLastOneHolds) {
  ASSERT_OK_AND_ASSIGN(const Flags flags, Parse({"--steps=3", "--steps=4"}));
  EXPECT_EQ(flags.Text("steps"), "4");
}

TEST(FlagsTest, SwitchesAreTrueOrFalse) {
  ASSERT_OK_AND_ASSIGN(const Flags none, Parse({}));
  EXPECT_EQ(none.Bool("all_ranks"), std::nullopt);
  for (const char* on : {"--all_ranks", "--all-ranks", "--all_ranks=true"}) {
    ASSERT_OK_AND_ASSIGN(const Flags flags, Parse({on}));
    EXPECT_TRUE(flags.True("all_ranks")) << on;
  }
  for (const char* off : {"--noall_ranks", "--all_ranks=false"}) {
    ASSERT_OK_AND_ASSIGN(const Flags flags, Parse({off}));
    EXPECT_EQ(flags.Bool("all_ranks"), false) << off;
  }
  EXPECT_THAT(Parse({"--all_ranks=1"}), StatusIs(kInvalid, "--all_ranks: found \"1\", wanted true or false"));
  EXPECT_THAT(Parse({"--nosteps"}), StatusIs(kInvalid, "--nosteps: there is no such flag"));
}

TEST(FlagsTest, BehindTwoDashesEverythingIsAnArgument) {
  ASSERT_OK_AND_ASSIGN(const Flags flags, Parse({"-", "--", "--steps=3", "--"}));
  EXPECT_THAT(flags.arguments(), ElementsAre("-", "--steps=3", "--"));
  EXPECT_FALSE(flags.Has("steps"));
}

TEST(FlagsTest, AnUnknownFlagIsAUsageErrorWithAGuess) {
  const absl::StatusOr<Flags> flags = Parse({"--stpes=3"});
  EXPECT_THAT(flags, StatusIs(kInvalid, "--stpes: there is no such flag; did you mean --steps?"));
  EXPECT_EQ(ExitCodeOf(flags.status()), ExitCode::kUsage);
  const std::vector<FlagSpec> specs = {{"tensor_parallel", "N", "", "tp tp_size"}, {"top", "N", ""}};
  for (const char* const other : {"--tp=8", "--tp-size=8"}) {  // "tp" is one letter from "top"
    EXPECT_THAT(Flags::Parse(specs, std::vector<std::string>{other}),
                StatusIs(kInvalid, "there is no such flag; did you mean --tensor_parallel?"));
  }
  EXPECT_THAT(Parse({"--entirely_different"}), StatusIs(kInvalid, "--help lists them"));
  EXPECT_THAT(Parse({"-x"}), StatusIs(kInvalid, "-x: flags begin with two dashes"));
}

TEST(FlagsTest, AMissingOrWrongValueNamesTheFlag) {
  EXPECT_THAT(Parse({"--steps"}), StatusIs(kInvalid, "--steps: found no value, wanted --steps=N"));
  EXPECT_THAT(Parse({"--steps", "--all_ranks"}), StatusIs(kInvalid, "--steps: found no value"));
  EXPECT_THAT(Parse({"--steps="}), StatusIs(kInvalid, "--steps: found no value, wanted --steps=N"));
  const std::vector<FlagSpec> out = {{"out", "FILE", "", {}, {}, true}};
  ASSERT_OK_AND_ASSIGN(const Flags nowhere, Flags::Parse(out, std::vector<std::string>{"--out="}));
  EXPECT_TRUE(nowhere.Has("out"));
  EXPECT_THAT(Flags::Parse(out, std::vector<std::string>{"--out"}), StatusIs(kInvalid, "--out: found no value"));
  ASSERT_OK_AND_ASSIGN(const Flags flags, Parse({"--steps=many", "--mode=bset"}));
  const absl::StatusOr<int64_t> steps = flags.IntOr("steps", 1, 1, 10);
  EXPECT_THAT(steps, StatusIs(kInvalid, "--steps: found \"many\", wanted an integer from 1 to 10"));
  EXPECT_EQ(ExitCodeOf(steps.status()), ExitCode::kUsage);
  EXPECT_THAT(flags.Choice("mode", {"best", "worst"}),
              StatusIs(kInvalid, "--mode: found \"bset\", wanted one of best, worst; did you mean \"best\"?"));
}

TEST(HelpTest, StaysInEightyColumns) {
  const std::string help = HelpFor(Specs());
  EXPECT_EQ(help.substr(0, help.find('\n')), "  --steps=N                   how many");
  for (const absl::string_view line : absl::StrSplit(help, '\n')) EXPECT_LE(line.size(), 80u) << line;
}

TEST(HelpTest, SectionsHaveAHeading) {
  EXPECT_EQ(HelpFor({{"steps", "N", "how many"},
                     {"gpus", "N", "of all", "", "The cluster"},
                     {"cpu", "X", "", "", "The cluster"}}),
            "  --steps=N                   how many\n\nThe cluster:\n  --gpus=N                    of all\n"
            "  --cpu=X                     \n");
}

TEST(ExitCodeTest, TheMarkWinsOverTheCode) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), ExitCode::kDone);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("x")), ExitCode::kBadInput);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("x")), ExitCode::kBadInput);
  EXPECT_EQ(ExitCodeOf(absl::ResourceExhaustedError("x")), ExitCode::kNothingFits);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("x")), ExitCode::kBug);
  EXPECT_EQ(ExitCodeOf(WithExit(ExitCode::kIo, absl::NotFoundError("x"))), ExitCode::kIo);
  EXPECT_EQ(ExitCodeOf(WithExit(ExitCode::kRunFailed, absl::InvalidArgumentError("x"))), ExitCode::kRunFailed);
}

}  // namespace
}  // namespace meshwright
