#include "simulator/flows.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <queue>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace meshwright {
namespace {

// Shares that differ by less are the same bottleneck: sums of doubles in another order.
constexpr double kSameShare = 1 + 1e-12;

// The messages of one train end, or arrive.
struct Happening {
  int32_t train = 0;
  uint32_t version = 0;  // of the train's rate; an end that a change of rate has moved is not this one any more
  bool arrival = false;
};

// Happenings by time. All of one nanosecond lie together: in symmetric traffic there are few times and many
// happenings at each.
class Calendar {
 public:
  void Add(Nanos time, Happening happening) {
    if (time.raw() != last_time_) {
      last_time_ = time.raw();
      const auto [place, is_new] = bucket_of_.try_emplace(time.raw(), 0);
      if (is_new) {
        place->second = NewBucket();
        times_.push(time.raw());
      }
      last_bucket_ = place->second;
    }
    buckets_[last_bucket_].push_back(happening);
  }

  bool empty() const { return times_.empty(); }

  // The earliest time, and what happens at it.
  Nanos Take(std::vector<Happening>* happenings) {
    const int64_t time = times_.top();
    times_.pop();
    const auto place = bucket_of_.find(time);
    happenings->clear();
    happenings->swap(buckets_[place->second]);
    free_.push_back(place->second);
    bucket_of_.erase(place);
    if (last_time_ == time) last_time_ = -1;
    return Nanos(time);
  }

 private:
  size_t NewBucket() {
    if (free_.empty()) {
      buckets_.emplace_back();
      return buckets_.size() - 1;
    }
    const size_t bucket = free_.back();
    free_.pop_back();
    return bucket;
  }

  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> times_;
  absl::flat_hash_map<int64_t, size_t> bucket_of_;  // looked up, never walked
  std::vector<std::vector<Happening>> buckets_;
  std::vector<size_t> free_;
  int64_t last_time_ = -1;
  size_t last_bucket_ = 0;
};

// Lists of int32_t by index, in one piece.
class Lists {
 public:
  template <class KeyOf>
  Lists(size_t num_keys, size_t num_values, KeyOf key_of) : begin_(num_keys + 1, 0) {
    for (size_t value = 0; value < num_values; ++value) {
      if (const int32_t key = key_of(value); key >= 0) ++begin_[static_cast<size_t>(key) + 1];
    }
    for (size_t key = 0; key < num_keys; ++key) begin_[key + 1] += begin_[key];
    values_.resize(static_cast<size_t>(begin_.back()));
    std::vector<int32_t> next(begin_.begin(), begin_.end() - 1);
    for (size_t value = 0; value < num_values; ++value) {
      const int32_t key = key_of(value);
      if (key >= 0) values_[static_cast<size_t>(next[static_cast<size_t>(key)]++)] = static_cast<int32_t>(value);
    }
  }
  absl::Span<const int32_t> operator[](int32_t key) const {
    const size_t k = static_cast<size_t>(key);
    return absl::MakeConstSpan(values_).subspan(static_cast<size_t>(begin_[k]),
                                                static_cast<size_t>(begin_[k + 1] - begin_[k]));
  }

 private:
  std::vector<int32_t> begin_, values_;
};

// Messages that meet on one link and nowhere else, all at one rate: only the first end among them is looked at. Instead
// of what is left of each, the bytes are kept that every message on the link has been served since a common beginning.
class Hub {
 public:
  // `most`: what a message reaches on its other links, in bytes per nanosecond.
  Hub(double capacity, double most) : capacity_(capacity), most_(most) {}

  void Enter(int32_t train, double bytes, Nanos now) {
    Serve(now);
    ends_.push({served_ + bytes, train});
  }
  // The messages that have left by now, one at a time; `due` has, whatever its last byte's rounding says. -1: no more.
  int32_t Leave(Nanos now, int32_t due) {
    Serve(now);
    if (ends_.empty()) return -1;
    const auto [end, train] = ends_.top();
    if (train != due && end - served_ > kSlack * rate_) return -1;
    ends_.pop();
    return train;
  }
  // After all have come and gone: who leaves next, and when. -1: nobody is there.
  std::pair<int32_t, Nanos> Next(Nanos now) {
    if (ends_.empty()) {
      served_ = 0;
      return {-1, now};
    }
    rate_ = std::min(most_, capacity_ / static_cast<double>(ends_.size()));
    const auto [end, train] = ends_.top();
    return {train, now + Nanos(static_cast<int64_t>(std::max(0.0, std::ceil((end - served_) / rate_ - kSlack))))};
  }

  bool touched = false;    // something has changed at this moment
  int32_t announced = -1;  // whose end is in the calendar

 private:
  // Of a nanosecond: sums of doubles in another order.
  static constexpr double kSlack = 1e-6;

  void Serve(Nanos now) {
    served_ += static_cast<double>((now - updated_).raw()) * rate_;
    updated_ = now;
  }

  using End = std::pair<double, int32_t>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  const double capacity_, most_;
  double rate_ = 0, served_ = 0;
  Nanos updated_;
};

double BytesPerNano(BytesPerSecond rate) { return rate.raw() * 1e-9; }

// Max-min fair rates by progressive filling. `links[i]` has `capacity` left for `users` messages without a rate yet;
// members(i) are the messages on it, route(m) the links of message m; fix(m, rate) is called once for each message.
struct Filling {
  double capacity = 0;
  int32_t users = 0;
};

template <class Members, class Route, class IsFixed, class Fix>
void FillUp(absl::Span<const int32_t> links, std::vector<Filling>* fillings, Members members, Route route,
            IsFixed is_fixed, Fix fix) {
  while (true) {
    double share = std::numeric_limits<double>::infinity();
    for (const int32_t link : links) {
      const Filling& filling = (*fillings)[static_cast<size_t>(link)];
      if (filling.users > 0) share = std::min(share, filling.capacity / filling.users);
    }
    if (share == std::numeric_limits<double>::infinity()) return;
    // Links are full at the same share together; fixing the messages of one leaves the others' shares as they are.
    for (const int32_t link : links) {
      const Filling& filling = (*fillings)[static_cast<size_t>(link)];
      if (filling.users == 0 || filling.capacity / filling.users > share * kSameShare) continue;
      for (const int32_t message : members(link)) {
        if (is_fixed(message)) continue;
        fix(message, share);
        for (const int32_t other : route(message)) {
          Filling& of_other = (*fillings)[static_cast<size_t>(other)];
          of_other.capacity = std::max(0.0, of_other.capacity - share);
          --of_other.users;
        }
      }
    }
  }
}

class TrainPlayer {
 public:
  TrainPlayer(const FlowNetwork& network, absl::Span<const Train> trains)
      : network_(network),
        trains_(trains),
        states_(trains.size()),
        links_(network.links.size()),
        fillings_(network.links.size()),
        followers_(trains.size(), trains.size(), [&](size_t i) { return trains[i].after; }),
        fed_(trains.size(), trains.size(), [&](size_t i) { return trains[i].feeder; }) {
    for (size_t i = 0; i < trains.size(); ++i) {
      double slowest = std::numeric_limits<double>::infinity();
      for (const int32_t link : RouteOf(i).links) {
        slowest = std::min(slowest, BytesPerNano(network.links[static_cast<size_t>(link)]));
      }
      states_[i].own_rate = slowest;
      states_[i].own_time = TimeFor(static_cast<double>(trains[i].size.raw()), slowest);
    }
    FindHubs();
  }

  absl::StatusOr<std::vector<TrainTimes>> PlayAll() {
    times_.assign(trains_.size(), {Nanos(-1), Nanos(-1)});
    for (size_t i = 0; i < trains_.size(); ++i) {
      // The moment at which it may begin comes in as an arrival before message 0.
      if (trains_[i].after < 0) calendar_.Add(trains_[i].begin, {static_cast<int32_t>(i), 0, true});
    }
    std::vector<Happening> happenings;
    while (!calendar_.empty()) {
      now_ = calendar_.Take(&happenings);
      for (const Happening& happening : happenings) {
        if (happening.arrival) {
          Arrive(happening.train);
        } else if (State(happening.train).version == happening.version) {
          EndAll(happening.train);
        }
      }
      StartAll();
      AnnounceEnds();
      if (!dirty_.empty()) ShareLinks();
    }
    for (size_t i = 0; i < trains_.size(); ++i) {
      if (times_[i].end < Nanos()) {
        return absl::FailedPreconditionError(absl::StrCat("train ", i, " never ends: it has sent ", states_[i].sent,
                                                          " of ", trains_[i].count,
                                                          " messages and waits for a train that waits for it"));
      }
    }
    return std::move(times_);
  }

 private:
  struct TrainState {
    double own_rate = 0;   // bytes per nanosecond with all links to itself
    Nanos own_time;        // of a message, then
    double rate = 0;       // 0: no message is under way
    double remaining = 0;  // bytes, at `updated`
    Nanos updated;
    int64_t sent = 0;     // messages that have left
    int64_t arrived = 0;  // the beginning counts as one, see PlayAll
    uint32_t version = 0;
    uint32_t visited = 0;  // by ShareLinks
    double fair_rate = 0;  // found by ShareLinks
    bool active = false;
    bool candidate = false;  // in starts_
    int32_t hub = -1;        // in hubs_
  };
  struct LinkState {
    std::vector<int32_t> active;
    uint32_t visited = 0;
    bool dirty = false;
  };

  TrainState& State(int32_t train) { return states_[static_cast<size_t>(train)]; }
  const Train& TrainOf(int32_t train) const { return trains_[static_cast<size_t>(train)]; }
  const FlowRoute& RouteOf(size_t train) const { return network_.routes[static_cast<size_t>(trains_[train].route)]; }

  static Nanos TimeFor(double bytes, double rate) { return Nanos(static_cast<int64_t>(std::ceil(bytes / rate))); }

  // A link is a hub where all trains over it share no other link, and are as fast as each other on those.
  void FindHubs() {
    std::vector<int32_t> users(network_.links.size(), 0);
    for (size_t i = 0; i < trains_.size(); ++i) {
      for (const int32_t link : RouteOf(i).links) ++users[static_cast<size_t>(link)];
    }
    struct Facts {
      bool is_hub = true;
      double most = 0;  // 0: no train seen yet
      int32_t hub = -1;
    };
    std::vector<Facts> facts(network_.links.size());
    const auto for_each_shared = [&](size_t train, const auto& visit) {
      for (const int32_t link : RouteOf(train).links) {
        if (users[static_cast<size_t>(link)] > 1) visit(facts[static_cast<size_t>(link)]);
      }
    };
    for (size_t i = 0; i < trains_.size(); ++i) {
      int shared = 0;
      for_each_shared(i, [&](const Facts&) { ++shared; });
      for_each_shared(i, [&](Facts& link) {
        const double most = states_[i].own_rate;
        link.is_hub = link.is_hub && shared == 1 && (link.most == 0 || link.most == most);
        link.most = most;
      });
    }
    for (size_t i = 0; i < trains_.size(); ++i) {
      for (const int32_t link : RouteOf(i).links) {
        Facts& of = facts[static_cast<size_t>(link)];
        if (users[static_cast<size_t>(link)] < 2 || !of.is_hub || trains_[i].size == Bytes()) continue;
        if (of.hub < 0) {
          of.hub = static_cast<int32_t>(hubs_.size());
          hubs_.emplace_back(BytesPerNano(network_.links[static_cast<size_t>(link)]), of.most);
        }
        states_[i].hub = of.hub;
      }
    }
  }

  void Touch(int32_t hub) {
    if (std::exchange(hubs_[static_cast<size_t>(hub)].touched, true)) return;
    touched_.push_back(hub);
  }

  // The message that the calendar names, and those that leave its hub with it.
  void EndAll(int32_t due) {
    const int32_t hub = State(due).hub;
    if (hub < 0) return End(due);
    Hub& of = hubs_[static_cast<size_t>(hub)];
    for (int32_t train = of.Leave(now_, due); train >= 0; train = of.Leave(now_, -1)) {
      ++State(train).version;
      End(train);
    }
    of.announced = -1;
    Touch(hub);
  }

  void AnnounceEnds() {
    for (const int32_t hub : touched_) {
      Hub& of = hubs_[static_cast<size_t>(hub)];
      of.touched = false;
      if (of.announced >= 0) ++State(of.announced).version;
      const auto [train, time] = of.Next(now_);
      of.announced = train;
      if (train >= 0) calendar_.Add(time, {train, ++State(train).version, false});
    }
    touched_.clear();
  }

  // The beginning, or one message, of a train has arrived.
  void Arrive(int32_t train) {
    const int64_t messages = State(train).arrived++;
    if (messages == 0) {
      Consider(train);
      return;
    }
    for (const int32_t fed : fed_[train]) Consider(fed);
    if (messages < TrainOf(train).count) return;
    times_[static_cast<size_t>(train)].end = now_;
    for (const int32_t follower : followers_[train]) {
      calendar_.Add(std::max(now_, TrainOf(follower).begin), {follower, 0, true});
    }
  }

  void Consider(int32_t train) {
    if (State(train).candidate) return;
    State(train).candidate = true;
    starts_.push_back(train);
  }

  bool MayStart(int32_t train) {
    const TrainState& state = State(train);
    const Train& of = TrainOf(train);
    if (state.active || state.arrived == 0 || state.sent == of.count) return false;
    return state.sent == 0 || of.feeder < 0 || State(of.feeder).arrived > state.sent;
  }

  void StartAll() {
    for (size_t i = 0; i < starts_.size(); ++i) {
      const int32_t train = starts_[i];
      State(train).candidate = false;
      if (MayStart(train)) Start(train);
    }
    // Only now is it known who shares a link with whom.
    for (const int32_t train : starts_) {
      TrainState& state = State(train);
      if (!state.active || state.rate != 0) continue;
      const auto& links = RouteOf(static_cast<size_t>(train)).links;
      const bool alone = std::all_of(links.begin(), links.end(), [&](int32_t link) {
        return links_[static_cast<size_t>(link)].active.size() == 1;
      });
      if (!alone) {
        for (const int32_t link : links) MarkDirty(link);
        continue;
      }
      state.rate = state.own_rate;
      calendar_.Add(now_ + state.own_time, {train, ++state.version, false});
    }
    starts_.clear();
  }

  void Start(int32_t train) {
    TrainState& state = State(train);
    if (state.sent == 0) times_[static_cast<size_t>(train)].begin = now_;
    if (TrainOf(train).size == Bytes()) {
      calendar_.Add(now_, {train, ++state.version, false});
      state.active = true;
      state.rate = state.own_rate;  // takes no time and no link
      return;
    }
    state.active = true;
    if (state.hub >= 0) {
      state.rate = state.own_rate;  // its hub knows better
      hubs_[static_cast<size_t>(state.hub)].Enter(train, static_cast<double>(TrainOf(train).size.raw()), now_);
      return Touch(state.hub);
    }
    state.rate = 0;
    state.remaining = static_cast<double>(TrainOf(train).size.raw());
    state.updated = now_;
    for (const int32_t link : RouteOf(static_cast<size_t>(train)).links) {
      links_[static_cast<size_t>(link)].active.push_back(train);
    }
  }

  void End(int32_t train) {
    TrainState& state = State(train);
    state.active = false;
    state.rate = 0;
    ++state.sent;
    const FlowRoute& route = RouteOf(static_cast<size_t>(train));
    if (TrainOf(train).size != Bytes() && state.hub < 0) {
      for (const int32_t link : route.links) {
        std::vector<int32_t>& active = links_[static_cast<size_t>(link)].active;
        *std::find(active.begin(), active.end(), train) = active.back();
        active.pop_back();
        if (!active.empty()) MarkDirty(link);
      }
    }
    if (route.latency == Nanos()) {
      Arrive(train);
    } else if (state.sent < TrainOf(train).count && fed_[train].empty()) {
      ++state.arrived;  // nobody waits for this one
    } else {
      calendar_.Add(now_ + route.latency, {train, 0, true});
    }
    Consider(train);
  }

  void MarkDirty(int32_t link) {
    LinkState& state = links_[static_cast<size_t>(link)];
    if (state.dirty) return;
    state.dirty = true;
    dirty_.push_back(link);
  }

  // Gives new rates to all that share links with what has changed.
  void ShareLinks() {
    ++visit_;
    reached_links_.clear();
    reached_trains_.clear();
    for (const int32_t link : dirty_) {
      links_[static_cast<size_t>(link)].dirty = false;
      Reach(link);
    }
    dirty_.clear();
    for (size_t i = 0; i < reached_links_.size(); ++i) {
      for (const int32_t train : links_[static_cast<size_t>(reached_links_[i])].active) {
        TrainState& state = State(train);
        if (state.visited == visit_) continue;
        state.visited = visit_;
        state.fair_rate = 0;
        reached_trains_.push_back(train);
        for (const int32_t link : RouteOf(static_cast<size_t>(train)).links) Reach(link);
      }
    }
    FillUp(
        reached_links_, &fillings_,
        [&](int32_t link) -> const std::vector<int32_t>& { return links_[static_cast<size_t>(link)].active; },
        [&](int32_t train) -> const auto& { return RouteOf(static_cast<size_t>(train)).links; },
        [&](int32_t train) { return State(train).fair_rate > 0; },
        [&](int32_t train, double rate) { State(train).fair_rate = rate; });
    for (const int32_t train : reached_trains_) SetRate(train, State(train).fair_rate);
  }

  void Reach(int32_t link) {
    LinkState& state = links_[static_cast<size_t>(link)];
    if (state.visited == visit_) return;
    state.visited = visit_;
    fillings_[static_cast<size_t>(link)] = {BytesPerNano(network_.links[static_cast<size_t>(link)]),
                                            static_cast<int32_t>(state.active.size())};
    reached_links_.push_back(link);
  }

  void SetRate(int32_t train, double rate) {
    TrainState& state = State(train);
    if (state.rate == rate) return;
    state.remaining -= static_cast<double>((now_ - state.updated).raw()) * state.rate;
    state.updated = now_;
    state.rate = rate;
    calendar_.Add(now_ + TimeFor(std::max(0.0, state.remaining), rate), {train, ++state.version, false});
  }

  const FlowNetwork& network_;
  absl::Span<const Train> trains_;
  std::vector<TrainState> states_;
  std::vector<LinkState> links_;
  std::vector<Filling> fillings_;
  Lists followers_, fed_;
  Calendar calendar_;
  std::vector<TrainTimes> times_;
  Nanos now_;
  std::vector<Hub> hubs_;
  std::vector<int32_t> touched_;  // hubs
  std::vector<int32_t> starts_;   // may have become able to send
  std::vector<int32_t> dirty_;    // links on which somebody has begun or ended beside others
  std::vector<int32_t> reached_links_, reached_trains_;
  uint32_t visit_ = 0;
};

absl::Status Check(const FlowNetwork& network, absl::Span<const Train> trains) {
  const auto within = [](int32_t index, size_t size) { return index >= 0 && static_cast<size_t>(index) < size; };
  for (size_t l = 0; l < network.links.size(); ++l) {
    if (!(network.links[l] > BytesPerSecond())) {
      return absl::InvalidArgumentError(absl::StrCat("link ", l, " has no bandwidth"));
    }
  }
  for (size_t r = 0; r < network.routes.size(); ++r) {
    const FlowRoute& route = network.routes[r];
    if (route.links.empty()) return absl::InvalidArgumentError(absl::StrCat("route ", r, " has no links"));
    if (route.latency < Nanos())
      return absl::InvalidArgumentError(absl::StrCat("route ", r, " has a negative latency"));
    for (size_t i = 0; i < route.links.size(); ++i) {
      if (!within(route.links[i], network.links.size())) {
        return absl::InvalidArgumentError(
            absl::StrCat("route ", r, " takes link ", route.links[i], "; there are ", network.links.size()));
      }
      if (std::find(route.links.begin(), route.links.begin() + i, route.links[i]) != route.links.begin() + i) {
        return absl::InvalidArgumentError(absl::StrCat("route ", r, " takes link ", route.links[i], " twice"));
      }
    }
  }
  for (size_t t = 0; t < trains.size(); ++t) {
    const Train& train = trains[t];
    const std::string name = absl::StrCat("train ", t);
    if (!within(train.route, network.routes.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " takes route ", train.route, "; there are ", network.routes.size()));
    }
    if (train.size < Bytes() || train.begin < Nanos() || train.count < 1) {
      return absl::InvalidArgumentError(absl::StrCat(name, " sends ", train.count, " messages of ", train.size.raw(),
                                                     " bytes at ", train.begin.raw(),
                                                     " ns; wanted at least one, and nothing negative"));
    }
    for (const int32_t other : {train.after, train.feeder}) {
      if (other != -1 && !within(other, trains.size())) {
        return absl::InvalidArgumentError(
            absl::StrCat(name, " waits for train ", other, "; there are ", trains.size()));
      }
    }
    if (train.feeder >= 0 && trains[static_cast<size_t>(train.feeder)].count < train.count - 1) {
      return absl::InvalidArgumentError(absl::StrCat(name, " has ", train.count, " messages, its feeder, train ",
                                                     train.feeder, ", only ",
                                                     trains[static_cast<size_t>(train.feeder)].count));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<TrainTimes>> PlayTrains(const FlowNetwork& network, absl::Span<const Train> trains) {
  MESHWRIGHT_RETURN_IF_ERROR(Check(network, trains));
  return TrainPlayer(network, trains).PlayAll();
}

std::vector<BytesPerSecond> FairRates(const std::vector<BytesPerSecond>& links, absl::Span<const FlowRoute> routes) {
  std::vector<std::vector<int32_t>> members(links.size());
  std::vector<Filling> fillings(links.size());
  std::vector<int32_t> all(links.size());
  for (size_t l = 0; l < links.size(); ++l) {
    all[l] = static_cast<int32_t>(l);
    fillings[l].capacity = links[l].raw();
  }
  for (size_t r = 0; r < routes.size(); ++r) {
    for (const int32_t link : routes[r].links) {
      members[static_cast<size_t>(link)].push_back(static_cast<int32_t>(r));
      ++fillings[static_cast<size_t>(link)].users;
    }
  }
  std::vector<BytesPerSecond> rates(routes.size());
  FillUp(
      all, &fillings, [&](int32_t link) -> const auto& { return members[static_cast<size_t>(link)]; },
      [&](int32_t r) -> const auto& { return routes[static_cast<size_t>(r)].links; },
      [&](int32_t r) { return rates[static_cast<size_t>(r)] > BytesPerSecond(); },
      [&](int32_t r, double rate) { rates[static_cast<size_t>(r)] = BytesPerSecond(rate); });
  return rates;
}

}  // namespace meshwright
