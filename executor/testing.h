// What tests need to run hand-written programs. For tests only.
#ifndef MESHWRIGHT_EXECUTOR_TESTING_H_
#define MESHWRIGHT_EXECUTOR_TESTING_H_

#include "absl/strings/string_view.h"
#include "ir/program.h"

namespace meshwright {

// Gives every buffer a place of its own in its class's arena, one after another; aliases share the place of their
// buffer. No planning: nothing is reused.
void PlaceBuffers(Program& program);

// Stores every floating buffer in this type.
void SetPrecision(Program& program, DType dtype);

// ParseProgram, SetPrecision and PlaceBuffers; a text that is no program ends the process.
Program ProgramFromText(absl::string_view text, DType precision = DType::kFloat64);

// S18.1's network, data and momentum update on one rank (parallel-semantics section 18.1), learning rate 0.4.
extern const char kOracleOneRank[];

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_TESTING_H_
