#include "tools/import/nvidia_smi.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "ir/status.h"
#include "ir/text.h"
#include "tools/import/links.h"

namespace meshwright {
namespace {

constexpr size_t kMostDevices = 1024, kMostColumns = 2048;  // of a matrix; GPUs of it
constexpr int64_t kMostLinks = 64;                          // between two GPUs
constexpr int64_t kMostMebibytes = int64_t{1} << 24;        // of a GPU
constexpr double kMostWatts = 99999;
constexpr size_t kLongestName = 64;  // of a network card

// A word of a line and where it begins, from 1.
struct Word {
  absl::string_view text;
  size_t column = 1;
};

std::vector<Word> WordsOf(absl::string_view line) {
  std::vector<Word> words;
  size_t at = 0;
  while ((at = line.find_first_not_of(" \t", at)) != absl::string_view::npos) {
    const size_t end = std::min(line.find_first_of(" \t", at), line.size());
    words.push_back({line.substr(at, end - at), at + 1});
    at = end;
  }
  return words;
}

// Without what makes a terminal underline: ESC [ .. letter.
std::string WithoutEscapes(absl::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b' && i + 1 < text.size() && text[i + 1] == '[') {
      for (i += 2; i < text.size() && !(text[i] >= 0x40 && text[i] <= 0x7e) && text[i] != '\n';) ++i;
      if (i < text.size() && text[i] == '\n') plain.push_back('\n');
    } else if (text[i] != '\r') {
      plain.push_back(text[i]);
    }
  }
  return plain;
}

bool AllDigits(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); });
}

bool IsGpuName(absl::string_view word) { return absl::ConsumePrefix(&word, "GPU") && AllDigits(word); }

// "   GPU0  GPU1  NIC0  CPU Affinity ..": the names of a matrix's columns.
bool IsMatrixHeader(absl::string_view line) {
  const absl::string_view begin = absl::StripLeadingAsciiWhitespace(line);
  if (!absl::StartsWith(begin, "GPU") || absl::StartsWith(begin, "GPU ")) return false;
  const std::vector<Word> words = WordsOf(line);
  if (words.size() < 2 || !IsGpuName(words[0].text)) return false;
  if (IsGpuName(words[1].text)) return true;
  return absl::StrContains(line, "CPU Affinity");
}

// "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1..)": the name, where the line is one of a list.
absl::string_view ListedName(absl::string_view line) {
  if (!absl::ConsumePrefix(&line, "GPU ")) return "";
  const size_t colon = line.find(": ");
  const size_t uuid = line.find(" (UUID: ");
  if (colon == absl::string_view::npos || uuid == absl::string_view::npos || uuid <= colon + 2) return "";
  if (!AllDigits(line.substr(0, colon))) return "";
  return line.substr(colon + 2, uuid - colon - 2);
}

// Columns of a table by their names in --query-gpu, without units; empty where the line is no such list.
std::vector<std::string> TableColumns(absl::string_view line) {
  std::vector<std::string> names;
  for (absl::string_view field : absl::StrSplit(line, ',')) {
    field = absl::StripAsciiWhitespace(field.substr(0, field.find('[')));
    const bool is_name = !field.empty() && std::all_of(field.begin(), field.end(), [](char c) {
      return absl::ascii_islower(static_cast<unsigned char>(c)) || absl::ascii_isdigit(static_cast<unsigned char>(c)) ||
             c == '.' || c == '_';
    });
    if (!is_name) return {};
    names.emplace_back(field);
  }
  return names;
}

// Those that only nvidia-smi has, which tell its table from others.
bool IsOwnColumn(absl::string_view name) {
  for (const absl::string_view prefix :
       {"memory.", "pcie.", "power.", "clocks.", "pci.", "gpu_name", "gpu_uuid", "driver_version", "uuid", "ecc.",
        "mig.mode.", "temperature.", "utilization.", "compute_cap"}) {
    if (absl::StartsWith(name, prefix)) return true;
  }
  return false;
}

bool IsTableHeader(absl::string_view line) {
  if (!absl::StrContains(line, "name") && !absl::StrContains(line, "memory.total")) return false;
  const std::vector<std::string> columns = TableColumns(line);
  return columns.size() > 1 && std::any_of(columns.begin(), columns.end(), IsOwnColumn);
}

// A GPU of a table or of a list.
struct Gpu {
  std::string name;
  TextPlace place;
  std::optional<int64_t> mebibytes, pcie_generation, pcie_lanes;
  std::optional<double> limit, own_limit;  // W
};

class Reader {
 public:
  Reader(absl::string_view text, absl::string_view file_name) : text_(text), file_(file_name) {}

  absl::StatusOr<ClusterFacts> Read() {
    lines_ = absl::StrSplit(text_, '\n');
    for (line_ = 0; line_ < lines_.size(); ++line_) {
      const absl::string_view line = lines_[line_];
      if (IsMatrixHeader(line)) {
        MESHWRIGHT_RETURN_IF_ERROR(ReadMatrix());
      } else if (const absl::string_view name = ListedName(line); !name.empty()) {
        listed_.emplace_back();
        listed_.back().name = std::string(name);
        listed_.back().place = Here(line.find(name) + 1);
      } else if (absl::StartsWith(line, "  MIG ")) {
        return Wrong(Here(3), "a MIG device", "whole GPUs", "switch MIG off");
      } else if (IsTableHeader(line)) {
        MESHWRIGHT_RETURN_IF_ERROR(ReadTable());
      } else {
        ReadLegend(line);
      }
    }
    facts_.source = matrix_.has_value() ? "the matrix of nvidia-smi topo -m" : "what nvidia-smi prints";
    MESHWRIGHT_RETURN_IF_ERROR(CompareCounts());
    MESHWRIGHT_RETURN_IF_ERROR(Use(table_.empty() ? listed_ : table_));
    return std::move(facts_);
  }

 private:
  TextPlace Here(size_t column) const { return {line_ + 1, column}; }
  absl::Status Wrong(TextPlace place, absl::string_view found, absl::string_view wanted,
                     absl::string_view remedy = "") const {
    return WrongAt(file_, place, found, wanted, remedy);
  }

  // From its header on; leaves line_ at its last row.
  absl::Status ReadMatrix() {
    if (matrix_.has_value()) {
      return Wrong(Here(1), "a second matrix", "that of one machine",
                   "leave one of equal nodes, and give their number as --nodes=N");
    }
    matrix_ = Here(1);
    std::vector<absl::string_view> columns;
    for (const Word& word : WordsOf(lines_[line_])) {
      if (word.text == "CPU") break;  // CPU Affinity, NUMA Affinity, GPU NUMA ID
      if (columns.size() == kMostColumns) {
        return Wrong(Here(word.column), "more columns", absl::StrCat("at most ", kMostColumns));
      }
      columns.push_back(word.text);
    }
    const size_t gpus =
        static_cast<size_t>(std::find_if_not(columns.begin(), columns.end(), IsGpuName) - columns.begin());
    if (gpus > kMostDevices) return Wrong(Here(1), "more GPUs", absl::StrCat("at most ", kMostDevices));
    links_.assign(gpus, std::vector<int64_t>(gpus, 0));
    near_.assign(columns.size() - gpus, false);
    const size_t header = line_;
    size_t rows = 0;
    while (rows < gpus && line_ + 1 < lines_.size()) {
      const std::vector<Word> words = WordsOf(lines_[line_ + 1]);
      if (words.empty()) {
        ++line_;  // a blank line, as pagers leave them
        continue;
      }
      if (words[0].text != columns[rows]) break;
      ++line_;
      MESHWRIGHT_RETURN_IF_ERROR(ReadRow(words, rows, columns));
      ++rows;
    }
    if (rows < gpus) {
      return Wrong({header + 1, 1}, absl::StrCat(rows, " rows of GPUs"), absl::StrCat(gpus, ", one for each column"),
                   "paste the whole matrix");
    }
    for (size_t i = 0; i < gpus; ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (links_[i][j] == links_[j][i]) continue;
        return Wrong({header + 1, 1},
                     absl::StrCat(links_[i][j], " NVLinks from GPU", i, " to GPU", j, " and ", links_[j][i], " back"),
                     "as many", "paste the matrix as it was printed");
      }
    }
    facts_.device_place = *matrix_;
    facts_.devices_per_node = static_cast<int64_t>(gpus);
    facts_.nvlinks = LinksOfPairs();
    for (size_t i = gpus; i < columns.size(); ++i) {
      facts_.cards.push_back({std::string(columns[i]), 0, near_[i - gpus]});
    }
    return absl::OkStatus();
  }

  absl::Status ReadRow(const std::vector<Word>& words, size_t row, const std::vector<absl::string_view>& columns) {
    if (words.size() <= columns.size()) {
      return Wrong(Here(1), absl::StrCat(words.size() - 1, " cells"),
                   absl::StrCat(columns.size(), ", one for each column"), "paste the whole matrix");
    }
    for (size_t i = 0; i < columns.size(); ++i) {
      const Word& cell = words[i + 1];
      absl::string_view links = cell.text;
      if ((cell.text == "X") != (i == row)) {
        return Wrong(Here(cell.column), QuoteForMessage(cell.text),
                     i == row ? "X, the GPU itself" : "how the two are joined");
      }
      if (absl::ConsumePrefix(&links, "NV") && i < links_.size()) {
        const absl::StatusOr<int64_t> count = ParseInt(links, 1, kMostLinks);
        if (!count.ok()) {
          return Wrong(Here(cell.column), QuoteForMessage(cell.text), absl::StrCat("NV1 to NV", kMostLinks));
        }
        links_[row][i] = *count;
        continue;
      }
      constexpr absl::string_view kCells[] = {"X", "SYS", "NODE", "PHB", "PXB", "PIX", "SOC", "PSB"};
      if (std::find(std::begin(kCells), std::end(kCells), cell.text) == std::end(kCells)) {
        return Wrong(Here(cell.column), QuoteForMessage(cell.text),
                     "one of X, NV with a number, SYS, NODE, PHB, PXB, PIX", "paste the matrix as it was printed");
      }
      if (i >= links_.size() && (cell.text == "PIX" || cell.text == "PXB")) near_[i - links_.size()] = true;
    }
    return absl::OkStatus();
  }

  NvLinks LinksOfPairs() {
    const size_t gpus = links_.size();
    bool equal = gpus > 1 && links_[0][1] > 0;
    for (size_t i = 0; i < gpus; ++i) {
      for (size_t j = 0; j < gpus; ++j) equal &= i == j || links_[i][j] == links_[0][1];
    }
    if (equal) return {NvLinks::Shape::kEveryPair, links_[0][1]};
    return WiredLinks(links_, facts_.notes);
  }

  // "  NIC0: mlx5_0" below the matrix.
  void ReadLegend(absl::string_view line) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() != 2 || !absl::StartsWith(words[0], "NIC") || words[1].size() > kLongestName) return;
    if (++legend_ > kMostColumns) return;  // lines of a legend are no more than columns
    for (NetworkCard& card : facts_.cards) {
      if (absl::StripSuffix(words[0], ":") == card.name) card.name = std::string(words[1]);
    }
  }

  // From its header on; leaves line_ at its last row.
  absl::Status ReadTable() {
    if (!table_.empty()) {
      return Wrong(Here(1), "a second table", "that of one machine",
                   "leave one of equal nodes, and give their number as --nodes=N");
    }
    const std::vector<std::string> columns = TableColumns(lines_[line_]);
    if (std::find_if(columns.begin(), columns.end(), IsNameColumn) == columns.end()) {
      return Wrong(Here(1), "no column name", "one", "add name to --query-gpu");
    }
    while (line_ + 1 < lines_.size() && absl::StrContains(lines_[line_ + 1], ',')) {
      const absl::string_view line = lines_[line_ + 1];
      if (IsMatrixHeader(line) || IsTableHeader(line)) break;
      ++line_;
      const std::vector<absl::string_view> fields = absl::StrSplit(line, ',');
      if (fields.size() != columns.size()) {
        return Wrong(Here(1), absl::StrCat(fields.size(), " fields"),
                     absl::StrCat(columns.size(), ", as the header has"));
      }
      Gpu gpu;
      for (size_t i = 0; i < fields.size(); ++i) {
        const absl::string_view field = absl::StripAsciiWhitespace(fields[i]);
        const TextPlace place = Here(static_cast<size_t>(field.data() - line.data()) + 1);
        if (IsNameColumn(columns[i])) gpu.place = place;
        MESHWRIGHT_RETURN_IF_ERROR(ReadField(columns[i], field, place, &gpu));
      }
      table_.push_back(std::move(gpu));
    }
    return table_.empty() ? Wrong(Here(1), "a table without rows", "a line for each GPU") : absl::OkStatus();
  }

  static bool IsNameColumn(absl::string_view column) { return column == "name" || column == "gpu_name"; }

  absl::Status ReadField(absl::string_view column, absl::string_view field, TextPlace place, Gpu* gpu) const {
    if (IsNameColumn(column)) {
      gpu->name = std::string(field);
      return field.empty() ? Wrong(place, "no name", "one") : absl::OkStatus();
    }
    if (column == "mig.mode.current" && field == "Enabled") {
      return Wrong(place, "MIG devices", "whole GPUs", "switch MIG off");
    }
    if (absl::StartsWith(field, "[") || field == "N/A") return absl::OkStatus();  // [N/A], [Not Supported]
    if (column == "memory.total") return SetInt(field, " MiB", kMostMebibytes, place, &gpu->mebibytes);
    if (column == "pcie.link.gen.max") return SetInt(field, "", 99, place, &gpu->pcie_generation);
    if (column == "pcie.link.width.max") return SetInt(field, "", 99, place, &gpu->pcie_lanes);
    if (column == "power.limit" || column == "enforced.power.limit") return SetWatts(field, place, &gpu->limit);
    if (column == "power.default_limit") return SetWatts(field, place, &gpu->own_limit);
    return absl::OkStatus();
  }

  absl::Status SetInt(absl::string_view field, absl::string_view unit, int64_t most, TextPlace place,
                      std::optional<int64_t>* value) const {
    absl::string_view digits = field;
    absl::ConsumeSuffix(&digits, unit);
    const absl::StatusOr<int64_t> number = ParseInt(digits, 1, most);
    if (!number.ok()) {
      return Wrong(place, QuoteForMessage(field), absl::StrCat("a number from 1 to ", most, unit, ", or [N/A]"));
    }
    *value = *number;
    return absl::OkStatus();
  }

  absl::Status SetWatts(absl::string_view field, TextPlace place, std::optional<double>* value) const {
    absl::string_view digits = field;
    absl::ConsumeSuffix(&digits, " W");
    const absl::StatusOr<double> number = ParseDouble(digits, 1, kMostWatts);
    if (!number.ok()) return Wrong(place, QuoteForMessage(field), "a power in W, or [N/A]");
    *value = *number;
    return absl::OkStatus();
  }

  // The matrix, the table and the list are of one machine.
  absl::Status CompareCounts() {
    std::optional<size_t> count;
    if (facts_.devices_per_node.has_value()) count = static_cast<size_t>(*facts_.devices_per_node);
    for (const std::vector<Gpu>* gpus : {&table_, &listed_}) {
      if (gpus->empty()) continue;
      if (count.value_or(gpus->size()) != gpus->size()) {
        return Wrong(gpus->front().place, absl::StrCat(gpus->size(), " GPUs"),
                     absl::StrCat(*count, ", as elsewhere in the file"), "paste what one machine prints");
      }
      count = gpus->size();
    }
    if (count.has_value()) facts_.devices_per_node = static_cast<int64_t>(*count);
    return absl::OkStatus();
  }

  // The GPUs, all of one kind, with the least of what they have.
  absl::Status Use(const std::vector<Gpu>& gpus) {
    if (gpus.empty()) return absl::OkStatus();
    const Gpu& first = gpus[0];
    for (const Gpu& gpu : gpus) {
      constexpr int64_t kSameMemory = 32;  // one part in so many
      const int64_t memory = first.mebibytes.value_or(0), other = gpu.mebibytes.value_or(memory);
      const bool same_memory = std::max(memory, other) - std::min(memory, other) <= memory / kSameMemory;
      if (gpu.name == first.name && same_memory) continue;
      const auto show = [](const Gpu& g) {
        return absl::StrCat(QuoteForMessage(g.name),
                            g.mebibytes.has_value() ? absl::StrCat(" with ", *g.mebibytes, " MiB") : "");
      };
      return Wrong(gpu.place, show(gpu), absl::StrCat(show(first), " as the first GPU is"),
                   "devices of a cluster are equal: leave the lines of one kind, and take the others out of the run "
                   "(CUDA_VISIBLE_DEVICES)");
    }
    facts_.device_name = first.name;
    facts_.device_place = first.place;
    const auto least = [&](auto Gpu::*field) {
      auto result = first.*field;
      for (const Gpu& gpu : gpus) {
        if (!(gpu.*field).has_value() || !result.has_value()) return decltype(result)();
        result = std::min(*result, *(gpu.*field));
      }
      return result;
    };
    if (const std::optional<int64_t> mebibytes = least(&Gpu::mebibytes)) facts_.memory = MiB(*mebibytes);
    facts_.power_limit = least(&Gpu::limit);
    facts_.own_power = least(&Gpu::own_limit);
    const std::optional<int64_t> generation = least(&Gpu::pcie_generation), lanes = least(&Gpu::pcie_lanes);
    if (generation.has_value() && lanes.has_value()) facts_.pcie = PcieRate(*generation, *lanes);
    return absl::OkStatus();
  }

  const absl::string_view text_, file_;
  std::vector<absl::string_view> lines_;
  size_t line_ = 0;  // of lines_
  ClusterFacts facts_;
  std::optional<TextPlace> matrix_;          // where it begins
  std::vector<std::vector<int64_t>> links_;  // NVLinks between two GPUs
  size_t legend_ = 0;                        // lines of it so far
  std::vector<bool> near_;                   // of each network card
  std::vector<Gpu> table_, listed_;
};

}  // namespace

bool LooksLikeNvidiaSmi(absl::string_view text) {
  const std::string plain = WithoutEscapes(text);
  for (const absl::string_view line : absl::StrSplit(plain, '\n')) {
    if (IsMatrixHeader(line) || !ListedName(line).empty() || IsTableHeader(line)) return true;
  }
  return false;
}

absl::StatusOr<ClusterFacts> ReadNvidiaSmi(absl::string_view text, absl::string_view file_name) {
  const std::string plain = WithoutEscapes(text);
  return Reader(plain, file_name).Read();
}

}  // namespace meshwright
