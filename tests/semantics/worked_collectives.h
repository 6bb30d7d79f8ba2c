// What each rank of a job of eight checks, however the job was launched: the worked values of S3.9, the derivatives of
// S3.8, ranks and groups (S2.1 to S2.5). An error names the first value that is not as it should be.
#ifndef MESHWRIGHT_TESTS_SEMANTICS_WORKED_COLLECTIVES_H_
#define MESHWRIGHT_TESTS_SEMANTICS_WORKED_COLLECTIVES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "executor/manual/context.h"

namespace meshwright::manual {

// REQUIRES, for all three: the context is not initialised yet; the job has eight ranks.
absl::Status CheckWorkedValues(Context& context);
absl::Status CheckDerivatives(Context& context, uint64_t seed);
absl::Status CheckGroups(Context& context);

}  // namespace meshwright::manual

#endif  // MESHWRIGHT_TESTS_SEMANTICS_WORKED_COLLECTIVES_H_
