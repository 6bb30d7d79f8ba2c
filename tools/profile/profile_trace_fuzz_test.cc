// Traces of torch.profiler that have been damaged, packed and not: reading them ends with a trace or with an error that
// names the file and is short.
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/damage.h"
#include "ir/testing.h"
#include "tools/profile/profile_testing.h"
#include "tools/profile/profile_trace.h"

namespace meshwright {
namespace {

constexpr absl::string_view kTokens[] = {"-1",       "9223372036854775808",
                                         "[",        "]",
                                         "{",        "}",
                                         ",",        ":",
                                         "\"",       "null",
                                         "1e9",      "1e18",
                                         "0.5",      "1e400",
                                         "\\",       "\"ts\": ",
                                         "\x1f\x8b", "\"args\": {"};

std::string Whole() {
  return ProfileText({ProfileEvent("kernel", "nvjet_tst_128x256", "10.25", "100.5"),
                      ProfileEvent("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "60", "90", 20,
                                   R"(, "Collective name": "allreduce", "In msg nelems": 4096, "Group size": 8,
                                       "dtype": "BFloat16")"),
                      ProfileEvent("gpu_memset", "Memset (Device)", "151", "1"),
                      ProfileEvent("gpu_user_annotation", "ProfilerStep#1", "10", "80"),
                      ProfileEvent("gpu_user_annotation", "ProfilerStep#2", "100", "60"),
                      ProfileEvent("gpu_user_annotation", "ProfilerStep#3", "170", "60")});
}

int CountRead(const std::string& original, uint32_t seeds) {
  int read = 0;
  for (uint32_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const std::string damaged = Damaged(original, kTokens, 4, random);
    IsProfileTrace(damaged);
    const absl::StatusOr<ProfileTrace> trace = ReadProfileTrace(damaged, "trace.json");
    if (!trace.ok()) {
      EXPECT_THAT(trace, StatusIs(absl::StatusCode::kInvalidArgument, "trace.json: "));
      EXPECT_LT(trace.status().message().size(), 512u);
      continue;
    }
    ++read;
    EXPECT_FALSE(trace->events.empty());
    for (const DeviceEvent& event : trace->events) {
      EXPECT_LE(event.begin, event.end);
      EXPECT_LT(static_cast<size_t>(event.name), trace->names.size());
      EXPECT_TRUE(event.collective < 0 || static_cast<size_t>(event.collective) < trace->collectives.size());
    }
    EXPECT_GE(WindowOf(*trace).steps, 1);
  }
  return read;
}

TEST(ProfileTraceFuzzTest, DamagedTextsEndWell) {
  const int read = CountRead(Whole(), 10'000);
  EXPECT_GT(read, 1000);
  EXPECT_LT(read, 9000);
}

TEST(ProfileTraceFuzzTest, DamagedArchivesEndWell) {
  std::string text = Whole();
  for (int i = 0; i < 200; ++i) absl::StrAppend(&text, " ");
  EXPECT_LT(CountRead(PackedAsGzip(text), 5'000), 5'000);
}

}  // namespace
}  // namespace meshwright
