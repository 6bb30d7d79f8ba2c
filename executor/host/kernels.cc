#include "executor/host/kernels.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "executor/call_operands.h"
#include "executor/epilogue.h"
#include "executor/host/kernel_functions.h"
#include "executor/narrow_floats.h"
#include "ir/status.h"

namespace meshwright {
namespace {

using namespace host;  // the kernels, so that the table below reads

// Operators whose kernels check their operands themselves and look at no rule.
bool IsFlat(OpKind op) { return op == OpKind::kFill || IsOptimizer(op); }

absl::Status CheckOperands(const KernelCall& call) {
  return IsFlat(call.op) ? absl::OkStatus() : LabelExtentsOf(call).status();
}

// The widest floating type of the operands, at least float32: what the kernel computes in.
absl::StatusOr<DType> FloatingType(const KernelCall& call) {
  DType widest = DType::kFloat32;
  for (const auto& views : {call.inputs, call.outputs}) {
    for (const TensorView& view : views) {
      if (view.dtype == DType::kFloat64) widest = DType::kFloat64;
      if (view.dtype == DType::kInt32 || view.dtype == DType::kFloat32 || view.dtype == DType::kFloat64) continue;
      if (IsNarrow(view.dtype)) continue;
      return absl::UnimplementedError(absl::StrCat(
          "the host stores float16, bfloat16, float32, float64 and int32, an operand is ", NameOf(view.dtype)));
    }
  }
  return widest;
}

// Copies of operands of another floating type, in the one that the kernel computes in. Outputs are rounded to their own
// type when the kernel is done.
class Converted {
 public:
  explicit Converted(DType type) : type_(type) {}

  TensorView Widen(const TensorView& view) {
    if (view.dtype == type_ || view.dtype == DType::kInt32) return view;
    std::vector<std::byte>& copy = copies_.emplace_back(view.size() * SizeOf(type_).raw());
    TensorView wide = view;
    wide.data = copy.data();
    wide.dtype = type_;
    for (int64_t i = 0; i < view.size(); ++i) Set(wide, i, Get(view, i));
    return wide;
  }
  static void Narrow(const TensorView& wide, const TensorView& view) {
    if (wide.data == view.data) return;
    for (int64_t i = 0; i < view.size(); ++i) Set(view, i, Get(wide, i));
  }

 private:
  static double Get(const TensorView& view, int64_t i) {
    if (view.dtype == DType::kFloat64) return view.as<double>()[i];
    if (view.dtype == DType::kFloat32) return view.as<float>()[i];
    return FromNarrow(view.dtype, view.as<uint16_t>()[i]);
  }
  static void Set(const TensorView& view, int64_t i, double value) {
    if (view.dtype == DType::kFloat64) {
      view.as<double>()[i] = value;
    } else if (view.dtype == DType::kFloat32) {
      view.as<float>()[i] = static_cast<float>(value);
    } else {
      view.as<uint16_t>()[i] = ToNarrow(view.dtype, static_cast<float>(value));
    }
  }

  const DType type_;
  std::vector<std::vector<std::byte>> copies_;
};

// One switch over all operators, so that a new one does not compile without a kernel; long for that reason.
template <class T>
absl::Status RunTyped(const KernelCall& call) {
  switch (call.op) {
    case OpKind::kMatMul:
      return MatMul<T>(call);
    case OpKind::kAdd:
      return Add<T>(call);
    case OpKind::kSub:
    case OpKind::kMul:
    case OpKind::kDiv:
    case OpKind::kEqual:
      return Binary<T>(call);
    case OpKind::kCast:
      return Cast<T>(call);
    case OpKind::kRelu:
    case OpKind::kSquaredRelu:
    case OpKind::kGelu:
    case OpKind::kTanh:
    case OpKind::kSigmoid:
    case OpKind::kSilu:
    case OpKind::kSqrt:
      return Activation<T>(call);
    case OpKind::kReluGrad:
    case OpKind::kSquaredReluGrad:
    case OpKind::kGeluGrad:
    case OpKind::kTanhGrad:
    case OpKind::kSigmoidGrad:
    case OpKind::kSiluGrad:
    case OpKind::kSqrtGrad:
      return ActivationGrad<T>(call);
    case OpKind::kSwiglu:
    case OpKind::kGeglu:
      return Gate<T>(call);
    case OpKind::kSwigluGrad:
    case OpKind::kGegluGrad:
      return GateGrad<T>(call);
    case OpKind::kDropout:
      return Dropout<T>(call);
    case OpKind::kSoftmax:
      return Softmax<T>(call);
    case OpKind::kSoftmaxGrad:
      return SoftmaxGrad<T>(call);
    case OpKind::kLogSoftmax:
      return LogSoftmax<T>(call);
    case OpKind::kLogSoftmaxGrad:
      return LogSoftmaxGrad<T>(call);
    case OpKind::kLayerNorm:
      return LayerNorm<T>(call);
    case OpKind::kLayerNormGrad:
      return LayerNormGrad<T>(call);
    case OpKind::kRmsNorm:
      return RmsNorm<T>(call);
    case OpKind::kRmsNormGrad:
      return RmsNormGrad<T>(call);
    case OpKind::kNormHeads:
      return NormHeads<T>(call);
    case OpKind::kNormHeadsGrad:
      return NormHeadsGrad<T>(call);
    case OpKind::kGatedRmsNorm:
      return GatedRmsNorm<T>(call);
    case OpKind::kGatedRmsNormGrad:
      return GatedRmsNormGrad<T>(call);
    case OpKind::kCausalConv:
      return CausalConv<T>(call);
    case OpKind::kCausalConvGrad:
      return CausalConvGrad<T>(call);
    case OpKind::kLinearAttention:
      return LinearAttention<T>(call);
    case OpKind::kLinearAttentionGrad:
      return LinearAttentionGrad<T>(call);
    case OpKind::kGather:
      return call.inputs[0].dtype == DType::kInt32 ? Gather<int32_t>(call) : Gather<T>(call);
    case OpKind::kGatherGrad:
      return GatherGrad<T>(call);
    case OpKind::kAddPositions:
      return AddPositions<T>(call);
    case OpKind::kAddPositionsGrad:
      return AddPositionsGrad<T>(call);
    case OpKind::kRotary:
    case OpKind::kRotaryGrad:
      return Rotary<T>(call);
    case OpKind::kLatentHeads:
      return LatentHeads<T>(call);
    case OpKind::kLatentHeadsGrad:
      return LatentHeadsGrad<T>(call);
    case OpKind::kAttention:
      return Attention<T>(call);
    case OpKind::kAttentionGrad:
      return AttentionGrad<T>(call);
    case OpKind::kMergeAttention:
      return MergeAttention<T>(call);
    case OpKind::kReduceSum:
    case OpKind::kReduceMax:
    case OpKind::kReduceMin:
      return Reduce<T>(call);
    case OpKind::kConcat:
    case OpKind::kSplit:
      return Join<T>(call);
    case OpKind::kStridedSlice:
    case OpKind::kStridedSliceGrad:
      return StridedSlice<T>(call);
    case OpKind::kOneHot:
      return OneHot<T>(call);
    case OpKind::kScale:
    case OpKind::kBroadcast:
    case OpKind::kTranspose:
      return CopyByRule<T>(call);
    case OpKind::kReshape:
      return Reshape<T>(call);
    case OpKind::kMseLoss:
      return MseLoss<T>(call);
    case OpKind::kMseLossGrad:
      return MseLossGrad<T>(call);
    case OpKind::kCrossEntropy:
      return CrossEntropy<T>(call);
    case OpKind::kCrossEntropyGrad:
      return CrossEntropyGrad<T>(call);
    case OpKind::kRowMax:
      return RowMax<T>(call);
    case OpKind::kExpSumAndPick:
      return ExpSumAndPick<T>(call);
    case OpKind::kRowPartials:
      return RowPartials<T>(call);
    case OpKind::kJoinPartials:
      return JoinPartials<T>(call);
    case OpKind::kLossFromPartials:
      return LossFromPartials<T>(call);
    case OpKind::kPartialsGrad:
      return PartialsGrad<T>(call);
    case OpKind::kDispatch:
      return Dispatch<T>(call);
    case OpKind::kDispatchGrad:
      return DispatchGrad<T>(call);
    case OpKind::kCombine:
      return Combine<T>(call);
    case OpKind::kCombineGrad:
      return CombineGrad<T>(call);
    case OpKind::kToGroups:
      return ToGroups<T>(call);
    case OpKind::kFromGroups:
      return FromGroups<T>(call);
    case OpKind::kSgd:
      return Sgd<T>(call);
    case OpKind::kMomentum:
      return Momentum<T>(call);
    case OpKind::kAdamW:
      return AdamW<T>(call);
    case OpKind::kLambStep:
      return LambStep<T>(call);
    case OpKind::kLamb:
      return Lamb<T>(call);
    case OpKind::kMuonStep:
      return MuonStep<T>(call);
    case OpKind::kMuon:
      return Muon<T>(call);
    case OpKind::kNotFinite:
      return NotFinite<T>(call);
    case OpKind::kAdjustScale:
      return AdjustScale<T>(call);
    case OpKind::kFill:
      return Fill<T>(call);
    case OpKind::kMatMulGelu:
    case OpKind::kMatMulGeluGrad:
    case OpKind::kDropoutAdd:
    case OpKind::kAddLayerNorm:
    case OpKind::kAddRmsNorm:
    case OpKind::kLayerNormGradAdd:
    case OpKind::kRmsNormGradAdd:
      return absl::InvalidArgumentError("it is run as its two kernels");
    case OpKind::kFeed:
      return absl::InvalidArgumentError("the runner feeds inputs; it is no kernel");
    case OpKind::kExchange:
      return absl::InvalidArgumentError("it moves values between ranks; it is no kernel");
    case OpKind::kNumOps:
      break;
  }
  return absl::InvalidArgumentError("not an operator");
}

absl::Status Run(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckOperands(call));
  MESHWRIGHT_ASSIGN_OR_RETURN(const DType dtype, FloatingType(call));
  Converted converted(dtype);
  std::vector<TensorView> inputs, outputs;
  for (const TensorView& view : call.inputs) inputs.push_back(converted.Widen(view));
  for (const TensorView& view : call.outputs) outputs.push_back(converted.Widen(view));
  KernelCall wide = call;
  wide.inputs = inputs;
  wide.outputs = outputs;
  MESHWRIGHT_RETURN_IF_ERROR(dtype == DType::kFloat64 ? RunTyped<double>(wide) : RunTyped<float>(wide));
  for (size_t i = 0; i < outputs.size(); ++i) Converted::Narrow(outputs[i], call.outputs[i]);
  return absl::OkStatus();
}

absl::Status RunWithEpilogue(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckOperands(call));
  return RunInParts(call, Run);
}

}  // namespace

absl::Status RunHostKernel(const KernelCall& call) {
  const absl::Status status = HasEpilogue(call) ? RunWithEpilogue(call) : Run(call);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(NameOf(call.op), ": ", status.message()));
}

}  // namespace meshwright
