// Kernels that a framework has around ours (HostPace in price.h): steps of an operator of ours, sums of gradients,
// passes over them, copies between a list of tensors and a flat buffer. Private to the library of price.h.
//
// Thread safety: const, as the cost model.
#ifndef MESHWRIGHT_SIMULATOR_FRAMEWORK_KERNELS_H_
#define MESHWRIGHT_SIMULATOR_FRAMEWORK_KERNELS_H_

#include "costmodel/cost_model.h"
#include "ir/kernel_work.h"
#include "ir/program.h"
#include "ir/quantities.h"
#include "simulator/price.h"

namespace meshwright {

// A kernel that moves `bytes`, read and written together, and computes nothing.
Nanos MoveTime(double bytes, const CostModel& costs);
// Reads and writes `bytes`.
Nanos CopyTime(Bytes bytes, const CostModel& costs);

class FrameworkKernels {
 public:
  // All of them must outlive it.
  FrameworkKernels(const Program& program, const CostModel& costs, const HostPace& host)
      : program_(program), costs_(costs), host_(host) {}

  // Time of those around the kernel `instruction`, which does `work` in a block of `phase`.
  // REQUIRES: the instruction is a Compute of `rank_class`.
  Nanos AroundKernel(const Instruction& instruction, const KernelWork& work, const RankClass& rank_class,
                     Phase phase) const;
  // Of those around a collective whose larger side has `size`.
  // REQUIRES: the instruction is a Collective.
  Nanos AroundCollective(const Instruction& instruction, Bytes size) const;

 private:
  Nanos StepsTime(const Instruction& instruction, const KernelWork& work, const RankClass& rank_class,
                  Phase phase) const;
  Nanos ZeroTime(const Instruction& gather, const RankClass& rank_class) const;
  Nanos AddTime(const Instruction& instruction, const RankClass& rank_class) const;

  const Program& program_;
  const CostModel& costs_;
  const HostPace& host_;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_FRAMEWORK_KERNELS_H_
