#include "ir/trace.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ir/status.h"
#include "ir/text.h"
#include "ir/trace_drawing.h"
#include "nlohmann/json.hpp"

namespace meshwright {
namespace {

// --- writing

constexpr int64_t kStreams = static_cast<int64_t>(Stream::kNumStreams);

std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const Utf8Char c = ReadUtf8(text);
    const size_t length = std::max<size_t>(c.length, 1);
    if (c.length == 0) {
      quoted += "\\ufffd";
    } else if (c.code == '"' || c.code == '\\') {
      absl::StrAppend(&quoted, "\\", text.substr(0, 1));
    } else if (c.code < 0x20) {
      absl::StrAppend(&quoted, "\\u", absl::Hex(c.code, absl::kZeroPad4));
    } else {
      absl::StrAppend(&quoted, text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  return quoted + '"';
}

// Microseconds, the unit of the format, to the nanosecond.
std::string Micros(Nanos time) {
  const int64_t n = time.raw();
  const uint64_t magnitude = n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n);
  return absl::StrCat(n < 0 ? "-" : "", magnitude / 1000, ".", absl::Dec(magnitude % 1000, absl::kZeroPad3));
}

class Writer {
 public:
  Writer(const Trace& trace, const Program& program)
      : trace_(trace), program_(program), drawing_(Draw(trace, program)) {}

  std::string Write() {
    absl::StrAppend(&json_, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"source\":", Quoted(trace_.source),
                    ",\"program\":", Quoted(program_.name), ",\"makespan_ns\":", trace_.makespan.raw(),
                    "},\"traceEvents\":[");
    for (const DrawnRank& rank : drawing_.ranks) AppendMetadata(rank);
    for (const size_t i : drawing_.order) AppendSlice(trace_.spans[i], drawing_.slices[i]);
    for (const DrawnFlow& flow : drawing_.flows) {
      if (IsBound(flow)) continue;
      AppendFlowEnd("{\"ph\":\"s\"", drawing_.slices[flow.from].departs, flow.from, flow.begin);
      AppendFlowEnd("{\"ph\":\"f\",\"bp\":\"e\"", drawing_.slices[flow.to].arrives, flow.to, flow.end);
    }
    for (const MemoryPoint& point : trace_.memory) {
      absl::StrAppend(Event(), "{\"ph\":\"C\",\"name\":\"memory\",\"pid\":", point.rank, ",\"ts\":", Micros(point.time),
                      ",\"args\":{\"bytes\":", point.bytes.raw(), "}}");
    }
    json_ += "\n]}\n";
    return std::move(json_);
  }

 private:
  // Begins an event on a line of its own.
  std::string* Event() {
    json_ += first_ ? "\n" : ",\n";
    first_ = false;
    return &json_;
  }

  void AppendMetadata(const DrawnRank& rank) {
    absl::StrAppend(Event(), "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":", rank.rank,
                    ",\"args\":{\"name\":", Quoted(rank.name), "}}");
    absl::StrAppend(Event(), "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":", rank.rank,
                    ",\"args\":{\"sort_index\":", rank.rank, "}}");
    for (const DrawnThread& thread : rank.threads) {
      absl::StrAppend(Event(), "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":", rank.rank, ",\"tid\":", thread.thread,
                      ",\"args\":{\"name\":", Quoted(thread.name), "}}");
    }
  }

  // Whether a viewer that goes by time and place in the file meets the slice where the flow begins first.
  bool IsBound(const DrawnFlow& flow) const { return trace_.spans[flow.from].begin <= trace_.spans[flow.to].begin; }

  void AppendSlice(const Span& span, const DrawnSlice& slice) {
    const bool whole_slot = span.instruction < 0;
    absl::StrAppend(Event(), "{\"ph\":\"X\",\"name\":", Quoted(slice.name));
    if (!whole_slot) absl::StrAppend(&json_, ",\"cat\":", Quoted(slice.category));
    absl::StrAppend(&json_, ",\"pid\":", span.rank, ",\"tid\":", slice.thread, ",\"ts\":", Micros(span.begin),
                    ",\"dur\":", Micros(span.end - span.begin));
    for (const uint64_t number : {slice.departs, slice.arrives}) {
      if (number == 0 || !IsBound(drawing_.flows[number - 1])) continue;
      absl::StrAppend(&json_, ",\"bind_id\":", number,
                      number == slice.departs ? ",\"flow_out\":true" : ",\"flow_in\":true");
    }
    absl::StrAppend(&json_, ",\"args\":{\"slot\":", span.slot);
    if (slice.microbatch >= 0) absl::StrAppend(&json_, ",\"microbatch\":", slice.microbatch);
    if (!whole_slot) absl::StrAppend(&json_, ",\"layer\":", span.layer, ",\"instruction\":", span.instruction);
    if (!slice.origin.empty()) absl::StrAppend(&json_, ",\"origin\":", Quoted(slice.origin));
    if (span.estimate > Nanos(0)) absl::StrAppend(&json_, ",\"library_us\":", Micros(span.estimate));
    json_ += "}}";
  }

  void AppendFlowEnd(absl::string_view head, uint64_t id, size_t span, Nanos time) {
    absl::StrAppend(Event(), head, ",\"name\":\"transfer\",\"cat\":\"transfer\",\"id\":", id,
                    ",\"pid\":", trace_.spans[span].rank, ",\"tid\":", drawing_.slices[span].thread,
                    ",\"ts\":", Micros(time), "}");
  }

  const Trace& trace_;
  const Program& program_;
  const TraceDrawing drawing_;
  std::string json_;
  bool first_ = true;
};

// --- reading

using Json = nlohmann::json;

// An integer field of `object` within [low, high].
absl::StatusOr<int64_t> Integer(const Json& object, const char* key, int64_t low, int64_t high) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end()) {
    return absl::InvalidArgumentError(absl::StrCat("found no \"", key, "\", wanted an integer"));
  }
  const bool fits = found->is_number_integer() &&
                    (!found->is_number_unsigned() ||
                     found->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  if (!fits || found->get<int64_t>() < low || found->get<int64_t>() > high) {
    return absl::InvalidArgumentError(absl::StrCat("found \"", key, "\": ", found->dump(-1, ' ', true).substr(0, 40),
                                                   ", wanted an integer from ", low, " to ", high));
  }
  return found->get<int64_t>();
}

// A time in microseconds, to the nanosecond.
absl::StatusOr<Nanos> Time(const Json& object, const char* key) {
  const auto found = object.find(key);
  constexpr double kMost = 4e15;  // ns: up to there a double tells the thousandths of a microsecond apart
  if (found == object.end() || !found->is_number() || !(std::abs(found->get<double>()) * 1e3 < kMost)) {
    return absl::InvalidArgumentError(absl::StrCat("found no \"", key, "\", wanted a time in microseconds"));
  }
  return Nanos(std::llround(found->get<double>() * 1e3));
}

constexpr int64_t kMostRanks = int64_t{1} << 40;
constexpr int64_t kMostInt32 = std::numeric_limits<int32_t>::max();

absl::StatusOr<Span> ParseSpan(const Json& event) {
  Span span;
  const auto args = event.find("args");
  if (args == event.end()) return absl::InvalidArgumentError("found no \"args\", wanted slot, layer and instruction");
  MESHWRIGHT_ASSIGN_OR_RETURN(span.rank, Integer(event, "pid", 0, kMostRanks));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t thread, Integer(event, "tid", 0, kMostInt32));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t slot, Integer(*args, "slot", 0, std::numeric_limits<uint32_t>::max()));
  if (args->contains("instruction")) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t layer, Integer(*args, "layer", -kMostInt32, kMostInt32));
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t instruction, Integer(*args, "instruction", -1, kMostInt32));
    span.layer = static_cast<int32_t>(layer);
    span.instruction = static_cast<int32_t>(instruction);
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(span.begin, Time(event, "ts"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Nanos duration, Time(event, "dur"));
  if (duration < Nanos()) return absl::InvalidArgumentError("found a \"dur\" below 0, wanted a time in microseconds");
  if (args->contains("library_us")) {
    MESHWRIGHT_ASSIGN_OR_RETURN(span.estimate, Time(*args, "library_us"));
  }
  span.stream = static_cast<Stream>(thread % kStreams);
  span.slot = static_cast<uint32_t>(slot);
  span.end = span.begin + duration;
  return span;
}

absl::StatusOr<MemoryPoint> ParseMemory(const Json& event) {
  MemoryPoint point;
  const auto args = event.find("args");
  if (args == event.end()) return absl::InvalidArgumentError("found no \"args\", wanted bytes");
  MESHWRIGHT_ASSIGN_OR_RETURN(point.rank, Integer(event, "pid", 0, kMostRanks));
  MESHWRIGHT_ASSIGN_OR_RETURN(point.time, Time(event, "ts"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t bytes, Integer(*args, "bytes", 0, std::numeric_limits<int64_t>::max()));
  point.bytes = Bytes(bytes);
  return point;
}

absl::Status ParseEvent(const Json& event, Trace& trace) {
  if (!event.is_object()) return absl::InvalidArgumentError("found no object, wanted an event");
  const auto phase = event.find("ph");
  if (phase == event.end() || !phase->is_string()) return absl::InvalidArgumentError("found no \"ph\"");
  const std::string& kind = phase->get_ref<const std::string&>();
  if (kind == "X") {
    MESHWRIGHT_ASSIGN_OR_RETURN(Span span, ParseSpan(event));
    trace.spans.push_back(span);
  } else if (kind == "C") {
    MESHWRIGHT_ASSIGN_OR_RETURN(MemoryPoint point, ParseMemory(event));
    trace.memory.push_back(point);
  }
  return absl::OkStatus();  // names, flows, and what other tools have added
}

}  // namespace

std::string ToChromeJson(const Trace& trace, const Program& program) { return Writer(trace, program).Write(); }

absl::StatusOr<Trace> ParseChromeJson(const std::string& json) {
  Json root;
  try {
    root = Json::parse(json);
  } catch (const Json::exception& error) {  // the library knows no other way to say where
    const std::string what = error.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
    const size_t name = what.find("] ");
    return absl::InvalidArgumentError(absl::StrCat("not JSON: ", what.substr(name == std::string::npos ? 0 : name + 2),
                                                   "; wanted a timeline that --trace=FILE.json wrote"));
  }
  const auto events = root.is_object() ? root.find("traceEvents") : root.end();
  if (!root.is_object() || events == root.end() || !events->is_array()) {
    return absl::InvalidArgumentError("found no list \"traceEvents\", wanted a trace as --trace writes it");
  }
  Trace trace;
  const auto other = root.find("otherData");
  if (other == root.end() || !other->is_object()) {
    return absl::InvalidArgumentError("found no \"otherData\", wanted a trace as --trace writes it");
  }
  const auto source = other->find("source");
  if (source == other->end() || !source->is_string()) {
    return absl::InvalidArgumentError("otherData: found no \"source\", wanted simulated or measured");
  }
  trace.source = source->get<std::string>();
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t makespan,
                              Integer(*other, "makespan_ns", 0, std::numeric_limits<int64_t>::max()));
  trace.makespan = Nanos(makespan);
  for (size_t i = 0; i < events->size(); ++i) {
    const absl::Status status = ParseEvent((*events)[i], trace);
    if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat("traceEvents[", i, "]: ", status.message()));
  }
  std::stable_sort(trace.spans.begin(), trace.spans.end(), [](const Span& a, const Span& b) {
    return std::tie(a.rank, a.stream, a.begin) < std::tie(b.rank, b.stream, b.begin);
  });
  return trace;
}

}  // namespace meshwright
