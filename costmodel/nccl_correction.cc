#include "costmodel/nccl_correction.h"

#include <algorithm>
#include <cmath>

namespace meshwright {
namespace {

struct Shape {
  double scale;  // of the latency
  double hump;   // share of sqrt(latency x transfer) on top of their sum
};

// Sums of all ranks of one node in its switch, by the formula of SumMicros.
struct SwitchSums {
  double speed;  // over what NCCL counts; 0: not measured
  double chunk;  // what a chunk of 128 KiB costs besides, as a share of its transfer
};
constexpr double kFillMicros = 64, kFilledMicros = 48;  // of 8 heads

struct Row {
  double ll_base, ll_step;  // factors of the base latency and of the steps
  double ll_growth;         // of NCCL's own latency, once a block runs with all of its threads
  double ll_lines;          // of what all blocks carry with one line of each thread: part of the latency
  Shape ll128, simple, nvls, nvls_tree;
  double speed;       // of rings and trees, over what NCCL counts
  double nvls_speed;  // of the switch
  double touches;     // times that a rank's own part goes through memory
  double net_growth;  // of the steps through the network, as a share, once every block has its bytes
  SwitchSums sums = {0, 0};
};

// Ampere, Hopper: the fit. Of LL's lines half, because blocks have uneven parts: of 0, 1/4, 1/2, 3/4 and 1 the best on
// the half of the sizes that is fitted; base, step and growth with it. NVLS of generations whose switch cannot reduce
// is for those whose switch can, priced from their constants (data_sheet.h): as other calls of the same protocol,
// Simple. Volta: Ampere's, speed from the plateau of vTrain's all_reduce, 22.4 GB/s per ring that NCCL counts as 20.
// Blackwell: Hopper's, the ring's speed from 680 GB/s measured where NCCL counts 720 (ml-engineering). Sums in the
// switch: Hopper's every other size of the same loops over 8 devices, 2 to 512 MiB, 0.5 %; the sizes between 2.5 %,
// logs of five machines 2.2 %. Blackwell's speed and chunk from five of B200's all-reduces (ml-engineering, 16 MiB to
// 16 GiB) and every other size of 8 GB200's (openxla's table), 2.4 %; the sizes between 3.2 %, Google's A4 4.1 %, 8
// GB300 2.7 %; 16 to 72 devices 6.5 %. The hump of Blackwell's switch, 1.7, is of B200's all-reduces as well, and
// stands for the switch's gathers and for trees.
constexpr Row kVolta = {1.191, 1.612, 0.409, 0.5, {0.69, 0.85}, {2.228, 0.136}, {2.228, 0.136}, {1, 0}, 1.12, 1, 0, 0};
constexpr Row kAmpere = {1.191,          1.612,  0.409, 0.5, {0.69, 0.85}, {2.228, 0.136},
                         {2.228, 0.136}, {1, 0}, 1.017, 1,   4.82,         0};
constexpr Row kHopper = {0.683, 1.396, 0.161, 0.5, {0.73, 0.16}, {1.293, 0.075}, {0.83, 0.79}, {1, 0},
                         1.06,  1,     4.82,  0,   {1, 0.024}};
constexpr Row kBlackwell = {0.683, 1.396, 0.161, 0.5, {0.73, 0.16}, {1.293, 0.075}, {1, 1.7}, {1, 0},
                            0.95,  1.2,   4.82,  0,   {1.17, 0.2}};

// Between nodes: NCCL's own latencies, and the hump of H100 over 4 nodes, bus bandwidths of 126 GB/s at 16 MiB to 378
// at 16 GiB (NVIDIA, GTC 2025). Growth and the switch's speed: every other size of the logs of 2 nodes of A100 and H100
// and of 8 nodes of H100, and of that chart.
constexpr Row kBetweenNodes = {1, 1, 0, 0, {1, 0.3}, {1, 0.3}, {1, 0}, {1, 0.45}, 1, 1.09, 4.82, 0.6};

// Over PCIe: NCCL's own times, which what was measured over NVLink says nothing of.
constexpr Row kOverPcie = {1, 1, 0, 0, {1, 0}, {1, 0}, {1, 0}, {1, 0}, 1, 1, 4.82, 0};

const Row& RowOf(Generation generation, const GroupShape& group, LinkKind inside) {
  if (group.nodes > 1) return kBetweenNodes;
  if (IsPcie(inside)) return kOverPcie;
  switch (generation) {
    case Generation::kHost:
    case Generation::kVolta:
      return kVolta;
    case Generation::kAmpere:
    case Generation::kAda:
      return kAmpere;
    case Generation::kHopper:
      return kHopper;
    case Generation::kBlackwell:
      return kBlackwell;
  }
  return kAmpere;
}

// NCCL's base latency of LL, the part that does not grow with the steps (nccl_tuner.cc).
double BaseOfLl(Algorithm algorithm) { return algorithm == Algorithm::kTree ? 6.8 : 6.6; }
// What NCCL waits for before it adds another block to a call with LL: 512 threads of 8 bytes (src/enqueue.cc).
constexpr double kGrowthBytesPerBlock = 4 << 10;
// A ring's first block gets its threads until there are as many for each rank, the second has them at twice that.
constexpr double kLlGrowthBytesPerRank = 8 << 10;

// What the call waits for inside nodes, and between them with the growth of those steps.
struct Wait {
  double inside = 0, network = 0;
};

Wait WaitOf(const NcclChoice& choice, double bytes, const Row& row) {
  const NcclCandidate& candidate = choice.candidate;
  const double blocks = std::min(1.0, bytes / (kGrowthBytesPerBlock * std::max(1, candidate.blocks)));
  // With LL the network's thread reads each line of a message for its flags, from the first block on.
  const bool flags = candidate.protocol == Protocol::kLl;
  const double lines = flags ? std::min(1.0, bytes / kGrowthBytesPerBlock) : blocks;
  const double own = candidate.network_share - candidate.cards_share;
  const double grown = own * (1 + row.net_growth * lines) + candidate.cards_share * (1 + row.net_growth * blocks);
  return {choice.latency_us * (1 - candidate.network_share), choice.latency_us * grown};
}

// `row`: of the group; `node`: of one of its nodes. A tree's steps inside the nodes are those of one node; a ring's
// wait for the network's thread to post messages, as NCCL counts them.
double LlMicros(const NcclChoice& choice, double bytes, const GroupShape& group, const Row& row, const Row& node,
                double latency_scale) {
  const Algorithm algorithm = choice.candidate.algorithm;
  const Wait wait = WaitOf(choice, bytes, row);
  const double base = BaseOfLl(algorithm), ranks = static_cast<double>(group.ranks);
  const bool as_one_node = group.nodes == 1 || algorithm == Algorithm::kTree;
  const Row& inside = as_one_node ? node : row;
  const double growth = row.ll_growth * choice.latency_us * std::min(1.0, bytes / (kLlGrowthBytesPerRank * ranks));
  const double waiting = base * inside.ll_base + (wait.inside - base) * inside.ll_step + growth;
  const double transfer = choice.smooth_transfer_us * std::max(0.0, 1 - row.ll_lines * choice.line_bytes / bytes);
  return (as_one_node ? latency_scale : 1) * waiting + wait.network + transfer;
}

// Between nodes the hump of trees of switches is H100's. Blackwell's is estimated: in one node it is 1.7 where H100's
// is 0.79, and across nodes the same pipelines are filled, so as many times H100's.
double NvlsTreeHump(const Cluster& cluster) {
  const double wider =
      cluster.device.generation == Generation::kBlackwell ? kBlackwell.nvls.hump / kHopper.nvls.hump : 1;
  return wider * kBetweenNodes.nvls_tree.hump;
}

// A head of the switch for each rank, up to 32; what is fitted is of 8.
double HeadsOver8(const GroupShape& group) {
  constexpr double kFittedHeads = 8, kMostHeads = 32;
  return std::clamp(static_cast<double>(group.ranks_per_node), kFittedHeads, kMostHeads) / kFittedHeads;
}

// How many chunks NCCL cuts 128 KiB of a call in the switch into: 2, 4, 8 below 64 of 128 KiB, 8 of 64 and 2 of 32 for
// each block and head (calcCollChunking, src/enqueue.cc), here without its steps, over the doubling below each.
double ChunksOf128K(double bytes, const NcclCandidate& candidate, const GroupShape& group) {
  constexpr double kMostHeads = 32, kKi = 1 << 10;
  const double pipelines =
      static_cast<double>(candidate.blocks) * std::min(static_cast<double>(group.ranks_per_node), kMostHeads);
  double chunks = 1, halved = 1;
  for (const double least : {64 * 128 * kKi, 8 * 64 * kKi, 2 * 32 * kKi}) {
    chunks += halved * std::clamp(std::log2(least * pipelines / bytes), 0.0, 1.0);
    halved *= 2;
  }
  return chunks;
}

Shape ShapeOf(const NcclCandidate& candidate, const Row& row, const GroupShape& group, const Cluster& cluster) {
  if (candidate.algorithm == Algorithm::kNvls) return row.nvls;
  // A pipeline of four times the heads is as full with four times the bytes.
  if (candidate.algorithm == Algorithm::kNvlsTree) {
    return {row.nvls_tree.scale, std::sqrt(HeadsOver8(group)) * NvlsTreeHump(cluster)};
  }
  return candidate.protocol == Protocol::kLl128 ? row.ll128 : row.simple;
}

// A call in the switch waits for the pipelines of its blocks and heads, of which one of no bytes has none: it starts as
// one with LL does. They are as deep as they get once each block and head has a chunk of the least size, 16 KiB
// (calcCollChunking, src/enqueue.cc). Measured of calls of up to 512 bytes, which take the switch by a pin alone; where
// NCCL takes it by itself the measured calls wait for all.
double SwitchWait(double waiting, double bytes, const NcclCandidate& candidate, const Row& node,
                  const GroupShape& group) {
  constexpr double kLeastChunk = 16 << 10, kMostHeads = 32;
  const double heads = std::min(static_cast<double>(group.ranks_per_node), kMostHeads);
  const double deep = std::min(1.0, bytes / (heads * std::max(1, candidate.blocks) * kLeastChunk));
  const double start = std::min(waiting, node.ll_base * BaseOfLl(Algorithm::kRing));
  return start + (waiting - start) * deep;
}

// l + x (1 + chunk (chunks - 1)) + fill x / (x + filled): the transfer, what each chunk costs besides, and a pipeline
// that is filled once, the deeper the more heads it has.
double SumMicros(double waiting, double moving, double bytes, const NcclCandidate& candidate, const Row& row,
                 const GroupShape& group) {
  const double chunks = ChunksOf128K(bytes, candidate, group), heads = HeadsOver8(group);
  const double fill = kFillMicros * heads * moving / (moving + kFilledMicros * heads);
  return waiting + moving * (1 + row.sums.chunk * (chunks - 1)) + fill;
}

// What the cards of a node take at least for an all-reduce over nodes, at the rate of the data sheet: a node sends up
// and down the trees 2 (n - 1) / n of the bytes.
double LeastMicrosOfCards(double bytes, const GroupShape& group, const Cluster& cluster) {
  const double nodes = static_cast<double>(group.nodes);
  const double rate = static_cast<double>(NicsOfGroup(group, cluster)) * cluster.nic_bandwidth.raw();
  return 2 * (nodes - 1) / nodes * bytes / rate * 1e6;
}

}  // namespace

double CorrectedMicros(const NcclChoice& choice, Bytes size, const GroupShape& group, const Cluster& cluster,
                       double latency_scale) {
  const Row& row = RowOf(cluster.device.generation, group, cluster.intra_kind);
  const Row& one_node =
      RowOf(cluster.device.generation, {group.ranks_per_node, 1, group.ranks_per_node, 1}, cluster.intra_kind);
  const NcclCandidate& candidate = choice.candidate;
  const double bytes = static_cast<double>(size.raw());
  const double ranks = static_cast<double>(group.ranks);
  const double transfer = choice.smooth_transfer_us;
  if (candidate.protocol == Protocol::kLl) {
    return LlMicros(choice, bytes, group, row, one_node, latency_scale);
  }
  if (group.nodes > 1) latency_scale = 1;  // one row for all generations
  const Wait wait = WaitOf(choice, bytes, row);
  const bool in_switch = candidate.algorithm == Algorithm::kNvls || candidate.algorithm == Algorithm::kNvlsTree;
  const Shape shape = ShapeOf(candidate, row, group, cluster);
  // Sums of all ranks of a node, in a switch that was measured.
  const bool sums = candidate.algorithm == Algorithm::kNvls && candidate.blocks_bus > 0 && row.sums.speed > 0;
  const double switch_speed = sums ? row.sums.speed : row.nvls_speed;
  double moving = transfer / (in_switch ? switch_speed : row.speed);
  if (!in_switch) moving += row.touches * bytes / ranks / cluster.device.memory_bandwidth.raw() * 1e6;
  // The switch goes faster than NCCL counts, but no faster than its blocks and, across nodes, the cards; in one node
  // they alone say how fast it adds up, also for so few ranks that NCCL's speeds of a channel end below it.
  if (candidate.blocks_bus > 0) {
    const double blocks = 2 * (ranks - 1) / ranks * bytes / (1e3 * candidate.blocks_bus) / switch_speed;
    moving = sums ? blocks : std::max(moving, blocks);
  }
  if (candidate.algorithm == Algorithm::kNvlsTree) {
    moving = std::max(moving, LeastMicrosOfCards(bytes, group, cluster));
  }
  const double inside = in_switch && choice.forced
                            ? SwitchWait(shape.scale * wait.inside, bytes, candidate, one_node, group)
                            : shape.scale * wait.inside;
  const double waiting = latency_scale * (inside + shape.scale * wait.network);
  if (sums) return SumMicros(waiting, moving, bytes, candidate, row, group);
  return waiting + moving + shape.hump * std::sqrt(waiting * moving);
}

bool CorrectionIsMeasured(const GroupShape& group, const Cluster& cluster) {
  const Generation generation = cluster.device.generation;
  return group.nodes == 1 && cluster.intra_kind == LinkKind::kNvSwitch &&
         (generation == Generation::kAmpere || generation == Generation::kHopper);
}

}  // namespace meshwright
