#include "executor/runner.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "executor/host_op.h"
#include "executor/narrow_floats.h"
#include "executor/permute.h"
#include "executor/rank_runner.h"
#include "ir/files.h"
#include "ir/rows_label.h"
#include "ir/status.h"

namespace meshwright {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

bool IsFeed(const Instruction& instruction) {
  const auto* compute = std::get_if<Compute>(&instruction.work);
  return compute != nullptr && compute->op == OpKind::kFeed;
}

}  // namespace

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
    MESHWRIGHT_RETURN_IF_ERROR(CheckReplicasAreEqual());
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
  const Turn& turn = compute.turn;
  if (turn.first >= 0 && turn.PlaceOf(layer_, program_.ranks_per_class()) != Member()) return absl::OkStatus();
  if (compute.op == OpKind::kFeed) return Feed(instruction, step);
  const std::vector<TensorView> reads = Views(instruction.reads), writes = Views(instruction.writes);
  KernelCall call = {compute.op, &*compute.attrs, &*compute.rule, 0, step + 1, reads, writes};
  call.seed = options_.seed;
  call.layer = first_layer_ + layer_;
  if (!reads.empty()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(call.in_step, InStep(*compute.rule, reads[0]));
  }
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

// By the rows of FillRows, whose dim is seen as one of batches and one of the rows of each.
absl::StatusOr<TensorView> RankRunner::InStep(const IndexRule& rule, TensorView view) const {
  const int label = rule.FindLabel(kRowsLabel);
  if (label < 0 || program_.num_microbatches == 1) return TensorView();
  const OperandRule& dims = rule.inputs[0];
  const auto dim = std::find_if(dims.begin(), dims.end(), [&](const DimRule& one) { return one.label == label; });
  if (dim == dims.end()) return TensorView();
  const auto d = dim - dims.begin();
  const int64_t all = view.global[d], batches = all % options_.batches == 0 ? options_.batches : 1;
  const int64_t rows = all / batches, size = view.shape[d], begin = view.begin[d];
  const bool whole = begin % rows == 0 && size % rows == 0;  // batches
  if (!whole && begin / rows != (begin + size - 1) / rows) {
    return absl::UnimplementedError(absl::StrCat("a random mask of rows ", begin, " to ", begin + size - 1,
                                                 " of micro-batches made of ", batches, " batches of ", rows,
                                                 "; wanted whole batches, or a part of one"));
  }
  const auto replace = [d](Shape& shape, int64_t outer, int64_t inner) {
    shape[d] = inner;
    shape.insert(shape.begin() + d, outer);
  };
  replace(view.shape, whole ? size / rows : 1, whole ? rows : size);
  replace(view.begin, begin / rows, slot_->microbatch * rows + begin % rows);
  replace(view.global, batches, program_.num_microbatches * rows);
  return view;
}

template <class F>
auto RankRunner::WithCall(const Instruction& instruction, const Collective& collective, const F& use) {
  std::vector<int64_t>& group = groups_[&instruction];
  if (group.empty()) group = program_.mesh.Group(rank_, collective.axes);
  const std::vector<TensorView> reads = Views(instruction.reads), writes = Views(instruction.writes);
  const int64_t root = TurnOf(collective).PlaceOf(layer_, static_cast<int64_t>(group.size()));
  return use(CollectiveCall{&collective, group, program_.mesh.PositionOf(rank_, collective.axes), reads, writes,
                            static_cast<int32_t>(root)});
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

absl::StatusOr<RankResult> RunRank(const Program& program, const RunOptions& options, const DataSource& data,
                                   int64_t rank, Backend& backend) {
  RankRunner runner(program, options, data, rank, backend);
  absl::StatusOr<RankResult> result = runner.Run();
  if (!result.ok()) result = WithPrefix(runner.Where(), result.status());
  if (!result.ok()) backend.Abort(result.status());
  return result;
}

}  // namespace meshwright
