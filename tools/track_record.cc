#include "tools/track_record.h"

#include <iterator>

namespace meshwright {
namespace {

// By RunKind.
constexpr TrackRecord kRecords[] = {
    {"adapters", 81, 0.175, 0.94, 1.87},
    {"experts, in grouped products", 267, 0.258, 0.87, 2.55},
    {"experts, in a loop", 4, 0.532, 1.97, 20.25},
    {"rows of 64 K and more, or shared", 80, 0.050, 0.93, 1.34},
    {"cards on PCIe", 57, 0.091, 0.92, 1.35},
    {"V100", 193, 0.098, 0.96, 1.67},
    {"Blackwell", 79, 0.085, 0.85, 1.21},
    {"parameters split, up to 64 devices", 98, 0.083, 0.91, 1.44},
    {"parameters split, over 64 devices", 79, 0.120, 0.95, 1.51},
    {"A100 to H200, up to 64 devices", 213, 0.090, 0.92, 1.51},
    {"A100 to H200, over 64 devices", 103, 0.105, 0.98, 1.32},
};
static_assert(std::size(kRecords) == kNumRunKinds);

}  // namespace

const TrackRecord& TrackRecordOf(RunKind kind) { return kRecords[static_cast<size_t>(kind)]; }

RunKind KindOf(const RunTraits& run, const Cluster& cluster) {
  if (run.adapters) return RunKind::kAdapters;
  if (run.experts > 1) return run.expert_loop ? RunKind::kExpertLoops : RunKind::kExperts;
  if (run.context > 1 || run.sequence >= kLongRow) return RunKind::kLongRows;
  if (IsPcie(cluster.intra_kind)) return RunKind::kPcie;
  if (cluster.device.generation <= Generation::kVolta) return RunKind::kVolta;
  if (cluster.device.generation >= Generation::kBlackwell) return RunKind::kBlackwell;
  const bool few = cluster.num_devices() <= kFewDevices;
  if (run.shard_parameters) return few ? RunKind::kSplitFew : RunKind::kSplitMany;
  return few ? RunKind::kFew : RunKind::kMany;
}

}  // namespace meshwright
