#include "planner/passes/beside_kernels.h"

#include <map>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "planner/passes/make_sync.h"

namespace meshwright {
namespace {

template <class Operands>
bool Share(const Operands& a, const Operands& b) {
  return absl::c_any_of(a, [&](const Operand& operand) {
    return absl::c_any_of(b, [&](const Operand& other) { return other.buffer == operand.buffer; });
  });
}

// Whether one of the two writes what the other uses.
bool Conflict(const Instruction& a, const Instruction& b) {
  return Share(a.writes, b.writes) || Share(a.writes, b.reads) || Share(a.reads, b.writes);
}

}  // namespace

void RunBesideKernels(const std::set<size_t>& which, Stream stream, Block& block, std::vector<Event>& events) {
  if (which.empty()) return;
  std::vector<Instruction>& before = block.instructions;
  std::map<size_t, std::vector<Instruction>> syncs;  // what to put before each of them
  for (const size_t i : which) {
    size_t ready = i, done = i + 1;
    while (ready > 0 && (which.count(ready - 1) > 0 || !Conflict(before[ready - 1], before[i]))) --ready;
    while (done < before.size() && (which.count(done) > 0 || !Conflict(before[done], before[i]))) ++done;
    const std::string name = absl::StrCat(block.name, " ", i);
    const EventId begin(events.size()), end(events.size() + 1);
    events.push_back({absl::StrCat(name, " ready"), 1, 1});
    events.push_back({absl::StrCat(name, " done"), 1, 1});
    before[i].stream = stream;
    before[i].waits.push_back({begin, 0});
    before[i].records.push_back({end, 0});
    syncs[ready].push_back(MakeSync(begin, false, before[i].origin));
    syncs[done].push_back(MakeSync(end, true, before[i].origin));
  }
  std::vector<Instruction> after;
  for (size_t i = 0; i <= before.size(); ++i) {
    for (Instruction& sync : syncs[i]) after.push_back(std::move(sync));
    if (i < before.size()) after.push_back(std::move(before[i]));
  }
  before = std::move(after);
}

}  // namespace meshwright
