#include "simulator/run_paces.h"

#include <algorithm>

namespace meshwright {
namespace {

// From any moment on at the pace of `pieces`: what is left of the piece that runs, and then whole pieces to the end of
// the task.
inline void FoldAt(const PieceAtPace* pieces, const Task& task, Nanos now, Running* running) {
  running->remaining -= (now - running->updated).raw() * running->rate;
  running->updated = now;
  running->own_rate = running->rate = pieces[running->piece].rate;
  const Nanos layer = pieces[task.run->num_pieces].before;
  running->end = EndOf(*running) + layer * (task.count - running->layer) - pieces[running->piece + 1].before;
}

// To the piece that runs at that moment of a stretch at the pace of `pieces`, and what is left of it.
inline void FindAt(const PieceAtPace* pieces, const Task& task, Nanos now, const Running* likely, Running* running) {
  const Nanos layer = pieces[task.run->num_pieces].before;
  // Since the beginning of the layer in which the stretch began, as its end tells.
  const Nanos position = now - running->end + layer * (task.count - running->layer);
  if (position < pieces[running->piece + 1].before) {
    running->remaining -= (now - running->updated).raw() * running->rate;
    running->updated = now;
    return;
  }
  int32_t piece = 0;
  Nanos within;
  if (likely != nullptr) {
    piece = likely->piece;
    within = position - layer * (likely->layer - running->layer);
  }
  // The last piece that begins at or before this moment: it has a duration, for it ends later.
  if (likely != nullptr && pieces[piece].before <= within && within < pieces[piece + 1].before) {
    running->layer = likely->layer;
  } else {
    running->layer += static_cast<int32_t>(position.raw() / layer.raw());
    within = Nanos(position.raw() % layer.raw());
    piece = 0;
    for (int32_t after = task.run->num_pieces; after - piece > 1;) {
      const int32_t middle = (piece + after) / 2;
      (pieces[middle].before <= within ? piece : after) = middle;
    }
  }
  running->piece = piece;
  running->rate = pieces[piece].rate;
  running->remaining = pieces[piece].alone.raw() * kWhole - (within - pieces[piece].before).raw() * running->rate;
  running->updated = now;
}

}  // namespace

int32_t RateOf(const Piece& piece, const Taken& taken) {
  int32_t rate = kWhole;
  if (piece.communicates) {
    for (size_t l = 0; l < kNumLinks; ++l) {
      if (taken.links[l] > kWhole && piece.price->links[l] > 0) {
        rate = std::min(rate, kWhole * kWhole / taken.links[l]);
      }
    }
    return rate;
  }
  switch (piece.price->slowed_by) {
    case SlowedBy::kNothing:
      return rate;
    case SlowedBy::kMultiprocessors:
      return std::max(rate - taken.multiprocessors, kLeastRate);
    case SlowedBy::kMemory:
      return std::max(rate - taken.memory, kLeastRate);
  }
  return rate;
}

bool LeaveEachOtherAll(const Run& run, const Taken& others) {
  for (size_t l = 0; l < kNumLinks; ++l) {
    if (run.links[l] > 0 && others.links[l] > 0 && run.links[l] + others.links[l] > kWhole) return false;
  }
  return true;
}

int32_t RunPaces::Beside(const Task& task, const Taken& others) {
  if (others.multiprocessors == 0 && others.memory == 0) return -1;
  const int32_t pace = static_cast<int32_t>(paces_.size());
  const auto [known, is_new] = known_.try_emplace({task.run, others.multiprocessors, others.memory}, pace);
  if (!is_new) return known->second;
  std::vector<PieceAtPace>& fresh = paces_.emplace_back(static_cast<size_t>(task.run->num_pieces) + 1);
  Nanos before;
  for (int32_t i = 0; i < task.run->num_pieces; ++i) {
    const Piece& piece = task.piece(i);
    const int32_t rate = piece.communicates ? kWhole : RateOf(piece, others);
    fresh[static_cast<size_t>(i)] = {before, piece.price->time, rate};
    before += Nanos((piece.price->time.raw() * kWhole + rate - 1) / rate);
  }
  fresh.back() = {before, Nanos(), kWhole};
  return pace;
}

void RunPaces::Fold(const Task& task, int32_t pace, Nanos now, Running* running) const {
  FoldAt(At(task, pace), task, now, running);
  running->pace = pace;
}

void RunPaces::Unfold(const Task& task, Nanos now, Running* running, const Running* likely) const {
  FindAt(At(task, running->pace), task, now, likely, running);
  running->pace = kPieceByPiece;
  running->own_rate = running->rate;
  running->end = EndOf(*running);
}

void RunPaces::Refold(const Task& task, int32_t pace, Nanos now, Running* running, const Running* likely) const {
  FindAt(At(task, running->pace), task, now, likely, running);
  FoldAt(At(task, pace), task, now, running);
  running->pace = pace;
}

}  // namespace meshwright
