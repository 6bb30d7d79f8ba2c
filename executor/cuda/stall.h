// Who holds up a step that does not end: each rank says what it waits for, and all draw the same conclusion.
//
// The culprit is a rank that says nothing at all, else one that is in the middle of a kernel. Where there is none, all
// wait in communications, and the verdict says who waits for whom.
//
// Thread safety: pure functions, plain values.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_STALL_H_
#define MESHWRIGHT_EXECUTOR_CUDA_STALL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "executor/cuda/communicator_plan.h"

namespace meshwright::cuda {

// What one rank says; plain memory, sent as it is between processes of one build.
struct StallReport {
  struct Open {
    int64_t communicator = 0;  // index in the plan
    int64_t ordinal = 0;       // of this communicator's launches, on this rank
    bool started = false;      // what stands before it is done
  };
  static constexpr size_t kMaxOpen = 16;
  static constexpr size_t kTextSize = 256;

  int64_t step = 0;
  bool finished = false;  // has no work left: waits for the others at the start of a step
  bool busy = false;      // a kernel has started and is not done
  bool remote = false;    // was told that another rank failed
  int64_t num_open = 0;
  Open open[kMaxOpen] = {};  // communications that are not done, oldest first of each stream
  char text[kTextSize] =
      {};  // of an instruction that has started and is not done: "slot 5 (...), instruction 7 (matmul)"

  void SetText(absl::string_view value);
};

struct Verdict {
  std::vector<int64_t> culprits;  // in order; empty: nobody is to blame more than others
  std::string text;               // "rank 3 does not finish step 2, slot 5 (...), instruction 7 (matmul)"
};

// `reports[r]` is what rank r said, nothing where it did not answer.
Verdict Judge(const CommunicatorPlan& plan, absl::Span<const std::optional<StallReport>> reports);

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_STALL_H_
