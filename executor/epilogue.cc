#include "executor/epilogue.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace meshwright {

absl::Status RunInParts(const KernelCall& call, absl::FunctionRef<absl::Status(const KernelCall&)> run) {
  // A gradient's last input is the epilogue's: what the op that it is the gradient of was applied to.
  const bool gradient = call.op == OpKind::kMatMulGeluGrad;
  const bool fits = gradient ? call.inputs.size() == 3 && call.outputs.size() == 1
                             : (call.inputs.size() == 2 || call.inputs.size() == 3) &&
                                   (call.outputs.size() == 1 || call.outputs.size() == 2);
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat("has ", call.inputs.size(), " inputs and ", call.outputs.size(),
                                                   " outputs, wanted ", gradient ? "3 and 1" : "2 or 3 and 1 or 2"));
  }
  if (call.accumulate != 0) return absl::InvalidArgumentError("what has an epilogue is not added to");
  const size_t inputs = gradient ? 2 : call.inputs.size();
  const OperandRule& made_rule = call.rule->outputs[0];
  const TensorView& made = call.outputs.back();  // the product where it is an output, else where the result will be
  OpAttrs none;

  IndexRule rule;
  rule.labels = call.rule->labels;
  rule.inputs.assign(call.rule->inputs.begin(), call.rule->inputs.begin() + static_cast<int64_t>(inputs));
  rule.outputs = {made_rule};
  KernelCall product = call;
  product.op = OpKind::kMatMul;
  product.attrs = &none;
  product.rule = &rule;
  product.inputs = call.inputs.subspan(0, inputs);
  product.outputs = absl::MakeConstSpan(&made, 1);
  MESHWRIGHT_RETURN_IF_ERROR(run(product));

  std::vector<TensorView> read = {made};
  if (gradient) read.push_back(call.inputs[2]);
  IndexRule elementwise;
  elementwise.labels = call.rule->labels;
  elementwise.inputs.assign(read.size(), made_rule);
  elementwise.outputs = {made_rule};
  KernelCall epilogue = call;
  epilogue.op = InfoOf(call.op).epilogue;
  epilogue.attrs = &none;
  epilogue.rule = &elementwise;
  epilogue.inputs = read;
  epilogue.outputs = call.outputs.subspan(0, 1);
  return run(epilogue);
}

}  // namespace meshwright
