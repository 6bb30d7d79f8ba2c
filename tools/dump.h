// --dump: the values between a model file and a run, in their text forms.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_DUMP_H_
#define MESHWRIGHT_TOOLS_DUMP_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "ir/strategy.h"
#include "planner/search/problem.h"
#include "tools/flags.h"

namespace meshwright {

class DumpRequest {
 public:
  // From the flag --dump: graph, strategy, program or rankN. Nothing is wanted where it was not given.
  static absl::StatusOr<DumpRequest> Parse(const Flags& flags);

  bool wanted() const { return what_ != What::kNothing; }
  // graph: the forward graph of a micro-batch. rankN: what rank N runs, with the shapes of its own pieces.
  absl::StatusOr<std::string> Show(const Problem& problem, const Strategy& strategy) const;

 private:
  enum class What : uint8_t { kNothing, kGraph, kStrategy, kProgram, kRank };
  What what_ = What::kNothing;
  int64_t rank_ = 0;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_DUMP_H_
