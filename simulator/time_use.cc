#include "simulator/time_use.h"

#include <algorithm>
#include <variant>

namespace meshwright {
namespace {

struct UseOfWork {
  Phase phase;
  bool optimizer;

  TimeUse OfKernel() const {
    if (optimizer) return TimeUse::kOptimizer;
    return phase == Phase::kForward ? TimeUse::kForward : TimeUse::kBackward;
  }
  TimeUse operator()(const Compute& compute) const { return compute.recompute ? TimeUse::kRecompute : OfKernel(); }
  TimeUse operator()(const Slice&) const { return OfKernel(); }
  TimeUse operator()(const Sync&) const { return OfKernel(); }  // takes no time
  TimeUse operator()(const Permute&) const { return TimeUse::kActivationCollective; }
  TimeUse operator()(const Transfer&) const { return TimeUse::kTransfer; }
  TimeUse operator()(const Collective& collective) const {
    switch (collective.purpose) {
      case Purpose::kActivation:
        return TimeUse::kActivationCollective;
      case Purpose::kGradient:
        return TimeUse::kGradientCollective;
      case Purpose::kParameter:
        return TimeUse::kParameterCollective;
      case Purpose::kReport:
        break;
    }
    return TimeUse::kReportCollective;
  }
};

bool RunsOptimizer(const Instruction& instruction) {
  const auto* compute = std::get_if<Compute>(&instruction.work);
  return compute != nullptr && InfoOf(compute->op).role == OpRole::kUpdate;
}

}  // namespace

TimeUse UseOf(const Instruction& instruction, Phase phase, bool optimizer) {
  return std::visit(UseOfWork{phase, optimizer}, instruction.work);
}

bool HoldsOptimizer(const Block& block) {
  return std::any_of(block.instructions.begin(), block.instructions.end(), RunsOptimizer);
}

}  // namespace meshwright
