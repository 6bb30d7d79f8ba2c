#include "tools/track_record.h"

#include <iterator>

namespace meshwright {
namespace {

// By RunKind.
constexpr TrackRecord kRecords[] = {
    {"adapters", 159, 0.130, 0.86, 1.43},
    {"experts, in grouped products", 374, 0.251, 0.88, 2.26},
    {"experts, in a loop", 4, 0.512, 1.95, 19.59},
    {"rows of 64 K and more, or shared", 98, 0.050, 0.92, 1.27},
    {"cards on PCIe", 73, 0.113, 0.92, 1.39},
    {"V100", 193, 0.098, 0.96, 1.67},
    {"Blackwell", 101, 0.080, 0.83, 1.15},
    {"parameters split, up to 64 devices", 148, 0.071, 0.92, 1.40},
    {"parameters split, over 64 devices", 109, 0.131, 0.94, 1.51},
    {"A100 to H200, up to 64 devices", 321, 0.085, 0.93, 1.47},
    {"A100 to H200, over 64 devices", 131, 0.067, 0.95, 1.27},
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
