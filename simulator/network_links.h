// Links of the cluster that are not a single device's: what connects leaf switches to each other, and the cards of a
// node whose devices belong to several classes. What of them each communication of a Program takes.
//
// The network: `nodes_per_leaf` nodes on each leaf switch, in the order of their numbers, joined by the network cards'
// full bandwidth; between leaf switches there is 1 / oversubscription of that, up and down. A collective goes round its
// nodes in the order of its ranks, as a ring's messages do (a tree's cross about as many links); an all-to-all goes
// from everybody to everybody.
//
// Thread safety: one thread at a time.
#ifndef MESHWRIGHT_SIMULATOR_NETWORK_LINKS_H_
#define MESHWRIGHT_SIMULATOR_NETWORK_LINKS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "ir/cluster.h"
#include "ir/program.h"
#include "simulator/class_copies.h"
#include "simulator/price.h"

namespace meshwright {

class NetworkLinks {
 public:
  NetworkLinks(const Program& program, const Cluster& cluster);

  // Whether there is any link that could be short.
  bool any() const { return leaves_ || pools_; }

  // What `work` of that class takes where each rank that sends over the network takes `nic_share` of its part of the
  // node's cards. Links are numbered by their place in the cluster.
  absl::InlinedVector<SharedUse, 1> UsesOf(size_t class_index, const Work& work, double nic_share);

  // Drops links on which nobody can ever be held up, whatever runs at a time, and all but one of those that everybody
  // uses alike; numbers the others without gaps.
  static void KeepWhatCanBeShort(const Program& program, const ClassCopies& copies, Prices& prices);

 private:
  using Demand = std::map<int32_t, double>;  // by link, in parts of one rank
  using Key = std::tuple<size_t, int, std::vector<AxisId>, std::vector<int32_t>>;

  int32_t Up(int64_t rank) const { return static_cast<int32_t>(2 * (cluster_.NodeOf(rank) / cluster_.nodes_per_leaf)); }
  int32_t Out(int64_t rank) const { return static_cast<int32_t>(2 * (cluster_.nodes + cluster_.NodeOf(rank))); }
  // `parts` leave, or arrive at, a rank from or to the other.
  void Leave(int64_t rank, int64_t to, double parts, Demand& demand) const;
  void Arrive(int64_t rank, int64_t from, double parts, Demand& demand) const;
  double CapacityOf(int32_t link) const;

  Demand DemandOf(size_t class_index, const Work& work) const;
  void AddRing(const std::vector<int64_t>& group, Demand& demand) const;
  void AddAllToAll(const std::vector<int64_t>& group, Demand& demand) const;

  const Program& program_;
  const Cluster& cluster_;
  bool leaves_ = false, pools_ = false;
  std::map<Key, Demand> known_;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_NETWORK_LINKS_H_
