#include "planner/passes/arrivals.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "absl/algorithm/container.h"

namespace meshwright {
namespace {

struct Sent {
  int64_t time = 0;  // when the pass that makes it ends, in some order of all passes
  int64_t sender = 0;
  size_t pass = 0;  // of the sender
  size_t route = 0;
  int64_t microbatch = 0;
};

// Routes by a pass: of a kind and a chunk.
class RoutesByPass {
 public:
  void Add(PassKind kind, int64_t chunk, size_t route) {
    if (static_cast<size_t>(chunk) >= routes_.size()) routes_.resize(static_cast<size_t>(chunk) + 1);
    routes_[static_cast<size_t>(chunk)][static_cast<size_t>(kind)].push_back(route);
  }
  const std::vector<size_t>& Of(const Pass& pass) const {
    static const std::vector<size_t>& none = *new std::vector<size_t>;
    if (static_cast<size_t>(pass.chunk) >= routes_.size()) return none;
    return routes_[static_cast<size_t>(pass.chunk)][static_cast<size_t>(pass.kind)];
  }

 private:
  std::vector<std::array<std::vector<size_t>, kNumPassKinds>> routes_;  // by chunk
};

// What the stage receives, in the order in which it is sent.
std::vector<Sent> SentTo(int64_t stage, const std::vector<std::vector<Pass>>& passes,
                         const std::vector<std::vector<int64_t>>& ends, const std::vector<Route>& routes) {
  std::map<int64_t, RoutesByPass> by_sender;
  for (size_t r = 0; r < routes.size(); ++r) {
    if (routes[r].to == stage) by_sender[routes[r].from].Add(routes[r].kind, routes[r].from_chunk, r);
  }
  std::vector<Sent> sent;
  for (const auto& [sender, of_pass] : by_sender) {
    const std::vector<Pass>& of_sender = passes[static_cast<size_t>(sender)];
    for (size_t i = 0; i < of_sender.size(); ++i) {
      for (const size_t route : of_pass.Of(of_sender[i])) {
        sent.push_back({ends[static_cast<size_t>(sender)][i], sender, i, route, of_sender[i].microbatch});
      }
    }
  }
  absl::c_sort(sent, [](const Sent& a, const Sent& b) {
    return std::tie(a.time, a.sender, a.pass, a.route) < std::tie(b.time, b.sender, b.pass, b.route);
  });
  return sent;
}

}  // namespace

Arrivals PlanArrivals(int64_t stage, const std::vector<std::vector<Pass>>& passes,
                      const std::vector<std::vector<int64_t>>& ends, const std::vector<Route>& routes,
                      bool in_order_of_time) {
  const std::vector<Sent> sent = SentTo(stage, passes, ends, routes);
  // By what a pass reads: one past the last of it in `sent`.
  std::map<std::tuple<PassKind, int64_t, int64_t>, size_t> end_of;
  for (size_t n = 0; n < sent.size(); ++n) {
    const Route& route = routes[sent[n].route];
    end_of[{route.kind, route.to_chunk, sent[n].microbatch}] = n + 1;
  }
  RoutesByPass released_by;
  for (size_t r = 0; r < routes.size(); ++r) {
    if (routes[r].to == stage) released_by.Add(routes[r].last_kind, routes[r].last_chunk, r);
  }
  std::vector<bool> issued(sent.size(), false);
  size_t first = 0;     // that is not issued
  size_t released = 0;  // passes
  Arrivals arrivals;
  arrivals.before.resize(passes[stage].size());
  std::map<std::pair<int64_t, BufferId>, int64_t> now;  // by home: received and not yet done with
  for (size_t i = 0; i < passes[stage].size(); ++i) {
    const Pass& pass = passes[stage][i];
    std::set<int64_t> peers;  // that send something behind or at n to this pass
    bool any = false;
    const auto end = end_of.find({pass.kind, pass.chunk, pass.microbatch});
    for (size_t n = end == end_of.end() ? first : end->second; n-- > first;) {
      const Route& route = routes[sent[n].route];
      if (issued[n]) continue;
      const bool reads =
          sent[n].microbatch == pass.microbatch && pass.kind == route.kind && pass.chunk == route.to_chunk;
      if (reads) {
        peers.insert(route.from);
        any = true;
      }
      issued[n] = peers.count(route.from) > 0 || (any && (route.skips || in_order_of_time));
      if (!issued[n]) continue;
      arrivals.before[i].push_back({sent[n].route, sent[n].microbatch});
      if (!reads) arrivals.early.insert(sent[n].route);
      int64_t& waiting = arrivals.waiting[route.home];
      waiting = std::max(waiting, ++now[route.home]);
    }
    while (first < sent.size() && issued[first]) ++first;
    std::reverse(arrivals.before[i].begin(), arrivals.before[i].end());
    if (pass.with_next) continue;
    // Linked passes end together.
    for (; released <= i; ++released) {
      for (const size_t route : released_by.Of(passes[stage][released])) --now[routes[route].home];
    }
  }
  return arrivals;
}

}  // namespace meshwright
