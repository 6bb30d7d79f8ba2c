// The name of a group of ranks that the planner made: "4-11795743325248501408" (S2.4).
//
// Thread safety: pure function.
#ifndef MESHWRIGHT_IR_GROUP_NAME_H_
#define MESHWRIGHT_IR_GROUP_NAME_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace meshwright {

// Its size and a hash of the ranks in their order: the same on every member, whoever asks. The hash is 64-bit FNV-1a
// (Fowler, Noll and Vo) over the ranks as 8 bytes each, the lowest first.
std::string GroupName(absl::Span<const int64_t> ranks);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_GROUP_NAME_H_
