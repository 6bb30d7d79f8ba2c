#include "tools/timeline.h"

#include <cstddef>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/perfetto_trace.h"
#include "zlib.h"

namespace meshwright {
namespace {

using ::testing::StartsWith;

// So many steps of nothing in particular that the archive is more than one piece of the writer's.
Trace ManySpans() {
  Trace trace;
  trace.source = "simulated";
  for (int64_t i = 0; i < 50'000; ++i) {
    Span span;
    span.begin = Nanos(i * i);
    span.end = Nanos(i * i + 1 + i % 7);
    trace.spans.push_back(span);
  }
  trace.makespan = trace.spans.back().end;
  return trace;
}

std::string Unpacked(const std::string& archive, size_t size) {
  z_stream stream = {};
  EXPECT_EQ(inflateInit2(&stream, MAX_WBITS + 16), Z_OK);
  std::string text(size + 1, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(archive.data()));
  stream.avail_in = static_cast<uInt>(archive.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  text.resize(text.size() - stream.avail_out);
  inflateEnd(&stream);
  return text;
}

TEST(TimelineTest, TheNameSaysTheFormat) {
  const Trace trace = ManySpans();
  const Program program;
  const std::string json = ToChromeJson(trace, program);
  EXPECT_EQ(TimelineFor("step.json", trace, program), json);
  EXPECT_EQ(TimelineFor("-", trace, program), json);
  EXPECT_EQ(TimelineFor("step.pftrace", trace, program), ToPerfetto(trace, program));
}

TEST(TimelineTest, AnArchiveHoldsTheSameTextInLess) {
  const Trace trace = ManySpans();
  const Program program;
  const std::string json = ToChromeJson(trace, program), archive = TimelineFor("step.json.gz", trace, program);
  EXPECT_THAT(archive, StartsWith("\x1f\x8b"));
  EXPECT_GT(archive.size(), size_t{1} << 16);
  EXPECT_LT(archive.size(), json.size() / 4);
  EXPECT_EQ(Unpacked(archive, json.size()), json);
  EXPECT_EQ(TimelineFor("step.json.gz", trace, program), archive);  // nor does the time of day stand in it
}

}  // namespace
}  // namespace meshwright
