#include "tools/validate/training_columns.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/text.h"
#include "tools/validate/columns.h"
#include "tools/validate/sharding_text.h"
#include "tools/validate/table_columns.h"

namespace meshwright {
namespace {

constexpr absl::string_view kBatch = "replica_batch_seqs";  // rows of a step on one replica

class TrainingReader : public ColumnReader {
 public:
  explicit TrainingReader(CsvTable table) : ColumnReader(std::move(table), RulesOfTrainings()) {}

 private:
  // Columns "GPUs" of names, too, are others' words.
  bool Stays(size_t column) const override {
    if (names_[column] != "gpus") return IsKnown(names_[column]);
    return FirstCell(column).empty() || !NamesOfDevices(column);
  }

  // "H100", "8x H100", of a column that may also hold how many.
  bool NamesOfDevices(size_t column) const {
    const std::string first = FirstCell(column);
    const std::optional<Amount> amount = AmountIn(first, table_.separator);
    return !amount.has_value() || (!amount->unit.empty() && !DevicesIn(first).empty() && !Has("gpu_type"));
  }

  const ColumnRule* RuleOf(size_t column) const override {
    Words words = WordsOf(names_[column]);
    if (absl::StrContains(names_[column], "/") && HasOneOf(words, "node|host|machine")) words.push_back("per");
    const ColumnRule* rule = RuleFor(words);
    if (rule == nullptr) {
      words = WordsOf(ApartAtCapitals(table_.names.size() > column ? table_.names[column] : names_[column]));
      rule = RuleFor(words);
    }
    if (rule != nullptr && rule->known == "peak_mem_gb" && absl::StrContains(names_[column], "%")) return nullptr;
    if (rule != nullptr && rule->known == "peak_mem_gb" && !HasOneOf(words, "peak|max") && NamesPeak()) return nullptr;
    if (rule != nullptr && rule->known == "zero_fsdp" && HoldsShares(column)) return nullptr;
    if (rule == nullptr || rule->known != "?rate") return rule;
    const std::optional<Amount> first = AmountIn(FirstCell(column), table_.separator);
    if (!first.has_value()) return nullptr;
    rule = RuleFor(WordsOf(absl::StrCat(names_[column], " ", first->unit)));
    return rule != nullptr && rule->known == "?rate" ? nullptr : rule;
  }

  // "ActCkpt", "ShardStrategy"; as it is where there is nothing to part.
  static std::string ApartAtCapitals(absl::string_view name) {
    std::string apart;
    for (size_t i = 0; i < name.size(); ++i) {
      const bool begins = absl::ascii_isupper(static_cast<unsigned char>(name[i])) && i > 0 &&
                          absl::ascii_islower(static_cast<unsigned char>(name[i - 1]));
      absl::StrAppend(&apart, begins ? " " : "", name.substr(i, 1));
    }
    return apart;
  }

  // What the rule leaves open is told by the other columns and by the cells.
  std::string KnownName(size_t column) const override {
    const std::string known(rules_[column]->known);
    if (known == "?batch") {
      return !Has("global_batch_seqs") && (Has("micro_batch_seqs") || Has("local_batch_seqs") || !Has("grad_accum"))
                 ? "global_batch_seqs"
                 : "micro_batch_seqs";
    }
    if (known == "?model_size") {
      const std::optional<Amount> first = AmountIn(FirstCell(column), table_.separator);
      return Has("model") && first.has_value() ? "params_b" : "model";
    }
    if (known == "gpu_type" && HoldsNumbers(column)) return "gpus";
    if (known == "gpus" && NamesOfDevices(column)) return "gpu_type";
    if (known == "tokens_per_s_total" && !Has("gpus") && !Has("nodes") && !NamesDevices())
      return "tokens_per_s_per_gpu";
    return known;
  }

  // Whether a column of memory says that it is the most that was used.
  bool NamesPeak() const {
    return std::any_of(names_.begin(), names_.end(), [](const std::string& name) {
      const Words words = WordsOf(name);
      return HasOneOf(words, "mem|memory|vram") && HasOneOf(words, "peak|max");
    });
  }

  // Whether the column of devices says how many.
  bool NamesDevices() const {
    for (size_t i = 0; i < names_.size(); ++i) {
      const bool devices = rules_[i] != nullptr ? rules_[i]->known == "gpu_type" : table_.columns[i] == "gpu_type";
      if (devices && !DevicesIn(FirstCell(i)).empty()) return true;
    }
    return false;
  }

  bool ReadOtherwise(size_t i) override {
    constexpr absl::string_view kTypes[] = {"fp16", "bf16", "fp8", "fp32", "tf32", "float16", "bfloat16", "float8"};
    if (ReadTogether(i)) return true;
    const std::string first = FirstCell(i);
    if (std::find(std::begin(kTypes), std::end(kTypes), names_[i]) != std::end(kTypes) &&
        (SaysYes(first) || SaysNo(first) || first == "hybrid")) {
      Append(i, "dtype");
    } else if (const std::string degree = GroupDegree(i); !degree.empty()) {
      AppendDegree(i, degree);
    } else if ((names_[i].empty() && i == 0 && !first.empty() && !HoldsNumbers(i)) ||
               (rules_[i] != nullptr && rules_[i]->known == "other_opts")) {
      Append(i, "other_opts");
    } else {
      return false;
    }
    return true;
  }

  // "TP/PP/DP" of cells "4/2/8", "MBS x GA" of "2x4", "Heads (Q/KV)" of "32/8": a count for each part of the name, or
  // of what is in parentheses with what is before them.
  bool ReadTogether(size_t column) {
    constexpr size_t kLongest = 64;
    static const std::regex* const kBetween = new std::regex(R"(\s*(?:/|,|&|\+|\xC3\x97|\sx\s)\s*)");
    static const std::regex* const kNumber = new std::regex(R"(\d{1,9})");
    static const std::regex* const kOfOne = new std::regex(R"(([^()]*)\(([^()]*)\)\s*)");
    std::string name = names_[column].substr(0, kLongest), of;
    if (std::smatch in; std::regex_match(name, in, *kOfOne)) {
      const std::string parts = in[2].str();
      of = in[1].str();
      name = parts;
    }
    std::vector<std::string> known;
    for (std::sregex_token_iterator part(name.begin(), name.end(), *kBetween, -1), end; part != end; ++part) {
      const ColumnRule* const rule = RuleFor(WordsOf(absl::StrCat(of, part->str())));
      if (rule == nullptr || rule->kind != CellKind::kCount || std::count(known.begin(), known.end(), rule->known) > 0)
        return false;
      known.emplace_back(rule->known);
    }
    if (known.size() < 2) return false;
    std::vector<std::vector<std::string>> numbers(table_.rows.size());
    for (size_t r = 0; r < table_.rows.size(); ++r) {
      if (!table_.rows[r].damaged.empty() || IsEmptyCell(table_.rows[r].cells[column])) continue;
      const std::string cell = table_.rows[r].cells[column].substr(0, kLongest);
      for (std::sregex_iterator it(cell.begin(), cell.end(), *kNumber), end; it != end; ++it) {
        numbers[r].push_back(it->str());
      }
      if (numbers[r].size() != known.size()) return false;
    }
    read_.push_back(absl::StrCat(QuoteForMessage(names_[column]), " as ", absl::StrJoin(known, ", ")));
    for (size_t r = 0; r < numbers.size(); ++r) {
      for (size_t i = 0; i < numbers[r].size(); ++i) {
        if (Lacks(table_.rows[r], known[i])) Set(&table_.rows[r], known[i], numbers[r][i]);
      }
    }
    return true;
  }

  // Whether a column of FSDP says over how many devices, as MaxText's and Pax's do, and not whether (0, 1).
  bool HoldsShares(size_t column) const {
    if (!HasOneOf(WordsOf(names_[column]), "fsdp") || !HoldsNumbers(column)) return false;
    return std::any_of(table_.rows.begin(), table_.rows.end(), [&](const CsvRow& row) {
      return row.damaged.empty() && Number(row, names_[column]).value_or(0) > 1;
    });
  }

  // torchtitan's two degrees of data parallelism, as ShardingText has them: over copies, and of those that share one.
  std::string GroupDegree(size_t column) const {
    const Words words = WordsOf(names_[column]);
    if (HoldsShares(column)) return "dp_shard";
    if (!HasOneOf(words, "dp|data") || !HoldsNumbers(column)) return "";
    return HasOneOf(words, "replicate") ? "dp_replicate" : HasOneOf(words, "shard") ? "dp_shard" : "";
  }

  // A shard of -1 is all that there are.
  void AppendDegree(size_t from, const std::string& degree) {
    const size_t to = ColumnOf("zero_fsdp");
    read_.push_back(absl::StrCat(QuoteForMessage(names_[from]), " in zero_fsdp"));
    for (CsvRow& row : table_.rows) {
      const double number = row.damaged.empty() ? Number(row, names_[from]).value_or(1) : 1;
      if (number == 1) continue;
      absl::StrAppend(&row.cells[to], row.cells[to].empty() ? "" : "; ", degree == "dp_shard" ? "FSDP " : "", degree,
                      "=", number);
    }
  }

  // A yes stands for the column's name.
  void Append(size_t from, const std::string& known) {
    const size_t to = ColumnOf(known);
    read_.push_back(absl::StrCat(QuoteForMessage(names_[from]), " in ", known));
    for (CsvRow& row : table_.rows) {
      if (!row.damaged.empty() || IsEmptyCell(row.cells[from]) || SaysNo(row.cells[from])) continue;
      const bool yes = SaysYes(row.cells[from]) || (known == "dtype" && row.cells[from] == "hybrid");
      const std::string text = yes ? names_[from] : row.cells[from];
      absl::StrAppend(&row.cells[to], row.cells[to].empty() ? "" : "; ", text);
      if (known == "other_opts") absl::StrAppend(&TextsOf(row), " ", text);
    }
  }

  // What columns that others name says of a row.
  std::string& TextsOf(const CsvRow& row) {
    texts_.resize(table_.rows.size());
    return texts_[static_cast<size_t>(&row - table_.rows.data())];
  }

  void CellsRead(size_t column, const Words& name, bool binary) override {
    if (table_.columns[column] == "zero_fsdp") ReadSharding(column, HasOneOf(name, "fsdp"));
    if (table_.columns[column] == "attention" && HasOneOf(name, "flash|fused")) ReadFlash(column);
    if (table_.columns[column] != "peak_mem_gb" || (name.empty() && !binary)) return;
    const size_t definition = ColumnOf("mem_def");
    for (CsvRow& row : table_.rows) {
      if (row.cells[definition].empty()) row.cells[definition] = absl::StrCat(binary ? "GiB " : "GB ", names_[column]);
    }
  }

  // Whether there is flash attention.
  void ReadFlash(size_t column) {
    for (CsvRow& row : table_.rows) {
      if (!row.damaged.empty() || IsEmptyCell(row.cells[column])) continue;
      std::string& cell = row.cells[column];
      if (SaysNo(cell) || cell == "0") {
        cell = "unfused";
      } else if (SaysYes(cell) || cell == "1") {
        cell = "flash attention";
      }
    }
  }

  // "3" of a stage, "8" of a group (of ZeRO: of the first stage), "yes".
  void ReadSharding(size_t column, bool fsdp) {
    for (CsvRow& row : table_.rows) {
      if (!row.damaged.empty() || IsEmptyCell(row.cells[column])) continue;
      std::string& cell = row.cells[column];
      const std::optional<double> number = NumberIn(cell, table_.separator);
      if (SaysNo(cell) || (number.has_value() && *number == 0)) {
        cell = "none";
      } else if (fsdp && (number.has_value() || SaysYes(cell))) {
        cell = "FSDP";
      } else if (number.has_value() || SaysYes(cell)) {
        cell = absl::StrCat("ZeRO-", number.value_or(1) <= 3 ? number.value_or(1) : 1);
      }
    }
  }

  // --- what one row says by other means ---------------------------------------------------------------------------

  void Complete() override {
    const auto shares = std::find_if(names_.begin(), names_.end(), [&](const std::string& name) {
      return HoldsShares(static_cast<size_t>(&name - names_.data()));
    });
    for (CsvRow& row : table_.rows) {
      if (row.damaged.empty()) Complete(shares == names_.end() ? "" : *shares, &row);
    }
  }

  // `shares`: the name of the column that says over how many devices FSDP splits, if there is one.
  void Complete(absl::string_view shares, CsvRow* row) {
    ReadOutOfMemory(row);
    ReadDevices(row, "gpus");
    for (const absl::string_view degree : {"tp", "pp", "vpp", "cp", "ep"}) {
      if (Number(*row, degree) == 0.0) Set(row, std::string(degree), 1);  // not used
    }
    ReadLayout(row);
    if (!shares.empty()) ReadShares(shares, row);
    ReadLocalBatch(row);
    ReadSharedSequence(row);
    const double replicas = Replicas(*row).value_or(0);
    if (const auto batch = Number(*row, kBatch);
        batch.has_value() && replicas > 0 && Lacks(*row, "global_batch_seqs")) {
      Set(row, "global_batch_seqs", *batch * replicas);
    }
    if (const auto tokens = Number(*row, "batch_tokens"); tokens.has_value() && Lacks(*row, "global_batch_seqs")) {
      const double sequence = Number(*row, "seq_len").value_or(0);
      if (sequence > 0) Set(row, "global_batch_seqs", std::max(1.0, std::round(*tokens / sequence)));
    }
    ReadSteps(row);
  }

  // Steps a second, and what rows a second tell of them: that the batch is what all devices have at a time, of which a
  // step adds up several (Hugging Face's trainers print all three). Then rows tell the time, with more digits.
  void ReadSteps(CsvRow* row) {
    constexpr double kRounding = 0.1;  // "0.018"
    const double rate = Number(*row, "steps_per_s").value_or(0);
    if (rate <= 0 || !Lacks(*row, "step_time_s")) return;
    const double batch = Number(*row, "global_batch_seqs").value_or(0);
    const double times = batch > 0 ? Number(*row, "samples_per_s").value_or(0) / rate / batch : 0;
    const double whole = std::round(times);
    if (whole >= 2 && std::abs(times / whole - 1) < kRounding && Lacks(*row, "grad_accum")) {
      Set(row, "global_batch_seqs", batch * whole);
      Set(row, "grad_accum", whole);
    } else {
      Set(row, "step_time_s", 1 / rate);
    }
  }

  // torchtitan's local batch is what a replica has at a time, which pipelines cut up. MaxText's, beside its `ici_`
  // degrees, is of each device, whatever the devices share.
  void ReadLocalBatch(CsvRow* row) {
    const auto of_mesh = [](const std::string& name) { return absl::StartsWith(name, "ici_"); };
    const std::optional<double> micro = Number(*row, "micro_batch_seqs"), devices = Number(*row, "gpus");
    if (micro.has_value() && devices.has_value() && Lacks(*row, "global_batch_seqs") &&
        std::any_of(names_.begin(), names_.end(), of_mesh)) {
      Set(row, "global_batch_seqs", *micro * *devices);
      Set(row, "micro_batch_seqs", std::string());
    }
    const std::optional<double> local = Number(*row, "local_batch_seqs");
    if (!local.has_value()) return;
    const std::string known = Number(*row, "pp").value_or(1) > 1 ? std::string(kBatch) : "micro_batch_seqs";
    if (Lacks(*row, known)) Set(row, known, *local);
  }

  // Sequence parallelism over so many devices without tensor parallelism is Ulysses' kind.
  void ReadSharedSequence(CsvRow* row) {
    const std::optional<double> degree = Number(*row, "seq_parallel");
    if (degree.value_or(1) <= 1 || Number(*row, "tp").value_or(1) > 1 || !Lacks(*row, "cp")) return;
    Set(row, "cp", *degree);
    Set(row, "seq_parallel", std::string());
  }

  void ReadOutOfMemory(CsvRow* row) {
    for (size_t i = 0; i < row->cells.size() && i < table_.columns.size(); ++i) {
      const CellKind kind = KindOf(table_.columns[i]);
      if (kind != CellKind::kRate && kind != CellKind::kSeconds && kind != CellKind::kGigabytes &&
          kind != CellKind::kPercent)
        continue;
      if (!SaysOutOfMemory(row->cells[i])) continue;
      row->cells[i].clear();
      if (Lacks(*row, "status")) Set(row, "status", std::string("oom"));
    }
  }

  // "zero1(dp2)+tp2+pp4", "TP=8, PP=4"; "tp2sd4_stage2", PaddleNLP's degree of sharding.
  void ReadLayout(CsvRow* row) {
    constexpr size_t kLongest = 512;
    static const std::regex* const kJoined = new std::regex(R"((\d)(?=[a-z]))");
    const std::string text =
        std::regex_replace(absl::AsciiStrToLower(TextsOf(*row)).substr(0, kLongest), *kJoined, "$1 ");
    if (text.empty()) return;
    static const std::regex* const kDegree =
        new std::regex(R"((^|[^a-z])(tp|pp|dp|sd|cp|ep|vpp)[\s=:_-]{0,3}(\d{1,5}))");
    for (std::sregex_iterator it(text.begin(), text.end(), *kDegree), end; it != end; ++it) {
      const std::string degree = (*it)[2] == "sd" ? "dp" : (*it)[2].str();
      if (Lacks(*row, degree)) Set(row, degree, (*it)[3].str());
    }
    if (Lacks(*row, "zero_fsdp") && SaysSharding(ShardingText(text))) Set(row, "zero_fsdp", text);
  }

  // Beside FSDP's degree "dp" is that of copies where only their product has as many devices as the row.
  void ReadShares(absl::string_view column, CsvRow* row) {
    const std::optional<double> copies = Number(*row, "dp"), shares = Number(*row, column);
    if (!copies.has_value() || !shares.has_value()) return;
    if (*shares == 1 && Lacks(*row, "zero_fsdp")) Set(row, "zero_fsdp", std::string("none"));
    const double others =
        Number(*row, "tp").value_or(1) * Number(*row, "pp").value_or(1) * Number(*row, "cp").value_or(1);
    if (*shares <= 1 || *copies * *shares * others != Number(*row, "gpus")) return;
    Set(row, "dp", *copies * *shares);
    if (*copies > 1) Set(row, "zero_fsdp", absl::StrCat("dp_replicate=", *copies, "; FSDP dp_shard=", *shares));
  }

  // Nothing where a degree is left open, unless the row says how many replicas there are.
  std::optional<double> Replicas(const CsvRow& row) const {
    if (const std::optional<double> data = Number(row, "dp")) return data;
    const std::optional<double> devices = Number(row, "gpus");
    if (!devices.has_value()) return std::nullopt;
    return *devices / (Number(row, "tp").value_or(1) * Number(row, "pp").value_or(1) * Number(row, "cp").value_or(1));
  }

  std::vector<std::string> texts_;
};

}  // namespace

CsvTable WithTrainingColumns(CsvTable table) { return *TrainingReader(std::move(table)).Read(); }  // no hook fails

absl::Status CheckTrainingColumns(const CsvTable& table) {
  const absl::Span<const ColumnRule> rules = RulesOfTrainings().rules;
  const bool any = std::any_of(table.columns.begin(), table.columns.end(), [&](const std::string& column) {
    return std::any_of(rules.begin(), rules.end(), [&](const ColumnRule& rule) { return rule.known == column; });
  });
  if (any) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(table.places.empty() ? table.file : table.places[0],
                   ": found no column that tells of a run, wanted a line of names, such as model, layers, hidden, "
                   "heads, seq_len, global_batch_seqs, gpu_type, gpus, tp, pp, step_time_s, and a line for each run"));
}

}  // namespace meshwright
