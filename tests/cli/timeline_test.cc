// The timeline of GPT-3 175B on 1,024 devices: small enough to open, and the same in Chrome JSON and in Perfetto's
// format.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/perfetto.pb.h"
#include "nlohmann/json.hpp"
#include "tests/cli/run_tool.h"

namespace meshwright {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// What a viewer shows, by the names that it shows.
struct Slice {
  std::string rank, stream, name;
  int64_t begin = 0, end = 0, slot = -1, microbatch = -1;
  auto Tie() const { return std::tie(rank, stream, begin, end, name, slot, microbatch); }
  bool operator<(const Slice& other) const { return Tie() < other.Tie(); }
  bool operator==(const Slice& other) const { return Tie() == other.Tie(); }
};

struct View {
  std::vector<Slice> slices;
  std::vector<std::pair<Slice, Slice>> arrows;
  std::vector<std::tuple<std::string, int64_t, int64_t>> memory;  // rank, time, bytes
};

// One end of an arrow. Both viewers take them by time, those of one time as they stand in the file, and drop an arrow
// whose end comes before its beginning (trace_event_importer.html of catapult, flow_tracker.cc of Perfetto).
struct ArrowEnd {
  uint64_t arrow = 0;
  bool begins = false;
  Slice slice;
};

std::vector<std::pair<Slice, Slice>> ArrowsOf(std::vector<ArrowEnd> ends) {
  std::stable_sort(ends.begin(), ends.end(),
                   [](const ArrowEnd& a, const ArrowEnd& b) { return a.slice.begin < b.slice.begin; });
  std::map<uint64_t, Slice> begun;
  std::vector<std::pair<Slice, Slice>> arrows;
  for (const ArrowEnd& end : ends) {
    if (end.begins) {
      EXPECT_TRUE(begun.emplace(end.arrow, end.slice).second) << "two arrows have the number " << end.arrow;
    } else if (begun.count(end.arrow) > 0) {
      arrows.push_back({begun.at(end.arrow), end.slice});
    }
  }
  return arrows;
}

View Sorted(View view) {
  std::sort(view.slices.begin(), view.slices.end());
  std::sort(view.arrows.begin(), view.arrows.end());
  return view;
}

int64_t Nanoseconds(const Json& microseconds) { return std::llround(microseconds.get<double>() * 1e3); }

View ViewOfJson(const Json& trace) {
  std::map<int64_t, std::string> ranks;
  std::map<std::pair<int64_t, int64_t>, std::string> streams;
  View view;
  std::vector<ArrowEnd> ends;
  for (const Json& event : trace.at("traceEvents")) {
    const std::string phase = event.at("ph"), name = event.at("name");
    const int64_t rank = event.at("pid");
    const Json& args = event.at("args");
    if (phase == "M" && name == "process_name") {
      ranks[rank] = args.at("name");
    } else if (phase == "M" && name == "thread_name") {
      streams[{rank, event.at("tid")}] = args.at("name");
    } else if (phase == "C") {
      view.memory.push_back({ranks.at(rank), Nanoseconds(event.at("ts")), args.at("bytes")});
    } else if (phase == "X") {
      const int64_t begin = Nanoseconds(event.at("ts"));
      view.slices.push_back({ranks.at(rank), streams.at({rank, event.at("tid")}), name, begin,
                             begin + Nanoseconds(event.at("dur")), args.at("slot"), args.value("microbatch", -1)});
      if (!event.contains("bind_id")) continue;
      EXPECT_NE(event.contains("flow_in"), event.contains("flow_out"));
      ends.push_back({event.at("bind_id"), event.contains("flow_out"), view.slices.back()});
    }
  }
  view.arrows = ArrowsOf(std::move(ends));
  return Sorted(std::move(view));
}

View ViewOfPerfetto(const std::string& bytes) {
  perfetto::Trace trace;
  EXPECT_TRUE(trace.ParseFromString(bytes));
  std::map<uint64_t, std::string> names, arguments;
  std::map<uint64_t, perfetto::TrackDescriptor> tracks;
  View view;
  std::vector<ArrowEnd> ends;
  for (const perfetto::TracePacket& packet : trace.packet()) {
    for (const auto& name : packet.interned_data().event_names()) names[name.iid()] = name.name();
    for (const auto& name : packet.interned_data().debug_annotation_names()) arguments[name.iid()] = name.name();
    if (packet.has_track_descriptor()) tracks[packet.track_descriptor().uuid()] = packet.track_descriptor();
    if (!packet.has_track_event()) continue;
    const perfetto::TrackEvent& event = packet.track_event();
    const perfetto::TrackDescriptor& track = tracks.at(event.track_uuid());
    const std::string& rank = tracks.at(track.parent_uuid()).process().process_name();
    const int64_t time = static_cast<int64_t>(packet.timestamp());
    if (event.type() == 4) {
      view.memory.push_back({rank, time, event.counter_value()});
    } else if (event.type() == 2) {
      view.slices.back().end = time;
    } else {
      Slice& slice = view.slices.emplace_back();
      slice.rank = rank;
      slice.stream = track.name();
      slice.name = names.at(event.name_iid());
      slice.begin = slice.end = time;
      for (const perfetto::DebugAnnotation& argument : event.debug_annotations()) {
        const std::string& name = arguments.at(argument.name_iid());
        (name == "slot" ? slice.slot : slice.microbatch) = argument.int_value();
      }
    }
  }
  // Ends of arrows hold whole slices, which are known now: there is a slice for each event that begins one.
  size_t next = 0;
  for (const perfetto::TracePacket& packet : trace.packet()) {
    const perfetto::TrackEvent& event = packet.track_event();
    if (event.type() != 1) continue;
    const Slice& slice = view.slices[next++];
    for (const uint64_t arrow : event.flow_ids()) ends.push_back({arrow, true, slice});
    for (const uint64_t arrow : event.terminating_flow_ids()) ends.push_back({arrow, false, slice});
  }
  view.arrows = ArrowsOf(std::move(ends));
  return Sorted(std::move(view));
}

class Gpt3TimelineTest : public testing::Test {
 protected:
  // The plan that the README shows: 8 stages of 12 chunks, 48 micro-batches.
  static void SetUpTestSuite() {
    ASSERT_EQ(RunTool("plan", {"models/configs/gpt3_175b.yaml", "--out=" + Path("gpt3.yaml")}).exit_code, 0);
    json_ = new std::string(Timeline("gpt3.json"));
    perfetto_ = new std::string(Timeline("gpt3.pftrace"));
  }
  static void TearDownTestSuite() {
    delete json_;
    delete perfetto_;
  }
  static std::string Path(const std::string& name) { return absl::StrCat(std::string(testing::TempDir()), "/", name); }
  static std::string Timeline(const std::string& name) {
    const ToolResult result = RunTool("simulate", {Path("gpt3.yaml"), "--trace=" + Path(name)});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_LT(result.seconds, 2);
    EXPECT_THAT(result.out, AllOf(HasSubstr("1,024 ranks"), HasSubstr("memory in use over the step")));
    EXPECT_EQ(result.err, "");  // nothing about another format that is smaller
    return ReadText(Path(name));
  }

  static const std::string *json_, *perfetto_;
};
const std::string* Gpt3TimelineTest::json_ = nullptr;
const std::string* Gpt3TimelineTest::perfetto_ = nullptr;

TEST_F(Gpt3TimelineTest, EitherFormatHasLessThanFiveMegabytes) {
  EXPECT_LT(json_->size(), 5'000'000u);
  EXPECT_LT(perfetto_->size(), 5'000'000u);
  EXPECT_TRUE(Timeline("gpt3.json") == *json_);
}

TEST_F(Gpt3TimelineTest, EitherFormatHasTheSameSlicesArrowsAndMemory) {
  const View json = ViewOfJson(Json::parse(*json_)), perfetto = ViewOfPerfetto(*perfetto_);
  EXPECT_TRUE(json.slices == perfetto.slices);
  EXPECT_TRUE(json.arrows == perfetto.arrows);
  EXPECT_TRUE(json.memory == perfetto.memory);
}

// Stages in the order of their ranks, each with its streams; on each stage 12 chunks run forward and backward for 48
// micro-batches, and hand over to the next of 8 x 12: 95 x 48 arrows either way, and two of the embedding, whose
// gradients first and last stage add up.
TEST_F(Gpt3TimelineTest, NothingThatOneLooksForIsMissing) {
  const View view = ViewOfJson(Json::parse(*json_));
  std::map<std::string, std::set<std::string>> streams;
  std::map<std::string, int> passes;
  std::set<std::string> kinds;
  for (const Slice& slice : view.slices) {
    streams[slice.rank].insert(slice.stream);
    kinds.insert(slice.name.substr(0, slice.name.find(' ')));
    if (slice.stream == "compute" && absl::StartsWith(slice.name, "layers") && !absl::EndsWith(slice.name, "zero") &&
        !absl::EndsWith(slice.name, "update")) {
      ++passes[slice.rank];
    }
  }
  ASSERT_EQ(streams.size(), 8u);
  for (const auto& [rank, names] : streams) {
    EXPECT_THAT(names, ElementsAre("comm", "compute", "receive", "send")) << rank;
    EXPECT_EQ(passes[rank], 2 * 12 * 48) << rank;
  }
  for (const char* kind : {"embed", "layers", "head", "loss", "send", "receive"})
    EXPECT_EQ(kinds.count(kind), 1u) << kind;
  EXPECT_EQ(view.arrows.size(), 2u * (95 * 48) + 2);
  for (const auto& [from, to] : view.arrows) {
    EXPECT_EQ(from.stream, "send");
    EXPECT_EQ(to.stream, "receive");
    EXPECT_NE(from.rank, to.rank);
    EXPECT_EQ(from.microbatch, to.microbatch);
  }
}

TEST_F(Gpt3TimelineTest, SlicesOfAStreamDoNotOverlap) {
  const View view = ViewOfJson(Json::parse(*json_));
  for (size_t i = 1; i < view.slices.size(); ++i) {
    const Slice &before = view.slices[i - 1], &slice = view.slices[i];
    if (before.rank != slice.rank || before.stream != slice.stream) continue;
    ASSERT_GE(slice.begin, before.end) << slice.name;
  }
}

// However few points are shown, the peak is one of them.
TEST_F(Gpt3TimelineTest, MemoryHasItsPeaks) {
  const View view = ViewOfJson(Json::parse(*json_));
  const Json report = Json::parse(RunTool("simulate", {Path("gpt3.yaml"), "--format=json"}).out);
  std::map<std::string, int64_t> peaks;
  for (const auto& [rank, time, bytes] : view.memory) peaks[rank] = std::max(peaks[rank], bytes);
  std::vector<int64_t> shown, reported;
  for (const auto& [rank, peak] : peaks) shown.push_back(peak);
  for (const Json& stage : report.at("stages")) reported.push_back(stage.at("peak_bytes"));
  EXPECT_THAT(shown, testing::UnorderedElementsAreArray(reported));
}

}  // namespace
}  // namespace meshwright
