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

// The network, data and momentum update of the reference's oracle S18.1 at learning rate 0.4, with float64 buffers.

// On one rank.
extern const char kOracleOneRank[];
// On 8 ranks, 2 rows each. Local losses are means over the local rows, gradients are summed and multiplied by $0: 1 is
// "gradients_mean False", 0.125 is one rank's training.
extern const char kOracleDataParallel[];
// On 4 ranks that split the first product's contracted dim.
extern const char kOracleTensorParallel[];
// On 2 stages of 2 ranks, 4 micro-batches: all forward, then all backward.
extern const char kOraclePipeline[];

// 8 ranks; rank 7 fails in its third instruction, the others then wait for it.
extern const char kOneRankFails[];

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_TESTING_H_
