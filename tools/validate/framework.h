// What the framework behind a row is known to do, by words of the row: which of its kernels are fused, which attention
// it calls, how it talks. Sources stand beside each habit in framework.cc: a framework's documentation, code or
// recipes.
//
// Thread safety: plain values, pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_FRAMEWORK_H_
#define MESHWRIGHT_TOOLS_VALIDATE_FRAMEWORK_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/cluster.h"
#include "ir/strategy.h"
#include "simulator/price.h"
#include "tools/validate/csv.h"

namespace meshwright {

struct Framework {
  bool eager = true;  // issues kernels one by one, from Python
  bool fused_attention = true, fused_loss = false, fused_norms = false;
  bool split_gates = false;         // a kernel for each step of a gate
  std::set<std::string> fused_ops;  // of a layer, which the row says are one kernel each
  absl::string_view attention;      // kernel, where the row or the framework names one: costmodel/library.h
  bool transformer_engine = false;
  bool nemo_recipes = false;    // NeMo's and Megatron-Bridge's: what they switch on, hold and reduce
  bool packs_examples = false;  // fine-tuning of NeMo's: a row holds several, each with attention of its own
  bool nanotron = false, early_nanotron = false;
  bool deepspeed = false;
  bool in_place_loss = false;   // writes the gradient where the logits were
  bool wide_residuals = false;  // in float32
  bool caching = true;          // takes memory from PyTorch's allocator
  bool early_zero3 = false;     // DeepSpeed's of 2021
  bool huggingface = false;
  bool early_nccl = false;      // before 2.22
  bool untuned_nccl = false;    // before 2.19
  bool pads_vocabulary = true;  // so that products divide it, and tensor parallelism; else what is left over is cut off
  double misaligned_attention = 0;  // KernelConstants'
  bool dropout = false;             // of attention's scores and of what is added to the residual stream
  bool narrow_gradients = false;    // held and reduced in 16 bits
  bool cuts_queries = false;        // and keys and values out of one matrix, with copies
  bool autocast = false;            // weights and gradients in float32, cast where an operator takes 16 bits
  bool checkpoints_stop = true;     // PyTorch's, where they are not reentrant: when backward has what it reads
  bool whole_graphs = false;        // a CUDA graph holds all of a step
  bool float8_experts = false;      // products of experts, too, where the others are in float8
  bool neighbour_experts = false;   // a token's experts are neighbours
  Dispatcher dispatcher = Dispatcher::kAllToAll;
  HostPace host;  // but for the time to issue, and what depends on the type of the numbers
};

// `sequence`: of the row, where it has none the default.
Framework FrameworkOf(const CsvCells& cells, int64_t sequence);

// Whether ZeRO, of the kind that the column zero_fsdp names, moves each tensor by a call of its own.
bool CallsEachTensor(const CsvCells& cells, const Framework& framework);

// Adds what is copied of queries, keys and values between products and fused attention, in bytes an element of the
// queries. `frozen`: weights have adapters. `keys`: elements of keys, and of values, for each.
void AddQueryCopies(const Framework& framework, bool frozen, double keys, EagerBytes* queries);

// Whether the column `attention` is empty or has a word that says what attention is.
bool NamesAttention(const CsvCells& cells);

// What a kernel with dropout takes beyond the `moved` bytes an element that it streams, in bytes an element: it draws a
// random number for each, and where that takes longer than to move it, the difference.
double DropoutBytes(const Device& device, double moved);
// The same of a score in fused attention, which moves none.
double FusedDropoutBytes(const Device& device);

// Whether the lower-case `text` holds one of `words`.
bool HasAny(absl::string_view text, absl::Span<const absl::string_view> words);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_FRAMEWORK_H_
