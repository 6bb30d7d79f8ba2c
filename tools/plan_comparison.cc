#include "tools/plan_comparison.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "ir/cluster.h"
#include "ir/status.h"
#include "tools/cluster_flags.h"
#include "tools/export/trainer_prediction.h"
#include "tools/numbers.h"
#include "tools/plan_report.h"
#include "tools/session.h"

namespace meshwright {
namespace {

constexpr size_t kNameWidth = 26, kValueWidth = 20;

// What a plan says, by key: "stages" -> "4". What stands below a key is its value, on one line.
using Sayings = std::vector<std::pair<std::string, std::string>>;

Sayings SayingsOf(const Plan& plan) {
  const Session& session = plan.session;
  Sayings sayings = {{"model", session.problem.name},
                     {"a step", ShowBatch(session.problem)},
                     {"cluster", ToYaml(session.problem.cluster)}};
  const std::string strategy = ToText(plan.strategy);
  for (const absl::string_view line : absl::StrSplit(strategy, '\n', absl::SkipWhitespace())) {
    const size_t colon = line.find(':');
    if (line[0] == ' ' || colon == absl::string_view::npos) {
      absl::StrAppend(&sayings.back().second, absl::StripAsciiWhitespace(line), " ");
      continue;
    }
    absl::string_view value = absl::StripAsciiWhitespace(line.substr(colon + 1));
    if (absl::ConsumePrefix(&value, "\"")) absl::ConsumeSuffix(&value, "\"");
    sayings.emplace_back(line.substr(0, colon), value);
  }
  return sayings;
}

const std::string* Find(const Sayings& sayings, absl::string_view name) {
  for (const auto& [key, value] : sayings) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::vector<Choice> Differences(const Sayings& a, const Sayings& b) {
  std::vector<Choice> choices;
  for (const auto& [name, value] : a) {
    const std::string* const other = Find(b, name);
    if (other == nullptr || *other != value) choices.push_back({name, {value, other == nullptr ? "-" : *other}});
  }
  for (const auto& [name, value] : b) {
    if (Find(a, name) == nullptr) choices.push_back({name, {"-", value}});
  }
  return choices;
}

std::string Row(absl::string_view name, absl::string_view a, absl::string_view b, absl::string_view delta = "") {
  const std::string line = absl::StrFormat("%-*s%-*s%-*s%s", kNameWidth, name, kValueWidth, a, kValueWidth, b, delta);
  return absl::StrCat(absl::StripTrailingAsciiWhitespace(line), "\n");
}

// On lines of their own where they do not fit side by side.
std::string ShowChoice(const Choice& choice) {
  const std::string name = absl::StrCat("  ", choice.name);
  const bool fits = std::all_of(choice.values.begin(), choice.values.end(),
                                [](const std::string& value) { return value.size() < kValueWidth; });
  if (fits) return Row(name, choice.values[0], choice.values[1]);
  constexpr size_t kWidth = 74;
  std::string text = name + "\n";
  for (std::string value : choice.values) {
    // Rules, by label: "b: dp v: tp".
    value = absl::StrReplaceAll(value, {{"- {label: ", ""}, {", axes: [", ": "}, {"]}", ""}});
    if (value.size() > kWidth) value = value.substr(0, kWidth - 3) + "...";
    absl::StrAppend(&text, "    ", absl::StripAsciiWhitespace(value), "\n");
  }
  return text;
}

std::string ShowChange(double from, double to) {
  return from > 0 ? absl::StrFormat("%+.1f %%", (to / from - 1) * 100) : "";
}

std::string ShowTimes(const Prediction& a, const Prediction& b) {
  std::string text;
  for (const TimeUseInfo& use : kTimeUses) {
    const Nanos from = a.time[use.use], to = b.time[use.use];
    if (from.raw() == 0 && to.raw() == 0) continue;
    const Nanos delta = to - from;
    const std::string change =
        delta.raw() == 0 ? "" : absl::StrCat(delta.raw() < 0 ? "-" : "+", ShowTime(Nanos(std::llabs(delta.raw()))));
    text += Row(absl::StrCat("  ", use.name), ShowTime(from), ShowTime(to), change);
  }
  return text;
}

// By name: the roles of buffers, and what is outside the arena.
std::vector<std::pair<std::string, Bytes>> MemoryOf(const Prediction& p) {
  std::vector<std::pair<std::string, Bytes>> rows;
  for (size_t role = 0; role < kNumRoles; ++role) {
    rows.emplace_back(NameOf(static_cast<BufferRole>(role)), p.memory[role]);
  }
  rows.insert(rows.end(), p.outside.begin(), p.outside.end());
  rows.emplace_back("free", p.capacity - p.peak);
  return rows;
}

std::string ShowMemory(const Prediction& a, const Prediction& b) {
  std::string text;
  const auto of_a = MemoryOf(a), of_b = MemoryOf(b);
  std::vector<std::string> names;
  for (const auto* rows : {&of_a, &of_b}) {
    for (const auto& [name, bytes] : *rows) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  const auto find = [](const auto& rows, const std::string& name) {
    for (const auto& [key, bytes] : rows) {
      if (key == name) return bytes;
    }
    return Bytes(0);
  };
  const auto show = [](Bytes bytes) {
    return bytes < Bytes(0) ? absl::StrCat("-", ShowBytes(Bytes(-bytes.raw()))) : ShowBytes(bytes);
  };
  for (const std::string& name : names) {
    const Bytes from = find(of_a, name), to = find(of_b, name);
    if (from == Bytes(0) && to == Bytes(0)) continue;
    const Bytes delta = to - from;
    const std::string change = delta == Bytes(0) ? "" : absl::StrCat(delta < Bytes(0) ? "" : "+", show(delta));
    text += Row(absl::StrCat("  ", name), show(from), show(to), change);
  }
  return text;
}

}  // namespace

absl::StatusOr<PlanComparison> ComparePlans(const std::array<std::string, 2>& files, const Plan& a, const Plan& b) {
  PlanComparison comparison{.files = files, .predictions = {}, .choices = Differences(SayingsOf(a), SayingsOf(b))};
  const std::array<const Plan*, 2> plans = {&a, &b};
  const std::string &of_a = a.promise.trainer, &of_b = b.promise.trainer;
  for (const Trainer& trainer : kTrainers) {
    if (of_a == of_b && trainer.name == of_a) comparison.trainer = &trainer;
  }
  if (of_a != of_b) {
    const auto whose = [](const std::string& trainer) { return trainer.empty() ? "no trainer" : trainer; };
    comparison.note = absl::StrCat("A is planned for ", whose(of_a), ", B for ", whose(of_b),
                                   ":\nboth are compared as our own program runs them");
  }
  for (size_t i = 0; i < plans.size(); ++i) {
    if (comparison.trainer != nullptr) {
      MESHWRIGHT_ASSIGN_OR_RETURN(TrainerPrediction under, PredictUnder(*comparison.trainer, *plans[i]));
      comparison.predictions[i] = std::move(under.prediction);
      continue;
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(Evaluation evaluation, Evaluate(plans[i]->session.problem, plans[i]->strategy));
    comparison.predictions[i] = std::move(evaluation.prediction);
  }
  return comparison;
}

std::string ToText(const PlanComparison& comparison) {
  const auto& [a, b] = comparison.predictions;
  std::string text = comparison.note.empty() ? "" : absl::StrCat(comparison.note, "\n");
  if (comparison.trainer != nullptr) absl::StrAppend(&text, "as ", comparison.trainer->title, " runs them\n");
  text += Row("", "A", "B", "B - A");
  absl::StrAppend(&text,
                  Row("step", ShowTime(a.step), ShowTime(b.step), ShowChange(ToSeconds(a.step), ToSeconds(b.step))),
                  Row("work a second", ShowLarge(a.tokens_per_second), ShowLarge(b.tokens_per_second),
                      ShowChange(a.tokens_per_second, b.tokens_per_second)),
                  Row("MFU", ShowPercent(a.mfu), ShowPercent(b.mfu)),
                  Row("peak memory", ShowBytes(a.peak), ShowBytes(b.peak),
                      ShowChange(static_cast<double>(a.peak.raw()), static_cast<double>(b.peak.raw()))));
  absl::StrAppend(&text, comparison.choices.empty() ? "\nthey choose the same\n" : "\nwhat they choose differently\n");
  for (const Choice& choice : comparison.choices) text += ShowChoice(choice);
  absl::StrAppend(&text, "\ntime of the stage that ends last: ", a.critical_class, " of A, ", b.critical_class,
                  " of B\n", ShowTimes(a, b), "\nmemory of the fullest stage: ", a.fullest_class, " of A, ",
                  b.fullest_class, " of B\n", ShowMemory(a, b), "\nA: ", comparison.files[0],
                  "\nB: ", comparison.files[1], "\n");
  return text;
}

Json ToJson(const PlanComparison& comparison) {
  Json out;
  out["schema"] = "meshwright/plan_comparison/1";
  if (comparison.trainer != nullptr) out["trainer"] = std::string(comparison.trainer->name);
  Json plans = Json::array();
  for (size_t i = 0; i < comparison.files.size(); ++i) {
    plans.push_back(Json{{"file", comparison.files[i]}, {"predicted", ToJson(comparison.predictions[i])}});
  }
  out["plans"] = std::move(plans);
  Json choices = Json::array();
  for (const Choice& choice : comparison.choices) {
    choices.push_back(Json{{"name", choice.name}, {"values", {choice.values[0], choice.values[1]}}});
  }
  out["choices"] = std::move(choices);
  return out;
}

}  // namespace meshwright
