// What a player keeps of a step that it plays: what each stream of each class runs, and where it is in its list.
// Private to the library of player.h.
//
// Times are nanoseconds of simulated time since the step began. Thread safety: plain values.
#ifndef MESHWRIGHT_SIMULATOR_PLAY_STATE_H_
#define MESHWRIGHT_SIMULATOR_PLAY_STATE_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "ir/quantities.h"
#include "simulator/price.h"
#include "simulator/tasks.h"

namespace meshwright {

inline constexpr Nanos kNever = Nanos(std::numeric_limits<int64_t>::max());
inline constexpr Nanos kNotYet = Nanos(-1);

// Running::pace of a run that is stepped through piece by piece.
inline constexpr int32_t kPieceByPiece = -2;

// What a stream is running. A line of a cache: a play goes through these of all classes, again and again.
struct alignas(64) Running {
  const Task* of = nullptr;       // none: it runs nothing
  const Piece* pieces = nullptr;  // of its run
  int64_t remaining = 0;          // of the piece, in nanoseconds x kWhole
  Nanos updated;       // when `remaining` held; the beginning of the folded stretch, which goes to its end in one step
  Nanos end = kNever;  // of the piece or the folded stretch; the receiving half of a transfer never ends by itself
  int32_t pace = kPieceByPiece;  // or that of the folded stretch (simulator/run_paces.h)
  int32_t layer = 0;             // of task.count
  int32_t piece = 0;             // the one that runs, or where a folded stretch begins
  int32_t own_rate = kWhole;     // what this rank would allow, in kWhole-ths
  int32_t shared = kWhole;       // what the links that it shares with other classes allow
  int32_t rate = kWhole;         // the lower one; of transfers, of both ranks

  bool folded() const { return pace != kPieceByPiece; }
  // At the same place at another moment, in the same task or one like it; anywhere in it where it goes to its end in
  // one step.
  bool AlikeBut(const Running& other) const {
    if (of == nullptr || other.of == nullptr) return of == other.of;
    if (folded()) return pace == other.pace;
    return pace == other.pace && layer == other.layer && piece == other.piece && own_rate == other.own_rate &&
           shared == other.shared && rate == other.rate;
  }
  // And as far, that much later.
  bool SameTimesBut(const Running& other, Nanos time) const {
    return layer == other.layer && piece == other.piece && remaining == other.remaining &&
           updated + time == other.updated && (end == kNever ? other.end == kNever : end + time == other.end);
  }
};
static_assert(sizeof(Running) == 64);

struct ClassState {
  std::array<Running, kNumStreams> running;
  uint32_t busy = 0;                           // streams that run something, as a bit set
  std::array<int32_t, kNumStreams> head = {};  // the next task of each stream to start, and its turn
  std::array<int32_t, kNumStreams> turn = {};
  std::array<int32_t, kNumStreams> done = {};  // tasks of each stream that have ended, those of turns included
  uint32_t ready = 0;    // streams whose next task is known to wait for nothing but a partner, who will find it
  uint32_t held_up = 0;  // streams whose next task is known to wait for another stream
  std::array<int32_t, kNumStreams> needs = {};  // of those: so many tasks of that stream are to be over
  std::array<uint32_t, kNumStreams> waited_for_by = {};

  void HoldUp(size_t stream, size_t by, int32_t until) {
    held_up |= uint32_t{1} << stream;
    waited_for_by[by] |= uint32_t{1} << stream;
    needs[stream] = until;
  }
  inline void CountDone(size_t stream);
  void ForgetHeldUp() {
    held_up = 0;
    waited_for_by.fill(0);
  }
};

// A class's list as the player reads it: its streams, and where on each of them the period ends that is run several
// times, and what it has there.
struct Course {
  explicit Course(const TaskList& list) : tasks(list.tasks.data()), waits(list.waits.data()) {
    for (size_t s = 0; s < kNumStreams; ++s) {
      queue[s] = list.streams[s].data();
      size[s] = static_cast<int32_t>(list.streams[s].size());
    }
    end.fill(std::numeric_limits<int32_t>::max());
  }
  // The task at the head of a stream that is idle, or -1.
  int32_t Head(const ClassState& state, size_t stream) const {
    const bool idle = (state.busy >> stream & 1) == 0;
    return idle && state.head[stream] < size[stream] ? queue[stream][state.head[stream]] : -1;
  }
  // Whether it has happened, of a task in that turn.
  bool Done(const ClassState& state, const Wait& wait, int32_t turn) const {
    const size_t s = static_cast<size_t>(wait.stream);
    return wait.place + turn * length[s] < state.done[s];
  }

  const Task* tasks;
  const Wait* waits;
  std::array<const int32_t*, kNumStreams> queue;
  std::array<int32_t, kNumStreams> size, end, length = {};
  int32_t period = 0;  // tasks of all streams
};

// The streams of a bit set, in ascending order.
class Streams {
 public:
  explicit Streams(uint32_t bits) : bits_(bits) {}
  struct Iterator {
    uint32_t bits;
    size_t operator*() const { return static_cast<size_t>(std::countr_zero(bits)); }
    Iterator& operator++() {
      bits &= bits - 1;
      return *this;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;
  };
  Iterator begin() const { return {bits_}; }
  Iterator end() const { return {0}; }

 private:
  uint32_t bits_;
};

// One task more of that stream is over.
inline void ClassState::CountDone(size_t stream) {
  const int32_t now = ++done[stream];
  for (const size_t s : Streams(waited_for_by[stream])) {
    if (now < needs[s]) continue;
    held_up &= ~(uint32_t{1} << s);
    waited_for_by[stream] &= ~(uint32_t{1} << s);
  }
}

// The first moment at which something ends on each class, and on any: a tree of classes, each node with the first of
// its two, so that neither takes a look at all of them.
class FirstEnds {
 public:
  explicit FirstEnds(size_t num_classes) : leaves_(std::bit_ceil(num_classes)), ends_(2 * leaves_, kNever) {}
  void Set(size_t c, Nanos end) {
    size_t node = leaves_ + c;
    while (ends_[node] != end) {
      ends_[node] = end;
      if (node == 1) return;
      end = std::min(end, ends_[node ^ 1]);
      node /= 2;
    }
  }
  Nanos First() const { return ends_[1]; }
  // Calls visit(c) for the classes on which something ends first, in ascending order. It may not call Set.
  template <typename Visit>
  void ForEachFirst(const Visit& visit) const {
    const Nanos first = First();
    for (size_t node = 1; true;) {
      if (ends_[node] == first) {
        if (node < leaves_) {
          node *= 2;
          continue;
        }
        visit(node - leaves_);
      }
      // The next one that is not below this.
      while ((node & 1) != 0) node /= 2;
      if (node == 0) return;
      ++node;
    }
  }

 private:
  size_t leaves_;
  std::vector<Nanos> ends_;  // the node 1 above all, 2n and 2n + 1 below n; of classes from `leaves_` on
};

// Classes, visited in ascending order.
class ClassSet {
 public:
  ClassSet(size_t num_classes, bool all) : size_(num_classes), words_((num_classes + 63) / 64) {
    for (size_t c = 0; all && c < num_classes; ++c) Insert(c);
  }
  void Insert(size_t c) { words_[c / 64] |= uint64_t{1} << (c % 64); }
  void Erase(size_t c) { words_[c / 64] &= ~(uint64_t{1} << (c % 64)); }
  // Takes all members out, and calls visit(c) for each, in ascending order. It may insert none.
  template <typename Visit>
  void TakeAll(const Visit& visit) {
    for (size_t w = 0; w < words_.size(); ++w) {
      const uint64_t word = words_[w];
      words_[w] = 0;
      for (uint64_t rest = word; rest != 0; rest &= rest - 1) {
        visit(w * 64 + static_cast<size_t>(std::countr_zero(rest)));
      }
    }
  }
  // The first member at or after `c`, or else the first of all; the number of classes where there is none.
  size_t FromAround(size_t c) const {
    const size_t next = From(c);
    return next < size_ || c == 0 ? next : From(0);
  }
  // The first member at or after `c`, which is at most the number of classes; that where there is none.
  size_t From(size_t c) const {
    size_t w = c / 64;
    if (w == words_.size()) return size_;
    uint64_t rest = words_[w] & (~uint64_t{0} << (c % 64));
    while (rest == 0) {
      if (++w == words_.size()) return size_;
      rest = words_[w];
    }
    return w * 64 + static_cast<size_t>(std::countr_zero(rest));
  }

 private:
  size_t size_;
  std::vector<uint64_t> words_;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_PLAY_STATE_H_
