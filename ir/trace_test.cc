#include "ir/trace.h"

#include <map>
#include <random>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "nlohmann/json.hpp"

namespace meshwright {
namespace {

Program TwoStages() {
  auto program = ParseProgram(R"(program "two \"stages\"" mesh pp=2 x1=2 microbatches 2
class "stage 0"
  buffer x float32 (8, 8) {x1 | -} parameter
  buffer y float32 (8, 8) {x1 | -} temporary
  buffer p float32 (8, 8) {- | -} partial sum x1 gradient
  event made
  block forward forward
    compute Scale reads x writes y records made @"layers/scale"
    send to +1 activation reads y waits made
  block backward backward
    compute ReLU recompute reads x writes y
    comm all_reduce sum (x1) gradient reads p writes p
  slot forward mb 0 layer 0 x2 down
  slot forward mb 1 layer 1
  slot backward mb 1 layer 0
class "stage 1"
  buffer y float32 (8, 8) {x1 | -} temporary
  block forward forward
    receive from -1 activation writes y
  slot forward mb 0 layer 1
  slot forward mb 0 layer 0
  slot forward mb 1 layer 1
)");
  EXPECT_OK(program);
  return program.ok() ? *std::move(program) : Program();
}

Span At(int64_t rank, uint32_t slot, int32_t layer, int32_t instruction, Stream stream, int64_t begin, int64_t end) {
  return {rank, slot, layer, instruction, stream, Nanos(begin), Nanos(end)};
}

// Rank 0 sends to rank 2: layers 1 and 0 of slot 0, then slot 1.
Trace SmallTrace() {
  Trace trace;
  trace.source = "simulated";
  trace.makespan = Nanos(123456789);
  trace.spans = {
      At(0, 0, 1, 0, Stream::kCompute, 0, 1500),      At(0, 2, 0, 0, Stream::kCompute, 1500, 1500),
      At(0, 2, 0, 1, Stream::kComm, 2000, 123456789), At(0, 0, 1, 1, Stream::kSend, 1500, 2501),
      At(0, 0, 0, 1, Stream::kSend, 2501, 3000),      At(2, 0, 1, 0, Stream::kReceive, 1, 2501),
      At(2, 1, 0, 0, Stream::kReceive, 2501, 3000),   At(2, 1, 0, -1, Stream::kReceive, 3000, 4000),
  };
  trace.memory = {{0, Nanos(0), Bytes(1024)}, {2, Nanos(1001), Bytes(0)}};
  return trace;
}

// The first receive waits from before its send, so that their flow is two events; the second one begins with its send,
// so that it is fields of both, and stands behind it. What no flow arrives at comes first.
TEST(TraceTest, WritesOneEventPerLine) {
  EXPECT_EQ(
      ToChromeJson(SmallTrace(), TwoStages()),
      R"json({"displayTimeUnit":"ns","otherData":{"source":"simulated","program":"two \"stages\"","makespan_ns":123456789},"traceEvents":[
{"ph":"M","name":"process_name","pid":0,"args":{"name":"rank 0 (stage 0)"}},
{"ph":"M","name":"process_sort_index","pid":0,"args":{"sort_index":0}},
{"ph":"M","name":"thread_name","pid":0,"tid":0,"args":{"name":"compute"}},
{"ph":"M","name":"thread_name","pid":0,"tid":1,"args":{"name":"comm"}},
{"ph":"M","name":"thread_name","pid":0,"tid":2,"args":{"name":"send"}},
{"ph":"M","name":"process_name","pid":2,"args":{"name":"rank 2 (stage 1)"}},
{"ph":"M","name":"process_sort_index","pid":2,"args":{"sort_index":2}},
{"ph":"M","name":"thread_name","pid":2,"tid":3,"args":{"name":"receive"}},
{"ph":"X","name":"Scale","cat":"forward","pid":0,"tid":0,"ts":0.000,"dur":1.500,"args":{"slot":0,"microbatch":0,"layer":1,"instruction":0,"origin":"layers/scale"}},
{"ph":"X","name":"ReLU","cat":"recompute","pid":0,"tid":0,"ts":1.500,"dur":0.000,"args":{"slot":2,"microbatch":1,"layer":0,"instruction":0}},
{"ph":"X","name":"all_reduce","cat":"gradient","pid":0,"tid":1,"ts":2.000,"dur":123454.789,"args":{"slot":2,"microbatch":1,"layer":0,"instruction":1}},
{"ph":"X","name":"send","cat":"activation","pid":0,"tid":2,"ts":1.500,"dur":1.001,"args":{"slot":0,"microbatch":0,"layer":1,"instruction":1}},
{"ph":"X","name":"send","cat":"activation","pid":0,"tid":2,"ts":2.501,"dur":0.499,"bind_id":2,"flow_out":true,"args":{"slot":0,"microbatch":0,"layer":0,"instruction":1}},
{"ph":"X","name":"forward","pid":2,"tid":3,"ts":3.000,"dur":1.000,"args":{"slot":1,"microbatch":0}},
{"ph":"X","name":"receive","cat":"activation","pid":2,"tid":3,"ts":0.001,"dur":2.500,"args":{"slot":0,"microbatch":0,"layer":1,"instruction":0}},
{"ph":"X","name":"receive","cat":"activation","pid":2,"tid":3,"ts":2.501,"dur":0.499,"bind_id":2,"flow_in":true,"args":{"slot":1,"microbatch":0,"layer":0,"instruction":0}},
{"ph":"s","name":"transfer","cat":"transfer","id":1,"pid":0,"tid":2,"ts":1.500},
{"ph":"f","bp":"e","name":"transfer","cat":"transfer","id":1,"pid":2,"tid":3,"ts":1.500},
{"ph":"C","name":"memory","pid":0,"ts":0.000,"args":{"bytes":1024}},
{"ph":"C","name":"memory","pid":2,"ts":1.001,"args":{"bytes":0}}
]}
)json");
}

TEST(TraceTest, RoundTrips) {
  Trace trace = SmallTrace();
  trace.spans[2].estimate = Nanos(61234);
  ASSERT_OK_AND_ASSIGN(const Trace read, ParseChromeJson(ToChromeJson(trace, TwoStages())));
  EXPECT_EQ(read.source, trace.source);
  EXPECT_EQ(read.makespan, trace.makespan);
  EXPECT_EQ(read.spans, trace.spans);
  EXPECT_EQ(read.memory, trace.memory);
}

TEST(TraceTest, NanosecondsSurviveInDaysOfTime) {
  constexpr int64_t kDay = int64_t{24} * 3600 * 1'000'000'000;
  std::mt19937_64 random(1);
  Trace trace;
  trace.source = "measured";
  for (int i = 0; i < 1000; ++i) {
    const auto begin = static_cast<int64_t>(random() % (45 * kDay));
    trace.spans.push_back(At(i, 0, 0, -1, Stream::kComm, begin, begin + static_cast<int64_t>(random() % kDay)));
  }
  ASSERT_OK_AND_ASSIGN(const Trace read, ParseChromeJson(ToChromeJson(trace, Program())));
  EXPECT_EQ(read.spans, trace.spans);
}

// Clocks of measured traces may disagree: what would cross gets another thread, and comes back as it was.
TEST(TraceTest, SlicesOfOneThreadNeverOverlap) {
  Trace trace;
  trace.source = "measured";
  std::mt19937 random(2);
  int64_t begin = 0;
  for (int i = 0; i < 300; ++i) {
    begin += static_cast<int64_t>(random() % 100);
    trace.spans.push_back(At(0, 0, 0, 0, Stream::kComm, begin, begin + static_cast<int64_t>(random() % 200)));
  }
  const std::string json = ToChromeJson(trace, TwoStages());
  std::map<int64_t, double> busy_until;  // by thread
  const nlohmann::json root = nlohmann::json::parse(json);
  for (const nlohmann::json& event : root["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double ts = event["ts"], dur = event["dur"];
    double& until = busy_until[event["tid"]];
    EXPECT_GE(ts, until - 1e-9);
    until = ts + dur;
  }
  EXPECT_GT(busy_until.size(), 1u);
  ASSERT_OK_AND_ASSIGN(const Trace read, ParseChromeJson(json));
  EXPECT_EQ(read.spans, trace.spans);
}

TEST(TraceTest, SpansOfAnotherProgramAreUnknown) {
  Trace trace;
  trace.spans = {At(0, 99, 0, 0, Stream::kCompute, 0, 1), At(0, 0, 0, 99, Stream::kCompute, 1, 2),
                 At(99, 0, 0, 0, Stream::kCompute, 0, 1)};
  const std::string json = ToChromeJson(trace, TwoStages());
  EXPECT_EQ(absl::StrReplaceAll(json, {{"\"name\":\"unknown\"", ""}}).size() + 3 * 16, json.size());
  ASSERT_OK_AND_ASSIGN(const Trace read, ParseChromeJson(json));
  EXPECT_EQ(read.spans, trace.spans);
}

TEST(TraceTest, NamesAreEscaped) {
  Program program = TwoStages();
  program.name = "a\"b\\c\n\x01\xff\xc3\xa9";
  const std::string json = ToChromeJson(Trace(), program);
  EXPECT_THAT(json, testing::HasSubstr(R"("program":"a\"b\\c\u000a\u0001\ufffd)"
                                       "\xc3\xa9\""));
  EXPECT_OK(ParseChromeJson(json));
}

TEST(TraceTest, ErrorsNameTheEvent) {
  const std::string good = ToChromeJson(SmallTrace(), TwoStages());
  const std::pair<const char*, std::pair<const char*, const char*>> cases[] = {
      {"{\"displayTimeUnit\"", {"{{", "not JSON: "}},
      {"\"traceEvents\"", {"\"events\"", "found no list \"traceEvents\", wanted a trace as --trace writes it"}},
      {"\"otherData\"", {"\"more\"", "found no \"otherData\""}},
      {"\"source\":\"simulated\"", {"\"source\":1", "otherData: found no \"source\""}},
      {"\"makespan_ns\":123456789", {"\"makespan_ns\":1.5", "found \"makespan_ns\": 1.5, wanted an integer from 0 to"}},
      {"\"tid\":0,\"ts\":0.000", {"\"ts\":0.000", "traceEvents[8]: found no \"tid\", wanted an integer"}},
      {"\"dur\":1.500", {"\"dur\":-1.500", "traceEvents[8]: found a \"dur\" below 0, wanted a time"}},
      {"\"dur\":1.500", {"\"dur\":\"long\"", "traceEvents[8]: found no \"dur\", wanted a time in microseconds"}},
      {"\"dur\":1.500", {"\"dur\":1e300", "traceEvents[8]: found no \"dur\", wanted a time in microseconds"}},
      {"\"slot\":0", {"\"slot\":-1", "traceEvents[8]: found \"slot\": -1, wanted an integer from 0 to 4294967295"}},
      {"\"slot\":0", {"\"slot\":18446744073709551615", "traceEvents[8]: found \"slot\": 18446744073709551615, wanted"}},
      {"\"bytes\":1024", {"\"bytes\":{}", "traceEvents[18]: found \"bytes\": {}, wanted an integer"}},
      {"{\"ph\":\"C\",", {"{", "traceEvents[18]: found no \"ph\""}},
      {"{\"ph\":\"s\",", {"7,{\"ph\":\"s\",", "traceEvents[16]: found no object, wanted an event"}},
  };
  for (const auto& [from, change] : cases) {
    SCOPED_TRACE(absl::StrCat(from, " -> ", change.first));
    std::string text = good;
    ASSERT_NE(text.find(from), std::string::npos);
    text.replace(text.find(from), std::string(from).size(), change.first);
    EXPECT_THAT(ParseChromeJson(text),
                StatusIs(absl::StatusCode::kInvalidArgument, testing::StartsWith(change.second)));
  }
}

// Files that have been damaged are refused or read, no more.
TEST(TraceTest, DamagedFilesEndWell) {
  const std::string good = ToChromeJson(SmallTrace(), TwoStages());
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string text = good;
    const size_t at = random() % text.size();
    const size_t length = random() % 20;
    text.replace(at, length, text.substr(random() % text.size(), random() % 20));
    const absl::StatusOr<Trace> trace = ParseChromeJson(text);
    if (trace.ok()) continue;
    EXPECT_TRUE(absl::IsInvalidArgument(trace.status()));
    ++refused;
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace meshwright
