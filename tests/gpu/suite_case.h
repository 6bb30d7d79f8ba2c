// A program of the semantics suite with the losses that the host found for it: what tests write
// (tests/semantics/play.h) and a machine with a GPU, which has neither the suite nor a planner, plays again.
//
//   ranks 8 steps 6 batches 1 seed 1 data 1      of RunOptions, and of SyntheticData
//   losses 0.28401233 0.279...                   shortest text that gives the same doubles
//   program oracle_b mesh ...                    as ir/program_text.h has it
#ifndef MESHWRIGHT_TESTS_GPU_SUITE_CASE_H_
#define MESHWRIGHT_TESTS_GPU_SUITE_CASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "executor/runner.h"
#include "ir/program.h"

namespace meshwright {

struct SuiteCase {
  RunOptions options;  // steps, batches and seed
  uint64_t data_seed = 1;
  std::vector<double> losses;
  Program program;
};

std::string ToText(const SuiteCase& suite_case);
// kInvalidArgument names the line.
absl::StatusOr<SuiteCase> ParseSuiteCase(const std::string& text);

// kDataLoss names the first loss that differs by more than the order of sums explains: 1e-9 of its size in float64,
// 1e-4 in float32, 3e-2 where there is a 16-bit buffer (2^-8 for each rounding of bfloat16, some of which add up).
absl::Status CompareLosses(const SuiteCase& suite_case, absl::Span<const double> found);

}  // namespace meshwright

#endif  // MESHWRIGHT_TESTS_GPU_SUITE_CASE_H_
