#include "executor/cuda/cuda_backend.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "executor/call_operands.h"
#include "executor/steady_clock.h"
#include "ir/status.h"

namespace meshwright::cuda {
namespace {

constexpr int64_t kChunk = int64_t{32} << 20;                    // bytes of staging at a time
constexpr absl::Duration kBetweenLooks = absl::Milliseconds(2);  // at what the other ranks say
constexpr int kSpins = 2000;                                     // polls before a waiting rank sleeps between two
constexpr absl::Duration kNap = absl::Microseconds(50);

absl::Span<std::byte> BytesOf(StallReport& report) {
  return absl::MakeSpan(reinterpret_cast<std::byte*>(&report), sizeof(report));
}

// A step with kernels that the host runs cannot be recorded: the host would not run them again.
bool RunsOnHost(const RankClass& rank_class) {
  for (const Block& block : rank_class.blocks) {
    for (const Instruction& instruction : block.instructions) {
      const auto* const compute = std::get_if<Compute>(&instruction.work);
      if (compute != nullptr && compute->on_host) return true;
    }
  }
  return false;
}

// Polls quickly at first, then leaves the processor to others.
class Patience {
 public:
  void Wait() {
    if (++polls_ < kSpins) {
      sched_yield();
    } else {
      absl::SleepFor(kNap);
    }
  }

 private:
  int polls_ = 0;
};

}  // namespace

absl::Duration DeadlineOf(const CudaOptions& options) {
  return std::max(options.deadline_floor, options.predicted_step * options.deadline_factor);
}

absl::StatusOr<std::unique_ptr<CudaBackend>> CudaBackend::Make(Driver& driver, Kernels& kernels, Endpoint& endpoint,
                                                               const Program& program, const CudaOptions& options) {
  if (endpoint.num_ranks() != program.mesh.num_ranks()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the program has ", program.mesh.num_ranks(), " ranks, the job has ", endpoint.num_ranks()));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(CommunicatorPlan plan, PlanCommunicators(program));
  std::unique_ptr<CudaBackend> backend(new CudaBackend(driver, kernels, endpoint, std::move(plan), options));
  const absl::Status started = backend->Start(program);
  if (!started.ok()) {
    const absl::Status named(started.code(),
                             absl::StrCat("rank ", endpoint.rank(), ", before the first step: ", started.message()));
    backend->Abort(named);
    return named;
  }
  return backend;
}

CudaBackend::CudaBackend(Driver& driver, Kernels& kernels, Endpoint& endpoint, CommunicatorPlan plan,
                         const CudaOptions& options)
    : driver_(driver),
      kernels_(kernels),
      endpoint_(endpoint),
      options_(options),
      scratch_(driver),
      progress_(driver),
      communication_(driver, kernels, scratch_, endpoint, std::move(plan), [this] { return Look(); }),
      recorder_(driver, progress_, communication_),
      watchdog_(driver),
      next_look_(SteadyNow()),
      heard_(endpoint.num_ranks()),
      heard_from_(endpoint.num_ranks()) {}

CudaBackend::~CudaBackend() {
  watchdog_.Stop();
  recorder_.DropGraph();  // before the communicators that it uses
  communication_.Close();
  for (const DeviceEvent event : events_) driver_.Destroy(event);
  for (const DeviceEvent event : marks_) driver_.Destroy(event);
  if (clock_) driver_.Destroy(clock_);
  for (const DeviceStream stream : streams_) {
    if (stream) driver_.Destroy(stream);
  }
  for (const Chunk& chunk : staging_) driver_.FreeHost(chunk.data);
  if (arena_ != nullptr) driver_.Free(arena_);
}

absl::Status CudaBackend::Start(const Program& program) {
  for (DeviceStream& stream : streams_) {
    MESHWRIGHT_ASSIGN_OR_RETURN(stream, driver_.MakeStream());
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(clock_, driver_.MakeEvent(true));
  watchdog_.Begin(deadline());
  MESHWRIGHT_RETURN_IF_ERROR(communication_.Connect(
      device(Stream::kCompute), [&](int64_t index, Communicator made) { watchdog_.Watch(index, made); }));
  MESHWRIGHT_RETURN_IF_ERROR(SizeScratch(program));
  may_record_ = options_.graphs && !RunsOnHost(program.classes[ClassOf(program)]);
  if (may_record_) MESHWRIGHT_RETURN_IF_ERROR(recorder_.Prepare(streams_));
  return AwaitIdle(streams_);
}

// Scratch that grows in the middle of a step would allocate while other ranks wait for this one.
absl::Status CudaBackend::SizeScratch(const Program& program) {
  const int64_t rank = endpoint_.rank();
  const RankClass& own = program.classes[ClassOf(program)];
  const auto view = [&](const Operand& operand) {
    const Buffer& b = own.buffers[operand.buffer.index()];
    TensorView view;
    const Bytes offset = b.offset + PlaceInRoot(own, operand.buffer, program.mesh, rank);
    view.data = reinterpret_cast<std::byte*>(offset.raw() + kAlignment);  // compared with others, never read
    view.dtype = b.dtype;
    view.shape = LocalShape(b.shape, b.layout, program.mesh);
    return view;
  };
  std::array<Bytes, kNumStreams> most = {};
  for (const Block& block : own.blocks) {
    for (const Instruction& instruction : block.instructions) {
      const auto* collective = std::get_if<Collective>(&instruction.work);
      if (collective == nullptr || instruction.reads.size() != instruction.writes.size()) continue;
      std::vector<TensorView> reads, writes;
      for (const Operand& operand : instruction.reads) reads.push_back(view(operand));
      for (const Operand& operand : instruction.writes) writes.push_back(view(operand));
      const std::vector<int64_t> group = program.mesh.Group(rank, collective->axes);
      Bytes& stream = most[static_cast<size_t>(instruction.stream)];
      stream =
          std::max(stream, Communication::ScratchFor(
                               {collective, group, program.mesh.PositionOf(rank, collective->axes), reads, writes}));
    }
  }
  for (size_t s = 0; s < kNumStreams; ++s) {
    if (most[s] > Bytes(0)) MESHWRIGHT_RETURN_IF_ERROR(scratch_.Get(streams_[s], most[s]).status());
  }
  return absl::OkStatus();
}

// Ranks need not agree: NCCL asks, call by call, whether all of a group can.
absl::StatusOr<std::byte*> CudaBackend::MemoryForArena(Bytes size) {
  if (!options_.register_arena) return driver_.Allocate(size);
  absl::StatusOr<std::byte*> shared = driver_.AllocateShared(size);
  absl::Status status = shared.status();
  if (status.ok()) status = communication_.Register(*shared, size);
  if (status.ok()) return shared;
  if (!shared.ok() && !absl::IsUnimplemented(status)) return status;
  if (options_.notice != nullptr) {
    options_.notice(
        absl::StrCat("rank ", endpoint_.rank(), ": NCCL copies, as it was not told of the arena: ", status.message()));
  }
  return shared.ok() ? shared : driver_.Allocate(size);
}

absl::StatusOr<std::byte*> CudaBackend::AllocateArena(Bytes size) {
  MESHWRIGHT_ASSIGN_OR_RETURN(arena_, MemoryForArena(std::max(size, Bytes(kAlignment))));
  MESHWRIGHT_RETURN_IF_ERROR(driver_.Fill(device(Stream::kCompute), arena_, 0xff, size));
  return arena_;
}

absl::StatusOr<std::byte*> CudaBackend::Staging(int64_t bytes) {
  for (Chunk& chunk : staging_) {
    if (chunk.size - chunk.used < bytes) continue;
    std::byte* const place = chunk.data + chunk.used;
    chunk.used += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return place;
  }
  const int64_t size = std::max(kChunk, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const data, driver_.AllocateHost(Bytes(size)));
  staging_.push_back({data, size, size == kChunk ? (bytes + kAlignment - 1) / kAlignment * kAlignment : size});
  return data;
}

template <class Work>
absl::Status CudaBackend::Queue(Stream stream, const LaunchId& id, const Work& work) {
  if (recorder_.dropped()) return absl::OkStatus();
  absl::Status status = progress_.Begin(stream, device(stream), id);
  if (status.ok()) status = work();
  if (status.ok()) status = progress_.End(stream, device(stream));
  return recorder_.recording() && !ended_ ? recorder_.Note(status) : status;
}

absl::Status CudaBackend::CopyIn(Stream stream, absl::Span<const std::byte> from, std::byte* to) {
  // Between steps nothing else is under way: a large parameter goes in pieces, each through the same staging.
  const size_t piece = in_step_ ? std::max<size_t>(from.size(), 1) : static_cast<size_t>(kChunk);
  for (size_t at = 0; at < from.size(); at += piece) {
    const absl::Span<const std::byte> part = from.subspan(at, piece);
    const bool full =
        !in_step_ && !staging_.empty() && staging_[0].size - staging_[0].used < static_cast<int64_t>(part.size());
    if (full) MESHWRIGHT_RETURN_IF_ERROR(Synchronize());
    MESHWRIGHT_RETURN_IF_ERROR(QueueCopyIn(stream, part, to + at));
  }
  return absl::OkStatus();
}

absl::Status CudaBackend::QueueCopyIn(Stream stream, absl::Span<const std::byte> part, std::byte* to) {
  if (recorder_.dropped()) return absl::OkStatus();
  MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const place, Staging(static_cast<int64_t>(part.size())));
  std::memcpy(place, part.data(), part.size());
  if (mode_ == Mode::kLaunch) return recorder_.CheckFeed(place, part.size());
  if (recorder_.recording()) recorder_.Fed(place, part.size());
  return Queue(stream, {}, [&] {
    return driver_.Copy(device(stream), CopyKind::kToDevice, place, to, Bytes(static_cast<int64_t>(part.size())));
  });
}

absl::Status CudaBackend::CopyOut(Stream stream, const std::byte* from, absl::Span<std::byte> to) {
  const DeviceStream own = device(stream);
  const absl::Span<const DeviceStream> all = in_step_ ? absl::MakeConstSpan(&own, 1) : absl::MakeConstSpan(streams_);
  MESHWRIGHT_RETURN_IF_ERROR(AwaitIdle(all));
  MESHWRIGHT_RETURN_IF_ERROR(
      driver_.Copy(own, CopyKind::kToHost, from, to.data(), Bytes(static_cast<int64_t>(to.size()))));
  return AwaitIdle(all);
}

absl::Status CudaBackend::RunKernel(Stream stream, const KernelCall& call) {
  return Queue(stream, {}, [&] { return kernels_.Run(device(stream), call, scratch_, recorder_.values()); });
}

absl::Status CudaBackend::RunSlice(Stream stream, const TensorView& from, const TensorView& to) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t begin, BeginOfSlice(from, to));
  StridedCopy copy;
  copy.element = SizeOf(from.dtype).raw();
  copy.extents = to.shape;
  copy.from_strides = RowMajorStrides(from.shape);
  copy.to_strides = RowMajorStrides(to.shape);
  copy.from = from.data + begin * copy.element;
  copy.to = to.data;
  return Queue(stream, {}, [&] { return kernels_.Copy(device(stream), copy); });
}

absl::Status CudaBackend::RunCollective(Stream stream, const CollectiveCall& call) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const LaunchId id, communication_.Next(stream, call));
  return Queue(stream, id, [&] {
    const absl::Status status = communication_.Run(device(stream), call, id);
    if (status.ok()) return status;
    return absl::Status(status.code(), absl::StrCat(NameOf(call.collective->kind), " over ranks ",
                                                    absl::StrJoin(call.group, "-"), ": ", status.message()));
  });
}

absl::Status CudaBackend::RunExchange(Stream stream, const ExchangeCall& call) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const LaunchId id, communication_.Next(stream, call));
  return Queue(stream, id, [&] { return communication_.Run(device(stream), call, id); });
}

absl::Status CudaBackend::PrepareEvents(int64_t num_events) {
  while (static_cast<int64_t>(events_.size()) < num_events) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const DeviceEvent event, driver_.MakeEvent(false));
    events_.push_back(event);
  }
  recorded_in_.resize(events_.size(), -1);
  return absl::OkStatus();
}

absl::Status CudaBackend::Record(Stream stream, int64_t event) {
  if (recorder_.dropped()) return absl::OkStatus();
  const absl::Status status = driver_.Record(device(stream), events_[static_cast<size_t>(event)]);
  if (!recorder_.recording()) {
    recorded_in_[static_cast<size_t>(event)] = step_;
    return status;
  }
  recorder_.Recorded(event);
  return recorder_.Note(status);
}

absl::Status CudaBackend::Wait(Stream stream, int64_t event) {
  const bool recording = recorder_.recording();
  // What an earlier step recorded is done: the streams were idle when this one began. It must not be waited for where
  // it was recorded in a capture, whose events CUDA lets nobody wait for once it is over.
  const bool earlier =
      recording ? !recorder_.WasRecorded(event) : steps_done_ > 0 && recorded_in_[static_cast<size_t>(event)] != step_;
  if (recorder_.dropped() || earlier) return absl::OkStatus();
  progress_.Waits(stream);
  const absl::Status status = driver_.Wait(device(stream), events_[static_cast<size_t>(event)]);
  return recording ? recorder_.Note(status) : status;
}

absl::StatusOr<Backend::Wanted> CudaBackend::BeginStep(int64_t step, bool marked) {
  step_ = step;
  mode_ = Mode::kIssue;
  if (!may_record_ || steps_done_ == 0) return Wanted::kAll;
  if (!marked && recorder_.has_graph()) {
    mode_ = Mode::kLaunch;
    return Wanted::kFeeds;
  }
  if (const absl::Status begun = recorder_.Begin(); !begun.ok()) {
    IssueFromNowOn(begun);
    return Wanted::kAll;
  }
  mode_ = marked ? Mode::kRecordOnce : Mode::kRecord;
  return Wanted::kAll;
}

absl::StatusOr<bool> CudaBackend::EndStep() {
  if (mode_ == Mode::kIssue) return true;
  if (mode_ == Mode::kLaunch) {
    MESHWRIGHT_RETURN_IF_ERROR(recorder_.Launch(step_, clock_, true));
    return true;
  }
  const absl::Status recorded = recorder_.End();
  if (recorded.ok()) {
    scratch_.Keep();
    MESHWRIGHT_RETURN_IF_ERROR(recorder_.Launch(step_, clock_, false));
    return true;
  }
  mode_ = Mode::kIssue;
  num_marks_ = 0;
  for (Chunk& chunk : staging_) chunk.used = 0;
  IssueFromNowOn(recorded);
  return false;
}

void CudaBackend::IssueFromNowOn(const absl::Status& why) {
  may_record_ = false;
  if (options_.notice == nullptr) return;
  options_.notice(absl::StrCat("rank ", endpoint_.rank(),
                               " issues its steps call by call, as one could not be recorded: ", why.message()));
}

absl::Status CudaBackend::AwaitIdle(absl::Span<const DeviceStream> streams) {
  watchdog_.Begin(deadline());
  Patience patience;
  for (const DeviceStream stream : streams) {
    while (true) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const bool idle, driver_.IsIdle(stream));
      MESHWRIGHT_RETURN_IF_ERROR(Look());
      if (idle) break;
      patience.Wait();
    }
  }
  watchdog_.End();
  return absl::OkStatus();
}

absl::Status CudaBackend::Synchronize() {
  MESHWRIGHT_RETURN_IF_ERROR(AwaitIdle(streams_));
  progress_.Clear();
  scratch_.Release();
  communication_.Idle();
  if (mode_ == Mode::kRecordOnce) recorder_.DropGraph();  // its marks are of this step
  mode_ = Mode::kIssue;
  for (Chunk& chunk : staging_) chunk.used = 0;
  if (std::exchange(in_step_, false)) ++steps_done_;
  return absl::OkStatus();
}

absl::Status CudaBackend::Barrier() {
  const int64_t n = endpoint_.num_ranks(), rank = endpoint_.rank();
  at_barrier_ = true;
  watchdog_.Begin(setup_deadline());
  for (int64_t r = 0; r < n; ++r) {
    if (r != rank) MESHWRIGHT_RETURN_IF_ERROR(endpoint_.Send(r, Channel::kCollective, {}));
  }
  Patience patience;
  for (int64_t r = 0; r < n; ++r) {
    while (r != rank) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const bool here, endpoint_.TryReceive(r, Channel::kCollective, {}));
      if (here) break;
      MESHWRIGHT_RETURN_IF_ERROR(Look());
      patience.Wait();
    }
  }
  watchdog_.End();
  at_barrier_ = false;
  return absl::OkStatus();
}

absl::Status CudaBackend::OwnFailure(const Watchdog::Failure& failure) {
  const std::string which =
      failure.communicator < 0
          ? "of all ranks"
          : Describe(communication_.plan().communicators[static_cast<size_t>(failure.communicator)]);
  const StallReport report = progress_.Report(false);
  return absl::InternalError(absl::StrCat("rank ", endpoint_.rank(), " failed in step ", report.step + 1, ", ",
                                          report.text, ": ", NameOf(failure.error), " of the communicator ", which));
}

absl::Status CudaBackend::Look() {
  absl::Status status = LookAround();
  ended_ = ended_ || !status.ok();
  return status;
}

absl::Status CudaBackend::LookAround() {
  // Of another rank's failure, as this one was told: who it was, all of them find out together.
  if (const auto failure = watchdog_.failure()) {
    return failure->error == CommError::kRemote ? Stalled() : OwnFailure(*failure);
  }
  if (watchdog_.expired()) return Stalled();
  if (SteadyNow() < next_look_) return absl::OkStatus();
  next_look_ = SteadyNow() + kBetweenLooks;
  for (int64_t r = 0; r < endpoint_.num_ranks(); ++r) {
    if (r == endpoint_.rank()) continue;
    MESHWRIGHT_ASSIGN_OR_RETURN(const bool asks, endpoint_.TryReceive(r, Channel::kWatch, BytesOf(heard_from_[r])));
    if (!asks) continue;
    heard_[r] = true;
    return Stalled();
  }
  return absl::OkStatus();
}

// Says where this rank is, hears where the others are, and judges.
absl::Status CudaBackend::Stalled() {
  const int64_t n = endpoint_.num_ranks(), rank = endpoint_.rank();
  const auto failure = watchdog_.LookNow();
  if (failure.has_value() && failure->error != CommError::kRemote) return OwnFailure(*failure);
  StallReport own = progress_.Report(at_barrier_);
  own.remote = failure.has_value();
  for (int64_t r = 0; r < n; ++r) {
    if (r != rank) MESHWRIGHT_RETURN_IF_ERROR(endpoint_.Send(r, Channel::kWatch, BytesOf(own)));
  }
  std::vector<std::optional<StallReport>> reports(n);
  reports[rank] = own;
  const absl::Time until = SteadyNow() + options_.report_time;
  for (int64_t missing = 1; missing > 0 && SteadyNow() < until;) {
    missing = 0;
    for (int64_t r = 0; r < n; ++r) {
      if (reports[r].has_value()) continue;
      if (!heard_[r]) {
        MESHWRIGHT_ASSIGN_OR_RETURN(const bool here, endpoint_.TryReceive(r, Channel::kWatch, BytesOf(heard_from_[r])));
        heard_[r] = here;
      }
      if (heard_[r]) {
        reports[r] = heard_from_[r];
      } else {
        ++missing;
      }
    }
    if (missing > 0) absl::SleepFor(kNap);
  }
  const Verdict verdict = Judge(communication_.plan(), reports);
  return absl::DeadlineExceededError(
      absl::StrCat(own.remote ? "a communicator says that another rank failed: "
                              : absl::StrCat("no end within ", absl::FormatDuration(watchdog_.deadline()), ": "),
                   verdict.text));
}

absl::Status CudaBackend::StartClock() {
  in_step_ = true;
  num_marks_ = 0;
  watchdog_.Begin(deadline());
  return driver_.RecordTime(device(Stream::kCompute), clock_);
}

absl::Status CudaBackend::Mark(Stream stream) {
  if (recorder_.dropped()) return absl::OkStatus();
  if (num_marks_ == marks_.size()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const DeviceEvent event, driver_.MakeEvent(true));
    marks_.push_back(event);
  }
  const absl::Status status = driver_.RecordTime(device(stream), marks_[num_marks_++]);
  return recorder_.recording() ? recorder_.Note(status) : status;
}

absl::StatusOr<std::vector<Nanos>> CudaBackend::MarkTimes() {
  std::vector<Nanos> times;
  for (size_t i = 0; i < num_marks_; ++i) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Nanos time, driver_.Elapsed(clock_, marks_[i]));
    times.push_back(time);
  }
  return times;
}

void CudaBackend::Abort(const absl::Status& reason) {
  if (std::exchange(aborted_, true)) return;
  watchdog_.AbortAll();
  communication_.Forget();
  driver_.Abandon();
  endpoint_.Abort(reason);
}

}  // namespace meshwright::cuda
