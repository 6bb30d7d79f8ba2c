#include "tools/validate/training_columns.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "ir/text.h"
#include "tools/validate/sharding_text.h"

namespace meshwright {
namespace {

// A count's K is 1024, that of a vocabulary 1000.
enum class Kind : uint8_t { kText, kCount, kVocabulary, kBillions, kSeconds, kGigabytes, kPercent, kRate };

// A column is read as `known` if each group of `needs` (separated by spaces) has one of its words (separated by '|') in
// the column's name, and `without` has none. The first row that holds is taken: what is more telling stands first.
struct Rule {
  absl::string_view known;
  Kind kind;
  absl::string_view needs, without = "";
};
constexpr absl::string_view kBatch = "replica_batch_seqs";  // rows of a step on one replica
constexpr absl::string_view kAnyBatch = "batch", kAnyRate = "rate", kAnySize = "model_size";
constexpr Rule kRules[] = {
    {"mfu_pct", Kind::kPercent, "mfu"},
    {"mfu_pct", Kind::kPercent, "model flops|flop utilization|utilisation"},
    {"hfu_pct", Kind::kPercent, "hfu"},
    {"tflops_per_gpu", Kind::kRate, "tflops|tflop|teraflops|teraflop", "peak|total|theoretical|aggregate"},
    {"tokens_per_s_per_gpu", Kind::kRate, "tgs"},
    {"tokens_per_s_per_gpu", Kind::kRate, "tokens|token|tok|toks|tps gpu|gpus|device|devices|accelerator|chip|card",
     "batch|sequence|length|total|num|number"},
    {"tokens_per_s_per_gpu", Kind::kRate, "t s gpu"},
    {"batch_tokens", Kind::kCount, "batch|globalbatchsize tokens|token|t"},
    {"tokens_per_s_total", Kind::kRate, "tps|wps"},
    {"tokens_per_s_total", Kind::kRate, "t s throughput"},
    {"tokens_per_s_total", Kind::kRate, "tokens|token|tok|toks s|sec|second|throughput|speed",
     "batch|sequence|length|num|number"},
    {"samples_per_s_per_gpu", Kind::kRate,
     "samples|sample|samp|sequences|seqs|sentences|examples s|sec|second|throughput gpu|device|accelerator|card",
     "batch"},
    {"samples_per_s", Kind::kRate, "samples|sample|samp|sequences|seqs|sentences|examples s|sec|second|throughput",
     "batch"},
    {"grad_accum", Kind::kCount, "ga|gas|accumulation|accum|accu|gradaccum|microbatches"},
    {"grad_accum", Kind::kCount, "grad|gradient acc"},
    {"steps_per_s", Kind::kRate, "it/s"},
    {"step_time_s", Kind::kSeconds, "s/it"},
    {"step_time_s", Kind::kSeconds, "step|iteration|iter|it time|timing|duration|latency|elapsed|ms|seconds|sec|s",
     "tokens|samples|total|num|number|size"},
    {"step_time_s", Kind::kSeconds, "seconds|elapsed", "total|training"},
    {"gpu_mem_gb", Kind::kGigabytes, "gpu|device|card mem|memory|vram|hbm capacity|size|total", "peak|max|used|usage"},
    {"peak_mem_gb", Kind::kGigabytes, "mem|memory|vram", "cpu|host|bandwidth|capacity|size"},
    {kBatch, Kind::kCount, "batch|bs|bsz dp|replica"},
    {"micro_batch_seqs", Kind::kCount, "mbs|mb|microbatch|microbatchsize|micro|lbs"},
    {"micro_batch_seqs", Kind::kCount, "batch|bs|bsz per|device|gpu|local|rank|card"},
    {"global_batch_seqs", Kind::kCount, "gbs|gb|globalbatchsize|globalbatch"},
    {"global_batch_seqs", Kind::kCount, "global|total|effective batch|bs|bsz"},
    {kAnyBatch, Kind::kCount, "batch|bs|bsz|batchsize"},
    {"kv_heads", Kind::kCount, "kv heads|head"},
    {"kv_heads", Kind::kCount, "query groups|group"},
    {"head_dim", Kind::kCount, "head dim|size|width"},
    {"heads", Kind::kCount, "heads|head|nah|nheads|nhead|numheads"},
    {"expert_ffn", Kind::kCount, "expert|moe ffn|intermediate"},
    {"experts_per_token", Kind::kCount, "topk"},
    {"experts_per_token", Kind::kCount, "top k"},
    {"experts_per_token", Kind::kCount, "experts|expert per token|tok"},
    {"ffn", Kind::kCount, "ffn|dff|intermediate"},
    {"ffn", Kind::kCount, "d ff"},
    {"vocab", Kind::kVocabulary, "vocab|vocabulary"},
    {"etp", Kind::kCount, "etp"},
    {"etp", Kind::kCount, "expert tensor"},
    {"ep", Kind::kCount, "ep"},
    {"ep", Kind::kCount, "expert|experts parallel|parallelism"},
    {"experts", Kind::kCount, "experts"},
    {"vpp", Kind::kCount, "vpp|vp|virtual|interleaved|interleaving|interleave|chunks"},
    {"pp", Kind::kCount, "pp|pipeline|stages", "schedule|style"},
    {"cp", Kind::kCount, "cp"},
    {"cp", Kind::kCount, "context parallel|parallelism"},
    {"tp", Kind::kCount, "tp|tensor|mp", "mode"},
    {"tp", Kind::kCount, "model parallel|parallelism"},
    {"dp", Kind::kCount, "dp"},
    {"dp", Kind::kCount, "data parallel|parallelism"},
    {"seq_parallel", Kind::kText, "sp"},
    {"seq_parallel", Kind::kText, "sequence|seq parallel|parallelism"},
    {"zero_fsdp", Kind::kText, "zero|fsdp|sharding|shard"},
    {"zero_fsdp", Kind::kText, "distributed|dist optimizer|opt"},
    {"gpus_per_node", Kind::kCount, "gpu|gpus|device|devices|accelerators per node|host|machine"},
    {"nodes", Kind::kCount, "nodes|node|hosts"},
    {"gpus", Kind::kCount, "gpus|ngpu|ngpus|accelerators|devices|cards|world", "type|name|memory|per"},
    {"gpus", Kind::kCount, "gpu|device|accelerator|card num|number|count|n", "type|name|per"},
    {"gpu_type", Kind::kText, "gpu|device|accelerator|hardware|machine|system|card|chip|instance",
     "hour|hours|utilization|price|cost|power|watt|watts"},
    {"seq_len", Kind::kCount, "seqlen|seq|sequence|context|ctx|length|len", "parallel|parallelism"},
    {"seq_len", Kind::kCount, "block size"},
    {"hidden", Kind::kCount, "hidden|dmodel|hs|embd|hiddensize"},
    {"hidden", Kind::kCount, "d model"},
    {"layers", Kind::kCount, "layers|layer|nl|depth|nlayers|numlayers", "per"},
    {"params_b", Kind::kBillions, "params|parameters|nparams|numparams", "trainable|active"},
    {kAnySize, Kind::kBillions, "model size|scale"},
    {"model", Kind::kText, "model|architecture|arch"},
    {"dtype", Kind::kText, "dtype|precision|datatype"},
    {"dtype", Kind::kText, "data|compute type"},
    {"recompute", Kind::kText, "recompute|recomputation|remat|checkpointing|ac"},
    {"recompute", Kind::kText, "activation|gradient|grad checkpoint|checkpoints|ckpt"},
    {"attention", Kind::kText, "attention|attn"},
    {"compile", Kind::kText, "compile|compiled"},
    {"interconnect", Kind::kText, "interconnect|network|fabric|nic|infiniband"},
    {"status", Kind::kText, "status|outcome"},
    {"other_opts", Kind::kText,
     "framework|software|library|container|release|version|method|setup|strategy|parallelism|schedule|options|kernel|"
     "kernels|finetuning|task|lora|adapter|trainer|offload|variant"},
    {kAnyRate, Kind::kRate, "throughput|speed|performance"},
};

// What readers ask for, and what tables have besides and nobody reads.
constexpr absl::string_view kOnlyKnown[] = {
    "source_ref", "tokens_per_s_total", "step_time_derived_s", "mem_def", "flops_def", "notes", "expert_imbalance"};

bool IsKnown(absl::string_view name) {
  const auto same = [&](absl::string_view known) { return known == name; };
  return std::any_of(std::begin(kOnlyKnown), std::end(kOnlyKnown), same) ||
         std::any_of(std::begin(kRules), std::end(kRules), [&](const Rule& rule) {
           return rule.known == name && name != kAnyBatch && name != kAnyRate && name != kAnySize;
         });
}

using Words = std::vector<std::string>;

// "Time per Step (s)": time, per, step, s. With "s/it" and "it/s" for the two ways round.
Words WordsOf(absl::string_view name) {
  std::string plain;
  for (const char c : name) plain.push_back(absl::ascii_isalnum(static_cast<unsigned char>(c)) ? c : ' ');
  Words words = absl::StrSplit(absl::AsciiStrToLower(plain), ' ', absl::SkipEmpty());
  const auto any = [](absl::string_view word, absl::string_view of) {
    const Words list = absl::StrSplit(of, '|');
    return std::find(list.begin(), list.end(), word) != list.end();
  };
  constexpr absl::string_view kSecond = "s|sec|secs|second|seconds|ms",
                              kStep = "it|iter|iters|iteration|step|steps|its";
  const size_t given = absl::StrContains(name, '/') || any("per", absl::StrJoin(words, "|")) ? words.size() : 0;
  for (size_t i = 0; i + 1 < given; ++i) {
    const size_t next = words[i + 1] == "per" && i + 2 < given ? i + 2 : i + 1;
    if (any(words[i], kSecond) && any(words[next], kStep)) words.push_back("s/it");
    if (any(words[i], kStep) && any(words[next], kSecond)) words.push_back("it/s");
  }
  // "step time (s)" has its second behind its step, too.
  const bool timed = std::find(words.begin(), words.end(), "time") != words.end() ||
                     std::find(words.begin(), words.end(), "timing") != words.end();
  if (timed) words.erase(std::remove(words.begin(), words.end(), "it/s"), words.end());
  return words;
}

bool HasOneOf(const Words& words, absl::string_view alternatives) {
  for (const absl::string_view word : absl::StrSplit(alternatives, '|', absl::SkipEmpty())) {
    if (std::find(words.begin(), words.end(), word) != words.end()) return true;
  }
  return false;
}

const Rule* RuleFor(const Words& words) {
  for (const Rule& rule : kRules) {
    if (HasOneOf(words, rule.without)) continue;
    const Words groups = absl::StrSplit(rule.needs, ' ');
    const auto has = [&](const std::string& group) { return HasOneOf(words, group); };
    if (std::all_of(groups.begin(), groups.end(), has)) return &rule;
  }
  return nullptr;
}

constexpr size_t kLongestNumber = 32;

// "17.13 samp/s": 17.13 and "samp/s". Nothing where no number leads.
struct Quantity {
  double value = 0;
  std::string unit;  // in lower case
};
std::optional<Quantity> QuantityIn(absl::string_view cell, char separator) {
  cell = absl::StripAsciiWhitespace(cell);
  absl::ConsumePrefix(&cell, "~");
  size_t end = cell.find_first_not_of("0123456789.,+-eE");
  if (end == absl::string_view::npos) end = cell.size();
  // "1.2e" of "1.2 examples" written together is no number; its digits are.
  end = std::min(end, kLongestNumber);
  for (; end > 0; --end) {
    const std::optional<double> value = NumberIn(cell.substr(0, end), separator);
    if (!value.has_value()) continue;
    const std::string unit = absl::AsciiStrToLower(absl::StripAsciiWhitespace(cell.substr(end)));
    // "45-47K" is no one number.
    if (!unit.empty() && (absl::ascii_isdigit(unit[0]) || absl::StrContains("-+.,:", unit.substr(0, 1)))) break;
    return Quantity{*value, unit};
  }
  return std::nullopt;
}

// K, M and B in front of the rest of a unit, of counts in powers of two where `binary`.
double Multiple(absl::string_view unit, bool binary) {
  if (unit.empty() || (unit.size() > 1 && absl::ascii_isalpha(static_cast<unsigned char>(unit[1])))) return 1;
  const double thousand = binary ? 1024 : 1000;
  const char c = unit[0];
  return c == 'k' ? thousand : c == 'm' ? thousand * thousand : c == 'b' ? 1e9 : 1;
}

constexpr double kNoUnit = 0;

// Of the cell, else of the column, else 1. Nothing where the cell has a unit of something else.
std::optional<double> FactorOf(const std::string& cell_unit, double cell, double column) {
  if (cell != kNoUnit) return cell;
  if (!cell_unit.empty() && cell_unit[0] != '(') return std::nullopt;
  return column == kNoUnit ? 1 : column;
}

double SecondsOf(const Words& words) {
  if (HasOneOf(words, "ms|msec|millisecond|milliseconds")) return 1e-3;
  if (HasOneOf(words, "us|usec|microseconds")) return 1e-6;
  if (HasOneOf(words, "min|mins|minute|minutes")) return 60;
  return HasOneOf(words, "s|sec|secs|second|seconds|s/it") ? 1 : kNoUnit;
}

// Megabytes are what counters print, 2^20 of them: GB of 2^30 each, which `binary` says.
double GigabytesOf(const Words& words, bool* binary) {
  *binary = HasOneOf(words, "mb|mib|gib|m");
  if (HasOneOf(words, "mb|mib|m")) return 1.0 / 1024;
  return HasOneOf(words, "gib|gb|g|gigabytes") ? 1 : kNoUnit;
}

// `cell` as a plain number in the unit of `kind`; as it is where it is none. `name`: words of the column's name.
std::string Plain(const std::string& cell, Kind kind, const Words& name, char separator, bool* binary) {
  const std::optional<Quantity> quantity = kind == Kind::kText ? std::nullopt : QuantityIn(cell, separator);
  if (!quantity.has_value()) return cell;
  const Words unit = WordsOf(quantity->unit);
  double factor = 1;
  if (kind == Kind::kSeconds) {
    const std::optional<double> seconds = FactorOf(quantity->unit, SecondsOf(unit), SecondsOf(name));
    if (!seconds.has_value()) return cell;
    factor = *seconds;
  } else if (kind == Kind::kGigabytes) {
    bool own = false, named = false;
    const double cell_factor = GigabytesOf(unit, &own), name_factor = GigabytesOf(name, &named);
    const std::optional<double> gigabytes = FactorOf(quantity->unit, cell_factor, name_factor);
    if (!gigabytes.has_value()) return cell;
    factor = *gigabytes;
    *binary = *binary || (cell_factor != kNoUnit ? own : named);
  } else if (kind == Kind::kPercent) {
    const bool share = !name.empty() && !absl::StrContains(quantity->unit, "%") && quantity->value <= 1;
    factor = share ? 100 : 1;
  } else if (kind == Kind::kBillions) {
    const double multiple = Multiple(quantity->unit, false);
    factor = multiple > 1 ? multiple / 1e9 : quantity->value > 1e5 ? 1e-9 : 1;
  } else {
    factor = Multiple(quantity->unit, kind == Kind::kCount);
  }
  if (factor == 1 && quantity->unit.empty()) return cell;
  return absl::StrFormat("%.12g", quantity->value * factor);
}

bool IsEmptyCell(absl::string_view cell) { return EmptyInTable(absl::StripAsciiWhitespace(cell)); }
bool SaysOutOfMemory(absl::string_view cell) {
  const std::string lower = absl::AsciiStrToLower(absl::StripAsciiWhitespace(cell));
  return lower == "oom" || lower == "out of memory" || lower == "cuda oom";
}
bool SaysYes(absl::string_view cell) {
  const std::string lower = absl::AsciiStrToLower(absl::StripAsciiWhitespace(cell));
  return lower == "true" || lower == "yes" || lower == "on" || lower == "y";
}
bool SaysNo(absl::string_view cell) {
  const std::string lower = absl::AsciiStrToLower(absl::StripAsciiWhitespace(cell));
  return lower == "false" || lower == "no" || lower == "off" || lower == "n";
}

// "8x A100", "4 H100s", "A100-SXM4-80GB x2": how many.
std::string DevicesIn(const std::string& cell) {
  constexpr size_t kLongest = 256;
  const std::string text = cell.substr(0, kLongest);
  std::smatch match;
  static const std::regex* const kFront = new std::regex(R"(^\s{0,8}(\d{1,5})\s{0,2}([xX*]|\s)\s{0,2}[A-Za-z])");
  static const std::regex* const kBehind = new std::regex(R"([\s)][xX*]\s{0,2}(\d{1,5})\s{0,8}$)");
  const bool found = std::regex_search(text, match, *kFront) || std::regex_search(text, match, *kBehind);
  return found ? match[1].str() : "";
}

class Renamer {
 public:
  explicit Renamer(CsvTable table) : table_(std::move(table)), given_(table_.columns) {}

  CsvTable Read() {
    rules_.assign(given_.size(), nullptr);
    for (size_t i = 0; i < given_.size(); ++i) {
      if (Stays(i)) {
        ReadCells(i, i, KindOf(given_[i]), {});
      } else {
        rules_[i] = RuleOf(i);
      }
    }
    for (size_t i = 0; i < given_.size(); ++i) {
      if (!Stays(i)) Rename(i);
    }
    if (!read_.empty()) table_.remarks.push_back(absl::StrCat("columns: ", absl::StrJoin(read_, ", ")));
    if (!unread_.empty()) table_.remarks.push_back(absl::StrCat("not read: ", absl::StrJoin(unread_, ", ")));
    for (CsvRow& row : table_.rows) {
      if (row.damaged.empty()) Complete(&row);
    }
    return std::move(table_);
  }

 private:
  static Kind KindOf(absl::string_view known) {
    for (const Rule& rule : kRules) {
      if (rule.known == known) return rule.kind;
    }
    return known == "tokens_per_s_total" ? Kind::kRate : known == "step_time_derived_s" ? Kind::kSeconds : Kind::kText;
  }

  // The first cell of a column that holds something.
  std::string FirstCell(size_t column) const {
    for (const CsvRow& row : table_.rows) {
      if (row.damaged.empty() && !IsEmptyCell(row.cells[column])) return row.cells[column];
    }
    return "";
  }
  bool HoldsQuantities(size_t column) const {
    return std::any_of(table_.rows.begin(), table_.rows.end(), [&](const CsvRow& row) {
      return row.damaged.empty() &&
             (QuantityIn(row.cells[column], table_.separator) || SaysOutOfMemory(row.cells[column]));
    });
  }
  bool HoldsNumbers(size_t column) const {
    const std::optional<Quantity> first = QuantityIn(FirstCell(column), table_.separator);
    return first.has_value() && first->unit.empty();
  }

  // Columns "GPUs" of names, too, are others' words.
  bool Stays(size_t column) const {
    if (given_[column] != "gpus") return IsKnown(given_[column]);
    const std::string first = FirstCell(column);
    return first.empty() || QuantityIn(first, table_.separator).has_value();
  }

  const Rule* RuleOf(size_t column) const {
    Words words = WordsOf(given_[column]);
    const Rule* rule = RuleFor(words);
    if (rule != nullptr && rule->known == kAnyRate) {
      const std::optional<Quantity> first = QuantityIn(FirstCell(column), table_.separator);
      if (!first.has_value()) return nullptr;
      words = WordsOf(absl::StrCat(given_[column], " ", first->unit));
      rule = RuleFor(words);
    }
    return rule != nullptr && rule->known == kAnyRate ? nullptr : rule;
  }

  bool Has(absl::string_view known) const {
    if (table_.Find(known).has_value()) return true;
    return std::any_of(rules_.begin(), rules_.end(),
                       [&](const Rule* rule) { return rule != nullptr && rule->known == known; });
  }

  // What the rule leaves open is told by the other columns and by the cells.
  std::string KnownName(size_t column) const {
    const std::string known(rules_[column]->known);
    if (known == kAnyBatch) {
      return !Has("global_batch_seqs") && (Has("micro_batch_seqs") || !Has("grad_accum")) ? "global_batch_seqs"
                                                                                          : "micro_batch_seqs";
    }
    if (known == kAnySize) {
      const std::optional<Quantity> first = QuantityIn(FirstCell(column), table_.separator);
      return Has("model") && first.has_value() ? "params_b" : "model";
    }
    if (known == "gpu_type" && HoldsNumbers(column)) return "gpus";
    if (known == "gpus" && !QuantityIn(FirstCell(column), table_.separator).has_value()) return "gpu_type";
    if (known == "tokens_per_s_total" && !Has("gpus") && !Has("nodes") && !NamesDevices())
      return "tokens_per_s_per_gpu";
    return known;
  }

  // Whether the column of devices says how many.
  bool NamesDevices() const {
    for (size_t i = 0; i < given_.size(); ++i) {
      const bool devices = rules_[i] != nullptr ? rules_[i]->known == "gpu_type" : table_.columns[i] == "gpu_type";
      if (devices && !DevicesIn(FirstCell(i)).empty()) return true;
    }
    return false;
  }

  void Rename(size_t i) {
    const std::string& name = given_[i];
    constexpr absl::string_view kTypes[] = {"fp16", "bf16", "fp8", "fp32", "tf32", "float16", "bfloat16"};
    const std::string first = FirstCell(i);
    if (std::find(std::begin(kTypes), std::end(kTypes), name) != std::end(kTypes) &&
        (SaysYes(first) || SaysNo(first))) {
      Append(i, "dtype");
    } else if (name.empty() && i == 0 && !first.empty() && !HoldsNumbers(i)) {
      Append(i, "other_opts");
    } else if (rules_[i] == nullptr) {
      if (!name.empty()) unread_.push_back(QuoteForMessage(name));
    } else if (const std::string known = KnownName(i); known == "other_opts") {
      Append(i, known);
    } else if (table_.Find(known).has_value() || (KindOf(known) != Kind::kText && !HoldsQuantities(i))) {
      unread_.push_back(QuoteForMessage(name));
    } else {
      table_.columns[i] = known;
      read_.push_back(absl::StrCat(QuoteForMessage(name), " as ", known));
      ReadCells(i, i, rules_[i]->kind, WordsOf(name));
    }
  }

  // A yes stands for the column's name.
  void Append(size_t from, const std::string& known) {
    const size_t to = ColumnOf(known);
    read_.push_back(absl::StrCat(QuoteForMessage(given_[from]), " in ", known));
    for (CsvRow& row : table_.rows) {
      if (!row.damaged.empty() || IsEmptyCell(row.cells[from]) || SaysNo(row.cells[from])) continue;
      const std::string text = SaysYes(row.cells[from]) ? given_[from] : row.cells[from];
      absl::StrAppend(&row.cells[to], row.cells[to].empty() ? "" : "; ", text);
      if (known == "other_opts") absl::StrAppend(&TextsOf(row), " ", text);
    }
  }

  size_t ColumnOf(const std::string& known) {
    if (const std::optional<size_t> at = table_.Find(known)) return *at;
    table_.columns.push_back(known);
    for (CsvRow& row : table_.rows) row.cells.resize(table_.columns.size());
    return table_.columns.size() - 1;
  }

  // What columns that others name says of a row.
  std::string& TextsOf(const CsvRow& row) {
    texts_.resize(table_.rows.size());
    return texts_[static_cast<size_t>(&row - table_.rows.data())];
  }

  // Whether the cell's unit is that of another rate than the column was taken for: "tokens/s" below "tokens/s/GPU".
  bool SaysAnotherRate(size_t column, const std::string& cell) const {
    if (column >= rules_.size() || rules_[column] == nullptr || rules_[column]->kind != Kind::kRate) return false;
    const std::optional<Quantity> quantity = QuantityIn(cell, table_.separator);
    if (!quantity.has_value() || quantity->unit.empty()) return false;
    const Rule* own = RuleFor(WordsOf(absl::StrCat(given_[column], " ", quantity->unit)));
    return own != nullptr && own->known != kAnyRate && own->known != rules_[column]->known;
  }

  void ReadCells(size_t from, size_t to, Kind kind, const Words& name) {
    bool binary = false;
    for (CsvRow& row : table_.rows) {
      if (!row.damaged.empty() || SaysAnotherRate(from, row.cells[from])) continue;
      row.cells[to] = Plain(row.cells[from], kind, name, table_.separator, &binary);
    }
    if (table_.columns[to] == "zero_fsdp" && !name.empty()) ReadSharding(to, HasOneOf(name, "fsdp"));
    if (table_.columns[to] != "peak_mem_gb" || name.empty()) return;
    const size_t definition = ColumnOf("mem_def");
    for (CsvRow& row : table_.rows) {
      if (row.cells[definition].empty()) row.cells[definition] = absl::StrCat(binary ? "GiB " : "GB ", given_[from]);
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

  std::optional<double> Number(const CsvRow& row, absl::string_view column) const {
    const std::optional<size_t> at = table_.Find(column);
    if (!at.has_value() || IsEmptyCell(row.cells[*at])) return std::nullopt;
    return NumberIn(row.cells[*at], table_.separator);
  }
  bool Lacks(const CsvRow& row, absl::string_view column) const {
    const std::optional<size_t> at = table_.Find(column);
    return !at.has_value() || IsEmptyCell(row.cells[*at]);
  }
  void Set(CsvRow* row, const std::string& column, double value) { Set(row, column, absl::StrFormat("%.12g", value)); }
  void Set(CsvRow* row, const std::string& column, const std::string& text) {
    const size_t at = ColumnOf(column);
    row->cells[at] = text;
  }

  void Complete(CsvRow* row) {
    ReadOutOfMemory(row);
    ReadDevices(row);
    if (read_.empty()) return;  // the rest is of columns that others name
    ReadLayout(row);
    const double replicas = Replicas(*row).value_or(0);
    if (const auto batch = Number(*row, kBatch);
        batch.has_value() && replicas > 0 && Lacks(*row, "global_batch_seqs")) {
      Set(row, "global_batch_seqs", *batch * replicas);
    }
    if (const auto tokens = Number(*row, "batch_tokens"); tokens.has_value() && Lacks(*row, "global_batch_seqs")) {
      const double sequence = Number(*row, "seq_len").value_or(0);
      if (sequence > 0) Set(row, "global_batch_seqs", std::max(1.0, std::round(*tokens / sequence)));
    }
    if (const auto rate = Number(*row, "steps_per_s"); rate.has_value() && *rate > 0 && Lacks(*row, "step_time_s")) {
      Set(row, "step_time_s", 1 / *rate);
    }
  }

  void ReadOutOfMemory(CsvRow* row) {
    for (size_t i = 0; i < row->cells.size() && i < table_.columns.size(); ++i) {
      const Kind kind = KindOf(table_.columns[i]);
      if (kind != Kind::kRate && kind != Kind::kSeconds && kind != Kind::kGigabytes && kind != Kind::kPercent) continue;
      if (!SaysOutOfMemory(row->cells[i])) continue;
      row->cells[i].clear();
      if (Lacks(*row, "status")) Set(row, "status", std::string("oom"));
    }
  }

  void ReadDevices(CsvRow* row) {
    const std::optional<double> nodes = Number(*row, "nodes"), per_node = Number(*row, "gpus_per_node");
    if (nodes.has_value() && per_node.has_value() && Lacks(*row, "gpus")) Set(row, "gpus", *nodes * *per_node);
    const std::optional<size_t> type = table_.Find("gpu_type");
    if (!type.has_value() || !Lacks(*row, "gpus")) return;
    if (const std::string devices = DevicesIn(row->cells[*type]); !devices.empty()) Set(row, "gpus", devices);
  }

  // "zero1(dp2)+tp2+pp4", "TP=8, PP=4".
  void ReadLayout(CsvRow* row) {
    constexpr size_t kLongest = 512;
    const std::string text = absl::AsciiStrToLower(TextsOf(*row)).substr(0, kLongest);
    if (text.empty()) return;
    static const std::regex* const kDegree = new std::regex(R"((^|[^a-z])(tp|pp|dp|cp|ep|vpp)[\s=:_-]{0,3}(\d{1,5}))");
    for (std::sregex_iterator it(text.begin(), text.end(), *kDegree), end; it != end; ++it) {
      if (Lacks(*row, (*it)[2].str())) Set(row, (*it)[2].str(), (*it)[3].str());
    }
    if (Lacks(*row, "zero_fsdp") && SaysSharding(ShardingText(text))) Set(row, "zero_fsdp", text);
  }

  // Nothing where a degree is left open, unless the row says how many replicas there are.
  std::optional<double> Replicas(const CsvRow& row) const {
    if (const std::optional<double> data = Number(row, "dp")) return data;
    const std::optional<double> devices = Number(row, "gpus");
    if (!devices.has_value()) return std::nullopt;
    return *devices / (Number(row, "tp").value_or(1) * Number(row, "pp").value_or(1) * Number(row, "cp").value_or(1));
  }

  CsvTable table_;
  const std::vector<std::string> given_;
  std::vector<const Rule*> rules_;  // of the columns that have no known name
  std::vector<std::string> read_, unread_, texts_;
};

}  // namespace

CsvTable WithTrainingColumns(CsvTable table) { return Renamer(std::move(table)).Read(); }

}  // namespace meshwright
