#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ir/cluster.h"
#include "tools/numbers.h"
#include "tools/plan_facts.h"
#include "tools/plan_file.h"
#include "tools/plan_report.h"
#include "tools/track_record.h"

namespace meshwright {
namespace {

constexpr size_t kColumns = 80;

// `words` after `head`, wrapped, the further lines indented.
std::string Wrapped(const std::string& head, const std::vector<std::string>& parts) {
  std::string text, line = head;
  const size_t indent = head.size() - head.find_first_not_of(' ') > 12 ? 2 : head.size();
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part = absl::StrCat(parts[i], i + 1 < parts.size() ? "," : "");
    const bool first = line.size() == head.size() && text.empty() && i == 0;
    if (!first && line.size() + 1 + part.size() > kColumns) {
      absl::StrAppend(&text, line, "\n");
      line.assign(indent, ' ');
      absl::StrAppend(&line, part);
      continue;
    }
    absl::StrAppend(&line, first || line.empty() ? "" : " ", part);
  }
  return absl::StrCat(text, line, "\n");
}

// A paragraph, indented by two.
std::string WrappedWords(const std::string& words) {
  std::string text, line = " ";
  for (const absl::string_view word : absl::StrSplit(words, ' ')) {
    if (line.size() + 1 + word.size() > kColumns) {
      absl::StrAppend(&text, line, "\n");
      line = " ";
    }
    absl::StrAppend(&line, " ", word);
  }
  return absl::StrCat(text, line, "\n");
}

std::string Bar(double share) {
  const double cells = std::clamp(share, 0.0, 1.0) * 24;
  return std::string(static_cast<size_t>(cells + 0.5), '#');
}

std::string WithoutTrailingSpaces(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      while (!out.empty() && out.back() == ' ') out.pop_back();
    }
    out.push_back(c);
  }
  return out;
}

// --- the chosen strategy ---------------------------------------------------------------------------------------------

// Choices that every strategy has.
std::vector<std::string> Choices(const Candidate& candidate) {
  const Strategy& strategy = candidate.strategy;
  std::vector<std::string> parts;
  const bool pipeline = strategy.stages > 1;
  parts.push_back(
      absl::StrCat(ShowCount(strategy.microbatches), strategy.microbatches == 1 ? " micro-batch" : " micro-batches"));
  if (pipeline) parts.push_back(absl::StrCat("schedule ", NameOf(strategy.schedule)));
  if (strategy.chunks > 1) parts.push_back(absl::StrCat(strategy.chunks, " chunks a stage"));
  parts.push_back(absl::StrCat("recompute ", NameOf(strategy.recompute)));
  if (const size_t again = strategy.recompute_ops.size(); again > 0) {
    parts.push_back(absl::StrCat(again, again == 1 ? " operator" : " operators", " run again in backward"));
  }
  parts.push_back(absl::StrCat(strategy.parallel_optimizer ? "" : "no ", "parallel optimizer",
                               strategy.shard_parameters ? ", parameters split" : "",
                               GroupOf(candidate) > 1 ? absl::StrCat(" over groups of ", GroupOf(candidate)) : "",
                               strategy.gradient_accumulation_shard ? ", gradients accumulated as rows" : ""));
  parts.push_back(strategy.bucket.raw() == 0      ? "no fusion of gradients"
                  : strategy.bucket >= kOneBucket ? "all gradients in one call"
                                                  : absl::StrCat("buckets of ", ShowBytes(strategy.bucket)));
  parts.push_back(absl::StrCat("gradients in ", NameOf(strategy.gradient_dtype)));
  return parts;
}

std::vector<std::string> DegreeParts(const Candidate& candidate) {
  const Degrees& d = candidate.degrees;
  std::vector<std::string> parts = {absl::StrCat("data ", d.data, " x tensor ", d.tensor, " x pipeline ", d.pipeline)};
  if (d.context > 1) {
    absl::StrAppend(&parts[0], " x context ", d.context, " (",
                    d.exchange == ContextExchange::kRing ? "ring" : "keys gathered", ")");
  }
  if (d.expert > 1 || d.spread_experts) {
    parts.push_back(
        absl::StrCat("experts over ", d.expert, " of data", d.expert_context() > 1 ? " x context" : "",
                     d.spread_experts ? " x tensor" : "",
                     d.expert_groups > 1 ? absl::StrCat(", tokens once to each of ", d.expert_groups) : ""));
  }
  if (d.sequence_parallel) parts.push_back("sequence parallel");
  parts.push_back(absl::StrCat("micro-batch ", d.microbatch));
  return parts;
}

// Of many parts those that are alike beside each other as one: "45 x 1", "2", "1", "0".
std::vector<std::string> LayersOfParts(const std::vector<int64_t>& layers) {
  constexpr size_t kFew = 16;
  std::vector<std::string> parts;
  for (size_t i = 0; i < layers.size();) {
    size_t end = i + 1;
    while (layers.size() > kFew && end < layers.size() && layers[end] == layers[i]) ++end;
    parts.push_back(end - i == 1 ? absl::StrCat(layers[i]) : absl::StrCat(end - i, " x ", layers[i]));
    i = end;
  }
  return parts;
}

std::string ShowStrategy(const PlanReport& report) {
  const Candidate& best = Best(report);
  std::vector<std::string> parts;
  if (report.operators.empty()) parts = DegreeParts(best);
  for (std::string& part : Choices(best)) parts.push_back(std::move(part));
  const Session& session = *report.session;
  if (session.file->training.float8_parameters) parts.push_back("parameters in float8");
  if (const int bits = session.problem.cluster.device.kernels.product_bits; bits > 0) {
    parts.push_back(absl::StrCat("products in float", bits));
  }
  std::string text = Wrapped("plan: ", parts);
  if (!best.strategy.layers_per_stage.empty()) {
    const absl::string_view of = best.strategy.chunks > 1 ? "chunk" : "stage";
    text += Wrapped(absl::StrCat("      layers per ", of, " "), LayersOfParts(best.strategy.layers_per_stage));
  }
  if (report.operators.empty()) return text;
  absl::StrAppend(&text, "\n", absl::StrFormat("  %-22s %-18s %s\n", "operator", "kind", "pieces of each input"));
  for (const OperatorRow& row : report.operators.front()) {
    absl::StrAppend(&text, absl::StrFormat("  %-22s %-18s %s\n", row.name, row.kind, ShowTuples(row.in_strategy)));
  }
  return text;
}

// --- why -------------------------------------------------------------------------------------------------------------

std::string ShowTrackRecord(const PlanReport& report) {
  const TrackRecord* const record = RecordOf(report);
  if (record == nullptr) return "";
  const Prediction& like = LikeARun(report);
  const double seconds = ToSeconds(like.step);
  std::string text;
  if (report.usual.has_value()) {
    text = absl::StrCat(UsualTrainer(*report.session).title, " would take ", ShowTime(like.step), " and ",
                        ShowBytes(like.peak), like.fits() ? "" : ", which does not fit",
                        " (--trainer plans for it and others); ");
  }
  return WrappedWords(absl::StrFormat(
      "%sof %d published runs like it (%s), predicted with their frameworks' habits%s, eight in ten took %.2f "
      "to %.2f times that: %s to %s",
      text, record->runs, record->name, report.trainer == nullptr ? "" : " as here", record->low, record->high,
      ShowSeconds(record->low * seconds), ShowSeconds(record->high * seconds)));
}

std::string ShowRun(const PlanReport& report) {
  const double run = RunSeconds(report);
  if (run == 0) return "";
  const int64_t devices = Best(report).strategy.mesh.num_ranks() + report.session->idle_devices;
  const double hours = run / 3600 * static_cast<double>(devices);
  const bool rows = report.session->problem.tokens_per_row == 1;
  std::string text = absl::StrCat(
      ShowLarge(report.tokens), rows ? " rows take " : " tokens take ", ShowSeconds(run),
      report.at_slowest.has_value() || report.trainer != nullptr ? " at the pace of the slowest" : "", ", ",
      ShowLarge(hours), report.session->idle_devices > 0 ? " device-hours, idle ones too" : " device-hours");
  if (const auto& price = report.session->problem.cluster.price; price.has_value()) {
    absl::StrAppend(&text, ", ", ShowDollars(hours * price->dollars_per_hour), " at ",
                    ShowDollars(price->dollars_per_hour), " an hour");
  }
  return WrappedWords(absl::StrCat(text, "; `whatif` adds failures and checkpoints"));
}

// Of a step, what is worth a line.
constexpr double kSeen = 0.01;

std::string ShowSpeed(const PlanReport& report) {
  const Candidate& best = Best(report);
  const Prediction& p = best.prediction;
  const double ranks = static_cast<double>(best.strategy.mesh.num_ranks());
  const double seconds = ToSeconds(p.step);
  const bool rows = report.session->problem.tokens_per_row == 1;
  std::string text = report.trainer == nullptr ? "" : absl::StrCat("as ", report.trainer->title, " runs it:\n");
  absl::StrAppendFormat(&text, "step %s, %s %s/s, MFU %s\n", ShowTime(p.step), ShowLarge(p.tokens_per_second),
                        rows ? "rows" : "tokens", ShowPercent(p.mfu));
  absl::StrAppend(&text, "  a device: ", ShowLarge(p.tokens_per_second / ranks), rows ? " rows" : " tokens", "/s, ",
                  absl::StrFormat("%.4g TFLOP/s\n", p.mfu * p.peak_flops.raw() / 1e12));
  absl::StrAppend(
      &text, "  MFU = model FLOPs / (step time x devices x dense peak)\n",
      absl::StrFormat("      = %.4g / (%.4g s x %s x %.4g TFLOP/s)\n", p.mfu * seconds * ranks * p.peak_flops.raw(),
                      seconds, ShowCount(best.strategy.mesh.num_ranks()), p.peak_flops.raw() / 1e12),
      "  model FLOPs: products and attention, its masked half too, forward and twice\n"
      "  that backward",
      report.num_trainable < report.num_parameters
          ? ", once where the weight is frozen; what is recomputed does not\n  count\n"
          : "; what is recomputed does not count\n");
  if (report.trainer != nullptr && ranks > 1)
    absl::StrAppend(&text, "  all at the pace of the slowest of ", ShowCount(best.strategy.mesh.num_ranks()),
                    " devices\n");
  if (report.cpu_share >= kSeen) {
    absl::StrAppend(&text, "  CPUs that issue kernels hold up ", ShowPercent(report.cpu_share),
                    " of the step; `cpu_slowdown`\n  says how slow yours are\n");
  }
  if (report.at_slowest.has_value()) {
    absl::StrAppend(&text, "  at the pace of the slowest of ", ShowCount(best.strategy.mesh.num_ranks()),
                    " devices: ", ShowTime(report.at_slowest->step), ", MFU ", ShowPercent(report.at_slowest->mfu),
                    "\n");
  }
  return absl::StrCat(text, ShowTrackRecord(report), ShowRun(report));
}

std::string ShowTimes(const Prediction& p) {
  std::string text = absl::StrCat("time of stage ", p.critical_class, ", which ends last\n");
  for (const TimeUseInfo& row : kTimeUses) {
    const Nanos time = p.time[row.use];
    if (time.raw() == 0) continue;
    const double share = ToSeconds(time) / ToSeconds(p.step);
    absl::StrAppend(
        &text, absl::StrFormat("  %-24s %10s %8s  %s\n", row.name, ShowTime(time), ShowPercent(share), Bar(share)));
  }
  return text;
}

std::string ShowMemory(const Prediction& p) {
  const double capacity = static_cast<double>(p.capacity.raw());
  std::string text = absl::StrCat("memory of stage ", p.fullest_class, ", the fullest: ", ShowBytes(p.peak), " of ",
                                  ShowBytes(p.capacity), "\n");
  const auto add = [&](absl::string_view name, Bytes bytes) {
    if (bytes.raw() == 0) return;
    const double share = static_cast<double>(bytes.raw()) / capacity;
    absl::StrAppend(&text,
                    absl::StrFormat("  %-24s %10s %8s  %s\n", name, ShowBytes(bytes), ShowPercent(share), Bar(share)));
  };
  for (size_t role = 0; role < kNumRoles; ++role) add(NameOf(static_cast<BufferRole>(role)), p.memory[role]);
  for (const auto& [name, bytes] : p.outside) add(name, bytes);
  add("free", std::max(Bytes(0), p.capacity - p.peak));
  return text;
}

// The median error of published peaks is 10.8 % (README.md, "How far to trust a prediction"): whoever has less than
// that free may run out. REQUIRES: `ranked` is not empty.
std::string ShowTightness(const std::vector<Candidate>& ranked) {
  constexpr double kUsualError = 0.1;
  const auto free = [](const Prediction& p) { return static_cast<double>((p.capacity - p.peak).raw()); };
  const auto is_tight = [&](const Candidate& c) {
    return free(c.prediction) < kUsualError * static_cast<double>(c.prediction.capacity.raw());
  };
  const Prediction& best = ranked[0].prediction;
  if (!is_tight(ranked[0])) return "";
  std::string text =
      absl::StrFormat("less than %.0f %% is free, by which about half of the predictions of published peaks were off;",
                      kUsualError * 100);
  const auto roomy = std::find_if_not(ranked.begin(), ranked.end(), is_tight);
  if (roomy == ranked.end()) return WrappedWords(absl::StrCat(text, " a smaller --memory makes a plan with room"));
  const Prediction& p = roomy->prediction;
  return WrappedWords(absl::StrFormat("%s row %d below leaves %s and takes %.2f %% longer", text,
                                      roomy - ranked.begin() + 1, ShowBytes(p.capacity - p.peak),
                                      (ToSeconds(p.step) / ToSeconds(best.step) - 1) * 100));
}

// --- the others ------------------------------------------------------------------------------------------------------

// The uses of time in which two predictions differ most: "recompute +2.1 s, pipeline bubble -0.8 s".
std::string Difference(const Prediction& from, const Prediction& to) {
  struct Row {
    absl::string_view name;
    Nanos delta;
  };
  std::vector<Row> rows;
  for (const TimeUseInfo& use : kTimeUses) rows.push_back({use.name, to.time[use.use] - from.time[use.use]});
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return std::llabs(a.delta.raw()) > std::llabs(b.delta.raw()); });
  std::vector<std::string> parts;
  for (const Row& row : rows) {
    if (row.delta.raw() == 0 || parts.size() == 2) break;
    const Nanos size(std::llabs(row.delta.raw()));
    parts.push_back(absl::StrCat(row.name, row.delta.raw() > 0 ? " +" : " -", ShowTime(size)));
  }
  return absl::StrJoin(parts, ", ");
}

std::string DifferentOperators(const std::vector<OperatorRow>& best, const std::vector<OperatorRow>& other) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(best.size(), other.size()); ++i) {
    if (best[i] == other[i]) continue;
    if (parts.size() == 2) {
      parts.push_back("...");
      break;
    }
    parts.push_back(absl::StrCat(other[i].name, " ", ShowTuples(other[i].in_strategy)));
  }
  return absl::StrJoin(parts, ", ");
}

std::string Cut(std::string line) {
  if (line.size() > kColumns) line = line.substr(0, kColumns - 3) + "...";
  return line + "\n";
}

std::string ShowRanking(const PlanReport& report) {
  const std::vector<Candidate>& ranked = report.result.ranked;
  const bool decoder = report.operators.empty();
  std::string text = absl::StrCat("the best ", ranked.size(), " of ", ShowCount(report.result.considered), "\n");
  absl::StrAppend(&text, absl::StrFormat("  %9s %7s %9s", "step", "MFU", "memory"));
  const bool shared =
      std::any_of(ranked.begin(), ranked.end(), [](const Candidate& c) { return c.degrees.context > 1; });
  const bool experts = std::any_of(ranked.begin(), ranked.end(),
                                   [](const Candidate& c) { return c.degrees.expert > 1 || c.degrees.spread_experts; });
  const bool interleaved =
      std::any_of(ranked.begin(), ranked.end(), [](const Candidate& c) { return c.strategy.chunks > 1; });
  const bool schedules = std::any_of(ranked.begin(), ranked.end(), [&](const Candidate& c) {
    return c.strategy.stages > 1 && c.strategy.schedule != ranked[0].strategy.schedule;
  });
  const bool grouped = std::any_of(ranked.begin(), ranked.end(), [](const Candidate& c) { return GroupOf(c) > 1; });
  if (decoder) {
    absl::StrAppend(&text, "   dp  tp  pp", interleaved ? " vpp" : "", shared ? "   cp" : "", experts ? "  ep" : "",
                    "  mb recompute sp  opt ", grouped ? "   of " : "", " bucket", schedules ? "  schedule" : "");
  }
  text += "\n";
  for (size_t i = 0; i < ranked.size(); ++i) {
    const Candidate& c = ranked[i];
    const Prediction& p = c.prediction;
    absl::StrAppend(&text,
                    absl::StrFormat("%-2d%9s %7s %9s", i + 1, ShowTime(p.step), ShowPercent(p.mfu), ShowBytes(p.peak)));
    if (decoder) {
      const Degrees& d = c.degrees;
      const Strategy& s = c.strategy;
      // Of context parallelism, how the ranks come by the keys: gathered, or handed round.
      const char* const way = d.context == 1 ? " " : d.exchange == ContextExchange::kRing ? "r" : "g";
      const std::string context = shared ? absl::StrFormat(" %3d%s", d.context, way) : "";
      // How tokens come to experts stands between their ranks and the micro-batch.
      const char* const sent = d.spread_experts ? "t" : d.expert_groups > 1 ? "g" : " ";
      const std::string expert = absl::StrCat(experts ? absl::StrFormat(" %3d", d.expert) : "", sent);
      const std::string chunks = interleaved ? absl::StrFormat(" %3d", s.chunks) : "";
      const std::string group =
          grouped ? absl::StrFormat("%5s ", GroupOf(c) > 1 ? absl::StrCat(GroupOf(c)) : "all") : "";
      const std::string schedule = schedules && s.stages > 1 ? absl::StrCat(" ", NameOf(s.schedule)) : "";
      absl::StrAppend(
          &text,
          absl::StrFormat(" %4d %3d %3d%s%s%s%3d %-9s %-3s %-3s %s%s", d.data, d.tensor, d.pipeline, chunks, context,
                          expert, d.microbatch, NameOf(s.recompute), d.sequence_parallel ? "yes" : "no",
                          s.shard_parameters     ? "all"
                          : s.parallel_optimizer ? "yes"
                                                 : "no",
                          group, ShowBytes(s.bucket)),
          schedule);
    }
    text += "\n";
    if (i == 0) continue;
    const Prediction& best = ranked[0].prediction;
    std::string why =
        absl::StrFormat("    +%.2f %%: %s", (ToSeconds(p.step) / ToSeconds(best.step) - 1) * 100, Difference(best, p));
    if (!decoder) {
      const std::string ops = DifferentOperators(report.operators[0], report.operators[i]);
      if (!ops.empty()) absl::StrAppend(&why, "; ", ops);
    }
    text += Cut(std::move(why));
  }
  if (decoder) {
    text +=
        "mb: sequences of a micro-batch; sp: sequence parallel; opt: over replicas are\n"
        "    split the optimizer's state (yes, ZeRO-1), parameters too (all, ZeRO-3)\n";
  }
  if (grouped) text += "of: ranks that share what the optimizer splits; other groups of them have copies\n";
  if (interleaved) text += "vpp: chunks of a stage's layers (interleaved pipeline)\n";
  if (shared) text += "cp: ranks that share a sequence; keys and values gathered (g) or handed round (r)\n";
  if (experts) {
    text +=
        "ep: data- or context-parallel ranks that share the experts, with those of tensor\n"
        "    parallelism (t); tokens sent once to each group of experts (g)\n";
  }
  return text;
}

std::string ShowSearch(const SearchResult& result) {
  std::string text = absl::StrFormat("search: %s considered, %s simulated, %.2f s\n", ShowCount(result.considered),
                                     ShowCount(result.simulated), result.seconds);
  for (const auto& [reason, count] : result.pruned) {
    absl::StrAppend(&text, Cut(absl::StrFormat("  %10s pruned: %s", ShowCount(count), reason)));
  }
  if (!result.not_tried.empty()) absl::StrAppend(&text, WrappedWords("not tried: " + result.not_tried));
  if (!result.guarantee.empty()) absl::StrAppend(&text, WrappedWords(result.guarantee));
  return text;
}

}  // namespace

std::string ToText(const PlanReport& report) {
  const Problem& problem = report.session->problem;
  const Prediction& prediction = Best(report).prediction;
  std::string text = absl::StrCat(problem.name, ": ", ShowCount(report.num_parameters), " parameters, ",
                                  ShowBatch(problem), " a step\n");
  if (const int64_t active = ActiveParameters(report); active < report.num_parameters) {
    absl::StrAppend(&text, ShowCount(active), " of the parameters are active for a token\n");
  }
  if (const std::optional<Lora>& lora = report.session->file->training.lora; lora.has_value()) {
    absl::StrAppend(&text, ShowCount(report.num_trainable), " parameters train: LoRA of rank ", lora->rank, "\n");
  }
  std::vector<std::string> cluster = absl::StrSplit(ToText(problem.cluster), ", ");
  if (const int64_t idle = report.session->idle_devices; idle > 0) {
    cluster.push_back(absl::StrCat(ShowCount(idle), " more are idle"));
  }
  absl::StrAppend(&text, Wrapped("", cluster));
  absl::StrAppend(&text, ShowStrategy(report), "\n", ShowSpeed(report), "\n", ShowTimes(prediction), "\n",
                  ShowMemory(prediction), ShowTightness(report.result.ranked), "\n", ShowRanking(report), "\n",
                  ShowSearch(report.result));
  const std::vector<std::string> estimates = Estimates(problem.cluster);
  if (!estimates.empty()) absl::StrAppend(&text, "\n", Wrapped("estimated, not measured: ", estimates));
  return WithoutTrailingSpaces(std::move(text));
}

}  // namespace meshwright
