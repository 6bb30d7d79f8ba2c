#include "planner/passes/overlap_context.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/passes/make_sync.h"

namespace meshwright {
namespace {

class Overlapper {
 public:
  Overlapper(RankClass& c, const AxisList& ring) : c_(c), ring_(ring) {}

  void Run() {
    for (Block& block : c_.blocks) {
      if (std::any_of(block.instructions.begin(), block.instructions.end(),
                      [this](const Instruction& instruction) { return Travels(instruction); })) {
        Move(block);
      }
    }
  }

 private:
  bool Travels(const Instruction& instruction) const {
    const auto* permute = std::get_if<Permute>(&instruction.work);
    return permute != nullptr && !permute->sources.empty() && permute->axes == ring_;
  }

  struct OnItsWay {
    Operand from, to;
    EventId done;
  };

  EventId NewEvent(std::string name) {
    c_.events.push_back({std::move(name), 1, 1});
    return EventId(c_.events.size() - 1);
  }

  // Whether the instruction needs what arrives, or overwrites what leaves.
  static bool Touches(const Instruction& instruction, const OnItsWay& travel) {
    const auto is = [](const Operand& wanted) {
      return [&wanted](const Operand& operand) { return operand.buffer == wanted.buffer; };
    };
    const auto any = [](const auto& operands, auto test) {
      return std::any_of(operands.begin(), operands.end(), test);
    };
    return any(instruction.reads, is(travel.to)) || any(instruction.writes, is(travel.to)) ||
           any(instruction.writes, is(travel.from));
  }

  void Move(Block& block) {
    const EventId ready = NewEvent(absl::StrCat(block.name, " keys ready"));
    std::vector<Instruction> out;
    std::vector<OnItsWay> open;  // in order of arrival
    const auto await = [&](size_t count) {
      if (count == 0) return;
      out.push_back(MakeSync(open[count - 1].done, true, block.name));
      open.erase(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(count));
    };
    for (Instruction& instruction : block.instructions) {
      if (Travels(instruction)) {
        const EventId done = NewEvent(absl::StrCat(block.name, " keys ", c_.events.size()));
        out.push_back(MakeSync(ready, false, block.name));
        open.push_back({instruction.reads[0], instruction.writes[0], done});
        instruction.stream = Stream::kContext;
        instruction.waits.push_back({ready, 0});
        instruction.records.push_back({done, 0});
      } else {
        size_t needed = 0;
        for (size_t i = 0; i < open.size(); ++i) needed = Touches(instruction, open[i]) ? i + 1 : needed;
        await(needed);
      }
      out.push_back(std::move(instruction));
    }
    await(open.size());
    block.instructions = std::move(out);
  }

  RankClass& c_;
  const AxisList& ring_;
};

}  // namespace

Program OverlapContext(Program program) {
  const AxisId ring = program.mesh.Find("cp");
  if (!ring.valid()) return program;
  const AxisList axes = {ring};
  for (RankClass& c : program.classes) Overlapper(c, axes).Run();
  return program;
}

}  // namespace meshwright
