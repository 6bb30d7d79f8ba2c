#include "tools/import/slurm.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "costmodel/library.h"
#include "ir/status.h"
#include "ir/text.h"

namespace meshwright {
namespace {

constexpr int kMostDigits = 18;  // of a number of a host: so many fit 64 bits

// The text behind `key` where the word begins with it, in any case.
bool ConsumeKey(absl::string_view* word, absl::string_view key) {
  if (!absl::StartsWithIgnoreCase(*word, key)) return false;
  word->remove_prefix(key.size());
  return true;
}

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// The parts between commas that are in no brackets and no parentheses.
std::vector<absl::string_view> OuterParts(absl::string_view text) {
  std::vector<absl::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[' || text[i] == '(') ++depth;
    if ((text[i] == ']' || text[i] == ')') && depth > 0) --depth;
    if (text[i] != ',' || depth > 0) continue;
    parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

absl::StatusOr<int64_t> HostNumber(absl::string_view digits) {
  const bool all = std::all_of(digits.begin(), digits.end(),
                               [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); });
  if (digits.empty() || !all || digits.size() > kMostDigits) {
    return WrongInput(QuoteForMessage(digits), absl::StrCat("a host's number, of at most ", kMostDigits, " digits"));
  }
  int64_t value = 0;
  for (const char c : digits) value = 10 * value + (c - '0');
  return value;
}

absl::Status CheckHosts(int64_t count) {
  if (count <= kMaxNodes) return absl::OkStatus();
  return WrongInput("more hosts", absl::StrCat("at most ", kMaxNodes));
}

// How many numbers "001-004,007" names.
absl::StatusOr<int64_t> CountNumbers(absl::string_view ranges) {
  int64_t count = 0;
  for (const absl::string_view range : absl::StrSplit(ranges, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(range, absl::MaxSplits('-', 1));
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t first, HostNumber(ends.first));
    int64_t last = first;
    if (absl::StrContains(range, '-')) {
      MESHWRIGHT_ASSIGN_OR_RETURN(last, HostNumber(ends.second));
    }
    if (last < first) return WrongInput(QuoteForMessage(range), "a range whose end is not before its begin");
    if (last - first >= kMaxNodes) return CheckHosts(last - first + 1);
    count += last - first + 1;
    MESHWRIGHT_RETURN_IF_ERROR(CheckHosts(count));
  }
  return count;
}

// Of one name with brackets, the product of what they name.
absl::StatusOr<int64_t> CountOfName(absl::string_view name) {
  if (name.empty()) return WrongInput("no host", "one between commas");
  int64_t count = 1;
  while (true) {
    const size_t open = name.find_first_of("[]");
    if (open == absl::string_view::npos) return count;
    const size_t close = name.find_first_of("[]", open + 1);
    if (name[open] != '[' || close == absl::string_view::npos || name[close] != ']') {
      return WrongInput(QuoteForMessage(name), "brackets in pairs, as in gpu[001-004]");
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t numbers, CountNumbers(name.substr(open + 1, close - open - 1)));
    count *= numbers;  // both at most kMaxNodes
    MESHWRIGHT_RETURN_IF_ERROR(CheckHosts(count));
    name.remove_prefix(close + 1);
  }
}

// GPUs of a node, as Gres= says: "gpu:h100:8(S:0-1),shard:32".
struct Gres {
  std::string type;  // "" where it is not told
  int64_t count = 0;

  friend bool operator==(const Gres&, const Gres&) = default;
};

std::string Show(const Gres& gres) { return absl::StrCat("gpu:", gres.type, gres.type.empty() ? "" : ":", gres.count); }

// "a100_3g.20gb", "1g.5gb": a part of a GPU.
bool IsSlice(absl::string_view type) {
  const auto digit = [&](size_t i) {
    return i < type.size() && absl::ascii_isdigit(static_cast<unsigned char>(type[i]));
  };
  const size_t at = type.find("g.");
  return at != absl::string_view::npos && at > 0 && digit(at - 1) && digit(at + 2);
}

absl::StatusOr<Gres> ParseGres(absl::string_view text) {
  Gres gres;
  for (absl::string_view part : OuterParts(text)) {
    part = part.substr(0, part.find('('));
    const std::vector<absl::string_view> fields = absl::StrSplit(part, ':');
    if (fields[0] != "gpu") continue;
    const absl::StatusOr<int64_t> count =
        fields.size() > 1 ? ParseInt(fields.back(), 0, kMaxDevicesPerNode) : absl::StatusOr<int64_t>(1);
    if (!count.ok() || fields.size() > 3) return WrongInput(QuoteForMessage(part), "GPUs, as gpu:8 or gpu:h100:8");
    const std::string type(fields.size() == 3 ? fields[1] : "");
    if (*count == 0) continue;
    if (IsSlice(type)) return WrongInput(absl::StrCat("MIG devices, ", QuoteForMessage(type)), "whole GPUs");
    if (gres.count > 0 && gres.type != type) {
      return WrongInput(absl::StrCat("GPUs of type ", QuoteForMessage(type), " beside ", QuoteForMessage(gres.type)),
                        "one kind", "devices of a cluster are equal: leave those that you train on");
    }
    gres.type = type;
    gres.count += *count;
    if (gres.count > kMaxDevicesPerNode) return WrongInput("more GPUs", absl::StrCat("at most ", kMaxDevicesPerNode));
  }
  return gres;
}

// Nodes of one line or block.
struct Nodes {
  std::string name;
  TextPlace place, gres_place;
  int64_t count = 0;
  Gres gres;
  bool arm = false, x86 = false, down = false;
};

class Reader {
 public:
  Reader(absl::string_view text, absl::string_view file_name) : text_(text), file_(file_name) {}

  absl::StatusOr<ClusterFacts> Read() {
    for (const absl::string_view line : absl::StrSplit(text_, '\n')) {
      ++line_;
      const absl::string_view begin = absl::StripAsciiWhitespace(line);
      const bool continued = std::exchange(continued_, absl::EndsWith(begin, "\\"));
      if (absl::StartsWith(begin, "#")) continue;
      if (!continued) {
        const size_t equals = begin.find('=');
        const absl::string_view key = begin.substr(0, std::min(equals, begin.size()));
        if (equals != absl::string_view::npos && absl::EndsWithIgnoreCase(key, "Name")) {
          MESHWRIGHT_RETURN_IF_ERROR(EndSwitch());
          in_ = absl::EqualsIgnoreCase(key, "NodeName")     ? In::kNode
                : absl::EqualsIgnoreCase(key, "SwitchName") ? In::kSwitch
                                                            : In::kOther;
          if (in_ == In::kSwitch) any_switch_ = true;
        }
      }
      MESHWRIGHT_RETURN_IF_ERROR(ReadLine(line));
    }
    MESHWRIGHT_RETURN_IF_ERROR(EndSwitch());
    MESHWRIGHT_RETURN_IF_ERROR(UseNodes());
    MESHWRIGHT_RETURN_IF_ERROR(UseSwitches());
    return std::move(facts_);
  }

 private:
  enum class In : uint8_t { kNode, kSwitch, kOther };

  absl::Status Locate(TextPlace place, const absl::Status& status) const {
    if (status.ok()) return status;
    return absl::InvalidArgumentError(absl::StrCat(file_, ":", place.line, ":", place.column, ": ", status.message()));
  }

  absl::Status ReadLine(absl::string_view line) {
    for (size_t at = 0; at < line.size();) {
      if (IsSpace(line[at])) {
        ++at;
        continue;
      }
      size_t end = at;
      while (end < line.size() && !IsSpace(line[end])) ++end;
      const TextPlace place{line_, at + 1};
      const absl::string_view word = line.substr(at, end - at);
      if (in_ == In::kNode) MESHWRIGHT_RETURN_IF_ERROR(ReadNodeWord(word, place));
      if (in_ == In::kSwitch) MESHWRIGHT_RETURN_IF_ERROR(ReadSwitchWord(word, place));
      at = end;
    }
    return absl::OkStatus();
  }

  absl::Status ReadNodeWord(absl::string_view word, TextPlace place) {
    if (ConsumeKey(&word, "NodeName=")) {
      if (word == "DEFAULT") {  // of slurm.conf: no node
        in_ = In::kOther;
        return absl::OkStatus();
      }
      const absl::StatusOr<int64_t> count = CountHosts(word);
      if (!count.ok()) return Locate(place, count.status());
      if (!names_.insert(std::string(word)).second) {
        return WrongAt(file_, place, absl::StrCat("node ", QuoteForMessage(word), " a second time"), "each node once");
      }
      nodes_.emplace_back();
      nodes_.back().name = std::string(word);
      nodes_.back().place = nodes_.back().gres_place = place;
      nodes_.back().count = *count;
    } else if (nodes_.empty()) {
      return absl::OkStatus();
    } else if (ConsumeKey(&word, "Gres=")) {
      absl::StatusOr<Gres> gres = ParseGres(word);
      if (!gres.ok()) return Locate(place, gres.status());
      nodes_.back().gres = *std::move(gres);
      nodes_.back().gres_place = place;
    } else if (ConsumeKey(&word, "Arch=")) {
      nodes_.back().arm = word == "aarch64" || word == "arm64";
      nodes_.back().x86 = word == "x86_64";
    } else if (ConsumeKey(&word, "State=")) {
      for (const absl::string_view bad : {"DOWN", "DRAIN", "FAIL", "NOT_RESPONDING"}) {
        nodes_.back().down |= absl::StrContains(word, bad);
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadSwitchWord(absl::string_view word, TextPlace place) {
    if (!ConsumeKey(&word, "Nodes=")) return absl::OkStatus();
    absl::StatusOr<int64_t> count = CountHosts(word);
    if (count.ok() && absl::EqualsIgnoreCase(word, "ALL")) count = WrongInput("ALL", "a list of nodes", "name them");
    if (!count.ok()) return Locate(place, count.status());
    leaf_ += *count;
    leaf_place_ = place;
    return Locate(place, CheckHosts(leaf_));
  }

  absl::Status EndSwitch() {
    if (leaf_ == 0) return absl::OkStatus();
    leaves_.push_back(std::exchange(leaf_, 0));
    on_leaves_ += leaves_.back();
    return Locate(leaf_place_, CheckHosts(on_leaves_));
  }

  absl::Status UseNodes() {
    const Nodes* first = nullptr;
    int64_t count = 0, without = 0, down = 0;
    for (const Nodes& nodes : nodes_) {
      if (nodes.gres.count == 0) {
        without += nodes.count;
        continue;
      }
      if (first == nullptr) first = &nodes;
      if (nodes.gres != first->gres || nodes.arm != first->arm) {
        return WrongAt(
            file_, nodes.gres_place,
            absl::StrCat(Show(nodes.gres), nodes.arm ? " beside an ARM" : "", " of ", QuoteForMessage(nodes.name)),
            absl::StrCat(Show(first->gres), first->arm ? " beside an ARM" : "", ", as ", QuoteForMessage(first->name),
                         " has"),
            "nodes of a cluster are equal: leave those that you train on, e.g. scontrol show node LIST");
      }
      count += nodes.count;
      if (nodes.down) down += nodes.count;
      MESHWRIGHT_RETURN_IF_ERROR(Locate(nodes.place, CheckHosts(count)));
    }
    facts_.source = "Slurm's nodes";
    if (nodes_.empty()) return absl::OkStatus();
    if (first == nullptr) {
      return WrongAt(file_, nodes_[0].place, "no node with GPUs", "one with Gres=gpu:..",
                     "describe the machine by nvidia-smi where Slurm does not know of its GPUs");
    }
    facts_.nodes = count;
    facts_.devices_per_node = first->gres.count;
    facts_.device_name = first->gres.type;
    facts_.device_place = first->gres_place;
    if (first->arm) facts_.cpu = CpuVendor::kArm;
    if (without > 0) facts_.notes.push_back(absl::StrCat("left out: ", without, " nodes without GPUs"));
    if (down > 0) {
      facts_.notes.push_back(
          absl::StrCat(down, " of the ", count, " nodes are down or drained, and counted all the same"));
    }
    return absl::OkStatus();
  }

  // The size of most leaves, the smaller one of equally many.
  absl::Status UseSwitches() {
    if (!any_switch_) return absl::OkStatus();
    if (leaves_.empty()) {
      return WrongAt(file_, {}, "no switch with nodes", "SwitchName=.. Nodes=..");
    }
    if (nodes_.empty()) facts_.source = "Slurm's switches";
    std::map<int64_t, int64_t> sizes;  // to how many there are
    for (const int64_t leaf : leaves_) ++sizes[leaf];
    const auto usual =
        std::max_element(sizes.begin(), sizes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    facts_.nodes_per_leaf = usual->first;
    if (sizes.size() > 1) {
      facts_.notes.push_back(absl::StrCat("switches have from ", sizes.begin()->first, " to ", sizes.rbegin()->first,
                                          " nodes: all are taken to have ", usual->first, ", as most do"));
    }
    if (!facts_.nodes.has_value()) {
      facts_.nodes = on_leaves_;
    } else if (*facts_.nodes != on_leaves_) {
      facts_.notes.push_back(absl::StrCat("the switches have ", on_leaves_, " nodes, of which ", *facts_.nodes,
                                          " are described as having GPUs"));
    }
    return absl::OkStatus();
  }

  const absl::string_view text_, file_;
  size_t line_ = 0;
  bool continued_ = false;  // the line before ends in a backslash
  In in_ = In::kOther;
  ClusterFacts facts_;
  std::vector<Nodes> nodes_;
  std::set<std::string> names_;
  bool any_switch_ = false;
  int64_t leaf_ = 0;  // nodes of the switch that is being read
  TextPlace leaf_place_;
  std::vector<int64_t> leaves_;
  int64_t on_leaves_ = 0;
};

}  // namespace

absl::StatusOr<int64_t> CountHosts(absl::string_view list) {
  int64_t count = 0;
  for (const absl::string_view name : OuterParts(list)) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t hosts, CountOfName(name));
    count += hosts;
    MESHWRIGHT_RETURN_IF_ERROR(CheckHosts(count));
  }
  return count;
}

bool LooksLikeSlurm(absl::string_view text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const absl::string_view begin = absl::StripLeadingAsciiWhitespace(line);
    if (absl::StartsWithIgnoreCase(begin, "NodeName=") || absl::StartsWithIgnoreCase(begin, "SwitchName=")) return true;
  }
  return false;
}

absl::StatusOr<ClusterFacts> ReadSlurm(absl::string_view text, absl::string_view file_name) {
  return Reader(text, file_name).Read();
}

}  // namespace meshwright
