// The settings of a parallel training program that is written in C++ (S1.1): the knobs of `parallel:` and `context:` of
// a model file, by name.
//
//   KnobContext context;
//   MESHWRIGHT_RETURN_IF_ERROR(context.Set({{"parallel_mode", "auto_parallel"}, {"device_num", 8}}));
//   MESHWRIGHT_RETURN_IF_ERROR(context.Set({{"comm_fusion", KnobValue::Map{{"openstate", false}}}}));
//   context.Get("device_num")                    // 8, as it was set; a default where nothing was
//   context.Parallel(training)                   // all of them, typed, as the planner takes them
//
// Values are checked when they are set, by the rows that also check a file (models/knobs.h): their type, range and
// keys. Whether a knob may be used in the mode is checked once the mode is set, and in any case by Parallel().
//
// Errors by kind as in ir/error_kind.h. Thread safety: one thread at a time.
#ifndef MESHWRIGHT_MODELS_KNOB_CONTEXT_H_
#define MESHWRIGHT_MODELS_KNOB_CONTEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/model_file.h"
#include "models/parallel.h"
#include "models/training.h"

namespace meshwright {

// What a knob may hold: nothing, a bool, a number, a text, a list, a map.
struct KnobValue {
  using List = std::vector<KnobValue>;
  using Map = std::vector<std::pair<std::string, KnobValue>>;

  KnobValue() = default;
  KnobValue(bool v) : value(v) {}
  KnobValue(int v) : value(int64_t{v}) {}
  KnobValue(int64_t v) : value(v) {}
  KnobValue(double v) : value(v) {}
  KnobValue(const char* v) : value(std::string(v)) {}
  KnobValue(std::string v) : value(std::move(v)) {}
  KnobValue(List v) : value(std::move(v)) {}
  KnobValue(Map v) : value(std::move(v)) {}

  std::variant<std::monostate, bool, int64_t, double, std::string, List, Map> value;

  friend bool operator==(const KnobValue& a, const KnobValue& b) { return a.value == b.value; }
};

// As a file spells it: `{mode: "size", config: 32}`.
std::string ToText(const KnobValue& value);

class KnobContext {
 public:
  // Any subset of the knobs. A set that fails changes nothing. An unknown knob is E-VALUE.
  absl::Status Set(const KnobValue::Map& knobs);
  // What was set, unchanged, or the default. E-VALUE for an unknown knob.
  absl::StatusOr<KnobValue> Get(absl::string_view knob) const;
  void Reset();

  // That init has joined a job (S1.3). From here on device_target stays: a change is E-STATE.
  void SetWorld(int64_t rank, int64_t size) { world_ = {rank, size}; }
  // What is set explicitly, so that a plan for 8 devices needs none; else the job's. E-STATE where there is neither.
  absl::StatusOr<int64_t> DeviceNum() const;
  absl::StatusOr<int64_t> GlobalRank() const;

  absl::StatusOr<meshwright::Parallel> Parallel(const Training& training) const;
  absl::StatusOr<Context> Process() const;

 private:
  const KnobValue* Find(absl::string_view knob) const;

  KnobValue::Map set_;  // in order of the last time each was set
  std::optional<std::pair<int64_t, int64_t>> world_;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_KNOB_CONTEXT_H_
