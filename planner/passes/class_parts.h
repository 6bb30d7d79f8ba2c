// What a pass adds to one rank's program, and how it finds a block that an earlier pass named.
//
// Ids count a class's own lists, so what is added stands at the end and no id moves. Pure functions of the class given;
// no locking.
#ifndef MESHWRIGHT_PLANNER_PASSES_CLASS_PARTS_H_
#define MESHWRIGHT_PLANNER_PASSES_CLASS_PARTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "ir/program.h"
#include "planner/passes/operands.h"

namespace meshwright {

inline BufferId AddBuffer(RankClass& c, Buffer buffer) {
  c.buffers.push_back(std::move(buffer));
  return BufferId(c.buffers.size() - 1);
}

// No slot plays the block yet.
inline BlockId AddBlock(RankClass& c, std::string name, Phase phase, std::vector<Instruction> instructions) {
  c.blocks.push_back({std::move(name), phase, std::move(instructions)});
  return BlockId(c.blocks.size() - 1);
}

inline EventId AddEvent(RankClass& c, std::string name, int64_t layers = 1, int64_t microbatches = 1) {
  c.events.push_back({std::move(name), layers, microbatches});
  return EventId(c.events.size() - 1);
}

// Whether a pass gathers parameters within it (shard_parameters.h), so that the order of what it does is that of
// layers.
inline bool GathersInside(const Block& block) {
  const bool pass = absl::EndsWith(block.name, " forward") || absl::EndsWith(block.name, " backward");
  return pass && absl::c_any_of(block.instructions, [](const Instruction& instruction) {
           const auto* collective = std::get_if<Collective>(&instruction.work);
           return collective != nullptr && collective->kind == CollectiveKind::kAllGather &&
                  collective->purpose == Purpose::kParameter;
         });
}

// The first block of that name; invalid where there is none.
inline BlockId FindBlock(const RankClass& c, absl::string_view name) {
  for (size_t i = 0; i < c.blocks.size(); ++i) {
    if (c.blocks[i].name == name) return BlockId(i);
  }
  return BlockId();
}

// An instruction on the compute stream. `origin` as Instruction::origin.
inline Instruction MakeInstruction(Work work, Operands reads, Operands writes, std::string origin) {
  Instruction made;
  made.work = std::move(work);
  made.reads = std::move(reads);
  made.writes = std::move(writes);
  made.origin = std::move(origin);
  return made;
}

inline Compute MakeCompute(OpKind op, IndexRule rule) {
  Compute compute;
  compute.op = op;
  compute.rule = std::move(rule);
  return compute;
}

// to += from, element by element, for tensors of `rank` dims.
inline Instruction MakeAddition(size_t rank, const Operand& from, const Operand& to, std::string origin) {
  Compute add = MakeCompute(OpKind::kReduceSum, ElementwiseRule(rank, 1, 1));
  add.accumulate = true;
  return MakeInstruction(std::move(add), {from}, {to}, std::move(origin));
}

// An instruction on the compute stream that does nothing but wait for events and record others: how passes order
// streams. `origin` as Instruction::origin.
inline Instruction MakeSync(const std::vector<EventId>& waits, const std::vector<EventId>& records,
                            std::string origin) {
  Instruction sync;
  sync.work = Sync{};
  for (EventId id : waits) sync.waits.push_back({id, 0});
  for (EventId id : records) sync.records.push_back({id, 0});
  sync.origin = std::move(origin);
  return sync;
}

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_CLASS_PARTS_H_
