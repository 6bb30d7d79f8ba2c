#include "executor/backend.h"

#include <variant>

#include "absl/strings/str_cat.h"

namespace meshwright {
namespace {

struct KindOfWork {
  absl::string_view operator()(const Compute& work) const { return NameOf(work.op); }
  absl::string_view operator()(const Collective& work) const { return NameOf(work.kind); }
  absl::string_view operator()(const Slice&) const { return "slice"; }
  absl::string_view operator()(const Permute&) const { return "permute"; }
  absl::string_view operator()(const Transfer& work) const { return work.send ? "send" : "receive"; }
  absl::string_view operator()(const Sync&) const { return "sync"; }
};

}  // namespace

std::string ToText(const Place& place) {
  return absl::StrCat("slot ", place.slot, " (", place.block, ", layer ", place.layer, ", micro-batch ",
                      place.microbatch, "), instruction ", place.instruction, " (", place.origin, ")");
}

absl::string_view TitleOf(const Instruction& instruction) {
  return instruction.origin.empty() ? std::visit(KindOfWork(), instruction.work) : instruction.origin;
}

}  // namespace meshwright
