#include "planner/passes/beside_kernels.h"

#include <map>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "ir/strategy.h"
#include "planner/passes/class_parts.h"
#include "planner/passes/operands.h"

namespace meshwright {
namespace {

// Whether the two must stay in order: one of them writes what the other uses, or orders others.
bool Conflict(const Instruction& a, const Instruction& b) {
  if (std::holds_alternative<Sync>(a.work) || std::holds_alternative<Sync>(b.work)) return true;
  return Meet(a, b);
}

}  // namespace

void RunBesideKernels(const std::set<size_t>& which, Stream stream, TravelStart start, Block& block,
                      std::vector<Event>& events) {
  if (which.empty()) return;
  std::vector<Instruction>& before = block.instructions;
  std::map<size_t, std::vector<Instruction>> syncs;  // what to put before each of them
  for (const size_t i : which) {
    size_t ready = i, done = i + 1;
    const bool early = start == TravelStart::kWhenReady;
    while (early && ready > 0 && (which.count(ready - 1) > 0 || !Conflict(before[ready - 1], before[i]))) --ready;
    while (done < before.size() && (which.count(done) > 0 || !Conflict(before[done], before[i]))) ++done;
    const std::string name = absl::StrCat(block.name, " ", i);
    const EventId begin(events.size()), end(events.size() + 1);
    events.push_back({absl::StrCat(name, " ready"), 1, 1});
    events.push_back({absl::StrCat(name, " done"), 1, 1});
    before[i].stream = stream;
    before[i].waits.push_back({begin, 0});
    before[i].records.push_back({end, 0});
    syncs[ready].push_back(MakeSync({}, {begin}, before[i].origin));
    syncs[done].push_back(MakeSync({end}, {}, before[i].origin));
  }
  std::vector<Instruction> after;
  for (size_t i = 0; i <= before.size(); ++i) {
    for (Instruction& sync : syncs[i]) after.push_back(std::move(sync));
    if (i < before.size()) after.push_back(std::move(before[i]));
  }
  before = std::move(after);
}

Program RunRingBesideKernels(Program program) {
  const AxisList axes = ContextAxes(program.mesh);
  if (axes.empty()) return program;
  for (RankClass& c : program.classes) {
    for (Block& block : c.blocks) {
      std::set<size_t> travels;
      for (size_t i = 0; i < block.instructions.size(); ++i) {
        const auto* permute = std::get_if<Permute>(&block.instructions[i].work);
        if (permute != nullptr && !permute->sources.empty() && permute->axes == axes) travels.insert(i);
      }
      RunBesideKernels(travels, Stream::kContext, TravelStart::kWhereItStands, block, c.events);
    }
  }
  return program;
}

}  // namespace meshwright
