#include "simulator/turn_trace.h"

#include <algorithm>

#include "simulator/run_paces.h"

namespace meshwright {
namespace {

Nanos TimeOf(int64_t work, int32_t rate) {
  if (rate == kWhole) return Nanos((work + kWhole - 1) / kWhole);
  return Nanos((work + rate - 1) / rate);
}

}  // namespace

void TurnTrace::End(size_t clock, Nanos now) {
  const bool too = !steps_.empty() && now == last_end_;
  steps_.push_back({.kind = too ? Kind::kEndToo : Kind::kEnd, .clock = static_cast<uint32_t>(clock)});
  last_end_ = now;
}

void TurnTrace::Begin(size_t clock, const Running& running) {
  Add({.kind = Kind::kBegin, .clock = static_cast<uint32_t>(clock), .work = running.remaining}, running);
}

void TurnTrace::GoOn(size_t clock, int32_t rate_before, const Running& running) {
  if (!steps_.empty() && steps_.back().clock == clock && steps_.back().kind >= Kind::kBegin) {
    Step again = steps_.back();
    steps_.pop_back();
    Add(again, running);
    return;
  }
  Add({.kind = Kind::kGoOn, .clock = static_cast<uint32_t>(clock), .rate_before = rate_before}, running);
}

void TurnTrace::GoOnLater(size_t clock, Nanos first_end, Nanos now, const Running& running) {
  const int64_t work = running.pieces[running.piece].price->time.raw() * kWhole;
  const Nanos into((work - running.remaining) / running.rate);
  Add({.kind = Kind::kGoOnLater,
       .clock = static_cast<uint32_t>(clock),
       .rate_before = running.rate,
       .work = work,
       .after = now - first_end - into,
       .lasts = TimeOf(work, running.rate)},
      running);
}

void TurnTrace::Add(const Step& step, const Running& running) {
  Step& added = steps_.emplace_back(step);
  added.rate = running.rate;
  added.ends = running.end != kNever;
  added.more = running.folded() ? running.end - EndOf(running) : Nanos();
  if (step.kind == Kind::kBegin) added.lasts = TimeOf(step.work, running.rate);
}

int64_t TurnTrace::Repeat(int64_t most, Nanos* now, std::vector<Clock>* clocks) const {
  Nanos moment = *now;
  std::vector<Clock> moved = *clocks;
  for (int64_t times = 0; times < most; ++times) {
    if (!GoThrough(&moment, &moved)) return times;
    *now = moment;
    std::copy(moved.begin(), moved.end(), clocks->begin());
  }
  return most;
}

bool TurnTrace::GoThrough(Nanos* now, std::vector<Clock>* clocks) const {
  Nanos moment = *now;
  for (const Step& step : steps_) {
    Clock& clock = (*clocks)[step.clock];
    switch (step.kind) {
      case Kind::kEnd:
        if (clock.end <= moment) return false;
        moment = clock.end;
        clock.runs = false;
        continue;
      case Kind::kEndToo:
        if (clock.end != moment) return false;
        clock.runs = false;
        continue;
      case Kind::kBegin:
        clock.runs = true;
        clock.remaining = step.work;
        clock.piece_end = moment + step.lasts;
        break;
      case Kind::kGoOn:
        if (clock.piece_end <= moment) return false;
        clock.remaining -= (moment - clock.updated).raw() * step.rate_before;
        clock.piece_end = moment + TimeOf(clock.remaining, step.rate);
        break;
      case Kind::kGoOnLater: {
        const Nanos into = moment - clock.piece_end - step.after;
        if (into < Nanos() || into >= step.lasts) return false;
        clock.remaining = step.work - into.raw() * step.rate_before;
        clock.piece_end = moment + TimeOf(clock.remaining, step.rate);
        break;
      }
    }
    clock.updated = moment;
    clock.end = step.ends ? clock.piece_end + step.more : kNever;
  }
  *now = moment;
  return std::none_of(clocks->begin(), clocks->end(),
                      [&](const Clock& clock) { return clock.runs && clock.end <= moment; });
}

}  // namespace meshwright
