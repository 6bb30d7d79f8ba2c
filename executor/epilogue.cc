#include "executor/epilogue.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace meshwright {
namespace {

// What an epilogue takes besides the result of the op in front.
size_t InputsOf(OpKind epilogue) {
  switch (epilogue) {
    case OpKind::kGeluGrad:
    case OpKind::kAdd:
    case OpKind::kRmsNorm:
      return 1;
    case OpKind::kLayerNorm:
      return 2;
    default:
      return 0;
  }
}

// The fewest inputs of an op in front.
size_t LeastInputsOf(OpKind front) { return front == OpKind::kDropout ? 1 : 2; }

// What an op in front makes besides its result.
size_t OtherOutputsOf(OpKind front) {
  return front == OpKind::kLayerNormGrad ? 2 : front == OpKind::kRmsNormGrad ? 1 : 0;
}

}  // namespace

absl::Status RunInParts(const KernelCall& call, absl::FunctionRef<absl::Status(const KernelCall&)> run) {
  const OpInfo& info = InfoOf(call.op);
  const size_t others = OtherOutputsOf(info.front), behind = InputsOf(info.epilogue);
  const size_t inputs = call.inputs.size(), outputs = call.outputs.size();
  const size_t least = LeastInputsOf(info.front) + behind;
  if (inputs < least || outputs < 1 + others || outputs > 2 + others) {
    return absl::InvalidArgumentError(absl::StrCat("has ", inputs, " inputs and ", outputs,
                                                   " outputs, wanted at least ", least, " and ", 1 + others, " or ",
                                                   2 + others));
  }
  if (call.Adds(0) || call.accumulate >> (1 + others) != 0) {
    return absl::InvalidArgumentError("nothing is added to what an epilogue writes");
  }
  const size_t taken = inputs - behind;
  const auto rules = call.rule->inputs.begin() + static_cast<int64_t>(taken);
  const OperandRule& made_rule = call.rule->outputs[0];
  // The result where it is an output, else where the epilogue's will be.
  const TensorView& made = call.outputs[outputs == 2 + others ? 1 + others : 0];

  IndexRule rule;
  rule.labels = call.rule->labels;
  rule.inputs.assign(call.rule->inputs.begin(), rules);
  rule.outputs.assign(call.rule->outputs.begin(), call.rule->outputs.begin() + static_cast<int64_t>(1 + others));
  std::vector<TensorView> written = {made};
  written.insert(written.end(), call.outputs.begin() + 1, call.outputs.begin() + static_cast<int64_t>(1 + others));
  KernelCall front = call;
  front.op = info.front;
  front.rule = &rule;
  front.inputs = call.inputs.subspan(0, taken);
  front.outputs = written;
  MESHWRIGHT_RETURN_IF_ERROR(run(front));

  std::vector<TensorView> read = {made};
  read.insert(read.end(), call.inputs.begin() + static_cast<int64_t>(taken), call.inputs.end());
  rule.inputs = {made_rule};
  rule.inputs.insert(rule.inputs.end(), rules, call.rule->inputs.end());
  rule.outputs = {made_rule};
  KernelCall epilogue = call;
  epilogue.op = info.epilogue;
  epilogue.accumulate = 0;
  epilogue.rule = &rule;
  epilogue.inputs = read;
  epilogue.outputs = call.outputs.subspan(0, 1);
  return run(epilogue);
}

}  // namespace meshwright
