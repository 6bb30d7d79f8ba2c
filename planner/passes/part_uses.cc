#include "planner/passes/part_uses.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace meshwright {
namespace {

// `block`: none of `blocks` is behind it.
void AddLast(size_t block, BlocksOfBuffer::Blocks& blocks) {
  if (blocks.empty() || blocks.back() != block) blocks.push_back(block);
}

class Finder {
 public:
  Finder(const RankClass& all, const Graph& graph, const std::vector<Part>& parts, const Strategy& strategy,
         Schedule schedule)
      : all_(all), graph_(graph), parts_(parts), strategy_(strategy), schedule_(schedule) {}

  PartUses Run(const std::vector<const Block*>& blocks) {
    const std::vector<std::pair<std::string, int64_t>> carried = CarriedBuffers();
    for (const Buffer& buffer : all_.buffers) {
      found_.is_stream.push_back(buffer.role == BufferRole::kActivation &&
                                 absl::c_any_of(carried, [&](const auto& one) {
                                   return buffer.layers == one.second && absl::StartsWith(buffer.name, one.first);
                                 }));
    }
    found_.of_buffer.resize(all_.buffers.size());
    for (size_t k = 0; k < blocks.size(); ++k) {
      for (const Instruction& instruction : blocks[k]->instructions) {
        for (const Operand& operand : instruction.reads) AddLast(k, found_.of_buffer[operand.buffer.index()].readers);
        for (const Operand& operand : instruction.writes) AddLast(k, found_.of_buffer[operand.buffer.index()].writers);
      }
    }
    found_.parts_of.assign(graph_.segments.size(), {});
    for (int64_t part = 0; part < num_parts(); ++part) {
      for (const LayerRange& range : parts_[static_cast<size_t>(part)]) found_.parts_of[range.segment].push_back(part);
    }
    FindCrossings();
    NoteCrossings();
    return std::move(found_);
  }

 private:
  int64_t StageOf(int64_t part) const { return StageOfPart(schedule_, part, strategy_.stages); }
  int64_t num_parts() const { return static_cast<int64_t>(parts_.size()); }
  int64_t directions() const { return DirectionsOf(schedule_); }
  int64_t DirectionOf(int64_t part) const { return part * directions() / num_parts(); }

  int64_t LayersOn(int64_t part) const { return meshwright::LayersOn(parts_[static_cast<size_t>(part)], graph_); }
  // Whether the part has layers, or none of its share of them: then it hands on what they would read.
  bool PassesOn(int64_t part) const {
    const std::vector<int64_t>& given = strategy_.layers_per_stage;
    return LayersOn(part) > 0 || (!given.empty() && given[static_cast<size_t>(part) % given.size()] == 0);
  }
  // How the names of those begin that hold the carried value of a chain, and how many layers they have.
  std::vector<std::pair<std::string, int64_t>> CarriedBuffers() const {
    std::vector<std::pair<std::string, int64_t>> carried;
    for (size_t s = 0; s < graph_.segments.size(); ++s) {
      const Segment& segment = graph_.segments[s];
      if (segment.carries.empty()) continue;
      int64_t runs = 0;
      for (const Stack& stack : ChainFrom(graph_, s)) runs += stack.repeat;
      carried.emplace_back(absl::StrCat(segment.name, "/"), runs + 1);
    }
    return carried;
  }

  void FindCrossings() {
    for (size_t i = 0; i < all_.buffers.size(); ++i) {
      const Buffer& buffer = all_.buffers[i];
      const BlocksOfBuffer& uses = found_.of_buffer[i];
      if (buffer.role == BufferRole::kParameter) NoteShared(BufferId(i));
      if (buffer.role != BufferRole::kActivation || uses.writers.empty()) continue;
      const PassKind kind = IsForward(*uses.writers.begin()) ? PassKind::kForward : PassKind::kBackward;
      if (found_.is_stream[i]) {
        const bool forward = absl::EndsWith(buffer.name, "/stream");
        for (int64_t part = 0; part + 1 < num_parts(); ++part) {
          const int64_t layers = LayersOn(part);
          if (!PassesOn(part) || !PassesOn(part + 1) || DirectionOf(part) != DirectionOf(part + 1)) continue;
          if (forward) {
            found_.crossings.push_back({BufferId(i), part, part + 1, PassKind::kForward, layers, 0, part + 1});
          } else {
            found_.crossings.push_back({BufferId(i), part + 1, part, PassKind::kBackward, 0, layers, part});
          }
        }
        continue;
      }
      const size_t made_in = SegmentOf(*uses.writers.begin());
      for (size_t first = 0; first < found_.parts_of[made_in].size(); ++first) {
        const int64_t from = found_.parts_of[made_in][first];
        if (first > 0 && DirectionOf(from) == DirectionOf(found_.parts_of[made_in][first - 1])) continue;
        // By stage, in the order in which the parts run.
        std::map<int64_t, std::vector<int64_t>> readers;
        for (int64_t part : PartsThatRead(uses, made_in)) {
          if (DirectionOf(part) == DirectionOf(from)) readers[StageOf(part)].push_back(part);
        }
        for (auto& [stage, parts] : readers) {
          if (stage == StageOf(from)) continue;
          if (kind == PassKind::kBackward) std::reverse(parts.begin(), parts.end());
          found_.crossings.push_back({BufferId(i), from, parts.front(), kind, 0, 0, parts.back()});
        }
      }
    }
  }
  void NoteCrossings() {
    found_.crossings_of.resize(all_.buffers.size());
    found_.crossings_at.resize(static_cast<size_t>(strategy_.stages));
    for (size_t k = 0; k < found_.crossings.size(); ++k) {
      found_.crossings_of[found_.crossings[k].buffer.index()].push_back(k);
      const size_t from = static_cast<size_t>(StageOf(found_.crossings[k].from));
      const size_t to = static_cast<size_t>(StageOf(found_.crossings[k].to));
      found_.crossings_at[from].push_back(k);
      if (from != to) found_.crossings_at[to].push_back(k);
    }
  }
  // In ascending order. A layer keeps its own values.
  std::set<int64_t> PartsThatRead(const BlocksOfBuffer& uses, size_t made_in) const {
    std::set<int64_t> parts;
    for (size_t reader : uses.readers) {
      const std::vector<int64_t>& of_reader = found_.parts_of[SegmentOf(reader)];
      if (SegmentOf(reader) != made_in) parts.insert(of_reader.begin(), of_reader.end());
    }
    return parts;
  }

  std::set<int64_t> StagesOf(const BlocksOfBuffer::Blocks& blocks) const {
    std::set<int64_t> stages;
    for (size_t block : blocks) {
      for (int64_t part : found_.parts_of[SegmentOf(block)]) stages.insert(StageOf(part));
    }
    return stages;
  }
  // Of what is on several stages for both directions, that of the first one's first part: so each of the two stages
  // that have a part twice owns one.
  int64_t OwnerOf(const BlocksOfBuffer::Blocks& blocks) const {
    if (directions() == 1) return *StagesOf(blocks).begin();
    int64_t part = num_parts();
    for (size_t block : blocks) part = std::min(part, found_.parts_of[SegmentOf(block)][0]);
    return StageOf(part);
  }

  // Notes a parameter that several stages use, and where its gradient is made. Each layer has its own parameters; one
  // that nobody has a gradient of never changes.
  void NoteShared(BufferId id) {
    const Buffer& parameter = all_.buffers[id.index()];
    if (parameter.layers > 1) return;
    std::set<int64_t> readers = StagesOf(found_.of_buffer[id.index()].readers), contributors;
    if (readers.size() < 2) return;
    SharedParameter shared;
    for (size_t i = 0; i < all_.buffers.size(); ++i) {
      const Buffer& gradient = all_.buffers[i];
      if (gradient.role != BufferRole::kGradient || gradient.name != absl::StrCat("d", parameter.name)) continue;
      contributors = StagesOf(found_.of_buffer[i].writers);
      if (!contributors.empty()) shared.owner = OwnerOf(found_.of_buffer[i].writers);
    }
    if (contributors.empty()) return;
    shared.name = parameter.name;
    readers.erase(shared.owner);
    contributors.erase(shared.owner);
    shared.users.assign(readers.begin(), readers.end());
    shared.contributors.assign(contributors.begin(), contributors.end());
    found_.shared.push_back(std::move(shared));
  }

  const RankClass& all_;
  const Graph& graph_;
  const std::vector<Part>& parts_;
  const Strategy& strategy_;
  const Schedule schedule_;
  PartUses found_;
};

}  // namespace

bool IsStack(const LayerRange& range, const Graph& graph) {
  const Segment& segment = graph.segments[range.segment];
  return segment.repeat > 1 || !segment.carries.empty();
}

int64_t LayersOn(const Part& part, const Graph& graph) { return LayersBefore(graph.segments.size(), part, graph); }

int64_t LayersBefore(size_t segment, const Part& part, const Graph& graph) {
  int64_t layers = 0;
  for (const LayerRange& range : part) {
    if (range.segment < segment && IsStack(range, graph)) layers += range.count;
  }
  return layers;
}

PartUses FindUses(const RankClass& all, const std::vector<const Block*>& blocks, const Graph& graph,
                  const std::vector<Part>& parts, const Strategy& strategy, Schedule schedule) {
  return Finder(all, graph, parts, strategy, schedule).Run(blocks);
}

}  // namespace meshwright
