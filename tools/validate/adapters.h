// What low-rank adapters beside frozen products take that our programs do not have: PEFT's layers, which Hugging Face's
// models are trained with. Others (NeMo's: AddQueryCopies in framework.h) have layers of their own.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_ADAPTERS_H_
#define MESHWRIGHT_TOOLS_VALIDATE_ADAPTERS_H_

#include "models/decoder.h"
#include "simulator/price.h"
#include "tools/validate/framework.h"

namespace meshwright {

// Adds to `host` what adapters move, bytes an element of a layer's queries, and the operators that the CPU issues
// beside each product. Nothing where the framework is not Hugging Face's. REQUIRES: weights are frozen.
void AddAdapters(const Framework& framework, const DecoderConfig& model, HostPace* host);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_ADAPTERS_H_
