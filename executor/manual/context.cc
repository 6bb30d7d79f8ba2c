#include "executor/manual/context.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/error_kind.h"
#include "ir/status.h"

namespace meshwright::manual {
namespace {

struct Target {
  absl::string_view device, backend;
};
constexpr Target kTargets[] = {{"CPU", "mccl"}, {"GPU", "nccl"}, {"Ascend", "hccl"}};

std::optional<Target> TargetOf(absl::string_view device) {
  for (const Target& target : kTargets) {
    if (target.device == device) return target;
  }
  return std::nullopt;
}

std::string ToText(absl::Span<const int64_t> ranks) { return absl::StrCat("[", absl::StrJoin(ranks, ", "), "]"); }

}  // namespace

absl::Status Context::Init() {
  const std::optional<Target> target = TargetOf(options_.device_target);
  return Init(target.has_value() ? target->backend : absl::string_view());
}

absl::Status Context::Init(absl::string_view backend) {
  const std::optional<Target> target = TargetOf(options_.device_target);
  if (!target.has_value()) {
    return StateError("the device target is \"", options_.device_target, "\"; there are CPU, GPU and Ascend");
  }
  if (backend != target->backend) {
    const bool known = std::any_of(std::begin(kTargets), std::end(kTargets),
                                   [&](const Target& other) { return other.backend == backend; });
    return StateError(known ? "init with the backend \"" : "init: no backend \"", backend, "\"; the device target ",
                      target->device, " has \"", target->backend, "\"");
  }
  if (endpoint_ != nullptr) return absl::OkStatus();
  if (is_scheduler_) return StateError("init: this process was the scheduler of a job that has ended");
  if (backend != "mccl") {
    return absl::UnimplementedError(absl::StrCat("init: hand-written programs run on the host only, not on ",
                                                 target->device, "; set the device target to CPU"));
  }
  if (options_.join == nullptr) {
    return LaunchError(
        "init: no launcher started this process; use mpirun, or set MS_ROLE, MS_SCHED_HOST, "
        "MS_SCHED_PORT and MS_WORKER_NUM");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(endpoint_, options_.join());
  if (endpoint_ == nullptr) {
    is_scheduler_ = true;
    return absl::CancelledError("this process was the scheduler of the job, which has ended; it runs no training code");
  }
  std::vector<int64_t> world(static_cast<size_t>(endpoint_->num_ranks()));
  std::iota(world.begin(), world.end(), 0);
  groups_[""] = world;
  groups_[NameOfWorld()] = std::move(world);
  return absl::OkStatus();
}

std::string Context::NameOfWorld() const {
  return absl::StrCat(TargetOf(options_.device_target)->backend, "_world_group");
}

absl::Status Context::CheckInitialised(absl::string_view call) const {
  if (endpoint_ != nullptr) return absl::OkStatus();
  return is_scheduler_ ? StateError(call, ": this process was the scheduler of a job; it has no rank")
                       : StateError(call, " before init; call Init first");
}

absl::StatusOr<int64_t> Context::GetRank(absl::string_view group) const {
  MESHWRIGHT_RETURN_IF_ERROR(CheckInitialised("get_rank"));
  const auto found = groups_.find(group);
  if (found == groups_.end()) return ValueError("get_rank: there is no group \"", group, "\"; create_group makes one");
  const std::vector<int64_t>& ranks = found->second;
  const auto at = std::find(ranks.begin(), ranks.end(), endpoint_->rank());
  if (at == ranks.end()) {
    return ValueError("get_rank: rank ", endpoint_->rank(), " is not in the group \"", group, "\" of ", ToText(ranks));
  }
  return at - ranks.begin();
}

absl::StatusOr<int64_t> Context::GetGroupSize(absl::string_view group) const {
  MESHWRIGHT_RETURN_IF_ERROR(CheckInitialised("get_group_size"));
  const auto found = groups_.find(group);
  if (found != groups_.end()) return static_cast<int64_t>(found->second.size());
  return ValueError("get_group_size: there is no group \"", group, "\"; create_group makes one");
}

absl::Status Context::CreateGroup(absl::string_view name, absl::Span<const int64_t> ranks) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckInitialised("create_group"));
  const std::string call = absl::StrCat("create_group(\"", name, "\", ", ToText(ranks), ")");
  if (name.empty()) return ValueError(call, ": the name is empty");
  if (ranks.empty()) return ValueError(call, ": a group has at least one rank");
  for (const int64_t rank : ranks) {
    if (rank < 0 || rank >= endpoint_->num_ranks()) {
      return ValueError(call, ": there is no rank ", rank, " in a job of ", endpoint_->num_ranks());
    }
  }
  std::vector<int64_t> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) return ValueError(call, ": rank ", *twice, " is listed twice");
  const auto [known, added] = groups_.try_emplace(std::string(name), sorted);
  if (added || known->second == sorted) return absl::OkStatus();
  return ValueError(call, ": the name stands for the ranks ", ToText(known->second));
}

absl::StatusOr<GroupView> Context::Members(absl::string_view group) const {
  MESHWRIGHT_RETURN_IF_ERROR(CheckInitialised("a collective"));
  const auto found = groups_.find(group);
  if (found == groups_.end()) return StateError("there is no group \"", group, "\"; create_group makes one");
  const std::vector<int64_t>& ranks = found->second;
  const auto at = std::find(ranks.begin(), ranks.end(), endpoint_->rank());
  if (at != ranks.end()) return GroupView{ranks, at - ranks.begin()};
  return StateError("rank ", endpoint_->rank(), " calls a collective of the group \"", group, "\" of ", ToText(ranks),
                    ", which it is not in");
}

void Context::Warn(absl::string_view text) const {
  if (options_.warn != nullptr) return options_.warn(text);
  std::fprintf(stderr, "warning: %.*s\n", static_cast<int>(text.size()), text.data());
}

void Context::Stop(const absl::Status& reason) {
  if (endpoint_ != nullptr) endpoint_->Abort(reason);
}

absl::StatusOr<RowRange> RowsOfRank(const Context& context, int64_t batch, absl::string_view group) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t position, context.GetRank(group));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t size, context.GetGroupSize(group));
  const int64_t rows = batch / size;
  if (rows < 1) {
    return ValueError("a batch of ", batch, " rows on ", size, " ranks leaves none for each; wants at least ", size,
                      " rows");
  }
  const int64_t dropped = batch - rows * size;
  if (dropped > 0 && position == 0) {
    context.Warn(absl::StrCat("a batch of ", batch, " rows on ", size, " ranks: each gets ", rows, ", rows ",
                              rows * size, " to ", batch - 1, " are dropped"));
  }
  return RowRange{position * rows, (position + 1) * rows, dropped};
}

}  // namespace meshwright::manual
