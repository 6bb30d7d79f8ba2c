#include "tools/import/nccl_topology.h"

#include <algorithm>
#include <optional>
#include <pugixml.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "ir/status.h"
#include "ir/text.h"
#include "tools/import/links.h"

namespace meshwright {
namespace {

constexpr int64_t kMostElements = 100000;
constexpr int kMostNested = 64;
constexpr size_t kMostChildren = 640, kMostAttributes = 16, kMostCharacters = 255;  // as NCCL's reader has them
constexpr size_t kMostDevices = 1024, kMostCards = 1024;                            // of a file
constexpr int64_t kMostLinks = 64;                                                  // of an element that counts some
constexpr int64_t kMostMegabits = 100'000'000;                                      // of a network card
constexpr int64_t kMostMegabytes = 10'000'000;                                      // of a link

// The text as a tree, and where its elements stand.
class XmlFile {
 public:
  XmlFile(absl::string_view text, absl::string_view file_name) : text_(text), file_(file_name) {}

  // The element `system`.
  absl::StatusOr<pugi::xml_node> Parse() {
    if (text_.size() > kMaxDescriptionBytes) {
      return Wrong({}, absl::StrCat(text_.size(), " bytes"), absl::StrCat("at most ", kMaxDescriptionBytes));
    }
    // An element begins with one, and most end with another.
    if (std::count(text_.begin(), text_.end(), '<') > 2 * kMostElements) {
      return Wrong({}, "too many elements", absl::StrCat("at most ", kMostElements));
    }
    // Comments and processing instructions are skipped; a DOCTYPE is kept, to be refused.
    constexpr unsigned int kOptions = pugi::parse_escapes | pugi::parse_wconv_attribute | pugi::parse_doctype;
    const pugi::xml_parse_result result =
        document_.load_buffer(text_.data(), text_.size(), kOptions, pugi::encoding_utf8);
    if (!result) {
      return WrongAt(file_, PlaceAt(result.offset), absl::StrCat("no XML (", result.description(), ")"),
                     "the file that NCCL wrote");
    }
    pugi::xml_node root;
    for (const pugi::xml_node child : document_.children()) {
      if (child.type() == pugi::node_doctype) return Wrong(child, "a DOCTYPE", "none", "take it out");
      if (child.type() != pugi::node_element) continue;
      if (root || absl::string_view(child.name()) != "system") {
        return Wrong(child, QuoteForMessage(child.name()), "one element, system");
      }
      root = child;
    }
    if (!root) return Wrong({}, "no element", "one, system");
    return root;
  }

  // `node` empty: of the whole file.
  absl::Status Wrong(const pugi::xml_node& node, absl::string_view found, absl::string_view wanted,
                     absl::string_view remedy = "") const {
    return WrongAt(file_, PlaceOf(node), found, wanted, remedy);
  }

  TextPlace PlaceOf(const pugi::xml_node& node) const { return PlaceAt(node ? node.offset_debug() : 0); }

  absl::StatusOr<int64_t> Number(const pugi::xml_node& node, const char* name, int64_t min, int64_t max) const {
    const absl::StatusOr<int64_t> number = ParseInt(node.attribute(name).value(), min, max);
    if (number.ok()) return *number;
    const TextPlace place = PlaceOf(node);
    return absl::InvalidArgumentError(absl::StrCat(file_, ":", place.line, ":", place.column, ": ", node.name(), ".",
                                                   name, ": ", number.status().message()));
  }

  absl::Status CheckLimits(const pugi::xml_node& node) const {
    size_t attributes = 0, children = 0;
    for (const pugi::xml_attribute attribute : node.attributes()) {
      if (++attributes > kMostAttributes) break;
      const size_t characters = absl::string_view(attribute.value()).size();
      if (characters > kMostCharacters) {
        return Wrong(node, absl::StrCat("a value of ", characters, " characters"),
                     absl::StrCat("at most ", kMostCharacters, ", as NCCL has it"));
      }
    }
    if (attributes > kMostAttributes) {
      return Wrong(node, "more attributes", absl::StrCat("at most ", kMostAttributes, ", as NCCL has it"));
    }
    for (pugi::xml_node child = node.first_child(); child; child = child.next_sibling()) {
      if (++children <= kMostChildren) continue;
      return Wrong(node, "more children", absl::StrCat("at most ", kMostChildren, ", as NCCL has it"));
    }
    return absl::OkStatus();
  }

 private:
  // Counts lines from the beginning: for errors, not for each element.
  TextPlace PlaceAt(std::ptrdiff_t offset) const {
    const absl::string_view before = text_.substr(0, static_cast<size_t>(std::max<std::ptrdiff_t>(0, offset)));
    const size_t newline = before.rfind('\n');
    const size_t begin = newline == absl::string_view::npos ? 0 : newline + 1;
    return {1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n')), 1 + before.size() - begin};
  }

  const absl::string_view text_, file_;
  pugi::xml_document document_;
};

struct LinkElement {
  pugi::xml_node node;
  std::string target, target_class;
  int64_t count = 0;
};

struct Gpu {
  pugi::xml_node node;    // gpu, or the device's pci where files have no gpu
  pugi::xml_node outer;   // the outermost pci around it
  std::string host, bus;  // of files that join machines, the one that it is in; its PCI address
  int64_t capability = 0;
  std::optional<BytesPerSecond> pcie, c2c;
  std::vector<LinkElement> links;
};

struct Card {
  pugi::xml_node outer;
  std::string host, key;  // the same for what is the same card
  NetworkCard card;
};

std::string Lower(const pugi::xml_node& node, const char* name) {
  return absl::AsciiStrToLower(node.attribute(name).value());
}

std::optional<BytesPerSecond> LanesOf(const pugi::xml_node& pci) {
  return PcieRateOfSpeed(pci.attribute("link_speed").value(), pci.attribute("link_width").as_int());
}

// Walks the tree and collects what it has.
class Reader {
 public:
  explicit Reader(const XmlFile& file) : file_(file) {}

  absl::Status Read(const pugi::xml_node& system) {
    const absl::string_view version = system.attribute("version").value();
    if (!version.empty() && version != "1") {
      return file_.Wrong(system, absl::StrCat("version ", QuoteForMessage(version)), "version 1");
    }
    return Walk(system, {}, 1);
  }

  absl::StatusOr<ClusterFacts> Facts() {
    const bool used = !gpus_.empty();  // by the run that wrote the file
    const std::vector<Gpu>& gpus = used ? gpus_ : pci_gpus_;
    if (gpus.empty()) return file_.Wrong({}, "no GPU", "a machine with one");
    facts_.source = "an NCCL topology";
    facts_.device_place = file_.PlaceOf(gpus[0].node);
    facts_.devices_per_node = static_cast<int64_t>(gpus.size());
    if (used && pci_gpus_.size() > gpus.size()) {
      facts_.notes.push_back(absl::StrCat("left out: ", pci_gpus_.size() - gpus.size(),
                                          " GPUs that the run which wrote the file did not use"));
    }
    MESHWRIGHT_RETURN_IF_ERROR(Compare(gpus));
    if (used) {
      MESHWRIGHT_ASSIGN_OR_RETURN(facts_.nvlinks, NvLinksOf(gpus));
    }
    MESHWRIGHT_RETURN_IF_ERROR(AddCards(gpus));
    return std::move(facts_);
  }

 private:
  // What an element stands in.
  struct Above {
    pugi::xml_node outer, pci;  // the outermost pci, and the innermost
    std::string host;
    std::optional<size_t> gpu;
  };

  absl::Status Walk(const pugi::xml_node& node, Above above, int depth) {
    if (depth > kMostNested) return file_.Wrong(node, "elements nested deeper", absl::StrCat("at most ", kMostNested));
    MESHWRIGHT_RETURN_IF_ERROR(file_.CheckLimits(node));
    const absl::string_view name = node.name();
    if (name == "cpu") {
      above.host = node.attribute("host_hash").value();
      MESHWRIGHT_RETURN_IF_ERROR(ReadCpu(node));
    } else if (name == "pci") {
      above.pci = node;
      if (!above.outer) above.outer = node;
      MESHWRIGHT_RETURN_IF_ERROR(ReadPci(node, above));
    } else if (name == "gpu") {
      MESHWRIGHT_RETURN_IF_ERROR(ReadGpu(node, above));
      above.gpu = gpus_.size() - 1;
    } else if (name == "net") {
      MESHWRIGHT_RETURN_IF_ERROR(ReadNet(node, above));
    } else if (name == "nvlink" && above.gpu.has_value()) {
      LinkElement link{node, Lower(node, "target"), Lower(node, "tclass")};
      MESHWRIGHT_ASSIGN_OR_RETURN(link.count, file_.Number(node, "count", 1, kMostLinks));
      gpus_[*above.gpu].links.push_back(std::move(link));
    } else if (name == "c2c" && above.gpu.has_value()) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t count, file_.Number(node, "count", 1, kMostLinks));
      MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t megabytes, file_.Number(node, "bw", 1, kMostMegabytes));
      gpus_[*above.gpu].c2c = BytesPerSecond(1e6 * static_cast<double>(megabytes * count));
    }
    for (const pugi::xml_node child : node.children()) {
      if (child.type() != pugi::node_element) continue;
      MESHWRIGHT_RETURN_IF_ERROR(Walk(child, above, depth + 1));
    }
    return absl::OkStatus();
  }

  absl::Status ReadCpu(const pugi::xml_node& node) {
    const absl::string_view arch = node.attribute("arch").value(), vendor = node.attribute("vendor").value();
    std::optional<CpuVendor> cpu;
    if (arch == "arm64" || arch == "aarch64") cpu = CpuVendor::kArm;
    if (vendor == "GenuineIntel") cpu = CpuVendor::kIntel;
    if (vendor == "AuthenticAMD") cpu = CpuVendor::kAmd;
    if (!cpu.has_value()) {
      if (!arch.empty() && !unknown_cpu_) {
        facts_.notes.push_back(absl::StrCat("the CPU is left out: ", QuoteForMessage(arch), " of ",
                                            QuoteForMessage(vendor), " is none of intel, amd and arm"));
      }
      unknown_cpu_ |= !arch.empty();
      return absl::OkStatus();
    }
    if (facts_.cpu.value_or(*cpu) != *cpu) {
      return file_.Wrong(node, absl::StrCat("a CPU of ", NameOf(*cpu)),
                         absl::StrCat(NameOf(*facts_.cpu), " as before, since all nodes of a cluster are equal"));
    }
    facts_.cpu = cpu;
    return absl::OkStatus();
  }

  static Gpu GpuAt(const pugi::xml_node& node, const Above& above) {
    Gpu gpu;
    gpu.node = node;
    gpu.outer = above.outer;
    gpu.host = above.host;
    gpu.bus = Lower(above.pci, "busid");
    gpu.pcie = LanesOf(above.pci);
    return gpu;
  }

  absl::Status ReadPci(const pugi::xml_node& node, const Above& above) {
    const std::string type = Lower(node, "class");
    if (absl::StartsWith(type, "0x03")) {
      if (pci_gpus_.size() == kMostDevices) {
        return file_.Wrong(node, "more GPUs", absl::StrCat("at most ", kMostDevices));
      }
      pci_gpus_.push_back(GpuAt(node, above));
    } else if (absl::StartsWith(type, "0x02")) {
      if (pci_cards_.size() == kMostCards) {
        return file_.Wrong(node, "more network cards", absl::StrCat("at most ", kMostCards));
      }
      const std::string bus = Lower(node, "busid");
      pci_cards_.push_back({above.outer, above.host, absl::StrCat(above.host, "|", bus), {bus}});
    }
    return absl::OkStatus();
  }

  absl::Status ReadGpu(const pugi::xml_node& node, const Above& above) {
    if (gpus_.size() == kMostDevices) return file_.Wrong(node, "more GPUs", absl::StrCat("at most ", kMostDevices));
    Gpu gpu = GpuAt(node, above);
    MESHWRIGHT_ASSIGN_OR_RETURN(gpu.capability, file_.Number(node, "sm", 10, 999));
    gpus_.push_back(std::move(gpu));
    return absl::OkStatus();
  }

  absl::Status ReadNet(const pugi::xml_node& node, const Above& above) {
    if (cards_.size() + merged_.size() >= kMostCards) {
      return file_.Wrong(node, "more network cards", absl::StrCat("at most ", kMostCards));
    }
    int64_t megabits = 0;
    if (node.attribute("speed")) {
      MESHWRIGHT_ASSIGN_OR_RETURN(megabits, file_.Number(node, "speed", -1, kMostMegabits));
    }
    std::string name = node.attribute("name").value();
    if (name.empty()) name = absl::StrCat("dev ", node.attribute("dev").value());
    // Two ports of a card may share its guid, two hosts a name.
    std::string key =
        absl::StrCat(above.host, "|", name, "|", node.attribute("guid").value(), "|", node.attribute("port").value());
    const bool merged = absl::StrContains(name, '+');
    Card card{above.outer, above.host, std::move(key), {std::move(name)}};
    card.card.megabits = static_cast<double>(std::max<int64_t>(0, megabits));
    if (!seen_.insert(card.key).second) return absl::OkStatus();
    names_.insert({card.host, card.card.name});
    (merged ? merged_ : cards_).push_back(std::move(card));
    return absl::OkStatus();
  }

  // All devices of one kind, with the lanes of the one that has the fewest.
  absl::Status Compare(const std::vector<Gpu>& gpus) {
    for (const Gpu& gpu : gpus) {
      if (gpu.capability == gpus[0].capability) continue;
      return file_.Wrong(gpu.node, absl::StrCat("compute capability ", gpu.capability),
                         absl::StrCat(gpus[0].capability, ", as the GPU at ", QuoteForMessage(gpus[0].bus), " has"),
                         "devices of a cluster are equal: write the file in a run that uses one kind "
                         "(CUDA_VISIBLE_DEVICES)");
    }
    facts_.capability = static_cast<int>(gpus[0].capability);
    const auto least = [&](std::optional<BytesPerSecond> Gpu::*rate) {
      std::optional<BytesPerSecond> result = gpus[0].*rate;
      for (const Gpu& gpu : gpus) {
        if (!(gpu.*rate).has_value()) return std::optional<BytesPerSecond>();
        result = std::min(*result, *(gpu.*rate));
      }
      return result;
    };
    facts_.pcie = least(&Gpu::pcie);
    facts_.c2c = least(&Gpu::c2c);
    return absl::OkStatus();
  }

  // Links to switches where there are any, else those between devices of the file.
  absl::StatusOr<NvLinks> NvLinksOf(const std::vector<Gpu>& gpus) {
    std::vector<int64_t> switched(gpus.size(), 0);
    std::vector<std::vector<int64_t>> wired(gpus.size(), std::vector<int64_t>(gpus.size(), 0));
    int64_t elsewhere = 0;
    for (size_t i = 0; i < gpus.size(); ++i) {
      for (const LinkElement& link : gpus[i].links) {
        size_t peer = 0;
        while (peer < gpus.size() && (gpus[peer].bus != link.target || gpus[peer].host != gpus[i].host)) ++peer;
        if (link.target_class == "0x068001") {  // the CPU of POWER machines
          elsewhere += link.count;
        } else if (absl::StartsWith(link.target_class, "0x0680")) {
          switched[i] += link.count;
        } else if (peer < gpus.size() && peer != i) {
          wired[i][peer] = wired[peer][i] = std::max(wired[i][peer], link.count);
        } else if (absl::StartsWith(link.target_class, "0x03")) {
          elsewhere += link.count;
        } else {
          return file_.Wrong(link.node, absl::StrCat("an end of class ", QuoteForMessage(link.target_class)),
                             "a GPU (0x0302..) or a switch (0x0680..)");
        }
      }
    }
    if (elsewhere > 0) {
      facts_.notes.push_back(
          absl::StrCat("left out: ", elsewhere, " NVLinks that end in no GPU of the file and in no switch"));
    }
    const auto [least, most] = std::minmax_element(switched.begin(), switched.end());
    if (*most == 0) return WiredLinks(wired, facts_.notes);
    if (*least == 0) {
      return file_.Wrong(gpus[static_cast<size_t>(least - switched.begin())].node, "a GPU without links to a switch",
                         absl::StrCat(*most, " of them, as others have"),
                         "devices of a cluster are equal: write the file in a run that uses one kind");
    }
    if (*least != *most) {
      facts_.notes.push_back(
          absl::StrCat("devices have from ", *least, " to ", *most, " NVLinks: all are taken to have ", *least));
    }
    return NvLinks{NvLinks::Shape::kSwitch, *least};
  }

  absl::Status AddCards(const std::vector<Gpu>& gpus) {
    for (const Card& card : merged_) {
      const std::vector<std::string> parts = absl::StrSplit(card.card.name, '+', absl::SkipEmpty());
      for (const std::string& part : parts) {
        if (!names_.insert({card.host, part}).second) continue;
        Card own = card;
        own.card.name = part;
        own.card.megabits = card.card.megabits / static_cast<double>(parts.size());
        cards_.push_back(std::move(own));
      }
    }
    if (cards_.size() > kMostCards) return file_.Wrong({}, "more network cards", absl::StrCat("at most ", kMostCards));
    for (Card& card : cards_.empty() ? pci_cards_ : cards_) {
      card.card.near =
          card.outer && std::any_of(gpus.begin(), gpus.end(), [&](const Gpu& gpu) { return gpu.outer == card.outer; });
      facts_.cards.push_back(std::move(card.card));
    }
    return absl::OkStatus();
  }

  const XmlFile& file_;
  ClusterFacts facts_;
  std::vector<Gpu> gpus_, pci_gpus_;
  std::vector<Card> cards_, merged_, pci_cards_;
  std::set<std::string> seen_;
  std::set<std::pair<std::string, std::string>> names_;  // of cards, with their host
  bool unknown_cpu_ = false;
};

}  // namespace

bool LooksLikeNcclTopology(absl::string_view text) {
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");
  while (true) {
    text = absl::StripLeadingAsciiWhitespace(text);
    absl::string_view end;
    if (absl::StartsWith(text, "<?")) end = "?>";
    if (absl::StartsWith(text, "<!--")) end = "-->";
    if (absl::StartsWith(text, "<!DOCTYPE system")) return true;  // which the reader refuses by its name
    if (end.empty()) break;
    const size_t at = text.find(end);
    if (at == absl::string_view::npos) return false;
    text.remove_prefix(at + end.size());
  }
  return absl::StartsWith(text, "<system") && text.size() > 7 &&
         !absl::ascii_isalnum(static_cast<unsigned char>(text[7]));
}

absl::StatusOr<ClusterFacts> ReadNcclTopology(absl::string_view text, absl::string_view file_name) {
  XmlFile file(text, file_name);
  MESHWRIGHT_ASSIGN_OR_RETURN(const pugi::xml_node system, file.Parse());
  Reader reader(file);
  MESHWRIGHT_RETURN_IF_ERROR(reader.Read(system));
  return reader.Facts();
}

}  // namespace meshwright
