#include "tools/profile/profile_trace.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tools/profile/profile_testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<ProfileTrace> Read(absl::string_view bytes, const ProfileLimits& limits = {}) {
  return ReadProfileTrace(bytes, "trace.json", limits);
}

std::string Kernel(absl::string_view begin, absl::string_view duration, absl::string_view args = "") {
  return ProfileEvent("kernel", "gemm", begin, duration, 7, args);
}

std::string Step(int number, int begin, int duration, absl::string_view category = "gpu_user_annotation") {
  return ProfileEvent(category, absl::StrCat("ProfilerStep#", number), absl::StrCat(begin), absl::StrCat(duration));
}

// A kernel, and a copy that begins before it.
std::string Small() {
  return ProfileText(
      {R"({"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}})",
       ProfileEvent("cpu_op", "aten::mm", "9", "5"), ProfileEvent("cuda_runtime", "cudaLaunchKernel", "9", "5"),
       ProfileEvent("kernel", "nvjet_tst_128x256", "1695243456123460.5", "100.25"),
       ProfileEvent("gpu_memcpy", "Memcpy DtoD (Device -> Device)", "1695243456123456.789", "2", 9),
       ProfileEvent("kernel", "ncclDevKernel_AllGather_RING_LL", "1695243456123600", "7", 20,
                    R"(, "Collective name": "_allgather_base", "In msg nelems": 512, "Out msg nelems": 4096,
                        "Group size": 8, "dtype": "BFloat16", "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]")"),
       ProfileEvent("gpu_memset", "Memset (Device)", "1695243456123599", "1"),
       R"({"ph": "f", "id": 3, "pid": 0, "tid": 7, "ts": 11, "cat": "ac2g", "name": "ac2g", "bp": "e"})",
       R"({"name": "Record Window End", "ph": "i", "s": "g", "ts": 12})", R"([1, {"ph": "X"}])", "3"});
}

TEST(ProfileTraceTest, WhatTheDeviceDidAndOfWhichRank) {
  ASSERT_OK_AND_ASSIGN(const ProfileTrace trace, Read(Small()));
  EXPECT_EQ(trace.device, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(trace.rank, 1);
  EXPECT_EQ(trace.world_size, 8);
  ASSERT_EQ(trace.events.size(), 4u);
  // Microseconds since 1970, to the nanosecond.
  EXPECT_EQ(trace.events[0].begin, Nanos(1695243456123456789));
  EXPECT_EQ(trace.events[0].end, Nanos(1695243456123458789));
  EXPECT_EQ(trace.events[0].kind, DeviceEventKind::kCopy);
  EXPECT_EQ(trace.events[0].stream, 9);
  EXPECT_EQ(trace.events[1].begin, Nanos(1695243456123460500));
  EXPECT_EQ(trace.events[1].end, Nanos(1695243456123560750));
  EXPECT_EQ(trace.names[static_cast<size_t>(trace.events[1].name)], "nvjet_tst_128x256");
  EXPECT_EQ(trace.events[1].collective, -1);
  EXPECT_EQ(trace.events[2].kind, DeviceEventKind::kFill);
  EXPECT_EQ(trace.events[3].collective, 0);
  EXPECT_THAT(trace.collectives, ElementsAre(CollectiveArgs{"_allgather_base", "BFloat16", 512, 4096, 8}));
  EXPECT_THAT(trace.steps, ElementsAre());
}

TEST(ProfileTraceTest, PackedFilesAreTheSame) {
  const std::string text = Small(), packed = PackedAsGzip(text);
  ASSERT_OK_AND_ASSIGN(const ProfileTrace trace, Read(packed));
  EXPECT_EQ(trace.events.size(), 4u);
  // gzip's format allows one behind the other, and what is no archive behind them.
  const size_t half = text.size() / 2;
  const std::string two = PackedAsGzip(text.substr(0, half)) + PackedAsGzip(text.substr(half)) + "rest";
  ASSERT_OK_AND_ASSIGN(const ProfileTrace joined, Read(two));
  EXPECT_EQ(joined.events.size(), 4u);

  EXPECT_THAT(Read(packed.substr(0, packed.size() / 2)),
              StatusIs(kInvalid, "trace.json: found the end of the file within packed text, wanted the whole file"));
  std::string damaged = packed;
  damaged[damaged.size() / 2] ^= 0x55;
  EXPECT_THAT(Read(damaged), StatusIs(kInvalid, "trace.json: found "));
  // A megabyte of blanks is a kilobyte when it is packed.
  EXPECT_THAT(Read(PackedAsGzip(std::string(1 << 20, ' ')), {.text = 1 << 18}),
              StatusIs(kInvalid, "trace.json: found more than 262144 bytes of text, wanted a shorter one"));
}

TEST(ProfileTraceTest, WhatIsNoTraceIsAnErrorOfTheFile) {
  const std::string text = Small();
  EXPECT_THAT(Read(text.substr(0, text.size() - 60)),
              StatusIs(kInvalid, "trace.json: found the end of the text within it, wanted the whole of a trace of "));
  EXPECT_THAT(Read(text.substr(0, text.find("nvjet") + 2)), StatusIs(kInvalid, "found the end of the text within it"));
  EXPECT_THAT(Read(""), StatusIs(kInvalid, "found the end of the text"));
  EXPECT_THAT(Read("{\"traceEvents\": [}"), StatusIs(kInvalid, "trace.json: found no JSON at byte 18, wanted a trace"));
  EXPECT_THAT(Read("{\"traceEvents\": [1e400]}"), StatusIs(kInvalid, "found a number out of range at byte "));
  EXPECT_THAT(Read("[{\"ph\": \"X\"}]"), StatusIs(kInvalid, "found no list \"traceEvents\", wanted a trace"));
  EXPECT_THAT(Read("7"), StatusIs(kInvalid, "found no list \"traceEvents\""));
  const std::string deep = std::string(100'000, '[');
  EXPECT_THAT(Read(absl::StrCat("{\"traceEvents\": [{\"args\": ", deep)),
              StatusIs(kInvalid, "trace.json: found values nested more than 64 deep"));
  EXPECT_THAT(Read(ProfileText({ProfileEvent("cpu_op", "aten::mm", "1", "2")})),
              StatusIs(kInvalid,
                       "trace.json: found no event of a device, wanted kernels as torch.profiler records "
                       "them; profile with ProfilerActivity.CUDA"));
  EXPECT_THAT(Read("{\"otherData\": {\"source\": \"simulated\"}, \"traceEvents\": []}"),
              StatusIs(kInvalid, "compare takes two timelines of simulate and run"));
}

TEST(ProfileTraceTest, NumbersOutOfRange) {
  const auto read = [](const std::string& kernel) { return Read(ProfileText({Kernel("1", "2"), kernel})); };
  EXPECT_THAT(read(Kernel("1e300", "2")),
              StatusIs(kInvalid, "trace.json: traceEvents[1]: found ts 1e+300, wanted microseconds, -4e+15 to 4e+15"));
  EXPECT_THAT(read(Kernel("18446744073709551615", "2")), StatusIs(kInvalid, "traceEvents[1]: found ts 1.84467e+19"));
  EXPECT_THAT(read(Kernel("1", "-2")), StatusIs(kInvalid, "traceEvents[1]: found dur -2, wanted microseconds, 0 to "));
  EXPECT_THAT(read(Kernel("1", "1e10")), StatusIs(kInvalid, "traceEvents[1]: found dur 1e+10"));
  // What is not looked at may be anything; so may what collectives say of themselves.
  EXPECT_OK(read(ProfileEvent("cpu_op", "aten::mm", "1e300", "-1")));
  ASSERT_OK_AND_ASSIGN(
      const ProfileTrace trace,
      read(Kernel("-1.5", "2.5e0",
                  R"(, "stream": -3, "Collective name": "x", "In msg nelems": 1e30, "Group size": -8, "dtype": 3)")));
  EXPECT_EQ(trace.events[0].begin, Nanos(-1500));
  EXPECT_EQ(trace.events[0].end, Nanos(1000));
  EXPECT_THAT(trace.collectives, ElementsAre(CollectiveArgs{"x", "", -1, -1, -1}));

  const auto ranks = [](absl::string_view rank, absl::string_view size) {
    return Read(absl::StrReplaceAll(Small(), {{"\"rank\": 1,", absl::StrCat("\"rank\": ", rank, ",")},
                                              {"\"world_size\": 8", absl::StrCat("\"world_size\": ", size)}}));
  };
  EXPECT_THAT(ranks("-1", "8"), StatusIs(kInvalid, "trace.json: distributedInfo: rank: found -1, wanted a number of "));
  EXPECT_THAT(ranks("1.5", "8"), StatusIs(kInvalid, "distributedInfo: rank: found 1.5"));
  EXPECT_THAT(ranks("1", "0"), StatusIs(kInvalid, "distributedInfo: world_size: found 0"));
}

TEST(ProfileTraceTest, EventsThatDoNotCountAreCounted) {
  const std::string other = absl::StrReplaceAll(Kernel("5", "2"), {{"\"device\": 0", "\"device\": 1"}});
  ASSERT_OK_AND_ASSIGN(const ProfileTrace trace,
                       Read(ProfileText({Kernel("1", "2"), Kernel("3", ""), other, Kernel("6", "2")})));
  EXPECT_EQ(trace.events.size(), 2u);
  EXPECT_EQ(trace.without_time, 1);
  EXPECT_EQ(trace.other_devices, 1);
}

TEST(ProfileTraceTest, LimitsOfWhatIsKept) {
  const std::string text = ProfileText({Kernel("1", "2"), Kernel("3", "2"), Kernel("5", "2")});
  EXPECT_OK(Read(text, {.events = 3}));
  EXPECT_THAT(Read(text, {.events = 2}), StatusIs(kInvalid, "trace.json: found more than 2 events of the device or "));
  EXPECT_THAT(Read(text, {.names = 3}), StatusIs(kInvalid, " or 3 bytes of their names, wanted fewer"));
  // A name is cut, but not within a character.
  const std::string name = std::string(1023, 'x') + "\xc3\xa9";
  ASSERT_OK_AND_ASSIGN(const ProfileTrace cut, Read(ProfileText({ProfileEvent("kernel", name, "1", "2")})));
  EXPECT_THAT(cut.names, ElementsAre(std::string(1023, 'x')));
}

ProfileWindow WindowOfSteps(std::vector<std::string> events) {
  events.push_back(Kernel("100", "1000"));
  const absl::StatusOr<ProfileTrace> trace = Read(ProfileText(events));
  EXPECT_OK(trace);
  return WindowOf(trace.value_or(ProfileTrace()));
}

TEST(ProfileWindowTest, StepsInTheMiddle) {
  const auto expect = [](const ProfileWindow& window, int begin, int end, int64_t first, int64_t last) {
    EXPECT_EQ(window.begin, Micros(begin));
    EXPECT_EQ(window.end, Micros(end));
    EXPECT_EQ(window.first, first);
    EXPECT_EQ(window.last, last);
  };
  expect(WindowOfSteps({}), 100, 1100, -1, -1);
  expect(WindowOfSteps({Step(4, 200, 90)}), 200, 290, 4, 4);
  // The second of two ends with its last kernel.
  expect(WindowOfSteps({Step(4, 200, 90), Step(5, 300, 80)}), 300, 380, 5, 5);
  // Without the first and the last; step 4 lasts until 5 begins.
  const ProfileWindow window =
      WindowOfSteps({Step(6, 500, 80), Step(3, 200, 90), Step(4, 300, 80), Step(5, 400, 85), Step(5, 390, 20)});
  expect(window, 300, 500, 4, 5);
  EXPECT_EQ(window.steps, 2);
  EXPECT_EQ(window.recorded, 4);
  // Of two cycles of a schedule the longer one.
  expect(WindowOfSteps({Step(1, 100, 50), Step(2, 200, 50), Step(7, 300, 50), Step(8, 400, 50), Step(9, 500, 50)}), 400,
         500, 8, 8);
  // Marks of the CPU count where the device has none.
  expect(WindowOfSteps({Step(4, 200, 100, "user_annotation"), Step(5, 300, 80, "user_annotation")}), 300, 380, 5, 5);
  expect(WindowOfSteps({Step(4, 200, 100, "user_annotation"), Step(4, 250, 100)}), 250, 350, 4, 4);
  // What is no number is no step.
  expect(WindowOfSteps({ProfileEvent("gpu_user_annotation", "ProfilerStep#x", "1", "2")}), 100, 1100, -1, -1);
}

TEST(IsProfileTraceTest, ByItsBeginning) {
  EXPECT_TRUE(IsProfileTrace(Small()));
  EXPECT_TRUE(IsProfileTrace(PackedAsGzip(Small())));
  EXPECT_TRUE(IsProfileTrace(" {\"traceEvents\": []}"));
  EXPECT_TRUE(IsProfileTrace(Small().substr(0, 200)));
  EXPECT_FALSE(IsProfileTrace(""));
  EXPECT_FALSE(IsProfileTrace("\x1f\x8b"));
  EXPECT_FALSE(IsProfileTrace("{\"log\": \"elapsed time per iteration (ms): 5.0\"}\n"));
  EXPECT_FALSE(IsProfileTrace(PackedAsGzip("iteration 1\n")));
  EXPECT_FALSE(IsProfileTrace(R"({"displayTimeUnit":"ns","otherData":{"makespan_ns":1},"traceEvents":[]})"));
}

}  // namespace
}  // namespace meshwright
