#include "executor/host/communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/narrow_floats.h"
#include "ir/status.h"

namespace meshwright {
namespace {

// to = reduction of `to` and `from`.
template <class T>
void Combine(Reduction reduction, int64_t n, const T* from, T* to) {
  switch (reduction) {
    case Reduction::kSum:
      for (int64_t i = 0; i < n; ++i) to[i] += from[i];
      return;
    case Reduction::kMax:
      for (int64_t i = 0; i < n; ++i) to[i] = std::max(to[i], from[i]);
      return;
    case Reduction::kMin:
      for (int64_t i = 0; i < n; ++i) to[i] = std::min(to[i], from[i]);
      return;
    case Reduction::kProd:
      for (int64_t i = 0; i < n; ++i) to[i] *= from[i];
      return;
  }
}

// In float32, rounded after each summand, as links between ranks carry the narrow type.
absl::Status CombineNarrow(DType dtype, Reduction reduction, int64_t n, const std::byte* from, std::byte* to) {
  const auto* x = reinterpret_cast<const uint16_t*>(from);
  auto* y = reinterpret_cast<uint16_t*>(to);
  for (int64_t i = 0; i < n; ++i) {
    const float one = FromNarrow(dtype, x[i]);
    float sum = FromNarrow(dtype, y[i]);
    Combine(reduction, 1, &one, &sum);
    y[i] = ToNarrow(dtype, sum);
  }
  return absl::OkStatus();
}

absl::Status Combine(DType dtype, Reduction reduction, int64_t n, const std::byte* from, std::byte* to) {
  const auto typed = [&](auto zero) {
    using T = decltype(zero);
    Combine(reduction, n, reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to));
    return absl::OkStatus();
  };
  if (dtype == DType::kFloat32) return typed(float{});
  if (dtype == DType::kFloat64) return typed(double{});
  if (IsNarrow(dtype)) return CombineNarrow(dtype, reduction, n, from, to);
  if (dtype == DType::kInt32) return typed(int32_t{});
  if (dtype == DType::kInt64) return typed(int64_t{});
  return absl::UnimplementedError(
      absl::StrCat("the host reduces floating types of 16 bits or more, int32 and int64, not ", NameOf(dtype)));
}

// Elements [begin, end) of `count` that the member at `position` of `members` reduces.
struct Share {
  int64_t begin, end;
  Share(int64_t count, int64_t members, int64_t position)
      : begin(count * position / members), end(count * (position + 1) / members) {}
  int64_t size() const { return end - begin; }
};

// Sends piece(p) to every other member p.
template <class PieceOf>
absl::Status SendAll(Endpoint& self, const GroupView& group, const PieceOf& piece) {
  for (int64_t step = 1; step < group.size(); ++step) {
    const int64_t p = (group.position + step) % group.size();
    MESHWRIGHT_RETURN_IF_ERROR(self.Send(group.ranks[p], Channel::kCollective, piece(p)));
  }
  return absl::OkStatus();
}

// Receives this member's elements from all others and reduces them, its own included, in the order of the group.
absl::Status ReduceInOrder(Endpoint& self, const GroupView& group, DType dtype, Reduction reduction, int64_t count,
                           const std::byte* own, std::byte* to) {
  const int64_t bytes = count * SizeOf(dtype).raw();
  std::vector<std::byte> received(bytes), result(bytes);
  for (int64_t p = 0; p < group.size(); ++p) {
    const std::byte* from = own;
    if (p != group.position) {
      MESHWRIGHT_RETURN_IF_ERROR(self.Receive(group.ranks[p], Channel::kCollective, absl::MakeSpan(received)));
      from = received.data();
    }
    if (p == 0) {
      std::copy_n(from, bytes, result.begin());
    } else {
      MESHWRIGHT_RETURN_IF_ERROR(Combine(dtype, reduction, count, from, result.data()));
    }
  }
  std::copy(result.begin(), result.end(), to);
  return absl::OkStatus();
}

}  // namespace

absl::Status AllReduce(Endpoint& self, const GroupView& group, DType dtype, Reduction reduction, int64_t count,
                       const std::byte* from, std::byte* to) {
  const int64_t element = SizeOf(dtype).raw();
  const auto share = [&](int64_t p) { return Share(count, group.size(), p); };
  MESHWRIGHT_RETURN_IF_ERROR(SendAll(self, group, [&](int64_t p) {
    return absl::MakeConstSpan(from + share(p).begin * element, share(p).size() * element);
  }));
  const Share own = share(group.position);
  std::byte* result = to + own.begin * element;
  MESHWRIGHT_RETURN_IF_ERROR(
      ReduceInOrder(self, group, dtype, reduction, own.size(), from + own.begin * element, result));
  MESHWRIGHT_RETURN_IF_ERROR(
      SendAll(self, group, [&](int64_t) { return absl::MakeConstSpan(result, own.size() * element); }));
  for (int64_t p = 0; p < group.size(); ++p) {
    if (p == group.position) continue;
    const Share theirs = share(p);
    MESHWRIGHT_RETURN_IF_ERROR(self.Receive(group.ranks[p], Channel::kCollective,
                                            absl::MakeSpan(to + theirs.begin * element, theirs.size() * element)));
  }
  return absl::OkStatus();
}

absl::Status AllGather(Endpoint& self, const GroupView& group, int64_t piece, const std::byte* from, std::byte* to) {
  MESHWRIGHT_RETURN_IF_ERROR(SendAll(self, group, [&](int64_t) { return absl::MakeConstSpan(from, piece); }));
  for (int64_t p = 0; p < group.size(); ++p) {
    std::byte* const place = to + p * piece;
    if (p != group.position) {
      MESHWRIGHT_RETURN_IF_ERROR(self.Receive(group.ranks[p], Channel::kCollective, absl::MakeSpan(place, piece)));
    } else if (place != from) {
      std::memcpy(place, from, piece);
    }
  }
  return absl::OkStatus();
}

absl::Status ReduceScatter(Endpoint& self, const GroupView& group, DType dtype, Reduction reduction, int64_t count,
                           const std::byte* from, std::byte* to) {
  const int64_t piece = count * SizeOf(dtype).raw();
  MESHWRIGHT_RETURN_IF_ERROR(
      SendAll(self, group, [&](int64_t p) { return absl::MakeConstSpan(from + p * piece, piece); }));
  return ReduceInOrder(self, group, dtype, reduction, count, from + group.position * piece, to);
}

absl::Status Broadcast(Endpoint& self, const GroupView& group, int64_t root, absl::Span<std::byte> data) {
  if (group.position != root) return self.Receive(group.ranks[root], Channel::kCollective, data);
  return SendAll(self, group, [&](int64_t) { return absl::Span<const std::byte>(data); });
}

absl::Status AllToAll(Endpoint& self, const GroupView& group, int64_t piece, const std::byte* from, std::byte* to) {
  MESHWRIGHT_RETURN_IF_ERROR(
      SendAll(self, group, [&](int64_t p) { return absl::MakeConstSpan(from + p * piece, piece); }));
  for (int64_t p = 0; p < group.size(); ++p) {
    if (p == group.position) {
      std::memcpy(to + p * piece, from + p * piece, piece);
    } else {
      MESHWRIGHT_RETURN_IF_ERROR(
          self.Receive(group.ranks[p], Channel::kCollective, absl::MakeSpan(to + p * piece, piece)));
    }
  }
  return absl::OkStatus();
}

absl::Status Barrier(Endpoint& self, const GroupView& group) {
  MESHWRIGHT_RETURN_IF_ERROR(SendAll(self, group, [](int64_t) { return absl::Span<const std::byte>(); }));
  for (int64_t p = 0; p < group.size(); ++p) {
    if (p == group.position) continue;
    MESHWRIGHT_RETURN_IF_ERROR(self.Receive(group.ranks[p], Channel::kCollective, {}));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> GatherAll(Endpoint& self, absl::string_view own) {
  const int64_t n = self.num_ranks();
  std::vector<int64_t> ranks(static_cast<size_t>(n));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<uint64_t> sizes(ranks.size());
  const uint64_t own_size = own.size();
  MESHWRIGHT_RETURN_IF_ERROR(AllGather(self, {ranks, self.rank()}, sizeof(own_size),
                                       reinterpret_cast<const std::byte*>(&own_size),
                                       reinterpret_cast<std::byte*>(sizes.data())));
  for (int64_t to = 0; to < n; ++to) {
    if (to == self.rank()) continue;
    MESHWRIGHT_RETURN_IF_ERROR(self.Send(
        to, Channel::kReport, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(own.data()), own.size())));
  }
  std::vector<std::string> all(ranks.size());
  for (int64_t from = 0; from < n; ++from) {
    std::string& text = all[static_cast<size_t>(from)];
    if (from == self.rank()) {
      text = std::string(own);
      continue;
    }
    text.resize(sizes[static_cast<size_t>(from)]);
    MESHWRIGHT_RETURN_IF_ERROR(
        self.Receive(from, Channel::kReport, absl::MakeSpan(reinterpret_cast<std::byte*>(text.data()), text.size())));
  }
  return all;
}

}  // namespace meshwright
