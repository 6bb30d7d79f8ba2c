#include "simulator/player.h"

#include <algorithm>
#include <utility>

#include "simulator/fair_shares.h"
#include "simulator/play_state.h"
#include "simulator/run_paces.h"
#include "simulator/standstill.h"
#include "simulator/turn_watch.h"

namespace meshwright {
namespace {

class Player {
 public:
  Player(const Program& program, const std::vector<TaskList>& lists)
      : program_(program),
        lists_(lists),
        courses_(lists.begin(), lists.end()),
        classes_(lists.size()),
        next_(lists.size()),
        may_start_(lists.size(), true),
        rates_stale_(lists.size(), false) {
    for (const TaskList& list : lists) {
      for (size_t s = num_streams_; s < kNumStreams; ++s) {
        if (!list.streams[s].empty()) num_streams_ = s + 1;
      }
      for (const UnrolledBlock& block : *list.blocks) {
        for (const Run& run : block.runs) num_shared_links_ = std::max(num_shared_links_, run.shared);
      }
    }
  }

  absl::StatusOr<PlayedTimes> PlayAll() {
    PlayedTimes result;
    result.times.resize(lists_.size());
    for (size_t c = 0; c < lists_.size(); ++c) result.times[c].assign(lists_[c].tasks.size(), {kNotYet, kNotYet});
    times_ = &result.times;
    PlayToTheEnd();
    const Standstill standstill(lists_, courses_, classes_);
    if (standstill.AnyLeft()) return standstill.Describe(program_, now_);
    result.makespan = now_;
    return result;
  }

  std::optional<Nanos> PlayForTheEnd() {
    PlayToTheEnd();
    return Standstill(lists_, courses_, classes_).AnyLeft() ? std::nullopt : std::optional<Nanos>(now_);
  }

  std::optional<LongerStep> PlayLonger(const std::vector<Period>& periods, int64_t more) {
    periods_ = &periods;
    turns_ = static_cast<int32_t>(more);
    for (size_t c = 0; c < lists_.size(); ++c) {
      courses_[c].period = periods[c].tasks;
      courses_[c].length = periods[c].on_stream;
      for (size_t s = 0; s < kNumStreams; ++s) {
        const auto& queue = lists_[c].streams[s];
        courses_[c].end[s] =
            static_cast<int32_t>(std::lower_bound(queue.begin(), queue.end(), periods[c].end) - queue.begin());
        if (courses_[c].end[s] == 0) classes_[c].turn[s] = turns_;
      }
    }
    watch_.emplace(courses_, periods, &paces_, num_shared_links_ > 0, &classes_, &turns_);
    PlayToTheEnd();
    if (unclear_ || Standstill(lists_, courses_, classes_).AnyLeft()) return std::nullopt;
    LongerStep step = watch_->left_out();
    step.makespan += now_;
    return step;
  }

 private:
  void PlayToTheEnd() {
    while (true) {
      StartWhatCan();
      rates_stale_.TakeAll([this](size_t c) { UpdateRates(c); });
      if (num_shared_links_ > 0) ShareLinks();
      if (watch_.has_value() && watch_->Watch(now_)) {
        for (size_t c = 0; c < classes_.size(); ++c) UpdateNext(c);
      }
      const Nanos next = next_.First();
      if (next == kNever || unclear_) return;
      now_ = next;
      next_.ForEachAt(next, [this](size_t c) { EndWhatEnds(c); });
    }
  }

  const Task& TaskOf(size_t c, int32_t task) const { return courses_[c].tasks[task]; }
  TaskTimes& TimesOf(size_t c, int32_t task) { return (*times_)[c][static_cast<size_t>(task)]; }
  int32_t IdOf(size_t c, const Task& task) const { return static_cast<int32_t>(&task - courses_[c].tasks); }

  // Of the task at the head of a stream.
  bool Ready(size_t c, ClassState& state, const Course& course, size_t stream, const Task& task) {
    const uint32_t bit = uint32_t{1} << stream;
    if ((state.ready & bit) != 0 || task.num_waits == 0 || WaitsForNothing(c, state, course, stream, task)) {
      state.ready |= bit;
      return true;
    }
    return false;
  }
  bool WaitsForNothing(size_t c, ClassState& state, const Course& course, size_t stream, const Task& task) {
    const int32_t turn = state.turn[stream];
    for (const Wait* wait = course.waits + task.first_wait; wait != course.waits + task.first_wait + task.num_waits;
         ++wait) {
      if (course.Done(state, *wait, turn)) continue;
      // What is waited for in truth lies between what it is without turns and what it is with all of them.
      const bool irregular = turn > 0 && IsIrregular(c, static_cast<int32_t>(&task - course.tasks), *wait);
      unclear_ = unclear_ || (irregular && course.Done(state, *wait, 0));
      const size_t s = static_cast<size_t>(wait->stream);
      state.HoldUp(stream, s, wait->place + (irregular ? 0 : turn * course.length[s]) + 1);
      return false;
    }
    return true;
  }

  // Whether what is waited for in a later turn may lie less than as many periods later.
  bool IsIrregular(size_t c, int32_t id, const Wait& wait) const {
    const Period& period = (*periods_)[c];
    return wait.task < period.begin || std::binary_search(period.irregular.begin(), period.irregular.end(), id);
  }

  void StartWhatCan() {
    const uint32_t all = (uint32_t{1} << num_streams_) - 1;
    // Something may be over at once on a class before this: so again, until nothing is.
    may_start_.TakeAll([this, all](size_t c) {
      ClassState& state = classes_[c];
      for (const size_t s : Streams(all & ~(state.busy | state.ready | state.held_up))) {
        StartHead(c, state, courses_[c], s);
      }
    });
  }

  // Of a stream that runs nothing.
  void StartHead(size_t c, ClassState& state, const Course& course, size_t stream) {
    if (state.head[stream] == course.size[stream]) return;
    const Task& task = course.tasks[course.queue[stream][state.head[stream]]];
    if (!Ready(c, state, course, stream, task)) return;
    if (!task.run->is_transfer) {
      Begin(c, stream, task, task.time());
      return;
    }
    const size_t peer = task.PeerOf(c);
    ClassState& of_peer = classes_[peer];
    const Course& course_of_peer = courses_[peer];
    const Task& partner = course_of_peer.tasks[task.partner];
    const size_t peer_stream = static_cast<size_t>(partner.run->stream);
    if (((of_peer.busy | of_peer.held_up) >> peer_stream & 1) != 0) return;
    const int32_t head = course_of_peer.Head(of_peer, peer_stream);
    const int32_t turns_before = state.turn[stream] - of_peer.turn[peer_stream];
    if (head < 0 || head - task.partner != turns_before * course_of_peer.period) return;
    const Task& other = course_of_peer.tasks[head];
    if (!Ready(peer, of_peer, course_of_peer, peer_stream, other)) return;
    const Nanos time = std::max(task.time(), partner.time());
    Meet(c, peer);
    Begin(c, stream, task, time);
    Begin(peer, peer_stream, other, time);
  }

  void Begin(size_t c, size_t stream, const Task& task, Nanos time) {
    if (times_ != nullptr) TimesOf(c, IdOf(c, task)).begin = now_;
    ClassState& state = classes_[c];
    Running& running = state.running[stream];
    GoOn(state, courses_[c], stream);
    if (time == Nanos()) {
      if (times_ != nullptr) TimesOf(c, IdOf(c, task)).end = now_;
      state.CountDone(stream);
      may_start_.Insert(c);
      return;
    }
    state.busy |= uint32_t{1} << stream;
    running.of = &task;
    running.pieces = &task.piece(0);
    running.updated = now_;
    running.remaining = (task.run->is_transfer ? time : running.pieces->price->time).raw() * kWhole;
    // A piece without duration is over at once.
    if (running.remaining == 0) NextPiece(task, &running);
    if (!task.run->is_transfer || task.run->send) running.end = EndOf(running);
    if (watch_.has_value()) watch_->Begin(c, stream, now_);
    rates_stale_.Insert(c);
  }

  // To the next task of a stream, which may be that of another turn.
  void GoOn(ClassState& state, const Course& course, size_t stream) const {
    state.ready &= ~(uint32_t{1} << stream);
    if (++state.head[stream] != course.end[stream] || state.turn[stream] == turns_) return;
    if (course.length[stream] == 0) {
      state.turn[stream] = turns_;
    } else {
      state.head[stream] -= course.length[stream];
      ++state.turn[stream];
    }
  }

  // Goes on to the next piece that has a duration; false when there is none.
  bool NextPiece(const Task& task, Running* running) const {
    do {
      if (++running->piece == task.run->num_pieces) {
        running->piece = 0;
        if (++running->layer == task.count) return false;
      }
      running->remaining = running->pieces[running->piece].price->time.raw() * kWhole;
    } while (running->remaining == 0);
    running->updated = now_;
    running->end = EndOf(*running);
    return true;
  }

  void EndWhatEnds(size_t c) {
    for (const size_t s : Streams(classes_[c].busy)) {
      Running& running = classes_[c].running[s];
      if (running.of == nullptr || running.end != now_) continue;
      const Task& task = *running.of;
      if (watch_.has_value()) watch_->End(c, s, now_);
      if (!running.folded() && !task.run->is_transfer && NextPiece(task, &running)) {
        if (watch_.has_value()) watch_->Begin(c, s, now_);
        rates_stale_.Insert(c);
        continue;
      }
      if (task.run->is_transfer) {
        const size_t peer = task.PeerOf(c);
        Meet(c, peer);
        End(peer, static_cast<size_t>(TaskOf(peer, task.partner).run->stream));
      }
      End(c, s);
    }
  }

  void End(size_t c, size_t stream) {
    ClassState& state = classes_[c];
    if (times_ != nullptr) TimesOf(c, IdOf(c, *state.running[stream].of)).end = now_;
    state.CountDone(stream);
    state.running[stream] = Running();
    state.busy &= ~(uint32_t{1} << stream);
    may_start_.Insert(c);
    rates_stale_.Insert(c);
  }

  // What happens on one class changes something on another.
  void Meet(size_t c, size_t other) {
    if (watch_.has_value()) watch_->Meet(c, other, now_);
  }

  // What is running on that stream now. REQUIRES: it is busy.
  static const Piece& PieceOf(const ClassState& state, size_t stream) {
    const Running& running = state.running[stream];
    return running.pieces[running.piece];
  }

  void UpdateRates(size_t c) {
    constexpr size_t kCompute = static_cast<size_t>(Stream::kCompute);
    ClassState& state = classes_[c];
    Taken taken;
    for (const size_t s : Streams(state.busy & ~(uint32_t{1} << kCompute))) {
      const Piece& piece = PieceOf(state, s);
      if (piece.communicates) taken.Add(*piece.price);
    }
    FoldOrUnfold(c, state, taken);
    if (state.running[kCompute].of != nullptr && !state.running[kCompute].folded()) {
      const Piece& piece = PieceOf(state, kCompute);
      if (piece.communicates) taken.Add(*piece.price);
    }
    Nanos next = kNever;
    for (const size_t s : Streams(state.busy)) {
      Running& running = state.running[s];
      if (!running.folded()) {
        const int32_t rate = RateOf(running.pieces[running.piece], taken);
        if (rate != running.own_rate) SetRate(c, s, rate);
      }
      next = std::min(next, running.end);
    }
    next_.Set(c, next);
  }

  // Of what runs on a stream; of a transfer both halves, kept by the sending one.
  Claim ClaimOf(size_t c, size_t stream) const {
    const Running& running = classes_[c].running[stream];
    const Task& task = *running.of;
    Claim claim{PieceOf(classes_[c], stream).price->shared, {}, running.own_rate};
    if (!task.run->is_transfer) return claim;
    const size_t peer = task.PeerOf(c);
    const Task& partner = TaskOf(peer, task.partner);
    claim.more_uses = partner.piece(0).price->shared;
    claim.most = std::min(claim.most, classes_[peer].running[static_cast<size_t>(partner.run->stream)].own_rate);
    return claim;
  }

  // All communication of all classes that crosses a link which is not one device's own.
  void ShareLinks() {
    claims_.clear();
    claimants_.clear();
    for (size_t c = 0; c < classes_.size(); ++c) {
      for (size_t s = 0; s < num_streams_; ++s) {
        const Running& running = classes_[c].running[s];
        if (running.of == nullptr || running.folded()) continue;
        const Run& run = *running.of->run;
        if (run.is_transfer && !run.send) continue;
        const Claim claim = ClaimOf(c, s);
        if (claim.uses.empty() && claim.more_uses.empty()) {
          SetShared(c, s, kWhole);
          continue;
        }
        claims_.push_back(claim);
        claimants_.push_back({c, s});
      }
    }
    ShareFairly(num_shared_links_, absl::MakeSpan(claims_));
    for (size_t i = 0; i < claims_.size(); ++i) SetShared(claimants_[i].first, claimants_[i].second, claims_[i].rate);
  }

  void SetShared(size_t c, size_t stream, int32_t rate) {
    Running& running = classes_[c].running[stream];
    if (running.shared == rate) return;
    running.shared = rate;
    SetRate(c, stream, running.own_rate);
    UpdateNext(c);
  }

  // A transfer's clock is kept by its sending half.
  void SetRate(size_t c, size_t stream, int32_t own_rate) {
    Running* running = &classes_[c].running[stream];
    running->own_rate = own_rate;
    int32_t rate = std::min(own_rate, running->shared);
    const Task& task = *running->of;
    const size_t of = c;
    if (task.run->is_transfer) {
      const size_t peer = task.PeerOf(c);
      const size_t peer_stream = static_cast<size_t>(TaskOf(peer, task.partner).run->stream);
      Running* other = &classes_[peer].running[peer_stream];
      rate = std::min({rate, other->own_rate, other->shared});
      if (!task.run->send) {
        Meet(c, peer);
        running = other, c = peer, stream = peer_stream;
      }
    }
    if (running->rate == rate) return;
    running->remaining -= (now_ - running->updated).raw() * running->rate;
    running->updated = now_;
    running->rate = rate;
    running->end = EndOf(*running);
    if (watch_.has_value()) watch_->GoOn(c, stream, now_);
    if (c != of) UpdateNext(c);
  }

  void UpdateNext(size_t c) {
    Nanos next = kNever;
    for (const size_t s : Streams(classes_[c].busy)) next = std::min(next, classes_[c].running[s].end);
    next_.Set(c, next);
  }

  // --- folding -----------------------------------------------------------------------------------------------------

  // Runs of kernels, which only the compute stream has, are stepped through only while a piece's length depends on what
  // other streams do meanwhile, or theirs on it.
  void FoldOrUnfold(size_t c, ClassState& state, const Taken& others) {
    Running& running = state.running[static_cast<size_t>(Stream::kCompute)];
    if (running.of == nullptr) return;
    const Task& task = *running.of;
    if (task.run->num_pieces * task.count == 1) return;
    const bool steady = task.run->shared == 0 && IsSteady(state, *task.run, others);
    const int32_t pace = steady ? paces_.Beside(task, others) : -1;
    if (running.folded() && steady && running.pace == pace) return;
    const bool stepped = running.folded() && !steady;
    if (running.folded() && steady) {
      paces_.Refold(task, pace, now_, &running);
    } else if (steady) {
      paces_.Fold(task, pace, now_, &running);
    } else if (running.folded()) {
      paces_.Unfold(task, now_, &running);
    }
    if (stepped && watch_.has_value()) watch_->StepThrough(c, running);
    if ((stepped || steady) && watch_.has_value()) watch_->GoOn(c, static_cast<size_t>(Stream::kCompute), now_);
  }

  // Whether the run's communication and what is beside it do not slow each other down.
  static bool IsSteady(const ClassState& state, const Run& run, const Taken& others) {
    if (!run.takes || (state.busy & ~(uint32_t{1} << static_cast<size_t>(Stream::kCompute))) == 0) return true;
    if (!LeaveEachOtherAll(run, others)) return false;
    for (const size_t s : Streams(state.busy)) {
      if (s == static_cast<size_t>(Stream::kCompute)) continue;
      const Piece& piece = PieceOf(state, s);
      if (!piece.communicates && piece.price->slowed_by != SlowedBy::kNothing) return false;
    }
    return true;
  }

  const Program& program_;
  const std::vector<TaskList>& lists_;
  std::vector<Course> courses_;                   // by class
  const std::vector<Period>* periods_ = nullptr;  // of a longer step
  int32_t turns_ = 0;                             // that each class takes
  bool unclear_ = false;                          // whether something that a turn waits for has happened
  RunPaces paces_;
  std::vector<ClassState> classes_;
  std::optional<TurnWatch> watch_;  // of a longer step
  FirstEnds next_;
  ClassSet may_start_;  // something has happened that a class may have waited for
  ClassSet rates_stale_;
  std::vector<std::vector<TaskTimes>>* times_ = nullptr;  // of a step that is played task by task
  Nanos now_;
  size_t num_streams_ = 0;  // up to the last one that anybody uses
  int32_t num_shared_links_ = 0;
  std::vector<Claim> claims_;                         // of ShareLinks
  std::vector<std::pair<size_t, size_t>> claimants_;  // their classes and streams
};

}  // namespace

absl::StatusOr<PlayedTimes> Play(const Program& program, const std::vector<TaskList>& lists) {
  return Player(program, lists).PlayAll();
}

std::optional<Nanos> PlayForTheEnd(const Program& program, const std::vector<TaskList>& lists) {
  return Player(program, lists).PlayForTheEnd();
}

std::optional<LongerStep> PlayLonger(const Program& program, const std::vector<TaskList>& lists,
                                     const std::vector<Period>& periods, int64_t more) {
  return Player(program, lists).PlayLonger(periods, more);
}

}  // namespace meshwright
