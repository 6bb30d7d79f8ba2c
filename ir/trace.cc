#include "ir/trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ir/status.h"
#include "ir/text.h"
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

std::string NameOf(const Instruction& instruction) {
  struct {
    std::string operator()(const Compute& c) const { return std::string(meshwright::NameOf(c.op)); }
    std::string operator()(const Slice&) const { return "slice"; }
    std::string operator()(const Collective& c) const { return std::string(meshwright::NameOf(c.kind)); }
    std::string operator()(const Permute&) const { return "permute"; }
    std::string operator()(const Transfer& t) const { return t.send ? "send" : "receive"; }
    std::string operator()(const Sync&) const { return "sync"; }
  } name;
  return std::visit(name, instruction.work);
}

std::string CategoryOf(const Instruction& instruction, Phase phase) {
  if (const auto* collective = std::get_if<Collective>(&instruction.work)) {
    return std::string(meshwright::NameOf(collective->purpose));
  }
  if (const auto* transfer = std::get_if<Transfer>(&instruction.work)) {
    return std::string(meshwright::NameOf(transfer->purpose));
  }
  const auto* compute = std::get_if<Compute>(&instruction.work);
  if (compute != nullptr && compute->recompute) return "recompute";
  return phase == Phase::kForward ? "forward" : "backward";
}

class Writer {
 public:
  Writer(const Trace& trace, const Program& program) : trace_(trace), program_(program) {}

  std::string Write() {
    absl::StrAppend(&json_, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"source\":", Quoted(trace_.source),
                    ",\"program\":", Quoted(program_.name), ",\"makespan_ns\":", trace_.makespan.raw(),
                    "},\"traceEvents\":[");
    PlaceSpans();
    for (const auto& [rank, lanes] : lanes_) AppendMetadata(rank, lanes);
    for (size_t i = 0; i < trace_.spans.size(); ++i) AppendSlice(trace_.spans[i], threads_[i]);
    AppendFlows();
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

  // Threads. A stream runs one thing at a time, so one thread serves it; should the spans of a (measured) trace
  // overlap all the same, the later one moves to a further thread of the stream, since slices that cross are not shown.
  void PlaceSpans() {
    for (const Span& span : trace_.spans) {
      auto& lanes = lanes_[span.rank][static_cast<size_t>(span.stream)];
      size_t lane = 0;
      while (lane < lanes.size() && lanes[lane] > span.begin) ++lane;
      if (lane == lanes.size()) lanes.push_back(span.end);
      lanes[lane] = std::max(span.begin, span.end);
      threads_.push_back(static_cast<int64_t>(lane) * kStreams + static_cast<int64_t>(span.stream));
    }
  }

  using Lanes = std::array<std::vector<Nanos>, kStreams>;
  void AppendMetadata(int64_t rank, const Lanes& lanes) {
    const RankClass* rank_class = ClassOf(rank);
    const std::string name =
        absl::StrCat("rank ", rank, rank_class == nullptr ? "" : absl::StrCat(" (", rank_class->name, ")"));
    absl::StrAppend(Event(), "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":", rank,
                    ",\"args\":{\"name\":", Quoted(name), "}}");
    absl::StrAppend(Event(), "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":", rank,
                    ",\"args\":{\"sort_index\":", rank, "}}");
    for (int64_t s = 0; s < kStreams; ++s) {
      for (size_t lane = 0; lane < lanes[s].size(); ++lane) {
        const std::string stream(meshwright::NameOf(static_cast<Stream>(s)));
        const std::string thread = lane == 0 ? stream : absl::StrCat(stream, " ", lane + 1);
        absl::StrAppend(Event(), "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":", rank,
                        ",\"tid\":", static_cast<int64_t>(lane) * kStreams + s, ",\"args\":{\"name\":", Quoted(thread),
                        "}}");
      }
    }
  }

  void AppendSlice(const Span& span, int64_t thread) {
    const Slot* slot = SlotOf(span);
    absl::StrAppend(Event(), "{\"ph\":\"X\",", Heading(span), ",\"pid\":", span.rank, ",\"tid\":", thread,
                    ",\"ts\":", Micros(span.begin), ",\"dur\":", Micros(span.end - span.begin));
    absl::StrAppend(&json_, ",\"args\":{\"slot\":", span.slot, ",\"layer\":", span.layer);
    if (slot != nullptr) absl::StrAppend(&json_, ",\"microbatch\":", slot->microbatch);
    absl::StrAppend(&json_, ",\"instruction\":", span.instruction);
    const Instruction* instruction = InstructionOf(span);
    if (instruction != nullptr && !instruction->origin.empty()) {
      absl::StrAppend(&json_, ",\"origin\":", Quoted(instruction->origin));
    }
    json_ += "}}";
  }

  // Name and category; a trace of another program has none.
  std::string Heading(const Span& span) const {
    const Instruction* instruction = InstructionOf(span);
    if (instruction != nullptr) {
      return absl::StrCat("\"name\":", Quoted(NameOf(*instruction)),
                          ",\"cat\":", Quoted(CategoryOf(*instruction, BlockOf(span)->phase)));
    }
    const Block* block = BlockOf(span);
    if (block == nullptr || span.instruction >= 0) return "\"name\":\"unknown\",\"cat\":\"unknown\"";
    return absl::StrCat("\"name\":", Quoted(block->name),
                        ",\"cat\":", block->phase == Phase::kForward ? "\"forward\"" : "\"backward\"");
  }

  // The n-th send of a rank to a peer meets the peer's n-th receive from it, in order of issue.
  void AppendFlows() {
    using Ends = std::pair<int64_t, int64_t>;                      // from rank, to rank
    using Order = std::tuple<uint32_t, int64_t, int32_t, size_t>;  // slot, layer as issued, instruction; the span
    std::map<Ends, std::pair<std::vector<Order>, std::vector<Order>>> transfers;
    for (size_t i = 0; i < trace_.spans.size(); ++i) {
      const Span& span = trace_.spans[i];
      const Instruction* instruction = InstructionOf(span);
      const auto* transfer = instruction == nullptr ? nullptr : std::get_if<Transfer>(&instruction->work);
      if (transfer == nullptr) continue;
      const int64_t peer = span.rank + transfer->stage_offset * program_.ranks_per_class();
      const Order order = {span.slot, SlotOf(span)->step < 0 ? -int64_t{span.layer} : span.layer, span.instruction, i};
      if (transfer->send) {
        transfers[{span.rank, peer}].first.push_back(order);
      } else {
        transfers[{peer, span.rank}].second.push_back(order);
      }
    }
    int64_t id = 0;
    for (auto& [ends, halves] : transfers) {
      auto& [sends, receives] = halves;
      std::sort(sends.begin(), sends.end());
      std::sort(receives.begin(), receives.end());
      for (size_t n = 0; n < std::min(sends.size(), receives.size()); ++n) {
        const size_t send = std::get<3>(sends[n]), receive = std::get<3>(receives[n]);
        // An arrow ends inside the slice it points to, and not before it starts.
        const Nanos begin = trace_.spans[send].begin;
        const Nanos end = std::max(trace_.spans[receive].begin, std::min(begin, trace_.spans[receive].end));
        AppendFlowEnd("{\"ph\":\"s\"", ++id, trace_.spans[send].rank, threads_[send], begin);
        AppendFlowEnd("{\"ph\":\"f\",\"bp\":\"e\"", id, trace_.spans[receive].rank, threads_[receive], end);
      }
    }
  }

  void AppendFlowEnd(absl::string_view head, int64_t id, int64_t rank, int64_t thread, Nanos time) {
    absl::StrAppend(Event(), head, ",\"name\":\"transfer\",\"cat\":\"transfer\",\"id\":", id, ",\"pid\":", rank,
                    ",\"tid\":", thread, ",\"ts\":", Micros(time), "}");
  }

  // What a span means in the program; null where the program has no such thing.
  const RankClass* ClassOf(int64_t rank) const {
    if (program_.classes.empty() || rank < 0 || rank >= program_.mesh.num_ranks()) return nullptr;
    const int64_t c = rank / std::max<int64_t>(1, program_.ranks_per_class());
    return c < static_cast<int64_t>(program_.classes.size()) ? &program_.classes[c] : nullptr;
  }
  const Slot* SlotOf(const Span& span) const {
    const RankClass* rank_class = ClassOf(span.rank);
    if (rank_class == nullptr || span.slot >= rank_class->slots.size()) return nullptr;
    return &rank_class->slots[span.slot];
  }
  const Block* BlockOf(const Span& span) const {
    const Slot* slot = SlotOf(span);
    if (slot == nullptr) return nullptr;
    const std::vector<Block>& blocks = ClassOf(span.rank)->blocks;
    return slot->block.valid() && slot->block.index() < blocks.size() ? &blocks[slot->block.index()] : nullptr;
  }
  const Instruction* InstructionOf(const Span& span) const {
    const Block* block = BlockOf(span);
    if (block == nullptr || span.instruction < 0) return nullptr;
    const auto index = static_cast<size_t>(span.instruction);
    return index < block->instructions.size() ? &block->instructions[index] : nullptr;
  }

  const Trace& trace_;
  const Program& program_;
  std::map<int64_t, Lanes> lanes_;  // by rank: until when each thread of a stream is busy
  std::vector<int64_t> threads_;    // by span
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
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t layer, Integer(*args, "layer", -kMostInt32, kMostInt32));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t instruction, Integer(*args, "instruction", -1, kMostInt32));
  MESHWRIGHT_ASSIGN_OR_RETURN(span.begin, Time(event, "ts"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Nanos duration, Time(event, "dur"));
  span.stream = static_cast<Stream>(thread % kStreams);
  span.slot = static_cast<uint32_t>(slot);
  span.layer = static_cast<int32_t>(layer);
  span.instruction = static_cast<int32_t>(instruction);
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
    return absl::InvalidArgumentError(absl::StrCat("not JSON: ", error.what()));
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
  return trace;
}

}  // namespace meshwright
