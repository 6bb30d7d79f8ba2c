#include "planner/passes/arrivals.h"

#include <algorithm>

#include "absl/algorithm/container.h"

namespace meshwright {
namespace {

struct Sent {
  Arrivals::Receive receive;
  int64_t time = 0;  // when the pass that makes it ends, in some order of all passes
};

bool Runs(const Pass& pass, PassKind kind, int64_t chunk) { return pass.kind == kind && pass.chunk == chunk; }

// What the stage receives, in the order in which it is sent.
std::vector<Sent> SentTo(int64_t stage, const std::vector<std::vector<Pass>>& passes,
                         const std::vector<std::vector<int64_t>>& ends, const std::vector<Route>& routes) {
  std::vector<Sent> sent;
  for (size_t sender = 0; sender < passes.size(); ++sender) {
    for (size_t i = 0; i < passes[sender].size(); ++i) {
      for (size_t r = 0; r < routes.size(); ++r) {
        const Route& route = routes[r];
        if (route.from != static_cast<int64_t>(sender) || route.to != stage) continue;
        if (!Runs(passes[sender][i], route.kind, route.from_chunk)) continue;
        sent.push_back({{r, passes[sender][i].microbatch}, ends[sender][i]});
      }
    }
  }
  absl::c_stable_sort(sent, [](const Sent& a, const Sent& b) { return a.time < b.time; });
  return sent;
}

}  // namespace

Arrivals PlanArrivals(int64_t stage, const std::vector<std::vector<Pass>>& passes,
                      const std::vector<std::vector<int64_t>>& ends, const std::vector<Route>& routes) {
  const std::vector<Sent> sent = SentTo(stage, passes, ends, routes);
  std::vector<bool> issued(sent.size(), false);
  Arrivals arrivals;
  arrivals.before.resize(passes[stage].size());
  std::map<std::pair<int64_t, BufferId>, int64_t> now;  // by home: received and not yet done with
  for (size_t i = 0; i < passes[stage].size(); ++i) {
    const Pass& pass = passes[stage][i];
    std::set<int64_t> peers;  // that send something behind or at n to this pass
    bool any = false;
    for (size_t n = sent.size(); n-- > 0;) {
      const auto& [r, microbatch] = sent[n].receive;
      const Route& route = routes[r];
      if (issued[n]) continue;
      const bool reads = microbatch == pass.microbatch && Runs(pass, route.kind, route.to_chunk);
      if (reads) {
        peers.insert(route.from);
        any = true;
      }
      issued[n] = peers.count(route.from) > 0 || (any && route.skips);
      if (!issued[n]) continue;
      arrivals.before[i].push_back(sent[n].receive);
      if (!reads) arrivals.early.insert(r);
      int64_t& waiting = arrivals.waiting[route.home];
      waiting = std::max(waiting, ++now[route.home]);
    }
    std::reverse(arrivals.before[i].begin(), arrivals.before[i].end());
    for (const Route& route : routes) {
      if (route.to == stage && Runs(pass, route.last_kind, route.last_chunk)) --now[route.home];
    }
  }
  return arrivals;
}

}  // namespace meshwright
