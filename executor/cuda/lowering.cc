#include "executor/cuda/lowering.h"

#include "absl/strings/str_cat.h"
#include "executor/cuda/device_kernels.h"
#include "executor/epilogue.h"
#include "ir/status.h"

namespace meshwright::cuda {
namespace {

// More dims than a kernel takes; CheckDims says so.
constexpr int32_t kTooMany = Places::kMaxDims + 1;

// Copies whole pieces of 16 bytes where both sides have them.
void TakePieces(RawCopy& body) {
  Places& places = body.places;
  constexpr int64_t kPiece = sizeof(Piece);
  const int32_t last = places.dims - 1;
  const int64_t each = kPiece / body.element;
  bool fits = last >= 0 && places.extent[last] % each == 0 && reinterpret_cast<uintptr_t>(body.from) % kPiece == 0 &&
              reinterpret_cast<uintptr_t>(body.to) % kPiece == 0;
  for (int32_t d = 0; fits && d <= last; ++d) {
    for (int k = 0; k < 2; ++k) fits = fits && (d == last ? places.stride[d][k] == 1 : places.stride[d][k] % each == 0);
  }
  if (!fits || each == 1) return;
  places.total /= each;
  places.extent[last] /= each;
  for (int32_t d = 0; d < last; ++d) {
    for (int k = 0; k < 2; ++k) places.stride[d][k] /= each;
  }
  body.element = static_cast<int32_t>(kPiece);
}

// Whether the call is computed in double; casts to and from int32 are, so that every int32 is exact.
absl::StatusOr<bool> IsWide(const KernelCall& call) {
  bool wide = false;
  for (const auto& views : {call.inputs, call.outputs}) {
    for (const TensorView& view : views) {
      switch (view.dtype) {
        case DType::kFloat64:
          wide = true;
          break;
        case DType::kFloat32:
        case DType::kTFloat32:
        case DType::kFloat16:
        case DType::kBFloat16:
          break;
        case DType::kInt32:
          wide = wide || call.op == OpKind::kCast || call.op == OpKind::kReshape;
          break;
        case DType::kFloat8:
        case DType::kInt64:
        case DType::kBool:
          return absl::UnimplementedError(absl::StrCat("there are no kernels for ", NameOf(view.dtype)));
      }
    }
  }
  return wide;
}

}  // namespace

Elem ElemOf(DType dtype) {
  if (dtype == DType::kFloat64) return Elem::kFloat64;
  if (dtype == DType::kFloat16) return Elem::kFloat16;
  if (dtype == DType::kBFloat16) return Elem::kBFloat16;
  if (dtype == DType::kInt32) return Elem::kInt32;
  return Elem::kFloat32;
}

void AddDim(Places& places, int64_t extent, std::initializer_list<int64_t> strides) {
  places.total *= extent;
  if (extent == 1 || places.dims == kTooMany) return;
  if (places.dims > 0) {
    bool merges = true;
    size_t k = 0;
    for (const int64_t stride : strides) merges = merges && places.stride[places.dims - 1][k++] == stride * extent;
    if (merges) {
      places.extent[places.dims - 1] *= extent;
      std::copy(strides.begin(), strides.end(), places.stride[places.dims - 1]);
      return;
    }
  }
  if (places.dims == Places::kMaxDims) {
    places.dims = kTooMany;
    return;
  }
  places.extent[places.dims] = extent;
  std::copy(strides.begin(), strides.end(), places.stride[places.dims]);
  ++places.dims;
}

absl::Status CheckDims(const Places& places) {
  if (places.dims <= Places::kMaxDims) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("more than ", Places::kMaxDims, " dims that cannot be seen as fewer"));
}

bool TakesVectors(std::initializer_list<Ref> operands) {
  return std::all_of(operands.begin(), operands.end(), [](const Ref& ref) {
    if (ref.data == nullptr) return true;
    return ref.type != Elem::kFloat64 && reinterpret_cast<uintptr_t>(ref.data) % sizeof(Piece) == 0;
  });
}

bool TakesVectors(const Places& places, std::initializer_list<Ref> operands, size_t written) {
  const int32_t last = places.dims - 1;
  if (last < 0 || !TakesVectors(operands)) return false;
  if (last > 0 && places.extent[last] % kVector != 0) return false;  // of one dim, what is left goes one by one
  for (size_t k = 0; k < operands.size(); ++k) {
    if (operands.begin()[k].data == nullptr) continue;
    const bool same = k >= written && places.stride[last][k] == 0;
    if (!same && places.stride[last][k] != 1) return false;
    for (int32_t d = 0; d < last; ++d) {
      if (!same && places.stride[d][k] % kVector != 0) return false;
    }
  }
  return true;
}

int64_t PartsOf(int64_t extent, int64_t points) {
  constexpr int64_t kThreads = 1 << 16,
                    kLeast = 4;  // some 500 threads for each SM of an H100, with 16 bytes on their way
  int64_t parts = std::min(extent / kLeast, kThreads / std::max<int64_t>(1, points / kVector));
  while (parts > 1 && extent % parts != 0) --parts;
  return std::max<int64_t>(1, parts);
}

absl::Status LaunchPointwise(const Lowering& l, Pointwise body) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckDims(body.places));
  body.vectors = TakesVectors(body.places, {body.y, body.x[0], body.x[1], body.x[2]});
  return l.LaunchVectors(body.places.total, body);
}

Places OverOutput(const KernelCall& call, std::initializer_list<size_t> inputs) {
  const IndexRule& rule = *call.rule;
  const Shape& shape = call.outputs[0].shape;
  const Shape strides = RowMajorStrides(shape);
  LabelStrides in[3];
  size_t n = 0;
  for (const size_t i : inputs) in[n++] = StridesByLabel(rule, rule.inputs[i], call.inputs[i].shape);
  Places places;
  for (size_t d = 0; d < shape.size(); ++d) {
    const int8_t label = rule.outputs[0][d].label;
    const auto of = [&](size_t k) { return k < n && label >= 0 ? in[k][label] : 0; };
    AddDim(places, shape[d], {strides[d], of(0), of(1), of(2)});
  }
  return places;
}

absl::Status Lower(const Lowering& l) {
  switch (InfoOf(l.call.op).kernel) {
    case KernelClass::kContraction:
      return LowerProduct(l);
    case KernelClass::kAttention:
      return LowerAttention(l);
    case KernelClass::kLinearAttention:
      return LowerRecurrent(l);
    default:
      break;
  }
  switch (l.call.op) {
    case OpKind::kMergeAttention:
      return LowerMergeAttention(l);
    case OpKind::kLatentHeads:
    case OpKind::kLatentHeadsGrad:
      return LowerLatentHeads(l);
    case OpKind::kCausalConv:
    case OpKind::kCausalConvGrad:
    case OpKind::kGatedRmsNorm:
    case OpKind::kGatedRmsNormGrad:
      return LowerRecurrent(l);
    case OpKind::kDispatch:
    case OpKind::kDispatchGrad:
    case OpKind::kCombine:
    case OpKind::kCombineGrad:
      return LowerExperts(l);
    case OpKind::kToGroups:
    case OpKind::kFromGroups:
      return LowerGroups(l);
    case OpKind::kSoftmax:
    case OpKind::kSoftmaxGrad:
    case OpKind::kLogSoftmax:
    case OpKind::kLogSoftmaxGrad:
    case OpKind::kLayerNorm:
    case OpKind::kLayerNormGrad:
    case OpKind::kRmsNorm:
    case OpKind::kRmsNormGrad:
    case OpKind::kNormHeads:
    case OpKind::kNormHeadsGrad:
    case OpKind::kAddLayerNorm:
    case OpKind::kAddRmsNorm:
    case OpKind::kLayerNormGradAdd:
    case OpKind::kRmsNormGradAdd:
    case OpKind::kMseLoss:
    case OpKind::kCrossEntropy:
    case OpKind::kCrossEntropyGrad:
    case OpKind::kRowMax:
    case OpKind::kExpSumAndPick:
    case OpKind::kRowPartials:
    case OpKind::kJoinPartials:
    case OpKind::kLossFromPartials:
    case OpKind::kPartialsGrad:
      return LowerRows(l);
    case OpKind::kCast:
    case OpKind::kReshape:
    case OpKind::kScale:
    case OpKind::kBroadcast:
    case OpKind::kTranspose:
    case OpKind::kReduceSum:
    case OpKind::kReduceMax:
    case OpKind::kReduceMin:
    case OpKind::kGather:
    case OpKind::kGatherGrad:
    case OpKind::kAddPositions:
    case OpKind::kAddPositionsGrad:
    case OpKind::kRotary:
    case OpKind::kRotaryGrad:
    case OpKind::kOneHot:
    case OpKind::kConcat:
    case OpKind::kSplit:
    case OpKind::kStridedSlice:
    case OpKind::kStridedSliceGrad:
      return LowerMovement(l);
    default:  // what is left looks at one element at a time, or is told of there
      return LowerElementwise(l);
  }
}

absl::Status LowerInParts(const Lowering& l) {
  return RunInParts(l.call, [&l](const KernelCall& call) {
    return Lower({l.driver, l.launcher, l.scratch, l.stream, call, l.wide, l.tf32, l.values, l.wgmma});
  });
}

absl::Status DeviceKernels::Run(DeviceStream stream, const KernelCall& call, Scratch& scratch, StepValues* values) {
  const auto run = [&]() -> absl::Status {
    const bool flat = call.op == OpKind::kFill || IsOptimizer(call.op);
    if (!flat) MESHWRIGHT_RETURN_IF_ERROR(LabelExtentsOf(call).status());
    MESHWRIGHT_ASSIGN_OR_RETURN(const bool wide, IsWide(call));
    return Lower({driver_, launcher_, scratch, stream, call, wide, tf32_, values, wgmma_});
  };
  const absl::Status status = run();
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(NameOf(call.op), ": ", status.message()));
}

absl::Status DeviceKernels::Copy(DeviceStream stream, const StridedCopy& copy) {
  RawCopy body;
  body.from = copy.from;
  body.to = copy.to;
  body.element = static_cast<int32_t>(copy.element);
  for (size_t d = 0; d < copy.extents.size(); ++d) {
    AddDim(body.places, copy.extents[d], {copy.to_strides[d], copy.from_strides[d]});
  }
  MESHWRIGHT_RETURN_IF_ERROR(CheckDims(body.places));
  if (body.places.total == 0) return absl::OkStatus();
  TakePieces(body);
  const int64_t blocks = std::min<int64_t>((body.places.total + 255) / 256, Lowering::kMostBlocks);
  return launcher_.Launch(stream, {blocks, 256, 0}, false, body);
}

}  // namespace meshwright::cuda
