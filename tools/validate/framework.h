// What the framework behind a row is known to do: which of its kernels are fused, which attention it calls, how it
// talks. It is known by words of the row (signs.h); what each release does is a row of the table in releases.cc, with
// its source: a framework's documentation, code or recipes.
//
// Thread safety: plain values, pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_FRAMEWORK_H_
#define MESHWRIGHT_TOOLS_VALIDATE_FRAMEWORK_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "ir/cluster.h"
#include "ir/strategy.h"
#include "models/decoder.h"
#include "simulator/price.h"
#include "tools/validate/csv.h"
#include "tools/validate/signs.h"

namespace meshwright {

// Without a release that says otherwise: compiled or captured, with fused attention.
struct Framework {
  SignSet signs;       // by which it is known
  bool eager = false;  // issues kernels one by one, from Python
  bool fused_attention = true, fused_loss = true, fused_norms = true;
  bool names_attention = false;     // the column is empty or has a word that says what attention is
  bool split_gates = false;         // a kernel for each step of a gate
  std::set<std::string> fused_ops;  // of a layer, which the row says are one kernel each
  absl::string_view attention;      // kernel, where the row or the framework names one: costmodel/library.h
  bool packs_examples = false;      // fine-tuning: a row holds several, each with attention of its own
  bool weighs_inside = false;       // as FrameworkCopies has it (costmodel/memory_overheads.h)
  bool scans_again = false;         // as it has it, too
  bool keeps_gathered = false;      // inputs that tensor parallelism gathered, for the backward pass
  bool in_place_loss = false;       // writes the gradient where the logits were
  bool wide_residuals = false;      // in float32
  bool caching = true;              // takes memory from PyTorch's allocator
  bool early_zero3 = false;         // DeepSpeed's of 2021
  bool calls_each_tensor = false;   // ZeRO moves each by a call of its own
  bool reduces_afterwards = false;  // gradients, behind the last micro-batch
  // FSDP with stages or experts: parameters and gradients, from the first micro-batch of a step to the last.
  bool keeps_whole = false;
  // Elements of gradients in a call: so many, or so many for each replica, if that is more; 0: as plans have it.
  int64_t bucket = 0, bucket_of_replica = 0;
  bool early_nccl = false;      // before 2.22
  bool untuned_nccl = false;    // before 2.19
  bool unties_head = false;     // has a head of its own where the model was published with the embedding's weights
  bool pads_vocabulary = true;  // so that products divide it, and tensor parallelism; else what is left over is cut off
  double misaligned_attention = 0;  // KernelConstants'
  bool dropout = false;             // of attention's scores and of what is added to the residual stream
  bool narrow_gradients = false;    // held and reduced in 16 bits
  bool remainders = false;          // masters are the 16 bits that weights lack
  bool joint_float4 = false;        // quantises to NVFP4 by rows and columns in one kernel
  bool cuts_queries = false;        // and keys and values out of one matrix, with copies
  bool autocast = false;            // weights and gradients in float32, cast where an operator takes 16 bits
  bool checkpoints_stop = true;     // PyTorch's, where they are not reentrant: when backward has what it reads
  bool recomputes = false;          // layers, unless the row says otherwise
  bool whole_graphs = false;        // a CUDA graph holds all of a step
  bool float8_experts = false;      // products of experts, too, where the others are in float8
  bool neighbour_experts = false;   // a token's experts are neighbours
  Dispatcher dispatcher = Dispatcher::kAllToAll;
  // Elements that the optimizer reads and writes for each that it updates; 0: as the program's.
  double updates = 0;
  double update_steps = 0;  // operators of it and of clipping, for each parameter; 0: few for all
  Nanos kernel;             // to issue one, where it is known; 0: as most
  HostPace host;            // but for the time to issue, and what depends on the type of the numbers

  bool Is(Sign sign) const { return signs.HasAll({sign}); }
  bool HasMegatronLayers() const {
    return Is(Sign::kMegatron) || Is(Sign::kMegatronAttention) || Is(Sign::kTransformerEngine);
  }
  // Moments and parameters of the optimizer have the type of the weights. DeepSpeed's optimizers of 16 bits hold
  // masters and moments in float32 whatever the weights were loaded in (its documentation of `fp16` and `bf16`).
  bool HasNarrowStates() const { return Is(Sign::kNarrowStates) && !Is(Sign::kDeepSpeed); }
};

// `sequence`: of the row, where it has none the default.
Framework FrameworkOf(const CsvCells& cells, int64_t sequence);

// Adds what is copied of queries, keys and values between products and fused attention, in bytes an element of the
// queries. `frozen`: weights have adapters. `keys`: elements of keys, and of values, for each.
void AddQueryCopies(const Framework& framework, bool frozen, double keys, EagerBytes* queries);

// Adds what is moved where queries, keys and values are of three products, and a gate and what it lets through of two,
// in place of one: as many gradients of an input, whole on each of `tensor` ranks, are added up.
void AddInputGradients(const Framework& framework, const DecoderConfig& model, int64_t tensor, HostPace* host);

// What a kernel with dropout takes beyond the `moved` bytes an element that it streams, in bytes an element: it draws a
// random number for each, and where that takes longer than to move it, the difference.
double DropoutBytes(const Device& device, double moved);
// The same of a score in fused attention, which moves none.
double FusedDropoutBytes(const Device& device);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_FRAMEWORK_H_
