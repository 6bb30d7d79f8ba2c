// What the collectives of a program's step are, as text, for the rows F13 to F23. For tests only.
#ifndef MESHWRIGHT_TESTS_SEMANTICS_CALLS_H_
#define MESHWRIGHT_TESTS_SEMANTICS_CALLS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ir/program.h"

namespace meshwright {

// The groups over `axes` of the ranks of stage 0, by their first rank: "{0,4} {1,5}".
std::string GroupsOf(const Program& program, const AxisList& axes);

// The calls of one step of class 0, in order of issue: "all_reduce {0,4} {1,5}: dw dw2".
std::vector<std::string> CallsOf(const Program& program, Purpose purpose);

// How many tensors each of them carries.
std::vector<int64_t> SizesOfCalls(const Program& program, Purpose purpose);

// The buffer of that name, of class 0; ends the process where there is none.
const Buffer& BufferNamed(const Program& program, absl::string_view name);

// The rows of dim 0 that a rank holds of it: "98:196".
std::string RowsOf(const Program& program, absl::string_view buffer, int64_t rank);

}  // namespace meshwright

#endif  // MESHWRIGHT_TESTS_SEMANTICS_CALLS_H_
