#include "costmodel/nccl_tuner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>

namespace meshwright {
namespace {

constexpr size_t kProtocols = 3;                                                   // LL, LL128, Simple
enum Row : size_t { kVoltaRow, kAmpereRow, kHopperRow, kBlackwellRow, kNumRows };  // of the bandwidth tables
enum NodeColumn : size_t { kOneNode, kTwoNodes, kMoreNodes, kNumNodeColumns };

// src/graph/topo.h: what a link counts for, as a share of the data sheet's rate. NVLink: 20 of 25 GB/s per link (20.6
// and 40.1 of 50 from Hopper on); PCIe gen4 24 of 31.5; network 12 GB/s per 100 Gb/s.
constexpr double kNvLinkShare[kNumRows] = {20.0 / 25, 20.0 / 25, 20.6 / 25, 40.1 / 50};
constexpr double kNicShare = 0.96;

// src/graph/search.cc: speeds of one channel in GB/s, in the order in which the search tries them.
constexpr double kIntraSpeeds[] = {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
constexpr double kInterSpeeds[] = {48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12};
constexpr double kIntraSpeedsHopper[] = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
constexpr double kInterSpeedsHopper[] = {48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12};
constexpr double kIntraSpeedsBlackwell[] = {90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18};
constexpr double kInterSpeedsBlackwell[] = {96,   48, 45.1, 42, 40, 30,  24,  22,   20,
                                            17.5, 15, 12,   6,  3,  2.4, 1.2, 0.24, 0.12};
// Rings of 20 GB/s that fit into the hybrid cube mesh of 8 Volta (DGX-1), by how many devices of it take part: two
// neighbours share one link, a quad has two cycles both ways, the whole mesh three.
constexpr int kMeshRings[] = {0, 0, 1, 2, 4, 2, 2, 4, 6};
constexpr double kMeshRingSpeed = 20;
struct SpeedList {
  const double* speeds;
  size_t count;
  const double* begin() const { return speeds; }
  const double* end() const { return speeds + count; }
};

// src/graph/tuning.cc, ncclTunerConstants of 2.28.9. Latencies in us, per protocol.
constexpr double kBaseTree[kProtocols] = {6.8, 14, 8.4};
constexpr double kBaseRing[kProtocols] = {6.6, 14, 8.4};
constexpr double kBasePat = 8;
constexpr double kTreeNvlink[kProtocols] = {0.6, 1.25, 4.0};
constexpr double kTreePci[kProtocols] = {1.0, 1.9, 4.0};
constexpr double kTreeNet[kProtocols] = {5.0, 8.5, 14};
constexpr double kRingNvlink[kProtocols] = {0.6, 1.9, 3.4};
constexpr double kRingPci[kProtocols] = {1.0, 2.5, 5.7};
constexpr double kRingNet[kProtocols] = {2.7, 4.0, 14.0};
constexpr double kNvlsStep = 25;
constexpr double kNvlsTreeNet = 20.9;

constexpr double kTreeShare = 0.92;            // of its channels' speed
constexpr double kLl128Share = 0.92;           // of a ring's
constexpr double kTreeLl128Share = 15.0 / 16;  // of a tree's over nodes: what LL128 leaves of 128 bytes

// GB/s, rows by generation, columns 1 node, 2 nodes, 3 or more.
using BandwidthTable = double[kNumRows][kNumNodeColumns];
constexpr BandwidthTable kLlMax = {{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}};
constexpr BandwidthTable kRingLl128 = {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {73.4, 34.6, 73.4}};
constexpr BandwidthTable kTreeLl128 = {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}};
constexpr BandwidthTable kTreeChannel = {{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}};
constexpr BandwidthTable kNvlsTreeChannel = {{26.5, 18.5, 10}, {24, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96, 43.8}};
constexpr double kNvlsEfficiency[kNumRows] = {0, 0, 0.85, 0.74};
constexpr int64_t kHeads = 8;  // of the nodes that the tables of channels are of: DGX H100 and B200

// tuning.cc, treeCorrectionFactor: by log2(S / 64).
constexpr int kTreeColumns = 23;
constexpr double kTreeCorrection[kProtocols][kTreeColumns] = {
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9},
};

Row RowOf(Generation generation) {
  switch (generation) {
    case Generation::kHost:
    case Generation::kVolta:
      return kVoltaRow;
    case Generation::kAmpere:
    case Generation::kAda:
      return kAmpereRow;
    case Generation::kHopper:
      return kHopperRow;
    case Generation::kBlackwell:
      return kBlackwellRow;
  }
  return kVoltaRow;
}
NodeColumn ColumnOf(int64_t nodes) { return nodes <= 1 ? kOneNode : nodes == 2 ? kTwoNodes : kMoreNodes; }

SpeedList IntraSpeeds(Row row) {
  if (row == kBlackwellRow) return {kIntraSpeedsBlackwell, std::size(kIntraSpeedsBlackwell)};
  if (row == kHopperRow) return {kIntraSpeedsHopper, std::size(kIntraSpeedsHopper)};
  return {kIntraSpeeds, std::size(kIntraSpeeds)};
}
SpeedList InterSpeeds(Row row) {
  if (row == kBlackwellRow) return {kInterSpeedsBlackwell, std::size(kInterSpeedsBlackwell)};
  if (row == kHopperRow) return {kInterSpeedsHopper, std::size(kInterSpeedsHopper)};
  return {kInterSpeeds, std::size(kInterSpeeds)};
}

bool IsNvlink(LinkKind kind) { return kind == LinkKind::kNvSwitch || kind == LinkKind::kNvLinkMesh; }

// A device's links of its generation: how many (topo.h), and GB/s of each (data sheets).
constexpr double kNvLinks[kNumRows] = {6, 12, 18, 18};
constexpr double kNvLinkRate[kNumRows] = {25, 25, 25, 50};

// A device's link inside the node over those of its generation, at least 1. NCCL's lists of speeds and tables end with
// these: told of faster ones it would leave the switch for rings, and LL128 too early, and more bandwidth would be
// slower. Faster links are of a later generation, with tables to match, so its choice is that for its own links.
double Excess(const Cluster& cluster) {
  const Row row = RowOf(cluster.device.generation);
  if (!IsNvlink(cluster.intra_kind)) return 1;
  return std::max(1.0, cluster.intra_bandwidth.raw() / 1e9 / (kNvLinks[row] * kNvLinkRate[row]));
}

// A device's link to the group's others inside the node, as NCCL counts it.
double IntraView(const GroupShape& group, const Cluster& cluster) {
  const double share = IsNvlink(cluster.intra_kind) ? kNvLinkShare[RowOf(cluster.device.generation)] : kNcclPcieShare;
  return share * cluster.intra_bandwidth.raw() / 1e9 / Excess(cluster) * MeshShare(group, cluster);
}

double LargestAtMost(const SpeedList& speeds, double limit) {
  for (double speed : speeds) {
    if (speed <= limit) return speed;
  }
  return 0;
}

// In us: inside nodes, with what every call waits for, and between them; and what of that is the cards' own.
struct Waits {
  double inside = 0, network = 0, cards = 0;
};

// Levels of a tree over nodes: tuning.cc rounds them down for the choice, but of 3 nodes the tree (src/graph/trees.cc)
// has two.
enum class Levels : uint8_t { kCounted, kOfTree };
double LevelsOf(Levels which, int64_t nodes) {
  const double levels = std::log2(static_cast<double>(nodes));
  return which == Levels::kCounted ? std::floor(levels) : std::ceil(levels);
}

Waits WaitsOf(Algorithm algorithm, CollectiveKind kind, size_t p, const GroupShape& group, const Cluster& cluster,
              Levels which) {
  const bool nvlink = IsNvlink(cluster.intra_kind);
  const double nodes = static_cast<double>(group.nodes);
  const double levels = LevelsOf(which, group.nodes);
  const bool simple = p == 2;
  // The card's own latency, once more for Simple's flush.
  const double card = group.nodes == 1 ? 0 : cluster.nic_latency.raw() / 1e3 * (simple ? 2 : 1);
  const double tree_net = kTreeNet[p] + card;
  const double ring_net = (group.ranks_per_node == 1 ? kTreeNet[p] : kRingNet[p]) + card;
  const double ring_step = nvlink ? kRingNvlink[p] : kRingPci[p];
  // Time to post a message to the network: 1 us (2 on AMD hosts), three times that for Simple.
  double post = group.nodes == 1 ? 0 : cluster.cpu == CpuVendor::kAmd ? 2 : 1;
  if (simple) post *= 3;
  switch (algorithm) {
    case Algorithm::kRing: {
      if (kind == CollectiveKind::kBroadcast) {
        const double step = group.nodes > 1 ? ring_net : ring_step;
        const double tree_step = group.nodes > 1 ? tree_net : nvlink ? kTreeNvlink[p] : kTreePci[p];
        const double steps = simple ? static_cast<double>(group.ranks) * tree_step : step;
        const double hops = simple ? static_cast<double>(group.ranks) : 1;
        return group.nodes > 1 ? Waits{kBaseRing[p], steps, hops * card} : Waits{kBaseRing[p] + steps};
      }
      const double rounds = InfoOf(kind).bus_rounds;
      const double steps = rounds * static_cast<double>(group.ranks - 1);
      const double net_steps = rounds * (nodes - 1);
      return {kBaseRing[p] + (steps - net_steps) * std::max(ring_step, post), net_steps * ring_net, net_steps * card};
    }
    case Algorithm::kTree: {
      const double step = nvlink ? kTreeNvlink[p] : kTreePci[p];
      return {kBaseTree[p] + 2 * static_cast<double>(group.ranks_per_node - 1) * step, 2 * levels * tree_net,
              2 * levels * card};
    }
    case Algorithm::kNvls:
      return {kNvlsStep};
    case Algorithm::kNvlsTree:
      return {kNvlsStep, 2 * levels * (kNvlsTreeNet + card), 2 * levels * card};
    case Algorithm::kPat:
      return {kBasePat + 2.8 * static_cast<double>(group.ranks), levels * tree_net / 3.5, levels * card / 3.5};
    case Algorithm::kNone:
    case Algorithm::kPairs:
    case Algorithm::kHostMemory:
      return {};
  }
  return {};
}

double LlMax(const GroupShape& group, const Cluster& cluster, Row row) {
  const NodeColumn column = ColumnOf(group.nodes);
  if (column == kOneNode) return kLlMax[row][column];
  return kLlMax[cluster.cpu == CpuVendor::kAmd ? kAmpereRow : kVoltaRow][column];
}

constexpr double kLineBytesPerBlock = 4 << 10;  // 512 threads of 8 bytes

// A ring's algorithm bandwidth over that of its bus.
double RingRatio(CollectiveKind kind, const GroupShape& group) {
  const int rounds = InfoOf(kind).bus_rounds;
  const double ranks = static_cast<double>(group.ranks);
  return rounds == 0 ? 1 : ranks / (rounds * (ranks - 1));
}

// What a ring with LL carries of what NCCL counts. For Blackwell its table has twice Hopper's; but a thread sends a
// line of 8 bytes a step, and its steps take as long, so the rate grows with the blocks, 32 for 24.
double LlCarriedShare(const NcclCandidate& ring, CollectiveKind kind, const GroupShape& group, const Cluster& cluster) {
  if (RowOf(cluster.device.generation) != kBlackwellRow || !IsNvlink(cluster.intra_kind)) return 1;
  constexpr double kHopperBlocks = 24;
  const double threads = kLlMax[kHopperRow][kOneNode] * ring.blocks / kHopperBlocks;
  return std::min(1.0, threads * RingRatio(kind, group) / ring.bandwidth);
}

// Bus bandwidth of rings and trees.
double RingBus(size_t p, const NcclGraph& graph, double ll_max, Row row, NodeColumn column) {
  const double total = graph.channels * graph.speed;
  if (p == 0) return std::min(ll_max, total / 2);
  if (p == 1) return std::min(kLl128Share * total, graph.channels * kRingLl128[row][column]);
  return total;
}
double TreeBus(size_t p, const NcclGraph& graph, double speed, double ll_max, Row row, NodeColumn column) {
  const double total = std::min(kTreeShare * graph.channels * speed, graph.channels * kTreeChannel[row][column]);
  if (p == 0) return std::min(total / 3.8, ll_max);
  if (p == 1) {
    return std::min(total * (column == kOneNode ? 7.0 / 9 : kTreeLl128Share), graph.channels * kTreeLl128[row][column]);
  }
  return total;
}

// Between two nodes a tree crosses the network once where a ring crosses it twice, so the search goes on to raise the
// tree's speed inside the nodes, up to twice the speed between them.
double TreeSpeed(const NcclGraph& ring, Row row, const GroupShape& group, const Cluster& cluster) {
  if (group.nodes != 2) return ring.speed;
  const SpeedList speeds = InterSpeeds(row);
  double best = ring.speed;
  for (size_t i = speeds.count; i-- > 0;) {
    const double speed = speeds.speeds[i];
    if (speed <= best) continue;
    const bool inside = group.ranks_per_node > 1;  // else there is nothing to be slow
    if (best >= 2 * ring.speed || (inside && speed * ring.channels > IntraView(group, cluster))) break;
    best = speed;
  }
  return best;
}

// What a tree carries between nodes in GB/s of the bytes summed. For its choice NCCL counts the cards to send every
// byte twice and limits each channel by its architecture's table; but n nodes of a tree have n - 1 edges, up and down
// which each byte goes once, so the cards send 2 (n - 1) / n of them, and m devices in a row 2 (m - 1) / m. Trees
// pinned over 3 nodes of 4 and of 8 GB200 (NVIDIA/nccl issue 1801): -2 %, where the tables say +47 and +167 %.
double TreeCarried(const NcclGraph& graph, const GroupShape& group, const Cluster& cluster) {
  const double nodes = static_cast<double>(group.nodes);
  const double between = graph.channels * graph.speed * nodes / (2 * (nodes - 1));
  if (group.ranks_per_node == 1) return kTreeShare * between;
  const double per_node = static_cast<double>(group.ranks_per_node);
  return kTreeShare * std::min(between, IntraView(group, cluster) * per_node / (2 * (per_node - 1)));
}

// What devices without peer access carry in GB/s of a call's bytes, however fast their nodes' cards are: with LL half,
// since each word has a flag beside it.
double HostCarried(const NcclCandidate& candidate, CollectiveKind kind, const GroupShape& group,
                   const Cluster& cluster) {
  const double per_node = static_cast<double>(group.ranks_per_node);
  const bool tree = candidate.algorithm == Algorithm::kTree;
  const double ratio = tree ? per_node / (2 * (per_node - 1)) : RingRatio(kind, group);
  const double data = candidate.protocol == Protocol::kLl ? 0.5 : 1;
  return data * kThroughHostShare * cluster.intra_bandwidth.raw() / 1e9 * ratio;
}

double NvlsBus(CollectiveKind kind, const NcclGraph& graph, const GroupShape& group, Row row, NodeColumn column) {
  const double all_reduce = kind == CollectiveKind::kAllReduce;
  const double per_node = static_cast<double>(group.ranks_per_node);
  const double heads = graph.channels;
  const double intra =
      graph.speed * kNvlsEfficiency[row] * (heads - 1) / heads * (all_reduce ? 2 : (per_node - 1) / per_node);
  double channel = std::min(intra, graph.inter_speed * (column == kTwoNodes ? 2 : 1));
  if (column != kOneNode) channel = std::min(channel, kNvlsTreeChannel[row][column]);
  return heads * channel;
}

// NcclCandidate::blocks_bus.
double BlocksBus(Algorithm algorithm, CollectiveKind kind, const GroupShape& group, const Cluster& cluster) {
  const Row row = RowOf(cluster.device.generation);
  if (algorithm == Algorithm::kNvlsTree) {
    return static_cast<double>(kHeads) * kNvlsTreeChannel[row][ColumnOf(group.nodes)];
  }
  if (algorithm != Algorithm::kNvls || kind != CollectiveKind::kAllReduce) return 0;
  const GroupShape eight = {kHeads, 1, kHeads, 1};
  const double bus = NvlsBus(kind, NvlsGraph(eight, cluster), eight, row, kOneNode);
  return bus / BusFactor(kind, kHeads) * BusFactor(kind, group.ranks);
}

}  // namespace

double MeshShare(const GroupShape& group, const Cluster& cluster) {
  constexpr int64_t kMostWired = 4;
  const int64_t devices = cluster.devices_per_node;
  if (cluster.intra_kind != LinkKind::kNvLinkMesh || devices > kMostWired || group.ranks_per_node >= devices) return 1;
  return static_cast<double>(group.ranks_per_node - 1) / static_cast<double>(devices - 1);
}

int64_t NicsOfGroup(const GroupShape& group, const Cluster& cluster) {
  const int64_t near = group.Fewest() * cluster.nics_per_node / std::max<int64_t>(1, cluster.devices_per_node);
  return std::clamp<int64_t>(near, 1, std::max<int64_t>(1, cluster.nics_per_node));
}

NcclGraph RingGraph(const GroupShape& group, const Cluster& cluster) {
  const Row row = RowOf(cluster.device.generation);
  const double intra = group.ranks_per_node > 1 ? IntraView(group, cluster) : 1e6;
  const bool one_node = group.nodes <= 1;
  const double nic = kNicShare * cluster.nic_bandwidth.raw() / 1e9;
  const double nics = static_cast<double>(NicsOfGroup(group, cluster));
  NcclGraph graph;
  if (one_node && cluster.intra_kind == LinkKind::kNvLinkMesh && row == kVoltaRow &&
      group.ranks < static_cast<int64_t>(std::size(kMeshRings))) {
    graph.channels = kMeshRings[group.ranks];
    graph.speed = kMeshRingSpeed;
    graph.blocks = 2 * graph.channels;
    return graph;
  }
  for (double speed : one_node ? IntraSpeeds(row) : InterSpeeds(row)) {
    // Once it has channels the search goes no further down than to half their speed (search.cc, ncclTopoCompute).
    if (graph.channels > 0 && speed / graph.speed <= 0.49) break;
    // Limits of the search: 32 channels.
    double channels = std::min(32.0, std::floor(intra / speed + 1e-9));
    if (!one_node) channels = std::min(channels, nics * std::floor(nic / speed + 1e-9));
    if (channels * speed > graph.channels * graph.speed + 1e-9) {
      graph.channels = static_cast<int>(channels);
      graph.speed = speed;
    }
  }
  if (graph.channels == 0) {  // slower than the slowest speed of the list
    graph.channels = 1;
    graph.speed = one_node ? intra : std::min(intra, nic * nics);
  }
  const bool keep = row >= kHopperRow && graph.speed < 50 && graph.channels > 4;
  if (graph.speed >= 25 && !keep) {
    graph.channels *= 2;
    graph.speed /= 2;
  }
  // connect.cc: every channel is used twice; on Hopper across nodes twice again where few fast ones were found.
  graph.blocks = 2 * graph.channels;
  if (row == kHopperRow && !one_node && graph.speed > 45 && graph.channels < 16) graph.blocks *= 2;
  return graph;
}

NcclGraph NvlsGraph(const GroupShape& group, const Cluster& cluster) {
  const Row row = RowOf(cluster.device.generation);
  NcclGraph graph;
  if (cluster.intra_kind != LinkKind::kNvSwitch || kNvlsEfficiency[row] == 0 || group.ranks_per_node < 2) return graph;
  const SpeedList speeds = IntraSpeeds(row);
  graph.channels = static_cast<int>(std::min<int64_t>(group.ranks_per_node, 32));
  graph.speed = LargestAtMost(speeds, IntraView(group, cluster) / graph.channels);
  graph.inter_speed = *speeds.begin();
  if (group.nodes > 1) {
    const double nics = static_cast<double>(NicsOfGroup(group, cluster));
    const double nic = kNicShare * cluster.nic_bandwidth.raw() / 1e9 * nics / graph.channels;
    graph.inter_speed = LargestAtMost(InterSpeeds(row), nic);
  }
  graph.blocks = row == kBlackwellRow ? (group.nodes > 1 ? 32 : 24) : 16;
  return graph;
}

NcclCandidates CandidatesOf(CollectiveKind kind, const GroupShape& group, const Cluster& cluster) {
  const Row row = RowOf(cluster.device.generation);
  const NodeColumn column = ColumnOf(group.nodes);
  const NcclGraph graph = RingGraph(group, cluster);
  const double tree_speed = TreeSpeed(graph, row, group, cluster);
  const double ll_max = LlMax(group, cluster, row);
  const double ring_ratio = RingRatio(kind, group);
  const bool all_reduce = kind == CollectiveKind::kAllReduce;
  NcclCandidates candidates;
  auto add = [&](Algorithm algorithm, size_t p, double bandwidth, int blocks) {
    if (bandwidth <= 0) return;
    const Waits waits = WaitsOf(algorithm, kind, p, group, cluster, Levels::kCounted);
    const double latency = waits.inside + waits.network;
    candidates.rows[candidates.count++] = {algorithm,
                                           static_cast<Protocol>(p + 1),
                                           latency,
                                           bandwidth,
                                           blocks,
                                           waits.network / latency,
                                           waits.cards / latency,
                                           BlocksBus(algorithm, kind, group, cluster)};
  };
  for (size_t p = 0; p < kProtocols; ++p) {
    if (p < 2 && group.nodes > 1 && !cluster.nic_in_order) continue;  // flags would arrive before their data
    // tuning.cc: LL128 between nodes needs a card no further than PCIe switches, on Grace the CPU's own link (2.27 on).
    if (p == 1 && group.nodes > 1 && !cluster.nic_ll128) continue;
    if (p == 1 && !IsNvlink(cluster.intra_kind) && group.ranks_per_node > 1) continue;  // LL128 needs NVLink's ordering
    if (all_reduce) add(Algorithm::kTree, p, TreeBus(p, graph, tree_speed, ll_max, row, column) * 0.5, graph.blocks);
    add(Algorithm::kRing, p, RingBus(p, graph, ll_max, row, column) * ring_ratio, graph.blocks);
  }
  const NcclGraph nvls = NvlsGraph(group, cluster);
  if (nvls.channels >= 2 && kind != CollectiveKind::kBroadcast) {
    const double bus = NvlsBus(kind, nvls, group, row, column);
    if (column == kOneNode) add(Algorithm::kNvls, 2, bus * (all_reduce ? ring_ratio : 1), nvls.blocks);
    if (column != kOneNode && all_reduce) add(Algorithm::kNvlsTree, 2, bus * ring_ratio, nvls.blocks);
  }
  const bool gathers = kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter;
  if (gathers && group.ranks_per_node == 1) {
    add(Algorithm::kPat, 2, 0.75 * graph.channels * graph.speed, graph.blocks);
  }
  return candidates;
}

namespace {

// NCCL's share for trees: one for all sizes of a doubling.
double TreeCorrection(size_t p, int64_t bytes) {
  if (bytes < 64) return 1;
  const int log = std::bit_width(static_cast<uint64_t>(bytes / 64)) - 1;
  return log < kTreeColumns ? kTreeCorrection[p][log] : 1;
}

// The same without steps, since nothing that is measured has any: between one doubling and the next.
double SmoothTreeCorrection(size_t p, int64_t bytes) {
  if (bytes < 64) return 1;
  const double log = std::log2(static_cast<double>(bytes) / 64), below = std::floor(log);
  const int column = static_cast<int>(below);
  const double low = column < kTreeColumns ? kTreeCorrection[p][column] : 1;
  const double high = column + 1 < kTreeColumns ? kTreeCorrection[p][column + 1] : 1;
  return low + (log - below) * (high - low);
}

}  // namespace

NcclPrediction PredictionOf(const NcclCandidate& candidate, CollectiveKind kind, Bytes size, const GroupShape& group,
                            const Cluster& cluster) {
  const int64_t bytes = size.raw();
  const size_t p = static_cast<size_t>(candidate.protocol) - 1;
  double latency = candidate.latency_us;
  double bandwidth = candidate.bandwidth;
  if (candidate.algorithm == Algorithm::kTree) bandwidth *= TreeCorrection(p, bytes);
  if (candidate.algorithm == Algorithm::kRing && p == 2 && kind == CollectiveKind::kAllReduce && group.nodes > 1 &&
      bytes / (candidate.blocks / 2 * group.ranks) >= 64) {
    latency *= cluster.device.generation < Generation::kAmpere ? 1.9 : 1.4;
  }
  return {latency, static_cast<double>(bytes) / (1000 * bandwidth)};
}

NcclChoice ChooseAsNccl(CollectiveKind kind, Bytes size, const GroupShape& group, const Cluster& cluster,
                        const NcclPins& pins) {
  const NcclCandidates candidates = CandidatesOf(kind, group, cluster);
  const auto pinned = [&pins](const NcclCandidate& candidate) {
    return (pins.algorithm == Algorithm::kNone || candidate.algorithm == pins.algorithm) &&
           (pins.protocol == Protocol::kNone || candidate.protocol == pins.protocol);
  };
  const bool any = std::any_of(candidates.begin(), candidates.end(), pinned);
  NcclChoice best;
  double least_left_out = std::numeric_limits<double>::infinity();
  for (const NcclCandidate& candidate : candidates) {
    const NcclPrediction time = PredictionOf(candidate, kind, size, group, cluster);
    const double total = time.latency_us + time.transfer_us;
    if (any && !pinned(candidate)) {
      least_left_out = std::min(least_left_out, total);
      continue;
    }
    if (best.candidate.algorithm == Algorithm::kNone || total < best.predicted_us) {
      best = {candidate, total, time.latency_us, time.transfer_us};
    }
  }
  best.forced = least_left_out < best.predicted_us;
  if (best.candidate.algorithm == Algorithm::kTree) {
    const size_t p = static_cast<size_t>(best.candidate.protocol) - 1;
    best.smooth_transfer_us *= TreeCorrection(p, size.raw()) / SmoothTreeCorrection(p, size.raw());
    // Over more than two nodes what NCCL chooses by itself stays with its tables: a tree that carries what it could
    // would beat the rings that NCCL takes over fewer nodes.
    if (p > 0 && (group.nodes == 2 || (group.nodes > 2 && pins.algorithm == Algorithm::kTree))) {
      const double carried = TreeCarried(RingGraph(group, cluster), group, cluster) * (p == 1 ? kTreeLl128Share : 1);
      best.smooth_transfer_us *= best.candidate.bandwidth / carried;
    }
  }
  // A ring with LL128 has twice the channels that NCCL's table limits (connect.cc doubles them after the search): 3 x 8
  // A100 with four cards of 200 Gb/s move 94 GB/s (NVIDIA/nccl-tests issue 119), where the table says 4 x 20.
  if (group.nodes > 1 && best.candidate.algorithm == Algorithm::kRing && best.candidate.protocol == Protocol::kLl128) {
    const NcclGraph graph = RingGraph(group, cluster);
    const double carried = kLl128Share * graph.channels * graph.speed * RingRatio(kind, group);
    best.smooth_transfer_us *= best.candidate.bandwidth / carried;
  }
  if (group.nodes > 1 && best.candidate.algorithm != Algorithm::kNone) {
    NcclCandidate& candidate = best.candidate;
    const size_t p = static_cast<size_t>(candidate.protocol) - 1;
    const Waits waits = WaitsOf(candidate.algorithm, kind, p, group, cluster, Levels::kOfTree);
    const double latency = waits.inside + waits.network;
    best.latency_us *= latency / candidate.latency_us;
    candidate.network_share = waits.network / latency;
    candidate.cards_share = waits.cards / latency;
    if (cluster.intra_kind == LinkKind::kPcieHost && group.ranks_per_node > 1) {
      const double carried = HostCarried(candidate, kind, group, cluster);
      best.smooth_transfer_us = std::max(best.smooth_transfer_us, static_cast<double>(size.raw()) / (1000 * carried));
    }
  }
  if (group.nodes <= 1) {
    const bool ring = best.candidate.algorithm == Algorithm::kRing, ll = best.candidate.protocol == Protocol::kLl;
    if (ring && ll) best.smooth_transfer_us /= LlCarriedShare(best.candidate, kind, group, cluster);
    if (ll && kind != CollectiveKind::kBroadcast) {
      best.line_bytes = kLineBytesPerBlock * best.candidate.blocks * (ring ? static_cast<double>(group.ranks) : 1);
    }
    best.smooth_transfer_us /= Excess(cluster);
    if (cluster.intra_kind == LinkKind::kPcieHost) best.smooth_transfer_us *= kNcclPcieShare / kThroughHostShare;
    best.candidate.blocks_bus *= Excess(cluster);
  }
  return best;
}

}  // namespace meshwright
