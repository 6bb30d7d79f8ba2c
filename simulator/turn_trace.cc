#include "simulator/turn_trace.h"

#include <algorithm>
#include <utility>

namespace meshwright {
namespace {

Nanos Latest(const Clocks& clocks) { return *std::max_element(clocks.moments.begin(), clocks.moments.end()); }

// Whether nothing at any site is to happen before the moment of another.
bool AreTogether(const Clocks& clocks) {
  const Nanos latest = Latest(clocks);
  return std::all_of(clocks.running.begin(), clocks.running.end(),
                     [latest](const Running& running) { return running.end > latest; });
}

}  // namespace

void TurnTrace::Clear(size_t num_clocks, size_t num_sites) {
  steps_.clear();
  to_.clear();
  last_.assign(num_clocks, Last());
  at_.assign(num_sites, kNotYet);
}

void TurnTrace::End(size_t clock, size_t site, Nanos now) {
  const Kind kind = at_[site] == now ? Kind::kEndToo : Kind::kEnd;
  steps_.push_back({kind, static_cast<uint32_t>(site), static_cast<uint32_t>(clock)});
  at_[site] = now;
}

void TurnTrace::Meet(size_t site, size_t other, Nanos now) {
  if (site == other) return;
  if (at_[site] != now) std::swap(site, other);
  const Kind kind = at_[other] == now ? Kind::kMeetToo : Kind::kMeet;
  steps_.push_back({kind, static_cast<uint32_t>(site), static_cast<uint32_t>(other)});
  at_[other] = now;
}

void TurnTrace::Begin(size_t clock, size_t site, Nanos now, const Running& running) {
  last_[clock].now = kNotYet;
  Add(Kind::kBegin, clock, site, now, running);
}

void TurnTrace::GoOn(size_t clock, size_t site, Nanos now, const Running& running) {
  Add(Kind::kGoOn, clock, site, now, running);
}

// A step of a clock that stands still since its last one changes what runs behind that.
void TurnTrace::Add(Kind kind, size_t clock, size_t site, Nanos now, const Running& running) {
  Last& last = last_[clock];
  if (last.now != now) {
    last = {now, static_cast<uint32_t>(to_.size())};
    to_.emplace_back();
    steps_.push_back({kind, static_cast<uint32_t>(site), static_cast<uint32_t>(clock), last.to});
  }
  Running& to = to_[last.to];
  to = running;
  if (to.end != kNever) to.end = to.end - now;
}

void TurnTrace::LeaveOutWhatNobodyAsks() {
  enum class Next : uint8_t { kNothing, kEnds, kBegins, kGoesOn };
  std::vector<Next> next(last_.size(), Next::kNothing);  // by clock: what happens to it behind a step
  auto kept = steps_.end();
  for (auto at = steps_.end(); at != steps_.begin();) {
    Step step = *--at;
    bool asked = true;
    if (step.kind != Kind::kMeet && step.kind != Kind::kMeetToo) {
      Next& then = next[step.clock];
      if (step.kind == Kind::kBegin) {
        if (then == Next::kEnds) step.kind = Kind::kBeginAndEnd;
        // Of the receiving half of a transfer, which does not end by itself, until the next one.
        asked = then != Next::kBegins;
        then = Next::kBegins;
      } else {
        then = step.kind == Kind::kGoOn ? Next::kGoesOn : Next::kEnds;
      }
    }
    if (asked) *--kept = step;
  }
  steps_.erase(steps_.begin(), kept);
}

int64_t TurnTrace::Repeat(int64_t most, Clocks* clocks) {
  // What is known of the first times is enough to go on from behind all but the last one: whatever another site does to
  // one in the last has then been compared with what happened there in those before. Where sites are together, behind
  // the last one, too.
  constexpr int64_t kAtOnce = 16;
  LeaveOutWhatNobodyAsks();
  never_end_.clear();
  for (size_t clock = 0; clock < clocks->running.size(); ++clock) {
    const auto is_end = [clock](const Step& step) { return step.kind <= Kind::kEndToo && step.clock == clock; };
    if (clocks->running[clock].end != kNever && std::none_of(steps_.begin(), steps_.end(), is_end)) {
      never_end_.push_back(clock);
    }
  }
  Clocks before = *clocks, here = *clocks;
  int64_t times = 0, done = 0;
  do {
    std::swap(before, here);
    here = *clocks;
    done = TimesThrough(std::min(kAtOnce, most - times), clocks);
    times += done;
  } while (done == kAtOnce && times < most);
  if (times == most && AreTogether(*clocks)) return times;
  if (times == 0) {
    *clocks = here;
    return 0;
  }
  *clocks = done > 0 ? here : before;
  TimesThrough(done > 0 ? done - 1 : kAtOnce - 1, clocks);
  return times - 1;
}

int64_t TurnTrace::TimesThrough(int64_t most, Clocks* clocks) const {
  for (int64_t times = 0; times < most; ++times) {
    if (!GoThrough(clocks)) return times;
  }
  return most;
}

bool TurnTrace::GoThrough(Clocks* clocks) const {
  Nanos* const moments = clocks->moments.data();
  Running* const clock = clocks->running.data();
  for (const Step& step : steps_) {
    Nanos& moment = moments[step.site];
    Running& running = clock[step.clock];
    switch (step.kind) {
      case Kind::kEnd:
        if (running.end <= moment) return false;
        moment = running.end;
        running.end = kNever;
        continue;
      case Kind::kEndToo:
        if (running.end != moment) return false;
        running.end = kNever;
        continue;
      case Kind::kBegin:
        running = to_[step.to];
        running.updated = moment;
        if (running.end != kNever) running.end = moment + running.end;
        continue;
      case Kind::kBeginAndEnd:
        running.end = moment + to_[step.to].end;
        continue;
      case Kind::kGoOn: {
        const Running& to = to_[step.to];
        if (running.end <= moment) return false;
        if (to.folded()) {
          if (running.folded()) {
            paces_.Refold(*running.of, to.pace, moment, &running, &to);
          } else {
            paces_.Fold(*running.of, to.pace, moment, &running);
          }
          continue;
        }
        if (running.folded()) {
          paces_.Unfold(*running.of, moment, &running, &to);
          // What is stepped through is another order in another piece.
          if (running.layer != to.layer || running.piece != to.piece) return false;
        }
        running.remaining -= (moment - running.updated).raw() * running.rate;
        running.updated = moment;
        running.rate = to.rate;
        if (to.end != kNever) running.end = EndOf(running);
        continue;
      }
      case Kind::kMeet:
        if (moments[step.clock] >= moment) return false;
        moments[step.clock] = moment;
        continue;
      case Kind::kMeetToo:
        if (moments[step.clock] != moment) return false;
        continue;
    }
  }
  if (never_end_.empty()) return true;
  const Nanos latest = Latest(*clocks);
  return std::all_of(never_end_.begin(), never_end_.end(),
                     [&](size_t clock) { return clocks->running[clock].end > latest; });
}

}  // namespace meshwright
