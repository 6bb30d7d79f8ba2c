#include "tools/track_record.h"

#include <iterator>

namespace meshwright {
namespace {

// By RunKind.
constexpr TrackRecord kRecords[] = {
    {"adapters", 75, 0.154, 0.95, 1.82},
    {"experts, in grouped products", 202, 0.284, 0.92, 3.15},
    {"experts, in a loop", 1, 0.284, 0.92, 3.15},
    {"rows of 64 K and more, or shared", 79, 0.049, 0.93, 1.34},
    {"cards on PCIe", 17, 0.145, 0.99, 2.57},
    {"V100", 181, 0.099, 0.95, 1.72},
    {"Blackwell", 41, 0.059, 0.87, 2.11},
    {"parameters split, up to 64 devices", 75, 0.117, 0.91, 1.54},
    {"parameters split, over 64 devices", 70, 0.133, 0.97, 1.55},
    {"A100 to H200, up to 64 devices", 110, 0.100, 0.92, 1.73},
    {"A100 to H200, over 64 devices", 58, 0.063, 0.97, 1.25},
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
