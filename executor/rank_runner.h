// One rank's run (executor/runner.h), step by step: runner.cc issues the program, rank_state.cc reads back what ranks
// bring home and saves. Private to the runner.
//
// Thread safety: none; a rank has one.
#ifndef MESHWRIGHT_EXECUTOR_RANK_RUNNER_H_
#define MESHWRIGHT_EXECUTOR_RANK_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/runner.h"
#include "ir/status.h"

namespace meshwright {

// The tensor that a buffer holds, or holds a part of.
inline std::string TensorName(const Buffer& buffer) { return buffer.name.substr(0, buffer.name.find('@')); }

class RankRunner {
 public:
  RankRunner(const Program& program, const RunOptions& options, const DataSource& data, int64_t rank, Backend& backend)
      : program_(program),
        options_(options),
        data_(data),
        rank_(rank),
        class_index_(static_cast<size_t>(rank / program.ranks_per_class())),
        class_(program.classes[class_index_]),
        backend_(backend) {}

  absl::StatusOr<RankResult> Run() {
    RankResult result;
    MESHWRIGHT_RETURN_IF_ERROR(Prepare());
    result.arena = class_.arena;
    if (!class_.start.empty()) {
      MESHWRIGHT_RETURN_IF_ERROR(backend_.Barrier());
      MESHWRIGHT_RETURN_IF_ERROR(Issue(class_.start, 0, nullptr));
      MESHWRIGHT_RETURN_IF_ERROR(backend_.Synchronize());
    }
    const int64_t end = options_.first_step + options_.steps;
    for (int64_t step = options_.first_step; step < end; ++step) {
      const bool trace = options_.trace && step + 1 == end;
      MESHWRIGHT_RETURN_IF_ERROR(PlayStep(step, trace ? &result.spans : nullptr));
      MESHWRIGHT_RETURN_IF_ERROR(ReadLossScale(result.loss_scales));
      MESHWRIGHT_RETURN_IF_ERROR(ReadLoss(step, result.losses));
      MESHWRIGHT_RETURN_IF_ERROR(Save(step + 1));
    }
    if (options_.library_estimates) MESHWRIGHT_RETURN_IF_ERROR(AskLibrary(result.spans));
    if (options_.keep_parameters) MESHWRIGHT_RETURN_IF_ERROR(ReadParameters(result.parameters));
    return result;
  }

  // "rank 3 (stage 0), slot 5 (layers forward, ...), instruction 7 (matmul): " of what is being issued.
  std::string Where() const {
    std::string where = absl::StrCat("rank ", rank_, " (", class_.name, ")");
    if (slot_ != nullptr) absl::StrAppend(&where, ", ", ToText(place()));
    return absl::StrCat(where, ": ");
  }

 private:
  // A buffer's piece on this rank.
  struct Piece {
    Shape shape, begin;
    Bytes place;  // PlaceInRoot
  };

  // Which rank of its class this is.
  int64_t Member() const { return rank_ - program_.RankOf(class_index_, 0); }
  const Block& block() const { return class_.blocks[slot_->block.index()]; }
  const Buffer& buffer(BufferId id) const { return class_.buffers[id.index()]; }
  Place place() const {
    return {step_,        static_cast<int64_t>(slot_number_),         block().name, layer_, slot_->microbatch,
            instruction_, TitleOf(block().instructions[instruction_])};
  }

  TensorView View(BufferId id, int64_t instance) const {
    const Buffer& b = buffer(id);
    const Piece& piece = pieces_[id.index()];
    const Bytes offset = b.offset + b.bytes * instance + piece.place;
    return {arena_ + offset.raw(), b.dtype, piece.shape, b.shape, piece.begin};
  }
  TensorView View(const Operand& operand) const {
    return View(operand.buffer, InstanceOf(buffer(operand.buffer), layer_ + operand.layer_shift, slot_->microbatch));
  }
  std::vector<TensorView> Views(absl::Span<const Operand> operands) const {
    std::vector<TensorView> views;
    for (const Operand& operand : operands) views.push_back(View(operand));
    return views;
  }
  int64_t EventIndex(const EventRef& ref) const {
    const Event& event = class_.events[ref.event.index()];
    return first_event_[ref.event.index()] + InstanceOf(event, layer_ + ref.layer_shift, slot_->microbatch);
  }

  absl::Status Prepare();
  absl::Status CheckBuffer(const Buffer& b) const;
  absl::Status InitialValues();
  absl::Status PlayStep(int64_t step, std::vector<Span>* spans);
  absl::Status Issue(const std::vector<Slot>& slots, int64_t step, std::vector<Span>* spans);
  absl::Status IssueInstruction(const Instruction& instruction, int64_t step, std::vector<Span>* spans);
  absl::Status IssueFeeds(const std::vector<Slot>& slots, int64_t step);
  absl::Status PlayInstruction(const Instruction& instruction, int64_t step);
  template <class F>
  auto WithCall(const Instruction& instruction, const Collective& collective, const F& use);
  absl::Status AskLibrary(std::vector<Span>& spans);
  absl::Status ReadLoss(int64_t step, std::vector<double>& losses);
  absl::StatusOr<std::vector<double>> ReadNumbers(const TensorView& view);
  absl::Status ReadLossScale(std::vector<LossScale>& scales);
  absl::Status ReadParameters(std::vector<ParameterPiece>& parameters);
  absl::Status WriteBesideOlder(const Checkpoint& checkpoint);
  absl::Status CheckReplicasAreEqual() const;
  absl::Status Save(int64_t steps_done);
  absl::Status ReadState(Checkpoint& checkpoint);
  bool IsFirstHolder(const Buffer& b) const;

  absl::Status Play(const Instruction& instruction, const Compute& compute, int64_t step);
  absl::Status Play(const Instruction& instruction, const Collective& collective);
  absl::Status Play(const Instruction& instruction, const Permute& permute);
  absl::Status Play(const Instruction& instruction, const Transfer& transfer);
  absl::Status Feed(const Instruction& instruction, int64_t step);
  absl::Status FillRows(const Buffer& b, int64_t step, TensorView view);
  absl::StatusOr<TensorView> InStep(const IndexRule& rule, TensorView view) const;

  const Program& program_;
  const RunOptions& options_;
  const DataSource& data_;
  const int64_t rank_;
  const size_t class_index_;
  const RankClass& class_;
  Backend& backend_;

  std::byte* arena_ = nullptr;
  std::vector<Piece> pieces_;                                   // per buffer
  std::vector<int64_t> first_event_;                            // per event register: the number of its first instance
  std::map<const Instruction*, std::vector<int64_t>> groups_;   // of collectives
  std::map<const Instruction*, std::vector<int64_t>> sources_;  // of permutations
  int64_t first_layer_ = 0;                                     // of the repeated layers, the first of this class
  std::vector<std::byte> staging_;
  std::optional<CheckpointWriter> writer_;

  // What is being issued.
  int64_t step_ = 0;
  const Slot* slot_ = nullptr;
  size_t slot_number_ = 0;
  int64_t layer_ = 0;
  size_t instruction_ = 0;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_RANK_RUNNER_H_
