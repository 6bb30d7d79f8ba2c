#include "tools/idle_devices.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "costmodel/library.h"
#include "tools/exit_code.h"
#include "tools/export/trainer_prediction.h"
#include "tools/numbers.h"

namespace meshwright {
namespace {

// The batch has the devices' odd factor.
bool HasOddFactor(int64_t batch, int64_t devices) {
  return batch % (devices >> std::countr_zero(static_cast<uint64_t>(devices))) == 0;
}

// The session's model on parts of its cluster, but those with which a choice of the user's does not go.
std::vector<Session> PartsOf(const Session& session, const Flags& flags) {
  std::vector<Session> parts;
  const Problem& problem = session.problem;
  const bool given = session.file->parallel.device_num.has_value() || !problem.shards.empty();
  if (problem.mode != SearchMode::kDecoder || given || !flags.Bool("idle_devices").value_or(true)) return parts;
  for (const Cluster& cluster : PartsWithIdleDevices(problem.cluster, problem.batch)) {
    absl::StatusOr<Session> part = OpenModel(session.source, flags, cluster);
    if (!part.ok()) continue;
    part->idle_devices = problem.cluster.num_devices() - cluster.num_devices();
    parts.push_back(*std::move(part));
  }
  return parts;
}

void AddCounts(const SearchResult& from, SearchResult& to) {
  to.considered += from.considered;
  to.simulated += from.simulated;
  to.seconds += from.seconds;
  for (const auto& [reason, count] : from.pruned) to.pruned[reason] += count;
}

// Of the one that was chosen. `all`: the search on all devices.
std::string NoteOnIdle(const Session& part, const absl::StatusOr<SearchResult>& all) {
  const int64_t devices = part.problem.cluster.num_devices() + part.idle_devices;
  const std::string why = !all.ok()          ? "there is no plan for all of them"
                          : all->none_faster ? "no plan for all of them is faster"
                                             : absl::StrCat("the fastest plan for all of them takes ",
                                                            ShowTime(all->ranked.front().prediction.step));
  return absl::StrCat(ShowCount(part.idle_devices), " of ", ShowCount(devices), " devices are idle: ", why,
                      "; --noidle_devices uses all");
}

}  // namespace

std::vector<Cluster> PartsWithIdleDevices(const Cluster& cluster, int64_t batch) {
  const int64_t devices = cluster.num_devices(), of_node = cluster.devices_per_node;
  std::vector<Cluster> parts;
  // The most nodes with so many devices each that are more than three quarters of all and that `goes_with` takes.
  const auto most_nodes = [&](int64_t each, auto goes_with) -> int64_t {
    for (int64_t nodes = cluster.nodes; 4 * nodes * each > 3 * devices; --nodes) {
      if (nodes * each < devices && goes_with(nodes * each)) return nodes;
    }
    return 0;
  };
  const auto offer = [&](int64_t nodes, int64_t each) {
    if (nodes == 0) return;
    parts.push_back(cluster);
    Resize(nodes, each, &parts.back());
  };
  const auto shares = [&](int64_t part) { return batch % part == 0; };
  const auto is_even = [&](int64_t part) { return HasOddFactor(batch, part); };
  if (!shares(devices)) {
    const int64_t sharing = most_nodes(of_node, shares);
    offer(sharing > 0 || is_even(devices) ? sharing : most_nodes(of_node, is_even), of_node);
  }
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(of_node)));
  if (power < of_node) {
    int64_t nodes = most_nodes(power, shares);
    if (nodes == 0) nodes = most_nodes(power, is_even);
    if (nodes == 0) nodes = most_nodes(power, [](int64_t) { return true; });
    offer(nodes, power);
  }
  return parts;
}

FlagSpec IdleDevicesFlag() {
  return {"idle_devices", "",
          "leave devices idle where fewer are faster, as is done unless given, or --noidle_devices"};
}

absl::StatusOr<SearchResult> SearchForDevices(const Trainer* trainer, const Flags& flags, const SearchOptions& options,
                                              Session& session) {
  std::vector<Session> parts = PartsOf(session, flags);
  const size_t whole = parts.size();
  // What is likely to be the fastest comes first: the others are left where they cannot be faster.
  const bool whole_first = HasOddFactor(session.problem.batch, session.problem.cluster.num_devices());
  std::vector<size_t> order;
  for (size_t i = 0; i < parts.size(); ++i) order.push_back(i);
  order.insert(whole_first ? order.begin() : order.end(), whole);
  std::optional<size_t> best;
  SearchResult found, others;
  absl::StatusOr<SearchResult> all = absl::UnknownError("");
  SearchOptions faster = options;
  for (const size_t i : order) {
    absl::StatusOr<SearchResult> result = SearchFor(trainer, i == whole ? session : parts[i], faster);
    if (i == whole) all = result;
    if (ExitCodeOf(result.status()) == ExitCode::kBug) return result.status();
    if (!result.ok()) continue;
    const bool is_best = !result->none_faster && (!best.has_value() || result->ranked.front().prediction.step <
                                                                           found.ranked.front().prediction.step);
    AddCounts(is_best ? found : *result, others);
    if (!is_best) continue;
    best = i;
    found = *std::move(result);
    faster.faster_than = found.ranked.front().prediction.step;
  }
  if (!best.has_value()) return all.status();
  AddCounts(others, found);
  if (best != whole) {
    found.warnings.push_back(NoteOnIdle(parts[*best], all));
    session = std::move(parts[*best]);
  }
  return found;
}

}  // namespace meshwright
