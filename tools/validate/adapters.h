// What low-rank adapters beside frozen products take that our programs do not have: PEFT's layers, which Hugging Face's
// models are trained with. Others (NeMo's: AddQueryCopies in framework.h) have layers of their own.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_ADAPTERS_H_
#define MESHWRIGHT_TOOLS_VALIDATE_ADAPTERS_H_

#include <string>

#include "models/decoder.h"
#include "simulator/price.h"
#include "tools/validate/framework.h"

namespace meshwright {

// What is moved for each element of a weight of 4 bits when a product reads it. bitsandbytes reads it with its part of
// a scale and writes the weight of 16 bits that the product reads (autograd/_functions.py, MatMul4Bit, forward and
// backward). AutoGPTQ's layers take one operator after the other (nn_modules/qlinear/qlinear_cuda.py, forward, where
// there are 128 rows and more): bits shifted into integers 0.5+4, cast 4+1, masked 1+1, less the zero 1+1, times the
// scale 1+2; autograd keeps what the product read, so that of the two reads of a layer that is run again in the
// backward pass one does that, and of others none.
EagerBytes UnpackedWeights(bool gptq, bool recomputes);

// Adds to `host` what adapters move, bytes an element of a layer's queries, and the operators that the CPU issues
// beside each product. `quantized`: weights of 4 bits, under which nothing is cast. Nothing where the framework is not
// Hugging Face's. REQUIRES: weights are frozen.
void AddAdapters(const Framework& framework, const DecoderConfig& model, bool quantized, HostPace* host);

// Bytes of a token and layer that adapters keep for the backward pass: of each product's input what their dropout left,
// 2, and its mask, 1 (peft/tuners/lora/layer.py; litgpt/lora.py).
double AdaptersKeep(const Framework& framework, const DecoderConfig& model);

// How many parameters the adapters of a model have, of the rank that `options` names ("rank 64", "r=16",
// "lora_rank: 16"): a product of so many inputs and results has as many of either for each of the rank.
double AdapterParameters(const Framework& framework, const DecoderConfig& model, const std::string& options);

// Those of all experts but one, which is among AdapterParameters: where all products have adapters and each expert has
// products of its own, as Megatron's grouped ones are (modelscope/ms-swift, swift/megatron/utils/utils.py) and those of
// layers that loop.
double ExpertAdapterParameters(const Framework& framework, const DecoderConfig& model, const std::string& options);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_ADAPTERS_H_
