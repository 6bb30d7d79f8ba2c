// The table of the knobs of parallel training (S1.2, S14.2): one row each, which the `parallel:` section of a model
// file and the context of a C++ program (models/knob_context.h) both read.
//
// A row says which type a value must have (else E-TYPE), reads it (out of range: E-VALUE; keys of a map: E-KEY), and in
// which modes the knob acts; elsewhere a value that is not the default is E-STATE, or has no effect and is warned of.
// What holds between knobs is said in models/parallel.cc.
//
// To add a knob: its field in Parallel (models/parallel.h) and its row in models/knobs.cc. Nothing else names it.
//
// Thread safety: constants and pure functions.
#ifndef MESHWRIGHT_MODELS_KNOBS_H_
#define MESHWRIGHT_MODELS_KNOBS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/document.h"
#include "models/parallel.h"

namespace meshwright {

enum class KnobType : uint8_t { kInt, kNumber, kBytes, kBool, kText, kInts, kMap, kTextOrLists };

// A set of parallel modes, one bit each.
using Modes = uint8_t;
constexpr Modes ModeBit(ParallelMode mode) { return static_cast<Modes>(1u << static_cast<unsigned>(mode)); }
inline constexpr Modes kAnyMode = 0x1f;
inline constexpr Modes kManyRanks = kAnyMode & ~ModeBit(ParallelMode::kStandAlone);
inline constexpr Modes kPlannedModes = ModeBit(ParallelMode::kSemiAuto) | ModeBit(ParallelMode::kAuto);
inline constexpr Modes kByHandModes = ModeBit(ParallelMode::kDataParallel) | ModeBit(ParallelMode::kHybridParallel);

enum class Elsewhere : uint8_t { kIgnored, kState };  // a value other than the default in a mode that is not of `modes`

struct Knob {
  absl::string_view name;
  KnobType type;
  absl::string_view fallback;  // the default as a file spells it; "None": there is none
  Modes modes;
  Elsewhere elsewhere;
  // REQUIRES: the node is present and CheckType is OK.
  absl::Status (*read)(const NodeRef& in, Parallel& parallel);
};

absl::Span<const Knob> ParallelKnobs();

// The row of that name, or null.
const Knob* FindKnob(absl::string_view name);

inline bool ActsIn(const Knob& knob, ParallelMode mode) { return (knob.modes & ModeBit(mode)) != 0; }

// E-STATE where the knob neither acts in the mode nor is ignored there.
absl::Status CheckMode(const Knob& knob, ParallelMode mode);

// E-TYPE unless the value has the knob's type.
absl::Status CheckType(const Knob& knob, const NodeRef& in);

// Checks and reads every knob of `in`, a map, on its own and against the mode. An unknown one is E-VALUE.
absl::Status ReadKnobs(const NodeRef& in, Parallel& parallel);

// E-STATE, or a warning, for knobs that have no effect in the mode.
absl::Status CheckModes(const NodeRef& in, Parallel& parallel);

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_KNOBS_H_
