#include "planner/search/probe.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "planner/lower.h"
#include "planner/passes/cut_runs.h"
#include "simulator/price.h"

namespace meshwright {
namespace {

// Whether gradients may be rows, and be overwritten instead of added to. Where a combination's are, so are those of the
// same one with sharded parameters.
bool ScattersGradients(const Problem& problem, const Combination& combination) {
  return combination.shard_parameters || problem.gradient_accumulation_shard;
}

void OverwriteGradients(Program& program) {
  for (Block& block : program.classes[0].blocks) {
    for (Instruction& instruction : block.instructions) {
      if (auto* compute = std::get_if<Compute>(&instruction.work)) compute->accumulate = false;
    }
  }
}

// Reads a probe off the program of one micro-batch on one stage.
class ProbeReader {
 public:
  ProbeReader(bool scatters_gradients, bool shard_parameters, const LoweredProbe& lowered, const CostModel& costs,
              const Prices& prices)
      : costs_(costs),
        scatters_gradients_(scatters_gradients),
        shard_parameters_(shard_parameters),
        graph_(lowered.of->graph),
        program_(lowered.program),
        c_(program_.classes[0]),
        prices_(prices.classes[0]) {
    probe_.runs = lowered.of->runs;
  }

  Probe Read() {
    probe_.stacks = LayersOf(graph_);
    probe_.segments.resize(graph_.segments.size());
    size_t kind = 0;
    for (size_t run = 0; run < probe_.runs.size(); ++run) {
      for (int64_t layer = 0; layer < probe_.runs[run].layers; ++layer, ++kind) {
        probe_.segments[probe_.stacks[kind].segment].run = static_cast<int>(run);
        layers_ += probe_.stacks[kind].repeat;
      }
    }
    uses_.resize(c_.buffers.size());
    for (size_t b = 0; b < c_.blocks.size(); ++b) {
      if (const size_t s = SegmentOf(b); s < graph_.segments.size()) ReadBlock(b, s);
    }
    for (size_t i = 0; i < c_.buffers.size(); ++i) ReadBuffer(i);
    for (const auto& [use, bytes] : alike_) {
      probe_.buffers.push_back(use);
      probe_.buffers.back().bytes = bytes;
    }
    return std::move(probe_);
  }

 private:
  struct Uses {
    absl::InlinedVector<uint32_t, 2> segments;
    bool forward = false, read_backward = false;
    Probe::Shares shares;
  };

  // The program's first blocks are the forward and then the backward blocks of the segments; others bear their names.
  size_t SegmentOf(size_t block) const {
    const size_t n = graph_.segments.size();
    if (block < 2 * n) return block % n;
    for (size_t s = 0; s < n; ++s) {
      if (absl::StartsWith(c_.blocks[block].name, absl::StrCat(graph_.segments[s].name, " "))) return s;
    }
    return n;
  }

  void ReadBlock(size_t b, size_t s) {
    Probe::SegmentCost& cost = probe_.segments[s];
    const Block& block = c_.blocks[b];
    const bool forward = b < graph_.segments.size();
    const bool backward = !forward && b < 2 * graph_.segments.size();
    Nanos time, kernels;
    for (size_t i = 0; i < block.instructions.size(); ++i) {
      const Instruction& instruction = block.instructions[i];
      if (instruction.stream == Stream::kCompute) time += prices_[b][i].time;
      if (std::holds_alternative<Compute>(instruction.work)) kernels += prices_[b][i].time;
      for (const auto* operands : {&instruction.reads, &instruction.writes}) {
        for (const Operand& operand : *operands) {
          Uses& uses = uses_[operand.buffer.index()];
          if (!absl::c_linear_search(uses.segments, s)) uses.segments.push_back(static_cast<uint32_t>(s));
          uses.forward |= forward;
          uses.read_backward |= backward && operands == &instruction.reads;
        }
      }
      if (absl::EndsWith(block.name, " update")) ReadUpdate(instruction, prices_[b][i].time, cost);
    }
    if (forward) {
      cost.forward = time;
      cost.forward_kernels = kernels;
      cost.forward_inside = MostAlive(block);
    } else if (backward) {
      cost.backward = time;
      cost.backward_kernels = kernels;
      cost.backward_inside = MostAlive(block);
    } else if (absl::EndsWith(block.name, " zero") && !scatters_gradients_) {
      cost.clear = time;
    }
  }

  // reads: parameter or master, gradient, states; of several parameters one after the other. Each has its part of the
  // time by its elements: a kernel of fewer takes no less for each of them.
  void ReadUpdate(const Instruction& instruction, Nanos time, Probe::SegmentCost& cost) {
    const auto* compute = std::get_if<Compute>(&instruction.work);
    const size_t reads = instruction.reads.size();
    if (compute != nullptr && compute->turn != Turn()) {  // whole: the price is that of a part
      cost.in_turns += costs_.Kernel(WorkOf(instruction, *compute, c_, program_.mesh));
    }
    if (compute == nullptr || reads < 2 || !IsOptimizer(compute->op)) return;
    // What Muon does behind its first step has no gradient, and is split otherwise.
    if (c_.buffers[instruction.reads[1].buffer.index()].role != BufferRole::kGradient) return;
    const std::optional<UpdateOperands> operands =
        UpdateOperandsOf(compute->op, compute->attrs, reads, instruction.writes.size());
    const size_t each = operands.has_value() ? operands->inputs : reads;
    const size_t tensors = operands.has_value() ? static_cast<size_t>(compute->attrs->tensors) : 1;
    const auto elements_of = [&](size_t t) {
      const Buffer& buffer = c_.buffers[instruction.reads[t * each].buffer.index()];
      return static_cast<double>(NumElements(LocalShape(buffer.shape, buffer.layout, program_.mesh)));
    };
    double elements = 0;
    for (size_t t = 0; t < tensors; ++t) elements += elements_of(t);
    for (size_t t = 0; t < tensors; ++t) {
      const Buffer* gradient = &c_.buffers[RootOf(c_, instruction.reads[t * each + 1].buffer).index()];
      Probe::Shares shares;
      shares.replicas = program_.mesh.SizeOf(gradient->layout.partial);
      if (const Shape local = LocalShape(gradient->shape, gradient->layout, program_.mesh); !local.empty()) {
        shares.rows = local[0];
      }
      const double part = tensors == 1 ? 1 : elements_of(t) / elements;
      cost.update[shares] += Nanos(static_cast<int64_t>(static_cast<double>(time.raw()) * part));
      for (size_t i = 0; i < each; ++i) uses_[instruction.reads[t * each + i].buffer.index()].shares = shares;
    }
  }

  Bytes MostAlive(const Block& block) const {
    std::map<BufferId, std::pair<size_t, size_t>> lives;
    for (size_t i = 0; i < block.instructions.size(); ++i) {
      for (const auto* operands : {&block.instructions[i].reads, &block.instructions[i].writes}) {
        for (const Operand& operand : *operands) {
          const BufferId id = RootOf(c_, operand.buffer);
          if (c_.buffers[id.index()].role != BufferRole::kTemporary) continue;
          lives.try_emplace(id, i, i).first->second.second = i;
        }
      }
    }
    std::vector<Bytes> alive(block.instructions.size());
    for (const auto& [id, life] : lives) {
      for (size_t i = life.first; i <= life.second; ++i) alive[i] += c_.buffers[id.index()].bytes;
    }
    return alive.empty() ? Bytes() : *std::max_element(alive.begin(), alive.end());
  }

  void ReadBuffer(size_t i) {
    const Buffer& buffer = c_.buffers[i];
    if (buffer.role == BufferRole::kTemporary || buffer.alias.valid() || uses_[i].segments.empty()) return;
    if (buffer.role == BufferRole::kGradient && scatters_gradients_) return;
    if (buffer.role == BufferRole::kParameter && shard_parameters_) return;
    Probe::BufferUse use;
    use.segments = uses_[i].segments;
    absl::c_sort(use.segments);
    use.bytes = buffer.bytes;
    size_t users = 0;  // of the chain
    for (size_t k = 0; k < probe_.stacks.size(); ++k) {
      if (!absl::c_linear_search(use.segments, probe_.stacks[k].segment)) continue;
      ++users;
      if (buffer.layers > 1 && buffer.layers == probe_.stacks[k].repeat) use.layered = static_cast<int>(k);
    }
    use.border = users > 0 && buffer.layers == layers_ + 1;
    if (users != 1 || use.border) use.layered = -1;
    const bool kept = buffer.role == BufferRole::kActivation || buffer.role == BufferRole::kInput;
    use.in_flight = kept && uses_[i].forward && uses_[i].read_backward;
    if (buffer.role == BufferRole::kMaster || buffer.role == BufferRole::kOptimizerState) {
      use.bytes = LocalBytes(buffer, program_.mesh);
      use.shares = uses_[i].shares;
    }
    const Bytes bytes = std::exchange(use.bytes, Bytes());
    alike_[use] += bytes;
  }

  const CostModel& costs_;
  const bool scatters_gradients_, shard_parameters_;
  const Graph& graph_;
  const Program& program_;
  const RankClass& c_;
  const std::vector<std::vector<InstructionPrice>>& prices_;
  Probe probe_;
  int64_t layers_ = 0;  // of the chain
  std::vector<Uses> uses_;
  // The bytes of all buffers of which there are as many wherever the layers lie, by what decides that.
  std::map<Probe::BufferUse, Bytes> alike_;
};

}  // namespace

absl::StatusOr<LoweredProbe> LowerProbe(const Problem& problem, const CostModel& costs, const DecoderFacts& facts,
                                        const Combination& combination, KeptForProbes& kept) {
  Combination alone = combination;
  alone.degrees.pipeline = 1;
  alone.pipelining = {};
  alone.degrees.data = alone.degrees.expert_data();
  alone.degrees.copies = 1;
  alone.parallel_optimizer = alone.shard_parameters = false;
  alone.bucket = Bytes();  // gradients' calls are not looked at
  Problem one = problem;
  one.batch = alone.degrees.data * alone.degrees.microbatch;
  MESHWRIGHT_ASSIGN_OR_RETURN(const Strategy strategy, StrategyOf(one, alone, facts.sizes));
  LoweredProbe lowered;
  MESHWRIGHT_ASSIGN_OR_RETURN(lowered.of, kept.graphs.Get(one.batch, [&]() -> absl::StatusOr<SortedGraph> {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, problem.graph(one.batch));
    return SortedGraph{SortLayers(graph), LayersOf(graph)};
  }));
  MESHWRIGHT_ASSIGN_OR_RETURN(const LoweredBlocks blocks, LowerBlocks(lowered.of->graph, {}, strategy, problem.update,
                                                                      PriceSteps(costs, strategy.mesh),
                                                                      /*observe=*/nullptr, &kept.redistributions));
  MESHWRIGHT_ASSIGN_OR_RETURN(lowered.program, LowerStages(blocks, strategy, problem.update));
  return lowered;
}

absl::StatusOr<Probe> ReadProbe(const Problem& problem, const CostModel& costs, const Combination& combination,
                                LoweredProbe& lowered) {
  const bool scatters_gradients = ScattersGradients(problem, combination);
  if (scatters_gradients) OverwriteGradients(lowered.program);
  MESHWRIGHT_ASSIGN_OR_RETURN(const Prices prices, PriceProgram(lowered.program, costs));
  return ProbeReader(scatters_gradients, combination.shard_parameters, lowered, costs, prices).Read();
}

}  // namespace meshwright
