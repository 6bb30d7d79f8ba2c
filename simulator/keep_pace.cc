#include "simulator/keep_pace.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <variant>

#include "ir/kernel_work.h"
#include "simulator/time_use.h"

namespace meshwright {
namespace {

// The score matrix between two products takes a softmax, a dropout and a copy of the result; backward, twice the
// products. A gradient is accumulated by a kernel of its own.
constexpr int64_t kUnfusedForwardKernels = 5, kUnfusedBackwardKernels = 7;

// One operator launches them, forward or backward: 20 a layer in a profile of Megatron-LM's state spaces
// (costmodel/README.md). Of Triton 3.5, from Python, with 19 arguments: meta-pytorch/tritonbench, pull 669.
constexpr Nanos kTritonLaunch(13'000);
constexpr int64_t kLinearKernels = 10;

const Compute* ComputeOf(const Instruction& instruction) { return std::get_if<Compute>(&instruction.work); }

// Of queries and of keys, which frameworks norm one after the other.
bool IsNormOfHeads(OpKind op) { return op == OpKind::kNormHeads || op == OpKind::kNormHeadsGrad; }

OpRole RoleOf(const Instruction& instruction) {
  const Compute* const compute = ComputeOf(instruction);
  return compute == nullptr ? OpRole::kOther : InfoOf(compute->op).role;
}

bool IsProduct(const Instruction& instruction) {
  const Compute* const compute = ComputeOf(instruction);
  return compute != nullptr && InfoOf(compute->op).kernel == KernelClass::kContraction;
}

bool SendsTokens(const Instruction& instruction) {
  const auto* collective = std::get_if<Collective>(&instruction.work);
  return collective != nullptr && collective->kind == CollectiveKind::kAllToAll &&
         collective->purpose == Purpose::kActivation;
}

// A block's pace.
class Pace {
 public:
  Pace(const Block& block, const RankClass& rank_class, const Mesh& mesh, const HostPace& host, Nanos launch)
      : block_(block), class_(rank_class), mesh_(mesh), host_(host), launch_(launch) {
    const bool forward = block.phase == Phase::kForward;
    const auto& list = block.instructions;
    first_expert_ = list.size();
    for (size_t i = 0; i < list.size(); ++i) {
      const OpRole role = RoleOf(list[i]);
      if (role != OpRole::kDispatch && role != OpRole::kCombine && role != OpRole::kGroup) continue;
      first_expert_ = std::min(first_expert_, i);
      last_expert_ = i;
      if (forward && role == OpRole::kDispatch) waits_at_ = i + 1;
    }
    if (host.experts.step > Nanos()) {
      for (const Instruction& instruction : list) experts_ = std::max(experts_, ExpertsOf(instruction));
    }
    for (const Instruction& instruction : list) issue_.push_back(IssueTime(instruction, issue_.size()));
  }

  Nanos issue(size_t i) const { return issue_[i]; }
  // Where the CPU waits; the block's size where it does not.
  size_t waits_at() const {
    return host_.experts.waits && waits_at_ > 0 ? waits_at_ % block_.instructions.size() : block_.instructions.size();
  }

 private:
  // Attention and the router, where a graph holds them: in front of the experts, in a backward pass behind them.
  bool Captured(size_t i) const {
    if (!host_.experts.graphs || first_expert_ == block_.instructions.size()) return false;
    return block_.phase == Phase::kForward ? i < first_expert_ : i > last_expert_;
  }

  Nanos IssueTime(const Instruction& instruction, size_t i) const {
    if (std::holds_alternative<Sync>(instruction.work) || Captured(i)) return Nanos();
    if (std::holds_alternative<Collective>(instruction.work) || std::holds_alternative<Permute>(instruction.work) ||
        std::holds_alternative<Transfer>(instruction.work)) {
      return host_.collective;
    }
    const Compute* const compute = ComputeOf(instruction);
    if (compute == nullptr) return host_.kernel;
    const KernelClass kernel = InfoOf(compute->op).kernel;
    const OpRole role = InfoOf(compute->op).role;
    if (kernel == KernelClass::kNone || role == OpRole::kGroup) return Nanos();
    if (role == OpRole::kDispatch) return host_.kernel * StepsOf(instruction, host_.experts.dispatch);
    if (role == OpRole::kCombine) {
      return host_.kernel * StepsOf(instruction, host_.experts.combine) + ResultSteps(instruction);
    }
    const int64_t kernels = (compute->accumulate ? 2 : 1) * (IsNormOfHeads(compute->op) ? 2 : 1);
    if (kernel == KernelClass::kLinearAttention && host_.kernel > Nanos()) {
      return host_.kernel * kernels + kTritonLaunch * (kLinearKernels - 1);
    }
    if (kernel == KernelClass::kAttention) return AttentionTime(instruction, *compute, host_.kernel * kernels);
    Nanos issue = host_.kernel * kernels;
    if (host_.step > Nanos()) issue += host_.step * WorkOf(instruction, *compute, class_, mesh_).steps;
    if (kernel != KernelClass::kContraction) return issue;
    issue = Nanos(std::llround(static_cast<double>(issue.raw()) * host_.products));
    if (const int64_t experts = ExpertsOf(instruction); experts > 1) issue += ExpertTime(instruction) * experts;
    return issue;
  }

  Nanos AttentionTime(const Instruction& instruction, const Compute& compute, Nanos fused) const {
    const bool backward = WorkOf(instruction, compute, class_, mesh_).backward;
    // Once, however many blocks of keys go round.
    const bool first = compute.attrs->shift <= 0;
    const Nanos positions = !first ? Nanos() : backward ? host_.layer_backward : host_.layer_forward;
    if (compute.attrs->fused) return fused + positions;
    return host_.kernel * (backward ? kUnfusedBackwardKernels : kUnfusedForwardKernels) + positions;
  }

  // Of one expert's part of a product.
  Nanos ExpertTime(const Instruction& product) const {
    const ExpertPace& pace = host_.experts;
    if (pace.launches == 0) return Nanos();
    const Nanos rest = launch_ * (pace.launches - 1);
    if (pace.product == Nanos()) return launch_ + rest;
    const bool gradient = class_.buffers[product.writes[0].buffer.index()].role == BufferRole::kGradient;
    return pace.product * (gradient ? 2 : 1) + rest;
  }

  int64_t StepsOf(const Instruction& instruction, const PassSteps& steps) const {
    return WorkOf(instruction, *ComputeOf(instruction), class_, mesh_).backward ? steps.backward : steps.forward;
  }

  // For each expert that the rank has, as its products tell.
  Nanos ResultSteps(const Instruction& combine) const {
    const EagerBytes& steps = host_.experts.result_steps;
    const bool backward = WorkOf(combine, *ComputeOf(combine), class_, mesh_).backward;
    const double count = (backward ? steps.backward : steps.forward) * static_cast<double>(experts_);
    return Nanos(std::llround(static_cast<double>(host_.experts.step.raw()) * count));
  }

  int64_t ExpertsOf(const Instruction& instruction) const {
    return IsProduct(instruction) ? WorkOf(instruction, *ComputeOf(instruction), class_, mesh_).batch : 1;
  }

  const Block& block_;
  const RankClass& class_;
  const Mesh& mesh_;
  const HostPace& host_;
  const Nanos launch_;
  int64_t experts_ = 1;
  size_t first_expert_ = 0, last_expert_ = 0, waits_at_ = 0;
  std::vector<Nanos> issue_;
};

// Gradients and parameters travel beside the kernels, and so do keys that go round.
bool RunsBeside(const Instruction& instruction) {
  const auto* collective = std::get_if<Collective>(&instruction.work);
  return instruction.stream == Stream::kContext ||
         (collective != nullptr && collective->purpose != Purpose::kActivation) ||
         std::holds_alternative<Transfer>(instruction.work);
}

bool Share(const absl::InlinedVector<Operand, 4>& some, const absl::InlinedVector<Operand, 4>& others) {
  return std::any_of(some.begin(), some.end(), [&](const Operand& operand) {
    return std::find(others.begin(), others.end(), operand) != others.end();
  });
}

// Matrices of which the product's is made: queries, keys and values where attention follows, two where a gate does. Of
// the product that makes their gradient, in a backward pass, those stand before it.
int64_t MatricesOf(const Block& block, size_t product, bool backward, const RankClass& rank_class, const Mesh& mesh) {
  for (size_t i = product; backward ? i-- > 0 : ++i < block.instructions.size();) {
    const Instruction& instruction = block.instructions[i];
    const Compute* const compute = ComputeOf(instruction);
    if (compute == nullptr || IsProduct(instruction)) return 1;
    const bool attention = InfoOf(compute->op).kernel == KernelClass::kAttention;
    if (!attention && RoleOf(instruction) != OpRole::kGate) continue;
    if (WorkOf(instruction, *compute, rank_class, mesh).backward != backward) return 1;
    return attention ? 3 : 2;
  }
  return 1;
}

// The product that covers the collective `c`, which has covered nothing yet: that reads what was gathered, or makes
// what is scattered. The block's size where there is none.
size_t CoveringProduct(const Block& block, size_t c, bool gathers, const std::vector<bool>& covers) {
  const Instruction& collective = block.instructions[c];
  for (size_t i = 0; i < block.instructions.size(); ++i) {
    const Instruction& product = block.instructions[i];
    if (covers[i] || !IsProduct(product) || (i > c) != gathers) continue;
    if (gathers ? Share(product.reads, collective.writes) : Share(product.writes, collective.reads)) return i;
  }
  return block.instructions.size();
}

}  // namespace

HostPace WithCpu(HostPace host, double times) {
  for (Nanos* time : {&host.kernel, &host.collective, &host.step, &host.update, &host.layer_forward,
                      &host.layer_backward, &host.experts.product, &host.experts.step}) {
    *time = FromSeconds(ToSeconds(*time) * times);
  }
  return host;
}

void KeepPace(const Block& block, const RankClass& rank_class, const Mesh& mesh, const HostPace& host, Nanos launch,
              std::vector<InstructionPrice>* prices) {
  if (HoldsOptimizer(block)) return;
  const Pace pace(block, rank_class, mesh, host, launch);
  const size_t count = prices->size();
  const auto run = [&](size_t i) {
    return RunsBeside(block.instructions[i]) || (*prices)[i].time >= kForever ? Nanos() : (*prices)[i].time;
  };
  Nanos issued, kernels_issued, busy;
  for (size_t i = 0; i < count; ++i) {
    issued += pace.issue(i);
    if (ComputeOf(block.instructions[i]) != nullptr) kernels_issued += pace.issue(i);
    busy += run(i);
  }
  if (host.launch_blocking) busy = Nanos();
  Nanos takes = issued;
  if (pace.waits_at() < count && !host.launch_blocking) {
    Nanos cpu, device;
    for (size_t k = 0; k < count; ++k) {
      const size_t i = (pace.waits_at() + k) % count;
      cpu += pace.issue(i);
      device = std::max(cpu, device) + run(i);
    }
    takes = std::max(issued, device);
  }
  if (takes <= busy || kernels_issued <= Nanos()) return;
  const double waiting = static_cast<double>((takes - busy).raw()) / static_cast<double>(kernels_issued.raw());
  for (size_t i = 0; i < count; ++i) {
    if (ComputeOf(block.instructions[i]) == nullptr) continue;
    (*prices)[i].time += Nanos(std::llround(waiting * static_cast<double>(pace.issue(i).raw())));
  }
}

void GatherEach(const Block& block, const RankClass& rank_class, const Mesh& mesh,
                std::vector<InstructionPrice>* prices) {
  for (size_t c = 0; c < block.instructions.size(); ++c) {
    const Instruction& instruction = block.instructions[c];
    const auto* collective = std::get_if<Collective>(&instruction.work);
    if (collective == nullptr || collective->purpose != Purpose::kActivation) continue;
    if (collective->kind == CollectiveKind::kAllToAll) continue;  // tokens, or heads
    const bool gathers = collective->kind == CollectiveKind::kAllGather;
    for (size_t i = 0; i < block.instructions.size(); ++i) {
      const Instruction& product = block.instructions[i];
      if (!IsProduct(product)) continue;
      if (!(gathers ? Share(product.reads, instruction.writes) : Share(product.writes, instruction.reads))) continue;
      (*prices)[c].time = (*prices)[c].time * MatricesOf(block, i, !gathers, rank_class, mesh);
      break;
    }
  }
}

void OverlapProducts(const Block& block, const std::vector<GroupShape>& groups, std::vector<InstructionPrice>* prices) {
  std::vector<bool> covers(block.instructions.size());
  for (size_t i = 0; i < block.instructions.size(); ++i) {
    const auto* collective = std::get_if<Collective>(&block.instructions[i].work);
    if (collective == nullptr || collective->purpose != Purpose::kActivation) continue;
    const bool gathers = collective->kind == CollectiveKind::kAllGather;
    if (!gathers && collective->kind != CollectiveKind::kReduceScatter) continue;
    const GroupShape& group = groups[i];
    if (group.nodes > 1 || group.ranks <= 1) continue;
    const size_t product = CoveringProduct(block, i, gathers, covers);
    if (product == block.instructions.size()) continue;
    covers[product] = true;
    Nanos& time = (*prices)[i].time;
    const Nanos piece(time.raw() / group.ranks);
    const Nanos covered((*prices)[product].time.raw() / group.ranks * (group.ranks - 1));
    time = std::max(piece, time - covered);
  }
}

void OverlapExperts(const Block& block, int32_t share, std::vector<InstructionPrice>* prices) {
  double kernels = 0, sent = 0, taken = 0;  // in ns; `taken`: of the multiprocessors while tokens are sent
  for (size_t i = 0; i < prices->size(); ++i) {
    const InstructionPrice& price = (*prices)[i];
    if (price.time >= kForever) return;
    const auto time = static_cast<double>(price.time.raw());
    if (ComputeOf(block.instructions[i]) != nullptr) kernels += time;
    if (!SendsTokens(block.instructions[i])) continue;
    sent += time;
    taken += time * (share > 0 ? share : price.multiprocessors) / kWhole;
  }
  if (sent <= 0 || kernels <= 0) return;
  const double rate = 1 - taken / sent;
  const double covered = std::min(sent, kernels / rate);
  for (size_t i = 0; i < prices->size(); ++i) {
    const bool sends = SendsTokens(block.instructions[i]);
    if (!sends && ComputeOf(block.instructions[i]) == nullptr) continue;
    const double times = sends ? (sent - covered) / sent : (kernels + (1 - rate) * covered) / kernels;
    Nanos& time = (*prices)[i].time;
    time = Nanos(std::llround(times * static_cast<double>(time.raw())));
  }
}

void SendShare(const Block& block, const std::vector<GroupShape>& groups, double share,
               std::vector<InstructionPrice>* prices) {
  for (size_t i = 0; i < prices->size(); ++i) {
    Nanos& time = (*prices)[i].time;
    if (groups[i].nodes <= 1 || !SendsTokens(block.instructions[i]) || time >= kForever) continue;
    time = Nanos(std::llround(share * static_cast<double>(time.raw())));
  }
}

void JoinDispatches(const Block& block, const std::vector<GroupShape>& groups, std::vector<InstructionPrice>* prices) {
  // In the order of the block: out, in towards the experts; in, out from them. Pairs that a Dispatch or Combine of
  // groups stands between.
  size_t last = prices->size();
  for (size_t i = 0; i < prices->size(); ++i) {
    if (IsProduct(block.instructions[i])) last = prices->size();
    if (!SendsTokens(block.instructions[i])) continue;
    if (last < prices->size() && (groups[last].nodes > 1) != (groups[i].nodes > 1)) {
      Nanos &one = (*prices)[last].time, &other = (*prices)[i].time;
      (one < other ? one : other) = Nanos();
      last = prices->size();
    } else {
      last = i;
    }
  }
}

}  // namespace meshwright
