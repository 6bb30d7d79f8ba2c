#include "tools/measure/experiments.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/program_text.h"
#include "ir/status.h"

namespace meshwright {
namespace {

// Numbers that differ from element to element, below 1.
constexpr char kInput[] = "parameter init formula a=7 b=3 modulus=11 subtract=5 divide=8";
constexpr char kOutput[] = "parameter";
constexpr int64_t kLaunches = 64;
// On the host larger collectives are run a few times, in one step: seconds each, over a network.
constexpr int64_t kOftenBytes = 8 << 20, kFewRepeats = 6;
// A reduction of one number, that all ranks end together.
constexpr char kMeeting[] =
    "  buffer s float32 (1) {-} partial sum x1 activation\n  buffer t float32 (1) {-} activation\n";
constexpr char kMeet[] =
    "    compute Fill \"-> i\" scale=1 writes s\n    compute all_reduce sum (x1) activation reads s writes t\n";

struct Operand {
  std::string name;
  Shape shape;
  DType dtype;
  bool input = true;
  bool zero = false;  // an input of zeros
};

std::string TextOf(const Operand& operand) {
  std::vector<std::string> dims(operand.shape.size(), "-");
  return absl::StrCat("  buffer ", operand.name, " ", NameOf(operand.dtype), " (", absl::StrJoin(operand.shape, ", "),
                      ") {", absl::StrJoin(dims, " | "), "} ", operand.input && !operand.zero ? kInput : kOutput, "\n");
}

// `instruction` over the operands, `repeats` times, each behind a Fill of `flush` bytes.
absl::StatusOr<Experiment> Kernel(SampleKind kind, const std::string& name, DType dtype,
                                  const std::vector<Operand>& operands, const std::string& instruction, int64_t repeats,
                                  Bytes flush = {}) {
  std::string text = "program measure mesh x1=1\nclass all\n";
  std::vector<std::string> reads, writes;
  for (const Operand& operand : operands) {
    absl::StrAppend(&text, TextOf(operand));
    (operand.input ? reads : writes).push_back(operand.name);
  }
  const bool flushes = flush > Bytes();
  if (flushes) {
    absl::StrAppend(&text, "  buffer flush float32 (", flush.raw() / SizeOf(DType::kFloat32).raw(),
                    ") {-} activation\n");
  }
  absl::StrAppend(&text, "  block b forward\n", flushes ? "    compute Fill \"-> i\" scale=1 writes flush\n" : "",
                  "    compute ", instruction, " reads ", absl::StrJoin(reads, " "), " writes ",
                  absl::StrJoin(writes, " "), "\n");
  for (int64_t i = 0; i < repeats; ++i) absl::StrAppend(&text, "  slot b mb 0 layer 0\n");
  Experiment experiment;
  experiment.kind = kind;
  experiment.name = name;
  experiment.dtype = dtype;
  experiment.measured = flushes ? 1 : 0;
  MESHWRIGHT_ASSIGN_OR_RETURN(Program program, ParseProgram(text));
  experiment.program = Placed(std::move(program));
  return experiment;
}

using Experiments = std::vector<Experiment>;
absl::Status Add(absl::StatusOr<Experiment> experiment, Experiments& all) {
  MESHWRIGHT_RETURN_IF_ERROR(experiment.status());
  all.push_back(*std::move(experiment));
  return absl::OkStatus();
}

absl::Status AddProduct(const MeasurePlan& plan, DType dtype, int64_t m, int64_t n, int64_t k, Experiments& all) {
  return Add(ProductExperiment(plan, dtype, m, n, k), all);
}

// Squares, and what layers have: wide, narrow, a short inner dimension, and few rows.
absl::Status AddProducts(const MeasurePlan& plan, Experiments& all) {
  const std::vector<int64_t>& s = plan.sides;
  for (const DType dtype : plan.products) {
    for (size_t i = 0; i < s.size(); ++i) {
      MESHWRIGHT_RETURN_IF_ERROR(AddProduct(plan, dtype, s[i], s[i], s[i], all));
      if (i < 2 || dtype != plan.products[0]) continue;
      MESHWRIGHT_RETURN_IF_ERROR(AddProduct(plan, dtype, s[i], s[i], s[i - 2], all));
      MESHWRIGHT_RETURN_IF_ERROR(AddProduct(plan, dtype, s[i - 2], s[i], s[i], all));
      MESHWRIGHT_RETURN_IF_ERROR(AddProduct(plan, dtype, s[i], s[i - 2], s[i], all));
      for (const int64_t rows : plan.rows) {
        MESHWRIGHT_RETURN_IF_ERROR(AddProduct(plan, dtype, rows, s[i], s[i], all));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status AddStreams(const MeasurePlan& plan, Experiments& all) {
  const DType t = plan.dtype;
  const auto add = [&](const std::string& name, const std::vector<Operand>& operands, const std::string& text,
                       SampleKind kind = SampleKind::kStream) {
    return Add(Kernel(kind, name, t, operands, text, plan.repeats, plan.flush), all);
  };
  for (const int64_t n : plan.streams) {
    const std::string of = absl::StrCat(" of ", n);
    MESHWRIGHT_RETURN_IF_ERROR(add("Scale" + of, {{"x", {n}, t}, {"y", {n}, t, false}}, "Scale \"i -> i\" scale=0.5"));
    MESHWRIGHT_RETURN_IF_ERROR(
        add("Add" + of, {{"x", {n}, t}, {"z", {n}, t}, {"y", {n}, t, false}}, "Add \"i, i -> i\""));
    MESHWRIGHT_RETURN_IF_ERROR(add("GeLU" + of, {{"x", {n}, t}, {"y", {n}, t, false}}, "GeLU \"i -> i\""));
    const int64_t width = std::min<int64_t>(1024, std::max<int64_t>(64, n / 64)), rows = n / width;
    const std::string by = absl::StrCat(" of ", rows, " x ", width);
    MESHWRIGHT_RETURN_IF_ERROR(
        add("LayerNorm" + by,
            {{"x", {rows, width}, t}, {"g", {width}, t}, {"b", {width}, t}, {"y", {rows, width}, t, false}},
            "LayerNorm \"s h!, h!, h! -> s h!\""));
    MESHWRIGHT_RETURN_IF_ERROR(
        add("Softmax" + by, {{"x", {rows, width}, t}, {"y", {rows, width}, t, false}}, "Softmax \"s h! -> s h!\""));
    MESHWRIGHT_RETURN_IF_ERROR(add("LayerNormGrad" + by,
                                   {{"dy", {rows, width}, t},
                                    {"x", {rows, width}, t},
                                    {"g", {width}, t},
                                    {"dx", {rows, width}, t, false},
                                    {"dg", {width}, t, false},
                                    {"db", {width}, t, false}},
                                   "LayerNormGrad \"s h!, s h!, h! -> s h!, h!, h!\"", SampleKind::kNormalizeBackward));
    if (n > plan.streams.back() / 2) continue;  // seven tensors
    const DType f = DType::kFloat32;
    MESHWRIGHT_RETURN_IF_ERROR(
        Add(Kernel(SampleKind::kStream, "AdamW" + of, f,
                   {{"w", {n}, f},
                    {"g", {n}, f},
                    {"m", {n}, f, true, true},
                    {"v", {n}, f, true, true},
                    {"w2", {n}, f, false},
                    {"m2", {n}, f, false},
                    {"v2", {n}, f, false}},
                   "AdamW epsilon=1e-08 learning_rate=0.001 beta1=0.9 beta2=0.999 weight_decay=0.1", plan.repeats,
                   plan.flush),
            all));
  }
  return absl::OkStatus();
}

// Causal, heads of 64, eight of them.
absl::Status AddAttention(const MeasurePlan& plan, Experiments& all) {
  const DType t = plan.dtype;
  const DType rows_type = t == DType::kFloat64 ? t : DType::kFloat32;
  for (const int64_t s : plan.sequences) {
    const int64_t b = std::max<int64_t>(1, plan.sequences.back() / s), heads = 8, d = 64;
    const std::string of = absl::StrCat(" of ", b, " x ", s, ", ", heads, " heads of ", d);
    const Operand qkv = {"qkv", {s, b, heads, 3, d}, t};
    MESHWRIGHT_RETURN_IF_ERROR(
        Add(Kernel(SampleKind::kAttention, "Attention" + of, t,
                   {qkv, {"y", {s, b, heads, 1, d}, t, false}, {"r", {s, b, heads, 1}, rows_type, false}},
                   "Attention \"s! b g r! d! -> s! b g q! d!, s! b g q!\" scale=0.125", plan.repeats, plan.flush),
            all));
    MESHWRIGHT_RETURN_IF_ERROR(
        Add(Kernel(SampleKind::kAttentionBackward, "AttentionGrad" + of, t,
                   {{"dy", {s, b, heads, 1, d}, t},
                    qkv,
                    {"y", {s, b, heads, 1, d}, t},
                    {"r", {s, b, heads, 1}, rows_type},
                    {"dqkv", {s, b, heads, 3, d}, t, false}},
                   "AttentionGrad \"s! b g q! d!, s! b g r! d!, s! b g q! d!, s! b g q! -> s! b g r! d!\" scale=0.125",
                   plan.repeats, plan.flush),
            all));
  }
  return absl::OkStatus();
}

std::vector<Nanos> Durations(const Experiment& experiment, const Trace& trace) {
  // Of each repetition on each rank.
  std::map<uint32_t, std::vector<const Span*>> repetitions;
  for (const Span& span : trace.spans) {
    if (static_cast<size_t>(span.instruction) == experiment.measured) repetitions[span.slot].push_back(&span);
  }
  std::vector<Nanos> times;
  Nanos before;
  for (const auto& [slot, spans] : repetitions) {
    Nanos begin = spans[0]->begin, end = spans[0]->end;
    for (const Span* span : spans) {
      begin = std::max(begin, span->begin);
      end = std::max(end, span->end);
    }
    if (slot > 0) times.push_back(experiment.kind == SampleKind::kLaunch ? end - before : end - begin);
    before = end;
  }
  return times;
}

}  // namespace

Program Placed(Program program) {
  RankClass& all = program.classes[0];
  for (Buffer& buffer : all.buffers) {
    const int64_t local = LocalBytes(buffer, program.mesh).raw();
    buffer.bytes = Bytes((local + kAlignment - 1) / kAlignment * kAlignment);
    buffer.offset = all.arena;
    all.arena += buffer.bytes;
  }
  return program;
}

MeasurePlan HostPlan() { return {}; }

absl::StatusOr<Experiment> ProductExperiment(const MeasurePlan& plan, DType dtype, int64_t m, int64_t n, int64_t k) {
  return Kernel(SampleKind::kProduct, absl::StrCat("MatMul ", m, " x ", n, " x ", k), dtype,
                {{"a", {m, k}, dtype}, {"b", {k, n}, dtype}, {"c", {m, n}, dtype, false}}, "MatMul \"m k, k n -> m n\"",
                plan.repeats, plan.flush);
}

MeasurePlan GpuPlan() {
  MeasurePlan plan;
  plan.products = {DType::kBFloat16, DType::kFloat16, DType::kFloat32};
  plan.dtype = DType::kBFloat16;
  plan.sides = {256, 512, 768, 1024, 1600, 2048, 3072, 4096, 6144, 8192};
  plan.streams = {1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26};
  plan.sequences = {512, 1024, 2048, 4096, 8192};
  plan.collectives = {1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23, 1 << 26, 1 << 28};
  plan.repeats = 21;
  plan.rows = {};
  plan.flush = {};
  plan.together = false;  // NCCL's ranks wait for each other
  return plan;
}

MeasurePlan LargerPlan(MeasurePlan plan, Bytes bytes) {
  const int64_t most = plan.collectives.empty() ? 0 : plan.collectives.back();
  for (int64_t size = bytes.raw(); size > most; size /= 4) plan.collectives.push_back(size);
  std::sort(plan.collectives.begin(), plan.collectives.end());
  return plan;
}

MeasurePlan QuickPlan(MeasurePlan plan) {
  plan.products.resize(1);
  plan.sides.resize(3);
  plan.streams.resize(3);
  plan.sequences.resize(1);
  plan.collectives.resize(3);
  plan.repeats = 5;
  plan.flush = std::min(plan.flush, Bytes(4 << 20));
  return plan;
}

absl::StatusOr<std::vector<Experiment>> KernelExperiments(const MeasurePlan& plan) {
  Experiments all;
  MESHWRIGHT_RETURN_IF_ERROR(
      Add(Kernel(SampleKind::kLaunch, "Scale of 64, one behind the other", plan.dtype,
                 {{"x", {64}, plan.dtype}, {"y", {64}, plan.dtype, false}}, "Scale \"i -> i\" scale=0.5", kLaunches),
          all));
  MESHWRIGHT_RETURN_IF_ERROR(AddProducts(plan, all));
  MESHWRIGHT_RETURN_IF_ERROR(AddStreams(plan, all));
  MESHWRIGHT_RETURN_IF_ERROR(AddAttention(plan, all));
  return all;
}

absl::StatusOr<std::vector<Experiment>> CollectiveExperiments(const MeasurePlan& plan, int64_t ranks) {
  // What is read before and written after a collective of S elements over all ranks, as layouts of (S / n, n).
  struct Row {
    CollectiveKind kind;
    const char *reads, *writes, *text;
  };
  constexpr Row kRows[] = {
      {CollectiveKind::kAllReduce, "{- | -} partial sum x1", "{- | -}", "all_reduce sum (x1)"},
      {CollectiveKind::kAllGather, "{x1 | -}", "{- | -}", "all_gather (x1) dim 0"},
      {CollectiveKind::kReduceScatter, "{- | -} partial sum x1", "{x1 | -}", "reduce_scatter sum (x1) dim 0"},
      {CollectiveKind::kAllToAll, "{x1 | -}", "{- | x1}", "all_to_all (x1) dim 0 to 1"},
  };
  Experiments all;
  for (const Row& row : kRows) {
    for (const int64_t bytes : plan.collectives) {
      const int64_t elements = std::max<int64_t>(1, bytes / SizeOf(DType::kFloat32).raw() / (ranks * ranks));
      const std::string shape = absl::StrCat("(", ranks, ", ", ranks * elements, ")");
      std::string text = absl::StrCat("program measure mesh x1=", ranks, "\nclass all\n  buffer x float32 ", shape, " ",
                                      row.reads, " activation\n  buffer y float32 ", shape, " ", row.writes,
                                      " activation\n", plan.together ? kMeeting : "", "  block b forward\n",
                                      "    compute Fill \"-> i j\" scale=1 writes x\n", plan.together ? kMeet : "",
                                      "    compute ", row.text, " activation reads x writes y\n");
      const bool few = plan.together && bytes > kOftenBytes;
      const int64_t repeats = few ? std::min(plan.repeats, kFewRepeats) : plan.repeats;
      for (int64_t i = 0; i < repeats; ++i) absl::StrAppend(&text, "  slot b mb 0 layer 0\n");
      Experiment experiment;
      experiment.kind = SampleKind::kCollective;
      experiment.measured = plan.together ? 3 : 1;
      if (few) experiment.steps = 1;
      MESHWRIGHT_ASSIGN_OR_RETURN(Program program, ParseProgram(text));
      experiment.program = Placed(std::move(program));
      experiment.collective = row.kind;
      // All-to-all: what a rank has, a part of the whole.
      const int64_t whole = ranks * ranks * elements * SizeOf(DType::kFloat32).raw();
      experiment.size = Bytes(row.kind == CollectiveKind::kAllToAll ? whole / ranks : whole);
      experiment.name = absl::StrCat(NameOf(row.kind), " of ", experiment.size.raw(), " bytes over ", ranks, " ranks");
      all.push_back(std::move(experiment));
    }
  }
  return all;
}

absl::StatusOr<Sample> Measure(const Experiment& experiment, const PlayProgram& play, bool graphs) {
  RunOptions options;
  options.steps = experiment.steps;
  options.graphs = graphs;
  MESHWRIGHT_ASSIGN_OR_RETURN(const RunResult result, play(experiment.program, options, SyntheticData(1)));
  std::vector<Nanos> times = Durations(experiment, result.trace);
  if (times.empty()) return absl::InternalError(absl::StrCat(experiment.name, ": the trace is empty"));
  std::sort(times.begin(), times.end());
  const size_t last = times.size() - 1;
  Sample sample;
  sample.kind = experiment.kind;
  sample.name = experiment.name;
  sample.dtype = experiment.dtype;
  sample.collective = experiment.collective;
  sample.size = experiment.size;
  sample.ranks = experiment.program.mesh.num_ranks();
  sample.time = times[last / 4];
  sample.runs = static_cast<int64_t>(times.size());
  sample.spread = sample.time.raw() == 0 ? 0
                                         : static_cast<double>((times[last * 9 / 10] - times[last / 10]).raw()) /
                                               static_cast<double>(sample.time.raw());
  const RankClass& all = experiment.program.classes[0];
  const Instruction& instruction = all.blocks[0].instructions[experiment.measured];
  if (const auto* compute = std::get_if<Compute>(&instruction.work)) {
    sample.work = WorkOf(instruction, *compute, all, experiment.program.mesh);
  }
  return sample;
}

}  // namespace meshwright
