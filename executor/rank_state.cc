// What a rank reads back from its arena: losses, scales, parameters, and the state that checkpoints hold.
#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "executor/narrow_floats.h"
#include "executor/rank_runner.h"
#include "ir/error_kind.h"
#include "ir/status.h"
#include "ir/text.h"

namespace meshwright {
namespace {

double NumberAt(const TensorView& view, const std::byte* data, int64_t i) {
  if (view.dtype == DType::kFloat64) return reinterpret_cast<const double*>(data)[i];
  if (view.dtype == DType::kFloat32) return reinterpret_cast<const float*>(data)[i];
  if (IsNarrow(view.dtype)) return FromNarrow(view.dtype, reinterpret_cast<const uint16_t*>(data)[i]);
  return reinterpret_cast<const int32_t*>(data)[i];
}

}  // namespace

absl::Status RankRunner::ReadLoss(int64_t step, std::vector<double>& losses) {
  std::optional<BufferId> reported;
  bool any = false;
  for (size_t i = 0; i < class_.buffers.size(); ++i) {
    if (class_.buffers[i].role != BufferRole::kLoss) continue;
    any = true;
    if (class_.buffers[i].layout.partial.empty()) reported = BufferId(i);
  }
  if (!any) return absl::OkStatus();
  if (!reported.has_value()) return absl::InvalidArgumentError("every loss buffer is partial: no rank has the loss");
  const Buffer& b = buffer(*reported);
  double loss = 0;
  for (int64_t instance = 0; instance < b.layers * b.microbatches; ++instance) {
    const TensorView view = View(*reported, instance);
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<double> parts, ReadNumbers(view));
    for (const double part : parts) loss += part;
  }
  loss /= program_.loss_divisor;
  if (!std::isfinite(loss)) return ValueError("step ", step + 1, ": the loss is ", loss);
  losses.push_back(loss);
  const auto is_loss = [](const Buffer& other) { return other.role == BufferRole::kLoss; };
  size_t first = 0;  // of the classes that have a loss
  while (std::none_of(program_.classes[first].buffers.begin(), program_.classes[first].buffers.end(), is_loss)) ++first;
  if (options_.on_loss) options_.on_loss(step, loss, rank_ == program_.RankOf(first, 0));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> RankRunner::ReadNumbers(const TensorView& view) {
  staging_.resize(view.bytes());
  MESHWRIGHT_RETURN_IF_ERROR(backend_.CopyOut(Stream::kCompute, view.data, absl::MakeSpan(staging_)));
  MESHWRIGHT_RETURN_IF_ERROR(backend_.Synchronize());
  std::vector<double> numbers(view.size());
  for (int64_t i = 0; i < view.size(); ++i) numbers[i] = NumberAt(view, staging_.data(), i);
  return numbers;
}

absl::Status RankRunner::ReadLossScale(std::vector<LossScale>& scales) {
  std::optional<BufferId> scale, skipped;
  for (size_t i = 0; i < class_.buffers.size(); ++i) {
    if (class_.buffers[i].role != BufferRole::kOptimizerState || !class_.buffers[i].shape.empty()) continue;
    if (class_.buffers[i].name == kLossScale) scale = BufferId(i);
    if (class_.buffers[i].name == kSkippedSteps) skipped = BufferId(i);
  }
  if (!scale.has_value() || !skipped.has_value()) return absl::OkStatus();
  LossScale& now = scales.emplace_back();
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<double> value, ReadNumbers(View(*scale, 0)));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<double> steps, ReadNumbers(View(*skipped, 0)));
  now.scale = value[0];
  now.skipped = static_cast<int64_t>(steps[0]);
  return absl::OkStatus();
}

absl::Status RankRunner::ReadParameters(std::vector<ParameterPiece>& parameters) {
  for (size_t i = 0; i < class_.buffers.size(); ++i) {
    const Buffer& b = class_.buffers[i];
    if (b.role != BufferRole::kParameter && b.role != BufferRole::kMaster) continue;
    if (b.owner >= 0 && b.owner != Member()) continue;
    if (StateName(program_, class_index_, BufferId(i), 0).empty()) continue;
    for (int64_t instance = 0; instance < b.layers; ++instance) {
      const TensorView view = View(BufferId(i), instance * b.microbatches);
      MESHWRIGHT_ASSIGN_OR_RETURN(std::vector<double> values, ReadNumbers(view));
      parameters.push_back({.key = {TensorName(b), b.first_layer + instance},
                            .global = view.global,
                            .shape = view.shape,
                            .begin = view.begin,
                            .values = std::move(values)});
    }
  }
  return absl::OkStatus();
}

// The rank's own pieces of everything that is saved.
absl::Status RankRunner::ReadState(Checkpoint& checkpoint) {
  for (size_t i = 0; i < class_.buffers.size(); ++i) {
    const Buffer& b = class_.buffers[i];
    if (StateName(program_, class_index_, BufferId(i), 0).empty()) continue;
    if (b.owner >= 0 && b.owner != Member()) continue;  // another's lies there on this rank
    if (options_.checkpoint->integrated && b.owner < 0 && !IsFirstHolder(b)) continue;
    for (int64_t instance = 0; instance < b.layers; ++instance) {
      const TensorView view = View(BufferId(i), instance * b.microbatches);
      StatePiece& piece = checkpoint.pieces.emplace_back();
      piece.name = StateName(program_, class_index_, BufferId(i), instance * b.microbatches);
      piece.global = view.global;
      piece.begin = view.begin;
      piece.layout = ToText(b.layout, program_.mesh);
      piece.tensor.dtype = view.dtype;
      piece.tensor.shape = view.shape;
      piece.tensor.bytes.resize(static_cast<size_t>(view.bytes()));
      MESHWRIGHT_RETURN_IF_ERROR(
          backend_.CopyOut(Stream::kCompute, view.data,
                           absl::MakeSpan(reinterpret_cast<std::byte*>(piece.tensor.bytes.data()), view.bytes())));
    }
  }
  return backend_.Synchronize();
}

// A whole tensor is one value, and a checkpoint of all ranks that differ has no merger (S16.7): said before the first
// step. What every rank updates of its own start stays different; what is loaded, or sent to all at the start, is
// equal.
absl::Status RankRunner::CheckReplicasAreEqual() const {
  if (!options_.checkpoint->integrated || !options_.seed_per_rank || !class_.start.empty()) return absl::OkStatus();
  for (size_t i = 0; i < class_.buffers.size(); ++i) {
    const Buffer& b = class_.buffers[i];
    const bool drawn = b.init.kind != Initializer::Kind::kConstant && b.init.kind != Initializer::Kind::kFormula;
    if (!drawn || b.owner >= 0 || IsFirstHolder(b)) continue;
    const std::string name = StateName(program_, class_index_, BufferId(i), 0);
    if (name.empty() || (options_.initial != nullptr && options_.initial->tensors.count(name) > 0)) continue;
    return ValueError(QuoteForMessage(name), " is whole in an integrated checkpoint, and with seed_per_rank rank ",
                      rank_,
                      " has another value than a rank before it; wanted ranks that are equal: parameter_broadcast, or "
                      "no seed_per_rank; or files of each rank's own: integrated_save: false (--nointegrated_save)");
  }
  return absl::OkStatus();
}

// Of the ranks that hold the same piece.
bool RankRunner::IsFirstHolder(const Buffer& b) const {
  for (int64_t other = program_.RankOf(class_index_, 0); other < rank_; ++other) {
    const bool same = std::all_of(b.layout.dims.begin(), b.layout.dims.end(), [&](const AxisList& axes) {
      return program_.mesh.PositionOf(other, axes) == program_.mesh.PositionOf(rank_, axes);
    });
    if (same) return false;
  }
  return true;
}

absl::Status RankRunner::Save(int64_t steps_done) {
  if (!writer_.has_value() || steps_done % options_.checkpoint->every != 0) return absl::OkStatus();
  // A loss that stops the run stops it here, before anything is written.
  MESHWRIGHT_RETURN_IF_ERROR(backend_.Barrier());
  const int64_t per_epoch = options_.checkpoint->steps_per_epoch;
  const int64_t epoch = per_epoch == 0 ? 0 : (steps_done - 1) / per_epoch;
  Checkpoint checkpoint;
  checkpoint.rank = rank_;
  checkpoint.ranks = program_.mesh.num_ranks();
  checkpoint.epoch = epoch + 1;
  checkpoint.step = steps_done - epoch * per_epoch;
  checkpoint.steps_done = steps_done;
  checkpoint.mesh = ToText(program_.mesh);
  MESHWRIGHT_RETURN_IF_ERROR(ReadState(checkpoint));
  if (!options_.checkpoint->integrated || checkpoint.ranks == 1) return WriteBesideOlder(checkpoint);
  const std::string own = ToBytes(checkpoint);
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<std::string> all, backend_.GatherAll(own));
  MESHWRIGHT_ASSIGN_OR_RETURN(checkpoint.pieces, MergedPieces(all));
  return WriteBesideOlder(checkpoint);
}

// The one before is there until all ranks have written theirs: of some ranks alone neither is worth anything.
absl::Status RankRunner::WriteBesideOlder(const Checkpoint& checkpoint) {
  MESHWRIGHT_RETURN_IF_ERROR(writer_->Write(checkpoint));
  MESHWRIGHT_RETURN_IF_ERROR(backend_.Barrier());
  return writer_->RemoveOldest();
}

}  // namespace meshwright
