// The text form of a Program: what tests write, what dumps show, and what passes are compared by.
//
//   program demo mesh pp=2 x1=2 microbatches 4
//   class "stage 0"
//     buffer x float32 (16, 32) {x1 | -} input microbatches 2
//     buffer w float32 (32, 16) {- | -} parameter init normal value=0.01
//     buffer y float32 (16, 16) {x1 | -} activation microbatches 2
//     buffer y@1 float32 (16, 16) {- | -} temporary
//     event ready microbatches 2
//     block forward forward
//       compute Feed writes x
//       compute MatMul "m k, k n -> m n" reads x w writes y records ready @matmul
//       comm all_gather (x1) dim 0 activation reads y writes y@1 waits ready
//       send to +1 activation reads y@1
//     slot forward mb 0 layer 0
//   class "stage 1"
//     ...
//
// One line per thing, indentation is free, '#' begins a comment. Fields that have their default value are left out.
//
//   program NAME mesh MESH [microbatches N] [loss_divisor X]                          MESH as in ir/mesh.h
//   class NAME [stage N] [arena BYTES]                              stage: by default the number of classes before it
//   buffer NAME DTYPE SHAPE LAYOUT ROLE [layers N] [microbatches N] [first_layer N] [bytes N offset N] [alias REF]
//       [init KIND KEY=X ...] [frozen]                                   (on the same line)
//   event NAME [layers N] [microbatches N]
//   block NAME forward|backward                                          the instructions follow, one per line
//   slot BLOCK mb N layer N [xCOUNT up|down]                             down: from the layer named to lower ones
//
// An instruction is STREAM WORK [reads REF ...] [writes REF ...] [waits REF ...] [records REF ...] [@ORIGIN], with WORK
//
//   OP ["RULE"] [accumulate] [recompute] [KEY=X ...]          the rule: by default that of the op's row for these reads
//   slice | permute | sync
//   permute (AXIS, ...) from N ...                            for each rank on these axes the one it gets from, or -1
//   all_reduce | reduce_scatter   sum|max|min|prod (AXIS, ...) [dim N] PURPOSE
//   all_gather | broadcast        (AXIS, ...) [dim N] PURPOSE
//   all_to_all                    (AXIS, ...) dim N to N PURPOSE
//   send to +N PURPOSE | receive from -N PURPOSE              their own streams are not said twice
//
// and REF a buffer's or event's name with the layer shift behind it: y, y+1, y-1. A name that is not a plain word (or
// is one of the words above that end a list) stands in double quotes: "layers forward", "w 1"+1. %3 is the fourth
// buffer (event, block, axis), whatever its name, and %-1 none.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_IR_PROGRAM_TEXT_H_
#define MESHWRIGHT_IR_PROGRAM_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/program.h"

namespace meshwright {

// ParseProgram(ToText(p)) is p, field for field, and ToText of that is the same text byte for byte.
// REQUIRES: layouts name axes of the mesh (other indices may be out of range: such a program can be shown).
std::string ToText(const Program& program);

// One line, without indentation.
std::string ToText(const Instruction& instruction, const RankClass& rank_class, const Mesh& mesh);

// kInvalidArgument: "7:12: found "z", wanted a buffer of this class; there are: x, y" (line:column, from 1).
// Checks the form only; VerifyProgram (ir/verify.h) checks what is said.
absl::StatusOr<Program> ParseProgram(absl::string_view text);

// What `rank` runs, with the shapes of its own pieces and its own groups and peers:
//
//   # forward: layer 0, micro-batch 0
//   - Load w (8, 16)
//   1 MatMul (8, 8) (8, 16) -> (8, 16)
//   2 AllReduce sum ranks 0-1-2-3 fusion 0 (8, 16)
//   3 StridedSlice begin (0, 0) end (8, 4) strides (1, 1) (8, 16) -> (8, 4)
//
// A block is written out where it is run for the first time. "- Load" stands before the first instruction that reads a
// parameter. `fusion` numbers the collectives that carry several tensors, 0 is one tensor alone; `begin` counts within
// the rank's own piece. REQUIRES: the program passes VerifyProgram, 0 <= rank < number of ranks.
std::string DumpRank(const Program& program, int64_t rank);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_PROGRAM_TEXT_H_
