#include "executor/host/host_backend.h"

#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "executor/call_operands.h"
#include "executor/collective_pieces.h"
#include "executor/host/kernels.h"
#include "executor/host/loop.h"
#include "ir/status.h"

namespace meshwright {
namespace {

// Copies piece `p` of `pieces` along `dim` to or from contiguous memory, and returns its bytes.
int64_t PackPiece(const TensorView& view, size_t dim, int64_t p, int64_t pieces, std::byte* to) {
  const AlongDim a(view, dim);
  const int64_t run = a.extent / pieces * a.inner;
  for (int64_t o = 0; o < a.outer; ++o) {
    std::memcpy(to + o * run, view.data + o * a.extent * a.inner + p * run, run);
  }
  return a.outer * run;
}
int64_t UnpackPiece(const TensorView& view, size_t dim, int64_t p, int64_t pieces, const std::byte* from) {
  const AlongDim a(view, dim);
  const int64_t run = a.extent / pieces * a.inner;
  for (int64_t o = 0; o < a.outer; ++o) {
    std::memcpy(view.data + o * a.extent * a.inner + p * run, from + o * run, run);
  }
  return a.outer * run;
}

int64_t PackWhole(const TensorView& view, std::byte* to) {
  std::memcpy(to, view.data, view.bytes());
  return view.bytes();
}
int64_t UnpackWhole(const TensorView& view, const std::byte* from) {
  std::memcpy(view.data, from, view.bytes());
  return view.bytes();
}

int64_t TotalBytes(absl::Span<const TensorView> views) {
  return std::accumulate(views.begin(), views.end(), int64_t{0},
                         [](int64_t sum, const TensorView& view) { return sum + view.bytes(); });
}

}  // namespace

absl::StatusOr<std::byte*> HostBackend::AllocateArena(Bytes size) {
  const size_t bytes = (static_cast<size_t>(size.raw()) + kAlignment - 1) / kAlignment * kAlignment;
  arena_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes == 0 ? kAlignment : bytes)));
  if (arena_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for an arena of ", size.raw(), " bytes"));
  }
  std::memset(arena_.get(), 0xff, static_cast<size_t>(size.raw()));
  return arena_.get();
}

absl::Status HostBackend::CopyIn(Stream, absl::Span<const std::byte> from, std::byte* to) {
  std::memcpy(to, from.data(), from.size());
  return absl::OkStatus();
}

absl::Status HostBackend::CopyOut(Stream, const std::byte* from, absl::Span<std::byte> to) {
  std::memcpy(to.data(), from, to.size());
  return absl::OkStatus();
}

absl::Status HostBackend::RunKernel(Stream, const KernelCall& call) { return RunHostKernel(call); }

absl::Status HostBackend::RunSlice(Stream, const TensorView& from, const TensorView& to) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t begin, BeginOfSlice(from, to));
  const Shape in = RowMajorStrides(from.shape), out = RowMajorStrides(to.shape);
  host::LoopNest<2> nest;
  for (size_t d = 0; d < in.size(); ++d) nest.Add(to.shape[d], {in[d], out[d]});
  const int64_t element = SizeOf(from.dtype).raw();
  nest.ForEachRow([&](const auto& at, int64_t n, const auto& step) {
    const std::byte* source = from.data + (begin + at[0]) * element;
    std::byte* target = to.data + at[1] * element;
    if (step[0] == 1 && step[1] == 1) {
      std::memcpy(target, source, n * element);
    } else {
      for (int64_t i = 0; i < n; ++i) {
        std::memcpy(target + i * step[1] * element, source + i * step[0] * element, element);
      }
    }
  });
  return absl::OkStatus();
}

absl::Status HostBackend::RunCollective(Stream, const CollectiveCall& call) {
  const absl::Status status = Communicate(call);
  if (status.ok() || absl::IsCancelled(status)) return status;
  return absl::Status(status.code(), absl::StrCat(NameOf(call.collective->kind), " over ranks ",
                                                  absl::StrJoin(call.group, "-"), ": ", status.message()));
}

absl::Status HostBackend::Communicate(const CollectiveCall& call) {
  const Collective& c = *call.collective;
  const GroupView group = {call.group, call.position};
  const int64_t n = group.size();
  if (call.reads.empty() || call.reads.size() != call.writes.size()) {
    return absl::InvalidArgumentError("a collective wants as many reads as writes, and at least one");
  }
  for (size_t i = 0; i < call.reads.size(); ++i) {
    MESHWRIGHT_RETURN_IF_ERROR(CheckPieces(c, n, call.reads[i], call.writes[i]));
    if (call.reads[i].dtype != call.reads[0].dtype) {
      return absl::InvalidArgumentError("one call reduces tensors of two types");
    }
  }
  const DType dtype = call.reads[0].dtype;
  std::vector<std::byte> in(TotalBytes(call.reads)), out(TotalBytes(call.writes));
  const int64_t in_bytes = static_cast<int64_t>(in.size()), out_bytes = static_cast<int64_t>(out.size());
  // What is sent: the tensors one after another; cut into the ranks' pieces first where these differ.
  const bool cut = c.kind == CollectiveKind::kReduceScatter || c.kind == CollectiveKind::kAllToAll;
  const size_t cut_dim = static_cast<size_t>(c.kind == CollectiveKind::kAllToAll ? c.to_dim : c.dim);
  std::byte* packed = in.data();
  for (int64_t p = 0; p < (cut ? n : 1); ++p) {
    for (const TensorView& view : call.reads) {
      packed += cut ? PackPiece(view, cut_dim, p, n, packed) : PackWhole(view, packed);
    }
  }
  switch (c.kind) {
    case CollectiveKind::kAllReduce:
      MESHWRIGHT_RETURN_IF_ERROR(
          AllReduce(endpoint_, group, dtype, c.reduction, in_bytes / SizeOf(dtype).raw(), in.data(), out.data()));
      break;
    case CollectiveKind::kAllGather:
      MESHWRIGHT_RETURN_IF_ERROR(AllGather(endpoint_, group, in_bytes, in.data(), out.data()));
      break;
    case CollectiveKind::kReduceScatter:
      MESHWRIGHT_RETURN_IF_ERROR(
          ReduceScatter(endpoint_, group, dtype, c.reduction, out_bytes / SizeOf(dtype).raw(), in.data(), out.data()));
      break;
    case CollectiveKind::kBroadcast:
      out = in;
      MESHWRIGHT_RETURN_IF_ERROR(Broadcast(endpoint_, group, call.root, absl::MakeSpan(out)));
      break;
    case CollectiveKind::kAllToAll:
      MESHWRIGHT_RETURN_IF_ERROR(AllToAll(endpoint_, group, in_bytes / n, in.data(), out.data()));
      break;
  }
  const bool joined = c.kind == CollectiveKind::kAllGather || c.kind == CollectiveKind::kAllToAll;
  const std::byte* unpacked = out.data();
  for (int64_t p = 0; p < (joined ? n : 1); ++p) {
    for (const TensorView& view : call.writes) {
      unpacked += joined ? UnpackPiece(view, static_cast<size_t>(c.dim), p, n, unpacked) : UnpackWhole(view, unpacked);
    }
  }
  return absl::OkStatus();
}

absl::Status HostBackend::RunExchange(Stream, const ExchangeCall& call) {
  const Channel channel = call.transfer ? Channel::kTransfer : Channel::kCollective;
  for (const ExchangeCall::Part& part : call.sends) {
    MESHWRIGHT_RETURN_IF_ERROR(
        endpoint_.Send(part.peer, channel, absl::MakeConstSpan(part.view.data, part.view.bytes())));
  }
  for (const ExchangeCall::Part& part : call.receives) {
    MESHWRIGHT_RETURN_IF_ERROR(
        endpoint_.Receive(part.peer, channel, absl::MakeSpan(part.view.data, part.view.bytes())));
  }
  return absl::OkStatus();
}

absl::Status HostBackend::Barrier() {
  std::vector<int64_t> all(endpoint_.num_ranks());
  std::iota(all.begin(), all.end(), 0);
  return meshwright::Barrier(endpoint_, {all, endpoint_.rank()});
}

absl::StatusOr<std::vector<std::string>> HostBackend::GatherAll(absl::string_view own) {
  return meshwright::GatherAll(endpoint_, own);
}

absl::Status HostBackend::StartClock() {
  marks_.clear();
  start_ = std::chrono::steady_clock::now();
  return absl::OkStatus();
}

absl::Status HostBackend::Mark(Stream) {
  const auto elapsed = std::chrono::steady_clock::now() - start_;
  marks_.push_back(Nanos(std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count()));
  return absl::OkStatus();
}

}  // namespace meshwright
