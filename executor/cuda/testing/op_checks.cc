#include "executor/cuda/testing/op_checks.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "executor/cuda/kernels/pointwise.h"
#include "executor/cuda/kernels/simt.h"
#include "executor/cuda/kernels/updates.h"
#include "executor/host/kernels.h"
#include "ir/program.h"
#include "ir/status.h"

namespace meshwright::cuda::testing {
namespace {

constexpr int64_t kGuard = 256;  // bytes behind an operand that nobody may write
constexpr int kPolls = 100000000;

// An element stored in `dtype`, and read back.
double Rounded(DType dtype, double value) {
  if (dtype == DType::kBFloat16) {
    return FromBits(static_cast<uint32_t>(BFloat16Of(static_cast<float>(value))) << 16);
  }
  if (dtype == DType::kFloat16) return FromFloat16(Float16Of(static_cast<float>(value)));
  if (dtype == DType::kFloat32) return static_cast<float>(value);
  return value;
}

std::vector<std::byte> Encode(const OwnedTensor& tensor, DType dtype) {
  const DType stored = tensor.dtype == DType::kInt32 ? DType::kInt32 : dtype;
  const int64_t n = NumElements(tensor.shape);
  std::vector<std::byte> bytes(static_cast<size_t>(n * SizeOf(stored).raw()));
  for (int64_t i = 0; i < n; ++i) {
    const double value = tensor.At(i);
    const auto put = [&](auto element) { std::memcpy(&bytes[i * sizeof(element)], &element, sizeof(element)); };
    if (stored == DType::kInt32) put(static_cast<int32_t>(value));
    if (stored == DType::kFloat64) put(value);
    if (stored == DType::kFloat32) put(static_cast<float>(value));
    if (stored == DType::kFloat16) put(Float16Of(static_cast<float>(value)));
    if (stored == DType::kBFloat16) put(BFloat16Of(static_cast<float>(value)));
  }
  return bytes;
}

double Decode(const std::vector<std::byte>& bytes, DType dtype, int64_t i) {
  const auto get = [&](auto element) {
    std::memcpy(&element, &bytes[i * sizeof(element)], sizeof(element));
    return element;
  };
  if (dtype == DType::kFloat64) return get(double{});
  if (dtype == DType::kFloat32) return get(float{});
  if (dtype == DType::kFloat16) return FromFloat16(get(uint16_t{}));
  return FromBits(static_cast<uint32_t>(get(uint16_t{})) << 16);
}

// Device memory for the time of a check.
class OnDevice {
 public:
  explicit OnDevice(Driver& driver) : driver_(driver) {}
  ~OnDevice() {
    for (std::byte* data : allocations_) driver_.Free(data);
    if (stream_) driver_.Destroy(stream_);
  }
  absl::StatusOr<DeviceStream> stream() {
    if (!stream_) {
      MESHWRIGHT_ASSIGN_OR_RETURN(stream_, driver_.MakeStream());
    }
    return stream_;
  }
  // Filled with 0xff, then `bytes` in front.
  absl::StatusOr<std::byte*> Put(int64_t size, const std::vector<std::byte>& bytes) {
    MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const data, driver_.Allocate(Bytes(size + kGuard)));
    allocations_.push_back(data);
    MESHWRIGHT_RETURN_IF_ERROR(driver_.Fill(stream_, data, 0xff, Bytes(size + kGuard)));
    if (!bytes.empty()) {
      MESHWRIGHT_RETURN_IF_ERROR(
          driver_.Copy(stream_, CopyKind::kToDevice, bytes.data(), data, Bytes(static_cast<int64_t>(bytes.size()))));
      MESHWRIGHT_RETURN_IF_ERROR(Finish());
    }
    return data;
  }
  absl::StatusOr<std::vector<std::byte>> Get(const std::byte* data, int64_t size) {
    std::vector<std::byte> bytes(static_cast<size_t>(size + kGuard));
    MESHWRIGHT_RETURN_IF_ERROR(
        driver_.Copy(stream_, CopyKind::kToHost, data, bytes.data(), Bytes(static_cast<int64_t>(bytes.size()))));
    MESHWRIGHT_RETURN_IF_ERROR(Finish());
    for (size_t i = static_cast<size_t>(size); i < bytes.size(); ++i) {
      if (bytes[i] != std::byte{0xff}) return absl::DataLossError("bytes behind an operand were written");
    }
    return bytes;
  }
  absl::Status Finish() {
    for (int i = 0; i < kPolls; ++i) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const bool idle, driver_.IsIdle(stream_));
      if (idle) return absl::OkStatus();
    }
    return absl::DeadlineExceededError("the device does not finish");
  }

 private:
  Driver& driver_;
  DeviceStream stream_;
  std::vector<std::byte*> allocations_;
};

OpAttrs WithScale(double scale, bool fused = true) {
  OpAttrs attrs;
  attrs.scale = scale;
  attrs.fused = fused;
  return attrs;
}

OpAttrs WithRate(double rate) {
  OpAttrs attrs;
  attrs.learning_rate = rate;
  return attrs;
}

// Three experts of the best two of four groups.
OpAttrs OfSomeGroups() {
  OpAttrs attrs;
  attrs.top_k = 3;
  attrs.choice_groups = 4;
  attrs.top_choice_groups = 2;
  return attrs;
}

// Updates of parameters of these shapes in one call; and with copies, under loss scaling.
std::vector<OpExample> Updates(OpKind op, const std::vector<Shape>& parameters) {
  std::vector<OpExample> examples;
  for (const bool scaled : {false, true}) {
    OpExample example = {op, " -> ", {}};
    example.attrs = WithRate(0.25);
    example.attrs.beta1 = 0.75;
    example.attrs.beta2 = 0.875;
    example.attrs.tensors = static_cast<int64_t>(parameters.size());
    example.low = 0.25;
    for (const Shape& shape : parameters) {
      const bool takes = op == OpKind::kLamb, makes = op == OpKind::kLambStep;
      const bool copies = scaled && !makes && op != OpKind::kMuonStep;
      example.inputs.insert(example.inputs.end(), takes ? 2 : NumStates(op) + 2, shape);
      example.inputs.insert(example.inputs.end(), takes ? 2 : 0, Shape());
      example.outputs.insert(example.outputs.end(), (takes ? 0 : NumStates(op)) + (copies ? 2 : 1), shape);
      example.outputs.insert(example.outputs.end(), makes ? 2 : 0, Shape());
    }
    if (scaled) example.inputs.insert(example.inputs.end(), 2, Shape());
    examples.push_back(std::move(example));
  }
  return examples;
}

OpAttrs Turned(int64_t elements) {
  OpAttrs attrs;
  attrs.turned = elements;
  return attrs;
}

OpAttrs InOrderFor(int64_t ranks, bool gate_first = false) {
  OpAttrs attrs;
  attrs.context = ranks;
  attrs.gate_first = gate_first;
  return attrs;
}

// Sizes of linear attention, by the delta rule or of state spaces.
struct Recurrent {
  bool delta;
  int64_t s, b, groups, heads, width, value_width, ranks;
  bool by_row = false;
};
OpExample RecurrentExample(OpKind op, const Recurrent& r) {
  const Shape of_heads = {r.groups, r.heads}, y = {r.s, r.b, r.groups, r.heads, r.value_width};
  std::vector<Shape> inputs = {{r.s, r.b, r.groups, 2 * r.width + r.heads * r.value_width},
                               {r.s, r.b, r.groups,
                                (r.by_row  ? r.width
                                 : r.delta ? 2
                                           : 1) *
                                    r.heads},
                               of_heads,
                               r.by_row ? Shape{r.groups, r.heads, r.width} : of_heads};
  std::string of = "s! b y w!, s! b y p!, y n!, y n!";
  if (r.by_row) {
    inputs.push_back({r.s, r.b, r.groups, r.heads});
    of += " k!, s! b y n!";
  } else if (!r.delta) {
    inputs.push_back(of_heads);
    of += ", y n!";
  }
  if (op == OpKind::kLinearAttention) {
    return {op, of + " -> s! b y n! u!", inputs, InOrderFor(r.ranks), {}, -1, 1, {y}};
  }
  inputs.insert(inputs.begin(), y);
  return {op, absl::StrCat("s! b y n! u!, ", of, " -> ", of), inputs, InOrderFor(r.ranks)};
}

// What has several blocks, tiles or passes; nothing for other operators. One switch over all of them, long for that
// reason.
std::vector<OpExample> LargeExamples(OpKind op) {
  const Shape qkv = {70, 2, 2, 4, 20}, y = {70, 2, 2, 2, 20}, rows = {70, 2, 2, 2}, scores = {70, 2, 2, 2, 70};
  const std::string s = "s! b g q!", forward = "s! b g r! d! -> s! b g q! d!, ",
                    backward = "s! b g q! d!, s! b g r! d!, s! b g q! d!, ";
  // Heads one behind the other: two queries and a key of 24, a value of 16.
  const Shape latent = {70, 2, 2, 88}, narrow = {70, 2, 2, 2, 16};
  const std::string of_latent = "s! b g q! u!, s! b g w!, s! b g q! u!, " + s + " -> s! b g w!";
  switch (op) {
    case OpKind::kMatMul:
      return {{op, "m k, k n -> m n", {{130, 70}, {70, 50}}},
              {op, "s b h, h g r d -> s b g r d", {{40, 3, 20}, {20, 2, 4, 6}}},
              {op, "m j k, k n j -> m n", {{30, 7, 11}, {11, 20, 7}}}};
    case OpKind::kAdd:
      return {{op, "", {{30, 20, 50}, {20, 50}, {50}, {30, 20, 50}}}, {op, "", {{30, 20, 48}, {20, 48}, {48}}}};
    case OpKind::kGelu:
    case OpKind::kSilu:
      return {{op, "", {{90, 104}, {104}}}, {op, "", {{37, 53}}}};  // a bias in vectors; what is left of the last one
    case OpKind::kGeluGrad:
    case OpKind::kSiluGrad:
      return {{op, "", {{90, 104}, {90, 104}}}, {op, "", {{37, 53}, {37, 53}}}};
    case OpKind::kDropout:
      return {{op, "", {{90, 104}}, WithRate(0)}};
    case OpKind::kDropoutAdd:
      return {{op, "m n, m n -> m n", {{90, 104}, {90, 104}}}, {op, "m n, m n -> m n", {{37, 53}, {37, 53}}}};
    case OpKind::kSoftmax:
    case OpKind::kLogSoftmax:
      return {{op, "", {{50, 1000}}, {}, {}, -3, 3}};
    case OpKind::kLayerNorm:
      return {{op, "", {{50, 700}, {700}, {700}}}, {op, "", {{50, 704}, {704}, {704}}}};
    case OpKind::kRmsNorm:
      return {{op, "", {{50, 704}, {704}}}};
    case OpKind::kNormHeads:
      return {{op, "", {{35, 2, 2, 5, 32}, {2, 32}}}, {op, "", {{5, 2, 1, 3, 20}, {2, 20}}}};
    case OpKind::kNormHeadsGrad:
      return {{op, "", {{35, 2, 2, 5, 32}, {35, 2, 2, 5, 32}, {2, 32}}},
              {op, "", {{5, 2, 1, 3, 20}, {5, 2, 1, 3, 20}, {2, 20}}}};
    case OpKind::kLayerNormGrad:
    case OpKind::kRmsNormGrad:
      return {{op, "", {{50, 700}, {50, 700}, {700}}}, {op, "", {{50, 704}, {50, 704}, {704}}}};
    case OpKind::kCrossEntropy:
      return {{op, "", {{600, 90}, {600}}, WithScale(1.0 / 600), {0, 90}},
              {op, "", {{300, 160}, {300}}, WithScale(1.0 / 300), {0, 160}},
              {op, "", {{5, 9001}, {5}}, WithScale(1.0 / 5), {0, 9001}, -10, 10},  // rows that begin anywhere
              {op, "", {{9, 700}, {9}}, WithScale(1.0 / 9), {0, 700}, -1e4, 1e4}};
    case OpKind::kCrossEntropyGrad:
      return {{op, "", {{}, {300, 160}, {300}}, WithScale(1.0 / 300), {0, 0, 160}},
              {op, "", {{}, {5, 9001}, {5}}, {}, {0, 0, 9001}, -10, 10},
              {op, "", {{}, {9, 700}, {9}}, WithScale(1e-4), {0, 0, 700}, -1e4, 1e4}};
    case OpKind::kRowMax:
      return {{op, "", {{5, 9001}}, {}, {}, -10, 10}};
    case OpKind::kExpSumAndPick:
      return {{op, "", {{300, 161}, {300}, {300}}, {}, {0, 0, 161}}};
    case OpKind::kRowPartials:
      return {{op, "s v!, s -> s, s, s", {{5, 9001}, {5}}, {}, {0, 9001}},
              {op, "", {{7, 1288}, {7}}, {}, {0, 1288}, -10, 10, {{7, 4}, {7, 4}, {7, 4}}}};
    case OpKind::kPartialsGrad:
      return {{op, "", {{}, {300, 160}, {300}, {300}, {300}}, WithScale(1.0 / 300), {0, 0, 0, 0, 160}, 0.5, 1.5},
              {op, "", {{}, {5, 9001}, {5}, {5}, {5}}, {}, {0, 0, 0, 0, 9001}, 0.5, 1.5}};
    case OpKind::kSoftmaxGrad:
    case OpKind::kLogSoftmaxGrad:
      return {{op, "", {{50, 200}, {50, 200}}}};
    case OpKind::kMseLoss:
      return {{op, "", {{300, 200}, {300, 200}}, WithScale(1.0 / 60000)}};
    case OpKind::kReduceSum:
      return {{op, "s b h -> h", {{40, 30, 50}}},
              {op, "s b h -> s", {{40, 30, 50}}},
              {op, "s b h -> h", {{48, 5, 16}}},
              {op, "s b h -> b h", {{48, 5, 16}}}};
    case OpKind::kReduceMin:
      return {{op, "s b h -> h", {{48, 5, 16}}}};
    case OpKind::kFill: {  // several chunks, what is left of one, and more tensors than one launch takes
      std::vector<Shape> outputs(Fill::kMost + 3, {7});
      outputs.insert(outputs.end(), {{2 * Fill::kChunk + 5}, {}});
      return {{op, " -> ", {}, WithScale(-2.5), {}, -1, 1, outputs}};
    }
    case OpKind::kRotary:
    case OpKind::kRotaryGrad:
      return {{op, "", {{33, 2, 2, 5, 32}}},
              {op, "", {{33, 2, 2, 5, 32}}, Turned(16)},
              {op, "", {{9, 2, 2, 3, 20}}, Turned(6)}};
    case OpKind::kLatentHeads:
      return {{op, "", {{33, 2, 5, 48}, {33, 2, 16}, {33, 2, 5, 56}}, {}, {}, -1, 1, {{33, 2, 5, 120}}}};
    case OpKind::kLatentHeadsGrad:
      return {{op, "", {{33, 2, 5, 120}}, {}, {}, -1, 1, {{33, 2, 5, 48}, {33, 2, 16}, {33, 2, 5, 56}}}};
    case OpKind::kGatherGrad:
      return {{op, "s b h, b s -> v h", {{150, 2, 40}, {2, 150}}, {}, {0, 20}, -1, 1, {{20, 40}}}};
    case OpKind::kAttention:
      return {{op, forward + s, {qkv}, WithScale(0.3), {}, -2, 2, {y, rows}},
              {op, forward + s + " t!", {qkv}, WithScale(0.3, false), {}, -2, 2, {y, scores}},
              {op, "s! b g w! -> s! b g q! u!, " + s, {latent}, WithScale(0.3), {}, -2, 2, {narrow, rows}}};
    case OpKind::kAttentionGrad:
      return {{op, backward + s + " -> s! b g r! d!", {y, qkv, y, rows}, WithScale(0.3), {}, 0, 1},
              {op, backward + s + " t! -> s! b g r! d!", {y, qkv, y, scores}, WithScale(0.3, false), {}, 0, 0.1},
              {op, of_latent, {narrow, latent, narrow, rows}, WithScale(0.3), {}, 0, 1}};
    case OpKind::kCausalConv:
      return {{op, "s! b y w!, y w! k! -> s! b y w!", {{33, 2, 3, 20}, {3, 20, 4}}},
              {op, "s! b y w!, y w! k!, y w! -> s! b y w!", {{36, 2, 2, 9}, {2, 9, 11}, {2, 9}}, InOrderFor(2)}};
    case OpKind::kCausalConvGrad: {  // several parts; more taps than a thread takes, more than a rank's part has tokens
      const std::string with_bias = "s! b y w!, y w! k!, y w!";
      return {{op, "s! b y w!, s! b y w!, y w! k! -> s! b y w!, y w! k!", {{33, 2, 3, 20}, {33, 2, 3, 20}, {3, 20, 4}}},
              {op,
               absl::StrCat("s! b y w!, ", with_bias, " -> ", with_bias),
               {{36, 2, 2, 9}, {36, 2, 2, 9}, {2, 9, 11}, {2, 9}},
               InOrderFor(2)}};
    }
    case OpKind::kLinearAttention:
    case OpKind::kLinearAttentionGrad:
      // Slices that are full and not, of columns in vectors and not; two lanes; four, with more tokens to go back than
      // shared memory holds of double; more blocks than walk backward at a time.
      return {RecurrentExample(op, {true, 33, 1, 2, 2, 20, 37, 1}),
              RecurrentExample(op, {true, 36, 1, 1, 3, 32, 40, 2}),
              RecurrentExample(op, {false, 36, 2, 1, 2, 40, 72, 2}),
              RecurrentExample(op, {false, 33, 1, 2, 2, 32, 16, 1}),
              RecurrentExample(op, {true, 520, 1, 1, 1, 100, 2, 1}),
              RecurrentExample(op, {true, 3, 26, 5, 1, 3, 33, 1}),
              RecurrentExample(op, {true, 33, 1, 2, 2, 20, 37, 1, true}),
              RecurrentExample(op, {true, 36, 2, 1, 1, 40, 40, 2, true})};
    case OpKind::kGatedRmsNorm:
      return {
          {op, "", {{50, 704}, {50, 704}, {704}}},
          {op, "s b y w!, s b y w!, y w! -> s b y w!", {{35, 2, 3, 20}, {35, 2, 3, 20}, {3, 20}}, InOrderFor(1, true)}};
    case OpKind::kGatedRmsNormGrad: {
      const std::string rule = "s b y w!, s b y w!, s b y w!, y w! -> s b y w!, s b y w!, y w!";
      const Shape odd = {35, 2, 3, 20}, even = {35, 2, 3, 48};
      return {{op, "", {{50, 704}, {50, 704}, {50, 704}, {704}}},
              {op, rule, {odd, odd, odd, {3, 20}}, InOrderFor(1, true)},
              {op, rule, {even, even, even, {3, 48}}}};
    }
    case OpKind::kDispatch:
      return {{op, "", {{60, 4, 30}, {60, 4, 8}}, {}, {}, -1, 1, {{8, 40, 30}}},
              {op, "", {{60, 4, 30}, {60, 4, 12}}, OfSomeGroups(), {}, -1, 1, {{12, 40, 30}}}};
    case OpKind::kCombine:
      return {{op, "", {{8, 40, 30}, {60, 4, 8}}, {}, {}, -1, 1, {{60, 4, 30}}},
              {op, "", {{12, 40, 30}, {60, 4, 12}}, OfSomeGroups(), {}, -1, 1, {{60, 4, 30}}}};
    case OpKind::kToGroups:
      return {{op, "", {{60, 4, 30}, {60, 4, 12}}, OfSomeGroups(), {}, -1, 1, {{4, 40, 4, 30}, {4, 40, 4, 12}}}};
    case OpKind::kCombineGrad:
      return {{op, "", {{60, 4, 30}, {8, 40, 30}, {60, 4, 8}}, {}, {}, -1, 1, {{8, 40, 30}, {60, 4, 8}}}};
    case OpKind::kSgd:
    case OpKind::kMomentum:
    case OpKind::kMuonStep:
    case OpKind::kMuon:
      return Updates(op, {{50, 100}, {8}, {3}, {2048}});
    case OpKind::kAdamW:
    case OpKind::kLambStep:
    case OpKind::kLamb: {  // chunks that are full and not; more than one launch takes
      std::vector<OpExample> examples = Updates(op, {{300, 200}, {8}, {2049}, {4096}});
      const std::vector<OpExample> many = Updates(op, std::vector<Shape>(Update::kMost + 5, {7, 3}));
      examples.insert(examples.end(), many.begin(), many.end());
      if (op == OpKind::kLamb) {  // norms of 0, whose quotient is 1
        examples.push_back({op, "", {{3}, {3}, {}, {}}, WithRate(0.25), {}, 0, 0});
      }
      return examples;
    }
    default:
      return {};
  }
}

// What an operand is stored in. What attention saves of a row is float32 beside narrow results, as in models.
DType StoredIn(const OpCase& c, bool output, size_t i, DType dtype) {
  const OwnedTensor& tensor = output ? c.outputs[i] : c.inputs[i];
  if (tensor.dtype == DType::kInt32) return DType::kInt32;
  const bool saved =
      c.example.attrs.fused && (output ? c.example.op == OpKind::kAttention && i == 1
                                       : c.example.op == OpKind::kAttentionGrad && i + 1 == c.inputs.size());
  return saved && SizeOf(dtype).raw() == 2 ? DType::kFloat32 : dtype;
}

absl::Status Compare(const OpCase& c, const std::vector<std::vector<std::byte>>& found, const OpCheck& check) {
  for (size_t o = 0; o < c.outputs.size(); ++o) {
    const DType stored = StoredIn(c, true, o, check.dtype);
    const double bound = BoundOf(stored);
    const int64_t n = NumElements(c.outputs[o].shape);
    int64_t off = 0, first = 0, worst = 0, none = 0;
    double most = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double want = c.outputs[o].At(i), got = Decode(found[o], stored, i);
      if (got == want || std::abs(got - want) <= bound * (1 + std::abs(want))) continue;
      if (off++ == 0) first = worst = i;
      if (std::isnan(got)) ++none;
      if (std::abs(got - want) > most) {
        most = std::abs(got - want);
        worst = i;
      }
    }
    if (off == 0) continue;
    const auto element = [&](int64_t i) {
      return absl::StrCat("element ", i, " is ", Decode(found[o], stored, i), ", the host has ", c.outputs[o].At(i));
    };
    return absl::DataLossError(absl::StrCat(c.text, " in ", NameOf(check.dtype), check.accumulate ? ", adding" : "",
                                            ": output ", o, ", ", element(first), "; ", off, " of ", n,
                                            " are off by more than ", bound, " (1 + |x|), ", none, " are NaN",
                                            most > 0 ? ", the worst: " : "", most > 0 ? element(worst) : ""));
  }
  return absl::OkStatus();
}

void RoundInputs(OpCase& c, DType dtype) {
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (c.inputs[i].dtype == DType::kInt32) continue;
    for (int64_t e = 0; e < NumElements(c.inputs[i].shape); ++e) {
      c.inputs[i].Set(e, Rounded(StoredIn(c, false, i, dtype), c.inputs[i].At(e)));
    }
  }
}

absl::Status RunOnHost(OpCase& c, uint32_t accumulate) {
  std::vector<TensorView> in, out;
  for (OwnedTensor& input : c.inputs) in.push_back(input.View());
  for (OwnedTensor& output : c.outputs) out.push_back(output.View());
  return RunHostKernel({c.example.op, &c.example.attrs, &c.rule, accumulate, 3, in, out});
}

absl::Status CheckCase(Driver& driver, Kernels& kernels, OpCase c, const OpCheck& check) {
  RoundInputs(c, check.dtype);
  OnDevice device(driver);
  MESHWRIGHT_ASSIGN_OR_RETURN(const DeviceStream stream, device.stream());
  std::vector<TensorView> in, out;
  uint32_t accumulate = 0;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    TensorView view = c.inputs[i].View();
    view.dtype = StoredIn(c, false, i, check.dtype);
    MESHWRIGHT_ASSIGN_OR_RETURN(view.data, device.Put(view.bytes(), Encode(c.inputs[i], view.dtype)));
    in.push_back(view);
  }
  for (size_t o = 0; o < c.outputs.size(); ++o) {
    OwnedTensor& output = c.outputs[o];
    TensorView view = output.View();
    view.dtype = StoredIn(c, true, o, check.dtype);
    if (check.accumulate) {
      accumulate |= 1u << o;
      for (int64_t i = 0; i < NumElements(output.shape); ++i) output.Set(i, Rounded(view.dtype, 0.25 * (i % 5)));
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(
        view.data, device.Put(view.bytes(), check.accumulate ? Encode(output, view.dtype) : std::vector<std::byte>()));
    for (size_t i = 0; check.in_place && o == 0 && i < c.rule.inputs.size(); ++i) {
      if (c.rule.inputs[i] != c.rule.outputs[0] || in[i].dtype != view.dtype) continue;
      view.data = in[i].data;
      break;
    }
    out.push_back(view);
  }
  MESHWRIGHT_RETURN_IF_ERROR(RunOnHost(c, accumulate));
  const KernelCall call = {c.example.op, &c.example.attrs, &c.rule, accumulate, 3, in, out};
  Scratch scratch(driver);
  MESHWRIGHT_RETURN_IF_ERROR(kernels.Run(stream, call, scratch, nullptr));
  MESHWRIGHT_RETURN_IF_ERROR(device.Finish());
  std::vector<std::vector<std::byte>> found;
  for (const TensorView& view : out) {
    absl::StatusOr<std::vector<std::byte>> bytes = device.Get(view.data, view.bytes());
    if (!bytes.ok()) return absl::Status(bytes.status().code(), absl::StrCat(c.text, ": ", bytes.status().message()));
    found.push_back(*std::move(bytes));
  }
  return Compare(c, found, check);
}

}  // namespace

double BoundOf(DType dtype) {
  // A few hundred roundings of sums of order 1: 2^-53, 2^-24; results are rounded once to 11 or 8 bits, and the values
  // of order 10 that gradients sum up, too.
  if (dtype == DType::kFloat64) return 1e-12;
  if (dtype == DType::kFloat32) return 2e-5;
  return dtype == DType::kFloat16 ? 0x1p-9 : 0x1p-6;
}

absl::Status CheckOp(Driver& driver, Kernels& kernels, OpKind op, const OpCheck& check) {
  for (const OpExample& example : check.large ? LargeExamples(op) : ExamplesOf(op)) {
    MESHWRIGHT_RETURN_IF_ERROR(CheckCase(driver, kernels, MakeCase(example, check.seed), check));
  }
  return absl::OkStatus();
}

absl::Status CheckAttention(Driver& driver, Kernels& kernels, const AttentionCheck& a, const OpCheck& check) {
  const std::string q = a.apart ? "s b g q! d!" : "s! b g q! d!", saved = a.apart ? "s b g q!" : "s! b g q!";
  const std::string kv = a.shift >= 0 ? "s b g w! d!" : "t! b g w! d!", from = a.apart ? q + ", " + kv : "s! b g r! d!";
  const Shape y = {a.s, a.b, a.g, a.q, a.d}, keys = {a.apart ? a.keys : a.s, a.b, a.g, 2, a.d},
              qkv = {a.s, a.b, a.g, a.q + 2, a.d};
  OpAttrs attrs = WithScale(0.5);
  attrs.causal = a.causal;
  attrs.context = a.context;
  attrs.shift = a.shift;
  attrs.window = a.window;
  const std::vector<Shape> operands = a.apart ? std::vector<Shape>{y, keys} : std::vector<Shape>{qkv};
  const Shape rows = {a.s, a.b, a.g, a.q};
  OpCase forward = MakeCase(
      {OpKind::kAttention, from + " -> " + q + ", " + saved, operands, attrs, {}, -1, 1, {y, rows}}, check.seed);
  if (!check.accumulate) MESHWRIGHT_RETURN_IF_ERROR(CheckCase(driver, kernels, forward, check));
  RoundInputs(forward, check.dtype);
  MESHWRIGHT_RETURN_IF_ERROR(RunOnHost(forward, 0));
  std::vector<Shape> inputs = {y};
  inputs.insert(inputs.end(), operands.begin(), operands.end());
  inputs.insert(inputs.end(), {y, rows});
  OpCase backward =
      MakeCase({OpKind::kAttentionGrad, q + ", " + from + ", " + q + ", " + saved + " -> " + from, inputs, attrs},
               check.seed + 1);
  for (size_t i = 0; i < operands.size(); ++i) backward.inputs[1 + i] = forward.inputs[i];
  for (size_t i = 0; i < 2; ++i) backward.inputs[1 + operands.size() + i] = forward.outputs[i];
  return CheckCase(driver, kernels, std::move(backward), check);
}

std::vector<OpKind> CheckedOps() {
  std::vector<OpKind> ops;
  for (const OpInfo& row : kOps) {
    if (!ExamplesOf(row.kind).empty() || row.kind == OpKind::kFill) ops.push_back(row.kind);
  }
  return ops;
}

bool CanAccumulate(OpKind op) {
  return InfoOf(op).epilogue == OpKind::kNumOps && op != OpKind::kAttention && op != OpKind::kMergeAttention &&
         op != OpKind::kAdjustScale && !IsOptimizer(op);
}

}  // namespace meshwright::cuda::testing
