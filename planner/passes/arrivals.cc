#include "planner/passes/arrivals.h"

#include <algorithm>
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

bool Runs(const Pass& pass, PassKind kind, int64_t chunk) { return pass.kind == kind && pass.chunk == chunk; }

// What the stage receives, in the order in which it is sent.
std::vector<Sent> SentTo(int64_t stage, const std::vector<std::vector<Pass>>& passes,
                         const std::vector<std::vector<int64_t>>& ends, const std::vector<Route>& routes) {
  std::vector<Sent> sent;
  for (size_t r = 0; r < routes.size(); ++r) {
    const Route& route = routes[r];
    if (route.to != stage) continue;
    const std::vector<Pass>& of_sender = passes[static_cast<size_t>(route.from)];
    for (size_t i = 0; i < of_sender.size(); ++i) {
      if (!Runs(of_sender[i], route.kind, route.from_chunk)) continue;
      sent.push_back({ends[static_cast<size_t>(route.from)][i], route.from, i, r, of_sender[i].microbatch});
    }
  }
  absl::c_sort(sent, [](const Sent& a, const Sent& b) {
    return std::tie(a.time, a.sender, a.pass, a.route) < std::tie(b.time, b.sender, b.pass, b.route);
  });
  return sent;
}

}  // namespace

Arrivals PlanArrivals(int64_t stage, const std::vector<std::vector<Pass>>& passes,
                      const std::vector<std::vector<int64_t>>& ends, const std::vector<Route>& routes) {
  const std::vector<Sent> sent = SentTo(stage, passes, ends, routes);
  // By what a pass reads: one past the last of it in `sent`.
  std::map<std::tuple<PassKind, int64_t, int64_t>, size_t> end_of;
  for (size_t n = 0; n < sent.size(); ++n) {
    const Route& route = routes[sent[n].route];
    end_of[{route.kind, route.to_chunk, sent[n].microbatch}] = n + 1;
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
      const bool reads = sent[n].microbatch == pass.microbatch && Runs(pass, route.kind, route.to_chunk);
      if (reads) {
        peers.insert(route.from);
        any = true;
      }
      issued[n] = peers.count(route.from) > 0 || (any && route.skips);
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
      const Pass& ended = passes[stage][released];
      for (const Route& route : routes) {
        if (route.to == stage && Runs(ended, route.last_kind, route.last_chunk)) --now[route.home];
      }
    }
  }
  return arrivals;
}

}  // namespace meshwright
