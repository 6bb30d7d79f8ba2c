// A Program says, for each class of ranks, which instructions its ranks issue, in which order, on which stream, and
// what each of them waits for. The planner makes it; verifier, simulator and executors get nothing else.
//
// Size. Ranks that run the same text share a class (today: the ranks of one pipeline stage). What repeats is stored
// once: a Block is the instruction list of one layer (or of what stands around the layers), a Slot runs a block for one
// micro-batch over a range of layers. So a program grows with the distinct text, not with ranks, layers or
// micro-batches.
//
// Meaning, the same for every interpreter (tests/conformance holds them to it):
//   1. A rank issues its slots in order; a slot issues its block once per layer, in the slot's direction; a block
//      issues its instructions in order. Each instruction goes to its stream.
//   2. The instructions of one stream of one rank run one at a time, in the order in which they were issued.
//   3. An instruction starts when the one before it on its stream is done and every event it waits for has happened.
//      Events work as in CUDA: recording marks the end of that instruction; waiting refers to the latest record issued
//      before the wait, and to none (no wait) where there is none yet.
//   4. A Collective starts when all ranks of its group have reached theirs; a Transfer when its partner has. The n-th
//      send of a rank to a peer meets the peer's n-th receive from it.
//   5. A step starts when all streams are idle and ends when they are idle again.
//   6. A buffer instance lives at a fixed offset of the rank's arena. Two instances overlap only where the order above
//      keeps their lives apart: the verifier checks it.
// Nothing else orders anything, and no interpreter may reorder, fuse, split or drop an instruction. A legal sequential
// order exists: issue order, with sends buffered.
//
// Ownership: values. Thread safety: const access from many threads.
#ifndef MESHWRIGHT_IR_PROGRAM_H_
#define MESHWRIGHT_IR_PROGRAM_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "ir/collective.h"
#include "ir/graph.h"
#include "ir/ids.h"
#include "ir/mesh.h"
#include "ir/quantities.h"
#include "ir/shared.h"

namespace meshwright {

enum class Stream : uint8_t {
  kCompute,  // kernels, and the collectives that the next kernel needs at once (tensor parallelism)
  kComm,     // gradient reduction and parameter gathering, beside the kernels
  kSend,     // pipeline transfers
  kReceive,
  kContext,  // what waits for neither: keys and values on their way round, sums between groups of replicas
  kNumStreams
};
absl::string_view NameOf(Stream stream);

// What a buffer holds; memory is reported by role.
enum class BufferRole : uint8_t {
  kParameter,  // in the type and layout in which kernels read it
  kMaster,     // the optimizer's copy of a parameter, where it differs from the above
  kGradient,
  kOptimizerState,
  kInput,
  kActivation,  // kept from the forward to the backward pass
  kTemporary,   // lives inside one run of one block
  kLoss,
  kNumRoles
};
absl::string_view NameOf(BufferRole role);

// One tensor in one layout. Instance (layer, micro-batch) starts at
//     offset + ((layer % layers) * microbatches + microbatch % microbatches) * bytes
// and PlaceInRoot behind that.
struct Buffer {
  std::string name;  // the tensor's; "name@k" for its k-th layout
  DType dtype = DType::kFloat32;
  Shape shape;    // global (of the micro-batch)
  Layout layout;  // over the mesh's axes without "pp"
  BufferRole role = BufferRole::kTemporary;
  int64_t layers = 1;        // instances over layers
  int64_t first_layer = 0;   // which layer of the whole model instance 0 belongs to
  int64_t microbatches = 1;  // instances over micro-batches
  Bytes bytes;               // of one instance on one rank, rounded up to kAlignment; set by plan_memory
  Bytes offset;              // in the arena; set by plan_memory
  Initializer init;          // parameters, masters and inputs; optimizer state starts as zero
  bool trainable = true;     // parameters
  // In place: this buffer (after a collective or kernel) shares the memory of that one (before), which is not read
  // again until it is written anew. Same instances, not larger. A piece of that one (IsPieceOf) lies where its rows do.
  BufferId alias;
  // Where 0 or more: only the rank at this place of its class has it, and it alone runs the kernels that use it (the
  // parallel optimizer of data parallelism, S11.1). Buffers of different owners may share memory.
  int64_t owner = -1;
};
// The scale of the loss, and how many steps were skipped for it, where there are such: scalars of every class
// (planner/passes/scale_loss.h makes them).
inline constexpr absl::string_view kLossScale = "loss_scale", kSkippedSteps = "loss_scale@skipped";
inline constexpr int64_t kAlignment = 256;  // bytes; what cudaMalloc guarantees and vector loads want

// A buffer, at the slot's layer plus `layer_shift`.
struct Operand {
  BufferId buffer;
  int32_t layer_shift = 0;
  friend auto operator<=>(const Operand&, const Operand&) = default;
};

// An event register, instanced like a buffer.
struct Event {
  std::string name;
  int64_t layers = 1;
  int64_t microbatches = 1;
};
struct EventRef {
  EventId event;
  int32_t layer_shift = 0;
  friend auto operator<=>(const EventRef&, const EventRef&) = default;
};

// Which rank of the class, by its place, does something for a layer: each layer another, in turn.
struct Turn {
  int32_t first = -1, step = 0;  // for layer 0, and how many places further for each layer; -1: all ranks do it
  int64_t PlaceOf(int64_t layer, int64_t ranks) const { return (first + layer * step) % ranks; }
  friend auto operator<=>(const Turn&, const Turn&) = default;
};

// Runs one kernel on the rank's own pieces. Shapes are those of the operands' buffers; kernels that need their place in
// the whole (positions, split tables) take it from the operands' layouts and the rank.
struct Compute {
  OpKind op = OpKind::kFill;
  Shared<OpAttrs> attrs;
  Shared<IndexRule> rule;
  bool accumulate = false;  // outputs in gradient and loss buffers are added to what these hold; others overwrite
  bool recompute = false;   // a second run of a forward op, for reports
  // S13.5: the host of the rank's device runs it: what it reads is copied down, what it writes is copied up.
  bool on_host = false;
  // One rank of the class alone runs it; what it writes are temporaries, which kernels of the same turn read, and a
  // broadcast from it.
  Turn turn = {};
};

// Keeps the piece of a replicated dim that the write buffer's layout names. Local.
struct Slice {};

// A collective over the ranks that differ on `axes`, in that order. reads[i] -> writes[i] for each i, one call for all
// (a fused bucket). What moves where follows from the layouts of reads[i] and writes[i]: all_gather removes `axes` from
// the end of `dim`, reduce_scatter appends them there, all_to_all moves them from the end of `dim` to the end of
// `to_dim`, all_reduce drops them from the partial axes.
enum class Purpose : uint8_t { kActivation, kGradient, kParameter, kReport };
absl::string_view NameOf(Purpose purpose);
struct Collective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Reduction reduction = Reduction::kSum;
  AxisList axes;
  int32_t dim = 0, to_dim = 0;
  int32_t root = 0;       // broadcast: the place in the group of the rank whose values all get
  int32_t root_step = 0;  // how many places further that is for each layer (Turn)
  Purpose purpose = Purpose::kActivation;
};

// The place in the group whose values all get.
inline Turn TurnOf(const Collective& broadcast) { return {broadcast.root, broadcast.root_step}; }

// Moves the pieces of reads[0] to where writes[0]'s layout wants them; same local size, no reduction. Each rank gets
// its new piece from the lowest rank (of those that agree with it on all unused axes, if possible) that holds it.
// With `sources` both have one layout, and among the ranks that differ on `axes`, in that order, the one at place p
// gets the piece of the one at place sources[p], or zeros where that is -1.
struct Permute {
  AxisList axes;
  std::vector<int32_t> sources;
};

// One half of a transfer to or from the rank `stage_offset` stages away; all operands together. Sends read, receives
// write.
struct Transfer {
  bool send = true;
  int32_t stage_offset = 1;
  Purpose purpose = Purpose::kActivation;
};

// No work and no time: only the waits and records of the instruction, at its place on its stream.
struct Sync {};

using Work = std::variant<Compute, Slice, Collective, Permute, Transfer, Sync>;

// Holds what it takes to run it, and no price: that is derived from the same fields.
struct Instruction {
  Work work;
  Stream stream = Stream::kCompute;
  absl::InlinedVector<Operand, 4> reads, writes;
  absl::InlinedVector<EventRef, 2> waits, records;
  std::string origin;  // "matmul", "layers/attention backward": for messages and traces
};

struct Block {
  std::string name;  // "layers forward"
  Phase phase = Phase::kForward;
  std::vector<Instruction> instructions;
};

struct Slot {
  BlockId block;
  int64_t microbatch = 0;
  int64_t layer = 0;  // the first layer to run
  int64_t count = 1;  // how many layers
  int64_t step = 1;   // +1 upwards, -1 downwards
};

struct RankClass {
  std::string name;  // "stage 0"
  int64_t stage = 0;
  std::vector<Buffer> buffers;
  std::vector<Event> events;
  std::vector<Block> blocks;
  std::vector<Slot> slots;
  std::vector<Slot> start;  // played once, before the first step; no part of a step's time
  Bytes arena;              // what one rank allocates; set by plan_memory
};

struct Program {
  std::string name;
  Mesh mesh;  // first axis "pp" where there are several stages: class i holds the ranks of stage i
  int64_t num_microbatches = 1;
  double loss_divisor = 1;  // the step's reported loss is the sum of the micro-batches' losses over this
  std::vector<RankClass> classes;

  int64_t ranks_per_class() const { return mesh.num_ranks() / static_cast<int64_t>(classes.size()); }
  // The global rank at position `local` of class `c`.
  int64_t RankOf(size_t c, int64_t local) const { return static_cast<int64_t>(c) * ranks_per_class() + local; }
};

// Index of the instance that a slot at `layer` and `microbatch` means by an operand: see Buffer.
inline int64_t InstanceOf(const Buffer& buffer, int64_t layer, int64_t microbatch) {
  return (layer % buffer.layers) * buffer.microbatches + microbatch % buffer.microbatches;
}
inline int64_t InstanceOf(const Event& event, int64_t layer, int64_t microbatch) {
  return (layer % event.layers) * event.microbatches + microbatch % event.microbatches;
}
inline Bytes OffsetOf(const Buffer& buffer, int64_t layer, int64_t microbatch) {
  return buffer.offset + buffer.bytes * InstanceOf(buffer, layer, microbatch);
}

// The buffer whose memory it is: itself, or what it is an alias of in the end.
BufferId RootOf(const RankClass& rank_class, BufferId id);

// Whether it is a rank's rows of `whole`: the same tensor, its first dim split by further axes. Rows are contiguous.
bool IsPieceOf(const Buffer& buffer, const Buffer& whole);

// How far behind the beginning of its root's instance an instance of the buffer begins on `rank`.
Bytes PlaceInRoot(const RankClass& rank_class, BufferId id, const Mesh& mesh, int64_t rank);

// The owner of the buffers that it uses, or -1.
int64_t OwnerOf(const Instruction& instruction, const RankClass& rank_class);

// Bytes of one instance on one rank, before rounding.
Bytes LocalBytes(const Buffer& buffer, const Mesh& mesh);

// How many times instructions are issued by one rank of the class in one step.
int64_t NumIssued(const RankClass& rank_class);

// The work of a Compute instruction, from its operands.
KernelWork WorkOf(const Instruction& instruction, const Compute& compute, const RankClass& rank_class,
                  const Mesh& mesh);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_PROGRAM_H_
