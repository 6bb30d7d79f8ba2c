// What kind of work a kernel does, by its name: for traces of frameworks, whose kernels have no other mark.
//
// Names are those that CUPTI reports, demangled; letter case does not count. The rows of kKernelNames in the .cc are
// tried in their order, the first that is in the name counts. What no row knows is kOther.
//
// Thread safety: constants and pure functions.
#ifndef MESHWRIGHT_TOOLS_PROFILE_KERNEL_KINDS_H_
#define MESHWRIGHT_TOOLS_PROFILE_KERNEL_KINDS_H_

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "absl/strings/string_view.h"
#include "ir/program.h"

namespace meshwright {

enum class WorkKind : uint8_t {
  kProduct,
  kAttention,
  kLinearAttention,
  kNorm,
  kLoss,
  kElementwise,
  kTable,
  kOptimizer,
  kCommunication,
  kOther,
};
struct WorkKindInfo {
  WorkKind kind;
  absl::string_view name;  // as reports spell it
};
inline constexpr WorkKindInfo kWorkKinds[] = {
    {WorkKind::kProduct, "matrix products"},
    {WorkKind::kAttention, "attention"},
    {WorkKind::kLinearAttention, "linear attention"},    // and state spaces, with their convolutions
    {WorkKind::kNorm, "norms"},                          // LayerNorm, RMSNorm
    {WorkKind::kLoss, "softmax and loss"},               // and cross entropy
    {WorkKind::kElementwise, "elementwise and copies"},  // activations, sums, casts, fills, memcpy
    {WorkKind::kTable, "embedding and routing"},         // rows that indices name: of tables, of tokens to experts
    {WorkKind::kOptimizer, "optimizer"},                 // and norms and scales of gradients
    {WorkKind::kCommunication, "communication"},         // of all kinds, waits for others inside of it
    {WorkKind::kOther, "other"},
};
inline constexpr size_t kNumWorkKinds = std::size(kWorkKinds);

constexpr bool WorkKindRowsAreInOrder() {
  for (size_t i = 0; i < kNumWorkKinds; ++i) {
    if (kWorkKinds[i].kind != static_cast<WorkKind>(i)) return false;
  }
  return kNumWorkKinds == static_cast<size_t>(WorkKind::kOther) + 1;
}
static_assert(WorkKindRowsAreInOrder(), "kWorkKinds needs one row per WorkKind, in the enum's order");

constexpr absl::string_view NameOf(WorkKind kind) { return kWorkKinds[static_cast<size_t>(kind)].name; }

// What communicates: the collectives of programs, and what is none of them.
enum class CallKind : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kAllToAll,
  kSendReceive,  // a transfer between stages, a permutation
  kOtherCall,    // reduce to one rank, gather, barrier; a kernel that does not say
};
absl::string_view NameOf(CallKind kind);  // "all_reduce", "send_receive"
CallKind CallOf(CollectiveKind kind);

struct KernelKind {
  WorkKind work = WorkKind::kOther;
  CallKind call = CallKind::kOtherCall;  // of communication
};
KernelKind KindOfKernel(absl::string_view name);

// Of a collective as PyTorch names it beside the kernel: "_allgather_base". kOtherCall: of none that is known.
CallKind CallOfPyTorch(absl::string_view collective);
// Bytes of an element, by PyTorch's name of its type: "BFloat16". 0: not known.
int64_t BytesOfPyTorch(absl::string_view dtype);

// What an instruction of a program counts as. `optimizer`: it stands in a block that holds an optimizer op.
// Communication is kCommunication.
WorkKind KindOfInstruction(const Instruction& instruction, bool optimizer);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_PROFILE_KERNEL_KINDS_H_
