// How far predictions of training runs were off so far, by what kind of run it was: what `plan` says beside a time.
//
// Measured: runs that others published, in tests/published/training, whose test holds these figures to them
// (docs/accuracy.md, "By kind of run"). `validate training` prints the same table for any rows.
//
// Thread safety: constants, a pure function.
#ifndef MESHWRIGHT_TOOLS_TRACK_RECORD_H_
#define MESHWRIGHT_TOOLS_TRACK_RECORD_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "ir/cluster.h"

namespace meshwright {

enum class RunKind : uint8_t {
  kAdapters,
  kExperts,      // products of all experts of a rank at once, as in our programs
  kExpertLoops,  // a product after the other
  kLongRows,
  kPcie,
  kVolta,
  kBlackwell,
  kSplitFew,
  kSplitMany,
  kFew,
  kMany,
  kNumKinds
};
inline constexpr size_t kNumRunKinds = static_cast<size_t>(RunKind::kNumKinds);

// Runs of up to so many devices are told from larger ones, rows of so many tokens from shorter ones.
inline constexpr int64_t kFewDevices = 64;
inline constexpr int64_t kLongRow = 65536;

struct TrackRecord {
  absl::string_view name;
  int64_t runs = 0;
  double median = 0;  // of the absolute error, a share of what was measured
  // Measured over predicted: a tenth of the runs took less than `low` times the prediction, a tenth more than `high`.
  double low = 1, high = 1;
};
const TrackRecord& TrackRecordOf(RunKind kind);

struct RunTraits {
  bool adapters = false;
  int64_t experts = 0;       // of a layer
  bool expert_loop = false;  // which are computed one after the other
  int64_t sequence = 0;      // tokens of a row
  int64_t context = 1;       // ranks that share a row
  bool shard_parameters = false;
};
// The first kind, in their order, that it is of.
RunKind KindOf(const RunTraits& run, const Cluster& cluster);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_TRACK_RECORD_H_
