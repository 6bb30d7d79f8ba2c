#include "simulator/framework_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <variant>

namespace meshwright {

Nanos MoveTime(double bytes, const CostModel& costs) {
  KernelWork work;
  work.kernel = KernelClass::kMemory;
  work.read = Bytes(std::llround(bytes));
  return costs.Kernel(work);
}

Nanos CopyTime(Bytes bytes, const CostModel& costs) { return MoveTime(2 * static_cast<double>(bytes.raw()), costs); }

Nanos FrameworkKernels::AroundKernel(const Instruction& instruction, const KernelWork& work,
                                     const RankClass& rank_class, Phase phase) const {
  const Compute& compute = std::get<Compute>(instruction.work);
  Nanos time = StepsTime(instruction, work, rank_class, phase);
  const bool product = InfoOf(compute.op).kernel == KernelClass::kContraction;
  const bool table = host_.whole_tables && work.backward && InfoOf(compute.op).role == OpRole::kTable;
  if (table) time += ZeroTime(instruction, rank_class);
  const bool added = compute.accumulate && program_.num_microbatches > 1;
  if (added && (table || (product && host_.adds_gradients))) time += AddTime(instruction, rank_class);
  if (host_.optimizer_bytes != 0 && IsOptimizer(compute.op)) {
    // Over the gradients of an update: of an element for each of its points.
    const double points = work.flops.raw() / InfoOf(compute.op).flops_per_point;
    const Nanos moved = MoveTime(points * std::abs(host_.optimizer_bytes), costs_);
    time += host_.optimizer_bytes > 0 ? moved : Nanos() - moved;
  }
  return time;
}

// Of the kernels between a list of pieces and a flat buffer: one a rank for the call, and one a rank for each tensor
// where there are several of what was gathered.
Nanos FrameworkKernels::AroundCollective(const Instruction& instruction, Bytes size) const {
  const Collective& collective = std::get<Collective>(instruction.work);
  const bool gathers = collective.kind == CollectiveKind::kAllGather;
  const int64_t ranks = program_.mesh.SizeOf(collective.axes);
  if (ranks <= 1 || (!gathers && collective.kind != CollectiveKind::kReduceScatter)) return Nanos();
  if (collective.purpose == Purpose::kActivation) return host_.copies_gathered ? CopyTime(size, costs_) : Nanos();
  if (!host_.copies_pieces) return Nanos();
  const int64_t tensors = gathers ? static_cast<int64_t>(instruction.writes.size()) : 1;
  const auto copies = [&](int64_t kernels) {
    return std::max(costs_.HostLaunch(), CopyTime(Bytes(size.raw() / kernels), costs_)) * kernels;
  };
  return copies(ranks) + (tensors > 1 ? copies(ranks * tensors) : Nanos());
}

// Of the kernels that stand for steps of an operator of ours.
Nanos FrameworkKernels::StepsTime(const Instruction& instruction, const KernelWork& work, const RankClass& rank_class,
                                  Phase phase) const {
  const OpInfo& op = InfoOf(std::get<Compute>(instruction.work).op);
  double moved = 0;
  const auto add = [&](const EagerBytes& bytes, double elements) {
    moved += elements * (work.backward ? bytes.backward : bytes.forward);
  };
  const auto elements_of = [&](const Operand& operand) {
    const Buffer& buffer = rank_class.buffers[operand.buffer.index()];
    return static_cast<double>(NumElements(LocalShape(buffer.shape, buffer.layout, program_.mesh)));
  };
  // The first gradient that an op's gradient takes is of the result, the first that it makes of the first input.
  const auto of_result = [&] { return elements_of((work.backward ? instruction.reads : instruction.writes)[0]); };
  const auto of_input = [&] { return elements_of((work.backward ? instruction.writes : instruction.reads)[0]); };
  switch (op.role) {
    case OpRole::kActivation:
      add(host_.activations, of_result());
      break;
    case OpRole::kGate:
      add(host_.gates, of_result());
      break;
    case OpRole::kNorm:
      add(host_.norms, of_result());
      break;
    case OpRole::kCombine:
      add(host_.experts.results, of_input());
      break;
    case OpRole::kLogits:
      add(host_.logits, of_input());
      break;
    case OpRole::kOther:
    case OpRole::kTable:
    case OpRole::kDispatch:
    case OpRole::kGroup:
    case OpRole::kUpdate:
      break;
  }
  if (op.kernel == KernelClass::kAttention) {
    const double rows = static_cast<double>(work.batch) * static_cast<double>(work.m);
    const double kept = work.fused && work.causal ? 0.5 : 1;
    const int64_t keys = work.fused && work.window > 0 ? 2 * work.window : work.n;
    add(host_.scores, kept * rows * static_cast<double>(std::min(keys, work.n)));
    add(host_.queries, rows * static_cast<double>(work.k));
  }
  if (op.kernel == KernelClass::kContraction) {
    // Forward where the parameter is read, backward where its gradient is made: once in each.
    for (const Operand& read : instruction.reads) {
      const bool parameter = rank_class.buffers[read.buffer.index()].role == BufferRole::kParameter;
      if (parameter && phase == Phase::kForward) moved += elements_of(read) * host_.parameters.forward;
      const double unpacked = phase == Phase::kForward ? host_.unpacked.forward : host_.unpacked.backward;
      if (parameter) moved += elements_of(read) * unpacked;
    }
    for (const Operand& write : instruction.writes) {
      const bool gradient = rank_class.buffers[write.buffer.index()].role == BufferRole::kGradient;
      const double whole = work.batch > 1 ? static_cast<double>(work.batch) * host_.experts.whole_gradients : 0;
      if (gradient) moved += elements_of(write) * (host_.parameters.backward + whole);
    }
  }
  return moved > 0 ? MoveTime(moved, costs_) : Nanos();
}

// To fill the gradient of a table, in the type of what is added to its rows, before they are.
Nanos FrameworkKernels::ZeroTime(const Instruction& gather, const RankClass& rank_class) const {
  const Buffer& made = rank_class.buffers[gather.reads[0].buffer.index()];
  const Buffer& gradient = rank_class.buffers[gather.writes[0].buffer.index()];
  const int64_t elements = NumElements(LocalShape(gradient.shape, gradient.layout, program_.mesh));
  return MoveTime(static_cast<double>(SizeOf(made.dtype).raw()) * static_cast<double>(elements), costs_);
}

// To add what an op made in its own type to the gradient.
Nanos FrameworkKernels::AddTime(const Instruction& instruction, const RankClass& rank_class) const {
  KernelWork add;
  add.kernel = KernelClass::kMemory;
  const Buffer& made = rank_class.buffers[instruction.reads[0].buffer.index()];
  for (const Operand& operand : instruction.writes) {
    const Buffer& gradient = rank_class.buffers[operand.buffer.index()];
    if (gradient.role != BufferRole::kGradient) continue;
    const int64_t elements = NumElements(LocalShape(gradient.shape, gradient.layout, program_.mesh));
    add.read += (SizeOf(made.dtype) + SizeOf(gradient.dtype)) * elements;
    add.written += SizeOf(gradient.dtype) * elements;
  }
  return add.written == Bytes() ? Nanos() : costs_.Kernel(add);
}

}  // namespace meshwright
