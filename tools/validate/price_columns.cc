#include "tools/validate/price_columns.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "ir/text.h"
#include "tools/validate/columns.h"
#include "tools/validate/table_columns.h"

namespace meshwright {
namespace {

// Columns of times and rates of one pass are called by it until rows are split: "backward time_ms".
constexpr absl::string_view kPasses[] = {"forward", "backward", "forward+backward"};

// Columns of one implementation of attention each, by words of their names, are called by it until then:
// "impl=cudnn,backward time_ms".
struct NamedImplementation {
  absl::string_view words, impl;
};
constexpr NamedImplementation kImplementations[] = {
    {"fav2|fa2|flash2", "flash2"},  {"fav3|fa3|flash3", "flash3"},
    {"fav4|fa4|flash4", "flash4"},  {"cudnn", "cudnn"},
    {"xformers", "xformers"},       {"efficient|memeff|eff", "efficient"},
    {"flex|flexattention", "flex"}, {"triton", "triton"},
    {"flash|sdpa", "flash"},        {"pytorch|math|vanilla|eager|naive", "pytorch"},
};
constexpr absl::string_view kImplementation = "impl=";

constexpr char kShape[] = "m, n, k";

bool IsMeasured(absl::string_view known) {
  return known == "time_ms" || known == "tflops" || known == "time_us" || known == "busbw_gbps" ||
         known == "algbw_gbps";
}

bool NamesAType(absl::string_view cell) {
  const std::string lower = absl::AsciiStrToLower(cell);
  for (const absl::string_view type : {"16", "32", "64", "fp8", "f8", "e4m3", "e5m2", "half", "float", "double"}) {
    if (absl::StrContains(lower, type)) return absl::ascii_isalpha(static_cast<unsigned char>(lower[0]));
  }
  return false;
}

// "4096x4096x4096", "64_64_512", "(1024, 1024)", "1024²", "1024³": the numbers; none where it holds anything else.
std::vector<int64_t> SizesIn(absl::string_view cell) {
  const std::string plain = absl::StrReplaceAll(cell, {{"\xC3\x97", " "},
                                                       {"\xC2\xB2", " "},
                                                       {"\xC2\xB3", " "},
                                                       {"(", " "},
                                                       {")", " "},
                                                       {"[", " "},
                                                       {"]", " "},
                                                       {"=", " "}});
  std::vector<int64_t> sizes;
  for (const absl::string_view word : absl::StrSplit(plain, absl::ByAnyChar("xX*_, "), absl::SkipEmpty())) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(word, &size)) return {};
    sizes.push_back(size);
  }
  return sizes;
}

class PriceReader : public ColumnReader {
 public:
  PriceReader(CsvTable table, ColumnRules rules, absl::string_view libraries)
      : ColumnReader(std::move(table), rules), libraries_(libraries) {
    for (const std::string& name : names_) {
      const ColumnRule* rule = RuleFor(WordsOf(name));
      attention_ = attention_ || (rule != nullptr && rule->known == "head_dim");
    }
  }

 private:
  // A layer has times of both passes in one row, attention in two.
  bool Stays(size_t column) const override {
    const std::string& name = names_[column];
    return IsKnown(name) && !(attention_ && (name == "fwd_ms" || name == "bwd_ms"));
  }

  const ColumnRule* RuleOf(size_t column) const override {
    const ColumnRule* rule = RuleFor(WordsOf(names_[column]));
    if (rule == nullptr) return nullptr;
    const std::string first = FirstCell(column);
    const std::optional<Amount> quantity = AmountIn(first, table_.separator);
    if (rule->known == "?rate") {
      if (!quantity.has_value() || quantity->unit.empty()) return nullptr;
      rule = RuleFor(WordsOf(absl::StrCat(names_[column], " ", quantity->unit)));
      return rule != nullptr && rule->known == "tflops" ? rule : nullptr;
    }
    if (rule->known == "?shape") return SizesIn(first).empty() ? nullptr : rule;
    if (rule->known == "?type") return NamesAType(first) ? rule : nullptr;
    // Which device of a machine it was.
    if (rule->known == "gpu_type" && HoldsNumbers(column) && !table_.rows.empty() && !IsKnown("ranks")) return nullptr;
    return rule;
  }

  std::string KnownName(size_t column) const override {
    const absl::string_view known = rules_[column]->known;
    if (known == "?type") return "dtype";
    if (known == "?shape") return kShape;
    if (known == "gpu_type" && HoldsNumbers(column)) return "ranks";
    if (known == "ranks" && !AmountIn(FirstCell(column), table_.separator).has_value()) return "gpu_type";
    const Words words = WordsOf(names_[column]);
    const bool forward = HasOneOf(words, "fwd|forward|fw"), backward = HasOneOf(words, "bwd|backward|bw");
    if (known != "time_ms" && known != "tflops") return std::string(known);
    std::string of(ImplementationOf(column));
    if (!of.empty()) of = absl::StrCat(kImplementation, of);
    if ((forward || backward) && (!Has("pass") || HasBothPasses())) {
      absl::StrAppend(&of, of.empty() ? "" : ",", forward && backward ? kPasses[2] : kPasses[backward ? 1 : 0]);
    }
    return absl::StrCat(of, of.empty() ? "" : " ", known);
  }

  // The implementation that a column of an attention's times or rates names, where no column does for the row.
  absl::string_view ImplementationOf(size_t column) const {
    if (!Has("head_dim") || !Has("seq_len") || Has("impl")) return "";
    const Words words = WordsOf(names_[column]);
    for (const NamedImplementation& row : kImplementations) {
      if (HasOneOf(words, row.words)) return row.impl;
    }
    return "";
  }

  // Of a row each: a column of passes then says no more than "both".
  bool HasBothPasses() const {
    bool forward = false, backward = false;
    for (size_t i = 0; i < names_.size(); ++i) {
      if (rules_[i] == nullptr || (rules_[i]->known != "time_ms" && rules_[i]->known != "tflops")) continue;
      const Words words = WordsOf(names_[i]);
      forward = forward || HasOneOf(words, "fwd|forward|fw");
      backward = backward || HasOneOf(words, "bwd|backward|bw");
    }
    return forward && backward;
  }

  // --- which of several columns counts ------------------------------------------------------------------------------

  int RankOf(size_t column) const {
    const Words words = WordsOf(names_[column]);
    const int mean = HasOneOf(words, "median|p50") ? 3 : HasOneOf(words, "avg|mean|average|tavg") ? 2 : 1;
    return mean - (HasOneOf(words, "ip|inplace|in") ? 4 : 0);
  }
  bool OfLibrary(size_t column) const { return HasOneOf(WordsOf(names_[column]), libraries_); }

  std::string PlaceOf(size_t column) const {
    return column < table_.places.size() ? table_.places[column] : table_.file;
  }

  bool LacksUnit(size_t column) const {
    const std::optional<Amount> first = AmountIn(FirstCell(column), table_.separator);
    return rules_[column]->kind == CellKind::kMillis && !NamesTime(WordsOf(names_[column])) && first.has_value() &&
           first->unit.empty();
  }

  absl::Status Prepare() override {
    std::vector<size_t> measured;
    for (size_t i = 0; i < names_.size(); ++i) {
      if (rules_[i] == nullptr || !IsMeasured(rules_[i]->known)) continue;
      if (HoldsAmounts(i) && !table_.Find(KnownName(i)).has_value()) measured.push_back(i);
    }
    bool other = std::any_of(measured.begin(), measured.end(), [&](size_t i) { return !LacksUnit(i); });
    for (size_t i = 0; i < names_.size(); ++i) other = other || (IsMeasured(names_[i]) && HoldsAmounts(i));
    const bool named =
        std::any_of(measured.begin(), measured.end(), [&](size_t i) { return !ImplementationOf(i).empty(); });
    const bool library =
        !named && std::any_of(measured.begin(), measured.end(), [&](size_t i) { return OfLibrary(i); });
    std::vector<size_t> counted;
    for (const size_t i : measured) {
      if (library && !OfLibrary(i)) {
        rules_[i] = nullptr;
      } else if (!LacksUnit(i)) {
        counted.push_back(i);
      } else if (other) {
        rules_[i] = nullptr;
      } else {
        return absl::InvalidArgumentError(
            absl::StrCat(PlaceOf(i), ": found ", QuoteForMessage(names_[i]),
                         " without a unit, wanted one in the name or in the cells; e.g. \"", names_[i], " (ms)\""));
      }
    }
    struct Best {
      size_t column = 0;
      std::optional<size_t> other;  // of the same rank
    };
    std::map<std::string, Best> bests;
    for (const size_t i : counted) {
      const auto [at, first] = bests.try_emplace(KnownName(i), Best{i, std::nullopt});
      const int above = first ? 0 : RankOf(i) - RankOf(at->second.column);
      if (above > 0) at->second = {i, std::nullopt};
      if (!first && above == 0 && !at->second.other.has_value()) at->second.other = i;
    }
    for (const auto& [known, best] : bests) {
      if (!best.other.has_value()) continue;
      return absl::InvalidArgumentError(absl::StrCat(PlaceOf(*best.other), ": found ",
                                                     QuoteForMessage(names_[*best.other]), " beside ",
                                                     QuoteForMessage(names_[best.column]), ", wanted one column of ",
                                                     known, "; name the one that counts so, or leave the others out"));
    }
    std::vector<size_t> kept;
    for (const auto& [known, best] : bests) kept.push_back(best.column);
    for (const size_t i : counted) {
      if (std::find(kept.begin(), kept.end(), i) == kept.end()) rules_[i] = nullptr;
    }
    return absl::OkStatus();
  }

  // --- what one row says by other means -----------------------------------------------------------------------------

  void Complete() override {
    std::vector<std::pair<std::string, std::string>> splits;  // of columns of passes: name and pass
    for (const std::string& column : table_.columns) {
      const std::vector<std::string> words = absl::StrSplit(column, ' ');
      if (words.size() != 2 || !IsMeasured(words[1])) continue;
      const bool pass = std::find(std::begin(kPasses), std::end(kPasses), words[0]) != std::end(kPasses);
      if (pass || absl::StartsWith(words[0], kImplementation)) splits.emplace_back(column, words[0]);
    }
    for (CsvRow& row : table_.rows) {
      if (!row.damaged.empty()) continue;
      if (IsKnown("ranks")) ReadDevices(&row, "ranks");
      if (table_.Find(kShape).has_value()) ReadShape(&row);
    }
    if (!splits.empty()) SplitRows(splits);
  }

  void ReadShape(CsvRow* row) {
    const size_t at = *table_.Find(kShape);
    const std::string cell = row->cells[at];
    std::vector<int64_t> sizes = SizesIn(cell);
    if (sizes.empty() || !Lacks(*row, "m")) return;
    // "Shape (B,M,N,K)", or the batch at the end
    constexpr absl::string_view kBatch = "b|batch|g|groups";
    if (const Words words = WordsOf(names_[at]); sizes.size() == 4 && HasOneOf(words, kBatch)) {
      const auto batch = IsOneOf(words.back(), kBatch) ? sizes.end() - 1 : sizes.begin();
      Set(row, "batch", static_cast<double>(*batch));
      sizes.erase(batch);
    }
    // The order is that of the letters at the end of the name; without, three sizes must be alike, or those of a
    // square.
    std::string order = names_[at];
    order.erase(std::remove_if(order.begin(), order.end(), [](char c) { return c != 'm' && c != 'n' && c != 'k'; }),
                order.end());
    order = order.size() < 3 ? "" : order.substr(order.size() - 3);
    const bool spelled = order.size() == 3 && std::is_permutation(order.begin(), order.end(), "mnk");
    const bool alike = std::equal(sizes.begin() + 1, sizes.end(), sizes.begin());
    const bool square = spelled || HasOneOf(WordsOf(names_[at]), "matrix|gemm|matmul");
    if (sizes.size() == 3 ? !spelled && !alike : !alike || !square) {
      return Set(row, "m", absl::StrCat(cell, " of \"", names_[at], "\", which does not say the order of m, n and k"));
    }
    for (size_t i = 0; i < 3; ++i) {
      Set(row, std::string(1, spelled ? order[i] : "mnk"[i]), static_cast<double>(sizes[alike ? 0 : i]));
    }
  }

  static std::string ColumnSaid(absl::string_view said) {
    return absl::StartsWith(said, kImplementation) ? "impl" : "pass";
  }

  // A row for each pass and implementation that the names of columns tell.
  void SplitRows(const std::vector<std::pair<std::string, std::string>>& splits) {
    std::vector<std::string> parts;  // in the order in which the columns stand
    for (const auto& [column, of] : splits) {
      ColumnOf(column.substr(of.size() + 1));
      for (const absl::string_view said : absl::StrSplit(of, ',')) ColumnOf(ColumnSaid(said));
      if (std::find(parts.begin(), parts.end(), of) == parts.end()) parts.push_back(of);
    }
    std::vector<CsvRow> rows;
    for (const CsvRow& row : table_.rows) {
      const size_t before = rows.size();
      for (const std::string& of : parts) {
        CsvRow part = row;
        bool any = false;
        for (const auto& [column, which] : splits) {
          if (which != of || !row.damaged.empty() || Lacks(row, column)) continue;
          part.cells[*table_.Find(column.substr(of.size() + 1))] = row.cells[*table_.Find(column)];
          any = true;
        }
        if (!any) continue;
        for (const absl::string_view said : absl::StrSplit(of, ',')) {
          Set(&part, ColumnSaid(said), std::string(absl::StripPrefix(said, kImplementation)));
        }
        rows.push_back(std::move(part));
      }
      if (rows.size() == before) rows.push_back(row);
    }
    table_.rows = std::move(rows);
  }

  const absl::string_view libraries_;
  bool attention_ = false;
};

}  // namespace

absl::StatusOr<CsvTable> WithKernelColumns(CsvTable table) {
  return PriceReader(std::move(table), RulesOfKernels(), "cublas|cublaslt|torch|pytorch").Read();
}

absl::StatusOr<CsvTable> WithCollectiveColumns(CsvTable table) {
  return PriceReader(std::move(table), RulesOfCollectives(), "nccl").Read();
}

}  // namespace meshwright
