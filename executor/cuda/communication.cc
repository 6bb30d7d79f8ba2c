#include "executor/cuda/communication.h"

#include <sched.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "executor/collective_pieces.h"
#include "ir/status.h"

namespace meshwright::cuda {
namespace {

// How one (read, write) pair of a collective is carried out.
struct PairPlan {
  bool pack = false;    // what is sent is first put together in scratch
  bool unpack = false;  // what is received lands in scratch, and is put in place then
  size_t cut_dim = 0, join_dim = 0;
  int64_t pack_at = 0, unpack_at = 0;  // bytes from the start of scratch
};

bool Overlap(const TensorView& a, const TensorView& b) {
  return a.data < b.data + b.bytes() && b.data < a.data + a.bytes();
}

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Adds what the pair needs to `scratch`.
PairPlan PlanPair(const CollectiveCall& call, size_t i, int64_t& scratch) {
  const Collective& c = *call.collective;
  const TensorView &read = call.reads[i], &write = call.writes[i];
  const int64_t n = static_cast<int64_t>(call.group.size());
  PairPlan plan;
  plan.cut_dim = static_cast<size_t>(c.kind == CollectiveKind::kAllToAll ? c.to_dim : c.dim);
  plan.join_dim = static_cast<size_t>(c.dim);
  switch (c.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
      plan.unpack = Overlap(read, write) && read.data != write.data;
      break;
    case CollectiveKind::kAllGather:
      plan.unpack = AlongDim(write, plan.join_dim).outer != 1 ||
                    (Overlap(read, write) && read.data != write.data + call.position * read.bytes());
      break;
    case CollectiveKind::kReduceScatter:
      plan.pack = AlongDim(read, plan.cut_dim).outer != 1;
      plan.unpack = !plan.pack && Overlap(read, write) && write.data != read.data + call.position * write.bytes();
      break;
    case CollectiveKind::kAllToAll:
      plan.pack = AlongDim(read, plan.cut_dim).outer != 1 || Overlap(read, write);
      plan.unpack = AlongDim(write, plan.join_dim).outer != 1;
      break;
  }
  if (n == 1) plan.pack = plan.unpack = false;
  if (plan.pack) {
    plan.pack_at = scratch;
    scratch += Aligned(read.bytes());
  }
  if (plan.unpack) {
    plan.unpack_at = scratch;
    scratch += Aligned(write.bytes());
  }
  return plan;
}

// Piece p of `pieces` along a dim, between its place in the tensor and a packed one.
StridedCopy PieceCopy(const TensorView& view, size_t dim, int64_t p, int64_t pieces, std::byte* packed, bool pack) {
  const AlongDim a(view, dim);
  StridedCopy copy;
  copy.element = SizeOf(view.dtype).raw();
  const int64_t inner = a.inner / copy.element, run = a.extent / pieces * inner;
  std::byte* const in_view = view.data + p * run * copy.element;
  const Shape in_tensor = {a.extent * inner, 1}, in_packed = {run, 1};
  copy.extents = {a.outer, run};
  copy.from = pack ? in_view : packed;
  copy.to = pack ? packed : in_view;
  copy.from_strides = pack ? in_tensor : in_packed;
  copy.to_strides = pack ? in_packed : in_tensor;
  return copy;
}

// Neighbours that lie side by side, in what is read and in what is written.
struct Stretch {
  const std::byte* from;
  std::byte* to;
  int64_t count;
};
void AddStretch(std::vector<Stretch>& stretches, const std::byte* from, std::byte* to, int64_t count, int64_t element) {
  if (!stretches.empty()) {
    Stretch& last = stretches.back();
    const int64_t bytes = last.count * element;
    if (last.from + bytes == from && last.to + bytes == to) {
      last.count += count;
      return;
    }
  }
  stretches.push_back({from, to, count});
}

// Of gathers, scatters and exchanges each tensor has pieces of its own.
void AddPair(const Collective& c, const TensorView& from, const TensorView& to, std::vector<Stretch>& stretches) {
  if (c.kind == CollectiveKind::kAllReduce || c.kind == CollectiveKind::kBroadcast) {
    AddStretch(stretches, from.data, to.data, from.size(), SizeOf(from.dtype).raw());
  } else {
    stretches.push_back({from.data, to.data, std::min(from.size(), to.size())});
  }
}

}  // namespace

Communication::Communication(Driver& driver, Kernels& kernels, Scratch& scratch, Endpoint& endpoint,
                             CommunicatorPlan plan, Look look)
    : driver_(driver),
      kernels_(kernels),
      scratch_(scratch),
      endpoint_(endpoint),
      plan_(std::move(plan)),
      look_(std::move(look)),
      made_(plan_.communicators.size()) {}

void Communication::Close() {
  for (const Made& made : made_) {
    if (made.communicator) driver_.Destroy(made.communicator);
    if (made.estimates) driver_.Destroy(made.estimates);
  }
  if (world_) driver_.Destroy(world_);
  if (order_) driver_.Destroy(order_);
  Forget();
}

void Communication::Forget() {
  for (Made& made : made_) made.communicator = made.estimates = {};
  world_ = {};
}

void Communication::Idle() {
  for (Made& made : made_) made.last = {};
}

std::vector<int64_t> Communication::launches() const {
  std::vector<int64_t> launches;
  for (const Made& made : made_) launches.push_back(made.launches);
  return launches;
}

void Communication::set_launches(absl::Span<const int64_t> launches) {
  for (size_t i = 0; i < made_.size(); ++i) made_[i].launches = launches[i];
}

// An error of the communicator is the watchdog's to see: it knows whom to blame.
absl::Status Communication::Ready(Communicator communicator) {
  while (driver_.AsyncError(communicator) != CommError::kNone) {
    MESHWRIGHT_RETURN_IF_ERROR(look_());
    sched_yield();
  }
  return absl::OkStatus();
}

// Where a call fails the group is ended all the same: it is the thread's, and would take in whatever comes next.
template <class Calls>
absl::Status Communication::InGroup(Communicator communicator, const Calls& calls) {
  MESHWRIGHT_RETURN_IF_ERROR(driver_.GroupStart());
  const absl::Status called = calls();
  const absl::Status ended = driver_.GroupEnd();
  MESHWRIGHT_RETURN_IF_ERROR(called);
  MESHWRIGHT_RETURN_IF_ERROR(ended);
  return Ready(communicator);
}

absl::Status Communication::Connect(DeviceStream stream, const std::function<void(int64_t, Communicator)>& made) {
  if (plan_.communicators.empty()) return absl::OkStatus();
  MESHWRIGHT_ASSIGN_OR_RETURN(order_, driver_.MakeEvent(false));
  UniqueId id = {};
  const int64_t n = endpoint_.num_ranks(), rank = endpoint_.rank();
  if (rank == 0) {
    MESHWRIGHT_ASSIGN_OR_RETURN(id, driver_.MakeUniqueId());
  }
  std::vector<int64_t> all(n);
  std::iota(all.begin(), all.end(), 0);
  MESHWRIGHT_RETURN_IF_ERROR(Broadcast(endpoint_, {all, rank}, 0, absl::MakeSpan(id)));
  MESHWRIGHT_ASSIGN_OR_RETURN(world_, driver_.InitRank(id, n, rank));
  made(-1, world_);
  MESHWRIGHT_RETURN_IF_ERROR(Ready(world_));
  for (int64_t round = 0; round < plan_.rounds; ++round) {
    int64_t color = kNoColor, key = 0;
    for (size_t i = 0; i < plan_.communicators.size(); ++i) {
      const PlannedCommunicator& planned = plan_.communicators[i];
      const int64_t position = planned.round == round ? planned.PositionOf(rank) : -1;
      if (position < 0) continue;
      color = static_cast<int64_t>(i);
      key = position;
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(const Communicator communicator, driver_.Split(world_, color, key));
    MESHWRIGHT_RETURN_IF_ERROR(Ready(world_));
    if (color == kNoColor) continue;
    made_[static_cast<size_t>(color)].communicator = communicator;
    made(color, communicator);
    MESHWRIGHT_RETURN_IF_ERROR(Ready(communicator));
  }
  return FirstMessages(stream);
}

// Connections are made when they are first used: in the order of the plan, which all ranks share, nobody waits in vain.
absl::Status Communication::FirstMessages(DeviceStream stream) {
  MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const data, scratch_.Get(stream, Bytes(kAlignment)));
  MESHWRIGHT_RETURN_IF_ERROR(driver_.Fill(stream, data, 0, Bytes(kAlignment)));
  for (size_t i = 0; i < made_.size(); ++i) {
    const Communicator communicator = made_[i].communicator;
    if (!communicator) continue;
    const PlannedCommunicator& planned = plan_.communicators[i];
    const int64_t n = static_cast<int64_t>(planned.ranks.size()), own = planned.PositionOf(endpoint_.rank());
    MESHWRIGHT_RETURN_IF_ERROR(InGroup(communicator, [&] {
      if (planned.use == CommUse::kCollective) {
        return driver_.AllReduce(data, data, 1, DType::kFloat32, Reduction::kSum, communicator, stream);
      }
      if (planned.use == CommUse::kTransfer) {
        return own == 0 ? driver_.Send(data, 1, DType::kFloat32, 1, communicator, stream)
                        : driver_.Receive(data, 1, DType::kFloat32, 0, communicator, stream);
      }
      // Round the ring; other pairs of a permutation connect at their first use, in which all members take part.
      MESHWRIGHT_RETURN_IF_ERROR(driver_.Send(data, 1, DType::kFloat32, (own + 1) % n, communicator, stream));
      return driver_.Receive(data + 4, 1, DType::kFloat32, (own + n - 1) % n, communicator, stream);
    }));
  }
  return absl::OkStatus();
}

absl::Status Communication::Register(std::byte* arena, Bytes size) {
  for (size_t i = 0; i < made_.size(); ++i) {
    if (!made_[i].communicator || plan_.communicators[i].use != CommUse::kCollective) continue;
    MESHWRIGHT_RETURN_IF_ERROR(driver_.Register(made_[i].communicator, arena, size));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Communication::ConnectEstimates() {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<std::string> able,
                              GatherAll(endpoint_, driver_.GivesEstimates() ? "1" : "0"));
  if (std::count(able.begin(), able.end(), "1") != endpoint_.num_ranks()) return false;
  for (size_t i = 0; i < made_.size(); ++i) {
    const PlannedCommunicator& planned = plan_.communicators[i];
    const int64_t position = planned.PositionOf(endpoint_.rank());
    if (planned.use != CommUse::kCollective || position < 0 || made_[i].estimates) continue;
    UniqueId id = {};
    if (position == 0) {
      MESHWRIGHT_ASSIGN_OR_RETURN(id, driver_.MakeUniqueId());
    }
    MESHWRIGHT_RETURN_IF_ERROR(Broadcast(endpoint_, {planned.ranks, position}, 0, absl::MakeSpan(id)));
    MESHWRIGHT_ASSIGN_OR_RETURN(made_[i].estimates,
                                driver_.InitForEstimates(id, static_cast<int64_t>(planned.ranks.size()), position));
  }
  return true;
}

absl::StatusOr<Nanos> Communication::Estimate(Stream program_stream, DeviceStream stream, const CollectiveCall& call) {
  const Collective& c = *call.collective;
  const int64_t n = static_cast<int64_t>(call.group.size());
  if (n < 2 || c.kind == CollectiveKind::kAllToAll) return Nanos(0);
  std::vector<Stretch> stretches;
  for (size_t i = 0; i < call.reads.size(); ++i) AddPair(c, call.reads[i], call.writes[i], stretches);
  const int64_t index = plan_.Find(CommUse::kCollective, program_stream, call.group);
  if (stretches.size() != 1 || index < 0) return Nanos(0);
  const Communicator communicator = made_[static_cast<size_t>(index)].estimates;
  if (!communicator) return absl::InternalError("an estimate without its communicator");
  MESHWRIGHT_RETURN_IF_ERROR(driver_.GroupStart());
  const Stretch& s = stretches[0];
  const absl::Status put = Put(call, call.reads[0].dtype, s.from, s.to, s.count, communicator, stream);
  if (!put.ok()) driver_.GroupEnd().IgnoreError();  // of nothing
  MESHWRIGHT_RETURN_IF_ERROR(put);
  return driver_.GroupEstimate();
}

Bytes Communication::ScratchFor(const CollectiveCall& call) {
  int64_t bytes = 0;
  for (size_t i = 0; i < call.reads.size(); ++i) PlanPair(call, i, bytes);
  return Bytes(bytes);
}

absl::StatusOr<LaunchId> Communication::NextOf(CommUse use, Stream stream, absl::Span<const int64_t> ranks) {
  if (ranks.size() < 2) return LaunchId();
  const int64_t index = plan_.Find(use, stream, ranks);
  if (index < 0 || !made_[static_cast<size_t>(index)].communicator) {
    return absl::InternalError(
        absl::StrCat("no communicator ", Describe(PlannedCommunicator{use, stream, {ranks.begin(), ranks.end()}, 0})));
  }
  return LaunchId{index, made_[static_cast<size_t>(index)].launches++};
}

absl::StatusOr<LaunchId> Communication::Next(Stream stream, const CollectiveCall& call) {
  return NextOf(CommUse::kCollective, stream, call.group);
}

absl::StatusOr<LaunchId> Communication::Next(Stream stream, const ExchangeCall& call) {
  const int64_t rank = endpoint_.rank();
  if (call.transfer) {
    const bool send = !call.sends.empty();
    if (!send && call.receives.empty()) return LaunchId();
    const int64_t peer = send ? call.sends[0].peer : call.receives[0].peer;
    for (const auto* parts : {&call.sends, &call.receives}) {
      for (const ExchangeCall::Part& part : *parts) {
        if (part.peer != peer || (send && parts == &call.receives)) {
          return absl::InvalidArgumentError("a transfer goes one way, between two ranks");
        }
      }
    }
    if (peer == rank) return LaunchId();
    return NextOf(CommUse::kTransfer, Stream::kNumStreams,
                  send ? std::vector<int64_t>{rank, peer} : std::vector<int64_t>{peer, rank});
  }
  // A permutation: the one of this stream that the rank is in.
  for (const PlannedCommunicator& planned : plan_.communicators) {
    if (planned.use == CommUse::kPermute && planned.stream == stream && planned.PositionOf(rank) >= 0) {
      return NextOf(CommUse::kPermute, stream, planned.ranks);
    }
  }
  return LaunchId();
}

// Launches of one communicator keep their order, on whatever streams they are.
absl::Status Communication::OrderAfterLastUse(int64_t index, DeviceStream stream) {
  Made& made = made_[static_cast<size_t>(index)];
  if (made.last && made.last != stream) {
    MESHWRIGHT_RETURN_IF_ERROR(driver_.Record(made.last, order_));
    MESHWRIGHT_RETURN_IF_ERROR(driver_.Wait(stream, order_));
  }
  made.last = stream;
  return absl::OkStatus();
}

absl::Status Communication::CopyWhole(DeviceStream stream, const std::byte* from, std::byte* to, int64_t bytes) {
  if (from == to || bytes == 0) return absl::OkStatus();
  return driver_.Copy(stream, CopyKind::kOnDevice, from, to, Bytes(bytes));
}

// In a group of one, every collective hands over what it was given.
absl::Status Communication::RunLocal(DeviceStream stream, const CollectiveCall& call) {
  for (size_t i = 0; i < call.reads.size(); ++i) {
    MESHWRIGHT_RETURN_IF_ERROR(CopyWhole(stream, call.reads[i].data, call.writes[i].data, call.reads[i].bytes()));
  }
  return absl::OkStatus();
}

absl::Status Communication::Put(const CollectiveCall& call, DType dtype, const std::byte* from, std::byte* to,
                                int64_t count, Communicator communicator, DeviceStream stream) {
  const Collective& c = *call.collective;
  const int64_t n = static_cast<int64_t>(call.group.size());
  const int64_t piece = count / n, bytes = piece * SizeOf(dtype).raw();
  switch (c.kind) {
    case CollectiveKind::kAllReduce:
      return driver_.AllReduce(from, to, count, dtype, c.reduction, communicator, stream);
    case CollectiveKind::kBroadcast:
      return driver_.Broadcast(from, to, count, dtype, call.root, communicator, stream);
    case CollectiveKind::kAllGather:
      return driver_.AllGather(from, to, count, dtype, communicator, stream);
    case CollectiveKind::kReduceScatter:
      return driver_.ReduceScatter(from, to, count, dtype, c.reduction, communicator, stream);
    case CollectiveKind::kAllToAll:
      for (int64_t p = 0; p < n; ++p) {
        MESHWRIGHT_RETURN_IF_ERROR(driver_.Send(from + p * bytes, piece, dtype, p, communicator, stream));
        MESHWRIGHT_RETURN_IF_ERROR(driver_.Receive(to + p * bytes, piece, dtype, p, communicator, stream));
      }
      break;
  }
  return absl::OkStatus();
}

absl::Status Communication::Run(DeviceStream stream, const CollectiveCall& call, const LaunchId& id) {
  const Collective& c = *call.collective;
  const int64_t n = static_cast<int64_t>(call.group.size());
  if (call.reads.empty() || call.reads.size() != call.writes.size()) {
    return absl::InvalidArgumentError("a collective wants as many reads as writes, and at least one");
  }
  const DType dtype = call.reads[0].dtype;
  int64_t bytes = 0;
  std::vector<PairPlan> pairs;
  for (size_t i = 0; i < call.reads.size(); ++i) {
    MESHWRIGHT_RETURN_IF_ERROR(CheckPieces(c, n, call.reads[i], call.writes[i]));
    if (call.reads[i].dtype != dtype) return absl::InvalidArgumentError("one call moves tensors of two types");
    pairs.push_back(PlanPair(call, i, bytes));
  }
  if (id.communicator < 0) return RunLocal(stream, call);
  std::byte* scratch = nullptr;
  if (bytes > 0) {
    MESHWRIGHT_ASSIGN_OR_RETURN(scratch, scratch_.Get(stream, Bytes(bytes)));
  }
  std::vector<Stretch> stretches;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const TensorView &read = call.reads[i], &write = call.writes[i];
    for (int64_t p = 0; pairs[i].pack && p < n; ++p) {
      std::byte* const to = scratch + pairs[i].pack_at + p * read.bytes() / n;
      MESHWRIGHT_RETURN_IF_ERROR(kernels_.Copy(stream, PieceCopy(read, pairs[i].cut_dim, p, n, to, true)));
    }
    std::byte* const from = pairs[i].pack ? scratch + pairs[i].pack_at : read.data;
    std::byte* const to = pairs[i].unpack ? scratch + pairs[i].unpack_at : write.data;
    TensorView moved_from = read, moved_to = write;
    moved_from.data = from;
    moved_to.data = to;
    AddPair(c, moved_from, moved_to, stretches);
  }
  const Communicator communicator = made_[static_cast<size_t>(id.communicator)].communicator;
  MESHWRIGHT_RETURN_IF_ERROR(OrderAfterLastUse(id.communicator, stream));
  MESHWRIGHT_RETURN_IF_ERROR(InGroup(communicator, [&] {
    for (const Stretch& s : stretches) {
      MESHWRIGHT_RETURN_IF_ERROR(Put(call, dtype, s.from, s.to, s.count, communicator, stream));
    }
    return absl::OkStatus();
  }));
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (!pairs[i].unpack) continue;
    MESHWRIGHT_RETURN_IF_ERROR(Unpack(stream, c, n, pairs[i].join_dim, scratch + pairs[i].unpack_at, call.writes[i]));
  }
  return absl::OkStatus();
}

absl::Status Communication::Unpack(DeviceStream stream, const Collective& c, int64_t n, size_t dim, std::byte* from,
                                   const TensorView& write) {
  if (c.kind != CollectiveKind::kAllGather && c.kind != CollectiveKind::kAllToAll) {
    return CopyWhole(stream, from, write.data, write.bytes());
  }
  for (int64_t p = 0; p < n; ++p) {
    MESHWRIGHT_RETURN_IF_ERROR(kernels_.Copy(stream, PieceCopy(write, dim, p, n, from + p * write.bytes() / n, false)));
  }
  return absl::OkStatus();
}

absl::Status Communication::Run(DeviceStream stream, const ExchangeCall& call, const LaunchId& id) {
  const int64_t rank = endpoint_.rank();
  std::vector<const ExchangeCall::Part*> to_self;
  for (const ExchangeCall::Part& part : call.sends) {
    if (part.peer == rank) to_self.push_back(&part);
  }
  size_t from_self = 0;
  for (const ExchangeCall::Part& part : call.receives) {
    if (part.peer != rank) continue;
    if (from_self == to_self.size() || to_self[from_self]->view.bytes() != part.view.bytes()) {
      return absl::InternalError("what a rank sends to itself is not what it receives");
    }
    MESHWRIGHT_RETURN_IF_ERROR(CopyWhole(stream, to_self[from_self++]->view.data, part.view.data, part.view.bytes()));
  }
  const auto others = [&](const std::vector<ExchangeCall::Part>& parts) {
    return std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return part.peer != rank; });
  };
  if (id.communicator < 0 || (!others(call.sends) && !others(call.receives))) return absl::OkStatus();
  const PlannedCommunicator& planned = plan_.communicators[static_cast<size_t>(id.communicator)];
  const Communicator communicator = made_[static_cast<size_t>(id.communicator)].communicator;
  MESHWRIGHT_RETURN_IF_ERROR(OrderAfterLastUse(id.communicator, stream));
  return InGroup(communicator, [&] {
    for (const ExchangeCall::Part& part : call.sends) {
      if (part.peer == rank) continue;
      MESHWRIGHT_RETURN_IF_ERROR(driver_.Send(part.view.data, part.view.size(), part.view.dtype,
                                              planned.PositionOf(part.peer), communicator, stream));
    }
    for (const ExchangeCall::Part& part : call.receives) {
      if (part.peer == rank) continue;
      MESHWRIGHT_RETURN_IF_ERROR(driver_.Receive(part.view.data, part.view.size(), part.view.dtype,
                                                 planned.PositionOf(part.peer), communicator, stream));
    }
    return absl::OkStatus();
  });
}

}  // namespace meshwright::cuda
