#include "tools/profile/profile_comparison.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "costmodel/cost_model.h"
#include "costmodel/library.h"
#include "ir/status.h"
#include "ir/text.h"
#include "simulator/price.h"
#include "simulator/simulate.h"
#include "simulator/time_use.h"
#include "tools/export/cpu_pace.h"
#include "tools/export/trainer_prediction.h"
#include "tools/numbers.h"

namespace meshwright {
namespace {

// --- predicted

Bytes SumOf(const absl::InlinedVector<Operand, 4>& operands, const RankClass& rank_class, const Mesh& mesh) {
  Bytes sum;
  for (const Operand& operand : operands) sum += LocalBytes(rank_class.buffers[operand.buffer.index()], mesh);
  return sum;
}

// What an instruction of a class is, without its time.
DeviceSpan SpanOf(const Instruction& instruction, bool optimizer, const RankClass& rank_class, const Mesh& mesh) {
  DeviceSpan span;
  span.kind = KindOfInstruction(instruction, optimizer);
  if (span.kind != WorkKind::kCommunication) return span;
  span.call.kind = CallKind::kSendReceive;
  bool reads = !instruction.reads.empty();
  if (const auto* collective = std::get_if<Collective>(&instruction.work)) {
    span.call = {CallOf(collective->kind), mesh.SizeOf(collective->axes)};
    reads = InfoOf(collective->kind).before == Holding::kWhole;
  }
  span.bytes = SumOf(reads ? instruction.reads : instruction.writes, rank_class, mesh);
  return span;
}

constexpr int64_t kMostInstructions = 20'000'000;  // of all stages: 3 GiB

// What rank `rank` does in a simulated step.
absl::StatusOr<DeviceUse> PredictedUse(const Program& program, size_t class_index, const Cluster& cluster) {
  int64_t issued = 0;
  for (const RankClass& rank_class : program.classes) issued += NumIssued(rank_class);
  if (issued > kMostInstructions) {
    return absl::ResourceExhaustedError(absl::StrCat("found a plan of ", issued, " instructions, wanted at most ",
                                                     kMostInstructions, " to look at one by one"));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const Prices prices, PriceProgram(program, CostModel(cluster)));
  MESHWRIGHT_ASSIGN_OR_RETURN(const SimulationResult result,
                              Simulate(program, prices, {.trace = TraceDetail::kInstructions}));
  const RankClass& rank_class = program.classes[class_index];
  std::vector<std::vector<DeviceSpan>> known;  // by block and instruction
  for (const Block& block : rank_class.blocks) {
    auto& spans = known.emplace_back();
    const bool optimizer = HoldsOptimizer(block);
    for (const Instruction& instruction : block.instructions) {
      spans.push_back(SpanOf(instruction, optimizer, rank_class, program.mesh));
    }
  }
  std::vector<DeviceSpan> spans;
  for (const Span& simulated : result.trace.spans) {
    if (simulated.rank != program.RankOf(class_index, 0) || simulated.end <= simulated.begin) continue;
    const BlockId block = rank_class.slots[simulated.slot].block;
    spans.push_back(known[block.index()][static_cast<size_t>(simulated.instruction)]);
    spans.back().begin = simulated.begin;
    spans.back().end = simulated.end;
  }
  return UseBetween(spans, Nanos(), std::max(result.makespan, Nanos(1)), 1);
}

// --- measured

// S of a collective, as ir/collective.h defines it, or -1.
int64_t BytesOf(CallKind kind, const CollectiveArgs& args) {
  const int64_t element = BytesOfPyTorch(args.dtype);
  const int64_t elements = kind == CallKind::kAllGather ? args.elements_out : args.elements_in;
  return element == 0 || elements < 0 ? -1 : element * elements;
}

// What a sort of event is, without its time: by name, kind and what its collective says.
DeviceSpan SpanOf(const DeviceEvent& event, const ProfileTrace& trace, const KernelKind& by_name) {
  DeviceSpan span;
  const std::string& name = trace.names[static_cast<size_t>(event.name)];
  span.kind = by_name.work;
  if (event.kind != DeviceEventKind::kKernel) {
    // From device to device: of those that write into each other's memory.
    const bool peer = absl::StartsWith(name, "Memcpy PtoP");
    span.kind = peer ? WorkKind::kCommunication : WorkKind::kElementwise;
  }
  if (event.collective >= 0) span.kind = WorkKind::kCommunication;
  if (span.kind != WorkKind::kCommunication) return span;
  span.call.kind = by_name.call;
  span.sized = false;
  if (event.collective < 0) return span;
  const CollectiveArgs& args = trace.collectives[static_cast<size_t>(event.collective)];
  const CallKind told = CallOfPyTorch(args.name);
  if (told != CallKind::kOtherCall) span.call.kind = told;
  if (span.call.kind != CallKind::kSendReceive) span.call.group_size = args.group_size;
  const int64_t bytes = BytesOf(span.call.kind, args);
  span.sized = bytes >= 0;
  span.bytes = Bytes(std::max<int64_t>(0, bytes));
  return span;
}

void MeasureUse(const ProfileTrace& trace, ProfileComparison& c) {
  std::vector<KernelKind> kinds;
  for (const std::string& name : trace.names) kinds.push_back(KindOfKernel(name));
  std::vector<DeviceSpan> spans;
  std::map<int32_t, Nanos> other;  // by name
  for (const DeviceEvent& event : trace.events) {
    DeviceSpan span = SpanOf(event, trace, kinds[static_cast<size_t>(event.name)]);
    span.begin = event.begin;
    span.end = event.end;
    const Nanos inside = std::min(span.end, c.window.end) - std::max(span.begin, c.window.begin);
    if (inside < Nanos()) continue;
    if (span.kind == WorkKind::kOther) other[event.name] += inside;
    spans.push_back(span);
  }
  c.measured = UseBetween(spans, c.window.begin, c.window.end, c.window.steps);
  for (const auto& [name, time] : other) {
    c.other.emplace_back(trace.names[static_cast<size_t>(name)], time / c.window.steps);
  }
  std::stable_sort(c.other.begin(), c.other.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
}

// --- both

absl::Status CheckRanks(const ProfileTrace& trace, int64_t ranks) {
  const auto wrong = [&](absl::string_view found, absl::string_view wanted, absl::string_view remedy) {
    return absl::InvalidArgumentError(
        absl::StrCat(trace.file, ": distributedInfo: ", WrongInput(found, wanted, remedy).message()));
  };
  if (trace.rank.has_value() && *trace.rank >= ranks) {
    return wrong(absl::StrCat("rank ", *trace.rank), absl::StrCat("a rank of the plan, from 0 to ", ranks - 1),
                 "plan with --devices of the run");
  }
  if (trace.world_size.has_value() && *trace.world_size != ranks) {
    return wrong(absl::StrCat("world_size ", *trace.world_size), absl::StrCat("the ranks of the plan, ", ranks),
                 "plan with --devices of the run");
  }
  return absl::OkStatus();
}

// A device that waits for its CPU idles; where it idles less, the CPU is not what is seen.
constexpr double kIdles = 0.05;

// The step as the plan's trainer runs it, and which CPUs would make it as long as the measured one.
void PredictTrainer(const Plan& plan, ProfileComparison& c) {
  for (const Trainer& trainer : kTrainers) {
    if (trainer.name != plan.promise.trainer) continue;
    c.trainer = std::string(trainer.title);
    const absl::StatusOr<TrainerPrediction> under = PredictUnder(trainer, plan);
    if (!under.ok()) {
      c.notes.push_back(absl::StrCat("The step as ", c.trainer, " runs it is not known: ", under.status().message()));
      continue;
    }
    c.as_trainer = under->prediction.step;
    if (ToSeconds(c.measured.idle) < kIdles * ToSeconds(c.measured.step)) continue;
    c.cpu_slowdown = CpuSlowdownFor(trainer, plan, *c.as_trainer, c.measured.step);
    if (!c.cpu_slowdown.has_value()) continue;
    c.notes.push_back(absl::StrFormat(
        "The device idles %s of the step. If it waits for its CPU: with `cpu_slowdown: %.2f` in the cluster, %s is "
        "predicted to take as long.",
        ShowPercent(ToSeconds(c.measured.idle) / ToSeconds(c.measured.step)), *c.cpu_slowdown, c.trainer));
  }
}

void AddNotes(const Plan& plan, const ProfileTrace& trace, ProfileComparison& c) {
  const auto note = [&c](const auto&... words) { c.notes.push_back(absl::StrCat(words...)); };
  if (c.trainer.empty()) {
    note(
        "By kind, predicted is the plan's own program, without a framework's habits; a plan made with --trainer also "
        "has the step as that trainer runs it.");
  } else {
    note("By kind, predicted is the plan's own program, not what ", c.trainer, " does besides.");
  }
  if (c.measured[WorkKind::kCommunication] > Nanos()) {
    note(
        "Measured communication contains the wait for the rank that comes last; predicted ranks come together, and "
        "wait for other stages while they are idle.");
  }
  if (trace.steps.empty()) {
    note("No ProfilerStep is marked: the whole trace counts as one step.");
  } else if (!trace.steps_of_device) {
    note("Steps are marked by the CPU alone, which runs ahead of the device: their ends are not exact.");
  }
  if (!trace.rank.has_value() && c.ranks > 1) note("The trace does not say whose it is: taken for rank 0.");
  const std::string& planned = plan.session.problem.cluster.device.name;
  const absl::StatusOr<Device> device = trace.device.empty() ? absl::NotFoundError("") : FindDevice(trace.device);
  if (!trace.device.empty() && (!device.ok() || device->name != planned)) {
    note("The plan is for ", planned, ", the trace of ", QuoteForMessage(trace.device), ".");
  }
  if (c.measured.unsized > 0) {
    note("Of ", ShowCount(std::llround(std::ceil(c.measured.unsized))),
         " calls in a step the trace does not say how much they moved.");
  }
  if (trace.without_time > 0) note(ShowCount(trace.without_time), " events of the device have no time: left out.");
  if (trace.other_devices > 0) note(ShowCount(trace.other_devices), " events are of other devices: left out.");
}

// --- text

std::string Signed(Nanos time) {
  return absl::StrCat(time.raw() < 0 ? "-" : "+", ShowTime(Nanos(std::llabs(time.raw()))));
}

std::string Row(absl::string_view name, Nanos predicted, Nanos measured) {
  // Of what is hardly predicted at all no share is told.
  const double ratio = predicted.raw() > 0 ? ToSeconds(measured) / ToSeconds(predicted) : 0;
  const bool told = predicted.raw() > 0 && ratio < 100;
  const std::string percent = told ? absl::StrFormat("%+.1f %%", (ratio - 1) * 100) : "";
  const std::string row = absl::StrFormat("  %-30s %11s %11s %11s %10s", name, ShowTime(predicted), ShowTime(measured),
                                          Signed(measured - predicted), percent);
  return absl::StrCat(absl::StripTrailingAsciiWhitespace(row), "\n");
}

struct ShownCall {
  CallSort sort;
  CallUse predicted, measured;
  int64_t difference() const { return std::llabs((measured.time - predicted.time).raw()); }
};

std::vector<ShownCall> CallsOf(const ProfileComparison& c) {
  std::map<CallSort, ShownCall> rows;
  for (const auto& [sort, use] : c.predicted.calls) rows[sort].predicted = use;
  for (const auto& [sort, use] : c.measured.calls) rows[sort].measured = use;
  std::vector<ShownCall> sorted;
  for (auto& [sort, row] : rows) {
    row.sort = sort;
    sorted.push_back(row);
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const ShownCall& a, const ShownCall& b) { return a.difference() > b.difference(); });
  return sorted;
}

std::vector<WorkKind> KindsOf(const ProfileComparison& c) {
  std::vector<WorkKind> kinds;
  for (const WorkKindInfo& row : kWorkKinds) {
    if (c.predicted[row.kind] + c.measured[row.kind] > Nanos()) kinds.push_back(row.kind);
  }
  const auto difference = [&c](WorkKind kind) { return std::llabs((c.measured[kind] - c.predicted[kind]).raw()); };
  std::stable_sort(kinds.begin(), kinds.end(), [&](WorkKind a, WorkKind b) { return difference(a) > difference(b); });
  return kinds;
}

std::string CallTable(const ProfileComparison& c, size_t most) {
  const std::vector<ShownCall> rows = CallsOf(c);
  if (rows.empty()) return "";
  std::string text =
      absl::StrFormat("\n%22s %13s %21s %21s\n  %-14s %5s %6s %6s %10s %10s %10s %10s\n", "", "calls", "bytes", "time",
                      "communication", "ranks", "pred.", "meas.", "pred.", "meas.", "pred.", "meas.");
  const size_t shown = std::min(most, rows.size());
  const auto bytes = [](const CallUse& use) {
    return use.bytes > 0 ? ShowBytes(Bytes(std::llround(use.bytes))) : std::string("-");
  };
  for (size_t i = 0; i < shown; ++i) {
    const ShownCall& row = rows[i];
    absl::StrAppend(
        &text, absl::StrFormat("  %-14s %5s %6s %6s %10s %10s %10s %10s\n", NameOf(row.sort.kind),
                               row.sort.group_size < 0 ? "-" : absl::StrCat(row.sort.group_size),
                               ShowCount(std::llround(row.predicted.calls)),
                               ShowCount(std::llround(row.measured.calls)), bytes(row.predicted), bytes(row.measured),
                               ShowTime(row.predicted.time), ShowTime(row.measured.time)));
  }
  if (shown < rows.size()) absl::StrAppend(&text, "  and ", rows.size() - shown, " more; --worst shows them\n");
  return text;
}

// Lines of at most 80 columns; the second and later ones stand in by two.
std::string Wrapped(absl::string_view text) {
  constexpr size_t kWidth = 80;
  std::string out, line;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (!line.empty() && line.size() + 1 + word.size() > kWidth) {
      absl::StrAppend(&out, line, "\n");
      line = " ";
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", word);
  }
  return absl::StrCat(out, line, "\n");
}

// Names come from a file: as they are written in messages, on one line.
std::string OtherKernels(const ProfileComparison& c) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, c.other.size()); ++i) {
    absl::StrAppend(&text,
                    absl::StrFormat("  %10s %s\n", ShowTime(c.other[i].second), QuoteForMessage(c.other[i].first)));
  }
  return text.empty()
             ? ""
             : absl::StrCat("\nother: ", c.other.size(), " kernels whose names are not known, such as\n", text);
}

std::string StepsOf(const ProfileWindow& window) {
  if (window.first < 0) return "the whole trace";
  if (window.first == window.last) return absl::StrCat("step ", window.first, ", of ", window.recorded, " recorded");
  return absl::StrCat("steps ", window.first, " to ", window.last, ", of ", window.recorded, " recorded");
}

}  // namespace

absl::StatusOr<ProfileComparison> CompareWithProfile(const std::string& file, const Plan& plan,
                                                     const ProfileTrace& trace) {
  const Problem& problem = plan.session.problem;
  ProfileComparison c;
  c.plan = file;
  c.trace = trace.file;
  c.device = trace.device;
  MESHWRIGHT_ASSIGN_OR_RETURN(Program lowered, ProgramOf(plan));
  const Program program = AsPlayed(std::move(lowered), problem.cluster);
  c.ranks = program.mesh.num_ranks();
  MESHWRIGHT_RETURN_IF_ERROR(CheckRanks(trace, c.ranks));
  c.rank = trace.rank.value_or(0);
  const auto class_index = static_cast<size_t>(c.rank / program.ranks_per_class());
  c.stage = program.classes[class_index].name;
  c.window = WindowOf(trace);
  if (c.window.end <= c.window.begin) {
    return absl::InvalidArgumentError(absl::StrCat(trace.file, ": found steps of no time, wanted some of a run"));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(c.predicted, PredictedUse(program, class_index, problem.cluster));
  MeasureUse(trace, c);
  PredictTrainer(plan, c);
  AddNotes(plan, trace, c);
  return c;
}

std::string ToText(const ProfileComparison& c, size_t most) {
  std::string text = absl::StrCat(c.trace, "\nrank ", c.rank, " of ", c.ranks, ", ", c.stage, "; ", StepsOf(c.window),
                                  c.window.steps > 1 ? ", the mean" : "", "\n\n");
  absl::StrAppend(&text,
                  absl::StrFormat("  %-30s %11s %11s %11s\n", "of a step", "predicted", "measured", "difference"),
                  Row("step", c.predicted.step, c.measured.step));
  if (c.as_trainer.has_value()) {
    absl::StrAppend(&text, Row(absl::StrCat("step as ", c.trainer, " runs it"), *c.as_trainer, c.measured.step));
  }
  text += "\n";
  for (const WorkKind kind : KindsOf(c)) absl::StrAppend(&text, Row(NameOf(kind), c.predicted[kind], c.measured[kind]));
  absl::StrAppend(&text, "\n", Row("exposed communication", c.predicted.exposed, c.measured.exposed),
                  Row("idle", c.predicted.idle, c.measured.idle),
                  "  kinds: what runs side by side is counted each; exposed: nothing but\n"
                  "  communication runs; idle: nothing runs\n",
                  CallTable(c, most), OtherKernels(c), "\n");
  for (const std::string& note : c.notes) text += Wrapped(note);
  return text;
}

Json ToJson(const ProfileComparison& c) {
  const auto pair = [](Nanos predicted, Nanos measured) {
    return Json{{"predicted_s", JsonSeconds(predicted)}, {"measured_s", JsonSeconds(measured)}};
  };
  const auto call = [](const CallUse& use) {
    return Json{{"calls", use.calls}, {"bytes", use.bytes}, {"total_s", JsonSeconds(use.time)}};
  };
  Json out{{"schema", "meshwright/profile_comparison/1"},
           {"plan", c.plan},
           {"trace", c.trace},
           {"device", c.device},
           {"rank", c.rank},
           {"ranks", c.ranks},
           {"stage", c.stage},
           {"step", pair(c.predicted.step, c.measured.step)}};
  if (c.window.first >= 0) out["steps"] = Json{{"first", c.window.first}, {"last", c.window.last}};
  if (!c.trainer.empty()) out["trainer"] = c.trainer;
  if (c.as_trainer.has_value()) out["as_trainer_s"] = JsonSeconds(*c.as_trainer);
  if (c.cpu_slowdown.has_value()) out["cpu_slowdown"] = *c.cpu_slowdown;
  Json kinds = Json::array();
  for (const WorkKind kind : KindsOf(c)) {
    Json row{{"kind", NameOf(kind)}};
    row.update(pair(c.predicted[kind], c.measured[kind]));
    kinds.push_back(std::move(row));
  }
  out["kinds"] = std::move(kinds);
  out["exposed_communication"] = pair(c.predicted.exposed, c.measured.exposed);
  out["idle"] = pair(c.predicted.idle, c.measured.idle);
  Json calls = Json::array();
  for (const ShownCall& row : CallsOf(c)) {
    Json json{{"call", NameOf(row.sort.kind)}};
    if (row.sort.group_size >= 0) json["group_size"] = row.sort.group_size;
    json["predicted"] = call(row.predicted);
    json["measured"] = call(row.measured);
    calls.push_back(std::move(json));
  }
  out["communication"] = std::move(calls);
  Json other = Json::array();
  for (const auto& [name, time] : c.other) other.push_back(Json{{"name", name}, {"measured_s", JsonSeconds(time)}});
  out["other"] = std::move(other);
  out["notes"] = c.notes;
  return out;
}

}  // namespace meshwright
