#include "ir/index_rule.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ir/status.h"

namespace meshwright {
namespace {

// Adds the operand that `text` describes. A word is a label, optionally with '=' before or '!' after it; "1" is a
// dim that is not split.
absl::Status AddOperand(absl::string_view text, IndexRule& rule, std::vector<OperandRule>& operands) {
  OperandRule operand;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    DimRule dim;
    if (word == "1") {
      operand.push_back(dim);
      continue;
    }
    const bool whole = absl::ConsumeSuffix(&word, "!");
    dim.own_size = absl::ConsumePrefix(&word, "=");
    if (word.empty() || !absl::c_all_of(word, [](char c) { return absl::ascii_isalnum(c) || c == '_'; })) {
      return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not a list of labels"));
    }
    int label = rule.FindLabel(word);
    if (label < 0) {
      label = static_cast<int>(rule.labels.size());
      if (rule.labels.size() == IndexRule::kMostLabels) {
        return absl::InvalidArgumentError(absl::StrCat("a rule has at most ", IndexRule::kMostLabels, " labels"));
      }
      rule.labels.push_back({std::string(word), false});
    }
    rule.labels[label].whole |= whole;
    dim.label = static_cast<int8_t>(label);
    operand.push_back(dim);
  }
  operands.push_back(std::move(operand));
  return absl::OkStatus();
}

std::string OperandText(const OperandRule& operand, const IndexRule& rule) {
  return absl::StrJoin(operand, " ", [&](std::string* out, const DimRule& dim) {
    if (dim.label == DimRule::kUnsplit) {
      absl::StrAppend(out, "1");
      return;
    }
    const Label& label = rule.labels[dim.label];
    absl::StrAppend(out, dim.own_size ? "=" : "", label.name, label.whole ? "!" : "");
  });
}

struct RowParts {
  std::vector<absl::string_view> inputs, outputs;
};

absl::StatusOr<RowParts> SplitRow(absl::string_view text) {
  const size_t arrow = text.find("->");
  if (arrow == text.npos) {
    return absl::InvalidArgumentError(absl::StrCat("an index rule is written inputs -> outputs, found \"", text, "\""));
  }
  RowParts parts;
  const absl::string_view inputs = text.substr(0, arrow);
  if (!absl::StripAsciiWhitespace(inputs).empty() || absl::StrContains(inputs, ',')) {
    parts.inputs = absl::StrSplit(inputs, ',');
  }
  parts.outputs = absl::StrSplit(text.substr(arrow + 2), ',');
  return parts;
}

// The text of one operand of a template for a tensor of this shape: '...' becomes d<i>, counted from the right end of
// the longest '...' of any operand, so that broadcasting aligns on the right.
struct Ellipsis {
  size_t longest = 0;
  Shape extents;  // of d0..d<longest-1>: the largest seen

  static size_t FixedWords(absl::string_view pattern) {
    size_t words = 0;
    for (absl::string_view word : absl::StrSplit(pattern, ' ', absl::SkipEmpty())) words += word != "..." ? 1 : 0;
    return words;
  }
  static bool Has(absl::string_view pattern) { return absl::StrContains(pattern, "..."); }

  std::string Expand(absl::string_view pattern, const Shape* shape) const {
    std::string text;
    for (absl::string_view word : absl::StrSplit(pattern, ' ', absl::SkipEmpty())) {
      if (word != "...") {
        absl::StrAppend(&text, text.empty() ? "" : " ", word);
        continue;
      }
      const size_t length = shape == nullptr ? longest : shape->size() - FixedWords(pattern);
      for (size_t i = 0; i < length; ++i) {
        const size_t place = longest - length + i;
        const bool broadcast = shape != nullptr && (*shape)[i] == 1 && extents[place] > 1;
        absl::StrAppend(&text, text.empty() ? "" : " ", broadcast ? "1" : absl::StrCat("d", place));
      }
    }
    return text;
  }
};

}  // namespace

int IndexRule::FindLabel(absl::string_view name) const {
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

bool IndexRule::InInputs(int label) const {
  for (const OperandRule& operand : inputs) {
    for (const DimRule& dim : operand) {
      if (dim.label == label) return true;
    }
  }
  return false;
}

bool IndexRule::InOutput(int label, size_t output) const {
  for (const DimRule& dim : outputs[output]) {
    if (dim.label == label) return true;
  }
  return false;
}

absl::StatusOr<IndexRule> ParseRule(absl::string_view text) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const RowParts parts, SplitRow(text));
  IndexRule rule;
  for (absl::string_view operand : parts.inputs) MESHWRIGHT_RETURN_IF_ERROR(AddOperand(operand, rule, rule.inputs));
  for (absl::string_view operand : parts.outputs) MESHWRIGHT_RETURN_IF_ERROR(AddOperand(operand, rule, rule.outputs));
  return rule;
}

absl::StatusOr<Shared<IndexRule>> ParsedRule(absl::string_view text) {
  constexpr size_t kMost = 4096;  // of some hundred bytes each
  thread_local std::map<std::string, Shared<IndexRule>, std::less<>> parsed;
  if (const auto found = parsed.find(text); found != parsed.end()) return found->second;
  MESHWRIGHT_ASSIGN_OR_RETURN(Shared<IndexRule> rule, ParseRule(text));
  if (parsed.size() >= kMost) parsed.clear();
  parsed.emplace(text, rule);
  return rule;
}

IndexRule ElementwiseRule(size_t rank, size_t inputs, size_t outputs) {
  IndexRule rule;
  OperandRule operand;
  for (size_t d = 0; d < rank; ++d) {
    rule.labels.push_back({absl::StrCat("d", d), false});
    operand.push_back({static_cast<int8_t>(d), false});
  }
  rule.inputs.assign(inputs, operand);
  rule.outputs.assign(outputs, operand);
  return rule;
}

std::string ToText(const IndexRule& rule) {
  const auto operands = [&](const std::vector<OperandRule>& list) {
    return absl::StrJoin(list, ", ",
                         [&](std::string* out, const OperandRule& o) { out->append(OperandText(o, rule)); });
  };
  return absl::StrCat(operands(rule.inputs), " -> ", operands(rule.outputs));
}

absl::StatusOr<IndexRule> InstantiateRule(absl::string_view row, absl::Span<const Shape> inputs) {
  MESHWRIGHT_ASSIGN_OR_RETURN(RowParts parts, SplitRow(row));
  const bool variadic = !parts.inputs.empty() && absl::StripAsciiWhitespace(parts.inputs.back()) == "*";
  if (variadic) {
    parts.inputs.pop_back();
    while (parts.inputs.size() < inputs.size()) parts.inputs.push_back(parts.inputs.back());
    if (parts.inputs.size() > inputs.size() && inputs.size() >= 1) parts.inputs.resize(inputs.size());
  }
  if (parts.inputs.size() != inputs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("takes ", parts.inputs.size(), " inputs (", row, "), found ", inputs.size()));
  }
  Ellipsis ellipsis;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const size_t fixed = Ellipsis::FixedWords(parts.inputs[i]);
    const bool open = Ellipsis::Has(parts.inputs[i]);
    if (inputs[i].size() < fixed || (!open && inputs[i].size() != fixed)) {
      return absl::InvalidArgumentError(absl::StrCat("input ", i, " is ", ToText(inputs[i]), ", wanted ",
                                                     open ? "at least " : "", fixed, " dims (", row, ")"));
    }
    if (open) ellipsis.longest = std::max(ellipsis.longest, inputs[i].size() - fixed);
  }
  ellipsis.extents.assign(ellipsis.longest, 1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!Ellipsis::Has(parts.inputs[i])) continue;
    const size_t length = inputs[i].size() - Ellipsis::FixedWords(parts.inputs[i]);
    for (size_t d = 0; d < length; ++d) {
      int64_t& extent = ellipsis.extents[ellipsis.longest - length + d];
      extent = std::max(extent, inputs[i][d]);
    }
  }
  IndexRule rule;
  for (size_t i = 0; i < inputs.size(); ++i) {
    MESHWRIGHT_RETURN_IF_ERROR(AddOperand(ellipsis.Expand(parts.inputs[i], &inputs[i]), rule, rule.inputs));
  }
  for (absl::string_view output : parts.outputs) {
    MESHWRIGHT_RETURN_IF_ERROR(AddOperand(ellipsis.Expand(output, nullptr), rule, rule.outputs));
  }
  return rule;
}

absl::StatusOr<Shape> LabelExtents(const IndexRule& rule, absl::Span<const Shape> inputs,
                                   absl::Span<const Shape> outputs) {
  Shape extents(rule.labels.size(), -1);
  std::vector<std::string> seen(rule.labels.size());
  const auto visit = [&](const std::vector<OperandRule>& operands, absl::Span<const Shape> shapes,
                         absl::string_view kind) -> absl::Status {
    if (shapes.size() != operands.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("takes ", operands.size(), " ", kind, "s (", ToText(rule), "), found ", shapes.size()));
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      if (shapes[i].size() != operands[i].size()) {
        return absl::InvalidArgumentError(absl::StrCat(kind, " ", i, " is ", ToText(shapes[i]), ", wanted ",
                                                       operands[i].size(), " dims (", ToText(rule), ")"));
      }
      for (size_t d = 0; d < operands[i].size(); ++d) {
        const DimRule& dim = operands[i][d];
        if (dim.label == DimRule::kUnsplit && shapes[i][d] != 1) {
          return absl::InvalidArgumentError(
              absl::StrCat("dim ", d, " of ", kind, " ", i, " is ", shapes[i][d], ", wanted 1 (", ToText(rule), ")"));
        }
        if (dim.label == DimRule::kUnsplit || dim.own_size) continue;
        int64_t& extent = extents[dim.label];
        if (extent >= 0 && extent != shapes[i][d]) {
          return absl::InvalidArgumentError(absl::StrCat(rule.labels[dim.label].name, " is ", extent, " in ",
                                                         seen[dim.label], " and ", shapes[i][d], " in ", kind, " ", i));
        }
        extent = shapes[i][d];
        seen[dim.label] = absl::StrCat(kind, " ", i);
      }
    }
    return absl::OkStatus();
  };
  MESHWRIGHT_RETURN_IF_ERROR(visit(rule.inputs, inputs, "input"));
  if (!outputs.empty()) MESHWRIGHT_RETURN_IF_ERROR(visit(rule.outputs, outputs, "output"));
  return extents;
}

std::vector<Shape> InferShapes(const IndexRule& rule, const Shape& extents) {
  std::vector<Shape> shapes;
  for (const OperandRule& operand : rule.outputs) {
    Shape shape;
    for (const DimRule& dim : operand) {
      const bool open = dim.own_size || (dim.label != DimRule::kUnsplit && extents[dim.label] < 0);
      shape.push_back(dim.label == DimRule::kUnsplit ? 1 : open ? 0 : extents[dim.label]);
    }
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

Layout InputLayout(const IndexRule& rule, const Assignment& assignment, size_t input) {
  Layout layout;
  for (const DimRule& dim : rule.inputs[input]) {
    layout.dims.push_back(dim.label == DimRule::kUnsplit ? AxisList() : assignment[dim.label]);
  }
  return layout;
}

Layout OutputLayout(const IndexRule& rule, const Assignment& assignment, size_t output, Reduction reduction) {
  Layout layout;
  for (const DimRule& dim : rule.outputs[output]) {
    layout.dims.push_back(dim.label == DimRule::kUnsplit ? AxisList() : assignment[dim.label]);
  }
  for (size_t label = 0; label < rule.labels.size(); ++label) {
    if (rule.InOutput(static_cast<int>(label), output) || !rule.InInputs(static_cast<int>(label))) continue;
    layout.partial.insert(layout.partial.end(), assignment[label].begin(), assignment[label].end());
  }
  if (!layout.partial.empty()) layout.reduction = reduction;
  return layout;
}

}  // namespace meshwright
