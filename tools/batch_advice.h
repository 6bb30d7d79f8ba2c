// What a user may change where a batch and the devices do not divide.
//
// Thread safety: a pure function.
#ifndef MESHWRIGHT_TOOLS_BATCH_ADVICE_H_
#define MESHWRIGHT_TOOLS_BATCH_ADVICE_H_

#include <cstdint>
#include <string>

#include "tools/session.h"

namespace meshwright {

// Of a decoder's plan that shares the batch by as many devices as divide both, where that is not all of them, and the
// batch is large enough: which batches would leave more plans. Else "". `data_parallel`: of the plan.
std::string AdviceOnBatch(const Session& session, int64_t data_parallel);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_BATCH_ADVICE_H_
