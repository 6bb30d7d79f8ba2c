#include "executor/cuda/communicator_plan.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"

namespace meshwright::cuda {
namespace {

using Key = std::tuple<CommUse, Stream, std::vector<int64_t>>;

class Planner {
 public:
  explicit Planner(const Program& program) : program_(program) {}

  absl::StatusOr<CommunicatorPlan> Plan() {
    for (size_t c = 0; c < program_.classes.size(); ++c) {
      for (const Block& block : program_.classes[c].blocks) {
        for (const Instruction& instruction : block.instructions) {
          MESHWRIGHT_RETURN_IF_ERROR(AddUses(c, instruction));
        }
      }
    }
    AssignRounds();
    return std::move(plan_);
  }

 private:
  absl::Status AddUses(size_t c, const Instruction& instruction) {
    if (const auto* collective = std::get_if<Collective>(&instruction.work)) {
      std::set<std::vector<int64_t>> groups;  // in order of rank list
      for (int64_t r = 0; r < program_.ranks_per_class(); ++r) {
        groups.insert(program_.mesh.Group(program_.RankOf(c, r), collective->axes));
      }
      for (const std::vector<int64_t>& group : groups) Add(CommUse::kCollective, instruction.stream, group);
    } else if (std::holds_alternative<Permute>(instruction.work)) {
      std::vector<int64_t> ranks;
      for (int64_t r = 0; r < program_.ranks_per_class(); ++r) ranks.push_back(program_.RankOf(c, r));
      Add(CommUse::kPermute, instruction.stream, ranks);
    } else if (const auto* transfer = std::get_if<Transfer>(&instruction.work)) {
      for (int64_t r = 0; r < program_.ranks_per_class(); ++r) {
        const int64_t rank = program_.RankOf(c, r);
        const int64_t peer = rank + transfer->stage_offset * program_.ranks_per_class();
        if (peer < 0 || peer >= program_.mesh.num_ranks()) {
          return absl::InvalidArgumentError(
              absl::StrCat("there is no stage ", transfer->stage_offset, " from stage ", c));
        }
        // Sender and receiver each have a stream of their own for it.
        Add(CommUse::kTransfer, Stream::kNumStreams,
            transfer->send ? std::vector<int64_t>{rank, peer} : std::vector<int64_t>{peer, rank});
      }
    }
    return absl::OkStatus();
  }

  void Add(CommUse use, Stream stream, const std::vector<int64_t>& ranks) {
    if (ranks.size() < 2) return;  // a rank alone copies
    const auto [place, added] =
        plan_.index.emplace(Key(use, stream, ranks), static_cast<int64_t>(plan_.communicators.size()));
    if (added) plan_.communicators.push_back({use, stream, ranks, 0});
  }

  // Each in the first round in which none of its ranks has one, in order; then the list in order of rounds.
  void AssignRounds() {
    std::vector<std::vector<bool>> taken;  // [round][rank]
    for (PlannedCommunicator& communicator : plan_.communicators) {
      const auto free_in = [&](const std::vector<bool>& round) {
        return std::none_of(communicator.ranks.begin(), communicator.ranks.end(), [&](int64_t r) { return round[r]; });
      };
      const auto found = std::find_if(taken.begin(), taken.end(), free_in);
      communicator.round = found - taken.begin();
      if (found == taken.end()) taken.emplace_back(program_.mesh.num_ranks());
      for (const int64_t rank : communicator.ranks) taken[static_cast<size_t>(communicator.round)][rank] = true;
    }
    plan_.rounds = static_cast<int64_t>(taken.size());
    std::stable_sort(plan_.communicators.begin(), plan_.communicators.end(),
                     [](const auto& a, const auto& b) { return a.round < b.round; });
    for (size_t i = 0; i < plan_.communicators.size(); ++i) {
      const PlannedCommunicator& c = plan_.communicators[i];
      plan_.index[Key(c.use, c.stream, c.ranks)] = static_cast<int64_t>(i);
    }
  }

  const Program& program_;
  CommunicatorPlan plan_;
};

}  // namespace

int64_t PlannedCommunicator::PositionOf(int64_t rank) const {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() ? -1 : found - ranks.begin();
}

int64_t CommunicatorPlan::Find(CommUse use, Stream stream, absl::Span<const int64_t> ranks) const {
  const auto found = index.find(Key(use, stream, std::vector<int64_t>(ranks.begin(), ranks.end())));
  return found == index.end() ? -1 : found->second;
}

absl::StatusOr<CommunicatorPlan> PlanCommunicators(const Program& program) { return Planner(program).Plan(); }

std::string Describe(const PlannedCommunicator& communicator) {
  if (communicator.use == CommUse::kTransfer) {
    return absl::StrCat("from rank ", communicator.ranks[0], " to rank ", communicator.ranks[1]);
  }
  return absl::StrCat("over ranks ", absl::StrJoin(communicator.ranks, "-"), " on stream ",
                      NameOf(communicator.stream));
}

}  // namespace meshwright::cuda
