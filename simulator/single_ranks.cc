#include "simulator/single_ranks.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <variant>

namespace meshwright {

void KeepBusiestOwner(const RankClass& rank_class, std::vector<std::vector<InstructionPrice>>& blocks) {
  const std::vector<Buffer>& buffers = rank_class.buffers;
  if (std::all_of(buffers.begin(), buffers.end(), [](const Buffer& buffer) { return buffer.owner < 0; })) return;
  std::map<int64_t, Nanos> work;  // in one run of each block
  const auto for_each = [&](const auto& visit) {
    for (size_t b = 0; b < blocks.size(); ++b) {
      for (size_t i = 0; i < blocks[b].size(); ++i) {
        const int64_t owner = OwnerOf(rank_class.blocks[b].instructions[i], rank_class);
        if (owner >= 0) visit(owner, blocks[b][i]);
      }
    }
  };
  for_each([&](int64_t owner, const InstructionPrice& price) { work[owner] += price.time; });
  if (work.empty()) return;
  const auto busiest =
      std::max_element(work.begin(), work.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  for_each([&](int64_t owner, InstructionPrice& price) {
    if (owner != busiest->first) price.time = Nanos();
  });
}

namespace {

// By block, how long those of each turn take together.
std::vector<std::map<Turn, double>> TimesOfTurns(const RankClass& rank_class,
                                                 const std::vector<std::vector<InstructionPrice>>& prices) {
  std::vector<std::map<Turn, double>> times(prices.size());
  for (size_t b = 0; b < prices.size(); ++b) {
    for (size_t i = 0; i < prices[b].size(); ++i) {
      const auto* const compute = std::get_if<Compute>(&rank_class.blocks[b].instructions[i].work);
      if (compute == nullptr || compute->turn == Turn()) continue;
      times[b][compute->turn] += static_cast<double>(prices[b][i].time.raw());
    }
  }
  return times;
}

}  // namespace

void ShareTurns(const RankClass& rank_class, int64_t ranks, std::vector<std::vector<InstructionPrice>>& blocks) {
  const std::vector<std::map<Turn, double>> times = TimesOfTurns(rank_class, blocks);
  std::map<int64_t, double> work;  // by rank
  double all = 0, most = 0;
  for (const Slot& slot : rank_class.slots) {
    for (const auto& [turn, time] : times[slot.block.index()]) {
      for (int64_t k = 0; k < slot.count; ++k) work[turn.PlaceOf(slot.layer + k * slot.step, ranks)] += time;
      all += time * static_cast<double>(slot.count);
    }
  }
  for (const auto& [rank, time] : work) most = std::max(most, time);
  if (all == 0) return;
  for (size_t b = 0; b < blocks.size(); ++b) {
    if (times[b].empty()) continue;
    for (size_t i = 0; i < blocks[b].size(); ++i) {
      const auto* const compute = std::get_if<Compute>(&rank_class.blocks[b].instructions[i].work);
      Nanos& time = blocks[b][i].time;
      if (compute == nullptr || compute->turn == Turn() || time >= kForever) continue;
      time = Nanos(std::llround(static_cast<double>(time.raw()) * (most / all)));
    }
  }
}

}  // namespace meshwright
