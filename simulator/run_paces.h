// Runs of kernels beside communication that takes a part of the device: how fast each piece goes, and the whole run to
// its end in one step as long as what is beside it stays the same. Private to the library of player.h.
//
// A piece that begins at a moment at rate r ends time / r later, rounded up to a nanosecond, and the next one begins
// then; so the time of a run's pieces beside the same communication is a sum of whole nanoseconds, found once for each
// run and each share that is taken.
//
// Thread safety: none for RunPaces; pure functions else.
#ifndef MESHWRIGHT_SIMULATOR_RUN_PACES_H_
#define MESHWRIGHT_SIMULATOR_RUN_PACES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ir/quantities.h"
#include "simulator/play_state.h"
#include "simulator/price.h"
#include "simulator/tasks.h"

namespace meshwright {

// What the communication of a class takes of its device.
struct Taken {
  void Add(const InstructionPrice& price) {
    for (size_t l = 0; l < kNumLinks; ++l) links[l] += price.links[l];
    multiprocessors += price.multiprocessors;
    memory += price.memory;
  }
  std::array<int32_t, kNumLinks> links = {};
  int32_t multiprocessors = 0, memory = 0;
};

// In kWhole-ths; what communicates is among `taken` itself.
int32_t RateOf(const Piece& piece, const Taken& taken);

// The end of a piece at its rate.
inline Nanos EndOf(const Running& running) {
  if (running.rate == kWhole) return running.updated + Nanos((running.remaining + kWhole - 1) / kWhole);
  return running.updated + Nanos((running.remaining + running.rate - 1) / running.rate);
}

// Whether the run's communication and that beside it leave each other all they want of the links.
bool LeaveEachOtherAll(const Run& run, const Taken& others);

class RunPaces {
 public:
  // Which pace the task has beside `others`, which leave its communication all it wants; -1: that which it has alone.
  int32_t Beside(const Task& task, const Taken& others);
  // From any moment on: what is left of the piece that runs, and then whole pieces to the end of the task.
  void Fold(const Task& task, int32_t pace, Nanos now, Running* running) const;
  // To the piece that runs at that moment, which is before its end. `likely`: null, or what is in the piece that it may
  // be.
  void Unfold(const Task& task, Nanos now, Running* running, const Running* likely = nullptr) const;
  // Unfold, then Fold at another pace.
  void Refold(const Task& task, int32_t pace, Nanos now, Running* running, const Running* likely = nullptr) const;

 private:
  // The pieces of its run, and one behind the last.
  const PieceAtPace* At(const Task& task, int32_t pace) const {
    return pace < 0 ? task.alone() : paces_[static_cast<size_t>(pace)].data();
  }

  // By multiprocessors and memory that are taken. Never iterated over.
  absl::flat_hash_map<std::tuple<const Run*, int32_t, int32_t>, int32_t> known_;
  std::vector<std::vector<PieceAtPace>> paces_;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_RUN_PACES_H_
