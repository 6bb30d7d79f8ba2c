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
#include <utility>
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

// The first moment at which something ends on each class, and on any: kept by blocks of classes, so that neither takes
// a look at all of them.
class FirstEnds {
 public:
  explicit FirstEnds(size_t num_classes) : blocks_((num_classes + kBlock - 1) / kBlock) {
    for (Block& block : blocks_) block.ends.fill(kNever);
  }
  void Set(size_t c, Nanos end) {
    Block& block = blocks_[c / kBlock];
    block.ends[c % kBlock] = end;
    block.first = *std::min_element(block.ends.begin(), block.ends.end());
  }
  Nanos First() const {
    Nanos first = kNever;
    for (const Block& block : blocks_) first = std::min(first, block.first);
    return first;
  }
  // Calls visit(c) for the classes on which something ends at that moment, in ascending order. It may not call Set.
  template <typename Visit>
  void ForEachAt(Nanos moment, const Visit& visit) const {
    for (size_t b = 0; b < blocks_.size(); ++b) {
      if (blocks_[b].first != moment) continue;
      for (size_t i = 0; i < kBlock; ++i) {
        if (blocks_[b].ends[i] == moment) visit(b * kBlock + i);
      }
    }
  }

 private:
  static constexpr size_t kBlock = 8;
  struct Block {
    Nanos first = kNever;
    std::array<Nanos, kBlock> ends;
  };
  std::vector<Block> blocks_;
};

// Classes, visited in ascending order.
class ClassSet {
 public:
  ClassSet(size_t num_classes, bool all) : words_((num_classes + 63) / 64) {
    for (size_t c = 0; all && c < num_classes; ++c) Insert(c);
  }
  void Insert(size_t c) { words_[c / 64] |= uint64_t{1} << (c % 64); }
  // Takes members out, and calls visit(c) for each, until there are none: it may insert some.
  template <typename Visit>
  void TakeAll(const Visit& visit) {
    for (size_t w = 0; w < words_.size();) {
      if (words_[w] == 0) {
        ++w;
        continue;
      }
      for (uint64_t rest = std::exchange(words_[w], 0); rest != 0; rest &= rest - 1) {
        visit(w * 64 + static_cast<size_t>(std::countr_zero(rest)));
      }
      w = 0;
    }
  }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_PLAY_STATE_H_
