#include "tools/trace_comparison.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ir/status.h"
#include "tools/numbers.h"

namespace meshwright {
namespace {

using Key = std::tuple<int64_t, uint32_t, int32_t, int32_t>;  // stage, slot, layer, instruction

struct Sample {
  std::vector<Nanos> times;  // one per rank
  const NamedTrace::Name* name = nullptr;
  Stream stream = Stream::kCompute;
  Nanos library;
};

std::string Text(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// ParseChromeJson has checked that the numbers are integers.
int64_t Number(const Json& object, const char* key) { return object.at(key).get<int64_t>(); }

// The first rank of every stage: a simulated trace has no others.
std::vector<int64_t> FirstRanks(const Trace& simulated) {
  std::set<int64_t> ranks;
  for (const Span& span : simulated.spans) ranks.insert(span.rank);
  return {ranks.begin(), ranks.end()};
}

int64_t StageOf(int64_t rank, const std::vector<int64_t>& first_ranks) {
  return std::upper_bound(first_ranks.begin(), first_ranks.end(), rank) - first_ranks.begin() - 1;
}

std::map<Key, Sample> SamplesOf(const NamedTrace& trace, const std::vector<int64_t>& first_ranks) {
  std::map<Key, Sample> samples;
  for (const Span& span : trace.trace.spans) {
    if (span.instruction < 0) continue;
    Sample& sample = samples[{StageOf(span.rank, first_ranks), span.slot, span.layer, span.instruction}];
    sample.times.push_back(span.end - span.begin);
    sample.stream = span.stream;
    sample.library = std::max(sample.library, span.estimate);
    const auto name = trace.names.find({span.rank, span.slot, span.layer, span.instruction});
    if (name != trace.names.end()) sample.name = &name->second;
  }
  return samples;
}

bool Communicates(absl::string_view name) {
  for (const absl::string_view kind :
       {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "permute", "send", "receive"}) {
    if (name == kind) return true;
  }
  return false;
}

Nanos TimeOf(Sample sample, bool communicates) {
  std::sort(sample.times.begin(), sample.times.end());
  return communicates ? sample.times.front() : sample.times[sample.times.size() / 2];
}

absl::Status CheckTrace(const NamedTrace& trace, absl::string_view source) {
  if (trace.trace.source != source) {
    return absl::InvalidArgumentError(
        absl::StrCat("found a ", trace.trace.source, " trace, wanted a ", source, " one; compare SIM.json RUN.json"));
  }
  const bool slots = std::any_of(trace.trace.spans.begin(), trace.trace.spans.end(),
                                 [](const Span& span) { return span.instruction < 0; });
  if (trace.trace.spans.empty() || slots) {
    return absl::InvalidArgumentError(absl::StrCat("the ", source, " trace has ", slots ? "slots" : "nothing",
                                                   ", wanted instructions; trace again with --detail=instructions"));
  }
  return absl::OkStatus();
}

std::string Percent(Nanos from, Nanos to) {
  if (from.raw() == 0) return "";
  return absl::StrFormat("%+.0f %%", (ToSeconds(to) / ToSeconds(from) - 1) * 100);
}

std::string Signed(Nanos time) {
  return absl::StrCat(time.raw() < 0 ? "-" : "+", ShowTime(Nanos(std::llabs(time.raw()))));
}

std::string Short(std::string text, size_t width) {
  if (text.size() > width) text = absl::StrCat("...", text.substr(text.size() - (width - 3)));
  return text;
}

}  // namespace

absl::StatusOr<NamedTrace> ParseNamedTrace(const std::string& json, absl::string_view file_name) {
  NamedTrace named;
  absl::StatusOr<Trace> trace = ParseChromeJson(json);
  if (!trace.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(file_name, ": ", trace.status().message()));
  }
  named.trace = *std::move(trace);
  const Json root = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  named.program = Text(root["otherData"], "program");
  for (const Json& event : root["traceEvents"]) {
    if (Text(event, "ph") != "X") continue;
    const Json& args = event.at("args");
    if (!args.contains("instruction")) continue;  // a whole slot
    named.names[{Number(event, "pid"), static_cast<uint32_t>(Number(args, "slot")),
                 static_cast<int32_t>(Number(args, "layer")), static_cast<int32_t>(Number(args, "instruction"))}] = {
        Text(event, "name"), Text(event, "cat"), Text(args, "origin")};
  }
  return named;
}

absl::StatusOr<Comparison> Compare(const NamedTrace& simulated, const NamedTrace& measured) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckTrace(simulated, "simulated"));
  MESHWRIGHT_RETURN_IF_ERROR(CheckTrace(measured, "measured"));
  if (simulated.program != measured.program) {
    return absl::InvalidArgumentError(
        absl::StrCat("found traces of ", simulated.program, " and ", measured.program, ", wanted two of one program"));
  }
  Comparison comparison;
  comparison.program = simulated.program;
  comparison.simulated_step = simulated.trace.makespan;
  comparison.measured_step = measured.trace.makespan;
  const std::vector<int64_t> first_ranks = FirstRanks(simulated.trace);
  const std::map<Key, Sample> predicted = SamplesOf(simulated, first_ranks);
  const std::map<Key, Sample> seen = SamplesOf(measured, first_ranks);

  using RowKey = std::tuple<int64_t, std::string, std::string, std::string, Stream>;
  std::map<RowKey, ComparedRow> rows;
  const NamedTrace::Name unknown{"unknown", "unknown", ""};
  for (const auto& [key, sample] : predicted) {
    const auto other = seen.find(key);
    const NamedTrace::Name& name = sample.name == nullptr ? unknown : *sample.name;
    const bool same = other != seen.end() && other->second.name != nullptr && other->second.name->name == name.name &&
                      other->second.name->origin == name.origin;
    if (!same) {
      ++comparison.only_simulated;
      comparison.only_measured += other != seen.end() ? 1 : 0;
      continue;
    }
    ++comparison.joined;
    const int64_t stage = std::get<0>(key);
    ComparedRow& row = rows[{stage, name.name, name.category, name.origin, sample.stream}];
    row.stage = stage;
    row.name = name.name;
    row.category = name.category;
    row.origin = name.origin;
    ++row.instructions;
    row.simulated += TimeOf(sample, false);
    row.measured += TimeOf(other->second, Communicates(name.name));
    row.library += other->second.library;
  }
  for (const auto& [key, sample] : seen) comparison.only_measured += predicted.count(key) == 0 ? 1 : 0;
  for (auto& [key, row] : rows) comparison.rows.push_back(std::move(row));
  std::stable_sort(comparison.rows.begin(), comparison.rows.end(), [](const ComparedRow& a, const ComparedRow& b) {
    return std::llabs(a.difference().raw()) > std::llabs(b.difference().raw());
  });
  return comparison;
}

std::string ToText(const Comparison& c, size_t worst) {
  std::string text = absl::StrFormat("%s: step %s predicted, %s measured (%s)\n", c.program, ShowTime(c.simulated_step),
                                     ShowTime(c.measured_step), Percent(c.simulated_step, c.measured_step));
  absl::StrAppend(&text, ShowCount(c.joined), " instructions joined, ", ShowCount(c.only_simulated),
                  " predicted only, ", ShowCount(c.only_measured), " measured only\n\n");

  std::map<std::string, ComparedRow> sums;
  for (const ComparedRow& row : c.rows) {
    ComparedRow& sum = sums[absl::StrCat(Communicates(row.name) ? "communication: " : "kernels: ", row.category)];
    sum.instructions += row.instructions;
    sum.simulated += row.simulated;
    sum.measured += row.measured;
    sum.library += row.library;
  }
  // A column of its own where the library was asked.
  const bool asked =
      std::any_of(c.rows.begin(), c.rows.end(), [](const ComparedRow& row) { return row.library > Nanos(0); });
  const auto library = [asked](const ComparedRow& row) {
    return !asked ? "" : absl::StrFormat(" %10s", row.library > Nanos(0) ? ShowTime(row.library) : "");
  };
  const std::string title = asked ? absl::StrFormat(" %10s", "NCCL's own") : "";
  absl::StrAppend(&text, absl::StrFormat("  %-30s %6s %10s %10s %10s%s\n", "all stages", "number", "predicted",
                                         "measured", "of it", title));
  for (const auto& [name, sum] : sums) {
    absl::StrAppend(&text,
                    absl::StrFormat("  %-30s %6d %10s %10s %10s%s\n", name, sum.instructions, ShowTime(sum.simulated),
                                    ShowTime(sum.measured), Percent(sum.simulated, sum.measured), library(sum)));
  }
  const size_t shown = std::min(worst, c.rows.size());
  absl::StrAppend(&text, "\nthe ", shown, " that differ most, of ", c.rows.size(), "\n",
                  absl::StrFormat("  %-2s %-32s %5s %10s %10s %11s%s\n", "st", "instruction", "times", "predicted",
                                  "measured", "difference", title));
  for (size_t i = 0; i < shown; ++i) {
    const ComparedRow& row = c.rows[i];
    const std::string name =
        absl::StrCat(row.name, row.origin.empty() ? "" : " ", row.origin, row.category == "recompute" ? ", again" : "");
    absl::StrAppend(&text, absl::StrFormat("  %-2d %-32s %5d %10s %10s %11s%s\n", row.stage, Short(name, 32),
                                           row.instructions, ShowTime(row.simulated), ShowTime(row.measured),
                                           Signed(row.difference()), library(row)));
  }
  return text;
}

Json ToJson(const Comparison& c) {
  Json out;
  out["schema"] = "meshwright/comparison/1";
  out["program"] = c.program;
  out["simulated_step_s"] = JsonSeconds(c.simulated_step);
  out["measured_step_s"] = JsonSeconds(c.measured_step);
  out["joined"] = c.joined;
  out["only_simulated"] = c.only_simulated;
  out["only_measured"] = c.only_measured;
  Json rows = Json::array();
  for (const ComparedRow& row : c.rows) {
    Json& json = rows.emplace_back(Json{{"stage", row.stage},
                                        {"name", row.name},
                                        {"category", row.category},
                                        {"origin", row.origin},
                                        {"instructions", row.instructions},
                                        {"simulated_s", JsonSeconds(row.simulated)},
                                        {"measured_s", JsonSeconds(row.measured)}});
    if (row.library > Nanos(0)) json["library_s"] = JsonSeconds(row.library);
  }
  out["rows"] = std::move(rows);
  return out;
}

}  // namespace meshwright
