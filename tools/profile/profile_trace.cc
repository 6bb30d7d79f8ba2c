#include "tools/profile/profile_trace.h"

#include <algorithm>
#include <cmath>
#include <istream>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "ir/text.h"
#include "nlohmann/json.hpp"
#include "tools/profile/packed_text.h"

namespace meshwright {
namespace {

using PlainJson = nlohmann::json;

// Where the reader is: which object or list it is inside of.
enum class Place : uint8_t { kOutside, kRoot, kEvents, kEvent, kArgs, kDistributed, kDevices, kDevice, kSkipped };

enum class Field : uint8_t {
  kNone,
  kTraceEvents,
  kDistributedInfo,
  kDeviceProperties,
  kOtherData,
  kPhase,
  kCategory,
  kName,
  kBegin,
  kDuration,
  kThread,
  kArgs,
  kStream,
  kDevice,
  kCollective,
  kDtype,
  kElementsIn,
  kElementsOut,
  kGroupSize,
  kRank,
  kWorldSize,
  kDeviceName,
};

struct FieldRow {
  Place place;
  absl::string_view key;
  Field field;
};
constexpr FieldRow kFields[] = {
    {Place::kRoot, "traceEvents", Field::kTraceEvents},
    {Place::kRoot, "distributedInfo", Field::kDistributedInfo},
    {Place::kRoot, "deviceProperties", Field::kDeviceProperties},
    {Place::kRoot, "otherData", Field::kOtherData},
    {Place::kEvent, "ph", Field::kPhase},
    {Place::kEvent, "cat", Field::kCategory},
    {Place::kEvent, "name", Field::kName},
    {Place::kEvent, "ts", Field::kBegin},
    {Place::kEvent, "dur", Field::kDuration},
    {Place::kEvent, "tid", Field::kThread},
    {Place::kEvent, "args", Field::kArgs},
    {Place::kArgs, "stream", Field::kStream},
    {Place::kArgs, "device", Field::kDevice},
    {Place::kArgs, "Collective name", Field::kCollective},
    {Place::kArgs, "dtype", Field::kDtype},
    {Place::kArgs, "In msg nelems", Field::kElementsIn},
    {Place::kArgs, "Out msg nelems", Field::kElementsOut},
    {Place::kArgs, "Group size", Field::kGroupSize},
    {Place::kDistributed, "rank", Field::kRank},
    {Place::kDistributed, "world_size", Field::kWorldSize},
    {Place::kDevice, "name", Field::kDeviceName},
};

Field FieldOf(Place place, absl::string_view key) {
  for (const FieldRow& row : kFields) {
    if (row.place == place && row.key == key) return row.field;
  }
  return Field::kNone;
}

// Categories; the second of each is of older traces.
std::optional<DeviceEventKind> KindOf(absl::string_view category) {
  if (category == "kernel" || category == "Kernel") return DeviceEventKind::kKernel;
  if (category == "gpu_memcpy" || category == "Memcpy") return DeviceEventKind::kCopy;
  if (category == "gpu_memset" || category == "Memset") return DeviceEventKind::kFill;
  return std::nullopt;
}

// A number of the file. Fractions come with their text, since a double of microseconds since 1970 has but quarters.
struct Number {
  double value = 0;
  std::optional<int64_t> integer;
  absl::string_view text;
};

// Times up to here times a thousand are 62 bits; as many events as there may be (ProfileLimits) of the longest duration
// still add up.
constexpr double kMostMicros = 4e15, kLongestMicros = 1e9;
constexpr int64_t kMostElements = int64_t{1} << 36, kMostRanks = int64_t{1} << 24;

std::optional<Nanos> ToNanos(const Number& number, double most) {
  if (!(std::abs(number.value) <= most)) return std::nullopt;
  if (number.integer.has_value()) return Nanos(*number.integer * 1000);
  const size_t point = number.text.find('.');
  int64_t whole = 0, thousandths = 0;
  const std::string digits = absl::StrCat(number.text.substr(std::min(point, number.text.size() - 1) + 1), "000");
  if (point == absl::string_view::npos || absl::StrContains(number.text, "e") || absl::StrContains(number.text, "E") ||
      !absl::SimpleAtoi(number.text.substr(0, point), &whole) || !absl::SimpleAtoi(digits.substr(0, 3), &thousandths)) {
    return Nanos(std::llround(number.value * 1000));
  }
  return Nanos(whole * 1000 + (absl::StartsWith(number.text, "-") ? -thousandths : thousandths));
}

int64_t IntegerOr(const Number& number, int64_t most, int64_t otherwise) {
  return number.integer.value_or(-1) >= 0 && *number.integer <= most ? *number.integer : otherwise;
}

// What is known of an event when it ends.
struct RawEvent {
  std::string phase, category, name;
  std::optional<Nanos> begin, duration;
  absl::Status bad_time;
  int64_t thread = -1, stream = -1, device = -1;
  CollectiveArgs collective;
};

constexpr size_t kMostDepth = 64;
constexpr size_t kLongestName = 1024;  // bytes; templates make longer ones, which differ before
constexpr absl::string_view kWanted = "a trace of torch.profiler";

// Its beginning, without half of a character at the end.
std::string Short(const std::string& text) {
  size_t length = std::min(text.size(), kLongestName);
  while (length > 0 && length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  return text.substr(0, length);
}

class Reader : public nlohmann::json_sax<PlainJson> {
 public:
  Reader(const std::string& file, const ProfileLimits& limits) : limits_(limits) { trace_.file = file; }

  const absl::Status& status() const { return status_; }
  absl::StatusOr<ProfileTrace> Finish();

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t value) override { return OnNumber({static_cast<double>(value), value, ""}); }
  bool number_unsigned(uint64_t value) override {
    Number number;
    number.value = static_cast<double>(value);
    if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      number.integer = static_cast<int64_t>(value);
    }
    return OnNumber(number);
  }
  bool number_float(double value, const std::string& text) override { return OnNumber({value, std::nullopt, text}); }
  bool string(std::string& value) override;
  bool binary(PlainJson::binary_t&) override { return true; }
  bool start_object(size_t) override { return Open(false); }
  bool start_array(size_t) override { return Open(true); }
  bool end_array() override { return Close(); }
  bool end_object() override {
    if (places_.back() == Place::kEvent && !EndEvent()) return false;
    return Close();
  }
  bool key(std::string& value) override {
    field_ = FieldOf(places_.back(), value);
    if (field_ == Field::kOtherData) has_other_data_ = true;
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override;

 private:
  Place place() const { return places_.empty() ? Place::kOutside : places_.back(); }
  bool Fail(absl::string_view what, absl::string_view found, absl::string_view wanted, absl::string_view remedy = "");
  bool Open(bool list);
  bool Close() {
    places_.pop_back();
    field_ = Field::kNone;
    return true;
  }
  bool OnNumber(const Number& number);
  void SetTime(const Number& number, absl::string_view key, double least, double most, std::optional<Nanos>& time);
  bool EndEvent();
  bool AddEvent(DeviceEventKind kind);
  void AddStep();
  void KeepOneDevice();

  const ProfileLimits limits_;
  ProfileTrace trace_;
  absl::Status status_;
  std::vector<Place> places_;
  Field field_ = Field::kNone;
  bool has_events_ = false, has_other_data_ = false;
  int64_t num_events_ = 0;  // of all kinds
  RawEvent event_;
  size_t name_bytes_ = 0;
  std::unordered_map<std::string, int32_t> names_;
  std::map<CollectiveArgs, int32_t> collectives_;
  std::vector<int32_t> devices_;  // of trace_.events
  std::map<int64_t, ProfiledStep> device_steps_, cpu_steps_;
};

bool Reader::Fail(absl::string_view what, absl::string_view found, absl::string_view wanted, absl::string_view remedy) {
  status_ = absl::InvalidArgumentError(
      absl::StrCat(trace_.file, ": ", what, what.empty() ? "" : ": ", WrongInput(found, wanted, remedy).message()));
  return false;
}

bool Reader::parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
  const absl::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
  if (absl::StrContains(what, "unexpected end of input") || absl::StrContains(what, "missing closing quote")) {
    return Fail("", "the end of the text within it", absl::StrCat("the whole of ", kWanted), "copy the file again");
  }
  const bool range = absl::StrContains(what, "out_of_range");
  return Fail("", absl::StrCat(range ? "a number out of range" : "no JSON", " at byte ", position), kWanted);
}

bool Reader::Open(bool list) {
  if (places_.size() >= kMostDepth) {
    return Fail("", absl::StrCat("values nested more than ", kMostDepth, " deep"), kWanted);
  }
  Place next = Place::kSkipped;
  if (place() == Place::kOutside && !list) next = Place::kRoot;
  if (place() == Place::kRoot && field_ == Field::kTraceEvents && list) {
    next = Place::kEvents;
    has_events_ = true;
  }
  if (place() == Place::kRoot && field_ == Field::kDistributedInfo && !list) next = Place::kDistributed;
  if (place() == Place::kRoot && field_ == Field::kDeviceProperties && list) next = Place::kDevices;
  if (place() == Place::kDevices && !list) next = Place::kDevice;
  if (place() == Place::kEvent && field_ == Field::kArgs && !list) next = Place::kArgs;
  if (place() == Place::kEvents && !list) {
    next = Place::kEvent;
    event_ = RawEvent();
  }
  places_.push_back(next);
  field_ = Field::kNone;
  return true;
}

void Reader::SetTime(const Number& number, absl::string_view key, double least, double most,
                     std::optional<Nanos>& time) {
  time = number.value >= least ? ToNanos(number, most) : std::nullopt;
  if (time.has_value()) return;
  event_.bad_time =
      WrongInput(absl::StrCat(key, " ", number.value), absl::StrCat("microseconds, ", least, " to ", most));
}

bool Reader::OnNumber(const Number& number) {
  switch (field_) {
    case Field::kBegin:
      SetTime(number, "ts", -kMostMicros, kMostMicros, event_.begin);
      break;
    case Field::kDuration:
      SetTime(number, "dur", 0, kLongestMicros, event_.duration);
      break;
    case Field::kThread:
      event_.thread = IntegerOr(number, std::numeric_limits<int32_t>::max(), -1);
      break;
    case Field::kStream:
      event_.stream = IntegerOr(number, std::numeric_limits<int32_t>::max(), -1);
      break;
    case Field::kDevice:
      event_.device = IntegerOr(number, std::numeric_limits<int32_t>::max(), -1);
      break;
    case Field::kElementsIn:
      event_.collective.elements_in = IntegerOr(number, kMostElements, -1);
      break;
    case Field::kElementsOut:
      event_.collective.elements_out = IntegerOr(number, kMostElements, -1);
      break;
    case Field::kGroupSize:
      event_.collective.group_size = IntegerOr(number, kMostRanks, -1);
      break;
    case Field::kRank:
    case Field::kWorldSize: {
      const bool rank = field_ == Field::kRank;
      if (number.integer.value_or(-1) < (rank ? 0 : 1) || *number.integer > kMostRanks) {
        return Fail(absl::StrCat("distributedInfo: ", rank ? "rank" : "world_size"), absl::StrCat(number.value),
                    absl::StrCat("a number of ranks up to ", kMostRanks));
      }
      (rank ? trace_.rank : trace_.world_size) = *number.integer;
      break;
    }
    default:  // whatever else has a number
      break;
  }
  return true;
}

bool Reader::string(std::string& value) {
  switch (field_) {
    case Field::kPhase:
      event_.phase = value;
      break;
    case Field::kCategory:
      event_.category = value;
      break;
    case Field::kName:
      event_.name = Short(value);
      break;
    case Field::kCollective:
      event_.collective.name = Short(value);
      break;
    case Field::kDtype:
      event_.collective.dtype = Short(value);
      break;
    case Field::kDeviceName:
      if (trace_.device.empty()) trace_.device = Short(value);
      break;
    default:  // whatever else has a text
      break;
  }
  return true;
}

bool Reader::EndEvent() {
  const int64_t index = num_events_++;
  if (event_.phase != "X") return true;
  const std::optional<DeviceEventKind> kind = KindOf(event_.category);
  const bool step = !kind.has_value() && absl::StartsWith(event_.name, "ProfilerStep#");
  if (!kind.has_value() && !step) return true;
  if (!event_.bad_time.ok()) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat(trace_.file, ": traceEvents[", index, "]: ", event_.bad_time.message()));
    return false;
  }
  if (!event_.begin.has_value() || !event_.duration.has_value()) {
    trace_.without_time += kind.has_value() ? 1 : 0;
    return true;
  }
  if (kind.has_value()) return AddEvent(*kind);
  AddStep();
  return true;
}

bool Reader::AddEvent(DeviceEventKind kind) {
  const auto [name, is_new] = names_.try_emplace(event_.name, static_cast<int32_t>(names_.size()));
  if (is_new) name_bytes_ += event_.name.size();
  if (trace_.events.size() >= limits_.events || name_bytes_ > limits_.names) {
    return Fail(
        "",
        absl::StrCat("more than ", limits_.events, " events of the device or ", limits_.names, " bytes of their names"),
        "fewer", "profile fewer steps");
  }
  DeviceEvent event;
  event.begin = *event_.begin;
  event.end = *event_.begin + *event_.duration;
  event.kind = kind;
  event.name = name->second;
  event.stream = static_cast<int32_t>(event_.stream >= 0 ? event_.stream : event_.thread);
  if (!event_.collective.name.empty()) {
    event.collective =
        collectives_.try_emplace(event_.collective, static_cast<int32_t>(collectives_.size())).first->second;
  }
  trace_.events.push_back(event);
  devices_.push_back(static_cast<int32_t>(event_.device));
  return true;
}

// On the device a step has an annotation on each of its streams.
void Reader::AddStep() {
  ProfiledStep step;
  if (!absl::SimpleAtoi(event_.name.substr(event_.name.find('#') + 1), &step.number) || step.number < 0) return;
  constexpr size_t kMostSteps = 1 << 16;
  auto& steps = event_.category == "gpu_user_annotation" ? device_steps_ : cpu_steps_;
  if (steps.size() >= kMostSteps) return;
  step.begin = *event_.begin;
  step.end = *event_.begin + *event_.duration;
  const auto [known, is_new] = steps.try_emplace(step.number, step);
  if (is_new) return;
  known->second.begin = std::min(known->second.begin, step.begin);
  known->second.end = std::max(known->second.end, step.end);
}

void Reader::KeepOneDevice() {
  std::map<int32_t, int64_t> counts;
  for (const int32_t device : devices_) ++counts[device];
  if (counts.size() < 2) return;
  const int32_t kept = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
                         return a.second < b.second;
                       })->first;
  size_t count = 0;
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i] == kept) trace_.events[count++] = trace_.events[i];
  }
  trace_.other_devices = static_cast<int64_t>(trace_.events.size() - count);
  trace_.events.resize(count);
}

absl::StatusOr<ProfileTrace> Reader::Finish() {
  if (!has_events_) Fail("", "no list \"traceEvents\"", kWanted);
  if (status_.ok() && trace_.events.empty()) {
    Fail("", has_other_data_ ? "no event of a device, but \"otherData\"" : "no event of a device",
         "kernels as torch.profiler records them",
         has_other_data_ ? "compare takes two timelines of simulate and run" : "profile with ProfilerActivity.CUDA");
  }
  if (!status_.ok()) return status_;
  KeepOneDevice();
  trace_.names.resize(names_.size());
  for (auto& [name, index] : names_) trace_.names[static_cast<size_t>(index)] = name;
  trace_.collectives.resize(collectives_.size());
  for (auto& [args, index] : collectives_) trace_.collectives[static_cast<size_t>(index)] = args;
  trace_.steps_of_device = !device_steps_.empty();
  for (const auto& [number, step] : trace_.steps_of_device ? device_steps_ : cpu_steps_) trace_.steps.push_back(step);
  std::stable_sort(trace_.events.begin(), trace_.events.end(),
                   [](const DeviceEvent& a, const DeviceEvent& b) { return a.begin < b.begin; });
  return std::move(trace_);
}

}  // namespace

bool IsProfileTrace(absl::string_view bytes) {
  constexpr size_t kBeginning = 1 << 16;
  PackedText text(bytes, 2 * kBeginning);
  std::string begin(kBeginning, '\0');
  begin.resize(static_cast<size_t>(text.sgetn(begin.data(), static_cast<std::streamsize>(kBeginning))));
  if (!absl::StartsWith(absl::StripLeadingAsciiWhitespace(begin), "{")) return false;
  if (absl::StrContains(begin, "\"makespan_ns\"")) return false;
  for (const absl::string_view key : {"schemaVersion", "deviceProperties", "distributedInfo", "traceEvents"}) {
    if (absl::StrContains(begin, absl::StrCat("\"", key, "\""))) return true;
  }
  return false;
}

absl::StatusOr<ProfileTrace> ReadProfileTrace(absl::string_view bytes, const std::string& file,
                                              const ProfileLimits& limits) {
  PackedText text(bytes, limits.text);
  std::istream stream(&text);
  Reader reader(file, limits);
  PlainJson::sax_parse(stream, &reader);
  // A text that ends too early is no JSON either.
  if (!text.status().ok()) return absl::InvalidArgumentError(absl::StrCat(file, ": ", text.status().message()));
  MESHWRIGHT_RETURN_IF_ERROR(reader.status());
  return reader.Finish();
}

ProfileWindow WindowOf(const ProfileTrace& trace) {
  const std::vector<ProfiledStep>& steps = trace.steps;
  ProfileWindow window;
  window.recorded = static_cast<int64_t>(steps.size());
  if (steps.empty()) {
    window.begin = window.end = trace.events.empty() ? Nanos() : trace.events.front().begin;
    for (const DeviceEvent& event : trace.events) window.end = std::max(window.end, event.end);
    return window;
  }
  size_t first = 0, count = 0;  // of the longest row
  for (size_t i = 0, from = 0; i < steps.size(); ++i) {
    const bool follows = i > from && steps[i].number == steps[i - 1].number + 1 && steps[i].begin > steps[i - 1].begin;
    if (!follows) from = i;
    if (i + 1 - from > count) {
      first = from;
      count = i + 1 - from;
    }
  }
  const size_t begin = first + (count > 1 ? 1 : 0), end = first + count - (count > 2 ? 1 : 0);
  window.begin = steps[begin].begin;
  window.end = end < first + count ? steps[end].begin : steps[end - 1].end;
  window.steps = static_cast<int64_t>(end - begin);
  window.first = steps[begin].number;
  window.last = steps[end - 1].number;
  return window;
}

}  // namespace meshwright
