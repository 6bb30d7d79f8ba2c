#include "executor/backend.h"

#include "absl/strings/str_cat.h"

namespace meshwright {

std::string ToText(const Place& place) {
  return absl::StrCat("slot ", place.slot, " (", place.block, ", layer ", place.layer, ", micro-batch ",
                      place.microbatch, "), instruction ", place.instruction, " (", place.origin, ")");
}

}  // namespace meshwright
