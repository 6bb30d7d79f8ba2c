#include "simulator/network_links.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <variant>

namespace meshwright {
namespace {

// A share as a whole number; what takes anything takes at least the smallest.
int32_t ToShare(double share) { return static_cast<int32_t>(std::max(1.0, std::round(share * kWhole))); }

}  // namespace

NetworkLinks::NetworkLinks(const Program& program, const Cluster& cluster) : program_(program), cluster_(cluster) {
  leaves_ = cluster.nodes_per_leaf > 0 && cluster.nodes > cluster.nodes_per_leaf && cluster.oversubscription > 1;
  // Devices with a card each share none.
  pools_ = cluster.nodes > 1 && program.classes.size() > 1 && cluster.nics_per_node > 0 &&
           cluster.nics_per_node < cluster.devices_per_node &&
           program.ranks_per_class() % cluster.devices_per_node != 0;
}

void NetworkLinks::Leave(int64_t rank, int64_t to, double parts, Demand& demand) const {
  if (cluster_.NodeOf(rank) == cluster_.NodeOf(to)) return;
  if (leaves_ && Up(rank) != Up(to)) demand[Up(rank)] += parts;
  if (pools_) demand[Out(rank)] += parts;
}

void NetworkLinks::Arrive(int64_t rank, int64_t from, double parts, Demand& demand) const {
  if (cluster_.NodeOf(rank) == cluster_.NodeOf(from)) return;
  if (leaves_ && Up(rank) != Up(from)) demand[Up(rank) + 1] += parts;
  if (pools_) demand[Out(rank) + 1] += parts;
}

// In parts of one rank: each has its part of the node's cards.
double NetworkLinks::CapacityOf(int32_t link) const {
  const auto devices = static_cast<double>(cluster_.devices_per_node);
  if (link >= 2 * cluster_.nodes) return devices;
  return devices * static_cast<double>(cluster_.nodes_per_leaf) / cluster_.oversubscription;
}

// Between neighbours in the ring of the group's nodes. As much leaves one as the next: the parts of all its members, of
// the node with most of them.
void NetworkLinks::AddRing(const std::vector<int64_t>& group, Demand& demand) const {
  std::vector<int64_t> nodes;  // by their first member
  std::map<int64_t, double> members;
  double parts = 0;
  for (const int64_t rank : group) {
    double& here = members[cluster_.NodeOf(rank)];
    if (here == 0) nodes.push_back(rank);
    parts = std::max(parts, ++here);
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int64_t next = nodes[(i + 1) % nodes.size()];
    Leave(nodes[i], next, parts, demand);
    Arrive(next, nodes[i], parts, demand);
  }
}

// Each member's part goes evenly to the members on other nodes.
void NetworkLinks::AddAllToAll(const std::vector<int64_t>& group, Demand& demand) const {
  std::map<int64_t, double> on_node, on_leaf;
  const auto leaf = [&](int64_t rank) { return leaves_ ? int64_t{Up(rank)} : int64_t{0}; };
  for (const int64_t rank : group) {
    ++on_node[cluster_.NodeOf(rank)];
    ++on_leaf[leaf(rank)];
  }
  const auto all = static_cast<double>(group.size());
  for (const int64_t rank : group) {
    const double elsewhere = all - on_node[cluster_.NodeOf(rank)], on_others = all - on_leaf[leaf(rank)];
    if (elsewhere == 0) continue;
    for (const int32_t direction : {0, 1}) {
      if (leaves_ && on_others > 0) demand[Up(rank) + direction] += on_others / elsewhere;
      if (pools_) demand[Out(rank) + direction] += 1;
    }
  }
}

NetworkLinks::Demand NetworkLinks::DemandOf(size_t class_index, const Work& work) const {
  Demand demand;
  const int64_t first = program_.RankOf(class_index, 0), count = program_.ranks_per_class();
  if (const auto* transfer = std::get_if<Transfer>(&work)) {
    for (int64_t rank = first; rank < first + count; ++rank) {
      const int64_t peer = rank + transfer->stage_offset * count;
      if (transfer->send) {
        Leave(rank, peer, 1, demand);
      } else {
        Arrive(rank, peer, 1, demand);
      }
    }
    return demand;
  }
  const auto* const permute = std::get_if<Permute>(&work);
  const auto* const collective = std::get_if<Collective>(&work);
  // Of a redistribution without sources it is not known here who sends to whom.
  const AxisList axes = permute != nullptr ? permute->axes : collective != nullptr ? collective->axes : AxisList();
  if (axes.empty()) return demand;
  for (int64_t rank = first; rank < first + count; ++rank) {
    const auto place = static_cast<size_t>(program_.mesh.PositionOf(rank, axes));
    if (permute != nullptr) {
      if (permute->sources.empty() || permute->sources[place] < 0) continue;
      const int64_t source = program_.mesh.Group(rank, axes)[static_cast<size_t>(permute->sources[place])];
      Leave(source, rank, 1, demand);
      Arrive(rank, source, 1, demand);
    } else if (place == 0) {
      const std::vector<int64_t> group = program_.mesh.Group(rank, axes);
      if (collective->kind == CollectiveKind::kAllToAll) {
        AddAllToAll(group, demand);
      } else {
        AddRing(group, demand);
      }
    }
  }
  return demand;
}

absl::InlinedVector<SharedUse, 1> NetworkLinks::UsesOf(size_t class_index, const Work& work, double nic_share) {
  absl::InlinedVector<SharedUse, 1> uses;
  if (!any() || nic_share <= 0) return uses;
  Key key = {class_index, -1, {}, {}};
  if (const auto* collective = std::get_if<Collective>(&work)) {
    key = {class_index, static_cast<int>(collective->kind), {collective->axes.begin(), collective->axes.end()}, {}};
  } else if (const auto* permute = std::get_if<Permute>(&work)) {
    key = {class_index, -2, {permute->axes.begin(), permute->axes.end()}, permute->sources};
  } else if (const auto* transfer = std::get_if<Transfer>(&work)) {
    key = {class_index, transfer->send ? -3 : -4, {}, {transfer->stage_offset}};
  } else {
    return uses;
  }
  auto known = known_.find(key);
  if (known == known_.end()) known = known_.emplace(std::move(key), DemandOf(class_index, work)).first;
  for (const auto& [link, parts] : known->second) {
    uses.push_back({link, ToShare(parts * nic_share / CapacityOf(link))});
  }
  return uses;
}

void NetworkLinks::KeepWhatCanBeShort(const Program& program, const ClassCopies& copies, Prices& prices) {
  struct Seen {
    std::map<std::pair<size_t, Stream>, int64_t> most;  // of what a stream of a class runs at a time
    std::vector<std::pair<int64_t, int32_t>> uses;      // instruction, counted through, and share
  };
  std::map<int32_t, Seen> links;
  int64_t ordinal = 0;
  const auto for_each = [&](const auto& visit) {
    for (size_t c = 0; c < prices.classes.size(); ++c) {
      for (size_t b = 0; b < prices.classes[c].size(); ++b) {
        for (size_t i = 0; i < prices.classes[c][b].size(); ++i) {
          visit(c, program.classes[copies.Of(c)].blocks[b].instructions[i].stream, prices.classes[c][b][i].shared);
        }
      }
    }
  };
  for_each([&](size_t c, Stream stream, const auto& shared) {
    ++ordinal;
    for (const SharedUse& use : shared) {
      Seen& seen = links[use.link];
      int64_t& most = seen.most[{c, stream}];
      most = std::max<int64_t>(most, use.share);
      seen.uses.push_back({ordinal, use.share});
    }
  });
  std::map<int32_t, int32_t> number;
  std::set<std::vector<std::pair<int64_t, int32_t>>> kept;
  for (auto& [link, seen] : links) {
    int64_t together = 0;
    for (const auto& [unused, most] : seen.most) together += most;
    if (together > kWhole && kept.insert(std::move(seen.uses)).second) {
      const auto next = static_cast<int32_t>(number.size());
      number[link] = next;
    }
  }
  for_each([&](size_t, Stream, auto& shared) {
    absl::InlinedVector<SharedUse, 1> rest;
    for (const SharedUse& use : shared) {
      if (const auto found = number.find(use.link); found != number.end()) rest.push_back({found->second, use.share});
    }
    shared = std::move(rest);
  });
}

}  // namespace meshwright
