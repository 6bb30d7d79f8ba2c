#include "executor/runner.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "executor/host_op.h"
#include "executor/narrow_floats.h"
#include "executor/permute.h"
#include "ir/error_kind.h"
#include "ir/files.h"
#include "ir/status.h"

namespace meshwright {
namespace {

std::string TensorName(const Buffer& buffer) { return buffer.name.substr(0, buffer.name.find('@')); }

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

double NumberAt(const TensorView& view, const std::byte* data, int64_t i) {
  if (view.dtype == DType::kFloat64) return reinterpret_cast<const double*>(data)[i];
  if (view.dtype == DType::kFloat32) return reinterpret_cast<const float*>(data)[i];
  if (IsNarrow(view.dtype)) return FromNarrow(view.dtype, reinterpret_cast<const uint16_t*>(data)[i]);
  return reinterpret_cast<const int32_t*>(data)[i];
}

bool IsFeed(const Instruction& instruction) {
  const auto* compute = std::get_if<Compute>(&instruction.work);
  return compute != nullptr && compute->op == OpKind::kFeed;
}

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
  absl::Status Save(int64_t steps_done);
  absl::Status ReadState(Checkpoint& checkpoint);
  bool IsFirstHolder(const Buffer& b) const;

  absl::Status Play(const Instruction& instruction, const Compute& compute, int64_t step);
  absl::Status Play(const Instruction& instruction, const Collective& collective);
  absl::Status Play(const Instruction& instruction, const Permute& permute);
  absl::Status Play(const Instruction& instruction, const Transfer& transfer);
  absl::Status Feed(const Instruction& instruction, int64_t step);
  absl::Status FillRows(const Buffer& b, int64_t step, TensorView view);

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

absl::Status RankRunner::CheckBuffer(const Buffer& b) const {
  MESHWRIGHT_RETURN_IF_ERROR(CheckLayout(b.shape, b.layout, program_.mesh));
  if (b.dtype != DType::kFloat32 && b.dtype != DType::kFloat64 && b.dtype != DType::kInt32 && !IsNarrow(b.dtype)) {
    return absl::UnimplementedError(
        absl::StrCat("buffer \"", b.name, "\" is ", NameOf(b.dtype),
                     "; programs are run in float16, bfloat16, float32 and float64, with int32"));
  }
  const Bytes end = b.offset + b.bytes * (b.layers * b.microbatches);
  if (LocalBytes(b, program_.mesh) > b.bytes || b.offset < Bytes(0) || end > class_.arena) {
    return absl::InvalidArgumentError(absl::StrCat(
        "buffer \"", b.name, "\" has ", b.layers * b.microbatches, " instances of ", b.bytes.raw(), " bytes at ",
        b.offset.raw(), "; one needs ", LocalBytes(b, program_.mesh).raw(), " and the arena has ", class_.arena.raw()));
  }
  return absl::OkStatus();
}

absl::Status RankRunner::Prepare() {
  for (size_t i = 0; i < class_.buffers.size(); ++i) {
    const Buffer& b = class_.buffers[i];
    MESHWRIGHT_RETURN_IF_ERROR(CheckBuffer(b));
    pieces_.push_back({LocalShape(b.shape, b.layout, program_.mesh),
                       SliceBegin(b.shape, b.layout, program_.mesh, rank_),
                       PlaceInRoot(class_, BufferId(i), program_.mesh, rank_)});
  }
  for (const Buffer& b : class_.buffers) first_layer_ = std::max(first_layer_, b.first_layer);
  int64_t num_events = 0;
  for (const Event& event : class_.events) {
    first_event_.push_back(num_events);
    num_events += event.layers * event.microbatches;
  }
  MESHWRIGHT_RETURN_IF_ERROR(backend_.PrepareEvents(num_events));
  MESHWRIGHT_ASSIGN_OR_RETURN(arena_, backend_.AllocateArena(class_.arena));
  if (options_.checkpoint.has_value()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(writer_, CheckpointWriter::Open(*options_.checkpoint, program_, rank_));
  }
  return InitialValues();
}

absl::Status RankRunner::InitialValues() {
  for (size_t i = 0; i < class_.buffers.size(); ++i) {
    const Buffer& b = class_.buffers[i];
    const bool parameter = b.role == BufferRole::kParameter || b.role == BufferRole::kMaster;
    if (!parameter && b.role != BufferRole::kOptimizerState) continue;
    if (b.owner >= 0 && b.owner != Member()) continue;
    for (int64_t instance = 0; instance < b.layers * b.microbatches; ++instance) {
      TensorView view = View(BufferId(i), instance);
      std::byte* const place = view.data;
      staging_.assign(view.bytes(), std::byte{0});
      view.data = staging_.data();
      const StoredTensor* saved = nullptr;
      std::string name;
      if (options_.initial != nullptr) {
        name = SourceName(program_, b, instance);
        const auto found = options_.initial->tensors.find(name);
        if (found != options_.initial->tensors.end()) saved = &found->second;
      }
      if (saved != nullptr) {
        MESHWRIGHT_RETURN_IF_ERROR(CopyPiece(name, *saved, view));
      } else {
        const int64_t layer = b.first_layer + instance / b.microbatches;
        const uint64_t seed = options_.seed + (options_.seed_per_rank ? static_cast<uint64_t>(rank_) : 0);
        MESHWRIGHT_RETURN_IF_ERROR(FillInitial(b.init, seed, TensorName(b), layer, view));
      }
      MESHWRIGHT_RETURN_IF_ERROR(backend_.CopyIn(Stream::kCompute, staging_, place));
    }
  }
  return backend_.Synchronize();
}

absl::Status RankRunner::Issue(const std::vector<Slot>& slots, int64_t step, std::vector<Span>* spans) {
  step_ = step;
  for (const Slot& slot : slots) {
    slot_ = &slot;
    slot_number_ = static_cast<size_t>(&slot - slots.data());
    for (int64_t i = 0; i < slot.count; ++i) {
      layer_ = slot.layer + i * slot.step;
      for (instruction_ = 0; instruction_ < block().instructions.size(); ++instruction_) {
        MESHWRIGHT_RETURN_IF_ERROR(IssueInstruction(block().instructions[instruction_], step, spans));
      }
    }
  }
  slot_ = nullptr;
  return absl::OkStatus();
}

absl::Status RankRunner::IssueInstruction(const Instruction& instruction, int64_t step, std::vector<Span>* spans) {
  backend_.At(place());
  for (const EventRef& ref : instruction.waits) {
    MESHWRIGHT_RETURN_IF_ERROR(backend_.Wait(instruction.stream, EventIndex(ref)));
  }
  if (spans != nullptr) MESHWRIGHT_RETURN_IF_ERROR(backend_.Mark(instruction.stream));
  MESHWRIGHT_RETURN_IF_ERROR(PlayInstruction(instruction, step));
  if (spans != nullptr) {
    MESHWRIGHT_RETURN_IF_ERROR(backend_.Mark(instruction.stream));
    spans->push_back({rank_, static_cast<uint32_t>(slot_number_), static_cast<int32_t>(layer_),
                      static_cast<int32_t>(instruction_), instruction.stream, Nanos(0), Nanos(0)});
  }
  for (const EventRef& ref : instruction.records) {
    MESHWRIGHT_RETURN_IF_ERROR(backend_.Record(instruction.stream, EventIndex(ref)));
  }
  return absl::OkStatus();
}

// Feeds stand in few blocks, and the step waits for this: the others are passed over.
absl::Status RankRunner::IssueFeeds(const std::vector<Slot>& slots, int64_t step) {
  step_ = step;
  for (const Slot& slot : slots) {
    slot_ = &slot;
    slot_number_ = static_cast<size_t>(&slot - slots.data());
    const std::vector<Instruction>& instructions = block().instructions;
    if (std::none_of(instructions.begin(), instructions.end(), IsFeed)) continue;
    for (int64_t i = 0; i < slot.count; ++i) {
      layer_ = slot.layer + i * slot.step;
      for (instruction_ = 0; instruction_ < instructions.size(); ++instruction_) {
        const Instruction& instruction = instructions[instruction_];
        if (IsFeed(instruction)) MESHWRIGHT_RETURN_IF_ERROR(PlayInstruction(instruction, step));
      }
    }
  }
  slot_ = nullptr;
  return absl::OkStatus();
}

absl::Status RankRunner::PlayStep(int64_t step, std::vector<Span>* spans) {
  MESHWRIGHT_RETURN_IF_ERROR(backend_.Barrier());
  MESHWRIGHT_RETURN_IF_ERROR(backend_.StartClock());
  MESHWRIGHT_ASSIGN_OR_RETURN(const Backend::Wanted wanted, backend_.BeginStep(step, spans != nullptr));
  MESHWRIGHT_RETURN_IF_ERROR(wanted == Backend::Wanted::kAll ? Issue(class_.slots, step, spans)
                                                             : IssueFeeds(class_.slots, step));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool done, backend_.EndStep());
  if (!done) {
    if (spans != nullptr) spans->clear();
    MESHWRIGHT_RETURN_IF_ERROR(Issue(class_.slots, step, spans));
  }
  MESHWRIGHT_RETURN_IF_ERROR(backend_.Synchronize());
  if (spans == nullptr) return absl::OkStatus();
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<Nanos> times, backend_.MarkTimes());
  for (size_t i = 0; i < spans->size(); ++i) {
    (*spans)[i].begin = times[2 * i];
    (*spans)[i].end = times[2 * i + 1];
  }
  std::stable_sort(spans->begin(), spans->end(), [](const Span& a, const Span& b) {
    return std::pair(a.stream, a.begin) < std::pair(b.stream, b.begin);
  });
  return absl::OkStatus();
}

absl::Status RankRunner::PlayInstruction(const Instruction& instruction, int64_t step) {
  return std::visit(Overloaded{[&](const Compute& work) { return Play(instruction, work, step); },
                               [&](const Slice&) {
                                 return backend_.RunSlice(instruction.stream, View(instruction.reads[0]),
                                                          View(instruction.writes[0]));
                               },
                               [&](const Sync&) { return absl::OkStatus(); },
                               [&](const auto& work) { return Play(instruction, work); }},
                    instruction.work);
}

absl::Status RankRunner::Play(const Instruction& instruction, const Compute& compute, int64_t step) {
  if (const int64_t owner = OwnerOf(instruction, class_); owner >= 0 && owner != Member()) return absl::OkStatus();
  if (compute.op == OpKind::kFeed) return Feed(instruction, step);
  const std::vector<TensorView> reads = Views(instruction.reads), writes = Views(instruction.writes);
  KernelCall call = {compute.op, &*compute.attrs, &*compute.rule, 0, step + 1, reads, writes};
  call.seed = options_.seed;
  call.microbatch = slot_->microbatch;
  call.layer = first_layer_ + layer_;
  for (size_t i = 0; i < instruction.writes.size(); ++i) {
    const BufferRole role = buffer(instruction.writes[i].buffer).role;
    const bool accumulator = role == BufferRole::kGradient || role == BufferRole::kLoss;
    if (compute.accumulate && accumulator) call.accumulate |= 1u << i;
  }
  return compute.on_host ? RunOnHost(backend_, instruction.stream, call) : backend_.RunKernel(instruction.stream, call);
}

absl::Status RankRunner::Feed(const Instruction& instruction, int64_t step) {
  for (const Operand& operand : instruction.writes) {
    const Buffer& b = buffer(operand.buffer);
    TensorView view = View(operand);
    std::byte* const place = view.data;
    staging_.resize(view.bytes());
    view.data = staging_.data();
    MESHWRIGHT_RETURN_IF_ERROR(view.global.empty() ? FillInOrder(data_, TensorName(b), b.init, step, view)
                                                   : FillRows(b, step, view));
    MESHWRIGHT_RETURN_IF_ERROR(backend_.CopyIn(instruction.stream, staging_, place));
  }
  return absl::OkStatus();
}

// Of each of the batches that a step has, the micro-batch's part: `view` is in rows of the micro-batch.
absl::Status RankRunner::FillRows(const Buffer& b, int64_t step, TensorView view) {
  const int64_t all = view.global[0], rows = all / options_.batches, end = view.begin[0] + view.shape[0];
  if (all % options_.batches != 0) {
    return absl::InvalidArgumentError(absl::StrCat("input \"", b.name, "\": ", all,
                                                   " rows of a micro-batch are not of ", options_.batches, " batches"));
  }
  view.global[0] *= program_.num_microbatches;
  for (int64_t row = view.begin[0]; row < end; row += view.shape[0]) {
    const int64_t batch = row / rows;
    view.shape[0] = std::min(end, (batch + 1) * rows) - row;
    view.begin[0] = (batch * program_.num_microbatches + slot_->microbatch) * rows + row % rows;
    MESHWRIGHT_RETURN_IF_ERROR(FillInOrder(data_, TensorName(b), b.init, step, view));
    view.data += view.bytes();
  }
  return absl::OkStatus();
}

template <class F>
auto RankRunner::WithCall(const Instruction& instruction, const Collective& collective, const F& use) {
  std::vector<int64_t>& group = groups_[&instruction];
  if (group.empty()) group = program_.mesh.Group(rank_, collective.axes);
  const std::vector<TensorView> reads = Views(instruction.reads), writes = Views(instruction.writes);
  return use(CollectiveCall{&collective, group, program_.mesh.PositionOf(rank_, collective.axes), reads, writes});
}

absl::Status RankRunner::Play(const Instruction& instruction, const Collective& collective) {
  return WithCall(instruction, collective,
                  [&](const CollectiveCall& call) { return backend_.RunCollective(instruction.stream, call); });
}

// Of each collective of a block once: layers and micro-batches differ in nothing that counts.
absl::Status RankRunner::AskLibrary(std::vector<Span>& spans) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool answers, backend_.BeginEstimates());
  if (!answers) return absl::OkStatus();
  std::map<std::pair<size_t, size_t>, Nanos> expected;  // by block and instruction
  for (const Slot& slot : class_.slots) {
    slot_ = &slot;
    layer_ = slot.layer;
    for (instruction_ = 0; instruction_ < block().instructions.size(); ++instruction_) {
      const Instruction& instruction = block().instructions[instruction_];
      const auto* collective = std::get_if<Collective>(&instruction.work);
      const auto [place, added] = expected.try_emplace({slot.block.index(), instruction_});
      if (!added || collective == nullptr) continue;
      MESHWRIGHT_ASSIGN_OR_RETURN(place->second, WithCall(instruction, *collective, [&](const CollectiveCall& call) {
                                    return backend_.Estimate(instruction.stream, call);
                                  }));
    }
  }
  slot_ = nullptr;
  for (Span& span : spans) {
    span.estimate = expected[{class_.slots[span.slot].block.index(), static_cast<size_t>(span.instruction)}];
  }
  return absl::OkStatus();
}

absl::Status RankRunner::Play(const Instruction& instruction, const Permute& permute) {
  std::vector<int64_t>& sources = sources_[&instruction];
  const Operand &from = instruction.reads[0], &to = instruction.writes[0];
  if (sources.empty() && !permute.sources.empty()) {
    sources = NamedSources(program_, class_index_, permute);
  } else if (sources.empty()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(sources,
                                PermuteSources(program_, class_index_, buffer(from.buffer), buffer(to.buffer)));
  }
  const int64_t own = rank_ - program_.RankOf(class_index_, 0);
  ExchangeCall call;
  call.transfer = false;
  for (size_t r = 0; r < sources.size(); ++r) {
    if (sources[r] == own) call.sends.push_back({program_.RankOf(class_index_, static_cast<int64_t>(r)), View(from)});
  }
  if (sources[own] >= 0) {
    call.receives.push_back({program_.RankOf(class_index_, sources[own]), View(to)});
  } else {
    // A back end may look at them when the kernel's turn comes.
    static const OpAttrs& zeros = *[] {
      auto* const attrs = new OpAttrs;
      attrs->scale = 0;
      return attrs;
    }();
    static const IndexRule& none = *new IndexRule;
    const std::vector<TensorView> writes = Views(instruction.writes);
    MESHWRIGHT_RETURN_IF_ERROR(
        backend_.RunKernel(instruction.stream, {OpKind::kFill, &zeros, &none, 0, 1, {}, writes}));
  }
  return backend_.RunExchange(instruction.stream, call);
}

absl::Status RankRunner::Play(const Instruction& instruction, const Transfer& transfer) {
  const int64_t peer = rank_ + transfer.stage_offset * program_.ranks_per_class();
  if (peer < 0 || peer >= program_.mesh.num_ranks()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no stage ", transfer.stage_offset, " from here"));
  }
  ExchangeCall call;
  for (const Operand& operand : transfer.send ? instruction.reads : instruction.writes) {
    (transfer.send ? call.sends : call.receives).push_back({peer, View(operand)});
  }
  return backend_.RunExchange(instruction.stream, call);
}

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

}  // namespace

absl::StatusOr<RankResult> RunRank(const Program& program, const RunOptions& options, const DataSource& data,
                                   int64_t rank, Backend& backend) {
  RankRunner runner(program, options, data, rank, backend);
  absl::StatusOr<RankResult> result = runner.Run();
  if (!result.ok()) result = WithPrefix(runner.Where(), result.status());
  if (!result.ok()) backend.Abort(result.status());
  return result;
}

}  // namespace meshwright
