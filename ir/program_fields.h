// The fields of an op's attributes and of an initializer under the names by which ir/program_text writes and reads
// them. Private to that library.
#ifndef MESHWRIGHT_IR_PROGRAM_FIELDS_H_
#define MESHWRIGHT_IR_PROGRAM_FIELDS_H_

#include <cstddef>
#include <iterator>

#include "absl/strings/string_view.h"
#include "ir/graph.h"

namespace meshwright::program_text_internal {

// Calls visit(name, field) for each field, in the order of the text. `A` is OpAttrs or Initializer, const or not.
template <class A, class Visit>
void VisitFields(A& attrs, const OpAttrs&, Visit visit) {
  visit("scale", attrs.scale);
  visit("epsilon", attrs.epsilon);
  visit("causal", attrs.causal);
  visit("window", attrs.window);
  visit("fused", attrs.fused);
  visit("top_k", attrs.top_k);
  visit("choice_groups", attrs.choice_groups);
  visit("top_choice_groups", attrs.top_choice_groups);
  visit("gate_first", attrs.gate_first);
  visit("theta", attrs.theta);
  visit("turned", attrs.turned);
  visit("head_width", attrs.head_width);
  visit("rate", attrs.rate);
  visit("stream", attrs.stream);
  visit("begin", attrs.begin);
  visit("strides", attrs.strides);
  visit("sources", attrs.sources);
  visit("context", attrs.context);
  visit("shift", attrs.shift);
  visit("learning_rate", attrs.learning_rate);
  visit("beta1", attrs.beta1);
  visit("beta2", attrs.beta2);
  visit("weight_decay", attrs.weight_decay);
  visit("tensors", attrs.tensors);
  visit("growth", attrs.growth);
  visit("backoff", attrs.backoff);
  visit("interval", attrs.interval);
}
template <class A, class Visit>
void VisitFields(A& init, const Initializer&, Visit visit) {
  visit("value", init.value);
  visit("low", init.low);
  visit("high", init.high);
  visit("a", init.a);
  visit("b", init.b);
  visit("modulus", init.modulus);
  visit("subtract", init.subtract);
  visit("divide", init.divide);
  visit("by_rank", init.by_rank);
  visit("context", init.context);
}

// In the order of Initializer::Kind.
inline constexpr absl::string_view kInitNames[] = {"constant", "normal", "uniform", "tokens", "formula", "data"};
static_assert(std::size(kInitNames) == static_cast<size_t>(Initializer::Kind::kData) + 1);

inline constexpr absl::string_view kPhaseNames[] = {"forward", "backward"};
static_assert(std::size(kPhaseNames) == static_cast<size_t>(Phase::kBackward) + 1);

// The words that end a list of references, so no name that stands alone.
inline constexpr absl::string_view kListWords[] = {"reads", "writes", "waits", "records"};

// A name that needs no quotes.
inline bool IsBareName(absl::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (name.empty() || !letter(name[0])) return false;
  for (char c : name) {
    const bool digit_or_mark = (c >= '0' && c <= '9') || c == '.' || c == '/' || c == '@' || c == ':';
    if (!letter(c) && !digit_or_mark) return false;
  }
  for (absl::string_view word : kListWords) {
    if (name == word) return false;
  }
  return true;
}

// The rule that the op's row gives for these (global) input shapes; none where each op brings its own, or none fits.
inline IndexRule DefaultRule(OpKind op, absl::Span<const Shape> inputs) {
  const absl::string_view row = InfoOf(op).rule;
  if (row.empty()) return {};
  absl::StatusOr<IndexRule> rule = InstantiateRule(row, inputs);
  return rule.ok() ? *std::move(rule) : IndexRule{};
}

}  // namespace meshwright::program_text_internal

#endif  // MESHWRIGHT_IR_PROGRAM_FIELDS_H_
