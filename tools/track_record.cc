#include "tools/track_record.h"

#include <iterator>

namespace meshwright {
namespace {

// By RunKind.
constexpr TrackRecord kRecords[] = {
    {"adapters", 75, 0.154, 0.94, 1.82},
    {"experts", 141, 0.200, 0.88, 2.61},
    {"rows of 64 K and more, or shared", 79, 0.052, 0.92, 1.34},
    {"cards on PCIe", 12, 0.097, 0.97, 1.19},
    {"V100", 64, 0.246, 1.00, 2.06},
    {"Blackwell", 41, 0.076, 0.87, 2.11},
    {"parameters split, up to 64 devices", 67, 0.117, 0.91, 1.43},
    {"parameters split, over 64 devices", 70, 0.131, 0.98, 1.55},
    {"A100 to H200, up to 64 devices", 88, 0.097, 0.91, 1.74},
    {"A100 to H200, over 64 devices", 52, 0.056, 0.97, 1.24},
};
static_assert(std::size(kRecords) == kNumRunKinds);

}  // namespace

const TrackRecord& TrackRecordOf(RunKind kind) { return kRecords[static_cast<size_t>(kind)]; }

RunKind KindOf(const RunTraits& run, const Cluster& cluster) {
  if (run.adapters) return RunKind::kAdapters;
  if (run.experts > 1) return RunKind::kExperts;
  if (run.context > 1 || run.sequence >= kLongRow) return RunKind::kLongRows;
  if (cluster.intra_kind == LinkKind::kPcie) return RunKind::kPcie;
  if (cluster.device.generation <= Generation::kVolta) return RunKind::kVolta;
  if (cluster.device.generation >= Generation::kBlackwell) return RunKind::kBlackwell;
  const bool few = cluster.num_devices() <= kFewDevices;
  if (run.shard_parameters) return few ? RunKind::kSplitFew : RunKind::kSplitMany;
  return few ? RunKind::kFew : RunKind::kMany;
}

}  // namespace meshwright
