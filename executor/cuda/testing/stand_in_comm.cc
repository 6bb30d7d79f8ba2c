#include "executor/cuda/testing/stand_in_comm.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "executor/narrow_floats.h"

namespace meshwright::cuda::testing {
namespace {

const char* NameOf(CallKind kind) {
  static const char* const kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "send", "receive"};
  return kNames[static_cast<size_t>(kind)];
}

std::string ToText(const CommCall& call) {
  return absl::StrCat(NameOf(call.kind), " of ", call.count, " ", meshwright::NameOf(call.dtype), " ",
                      meshwright::NameOf(call.reduction), " ", call.peer);
}

template <class T>
void Combine(Reduction reduction, int64_t n, const std::byte* from, std::byte* to) {
  const T* x = reinterpret_cast<const T*>(from);
  T* y = reinterpret_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) {
    if (reduction == Reduction::kSum) y[i] += x[i];
    if (reduction == Reduction::kMax) y[i] = std::max(y[i], x[i]);
    if (reduction == Reduction::kMin) y[i] = std::min(y[i], x[i]);
    if (reduction == Reduction::kProd) y[i] *= x[i];
  }
}

void CombineNarrow(Reduction reduction, DType dtype, int64_t n, const std::byte* from, std::byte* to) {
  const uint16_t* x = reinterpret_cast<const uint16_t*>(from);
  uint16_t* y = reinterpret_cast<uint16_t*>(to);
  for (int64_t i = 0; i < n; ++i) {
    const float a = FromNarrow(dtype, x[i]);
    float b = FromNarrow(dtype, y[i]);
    Combine<float>(reduction, 1, reinterpret_cast<const std::byte*>(&a), reinterpret_cast<std::byte*>(&b));
    y[i] = ToNarrow(dtype, b);
  }
}

// The members' pieces [at, at + count) reduced in their order.
std::vector<std::byte> Reduce(const std::vector<std::pair<CommMember*, CommCall*>>& calls, int64_t at, int64_t count) {
  const CommCall& first = *calls[0].second;
  const int64_t element = SizeOf(first.dtype).raw();
  std::vector<std::byte> sum(first.from + at * element, first.from + (at + count) * element);
  for (size_t m = 1; m < calls.size(); ++m) {
    const std::byte* const from = calls[m].second->from + at * element;
    if (IsNarrow(first.dtype)) CombineNarrow(first.reduction, first.dtype, count, from, sum.data());
    if (first.dtype == DType::kFloat64) Combine<double>(first.reduction, count, from, sum.data());
    if (first.dtype == DType::kFloat32) Combine<float>(first.reduction, count, from, sum.data());
    if (first.dtype == DType::kInt32) Combine<int32_t>(first.reduction, count, from, sum.data());
    if (first.dtype == DType::kInt64) Combine<int64_t>(first.reduction, count, from, sum.data());
  }
  return sum;
}

void Write(std::byte* to, const std::vector<std::byte>& from) { std::copy(from.begin(), from.end(), to); }

// All members' calls of one number, in order of position.
void Do(std::vector<std::pair<CommMember*, CommCall*>>& calls) {
  const CommCall first = *calls[0].second;
  const int64_t n = static_cast<int64_t>(calls.size());
  std::vector<std::vector<std::byte>> results(n);
  for (int64_t m = 0; m < n; ++m) {
    switch (first.kind) {
      case CallKind::kAllReduce:
        results[m] = Reduce(calls, 0, first.count);
        break;
      case CallKind::kReduceScatter:
        results[m] = Reduce(calls, m * first.count, first.count);
        break;
      case CallKind::kAllGather:
        for (const auto& [member, call] : calls) {
          results[m].insert(results[m].end(), call->from, call->from + call->bytes());
        }
        break;
      case CallKind::kBroadcast: {
        const CommCall& root = *calls[static_cast<size_t>(first.peer)].second;
        results[m].assign(root.from, root.from + root.bytes());
        break;
      }
      case CallKind::kSend:
      case CallKind::kReceive:
        break;
    }
  }
  for (int64_t m = 0; m < n; ++m) {
    Write(calls[m].second->to, results[m]);
    calls[m].second->done = true;
  }
}

std::string MeetCollective(CommLaunch& launch, CommCall& call) {
  CommGroup& group = *launch.member->group;
  const int64_t number = launch.member->collectives++;
  auto& calls = group.collectives[number];
  calls.emplace_back(launch.member, &call);
  const CommCall& first = *calls[0].second;
  if (call.kind != first.kind || call.count != first.count || call.dtype != first.dtype ||
      call.reduction != first.reduction || call.peer != first.peer) {
    group.broken = true;
    return absl::StrCat("call ", number, " of a communicator is ", ToText(first), " on device ", calls[0].first->device,
                        " and ", ToText(call), " on device ", launch.member->device);
  }
  if (calls.size() < group.members.size()) return "";
  std::sort(calls.begin(), calls.end(),
            [](const auto& a, const auto& b) { return a.first->position < b.first->position; });
  Do(calls);
  group.collectives.erase(number);
  return "";
}

std::string MeetMessage(CommLaunch& launch, CommCall& call) {
  CommGroup& group = *launch.member->group;
  const bool send = call.kind == CallKind::kSend;
  const int64_t own = launch.member->position;
  const std::pair<int64_t, int64_t> way = send ? std::pair(own, call.peer) : std::pair(call.peer, own);
  (send ? group.sends : group.receives)[way].push_back(&call);
  std::deque<CommCall*>&sends = group.sends[way], &receives = group.receives[way];
  while (!sends.empty() && !receives.empty()) {
    CommCall &from = *sends.front(), &to = *receives.front();
    if (from.bytes() != to.bytes() || from.dtype != to.dtype) {
      group.broken = true;
      return absl::StrCat("member ", way.first, " sends ", ToText(from), ", member ", way.second, " receives ",
                          ToText(to));
    }
    std::memmove(to.to, from.from, static_cast<size_t>(from.bytes()));
    from.done = to.done = true;
    sends.pop_front();
    receives.pop_front();
  }
  return "";
}

}  // namespace

int64_t CommCall::read_bytes(int64_t members) const {
  return kind == CallKind::kReceive ? 0 : bytes() * (kind == CallKind::kReduceScatter ? members : 1);
}
int64_t CommCall::write_bytes(int64_t members) const {
  return kind == CallKind::kSend ? 0 : bytes() * (kind == CallKind::kAllGather ? members : 1);
}

bool CommLaunch::done() const {
  return std::all_of(calls.begin(), calls.end(), [](const CommCall& call) { return call.done; });
}

std::string CheckCall(const CommCall& call, int64_t position, int64_t members) {
  if (call.kind == CallKind::kSend || call.kind == CallKind::kReceive || call.kind == CallKind::kBroadcast) {
    if (call.peer < 0 || call.peer >= members) return absl::StrCat(ToText(call), ": there is no such member");
  }
  const int64_t reads = call.read_bytes(members), writes = call.write_bytes(members);
  if (reads == 0 || writes == 0 || call.from >= call.to + writes || call.to >= call.from + reads) return "";
  bool in_place = call.from == call.to;
  if (call.kind == CallKind::kAllGather) in_place = call.from == call.to + position * call.bytes();
  if (call.kind == CallKind::kReduceScatter) in_place = call.to == call.from + position * call.bytes();
  return in_place ? "" : absl::StrCat(ToText(call), " shares memory, and not as a call in place does");
}

std::string Arrive(CommLaunch& launch) {
  launch.arrived = true;
  for (CommCall& call : launch.calls) {
    const bool message = call.kind == CallKind::kSend || call.kind == CallKind::kReceive;
    std::string wrong = message ? MeetMessage(launch, call) : MeetCollective(launch, call);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

void Split(CommMember& parent, int64_t color, int64_t key, CommMember* made) {
  CommGroup& group = *parent.group;
  const int64_t number = parent.splits++;
  auto& calls = group.splits[number];
  calls[parent.position] = {color, key, made};
  if (calls.size() < group.members.size()) return;
  std::map<int64_t, std::vector<std::pair<int64_t, CommMember*>>> colors;  // calls are in order of position
  for (const auto& [position, call] : calls) {
    if (call.made != nullptr) colors[call.color].emplace_back(call.key, call.made);
  }
  for (auto& [unused, members] : colors) {
    std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    const auto made_group = std::make_shared<CommGroup>();
    for (const auto& [k, member] : members) {
      member->position = static_cast<int64_t>(made_group->members.size());
      made_group->members.push_back(member);
    }
    for (const auto& [k, member] : members) member->group = made_group;
  }
  group.splits.erase(number);
}

}  // namespace meshwright::cuda::testing
