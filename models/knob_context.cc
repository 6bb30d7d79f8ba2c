#include "models/knob_context.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "ir/document.h"
#include "ir/error_kind.h"
#include "ir/status.h"
#include "ir/text.h"
#include "models/knobs.h"

namespace meshwright {
namespace {

constexpr char kName[] = "context";

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\x%02x", c);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

// A number that reads back the same, and as a number that is no integer.
std::string NumberText(double number) {
  std::string text = absl::StrFormat("%.17g", number);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string EntryText(const std::pair<std::string, KnobValue>& entry) {
  return absl::StrCat(Quoted(entry.first), ": ", ToText(entry.second));
}

KnobValue FromNode(const NodeRef& in) {
  if (in.is_list()) {
    KnobValue::List list;
    for (const NodeRef& child : in.children()) list.push_back(FromNode(child));
    return list;
  }
  if (in.is_map()) {
    KnobValue::Map map;
    for (const NodeRef& child : in.children()) map.emplace_back(child.key(), FromNode(child));
    return map;
  }
  const std::string& text = in.text();
  int64_t whole = 0;
  double number = 0;
  if (in.is_null() || (text == "None" && !in.quoted())) return KnobValue();
  if (in.quoted()) return text;
  if (text == "true" || text == "false") return text == "true";
  if (absl::SimpleAtoi(text, &whole)) return whole;
  if (absl::SimpleAtod(text, &number)) return number;
  return text;
}

// The document `{knobs...}`.
absl::StatusOr<Document> AsDocument(const KnobValue::Map& knobs, bool parallel) {
  KnobValue::Map chosen;
  for (const auto& knob : knobs) {
    if ((FindKnob(knob.first) != nullptr) == parallel) chosen.push_back(knob);
  }
  return ParseDocument(ToText(KnobValue(std::move(chosen))), kName);
}

// Without the place in a text that the caller never wrote: "context:1:3: device_num: found ..." -> "device_num: ...".
absl::Status WithoutPlace(const absl::Status& status) {
  absl::string_view message = status.message();
  if (!absl::StartsWith(message, kName)) return status;
  message.remove_prefix(std::min(message.size(), message.find(": ") + 2));
  return absl::Status(status.code(), message);
}

absl::StatusOr<Parallel> ReadChecked(const KnobValue::Map& knobs, const Training& training, bool with_mode) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Document document, AsDocument(knobs, true));
  if (with_mode) return ReadParallel(document.root(), training, ParallelMode::kStandAlone);
  Parallel parallel;
  MESHWRIGHT_RETURN_IF_ERROR(ReadKnobs(document.root(), parallel));
  return parallel;
}

absl::StatusOr<Context> ReadProcess(const KnobValue::Map& knobs) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Document document, AsDocument(knobs, false));
  return ReadContext(document.root());
}

}  // namespace

std::string ToText(const KnobValue& value) {
  return std::visit(
      Overloaded{[](std::monostate) { return std::string("None"); },
                 [](bool b) { return std::string(b ? "true" : "false"); }, [](int64_t n) { return absl::StrCat(n); },
                 [](double number) { return NumberText(number); }, [](const std::string& text) { return Quoted(text); },
                 [](const KnobValue::List& list) {
                   return absl::StrCat(
                       "[",
                       absl::StrJoin(list, ", ",
                                     [](std::string* out, const KnobValue& v) { absl::StrAppend(out, ToText(v)); }),
                       "]");
                 },
                 [](const KnobValue::Map& map) {
                   return absl::StrCat(
                       "{", absl::StrJoin(map, ", ", [](std::string* out, const auto& e) { *out += EntryText(e); }),
                       "}");
                 }},
      value.value);
}

absl::Status KnobContext::Set(const KnobValue::Map& knobs) {
  KnobValue::Map candidate = set_;
  for (const auto& [name, value] : knobs) {
    std::erase_if(candidate, [&, &name = name](const auto& known) { return known.first == name; });
    candidate.emplace_back(name, value);
  }
  for (const auto& [name, value] : candidate) MESHWRIGHT_RETURN_IF_ERROR(Get(name).status());
  const bool has_mode =
      std::any_of(candidate.begin(), candidate.end(), [](const auto& knob) { return knob.first == "parallel_mode"; });
  Training any;  // what depends on the optimizer and the batch is for Parallel() to say
  any.optimizer.kind = OpKind::kAdamW;
  MESHWRIGHT_RETURN_IF_ERROR(WithoutPlace(ReadChecked(candidate, any, has_mode).status()));
  const absl::StatusOr<Context> process = ReadProcess(candidate);
  if (!process.ok()) return WithoutPlace(process.status());
  if (world_.has_value() && process->device_target != Process()->device_target) {
    return StateError("device_target: it stays as it was when init joined the job");
  }
  set_ = std::move(candidate);
  return absl::OkStatus();
}

const KnobValue* KnobContext::Find(absl::string_view knob) const {
  for (const auto& [name, value] : set_) {
    if (name == knob) return &value;
  }
  return nullptr;
}

absl::StatusOr<KnobValue> KnobContext::Get(absl::string_view knob) const {
  if (const KnobValue* const value = Find(knob); value != nullptr) return *value;
  absl::string_view fallback;
  if (const Knob* const row = FindKnob(knob); row != nullptr) {
    fallback = row->fallback;
  } else {
    const auto process = std::find_if(kProcessKnobs.begin(), kProcessKnobs.end(),
                                      [&](const ProcessKnob& row) { return row.name == knob; });
    if (process == kProcessKnobs.end()) {
      std::vector<absl::string_view> names;
      for (const Knob& row : ParallelKnobs()) names.push_back(row.name);
      for (const ProcessKnob& row : kProcessKnobs) names.push_back(row.name);
      return WithKind("E-VALUE", UnknownName(knob, names));
    }
    fallback = process->fallback;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const Document document, ParseDocument(absl::StrCat("{x: ", fallback, "}"), kName));
  return FromNode(document.root()["x"]);
}

void KnobContext::Reset() { set_.clear(); }

absl::StatusOr<int64_t> KnobContext::DeviceNum() const {
  if (const KnobValue* const value = Find("device_num"); value != nullptr) return std::get<int64_t>(value->value);
  if (world_.has_value()) return world_->second;
  return StateError("device_num: not set, and no init has said how many processes there are; set it, or call init");
}

absl::StatusOr<int64_t> KnobContext::GlobalRank() const {
  if (const KnobValue* const value = Find("global_rank"); value != nullptr) return std::get<int64_t>(value->value);
  if (world_.has_value()) return world_->first;
  return StateError("global_rank: not set, and no init has said which one this is; set it, or call init");
}

absl::StatusOr<Parallel> KnobContext::Parallel(const Training& training) const {
  absl::StatusOr<meshwright::Parallel> parallel = ReadChecked(set_, training, true);
  if (!parallel.ok()) return WithoutPlace(parallel.status());
  return parallel;
}

absl::StatusOr<Context> KnobContext::Process() const { return ReadProcess(set_); }

}  // namespace meshwright
