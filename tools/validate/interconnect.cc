#include "tools/validate/interconnect.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "ir/quantities.h"
#include "tools/validate/words.h"

namespace meshwright {
namespace {

// What a message takes more over AWS's EFA than over InfiniBand, first generation (4 cards of 100 Gb/s) and later: set
// on the smallest all_reduces of two p4de and two p5 nodes (awsome-distributed-training), which therefore are no test
// of it. The first generation delivers out of order, so that its plugin lets NCCL use Simple alone (aws-ofi-nccl).
constexpr Nanos kFirstEfaLatency = Micros(17), kEfaLatency = Micros(22);
constexpr int64_t kFirstEfaCards = 4;
// Machines before P4 have no GPUDirect: their cards write to the host's memory, which NCCL does not flush
// (src/transport/net.cc), so a message with Simple waits once where NCCL's model counts twice.
constexpr Nanos kUnflushedEfaLatency = Micros(8.5);
// P3dn, all that AWS has of V100 with EFA, before GPUDirect: twice as much, as the plugin tells NCCL (150 us for 75,
// platform-aws.cpp). From P5en on the plugin tells it half (35 us), AWS says up to 35 % less than on P5 (December
// 2024), of a message: with the 5 us of NCCL's step, 17.6 of 27.
constexpr Nanos kP3dnLatency = Micros(34), kLaterEfaLatency = Micros(12.6);
// Without GPUDirect a thread copies what arrives: 6.9 GB/s one way through an endpoint of a card of 100 Gb/s between
// the hosts' memories (libfabric issue 5694), of which NCCL's thread of a rank, which sends, too, has half. P3dn's card
// is four to NCCL (AWS's log of its Deep Learning AMI, "Forcing AWS OFI ndev 4"), of 100 Gb/s in all (its page of P3),
// whatever other machines with V100 have.
constexpr BytesPerSecond kStagedEfaThread = GBps(6.9 / 2);
constexpr BytesPerSecond kP3dnNode = GBps(12.5);
constexpr int64_t kP3dnCards = 4;

// The same for Google's GPUDirect-TCPXO (A3 Mega), where the host's CPUs carry TCP: from five all_reduces of 256 MB to
// 8 GB over two nodes, 240 to 335 GB/s (a log of NET/FasTrak 1.0.15, 31 May 2026, public on GitHub), 3.9 % off with it.
// On another log, which it was not set on, all_reduces of 8 bytes to 8 GiB are 18 % off, 62 % without.
constexpr Nanos kTcpxoLatency = Micros(55);
// The same for its predecessor GPUDirect-TCPX (A3 High), of which a message waits far longer: from all_reduces of 512
// KiB to 4 MiB over two nodes of 8 H100, 1.05 ms whatever the size (SkyPilot's log), which therefore are no test of it.
// Of all_gathers in two other logs, 0.94 to 1.06 ms from 1 to 16 MiB and 0.78 ms for 8 MiB, it explains 0.6 to 0.8: 19
// and 26 % off, 60 and 52 without. Its plugin is run with NCCL_PROTO=Simple, as Google's guides have it.
constexpr Nanos kTcpxLatency = Micros(155);
// A card of A3 Mega's eight and of A3 High's four, where the text gives no rate: 1,600 and 800 Gbit/s a node for
// devices (Google's page of machine types; of A3 High's 1,000, 200 are the host's).
constexpr BytesPerSecond kGoogleCard = GBps(25);
constexpr int64_t kTcpxCards = 4;

// The same for Google's gIB (A3 Ultra, A4: RoCE): from the smallest all_gathers over two nodes of 8 H200 (SkyPilot's
// log, 28 us where NCCL's own model has 23 with one step through the network), which therefore are no test of it. Of 1
// to 4 KiB over two nodes with a device each (DraNet's log), two steps, the error is 15 % with it, 48 without.
constexpr Nanos kGibLatency = Micros(5);

// TCP by NCCL's own sockets, which no plugin helps: a message passes the kernel's stack, 10 to 30 us one way where RDMA
// takes one (kentino.com, "Latency dissection"; the middle), and one thread sends and receives for a rank but on
// Amazon's and Google's machines (src/transport/net_socket.cc), 42 Gb/s a core (Cai et al., SIGCOMM 2021). Over one
// card of 100 Gb/s NCCL's issues 450 and 398 have 4 to 6 GB/s.
constexpr Nanos kTcpLatency = Micros(20);
constexpr BytesPerSecond kTcpCore = GBps(5.25);
constexpr double kAmazonTcpThreads = 2, kGoogleTcpThreads = 4;

// What NCCL moves through a port of Omni-Path, of what it takes from InfiniBand: an all_reduce of 4 GB over 32 A100 of
// Jean Zay ran at 40.5 Gbit/s through one port of 100, all its channels on one card and without GPUDirect
// (bigscience, experiments/bandwidth/all_reduce_bench-a100-n4.txt); NCCL counts 96.
constexpr double kOmniPathShare = 40.5 / 96;

// An XDR port's, in bytes a second.
constexpr double kFastestCard = 100e9;

// A node's rate over its cards: those of the usual machine, and fewer of them where the node has a part of its rate;
// else as many, of another rate.
void ShareNode(double bytes, Cluster* cluster) {
  const double cards = bytes / std::max(1.0, cluster->nic_bandwidth.raw());
  if (cards >= 1 && cards <= static_cast<double>(cluster->nics_per_node) && cards == std::floor(cards)) {
    cluster->nics_per_node = static_cast<int64_t>(cards);
  } else {
    cluster->nic_bandwidth = BytesPerSecond(bytes / static_cast<double>(cluster->nics_per_node));
  }
}

// NVLink bridges: all that a pair of cards has between them, one direction. Data sheets: H100 PCIe and NVL and A100
// PCIe 600 GB/s both ways, A30 200, A40, RTX A5000, A6000 and 3090 112.5, RTX 2080 Ti, TITAN RTX and Quadro RTX 8000
// 100 (NVIDIA Turing GPU Architecture: two links of 25 GB/s each way on TU102).
struct Bridge {
  absl::string_view device;
  BytesPerSecond rate;
};
constexpr Bridge kBridges[] = {{"h100-pcie", GBps(300)},      {"h100-nvl", GBps(300)},    {"a100-pcie-40gb", GBps(300)},
                               {"a100-pcie-80gb", GBps(300)}, {"a30", GBps(100)},         {"a40", GBps(56.25)},
                               {"rtx-a6000", GBps(56.25)},    {"rtx-a5000", GBps(56.25)}, {"rtx-3090", GBps(56.25)},
                               {"rtx-3090-ti", GBps(56.25)},  {"rtx-2080-ti", GBps(50)},  {"titan-rtx", GBps(50)},
                               {"quadro-rtx-8000", GBps(50)}};

// PCIe by generation: x16, one direction (PCI-SIG: 8, 16, 32, 64 GT/s a lane; a little less is left of it by coding).
constexpr double kPcieRates[] = {15.75, 31.5, 63, 121};
constexpr int kFirstPcie = 3;

}  // namespace

void SetIntranode(absl::string_view text, int64_t ranks, Cluster* cluster) {
  const std::string lower = absl::AsciiStrToLower(text);
  const bool nvlink = HasAny(lower, {"nvlink", "nvswitch", "sxm", "nvl72"});
  // V100 behind switches (NVIDIA's DGX-2 and HGX-2), where other machines have a mesh.
  if (cluster->intra_kind == LinkKind::kNvLinkMesh && HasAny(lower, {"nvswitch", "dgx-2", "hgx-2", "dgx2"})) {
    cluster->intra_kind = LinkKind::kNvSwitch;
  }
  // A switch that is told not to reduce is as good as wires from device to device.
  const bool no_sums = HasAny(lower, {"no sharp", "no nvls", "nvls off", "nvls disabled", "nvls_enable=0"});
  if (cluster->intra_kind == LinkKind::kNvSwitch && no_sums) cluster->intra_kind = LinkKind::kNvLinkMesh;
  static const std::regex* const kNotJoined = new std::regex(R"(\bhost bridge|\b(no|without) (nvlink[- ])?bridge)");
  if (HasAny(lower, {"bridge"}) && !std::regex_search(lower, *kNotJoined) && ranks == 2) {
    for (const Bridge& row : kBridges) {
      if (row.device != cluster->device.name) continue;
      cluster->intra_kind = LinkKind::kNvLinkMesh;
      cluster->intra_bandwidth = row.rate;
      return;
    }
  }
  // Between cards that reach each other's memory or not, as the text says; NCCL takes peers up to PXB, nvidia-smi's
  // word for several PCIe switches between two cards (PIX is for one), and not across the host's bridges
  // (src/graph/paths.cc, but for two cards of an AMD processor), where cards on PCIe mostly are: several without a word
  // are apart. V100's usual machine has one switch for its four.
  static const std::regex* const kApart = new std::regex(
      R"(via shm|\b(no|not|without) (a )?(peer|p2p|pcie switch|pix\b|pxb\b)|\bp2p(:|=| is)? ?(disabled|off|no|0)\b)"
      R"(|p2p_disable=1)");
  static const std::regex* const kPeers =
      new std::regex(R"(peer access|with peers|p2p(?!_disable)|pcie switch|\b(pix|pxb)\b)");
  const bool apart = std::regex_search(lower, *kApart), peers = !apart && std::regex_search(lower, *kPeers);
  const bool switched = cluster->device.generation == Generation::kVolta && !apart;
  if (IsPcie(cluster->intra_kind) && peers) {
    cluster->intra_kind = LinkKind::kPcie;
  } else if (IsPcie(cluster->intra_kind) && !switched && ranks > 1) {
    cluster->intra_kind = LinkKind::kPcieHost;
  }
  std::smatch match;
  static const std::regex* const kPcie =
      new std::regex(R"(pci(?:e|-e|express)?\s*(?:gen)?\s*([3-6])(?:\.0)?\b(?:\s*x\s*(16|8|4)\b)?)");
  if (nvlink || !std::regex_search(lower, match, *kPcie)) return;
  const size_t generation = static_cast<size_t>(std::stoi(match[1].str()) - kFirstPcie);
  const double lanes = match[2].matched ? std::stod(match[2].str()) : 16;
  if (!IsPcie(cluster->intra_kind)) cluster->intra_kind = peers || switched ? LinkKind::kPcie : LinkKind::kPcieHost;
  cluster->intra_bandwidth = GBps(kPcieRates[generation] * lanes / 16);
}

namespace {

// "8 x 400 Gb/s".
const std::regex& CardsOfARate() {
  static const std::regex* const kCards =
      new std::regex(R"((\d{1,4})\s*[x*]\s*(\d{1,6}(\.\d+)?)\s*(G|T)(b|bit|bps|\b))", std::regex::icase);
  return *kCards;
}

// Whether a part of the text says that data goes so, not that it does not or how ranks find each other.
bool SaysTcp(absl::string_view text) {
  static const std::regex* const kTcp = new std::regex(R"(\btcp\b|net/socket)");
  const std::vector<std::string> parts = absl::StrSplit(absl::AsciiStrToLower(text), absl::ByAnyChar(",;"));
  return std::any_of(parts.begin(), parts.end(), [](const std::string& part) {
    return std::regex_search(part, *kTcp) && !HasAny(part, {"bootstrap", "no tcp", "not tcp", "without tcp"});
  });
}

// Threads that carry a rank's TCP, by the vendor of the card.
double TcpThreads(const std::string& text) {
  static const std::regex* const kGoogle = new std::regex(R"(\b(gvnic|gcp|google)\b)", std::regex::icase);
  static const std::regex* const kAmazon = new std::regex(R"(\b(ena|aws|amazon)\b)", std::regex::icase);
  if (std::regex_search(text, *kGoogle)) return kGoogleTcpThreads;
  return std::regex_search(text, *kAmazon) ? kAmazonTcpThreads : 1;
}

// Threads for each card that the text counts; else one card, since what a machine has besides carries RDMA.
void SetTcp(const std::string& text, Cluster* cluster) {
  cluster->nic_latency = kTcpLatency;
  cluster->nic_ll128 = false;
  if (!std::regex_search(text, CardsOfARate())) {
    cluster->nic_bandwidth = cluster->nic_bandwidth * static_cast<double>(cluster->nics_per_node);
    cluster->nics_per_node = 1;
  }
  cluster->nic_bandwidth = std::min(cluster->nic_bandwidth, kTcpCore * TcpThreads(text));
}

bool IsEfa(absl::string_view text) {
  static const std::regex* const kEfa = new std::regex(R"(\befa(v\d)?\b)", std::regex::icase);  // no part of "default"
  return std::regex_search(text.begin(), text.end(), *kEfa);
}
bool IsP3dn(absl::string_view text, const Cluster& cluster) {
  return absl::StrContains(absl::AsciiStrToLower(text), "p3dn") || absl::StartsWith(cluster.device.name, "v100");
}
// Of Amazon's machines with EFA: those from P4 on.
bool HasGpuDirect(const Cluster& cluster) { return cluster.device.generation != Generation::kVolta; }

// What crosses the host's memory: no LL128 (tuning.cc: only from a device through PCIe switches to its card), and what
// a thread copies.
void StageEfa(absl::string_view text, Cluster* cluster) {
  cluster->nic_ll128 = false;
  if (IsP3dn(text, *cluster)) {
    const BytesPerSecond node = cluster->nic_bandwidth * static_cast<double>(cluster->nics_per_node);
    cluster->nic_bandwidth = std::min(node, kP3dnNode) * (1.0 / kP3dnCards);
    cluster->nics_per_node = kP3dnCards;
  }
  cluster->nic_bandwidth = std::min(cluster->nic_bandwidth, kStagedEfaThread);
}

// All but what TCP leaves of it.
bool SetCards(absl::string_view text, Cluster* cluster) {
  const std::string in(text);
  const std::string lower = absl::AsciiStrToLower(text);
  static const std::regex* const kLaterEfa = new std::regex(R"(\bp5en\b|\bp6e?-|\bg7e\b|\befav[34]\b)");
  if (IsEfa(text)) {
    const bool later = std::regex_search(lower, *kLaterEfa);
    cluster->nic_latency = IsP3dn(text, *cluster) ? kP3dnLatency : later ? kLaterEfaLatency : kEfaLatency;
  }
  // Google's machines by name have the network that its page of machine types gives them.
  static const std::regex* const kTcpxo = new std::regex(R"(tcpxo|fastrak|\ba3[ -]?mega)");
  static const std::regex* const kTcpx = new std::regex(R"(tcpx|\ba3[ -]?(high|edge))");
  static const std::regex* const kGib = new std::regex(R"(\bgib\b(?!/)|\ba3[ -]?ultra|\ba4\b)");  // GiB/s is a rate
  if (std::regex_search(lower, *kTcpxo)) {
    cluster->nic_latency = kTcpxoLatency;
    cluster->nic_bandwidth = kGoogleCard;
  } else if (std::regex_search(lower, *kTcpx)) {
    cluster->nic_latency = kTcpxLatency;
    cluster->nic_in_order = false;
    cluster->nic_bandwidth = kGoogleCard;
    cluster->nics_per_node = std::min(cluster->nics_per_node, kTcpxCards);
  }
  if (std::regex_search(lower, *kGib)) cluster->nic_latency = kGibLatency;
  // On A100 (Perlmutter, Polaris) Slingshot's cards hang off the CPU, and on Alps, whose Grace would let LL128 through
  // from NCCL 2.27 on, CSCS's settings for all leave it out as slower there (cscs-docs, nccl_env_vars).
  if (absl::StrContains(lower, "slingshot")) cluster->nic_ll128 = false;
  const double share = HasAny(lower, {"omni-path", "omnipath"}) ? kOmniPathShare : 1;
  std::smatch match;
  static const std::regex* const kNode =
      new std::regex(R"((\d{1,6}(\.\d+)?)\s*(G|T)(b|bit|bps)(\b|/s|ps))", std::regex::icase);
  // Bits, unless a large B says bytes ("8x50 GB/s") and the card is one that there is.
  const auto rate = [](const std::string& number, const std::string& unit, absl::string_view rest) {
    const double value = std::stod(number) * (absl::EqualsIgnoreCase(unit, "T") ? 1e12 : 1e9);
    return absl::StartsWith(rest, "B") && value <= kFastestCard ? value : value / 8;
  };
  if (std::regex_search(in, match, CardsOfARate())) {
    cluster->nics_per_node = std::max<int64_t>(1, std::stoll(match[1].str()));
    cluster->nic_bandwidth = BytesPerSecond(share * rate(match[2].str(), match[4].str(), match[5].str()));
    if (cluster->nic_latency == kEfaLatency && cluster->nics_per_node <= kFirstEfaCards) {
      cluster->nic_latency = HasGpuDirect(*cluster) ? kFirstEfaLatency : kUnflushedEfaLatency;
      cluster->nic_in_order = false;
    }
    return true;
  }
  cluster->nics_per_node = std::max<int64_t>(1, cluster->nics_per_node);
  if (std::regex_search(in, match, *kNode)) {
    // One card's rate where the text says so, or where no node has so little.
    const double bytes = rate(match[1].str(), match[3].str(), "");
    const bool card = HasAny(absl::AsciiStrToLower(in), {"per gpu", "per card", "per nic", "ndr", "hdr", "edr", "xdr"});
    if (card) {
      cluster->nic_bandwidth = BytesPerSecond(bytes);
    } else {
      ShareNode(bytes, cluster);
    }
    return true;
  }
  // Cards alone: "4 NICs", each of the usual machine's rate.
  static const std::regex* const kCardsAlone = new std::regex(R"(\b(\d{1,2}) (nics?|hcas?|network cards?)\b)");
  const bool counted = std::regex_search(lower, match, *kCardsAlone) && std::stoi(match[1].str()) > 0;
  if (counted) cluster->nics_per_node = std::stoi(match[1].str());
  // InfiniBand and Slingshot by their generation alone: a port of each card (HPE: Slingshot 200 Gb/s, its first cards,
  // called Slingshot 10, 100).
  constexpr std::pair<absl::string_view, double> kPorts[] = {
      {"EDR", 100}, {"HDR100", 100},       {"HDR", 200},          {"NDR200", 200},   {"NDR", 400},
      {"XDR", 800}, {"slingshot 10", 100}, {"slingshot-10", 100}, {"slingshot", 200}};
  for (const auto& [name, gigabits] : kPorts) {
    if (!absl::StrContains(in, name) && !absl::StrContains(lower, name)) continue;  // "hundred" is no NDR
    cluster->nic_bandwidth = BytesPerSecond(gigabits * 1e9 / 8);
    return true;
  }
  return counted;
}

}  // namespace

bool SetInternode(absl::string_view text, Cluster* cluster) {
  const bool says = SetCards(text, cluster);
  if (IsEfa(text) && !HasGpuDirect(*cluster)) StageEfa(text, cluster);
  if (SaysTcp(text)) SetTcp(std::string(text), cluster);
  return says;
}

}  // namespace meshwright
