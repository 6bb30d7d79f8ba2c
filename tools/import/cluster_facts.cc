#include "tools/import/cluster_facts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "costmodel/library.h"
#include "ir/status.h"
#include "ir/text.h"
#include "tools/cluster_flags.h"
#include "tools/import/links.h"
#include "tools/numbers.h"
#include "tools/validate/gpu_type.h"
#include "tools/validate/power_limit.h"

namespace meshwright {
namespace {

// nvidia-smi counts what the driver keeps for itself, up to 1.5 % on the cards of the library (40,960 MiB where an
// A100 has 39.4 GiB to give).
constexpr double kMemoryTolerance = 0.03;

// No name of a device is longer; longer text is no name.
constexpr size_t kLongestName = 64;

// A switch that joins more devices than a server holds spans a rack.
constexpr int64_t kLargestServer = 16;

std::string ShowRate(BytesPerSecond rate) { return absl::StrCat(ShortestNumber(rate.raw() / 1e9), " GB/s"); }
std::string ShowBits(BytesPerSecond rate) { return absl::StrCat(ShortestNumber(rate.raw() * 8 / 1e9), " Gb/s"); }

bool IsNvLink(LinkKind kind) { return kind == LinkKind::kNvSwitch || kind == LinkKind::kNvLinkMesh; }

// Whether `usual` could be the machine of the description, by its links and its CPU.
bool CouldBe(const Cluster& usual, const ClusterFacts& facts) {
  if (facts.cpu.has_value() && (*facts.cpu == CpuVendor::kArm) != (usual.cpu == CpuVendor::kArm)) return false;
  if (!facts.nvlinks.has_value()) return true;
  if (facts.nvlinks->shape != NvLinks::Shape::kNone) return IsNvLink(usual.intra_kind);
  if (facts.c2c.has_value()) return usual.intra_kind == LinkKind::kC2c;
  return IsPcie(usual.intra_kind);
}

// Makes the file of one description.
class Writer {
 public:
  Writer(ClusterFacts facts, const ClusterHints& hints, absl::string_view file_name)
      : facts_(std::move(facts)), hints_(hints), file_(file_name), notes_(std::move(facts_.notes)) {}

  absl::StatusOr<Imported> Write() {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string device, ChooseDevice());
    MESHWRIGHT_ASSIGN_OR_RETURN(machine_, MakeCluster(device, 1));
    MESHWRIGHT_RETURN_IF_ERROR(CountNodes());
    Add("device", QuoteYaml(device));
    Add("nodes", absl::StrCat(nodes_));
    if (facts_.devices_per_node.has_value()) Add("devices_per_node", absl::StrCat(*facts_.devices_per_node));
    TellOfRack();
    WriteMemory();
    WritePower();
    MESHWRIGHT_RETURN_IF_ERROR(WriteLinks());
    WriteCards();
    if (facts_.nodes_per_leaf.has_value()) Add("nodes_per_leaf", absl::StrCat(*facts_.nodes_per_leaf));
    if (facts_.cpu.has_value()) Add("cpu", std::string(NameOf(*facts_.cpu)));
    TellOfUsual();
    std::string text = absl::StrCat("# From ", facts_.source, ", ", QuoteYaml(file_),
                                    ". What is not here is of the device's usual machine.\n");
    for (const auto& [key, value] : fields_) absl::StrAppend(&text, key, ": ", value, "\n");
    return Imported{std::move(text), std::move(notes_)};
  }

 private:
  void Add(absl::string_view key, std::string value) { fields_.emplace_back(key, std::move(value)); }
  bool Has(absl::string_view key) const {
    return std::any_of(fields_.begin(), fields_.end(), [&](const auto& field) { return field.first == key; });
  }
  template <class... Parts>
  void Note(const Parts&... parts) {
    notes_.push_back(absl::StrCat(parts...));
  }

  // The device's name in the library, or its file.
  absl::StatusOr<std::string> ChooseDevice() {
    absl::StatusOr<std::string> described = DescribedDevice();
    if (hints_.device.has_value()) {
      const absl::StatusOr<Device> hinted = FindDevice(*hints_.device);
      if (!hinted.ok()) return WrongDevice(*hints_.device, hinted.status());
      const int capability = ComputeCapability(hinted->name);
      if (facts_.capability != 0 && capability != 0 && capability != facts_.capability) {
        return WrongAt(file_, facts_.device_place, absl::StrCat("compute capability ", facts_.capability),
                       absl::StrCat(capability, ", that of --device=", hinted->name), NamesToGive());
      }
      if (!facts_.device_name.empty() && described.ok() && *described != hinted->name) {
        Note("the device is ", hinted->name, ", as --device says; the file describes ", *described);
      }
      return hinted->name;
    }
    if (!described.ok()) return described.status();
    MESHWRIGHT_ASSIGN_OR_RETURN(const Device device, FindDevice(*described));
    if (facts_.device_name.empty()) {
      Note("the device is taken for ", device.name, ", the only one of compute capability ", facts_.capability,
           " with such links and CPU; --device says otherwise");
    } else if (!FindDevice(facts_.device_name).ok()) {
      Note("the device ", QuoteForMessage(facts_.device_name), " is taken for ", device.name,
           ", the nearest one of the library; --device says otherwise");
    }
    return device.name;
  }

  absl::StatusOr<std::string> DescribedDevice() const {
    const std::string& name = facts_.device_name;
    if (!name.empty()) {
      // The name of a file is a flag's to give: a description doesn't choose which files are read.
      const bool is_name = name.size() <= kLongestName && !IsDeviceFile(name);
      if (is_name) {
        if (const absl::StatusOr<Device> device = FindDevice(name); device.ok()) return device->name;
        const absl::StatusOr<std::string> nearest = DeviceNamed(name);
        if (nearest.ok()) return FindDevice(*nearest)->name;
      }
      return absl::NotFoundError(WrongAt(file_, facts_.device_place, QuoteForMessage(name),
                                         absl::StrCat("one of the devices ", ListNames(Views(DeviceNames()))),
                                         "give the nearest as --device=NAME, or a file that describes it")
                                     .message());
    }
    if (facts_.capability == 0) {
      return WrongAt(file_, facts_.device_place, "no device's name", "one",
                     "give it, e.g. --device=h100-sxm, or put what `nvidia-smi -L` prints into the same file");
    }
    const std::vector<std::string> names = Candidates();
    if (names.size() == 1) return names[0];
    return WrongAt(
        file_, facts_.device_place, absl::StrCat("compute capability ", facts_.capability, " and no device's name"),
        names.empty() ? "one that a device of the library has" : "to know which device of it", NamesToGive());
  }

  // Devices of the capability, those with such links and CPU where there are any.
  std::vector<std::string> Candidates() const {
    const std::vector<std::string> all = DevicesOfCapability(facts_.capability);
    std::vector<std::string> names;
    for (const std::string& name : all) {
      const absl::StatusOr<Cluster> usual = MakeCluster(name, 1);
      if (usual.ok() && CouldBe(*usual, facts_)) names.push_back(name);
    }
    return names.empty() ? all : names;
  }

  std::string NamesToGive() const {
    const std::vector<std::string> names = Candidates();
    if (names.empty()) return "give a file that describes it, e.g. --device=my_gpu.yaml";
    return absl::StrCat("give e.g. --device=", names[0], "; there are ", ListNames(Views(names)));
  }

  static std::vector<absl::string_view> Views(const std::vector<std::string>& names) {
    return {names.begin(), names.end()};
  }

  absl::Status CountNodes() {
    if (facts_.devices_per_node.value_or(1) > kMaxDevicesPerNode) {
      return WrongAt(file_, {}, absl::StrCat(*facts_.devices_per_node, " devices of a node"),
                     absl::StrCat("at most ", kMaxDevicesPerNode));
    }
    nodes_ = hints_.nodes.value_or(facts_.nodes.value_or(1));
    if (nodes_ < 1 || nodes_ > kMaxNodes) {
      return WrongAt(file_, {}, absl::StrCat(nodes_, " nodes"), absl::StrCat("from 1 to ", kMaxNodes));
    }
    if (!hints_.nodes.has_value() && !facts_.nodes.has_value()) {
      Note("one node: the file describes a machine and not how many there are; --nodes=N says so");
    } else if (hints_.nodes.has_value() && facts_.nodes.value_or(nodes_) != nodes_) {
      Note("there are ", nodes_, " nodes, as --nodes says; the file lists ", *facts_.nodes);
    }
    return absl::OkStatus();
  }

  void TellOfRack() {
    const int64_t rack = machine_.devices_per_node;
    if (rack <= kLargestServer || facts_.devices_per_node.value_or(rack) >= rack) return;
    Note("NVLink reaches ", rack, " ", machine_.device.name, " of a rack, which is one node here; the file describes ",
         *facts_.devices_per_node, "; for whole racks write devices_per_node: ", rack, " and their number as nodes");
  }

  void WriteMemory() {
    if (!facts_.memory.has_value()) return;
    const double told = static_cast<double>(facts_.memory->raw());
    if (std::abs(told / static_cast<double>(machine_.device.memory.raw()) - 1) <= kMemoryTolerance) return;
    Add("memory", absl::StrCat(facts_.memory->raw() >> 20, " MiB"));
  }

  void WritePower() {
    if (!facts_.power_limit.has_value()) return;
    const double limit = *facts_.power_limit;
    if (!facts_.own_power.has_value()) {
      Note("the power limit of ", ShortestNumber(limit),
           " W is left out, as the card's own is not told; query power.default_limit, too");
      return;
    }
    const KernelConstants& kernels = machine_.device.kernels;
    const double share = ClockUnderLimit(absl::StrFormat("%.0f of %.0f w", limit, *facts_.own_power), kernels);
    if (share >= 1) return;
    Add("sustained_clock", absl::StrFormat("%.3g", std::max(0.1, kernels.sustained_clock * share)));
    Note("sustained_clock is what a limit of ", ShortestNumber(limit), " W leaves of the clock at ",
         ShortestNumber(*facts_.own_power), " W, by the rule of costmodel/power_clock.h");
  }

  absl::Status WriteLinks() {
    if (!facts_.nvlinks.has_value()) {
      // Of a device that usually has other links than PCIe, those are what joins it.
      if (facts_.pcie.has_value() && IsPcie(machine_.intra_kind)) Add("intra_bandwidth", ShowRate(*facts_.pcie));
      return absl::OkStatus();
    }
    if (facts_.nvlinks->shape != NvLinks::Shape::kNone) return WriteNvLinks(*facts_.nvlinks);
    if (facts_.devices_per_node.value_or(0) == 1) {
      if (!facts_.c2c.has_value()) return absl::OkStatus();
      Add("intra_link", "c2c");
      Add("intra_bandwidth", ShowRate(*facts_.c2c));
      return absl::OkStatus();
    }
    const bool usual = IsPcie(machine_.intra_kind);
    Add("intra_link", std::string(NameOf(usual ? machine_.intra_kind : LinkKind::kPcie)));
    if (facts_.pcie.has_value()) {
      Add("intra_bandwidth", ShowRate(*facts_.pcie));
    } else if (!usual) {
      const BytesPerSecond rate = UsualPcieRate(machine_.device.generation);
      Add("intra_bandwidth", ShowRate(rate));
      Note("intra_bandwidth is that of 16 lanes of the card's generation, ", ShowRate(rate),
           ": the file does not tell of its lanes");
    }
    return absl::OkStatus();
  }

  absl::Status WriteNvLinks(const NvLinks& nvlinks) {
    const std::optional<BytesPerSecond> rate = NvLinkRate(machine_.device);
    if (!rate.has_value()) {
      return WrongAt(file_, facts_.device_place, "NVLinks",
                     absl::StrCat("none, as ", machine_.device.name, " has none"),
                     "name the device that it is, e.g. --device=h100-sxm");
    }
    bool switched = nvlinks.shape == NvLinks::Shape::kSwitch;
    int64_t links = nvlinks.links;
    if (nvlinks.shape == NvLinks::Shape::kEveryPair) {
      // Wired pairs share a chip's links, switched ones have all of them each.
      const int64_t peers = facts_.devices_per_node.value_or(2) - 1;
      const bool too_many = peers > 1 && peers * links > MostNvLinks(machine_.device);
      const bool all = *rate * static_cast<double>(links) == machine_.intra_bandwidth;
      switched = too_many || (machine_.intra_kind == LinkKind::kNvSwitch && all);
      if (!switched) links *= peers;
    }
    Add("intra_link", std::string(NameOf(switched ? LinkKind::kNvSwitch : LinkKind::kNvLinkMesh)));
    Add("intra_bandwidth", ShowRate(*rate * static_cast<double>(links)));
    return absl::OkStatus();
  }

  // Cards on a device's PCIe switch, where there are any: NCCL takes no other then. Of these, of one speed.
  void WriteCards() {
    std::vector<NetworkCard>& cards = facts_.cards;
    if (cards.empty()) return;
    const auto is_near = [](const NetworkCard& card) { return card.near; };
    const bool any_near = std::any_of(cards.begin(), cards.end(), is_near);
    if (any_near) LeaveOut(std::not_fn(is_near), "no device shares a PCIe switch with them");
    std::map<double, double> sums;  // by speed
    for (const NetworkCard& card : cards) sums[card.megabits] += card.megabits;
    const auto carries_less = [](const auto& a, const auto& b) { return a.second < b.second; };
    const double speed = std::max_element(sums.begin(), sums.end(), carries_less)->first;
    LeaveOut([&](const NetworkCard& card) { return card.megabits != speed; },
             absl::StrCat("the others have ", ShortestNumber(speed / 1e3), " Gb/s"));
    Add("nics_per_node", absl::StrCat(cards.size()));
    if (speed > 0) Add("inter_bandwidth", ShowBits(BytesPerSecond(speed * 1e6 / 8)));
    // On Grace the CPU's own link does as well.
    if (facts_.cpu != CpuVendor::kArm && machine_.cpu != CpuVendor::kArm) Add("nic_ll128", any_near ? "yes" : "no");
    TellOfFabric();
    const int64_t devices = facts_.devices_per_node.value_or(0);
    if (static_cast<int64_t>(cards.size()) > devices && devices > 0 && cards.size() > 1) {
      Note("there are ", cards.size(), " network cards for ", devices,
           " devices: lower nics_per_node by those that only storage uses");
    }
  }

  // By the names that Linux and their drivers give to cards.
  void TellOfFabric() {
    const auto any_begins = [&](std::initializer_list<absl::string_view> fronts) {
      return std::any_of(facts_.cards.begin(), facts_.cards.end(), [&](const NetworkCard& card) {
        return std::any_of(fronts.begin(), fronts.end(),
                           [&](absl::string_view front) { return absl::StartsWith(card.name, front); });
      });
    };
    if (any_begins({"eth", "en"})) {
      Note(
          "network cards have names of the kernel's interfaces, so bytes go through TCP: give nic_latency, some tens "
          "of us, and nic_ll128: no");
    }
    if (any_begins({"rdmap", "efa"})) {
      Note(
          "network cards have names of Elastic Fabric Adapters: give nic_latency, some 13 to 22 us, and nic_in_order: "
          "no");
    }
  }

  template <class Predicate>
  void LeaveOut(const Predicate& is_out, absl::string_view why) {
    std::vector<NetworkCard>& cards = facts_.cards;
    const auto first =
        std::stable_partition(cards.begin(), cards.end(), [&](const NetworkCard& c) { return !is_out(c); });
    std::vector<std::string> names;
    for (auto card = first; card != cards.end(); ++card) names.push_back(QuoteForMessage(card->name));
    cards.erase(first, cards.end());
    if (!names.empty()) Note("left out of the network cards: ", ListNames(Views(names)), "; ", why);
  }

  // What a cluster with these keys has besides.
  void TellOfUsual() {
    Cluster usual = machine_;
    Resize(nodes_, facts_.devices_per_node.value_or(0), &usual);
    std::vector<std::string> words;
    const auto add = [&](absl::string_view key, const std::string& value) {
      if (!Has(key)) words.push_back(absl::StrCat(key, " ", value));
    };
    add("devices_per_node", absl::StrCat(usual.devices_per_node));
    if (usual.devices_per_node > 1) {
      add("intra_link", std::string(NameOf(usual.intra_kind)));
      add("intra_bandwidth", ShowRate(usual.intra_bandwidth));
    }
    add("nics_per_node", absl::StrCat(usual.nics_per_node));
    add("inter_bandwidth", ShowBits(usual.nic_bandwidth));
    add("nic_latency", absl::StrCat(ShortestNumber(static_cast<double>(usual.nic_latency.raw()) / 1e3), " us"));
    add("oversubscription", ShortestNumber(usual.oversubscription));
    add("cpu", std::string(NameOf(usual.cpu)));
    if (usual.price.has_value()) {
      add("price_per_device_hour", absl::StrCat(ShortestNumber(usual.price->dollars_per_hour), " USD/h"));
    }
    Note("what the file does not say is that of ", machine_.device.name,
         "'s usual machine: ", absl::StrJoin(words, ", "));
  }

  ClusterFacts facts_;
  const ClusterHints& hints_;
  const absl::string_view file_;
  std::vector<std::string> notes_;
  Cluster machine_;  // one usual one of the device
  int64_t nodes_ = 1;
  std::vector<std::pair<std::string, std::string>> fields_;
};

}  // namespace

absl::Status WrongAt(absl::string_view file_name, TextPlace place, absl::string_view found, absl::string_view wanted,
                     absl::string_view remedy) {
  return absl::InvalidArgumentError(
      absl::StrCat(file_name, ":", place.line, ":", place.column, ": ", WrongInput(found, wanted, remedy).message()));
}

NvLinks WiredLinks(const std::vector<std::vector<int64_t>>& links, std::vector<std::string>& notes) {
  const size_t devices = links.size();
  std::vector<int64_t> sums(devices, 0);
  std::vector<bool> reached(devices, false);
  std::vector<size_t> waiting;
  if (devices > 0) {
    waiting.push_back(0);
    reached[0] = true;
  }
  size_t count = 0;
  while (!waiting.empty()) {
    const size_t at = waiting.back();
    waiting.pop_back();
    ++count;
    for (size_t other = 0; other < devices; ++other) {
      if (links[at][other] == 0 || other == at) continue;
      sums[at] += links[at][other];
      if (reached[other]) continue;
      reached[other] = true;
      waiting.push_back(other);
    }
  }
  const bool any = std::any_of(links.begin(), links.end(), [](const std::vector<int64_t>& row) {
    return std::any_of(row.begin(), row.end(), [](int64_t n) { return n > 0; });
  });
  if (!any) return {};
  if (count < devices) {
    notes.push_back(
        "the NVLinks are left out: they join some of the devices and not all, which then reach each other over PCIe");
    return {};
  }
  const auto [least, most] = std::minmax_element(sums.begin(), sums.end());
  if (*least != *most) {
    notes.push_back(
        absl::StrCat("devices have from ", *least, " to ", *most, " NVLinks: all are taken to have ", *least));
  }
  return {NvLinks::Shape::kMesh, *least};
}

absl::StatusOr<Imported> WriteCluster(ClusterFacts facts, const ClusterHints& hints, absl::string_view file_name) {
  return Writer(std::move(facts), hints, file_name).Write();
}

}  // namespace meshwright
