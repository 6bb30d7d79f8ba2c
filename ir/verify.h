// The verifier: whether a Program means what its buffers say, in every order that its streams allow.
//
// It runs after each pass in tests and on every program that is executed. Interpreters rely on it and check nothing.
//
// The rules, with the numbers that messages carry:
//    1  Indices are in range: axes, buffers, events, blocks, micro-batches, layers (a layer shift never reaches below
//       layer 0). Classes are the stages of the mesh's first axis, and no layout or collective uses that axis.
//       A buffer's owner is a rank of the class; only kernels use such buffers, those of one owner at a time.
//    2  A buffer's layout fits its shape. Once memory is planned (arena > 0) its instances are large enough, aligned,
//       and inside the arena. An alias has the same instances as its target, is not larger, and lies at the same place;
//       a piece of its target has a multiple of kAlignment bytes.
//    3  A Compute's operands agree with its index rule: their number and extents; labels marked whole are not split; a
//       label is split by the same axes in every operand; no axis splits two labels (of what takes a maximum or
//       minimum: two labels of one operand). An output may lie where an input lies only if the op works in place. An
//       update of several parameters has no rule; those of one parameter are alike. A Feed is no kernel that the host
//       could run instead of the device.
//    4  A Compute's inputs hold no partial values, and each output is partial over just the axes of the labels that it
//       lacks. But linear ops pass on partial sums that all their inputs share, and Fill writes any layout. A maximum
//       or minimum may be partial over all ranks of the class, whatever its labels say, since equal values do not
//       change it.
//    5  A Collective's layouts before and after differ as its kind, axes and dims say (ir/program.h); operands come in
//       pairs of one shape and type, and all are of one type.
//    6  A Slice's piece lies inside the one it is taken from; a Permute's has the same size; both read one buffer and
//       write one of the same shape and type. A Permute with sources keeps the layout, and has a source, one of its
//       ranks or -1, for each. A Sync has no operands.
//    7  A Transfer's partner exists; a send only reads, a receive only writes.
//    8  An event that is waited for is recorded by some instruction that is issued.
//    9  Nothing is read that was not written in this step, other than parameters, masters and optimizer state. Adding
//       to a gradient or loss counts as reading it.
//   10  Two instructions that use the same memory, one of them writing, are ordered by streams and events.
//   11  What is read (or must last to the next step) has not been overwritten by a buffer that shares its memory, and
//       no instruction writes memory of its own operands other than through an alias. What is gathered from a piece of
//       itself leaves that piece as it is; of a parameter with a piece, that piece lasts, and the rest is written anew.
//   12  The n-th send of one class to another and the n-th receive there agree in shapes, types and layouts, and there
//       are as many.
//   13  No set of classes waits for each other for ever.
//
// Rules 9 to 13 play one step: every instruction of every class, in the order of issue, with vector clocks for what the
// streams guarantee. A class that issues more than kMaxVerified instructions is played up to that many; what would
// show later only (9 to 11 at the end of such a step, 12 and 13 for later transfers) is then not seen.
//
// Cost: some 20 ns for each instruction issued (4 ms for 270,000 on one core of a desktop CPU).
#ifndef MESHWRIGHT_IR_VERIFY_H_
#define MESHWRIGHT_IR_VERIFY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "ir/program.h"

namespace meshwright {

inline constexpr int64_t kMaxVerified = 4'000'000;  // instructions issued by one class in one step

// kInvalidArgument names the first rule that is broken, where, and by what:
//   rule 10: class s0, block f, instruction 2 (compute ReLU reads y writes z): at layer 1, micro-batch 0: may read y
//   before it is written by block f, instruction 1 (comm all_reduce ...) at layer 1, micro-batch 0; wait for an event
absl::Status VerifyProgram(const Program& program);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_VERIFY_H_
