#include "tools/step_log.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "ir/status.h"
#include "ir/text.h"
#include "tools/export/cpu_pace.h"
#include "tools/export/trainer_prediction.h"
#include "tools/numbers.h"

namespace meshwright {
namespace {

enum class LogUnit : uint8_t { kSeconds, kMilliseconds, kTokensPerSecondOfADevice, kRowsPerSecond };

// The number stands behind `phrase`, that of the global batch on the same line behind `batch`.
struct LogFormat {
  absl::string_view trainer;
  absl::string_view phrase;
  LogUnit unit;
  absl::string_view batch = "";   // behind it is the batch: sequences, or since March 2025 nanotron's tokens
  absl::string_view not_of = "";  // lines with these words are passed over
};
constexpr LogFormat kLogFormats[] = {
    // training_log in megatron/training/training.py
    {"Megatron-LM", "elapsed time per iteration (ms):", LogUnit::kMilliseconds, "global batch size:"},
    // the progress printer of nemo/lightning
    {"NeMo", "train_step_timing in s", LogUnit::kSeconds, "global_batch_size:"},
    // train_step_logs in nanotron/trainer.py: "elapsed_time_per_iteration_ms:" until March 2025
    {"nanotron", "time_per_iteration_ms:", LogUnit::kMilliseconds, "global_batch_size:"},
    // MetricsProcessor.log in torchtitan/components/metrics.py; log_validation prints the same of no step
    {"torchtitan", " tps:", LogUnit::kTokensPerSecondOfADevice, "", "validate step:"},
    // ThroughputTimer in deepspeed/utils/timer.py
    {"DeepSpeed", "CurrSamplesPerSec=", LogUnit::kRowsPerSecond},
    // TimeMonitor in mindspore/train/callback
    {"MindSpore", "per step time:", LogUnit::kMilliseconds},
};

// Escapes that colour what follows.
std::string WithoutColours(absl::string_view line) {
  std::string plain;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b' && i + 1 < line.size() && line[i + 1] == '[') {
      while (i < line.size() && !absl::ascii_isalpha(static_cast<unsigned char>(line[i]))) ++i;
      continue;
    }
    plain.push_back(line[i]);
  }
  return plain;
}

struct Printed {
  double value = 0;
  bool rounded = false;  // "5.12K"
};

// No step takes 30 years, and no line tells of more rows or tokens a second.
constexpr double kMostPrinted = 1e12;

// The number that follows, "5123.4", "6,512", "=3.13", "5.12K"; nothing where there is none above 0.
std::optional<Printed> NumberAfter(absl::string_view text) {
  const size_t begin = text.find_first_not_of(" :=\t");
  if (begin == absl::string_view::npos) return std::nullopt;
  text.remove_prefix(begin);
  const absl::string_view digits = text.substr(0, text.find_first_not_of("0123456789.,eE+-"));
  double value = 0;
  std::string number = absl::StrReplaceAll(digits, {{",", ""}});
  if (!absl::SimpleAtod(number, &value) || !(value > 0 && value < kMostPrinted)) return std::nullopt;
  const absl::string_view behind = text.substr(digits.size());
  if (absl::StartsWith(behind, "K")) return Printed{value * 1e3, true};
  if (absl::StartsWith(behind, "M")) return Printed{value * 1e6, true};
  return Printed{value};
}

double StepSeconds(double number, LogUnit unit, const Problem& problem) {
  const auto rows = static_cast<double>(problem.batch);
  switch (unit) {
    case LogUnit::kSeconds:
      return number;
    case LogUnit::kMilliseconds:
      return number * 1e-3;
    case LogUnit::kTokensPerSecondOfADevice:
      return rows * static_cast<double>(problem.tokens_per_row) /
             (number * static_cast<double>(problem.cluster.num_devices()));
    case LogUnit::kRowsPerSecond:
      return rows / number;
  }
  return 0;
}

double Quantile(const std::vector<double>& ascending, double share) {
  const double at = share * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, ascending.size() - 1);
  return ascending[below] + (at - static_cast<double>(below)) * (ascending[above] - ascending[below]);
}

// What the lines of one trainer say.
struct Steps {
  std::vector<double> seconds;
  int64_t unread = 0;     // lines
  absl::Status mismatch;  // of the first line that has another batch than the plan
};

void ReadLine(absl::string_view line, const LogFormat& format, absl::string_view place, const Problem& problem,
              Steps& steps) {
  const size_t at = line.find(format.phrase);
  if (at == absl::string_view::npos) return;
  if (!format.not_of.empty() && absl::StrContains(line, format.not_of)) return;
  const std::optional<Printed> number = NumberAfter(line.substr(at + format.phrase.size()));
  if (!number.has_value()) {
    ++steps.unread;
    return;
  }
  steps.seconds.push_back(StepSeconds(number->value, format.unit, problem));
  const size_t batch_at = format.batch.empty() ? absl::string_view::npos : line.find(format.batch);
  if (batch_at == absl::string_view::npos) return;
  const std::optional<Printed> batch = NumberAfter(line.substr(batch_at + format.batch.size()));
  if (!batch.has_value() || !steps.mismatch.ok()) return;
  constexpr double kRounded = 0.01;
  const auto planned = static_cast<double>(problem.batch);
  for (const double same : {planned, planned * static_cast<double>(problem.tokens_per_row)}) {
    if (std::abs(batch->value - same) <= (batch->rounded ? kRounded * same : 0)) return;
  }
  const absl::Status why =
      WrongInput(absl::StrFormat("a global batch of %.0f", batch->value),
                 absl::StrCat("that of the plan, ", problem.batch), "plan with --batch of the run");
  steps.mismatch = absl::InvalidArgumentError(absl::StrCat(place, ": ", why.message()));
}

}  // namespace

absl::StatusOr<StepLog> ParseStepLog(absl::string_view text, const std::string& file, const Problem& problem) {
  std::vector<Steps> steps(std::size(kLogFormats));
  for (int64_t number = 1; !text.empty(); ++number) {
    const absl::string_view lines = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), lines.size() + 1));
    for (const absl::string_view part : absl::StrSplit(lines, '\r')) {  // of a progress bar
      const std::string line = WithoutColours(part);
      const std::string place = absl::StrCat(file, ":", number);
      for (size_t i = 0; i < steps.size(); ++i) ReadLine(line, kLogFormats[i], place, problem, steps[i]);
    }
  }
  std::vector<absl::string_view> known;
  for (size_t i = 0; i < steps.size(); ++i) {
    known.push_back(kLogFormats[i].trainer);
    MESHWRIGHT_RETURN_IF_ERROR(steps[i].mismatch);
    if (steps[i].seconds.empty()) continue;
    return StepLog{file, std::string(kLogFormats[i].trainer), std::move(steps[i].seconds), steps[i].unread};
  }
  return absl::InvalidArgumentError(absl::StrCat(file, ": found no step, wanted another plan, or what one of ",
                                                 ListNames(known), " prints of its steps, such as \"",
                                                 kLogFormats[0].phrase, " 5123.4\""));
}

absl::StatusOr<LogComparison> CompareWithLog(const std::string& file, const Plan& plan, StepLog log) {
  const Problem& problem = plan.session.problem;
  MESHWRIGHT_ASSIGN_OR_RETURN(Evaluation evaluation, Evaluate(problem, plan.strategy));
  LogComparison comparison;
  comparison.log = std::move(log);
  comparison.plan = file;
  comparison.predicted = std::move(evaluation.prediction);
  const Trainer* const trainer = TrainerWithTitle(comparison.log.trainer);
  if (trainer != nullptr) {
    absl::StatusOr<TrainerPrediction> under = PredictUnder(*trainer, plan);
    if (under.ok()) comparison.as_trainer = std::move(under->prediction);
  }
  comparison.work = problem.tokens_per_row == 1 ? "rows" : "tokens";
  comparison.work_of_step = static_cast<double>(problem.batch) * static_cast<double>(problem.tokens_per_row) /
                            static_cast<double>(problem.cluster.num_devices());
  std::vector<double> steps = comparison.log.seconds;
  const auto count = static_cast<int64_t>(steps.size());
  comparison.left_out = count == 1 ? 0 : std::max<int64_t>(1, count / 10);
  steps.erase(steps.begin(), steps.begin() + comparison.left_out);
  std::sort(steps.begin(), steps.end());
  comparison.median = Quantile(steps, 0.5);
  comparison.low = Quantile(steps, 0.1);
  comparison.high = Quantile(steps, 0.9);
  if (comparison.as_trainer.has_value()) {
    comparison.cpu_slowdown =
        CpuSlowdownFor(*trainer, plan, comparison.as_trainer->step, FromSeconds(comparison.median));
  }
  return comparison;
}

static std::string Lines(int64_t count) { return absl::StrCat(ShowCount(count), count == 1 ? " line" : " lines"); }

std::string ToText(const LogComparison& c) {
  const double predicted = ToSeconds(c.predicted.step);
  const auto mfu_at = [&](double seconds) { return c.predicted.mfu * predicted / seconds; };
  const auto row = [&](absl::string_view name, double seconds) {
    const double mfu = mfu_at(seconds);
    return absl::StrFormat("%-12s %10s %12s %14.4g %8s\n", name, ShowSeconds(seconds),
                           ShowLarge(c.work_of_step / seconds), mfu * c.predicted.peak_flops.raw() / 1e12,
                           ShowPercent(mfu));
  };
  const auto count = static_cast<int64_t>(c.log.seconds.size());
  const double as_trainer = c.as_trainer.has_value() ? ToSeconds(c.as_trainer->step) : 0;
  const auto ratio = [&](absl::string_view of, double seconds) {
    return absl::StrFormat("the step took %.2f times what was predicted%s (%+.1f %%)\n", c.median / seconds, of,
                           (c.median / seconds - 1) * 100);
  };
  const std::string of_trainer = absl::StrCat(" of ", c.log.trainer);
  return absl::StrCat(
      absl::StrFormat("%-12s %10s %12s %14s %8s\n", "of a device", "step", absl::StrCat(c.work, "/s"), "TFLOP/s",
                      "MFU"),
      row("predicted", predicted), as_trainer > 0 ? row("as trainer", as_trainer) : "", row("measured", c.median),
      ratio("", predicted), as_trainer > 0 ? ratio(of_trainer, as_trainer) : "",
      c.cpu_slowdown.has_value()
          ? absl::StrFormat("  as predicted where the cluster has `cpu_slowdown: %.2f`, if it is its CPUs\n",
                            *c.cpu_slowdown)
          : "",
      mfu_at(c.median) > 1 ? "above 100 % MFU: is the log of another model, batch or cluster?\n" : "",
      "\nmeasured: ", Lines(count - c.left_out), " of ", c.log.trainer, ", the median; eight in ten ",
      ShowSeconds(c.low), " to ", ShowSeconds(c.high), "\nleft out: ", Lines(c.left_out), " at the beginning, ",
      c.log.unread, " without a number\n");
}

Json ToJson(const LogComparison& c) {
  const auto predicted = [](const Prediction& p) { return Json{{"step_time_s", ToSeconds(p.step)}, {"mfu", p.mfu}}; };
  Json out{{"schema", "meshwright/log_comparison/1"},
           {"plan", c.plan},
           {"log", c.log.file},
           {"trainer", c.log.trainer},
           {"predicted", predicted(c.predicted)}};
  if (c.as_trainer.has_value()) out["as_trainer"] = predicted(*c.as_trainer);
  if (c.cpu_slowdown.has_value()) out["cpu_slowdown"] = *c.cpu_slowdown;
  out["measured"] = Json{{"step_time_s", c.median},
                         {"low_s", c.low},
                         {"high_s", c.high},
                         {"steps", c.log.seconds.size()},
                         {"left_out", c.left_out}};
  out["measured_over_predicted"] = c.median / ToSeconds(c.predicted.step);
  return out;
}

}  // namespace meshwright
