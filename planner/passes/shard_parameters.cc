#include "planner/passes/shard_parameters.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "planner/passes/class_parts.h"
#include "planner/passes/scatter_in_backward.h"

namespace meshwright {
namespace {

// Layers whose parameters are whole at one time: the one that runs and the one that is being gathered.
constexpr int64_t kWholeLayers = 2;

// Runs of so many layers go layer by layer. First and last layers of runs have two places each, and up to two others
// are whole meanwhile: of a run of two that is more than both have.
constexpr size_t kLeastOfRun = 3;

// One parameter that takes part.
struct Member {
  BufferId parameter;             // whole, as kernels read it
  BufferId gradient;              // whole, partial: what the backward pass writes
  BufferId rows;                  // of the gradient: what the update reads
  size_t gather = 0, reduce = 0;  // instructions of the segment's blocks
  int64_t layer = 0;              // of the run
};

// A segment of the graph: its blocks, by name.
struct Segment {
  BlockId forward, backward, zero, reduce, gather;
  BlockId makes;  // the gradients: `backward`, or the block of those of parameters
  std::vector<Member> members;
  std::vector<Member> frozen;  // without gradients
  BlockId scatter;             // R; without one all are frozen
  BlockId add;                 // A; without one there is one micro-batch
  BlockId gather_back;         // of a run's last layer, where the first is in `gather`
};

// Layers of a run in the order in which a pass comes to them, and where it does.
struct Visits {
  std::vector<int64_t> layers;
  std::map<int64_t, size_t> begins;  // by layer: the first instruction that uses a parameter of it
};

class Sharder {
 public:
  // Without `parameters`: gradients only, of segments that have more layers than are whole at one time.
  Sharder(RankClass& c, int64_t microbatches, bool parameters, const std::set<std::string>& layer_ends)
      : c_(c), microbatches_(microbatches), parameters_(parameters), layer_ends_(layer_ends) {}

  void Run() {
    for (size_t b = 0; b < c_.blocks.size(); ++b) {
      if (absl::EndsWith(c_.blocks[b].name, " gather")) AddSegment(BlockId(b));
    }
    for (Segment& segment : segments_) FindMembers(segment);
    segments_.erase(std::remove_if(segments_.begin(), segments_.end(),
                                   [](const Segment& s) { return s.members.empty() && s.frozen.empty(); }),
                    segments_.end());
    for (Segment& segment : segments_) FindLayers(segment);
    for (Segment& segment : segments_) Rewrite(segment);
    if (!segments_.empty()) Reorder();
  }

 private:
  Block& At(BlockId id) { return c_.blocks[id.index()]; }
  Buffer& At(BufferId id) { return c_.buffers[id.index()]; }

  void AddSegment(BlockId gather) {
    const std::string name(absl::StripSuffix(At(gather).name, " gather"));
    Segment segment;
    segment.gather = gather;
    segment.forward = FindBlock(c_, absl::StrCat(name, " forward"));
    segment.backward = FindBlock(c_, absl::StrCat(name, " backward"));
    const BlockId weights = FindBlock(c_, absl::StrCat(name, " weights"));
    segment.makes = weights.valid() ? weights : segment.backward;
    segment.zero = FindBlock(c_, absl::StrCat(name, " zero"));
    segment.reduce = FindBlock(c_, absl::StrCat(name, " reduce"));
    for (const BlockId id : {segment.forward, segment.backward, segment.zero, segment.reduce}) {
      if (!id.valid()) return;
    }
    segments_.push_back(segment);
  }

  // --- who takes part ----------------------------------------------------------------------------------------------

  void FindMembers(Segment& segment) {
    const auto& gathers = At(segment.gather).instructions;
    const auto& reduces = At(segment.reduce).instructions;
    for (size_t g = 0; g < gathers.size(); ++g) {
      Member member;
      member.parameter = gathers[g].writes[0].buffer;
      member.gather = g;
      const std::set<BlockId> passes = {segment.gather, segment.forward, segment.backward, segment.makes};
      if (parameters_ && !OnlyIn(c_, member.parameter, passes)) continue;
      if (!At(member.parameter).trainable) {
        segment.frozen.push_back(member);
        continue;
      }
      const std::string gradient = absl::StrCat("d", At(member.parameter).name);
      const auto reduce = std::find_if(reduces.begin(), reduces.end(), [&](const Instruction& instruction) {
        const auto* work = std::get_if<Collective>(&instruction.work);
        return work != nullptr && work->kind == CollectiveKind::kReduceScatter &&
               c_.buffers[instruction.reads[0].buffer.index()].name == gradient;
      });
      if (reduce == reduces.end()) continue;
      member.gradient = reduce->reads[0].buffer;
      member.rows = reduce->writes[0].buffer;
      member.reduce = static_cast<size_t>(reduce - reduces.begin());
      if (!parameters_ && At(member.gradient).layers <= kWholeLayers) continue;
      if (!OnlyIn(c_, member.gradient, {segment.zero, segment.reduce, segment.makes})) continue;
      segment.members.push_back(member);
    }
    while (DropWhatCannotStart(segment)) {
    }
  }

  // The instruction of the backward pass that contributes to a gradient first overwrites it. One that contributes to
  // several can only do so if it is the first for all of them, and all take part.
  bool DropWhatCannotStart(Segment& segment) {
    std::map<BufferId, size_t> member_of;
    for (size_t m = 0; m < segment.members.size(); ++m) member_of[segment.members[m].gradient] = m;
    std::set<BufferId> seen;
    std::set<size_t> dropped;
    for (const Instruction& instruction : At(segment.makes).instructions) {
      size_t first = 0, others = 0;
      std::vector<size_t> members;
      for (const Operand& operand : instruction.writes) {
        if (At(operand.buffer).role != BufferRole::kGradient) continue;
        const auto member = member_of.find(operand.buffer);
        if (member != member_of.end()) members.push_back(member->second);
        const bool starts = member != member_of.end() && operand.layer_shift == 0 && seen.insert(operand.buffer).second;
        ++(starts ? first : others);
      }
      if (first > 0 && others > 0) dropped.insert(members.begin(), members.end());
    }
    std::vector<Member> kept;
    for (size_t m = 0; m < segment.members.size(); ++m) {
      const bool made = seen.count(segment.members[m].gradient) > 0;
      if (made && dropped.count(m) == 0) kept.push_back(segment.members[m]);
    }
    const bool changed = kept.size() != segment.members.size();
    segment.members = std::move(kept);
    return changed;
  }

  // --- layers of a run ---------------------------------------------------------------------------------------------

  // Where gradients of parameters run apart (zero-bubble schedules) a run stays one.
  void FindLayers(Segment& segment) {
    if (!parameters_ || segment.makes != segment.backward) return;
    std::map<BufferId, int64_t> layer_of;
    int64_t layer = 0;
    for (const Instruction& instruction : At(segment.forward).instructions) {
      for (const Operand& operand : instruction.reads) layer_of.try_emplace(operand.buffer, layer);
      for (const Operand& operand : instruction.writes) {
        const std::string& name = At(operand.buffer).name;
        if (layer_ends_.count(name.substr(0, name.find('@'))) > 0) ++layer;
      }
    }
    for (auto* some : {&segment.members, &segment.frozen}) {
      for (Member& member : *some) {
        const auto found = layer_of.find(member.parameter);
        if (found != layer_of.end()) member.layer = found->second;
      }
    }
  }

  Visits VisitsOf(const Segment& segment, BlockId pass) const {
    std::map<BufferId, int64_t> layer_of;
    for (const auto* some : {&segment.members, &segment.frozen}) {
      for (const Member& member : *some) layer_of[member.parameter] = member.layer;
    }
    Visits visits;
    const std::vector<Instruction>& instructions = c_.blocks[pass.index()].instructions;
    for (size_t i = 0; i < instructions.size(); ++i) {
      for (const Operand& operand : instructions[i].reads) {
        const auto found = layer_of.find(operand.buffer);
        if (found == layer_of.end() || !visits.begins.try_emplace(found->second, i).second) continue;
        visits.layers.push_back(found->second);
      }
    }
    return visits;
  }

  static void MakeTemporary(Buffer& buffer) {
    buffer.role = BufferRole::kTemporary;
    buffer.trainable = false;
    buffer.layers = 1;
    buffer.first_layer = 0;
  }

  // What goes in front of instructions of a block, by number.
  using Insertions = std::map<size_t, std::vector<Instruction>>;
  void Insert(BlockId block, Insertions insertions) {
    std::vector<Instruction> out;
    std::vector<Instruction>& instructions = At(block).instructions;
    for (size_t i = 0; i <= instructions.size(); ++i) {
      const auto found = insertions.find(i);
      if (found != insertions.end()) {
        for (Instruction& instruction : found->second) out.push_back(std::move(instruction));
      }
      if (i < instructions.size()) out.push_back(std::move(instructions[i]));
    }
    instructions = std::move(out);
  }
  static void Replace(BufferId from, BufferId to, Instruction& instruction) {
    for (auto* operands : {&instruction.reads, &instruction.writes}) {
      for (Operand& operand : *operands) {
        if (operand.buffer == from) operand.buffer = to;
      }
    }
  }

  // The gathers of what a pass reads: those of the layer that it comes to first, which write what is noted in `kept`,
  // and in `inside` those of the others, which write temporaries.
  std::vector<Instruction> GathersOf(const Segment& segment, BlockId pass, const Visits& visits,
                                     std::set<BufferId>& kept, Insertions& inside) {
    std::vector<Instruction> before;
    std::map<int64_t, size_t> place;  // by layer: where the one in front of it begins
    for (size_t i = 1; i < visits.layers.size(); ++i) place[visits.layers[i]] = visits.begins.at(visits.layers[i - 1]);
    for (const auto* some : {&segment.frozen, &segment.members}) {
      for (const Member& member : *some) {
        const bool reads = absl::c_any_of(At(pass).instructions, [&](const Instruction& instruction) {
          return Has(instruction.reads, member.parameter);
        });
        if (!reads) continue;
        Instruction gather = At(segment.gather).instructions[member.gather];
        const auto found = place.find(member.layer);
        if (found == place.end()) {
          kept.insert(member.parameter);
          before.push_back(std::move(gather));
          continue;
        }
        Buffer copy = At(member.parameter);
        MakeTemporary(copy);
        absl::StrAppend(&copy.name, "@", absl::StrContains(At(pass).name, " forward") ? "forward" : "backward");
        const BufferId inner = AddBuffer(c_, std::move(copy));
        gather.writes[0] = {inner, 0};
        inside[found->second].push_back(std::move(gather));
        for (Instruction& instruction : At(pass).instructions) Replace(member.parameter, inner, instruction);
      }
    }
    return before;
  }

  // R and A of all layers but the last that the pass comes to, whose gradients it leaves whole.
  void ScatterInside(const Segment& segment, const Visits& visits, Insertions& inside) {
    std::vector<Instruction> adds;  // of the layer before
    const size_t end = At(segment.backward).instructions.size();
    for (size_t v = 0; v + 1 < visits.layers.size(); ++v) {
      std::vector<Instruction> scatters, next;
      size_t behind = 0;
      for (const Member& member : segment.members) {
        if (member.layer != visits.layers[v]) continue;
        const std::vector<Instruction>& instructions = At(segment.backward).instructions;
        for (size_t i = 0; i < end; ++i) {
          if (Has(instructions[i].writes, member.gradient)) behind = std::max(behind, i + 1);
        }
        MakeTemporary(At(member.gradient));
        scatters.push_back(At(segment.reduce).instructions[member.reduce]);
        if (microbatches_ == 1) continue;
        next.push_back(Add(member, &scatters.back()));
        MakeTemporary(At(scatters.back().writes[0].buffer));
      }
      if (scatters.empty()) continue;
      std::vector<Instruction>& here = inside[behind];
      // In front of what is gathered there, which the layer behind needs.
      std::vector<Instruction> all = std::move(adds);
      all.insert(all.end(), scatters.begin(), scatters.end());
      here.insert(here.begin(), all.begin(), all.end());
      adds = std::move(next);
    }
    inside[end].insert(inside[end].end(), adds.begin(), adds.end());
  }

  // Returns whether it is a run whose layers go one by one.
  bool RewriteRun(Segment& segment) {
    const Visits forward = VisitsOf(segment, segment.forward), backward = VisitsOf(segment, segment.backward);
    if (forward.layers.size() < kLeastOfRun || backward.layers.size() < kLeastOfRun) return false;
    // One layer would be gathered in front of both passes, and its place held from one to the other.
    if (forward.layers.front() == backward.layers.front()) return false;
    std::set<BufferId> gradients, kept;
    std::set<size_t> gathered, reduced;
    Insertions inside_forward, inside_backward;
    std::vector<Instruction> first = GathersOf(segment, segment.forward, forward, kept, inside_forward);
    std::vector<Instruction> last = GathersOf(segment, segment.backward, backward, kept, inside_backward);
    std::vector<Instruction> reduce, add;
    for (const auto* some : {&segment.frozen, &segment.members}) {
      for (const Member& member : *some) {
        gathered.insert(member.gather);
        Buffer& whole = At(member.parameter);
        whole.layers = std::min(whole.layers, kWholeLayers);
        if (kept.count(member.parameter) == 0) MakeTemporary(whole);  // nothing uses it
      }
    }
    ScatterInside(segment, backward, inside_backward);
    for (const Member& member : segment.members) {
      gradients.insert(member.gradient);
      reduced.insert(member.reduce);
      if (member.layer != backward.layers.back()) continue;
      reduce.push_back(At(segment.reduce).instructions[member.reduce]);
      At(member.gradient).layers = std::min(At(member.gradient).layers, kWholeLayers);
      if (microbatches_ > 1) add.push_back(Add(member, &reduce.back()));
    }
    Overwrite(segment, gradients);
    Clear(segment, gradients);
    Insert(segment.forward, std::move(inside_forward));
    Insert(segment.backward, std::move(inside_backward));
    const std::string name(absl::StripSuffix(At(segment.gather).name, " gather"));
    Remove(segment.gather, gathered);
    rest_.insert(segment.gather);
    segment.gather = AddBlock(c_, absl::StrCat(name, " gather one"), Phase::kForward, std::move(first));
    segment.gather_back = AddBlock(c_, absl::StrCat(name, " gather last"), Phase::kForward, std::move(last));
    FinishReductions(segment, name, reduced, std::move(reduce), std::move(add));
    return true;
  }

  // --- blocks and buffers ------------------------------------------------------------------------------------------

  void Rewrite(Segment& segment) {
    if (RewriteRun(segment)) return;
    std::set<BufferId> gradients;
    std::set<size_t> gathered, reduced;
    std::vector<Instruction> gather, reduce, add;
    const auto gather_member = [&](const Member& member) {
      gathered.insert(member.gather);
      gather.push_back(At(segment.gather).instructions[member.gather]);
      if (parameters_) At(member.parameter).layers = std::min(At(member.parameter).layers, kWholeLayers);
    };
    for (const Member& member : segment.frozen) gather_member(member);
    for (const Member& member : segment.members) {
      gather_member(member);
      gradients.insert(member.gradient);
      reduced.insert(member.reduce);
      reduce.push_back(At(segment.reduce).instructions[member.reduce]);
      At(member.gradient).layers = std::min(At(member.gradient).layers, kWholeLayers);
      if (microbatches_ > 1) add.push_back(Add(member, &reduce.back()));
    }
    Overwrite(segment, gradients);
    Clear(segment, gradients);
    const std::string name(absl::StripSuffix(At(segment.gather).name, " gather"));
    if (parameters_) {
      Remove(segment.gather, gathered);
      rest_.insert(segment.gather);
      segment.gather = AddBlock(c_, absl::StrCat(name, " gather one"), Phase::kForward, std::move(gather));
    }
    FinishReductions(segment, name, reduced, std::move(reduce), std::move(add));
  }

  // Takes the reductions out of their block; those of a whole layer have a block of their own.
  void FinishReductions(Segment& segment, const std::string& name, const std::set<size_t>& reduced,
                        std::vector<Instruction> reduce, std::vector<Instruction> add) {
    Remove(segment.reduce, reduced);
    rest_.insert(segment.reduce);
    for (const Instruction& rest : At(segment.reduce).instructions) {
      if (rows_.count(rest.reads[0].buffer) == 0) continue;
      rows_.insert(rest.writes[0].buffer);
      reduces_.insert(segment.reduce);
    }
    if (reduce.empty()) return;
    segment.scatter = AddBlock(c_, absl::StrCat(name, " scatter"), Phase::kBackward, std::move(reduce));
    if (!add.empty()) segment.add = AddBlock(c_, absl::StrCat(name, " add"), Phase::kBackward, std::move(add));
  }

  void Remove(BlockId block, const std::set<size_t>& which) {
    size_t i = 0;
    std::erase_if(At(block).instructions, [&](const Instruction&) { return which.count(i++) > 0; });
  }

  // Lets the reduction write rows of its own, and returns what adds them to the gradient.
  Instruction Add(const Member& member, Instruction* reduce) {
    Buffer piece = At(member.rows);
    absl::StrAppend(&piece.name, "@piece");
    piece.layers = std::min(piece.layers, kWholeLayers);
    const BufferId id = AddBuffer(c_, std::move(piece));
    reduce->writes[0].buffer = id;
    rows_.insert(member.rows);
    return MakeAddition(At(id).shape.size(), {id, 0}, {member.rows, 0}, At(member.rows).name);
  }

  // The first contribution to each gradient overwrites what the layer before left there.
  void Overwrite(const Segment& segment, const std::set<BufferId>& gradients) {
    std::set<BufferId> seen;
    for (Instruction& instruction : At(segment.makes).instructions) {
      for (const Operand& operand : instruction.writes) {
        if (gradients.count(operand.buffer) == 0 || !seen.insert(operand.buffer).second) continue;
        if (auto* compute = std::get_if<Compute>(&instruction.work)) compute->accumulate = false;
      }
    }
  }

  // What is cleared at the start of the step are the rank's rows, where they are added to.
  void Clear(const Segment& segment, const std::set<BufferId>& gradients) {
    std::map<BufferId, BufferId> rows;
    for (const Member& member : segment.members) rows[member.gradient] = member.rows;
    std::vector<Instruction> kept;
    for (Instruction& fill : At(segment.zero).instructions) {
      Instruction out = fill;
      out.writes.clear();
      for (Operand operand : fill.writes) {
        const bool member = gradients.count(operand.buffer) > 0;
        if (member && microbatches_ == 1) continue;
        if (member) operand.buffer = rows[operand.buffer];
        out.writes.push_back(operand);
      }
      if (out.writes.empty()) continue;
      kept.push_back(std::move(out));
    }
    At(segment.zero).instructions = std::move(kept);
    rest_.insert(segment.zero);
  }

  // --- slots -------------------------------------------------------------------------------------------------------

  const Segment* SegmentOf(BlockId pass) const {
    for (const Segment& segment : segments_) {
      if (segment.forward == pass || segment.backward == pass || segment.makes == pass) return &segment;
    }
    return nullptr;
  }
  bool ReadsParameters(const Segment& segment, BlockId pass) const {
    std::set<BufferId> parameters;
    for (const auto* some : {&segment.members, &segment.frozen}) {
      for (const Member& member : *some) parameters.insert(member.parameter);
    }
    for (const Instruction& instruction : c_.blocks[pass.index()].instructions) {
      for (const Operand& operand : instruction.reads) {
        if (parameters.count(operand.buffer) > 0) return true;
      }
    }
    return false;
  }
  // Where the whole parameters of a layer lie.
  static int64_t PlaceOf(int64_t layer) { return layer % kWholeLayers; }

  struct Use {
    BlockId gather;
    int64_t layer;
    size_t slot;  // in the new list
  };

  void Reorder() {
    std::vector<Slot> slots;
    std::vector<Use> uses;
    for (const Slot& slot : c_.slots) {
      const Segment* segment = SegmentOf(slot.block);
      if (segment == nullptr) {
        if (rest_.count(slot.block) == 0 || !At(slot.block).instructions.empty()) slots.push_back(slot);
        continue;
      }
      const bool reads = parameters_ && ReadsParameters(*segment, slot.block);
      for (int64_t k = 0; k < slot.count; ++k) {
        Slot one = slot;
        one.layer = slot.layer + k * slot.step;
        one.count = 1;
        const bool back = segment->gather_back.valid() && slot.block != segment->forward;
        if (reads) uses.push_back({back ? segment->gather_back : segment->gather, one.layer, slots.size()});
        slots.push_back(one);
      }
    }
    c_.slots = WithScatters(slots, Gathers(uses));
  }

  // Before which slot each gather goes: a use ahead of the one that needs it, unless that one runs on the same memory.
  std::multimap<size_t, Slot> Gathers(const std::vector<Use>& uses) const {
    std::multimap<size_t, Slot> gathers;
    std::map<std::pair<BlockId, int64_t>, int64_t> held;  // layer, by place
    for (size_t u = 0; u < uses.size(); ++u) {
      const Use& use = uses[u];
      const auto [place, inserted] = held.try_emplace({use.gather, PlaceOf(use.layer)}, -1);
      if (place->second == use.layer) continue;
      place->second = use.layer;
      size_t before = use.slot;
      if (u > 0) {
        const Use& last = uses[u - 1];
        const bool same = last.gather == use.gather && PlaceOf(last.layer) == PlaceOf(use.layer);
        if (!same) before = last.slot;
      }
      gathers.emplace(before, Slot{use.gather, 0, use.layer, 1, 1});
    }
    return gathers;
  }

  std::vector<Slot> WithScatters(const std::vector<Slot>& slots, const std::multimap<size_t, Slot>& gathers) {
    std::vector<Slot> out;
    std::vector<Slot> sums;  // not yet added to the gradient, and reductions of these
    const auto add = [&] {
      out.insert(out.end(), sums.begin(), sums.end());
      sums.clear();
    };
    for (size_t s = 0; s < slots.size(); ++s) {
      const auto [first, last] = gathers.equal_range(s);
      for (auto gather = first; gather != last; ++gather) out.push_back(gather->second);
      const Segment* segment = SegmentOf(slots[s].block);
      // What is left of a layer's reduction takes the sum, and has as much time as that.
      if (!sums.empty() && reduces_.count(slots[s].block) > 0) {
        sums.push_back(slots[s]);
        continue;
      }
      if (segment == nullptr && UsesRows(slots[s].block)) add();
      out.push_back(slots[s]);
      if (segment == nullptr) continue;
      add();
      if (segment->makes != slots[s].block || !segment->scatter.valid()) continue;
      out.push_back({segment->scatter, slots[s].microbatch, slots[s].layer, 1, 1});
      if (segment->add.valid()) sums.push_back({segment->add, slots[s].microbatch, slots[s].layer, 1, 1});
    }
    add();
    return out;
  }

  bool UsesRows(BlockId block) const {
    for (const Instruction& instruction : c_.blocks[block.index()].instructions) {
      for (const Operand& operand : instruction.reads) {
        if (rows_.count(operand.buffer) > 0) return true;
      }
    }
    return false;
  }

  RankClass& c_;
  const int64_t microbatches_;
  const bool parameters_;
  const std::set<std::string>& layer_ends_;
  std::vector<Segment> segments_;
  std::set<BlockId> rest_;     // blocks that lost instructions: without any left, their slots go
  std::set<BlockId> reduces_;  // of these, those that all-reduce rows, between copies
  std::set<BufferId> rows_;    // gradients that sums are added to, and what those make of them
};

}  // namespace

Program ShardParameters(Program program, const std::set<std::string>& layer_ends) {
  for (RankClass& c : program.classes) Sharder(c, program.num_microbatches, true, layer_ends).Run();
  return program;
}

Program ShardGradients(Program program) {
  if (program.num_microbatches == 1) return program;
  for (RankClass& c : program.classes) {
    Sharder(c, program.num_microbatches, false, {}).Run();
    ScatterInBackward(c);
  }
  return program;
}

}  // namespace meshwright
