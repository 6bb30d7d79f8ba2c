// The price of every instruction of a Program, found once per instruction of each block: what the player plays with.
//
// A price is what the instruction costs when it runs alone (costmodel/), and which parts of the device it takes or
// needs meanwhile, so that the player can say what it costs beside others. Prices are a plain value in the shape of the
// Program's blocks; tests write them directly.
//
// Sharing, as the player applies it:
//   - A kernel bound by its multiprocessors runs at 1 - (share of them held by communication beside it), one bound by
//     memory at 1 - (share of the memory bandwidth that this communication uses). CostModel's slow-downs, summed over
//     all communication beside the kernel. Neither ever falls below kLeastRate.
//   - Communication beside communication: where the shares of a link add up to more than the whole, all that use the
//     link get it in proportion to what they ask for.
//   - Links that are not a device's own (InstructionPrice::shared) are shared by all communication that crosses
//     them, of whatever class, max-min fair (simulator/fair_shares.h).
//   - Kernels do not slow communication down, nor kernels of another stream.
//
// Thread safety: plain values and pure functions.
#ifndef MESHWRIGHT_SIMULATOR_PRICE_H_
#define MESHWRIGHT_SIMULATOR_PRICE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "costmodel/cost_model.h"
#include "ir/cluster.h"
#include "ir/mesh.h"
#include "ir/program.h"
#include "ir/quantities.h"
#include "simulator/class_copies.h"

namespace meshwright {

// Shares are integers, so that simulated time is exact: this many are the whole.
inline constexpr int32_t kWhole = 10'000;
// What communication leaves to a kernel at least, in kWhole-ths.
inline constexpr int32_t kLeastRate = kWhole / 10;

// What a device has one of, in each direction, that communication shares.
enum class Link : uint8_t { kIntraOut, kIntraIn, kNicOut, kNicIn };
inline constexpr size_t kNumLinks = 4;

// Which of its needs slows a kernel down when communication runs beside it.
enum class SlowedBy : uint8_t { kNothing, kMultiprocessors, kMemory };

// A share of a link that ranks have together: the cards of a node, what connects a leaf switch to the others. In
// kWhole-ths, of all ranks of the class; above kWhole where one communication alone is held up there. Links are
// numbered without gaps (simulator/network_links.h).
struct SharedUse {
  int32_t link = 0;
  int32_t share = 0;
  friend bool operator==(const SharedUse&, const SharedUse&) = default;
};

struct InstructionPrice {
  Nanos time;                               // when it runs alone
  SlowedBy slowed_by = SlowedBy::kNothing;  // kernels
  int32_t multiprocessors = 0;              // communication: the shares of the device that it takes from kernels
  int32_t memory = 0;
  std::array<int32_t, kNumLinks> links = {};  // communication: its shares of the device's links
  absl::InlinedVector<SharedUse, 1> shared;   // communication: of links that are not the device's own
  bool estimated = false;                     // rests on constants that nobody measured for this machine

  // Whether it takes something that another instruction could want.
  bool Takes() const { return (multiprocessors | memory | links[0] | links[1] | links[2] | links[3]) != 0; }
  friend bool operator==(const InstructionPrice&, const InstructionPrice&) = default;
};

// Bytes of kernels that ours do not have, of a forward and of a backward pass.
struct EagerBytes {
  double forward = 0, backward = 0;
  friend bool operator==(const EagerBytes&, const EagerBytes&) = default;
};

// Operators of a forward and of a backward pass.
struct PassSteps {
  int64_t forward = 1, backward = 1;
  friend bool operator==(const PassSteps&, const PassSteps&) = default;
};

// What a framework does around experts that ours does not, or does otherwise.
struct ExpertPace {
  // Operators that it issues where ours are one: to choose experts, count, order and send tokens, and to bring them
  // back.
  PassSteps dispatch, combine;
  // Kernels for each expert of a product that has a matrix for each: a product, a cast.
  int64_t launches = 0;
  // What the CPU takes for the first of them, where that is more than a launch, and again for the gradient of each
  // expert's parameter.
  Nanos product;
  // The CPU waits for the counts of tokens before it sends them, in the forward pass; backward it has them.
  bool waits = false;
  // A CUDA graph holds a layer's attention and router.
  bool graphs = false;
  // All-to-alls run beside another micro-batch's kernels, from which they take multiprocessors: so many, or what the
  // collectives' channels take.
  bool overlaps = false;
  int dispatch_blocks = 0;
  // One over the network and one inside the node run at once.
  bool joins = false;
  // Of what all-to-alls of tokens send to other nodes, the share that is sent: where a copy for each expert stands for
  // one for each node, since groups of experts are not spread over tensor-parallel ranks.
  double sent_share = 1;
  // What is done to the experts' results before they are combined, expert by expert: bytes an element, and operators an
  // expert, each of which takes the CPU `step`.
  EagerBytes results = {}, result_steps = {};
  Nanos step;
  // Each expert's gradient is one of all experts, zero elsewhere: bytes of an element of these, and again for each
  // expert.
  double whole_gradients = 0;
  friend bool operator==(const ExpertPace&, const ExpertPace&) = default;
};

// The CPU of a rank that issues its instructions one by one while the device runs them: where it takes longer for a
// block than the device does, it sets the pace. 0 where issuing costs nothing that is seen, as in a captured graph.
struct HostPace {
  Nanos kernel;      // to issue one kernel; unfused attention and accumulation issue several
  Nanos collective;  // to issue a collective or a transfer
  // A kernel of its own adds a product's gradient to those of the micro-batches before, as PyTorch's autograd does;
  // else the product adds it.
  bool adds_gradients = false;
  // The gradient of a table, of which a micro-batch touches some rows, is one of all rows, as PyTorch's embeddings make
  // it (embedding_dense_backward): filled with zeros, and added to those of the micro-batches before by a kernel of its
  // own.
  bool whole_tables = false;
  double products = 1;  // times `kernel` that the CPU takes to issue a product
  // To issue each further step of a norm, of rotary positions or of a gate that are not of one kernel.
  Nanos step = {};
  // What the update and passes over all gradients before it move besides ours, bytes for each element that is updated;
  // below 0: less.
  double optimizer_bytes = 0;
  // The CPU's time to issue the update of a parameter, where each has kernels of its own: no update takes less.
  Nanos update = {};
  // What frameworks with a kernel for each step move besides our kernels: attention besides the passes of a fused
  // softmax, bytes a score that is computed, and between the products and it, bytes an element of the queries; an
  // activation function besides reading and writing once, bytes an element, and a gate, bytes an element of its result;
  // around a norm, bytes an element of what it
  // norms; what is made of the logits besides the loss, bytes a logit; copies of what was gathered of parameters and is
  // scattered of gradients, bytes an element of a product's parameter.
  EagerBytes scores = {}, queries = {}, activations = {}, gates = {}, norms = {}, logits = {}, parameters = {};
  // What is moved to make a product's parameter of a packed one, bytes an element, whenever a product reads it in a
  // forward and in a backward block.
  EagerBytes unpacked = {};
  // All-gathers and reduce-scatters of activations inside a node run in pieces beside the product that reads or makes
  // them, one piece a rank; what the product does not cover is seen, and at least one piece of it.
  bool overlaps_products = false;
  // Activations that tensor parallelism gathers are gathered for each matrix that multiplies them, and the gradient of
  // each is scattered or summed: for queries, keys and values apart, and for a gate apart from what it lets through.
  bool gathers_each = false;
  // The dimension that all-gathers and reduce-scatters of activations put together or cut is not the first: a copy.
  bool copies_gathered = false;
  // All-gathers and reduce-scatters of parameters and gradients take a list with a tensor for each rank, as PyTorch's
  // `all_gather` and `reduce_scatter` do: they run on a flat buffer, between which and the list a kernel a rank copies
  // (ProcessGroupNCCL.cpp), and what was gathered is copied once more, tensor by tensor. `all_gather_into_tensor`,
  // since PyTorch 1.13, does not.
  bool copies_pieces = false;
  // Of parameters' bytes, those that are gathered: half, where they are cast to 8 bits before.
  double gathered_share = 1;
  // Gradients are summed on all ranks, also where each needs its rows alone.
  bool reduces_whole = false;
  // Gradients are reduced behind each micro-batch, where our programs reduce their sum.
  bool reduces_each = false;
  // And the opposite: their sum is scattered behind the last micro-batch, where our programs, which split parameters
  // and gradients, scatter those of each. The time of one call is shared out to all micro-batches.
  bool scatters_once = false;
  // Of parameters that replicas split, the share that is gathered three times, for a layer that is run again, too: our
  // programs gather for the forward and for the backward pass, and each gather takes half of the third.
  double gathers_again = 0;
  // Ranks that hold the same values send a part each to the next stage, whose ranks gather them: tensor parallelism
  // where the sequence is whole.
  bool scatters_transfers = false;
  // Stages that share a parameter each update one of their own, of the same sum of gradients, where the owner of ours
  // sends its values at the start of a step.
  bool updates_shared = false;
  // Collectives of parameters and gradients run beside nothing: the CPU waits for the device before each of them.
  bool serial = false;
  // Parameters are gathered at the end of a step, beside nothing.
  bool serial_gathers = false;
  // Parameters that are gathered for a backward pass are, beside nothing.
  bool serial_regathers = false;
  // A kernel is issued when the one before it has ended (CUDA_LAUNCH_BLOCKING=1), so that issuing adds to a block's
  // time.
  bool launch_blocking = false;
  // Ranks of the axis "dp" that its collectives are priced for, where a program stands for one with more or fewer
  // (frameworks pad what replicas do not divide); 0: those of the mesh.
  int64_t replicas = 0;
  // What the CPU takes beside the kernels of a layer with attention in a forward and in a backward pass: where a packed
  // row's positions are turned example by example, in hooks that gather the layer's parameters and let go of them.
  Nanos layer_forward = {}, layer_backward = {};
  ExpertPace experts = {};
  friend bool operator==(const HostPace&, const HostPace&) = default;
};

// What PyTorch's eager mode takes, as Megatron's and DeepSpeed's layers use it. An operator of ours stands for several
// of theirs: besides the launch (5 us) there are the way through Python, autograd and the dispatcher, and views and
// checks that issue no kernel. A collective of activations goes the same way: Megatron wraps each in an autograd
// function written in Python (megatron/mpu/mappings.py). One figure for both, fitted on one half of the single-node
// runs that vTrain published; docs/accuracy.md has the error on the other.
inline constexpr HostPace kEagerFramework = {Micros(52), Micros(52), true};

// The same framework on a CPU that takes `times` as long for all of these (Cluster::cpu_slowdown). Launches from
// compiled code, such as one for each expert, are the device's own (KernelConstants::host_launch) and stay.
HostPace WithCpu(HostPace host, double times);

// Passes over float32 gradients that frameworks make besides the update (Megatron-LM's mixed precision optimizer): the
// norm reads them, clipping reads and writes them.
inline constexpr double kClippingBytes = 4 + 8;
// In fp16, they are copied to float32 before, and divided by the scale of the loss and checked in one pass.
inline constexpr double kUnscalingBytes = 6 + 8;

// Of(c)[b][i] is the price of Program::classes[c].blocks[b].instructions[i].
struct Prices {
  std::vector<std::vector<std::vector<InstructionPrice>>> classes;
  // By class: whose prices it has, where its own are left empty, or itself. Empty: each has its own.
  std::vector<size_t> of;

  size_t IndexOf(size_t c) const { return of.empty() ? c : of[c]; }
  const std::vector<std::vector<InstructionPrice>>& Of(size_t c) const { return classes[IndexOf(c)]; }
};

// How the groups over `axes` that the ranks [first_rank, first_rank + num_ranks) form lie on the nodes: ShapeOfGroup of
// the one that spans most nodes.
GroupShape ShapeOf(const Mesh& mesh, const AxisList& axes, int64_t first_rank, int64_t num_ranks,
                   const Cluster& cluster);

// Prices all instructions. All operands of a collective or transfer are one call. A collective along a dim that is not
// the outermost one (of those with a local size above 1) also pays for the copy that puts the pieces in order, since
// ranks exchange contiguous memory. An instruction that the cluster cannot run (no network card) costs kForever.
//
// Of kernels on buffers that single ranks own, those of the busiest owner are priced, the others cost nothing: they run
// on other ranks at that time. Kernels in turns (ir/program.h) cost in each layer their part of what the rank with most
// of them takes.
//
// kInvalidArgument: the mesh has more ranks than the cluster has devices. kUnimplemented: a collective over stages.
//
// `host`: in a block whose instructions take the CPU longer to issue than the device to run, the kernels take longer,
// in proportion to what it takes to issue them, so that the block lasts as long as it is issued. That holds where short
// and long kernels alternate within a block, since the CPU runs ahead while the device is busy; blocks of the optimizer
// are left alone, where frameworks issue few kernels for many parameters. `serial` is not the prices' business:
// Serial().
//
// `copies`: classes of `program` that are not written out. Nor are their prices (Prices::of) where the class begins at
// the same place of a node as the one that it copies; elsewhere those of groups and transfers are others.
absl::StatusOr<Prices> PriceProgram(const Program& program, const CostModel& costs, const HostPace& host = {},
                                    const ClassCopies& copies = {});

// Prices of single steps over one mesh: what PriceProgram says of a program that has that instruction alone, for a part
// of the time. One thread at a time. REQUIRES: `costs` outlives it.
class StepPrices {
 public:
  StepPrices(const Mesh& mesh, const CostModel& costs);
  ~StepPrices();

  // Of a Slice, Collective or Permute, from a tensor that lies as `before` to one that lies as `after`; kForever where
  // the cluster has too few devices.
  Nanos Of(const Shape& global, DType dtype, const Work& work, const Layout& before, const Layout& after);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The program as the cluster's back end plays it. A host's runs one instruction after another, whatever their streams:
// its collectives are on the compute stream. Transfers keep their streams, since what is sent is copied and on its way.
Program AsPlayed(Program program, const Cluster& cluster);

// The program with the collectives of the stream kComm on the compute stream, at the places where they are issued. One
// with stages stays as it is: they reduce at the end of a step and gather before the next, after they have sent what
// others wait for, while the compute stream would send behind them.
// REQUIRES: there is a class.
Program Serial(Program program);
// The same of what gathers parameters alone, with stages, too.
Program SerialGathers(Program program);
// Of what gathers parameters for backward passes, without stages.
Program SerialRegathers(Program program);

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_PRICE_H_
