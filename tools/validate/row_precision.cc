#include "tools/validate/row_precision.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "costmodel/library.h"
#include "ir/cluster.h"
#include "ir/dtype.h"
#include "ir/quantities.h"
#include "ir/status.h"
#include "tools/validate/row_model.h"
#include "tools/validate/signs.h"
#include "tools/validate/words.h"

namespace meshwright {
namespace {

// What Transformer Engine moves for an element that it quantises, by its pytorch/csrc/quantizer.cpp, of which products
// have two thirds each (UseFloat8Products). Current scaling looks for the largest, 2, before 2 + 2; from Blackwell on
// there is no transpose, 2 + 1, and 5 in all. NVFP4 looks for the largest of rows and of columns turned by a Hadamard
// matrix in one pass, 2; then rows are cast, 2 + 1/2, and columns, 2 + 1/2, or both in one kernel, 2 + 1/2 + 1/2: 7
// or 5. On B300 0.66 billion elements took 0.72 ms with current scaling and 0.68 with NVFP4 (the tutorial of June 2026,
// times with quantisation less those without): 5 bytes of each go at 4.6 and 4.8 TB/s.
constexpr Bytes kCurrentScalingBytes(4), kTransposeFreeBytes(3), kFloat4Bytes(5), kJointFloat4Bytes(3);
// torchao's MXFP8 (prototype/mx_formats/mx_linear.py) casts by rows for a forward product and for the gradient of its
// input, 3 bytes at 5.5 TB/s, and both operands of a weight's gradient by columns, 3 each at 3.9 TB/s (its README, on
// B200, whose memory streams 7.2): 3.9, 3.9 and 11, a product 6. With one scale a tensor it casts an input, that again
// for the weight's gradient, and the result's gradient with its transpose, 3 + 3 + 4 for three products, which are our
// products' own: the compiler looks for the largest in the kernel before (pytorch's pull 111122).
constexpr Bytes kTorchAoMxBytes(6);

absl::Status UseNarrowProducts(bool four, bool blocks, const Framework& framework, TrainingRun* run) {
  Device* const device = &run->cluster.device;
  if (!UseFloat8Products(device).ok()) return CannotExpress("no float8 on the device", device->name);
  if (four && !UseFloat4Products(device).ok()) return CannotExpress("no float4 on the device", device->name);
  if (framework.Is(Sign::kCurrentScaling)) {
    const bool transposes = device->generation < Generation::kBlackwell;
    device->kernels.quantize_bytes = transposes ? kCurrentScalingBytes : kTransposeFreeBytes;
  }
  if (blocks && framework.Is(Sign::kTorchAo)) device->kernels.quantize_bytes = kTorchAoMxBytes;
  if (four) device->kernels.quantize_bytes = framework.joint_float4 ? kJointFloat4Bytes : kFloat4Bytes;
  run->approximations.push_back(four ? "float4 products on bf16 tensors" : "float8 products on bf16 tensors");
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadRowPrecision(const CsvCells& cells, const Framework& framework, TrainingRun* run) {
  const auto lower = [&](absl::string_view column) { return absl::AsciiStrToLower(cells.Text(column)); };
  const std::string text = lower("dtype");
  Device& device = run->cluster.device;
  DType dtype = DType::kBFloat16;
  const std::string all = absl::StrCat(text, " ", lower("other_opts"), " ", lower("compile"));
  const bool four = HasAny(text, {"fp4", "float4"});
  bool narrow = (four || HasAny(all, {"fp8", "float8", "mxfp"})) &&
                !HasAny(all, {"no fp8", "no float8", "without fp8", "without float8", "w/o fp8", "w/o float8"});
  if (four || HasAny(text, {"fp8", "float8", "mxfp"})) {
  } else if (HasAny(text, {"bf16", "bfloat16"})) {
  } else if (HasAny(text, {"fp16", "float16", "half"})) {
    dtype = DType::kFloat16;
  } else if (HasAny(text, {"tf32"})) {
    dtype = DType::kTFloat32;
  } else if (HasAny(text, {"fp32", "float32"})) {
    dtype = DType::kFloat32;
  } else if (text.empty()) {
    run->defaults.push_back("dtype bf16");
  } else if (HasAny(text, {"amp", "mixed", "16"})) {  // of 16 bits, and does not say which
    run->defaults.push_back(absl::StrCat("dtype bf16 of \"", text, "\""));
  } else {
    return CannotExpress("unknown dtype", text);
  }
  if (dtype == DType::kBFloat16 && device.Peak(dtype).raw() <= 0) dtype = DType::kFloat16;
  // Software for Blackwell is younger than grouped products of experts in float8.
  if (narrow && run->model.experts > 1 && device.generation < Generation::kBlackwell && !framework.float8_experts) {
    narrow = false;
    run->approximations.push_back("products in bf16, as those of experts are");
  }
  run->narrow = narrow;
  if (narrow) MESHWRIGHT_RETURN_IF_ERROR(UseNarrowProducts(four, HasAny(all, {"mxfp"}), framework, run));
  run->training.dtype = dtype;
  // Megatron and DeepSpeed reduce fp16 gradients as they are, FSDP's PURE too; bf16 is accumulated in float32. Under
  // autocast they have the type of the weights, float32. NeMo's recipes hold and reduce them in bf16
  // (`grad_sync_dtype`), DeepSpeed's ZeRO in the type of the weights unless told otherwise (runtime/engine.py,
  // get_data_types).
  const bool zero = framework.Is(Sign::kDeepSpeed) && framework.Is(Sign::kZero) && !framework.Is(Sign::kBf16Optimizer);
  const bool half = dtype == DType::kFloat16 && !framework.autocast;
  if (framework.HasNarrowStates() && !framework.eager)
    run->approximations.push_back("state of the optimizer in 16 bits priced as of 32");
  const bool own = half || framework.narrow_gradients || zero || framework.Is(Sign::kNarrowReduction);
  const bool wide = framework.Is(Sign::kWideGradients);  // whatever the framework's default
  run->training.gradient_dtype = run->gradient_dtype = own && !wide ? dtype : DType::kFloat32;
  return absl::OkStatus();
}

}  // namespace meshwright
