#include "planner/passes/arrivals.h"

#include <algorithm>
#include <array>

#include "absl/algorithm/container.h"
#include "absl/container/inlined_vector.h"

namespace meshwright {
namespace {

struct Sent {
  int64_t time = 0;  // when the pass that makes it ends, in some order of all passes
  size_t route = 0;
  int64_t microbatch = 0;
};

// Numbers by what a pass is of: a kind and a chunk.
class ByPass {
 public:
  std::vector<size_t>& At(PassKind kind, int64_t chunk) {
    if (static_cast<size_t>(chunk) >= numbers_.size()) numbers_.resize(static_cast<size_t>(chunk) + 1);
    return numbers_[static_cast<size_t>(chunk)][static_cast<size_t>(kind)];
  }
  const std::vector<size_t>& Of(const Pass& pass) const {
    static const std::vector<size_t>& none = *new std::vector<size_t>;
    if (static_cast<size_t>(pass.chunk) >= numbers_.size()) return none;
    return numbers_[static_cast<size_t>(pass.chunk)][static_cast<size_t>(pass.kind)];
  }

 private:
  std::vector<std::array<std::vector<size_t>, kNumPassKinds>> numbers_;  // by chunk
};

// What the stage receives, in the order in which it is sent.
std::vector<Sent> SentTo(int64_t stage, const std::vector<std::vector<Pass>>& passes,
                         const std::vector<std::vector<int64_t>>& ends, const std::vector<Route>& routes) {
  std::map<int64_t, ByPass> by_sender;
  for (size_t r = 0; r < routes.size(); ++r) {
    if (routes[r].to == stage) by_sender[routes[r].from].At(routes[r].kind, routes[r].from_chunk).push_back(r);
  }
  size_t most = 0;
  for (const auto& [sender, of_pass] : by_sender) most += passes[static_cast<size_t>(sender)].size();
  std::vector<Sent> sent;
  sent.reserve(most);
  for (const auto& [sender, of_pass] : by_sender) {
    const std::vector<Pass>& of_sender = passes[static_cast<size_t>(sender)];
    const size_t before = sent.size();
    for (size_t i = 0; i < of_sender.size(); ++i) {
      for (const size_t route : of_pass.Of(of_sender[i])) {
        sent.push_back({ends[static_cast<size_t>(sender)][i], route, of_sender[i].microbatch});
      }
    }
    // A sender's passes end in order; of several at one time the lower sender's come first.
    std::inplace_merge(sent.begin(), sent.begin() + static_cast<int64_t>(before), sent.end(),
                       [](const Sent& a, const Sent& b) { return a.time < b.time; });
  }
  return sent;
}

// Counts what has come and is not yet done with, as passes are issued one after the other.
class Waiting {
 public:
  Waiting(int64_t stage, const std::vector<Pass>& passes, const std::vector<Route>& routes)
      : passes_(passes), routes_(routes), now_at_(routes.size()), most_(routes.size()) {
    for (size_t r = 0; r < routes.size(); ++r) {
      if (routes[r].to != stage) continue;
      released_by_.At(routes[r].last_kind, routes[r].last_chunk).push_back(r);
      now_at_[r] = &now_[routes[r].home];
    }
  }

  void Receive(size_t route) { most_[route] = std::max(most_[route], ++*now_at_[route]); }
  // Behind the pass. Linked passes end together.
  void End(size_t pass) {
    if (passes_[pass].with_next) return;
    for (; released_ <= pass; ++released_) {
      for (const size_t route : released_by_.Of(passes_[released_])) --*now_at_[route];
    }
  }

  // At once, at most, by home.
  std::map<std::pair<int64_t, BufferId>, int64_t> Most() const {
    std::map<std::pair<int64_t, BufferId>, int64_t> by_home;
    for (size_t r = 0; r < routes_.size(); ++r) {
      if (most_[r] == 0) continue;
      int64_t& most = by_home[routes_[r].home];
      most = std::max(most, most_[r]);
    }
    return by_home;
  }

 private:
  const std::vector<Pass>& passes_;
  const std::vector<Route>& routes_;
  ByPass released_by_;
  std::map<std::pair<int64_t, BufferId>, int64_t> now_;  // by home
  std::vector<int64_t*> now_at_;                         // the same by route
  std::vector<int64_t> most_;                            // by route: of its home, when it came
  size_t released_ = 0;                                  // passes
};

}  // namespace

Arrivals PlanArrivals(int64_t stage, const std::vector<std::vector<Pass>>& passes,
                      const std::vector<std::vector<int64_t>>& ends, const std::vector<Route>& routes,
                      bool in_order_of_time) {
  const std::vector<Sent> sent = SentTo(stage, passes, ends, routes);
  int64_t microbatches = 0;
  for (const Sent& one : sent) microbatches = std::max(microbatches, one.microbatch + 1);
  // By what a pass reads and its micro-batch: one past the last of it in `sent`, or 0.
  ByPass end_of;
  for (size_t n = 0; n < sent.size(); ++n) {
    const Route& route = routes[sent[n].route];
    std::vector<size_t>& ends_of = end_of.At(route.kind, route.to_chunk);
    if (ends_of.empty()) ends_of.resize(static_cast<size_t>(microbatches));
    ends_of[static_cast<size_t>(sent[n].microbatch)] = n + 1;
  }
  Waiting waiting(stage, passes[stage], routes);
  std::vector<bool> issued(sent.size(), false);
  size_t first = 0;  // that is not issued
  Arrivals arrivals;
  arrivals.before.resize(passes[stage].size());
  for (size_t i = 0; i < passes[stage].size(); ++i) {
    const Pass& pass = passes[stage][i];
    absl::InlinedVector<int64_t, 4> peers;  // that send something behind or at n to this pass
    bool any = false;
    const std::vector<size_t>& ends_of = end_of.Of(pass);
    const size_t microbatch = static_cast<size_t>(pass.microbatch);
    for (size_t n = microbatch < ends_of.size() ? ends_of[microbatch] : 0; n > first;) {
      --n;
      const Route& route = routes[sent[n].route];
      if (issued[n]) continue;
      const bool reads =
          sent[n].microbatch == pass.microbatch && pass.kind == route.kind && pass.chunk == route.to_chunk;
      if (reads) {
        peers.push_back(route.from);
        any = true;
      }
      issued[n] = absl::c_linear_search(peers, route.from) || (any && (route.skips || in_order_of_time));
      if (!issued[n]) continue;
      arrivals.before[i].push_back({sent[n].route, sent[n].microbatch});
      if (!reads) arrivals.early.insert(sent[n].route);
      waiting.Receive(sent[n].route);
    }
    while (first < sent.size() && issued[first]) ++first;
    std::reverse(arrivals.before[i].begin(), arrivals.before[i].end());
    waiting.End(i);
  }
  arrivals.waiting = waiting.Most();
  return arrivals;
}

std::optional<Arrivals> ArrivalsInOrder(int64_t stage, const std::vector<std::vector<Pass>>& passes,
                                        const std::vector<Route>& routes) {
  ByPass read_by;                       // routes
  std::map<int64_t, ByPass> by_sender;  // the same, by the pass that sends
  for (size_t r = 0; r < routes.size(); ++r) {
    const Route& route = routes[r];
    if (route.to != stage) continue;
    std::vector<size_t>& together = read_by.At(route.kind, route.to_chunk);
    const bool as_others = together.empty() || (routes[together[0]].from == route.from &&
                                                routes[together[0]].from_chunk == route.from_chunk);
    if (route.skips || !as_others) return std::nullopt;
    together.push_back(r);
    by_sender[route.from].At(route.kind, route.from_chunk).push_back(r);
  }
  const std::vector<Pass>& own = passes[static_cast<size_t>(stage)];
  std::vector<const std::vector<size_t>*> reads;
  reads.reserve(own.size());
  for (const Pass& pass : own) reads.push_back(&read_by.Of(pass));
  for (const auto& [sender, sends] : by_sender) {
    size_t next = 0;  // of the stage's own passes
    const auto go_to_next = [&, from = sender] {
      while (next < own.size() && (reads[next]->empty() || routes[reads[next]->front()].from != from)) ++next;
    };
    for (const Pass& pass : passes[static_cast<size_t>(sender)]) {
      const std::vector<size_t>& sent = sends.Of(pass);
      if (sent.empty()) continue;
      go_to_next();
      if (next == own.size() || own[next].microbatch != pass.microbatch || *reads[next] != sent) return std::nullopt;
      ++next;
    }
    go_to_next();
    if (next < own.size()) return std::nullopt;
  }
  Waiting waiting(stage, own, routes);
  Arrivals arrivals;
  arrivals.before.resize(own.size());
  for (size_t i = 0; i < own.size(); ++i) {
    for (const size_t route : *reads[i]) {
      arrivals.before[i].push_back({route, own[i].microbatch});
      waiting.Receive(route);
    }
    waiting.End(i);
  }
  arrivals.waiting = waiting.Most();
  return arrivals;
}

}  // namespace meshwright
