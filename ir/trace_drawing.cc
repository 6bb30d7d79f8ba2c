#include "ir/trace_drawing.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace meshwright {
namespace {

constexpr size_t kStreams = static_cast<size_t>(Stream::kNumStreams);

absl::string_view NameOf(const Instruction& instruction) {
  struct {
    absl::string_view operator()(const Compute& c) const { return meshwright::NameOf(c.op); }
    absl::string_view operator()(const Slice&) const { return "slice"; }
    absl::string_view operator()(const Collective& c) const { return meshwright::NameOf(c.kind); }
    absl::string_view operator()(const Permute&) const { return "permute"; }
    absl::string_view operator()(const Transfer& t) const { return t.send ? "send" : "receive"; }
    absl::string_view operator()(const Sync&) const { return "sync"; }
  } name;
  return std::visit(name, instruction.work);
}

absl::string_view CategoryOf(const Instruction& instruction, Phase phase) {
  if (const auto* collective = std::get_if<Collective>(&instruction.work)) {
    return meshwright::NameOf(collective->purpose);
  }
  if (const auto* transfer = std::get_if<Transfer>(&instruction.work)) return meshwright::NameOf(transfer->purpose);
  const auto* compute = std::get_if<Compute>(&instruction.work);
  if (compute != nullptr && compute->recompute) return "recompute";
  return phase == Phase::kForward ? "forward" : "backward";
}

class Drawer {
 public:
  Drawer(const Trace& trace, const Program& program) : trace_(trace), program_(program) {}

  TraceDrawing Draw() {
    drawing_.slices.reserve(trace_.spans.size());
    for (const Span& span : trace_.spans) AddSlice(span);
    for (const auto& [rank, lanes] : lanes_) AddRank(rank, lanes);
    AddFlows();
    FindOrder();
    return std::move(drawing_);
  }

 private:
  using Lanes = std::array<std::vector<Nanos>, kStreams>;  // until when each thread of a stream is busy

  int64_t ThreadFor(const Span& span) {
    std::vector<Nanos>& lanes = lanes_[span.rank][static_cast<size_t>(span.stream)];
    size_t lane = 0;
    while (lane < lanes.size() && lanes[lane] > span.begin) ++lane;
    if (lane == lanes.size()) lanes.push_back(span.end);
    lanes[lane] = std::max(span.begin, span.end);
    return static_cast<int64_t>(lane * kStreams + static_cast<size_t>(span.stream));
  }

  void AddSlice(const Span& span) {
    DrawnSlice& slice = drawing_.slices.emplace_back();
    slice.thread = ThreadFor(span);
    if (const Slot* slot = SlotOf(span)) slice.microbatch = slot->microbatch;
    const Block* block = BlockOf(span);
    if (const Instruction* instruction = InstructionOf(span)) {
      slice.name = NameOf(*instruction);
      slice.category = CategoryOf(*instruction, block->phase);
      slice.origin = instruction->origin;
    } else if (block != nullptr && span.instruction < 0) {
      slice.name = block->name;
      slice.category = block->phase == Phase::kForward ? "forward" : "backward";
    } else {
      slice.name = slice.category = "unknown";
    }
  }

  void AddRank(int64_t rank, const Lanes& lanes) {
    const RankClass* rank_class = ClassOf(rank);
    DrawnRank& drawn = drawing_.ranks.emplace_back();
    drawn.rank = rank;
    drawn.name = absl::StrCat("rank ", rank, rank_class == nullptr ? "" : absl::StrCat(" (", rank_class->name, ")"));
    for (size_t s = 0; s < kStreams; ++s) {
      for (size_t lane = 0; lane < lanes[s].size(); ++lane) {
        const std::string stream(meshwright::NameOf(static_cast<Stream>(s)));
        drawn.threads.push_back(
            {static_cast<int64_t>(lane * kStreams + s), lane == 0 ? stream : absl::StrCat(stream, " ", lane + 1)});
      }
    }
  }

  // The n-th send of a rank to a peer meets the peer's n-th receive from it, in order of issue.
  void AddFlows() {
    using Ends = std::pair<int64_t, int64_t>;                      // from rank, to rank
    using Order = std::tuple<uint32_t, int64_t, int32_t, size_t>;  // slot, layer as issued, instruction; the span
    std::map<Ends, std::pair<std::vector<Order>, std::vector<Order>>> transfers;
    for (size_t i = 0; i < trace_.spans.size(); ++i) {
      const Span& span = trace_.spans[i];
      const Transfer* transfer = TransferOf(span);
      if (transfer == nullptr) continue;
      const int64_t peer = span.rank + transfer->stage_offset * program_.ranks_per_class();
      const Order order = {span.slot, SlotOf(span)->step < 0 ? -int64_t{span.layer} : span.layer, span.instruction, i};
      if (transfer->send) {
        transfers[{span.rank, peer}].first.push_back(order);
      } else {
        transfers[{peer, span.rank}].second.push_back(order);
      }
    }
    for (auto& [ends, halves] : transfers) {
      auto& [sends, receives] = halves;
      std::sort(sends.begin(), sends.end());
      std::sort(receives.begin(), receives.end());
      for (size_t n = 0; n < std::min(sends.size(), receives.size()); ++n) {
        const size_t from = std::get<3>(sends[n]), to = std::get<3>(receives[n]);
        const Nanos begin = trace_.spans[from].begin;
        const Span& receive = trace_.spans[to];
        drawing_.flows.push_back({from, to, begin, std::max(receive.begin, std::min(begin, receive.end))});
        drawing_.slices[from].departs = drawing_.slices[to].arrives = drawing_.flows.size();
      }
    }
  }

  void FindOrder() {
    drawing_.order.resize(trace_.spans.size());
    std::iota(drawing_.order.begin(), drawing_.order.end(), size_t{0});
    std::stable_partition(drawing_.order.begin(), drawing_.order.end(),
                          [this](size_t i) { return drawing_.slices[i].arrives == 0; });
  }

  // What a span means in the program; null where the program has no such thing.
  const RankClass* ClassOf(int64_t rank) const {
    if (program_.classes.empty() || rank < 0 || rank >= program_.mesh.num_ranks()) return nullptr;
    const int64_t c = rank / std::max<int64_t>(1, program_.ranks_per_class());
    return c < static_cast<int64_t>(program_.classes.size()) ? &program_.classes[static_cast<size_t>(c)] : nullptr;
  }
  const Slot* SlotOf(const Span& span) const {
    const RankClass* rank_class = ClassOf(span.rank);
    if (rank_class == nullptr || span.slot >= rank_class->slots.size()) return nullptr;
    return &rank_class->slots[span.slot];
  }
  const Block* BlockOf(const Span& span) const {
    const Slot* slot = SlotOf(span);
    if (slot == nullptr) return nullptr;
    const std::vector<Block>& blocks = ClassOf(span.rank)->blocks;
    return slot->block.valid() && slot->block.index() < blocks.size() ? &blocks[slot->block.index()] : nullptr;
  }
  const Instruction* InstructionOf(const Span& span) const {
    const Block* block = BlockOf(span);
    if (block == nullptr || span.instruction < 0) return nullptr;
    const auto index = static_cast<size_t>(span.instruction);
    return index < block->instructions.size() ? &block->instructions[index] : nullptr;
  }

  // Of a whole slot, in a trace of slots, the first that its stream has there: slots send, receive or compute.
  const Transfer* TransferOf(const Span& span) const {
    if (const Instruction* instruction = InstructionOf(span)) return std::get_if<Transfer>(&instruction->work);
    const Block* block = span.instruction < 0 && of_slots_ ? BlockOf(span) : nullptr;
    if (block == nullptr) return nullptr;
    for (const Instruction& instruction : block->instructions) {
      const auto* transfer = std::get_if<Transfer>(&instruction.work);
      if (transfer != nullptr && instruction.stream == span.stream) return transfer;
    }
    return nullptr;
  }

  const Trace& trace_;
  const Program& program_;
  const bool of_slots_ =
      std::all_of(trace_.spans.begin(), trace_.spans.end(), [](const Span& span) { return span.instruction < 0; });
  std::map<int64_t, Lanes> lanes_;  // by rank
  TraceDrawing drawing_;
};

}  // namespace

TraceDrawing Draw(const Trace& trace, const Program& program) { return Drawer(trace, program).Draw(); }

}  // namespace meshwright
