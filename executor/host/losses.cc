// Losses. A loss is a scalar: the sum over this rank's points, times scale. Class dims may be split where the kernel
// says so; the labels then hold global class numbers and the view says which classes are here.
#include <algorithm>
#include <cmath>
#include <limits>

#include "executor/call_operands.h"
#include "executor/host/kernel_functions.h"
#include "executor/host/loop.h"
#include "ir/status.h"

namespace meshwright::host {
namespace {

template <class T>
void SetScalar(const KernelCall& call, double value) {
  T& out = *call.outputs[0].as<T>();
  out = (call.Adds(0) ? out : T(0)) + static_cast<T>(value);
}

// Loops over the points of rule.inputs[of], with the strides there of N operands of the call: those in `operands`, by
// index (inputs first, then outputs).
template <size_t N>
LoopNest<N> OverLabelsOf(const KernelCall& call, size_t of, const std::array<size_t, N>& operands,
                         int skip_label = -1) {
  const IndexRule& rule = *call.rule;
  std::array<LabelStrides, N> strides;
  for (size_t i = 0; i < N; ++i) {
    const size_t inputs = rule.inputs.size(), k = operands[i];
    strides[i] = k < inputs ? StridesByLabel(rule, rule.inputs[k], call.inputs[k].shape)
                            : StridesByLabel(rule, rule.outputs[k - inputs], call.outputs[k - inputs].shape);
  }
  LoopNest<N> nest;
  for (size_t d = 0; d < rule.inputs[of].size(); ++d) {
    const int8_t label = rule.inputs[of][d].label;
    if (label < 0 || label == skip_label) continue;
    std::array<int64_t, N> step;
    for (size_t i = 0; i < N; ++i) step[i] = strides[i][label];
    nest.Add(call.inputs[of].shape[d], step);
  }
  return nest;
}

// The class dim of input `logits`: its last. It is contiguous.
struct Classes {
  int label;
  int64_t count, begin;  // here, and the number of the first
};
absl::StatusOr<Classes> ClassesOf(const KernelCall& call, size_t logits) {
  const OperandRule& operand = call.rule->inputs[logits];
  const TensorView& view = call.inputs[logits];
  if (operand.empty() || operand.back().label < 0) return absl::InvalidArgumentError("logits need a class dim");
  return Classes{operand.back().label, view.shape.back(), view.begin.empty() ? 0 : view.begin.back()};
}

// Labels must be class numbers of the whole class dim of input `logits`.
absl::Status CheckLabels(const KernelCall& call, size_t labels, size_t logits) {
  const TensorView& view = call.inputs[labels];
  if (view.dtype != DType::kInt32) {
    return absl::InvalidArgumentError(absl::StrCat("labels are ", NameOf(view.dtype), ", wanted int32 class numbers"));
  }
  const int64_t classes = call.inputs[logits].global.empty() ? 0 : call.inputs[logits].global.back();
  const int32_t* values = view.as<int32_t>();
  for (int64_t i = 0; i < view.size(); ++i) {
    if (values[i] >= 0 && values[i] < classes) continue;
    return absl::InvalidArgumentError(absl::StrCat("label ", values[i], " is none of the ", classes, " classes"));
  }
  return absl::OkStatus();
}

template <class T>
T LogSumExp(const T* x, int64_t n) {
  const T top = *std::max_element(x, x + n);
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - top);
  return top + std::log(sum);
}

}  // namespace

template <class T>
absl::Status MseLoss(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 2, 2, 1));
  const T* x = call.inputs[0].as<T>();
  const T* target = call.inputs[1].as<T>();
  double sum = 0;
  OverLabelsOf<2>(call, 0, {0, 1}).ForEachRow([&](const auto& at, int64_t n, const auto& step) {
    for (int64_t i = 0; i < n; ++i) {
      const double error = static_cast<double>(x[at[0] + i * step[0]]) - target[at[1] + i * step[1]];
      sum += error * error;
    }
  });
  SetScalar<T>(call, sum * call.attrs->scale);
  return absl::OkStatus();
}

template <class T>
absl::Status MseLossGrad(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 3, 3, 1));
  const T factor = static_cast<T>(2 * call.attrs->scale) * *call.inputs[0].as<T>();
  const T* x = call.inputs[1].as<T>();
  const T* target = call.inputs[2].as<T>();
  T* dx = call.outputs[0].as<T>();
  OverLabelsOf<3>(call, 1, {1, 2, 3}).ForEachRow([&](const auto& at, int64_t n, const auto& step) {
    for (int64_t i = 0; i < n; ++i) {
      T& out = dx[at[2] + i * step[2]];
      out = (call.Adds(0) ? out : T(0)) + factor * (x[at[0] + i * step[0]] - target[at[1] + i * step[1]]);
    }
  });
  return absl::OkStatus();
}

template <class T>
absl::Status CrossEntropy(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 2, 2, 1));
  MESHWRIGHT_RETURN_IF_ERROR(CheckLabels(call, 1, 0));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Classes classes, ClassesOf(call, 0));
  const T* logits = call.inputs[0].as<T>();
  const int32_t* labels = call.inputs[1].as<int32_t>();
  double sum = 0;
  OverLabelsOf<2>(call, 0, {0, 1}, classes.label).ForEachRow([&](const auto& at, int64_t n, const auto& step) {
    for (int64_t i = 0; i < n; ++i) {
      const T* row = logits + at[0] + i * step[0];
      sum += LogSumExp(row, classes.count) - row[labels[at[1] + i * step[1]]];
    }
  });
  SetScalar<T>(call, sum * call.attrs->scale);
  return absl::OkStatus();
}

template <class T>
absl::Status CrossEntropyGrad(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 3, 3, 1));
  MESHWRIGHT_RETURN_IF_ERROR(CheckLabels(call, 2, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Classes classes, ClassesOf(call, 1));
  const T factor = static_cast<T>(call.attrs->scale) * *call.inputs[0].as<T>();
  const T* logits = call.inputs[1].as<T>();
  const int32_t* labels = call.inputs[2].as<int32_t>();
  T* dx = call.outputs[0].as<T>();
  OverLabelsOf<3>(call, 1, {1, 2, 3}, classes.label).ForEachRow([&](const auto& at, int64_t n, const auto& step) {
    for (int64_t i = 0; i < n; ++i) {
      const T* row = logits + at[0] + i * step[0];
      T* out = dx + at[2] + i * step[2];
      const int64_t label = labels[at[1] + i * step[1]];
      const T log_sum = LogSumExp(row, classes.count);
      for (int64_t c = 0; c < classes.count; ++c) {
        const T d = factor * (std::exp(row[c] - log_sum) - (c == label ? T(1) : T(0)));
        out[c] = (call.Adds(0) ? out[c] : T(0)) + d;
      }
    }
  });
  return absl::OkStatus();
}

template <class T>
absl::Status RowMax(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 1, 1, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Classes classes, ClassesOf(call, 0));
  const T* logits = call.inputs[0].as<T>();
  T* out = call.outputs[0].as<T>();
  OverLabelsOf<2>(call, 0, {0, 1}, classes.label).ForEachRow([&](const auto& at, int64_t n, const auto& step) {
    for (int64_t i = 0; i < n; ++i) {
      const T* row = logits + at[0] + i * step[0];
      const T top = *std::max_element(row, row + classes.count);
      T& value = out[at[1] + i * step[1]];
      value = call.Adds(0) ? std::max(value, top) : top;
    }
  });
  return absl::OkStatus();
}

template <class T>
absl::Status ExpSumAndPick(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 3, 3, 2));
  MESHWRIGHT_RETURN_IF_ERROR(CheckLabels(call, 2, 0));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Classes classes, ClassesOf(call, 0));
  const T* logits = call.inputs[0].as<T>();
  const T* tops = call.inputs[1].as<T>();
  const int32_t* labels = call.inputs[2].as<int32_t>();
  T* sums = call.outputs[0].as<T>();
  T* picks = call.outputs[1].as<T>();
  const auto nest = OverLabelsOf<5>(call, 0, {0, 1, 2, 3, 4}, classes.label);
  nest.ForEachRow([&](const auto& at, int64_t n, const auto& step) {
    for (int64_t i = 0; i < n; ++i) {
      const T* row = logits + at[0] + i * step[0];
      const T top = tops[at[1] + i * step[1]];
      const int64_t label = labels[at[2] + i * step[2]] - classes.begin;
      T sum = 0;
      for (int64_t c = 0; c < classes.count; ++c) sum += std::exp(row[c] - top);
      T& sum_out = sums[at[3] + i * step[3]];
      T& pick_out = picks[at[4] + i * step[4]];
      sum_out = (call.Adds(0) ? sum_out : T(0)) + sum;
      pick_out = (call.Adds(1) ? pick_out : T(0)) + (label >= 0 && label < classes.count ? row[label] : T(0));
    }
  });
  return absl::OkStatus();
}

template <class T>
absl::Status RowPartials(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 2, 2, 3));
  MESHWRIGHT_RETURN_IF_ERROR(CheckLabels(call, 1, 0));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Classes classes, ClassesOf(call, 0));
  const OperandRule& out = call.rule->outputs[0];
  const bool in_parts = !out.empty() && out.back().label == classes.label;
  const int64_t parts = in_parts ? call.outputs[0].shape.back() : 1, width = classes.count / parts;
  if (width * parts != classes.count) {
    return absl::InvalidArgumentError(absl::StrCat(classes.count, " classes are not ", parts, " equal parts"));
  }
  const T* logits = call.inputs[0].as<T>();
  const int32_t* labels = call.inputs[1].as<int32_t>();
  const auto nest = OverLabelsOf<5>(call, 0, {0, 1, 2, 3, 4}, classes.label);
  nest.ForEachRow([&](const auto& at, int64_t n, const auto& step) {
    for (int64_t i = 0; i < n * parts; ++i) {
      const int64_t part = i % parts, row = i / parts;
      const T* const x = logits + at[0] + row * step[0] + part * width;
      const int64_t label = labels[at[1] + row * step[1]] - classes.begin - part * width;
      const T top = *std::max_element(x, x + width);
      T sum = 0;
      for (int64_t c = 0; c < width && top > -std::numeric_limits<T>::infinity(); ++c) sum += std::exp(x[c] - top);
      const T found[] = {top, sum, label >= 0 && label < width ? x[label] : T(0)};
      for (size_t k = 0; k < 3; ++k) {
        T& value = call.outputs[k].as<T>()[at[2 + k] + row * step[2 + k] + part];
        value = (call.Adds(k) ? value : T(0)) + found[k];
      }
    }
  });
  return absl::OkStatus();
}

template <class T>
absl::Status JoinPartials(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 4, 4, 2));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Classes parts, ClassesOf(call, 0));
  const auto in = [&](size_t i) { return call.inputs[i].as<T>(); };
  const T *tops = in(0), *sums = in(1), *picks = in(2), *whole = in(3);
  const auto nest = OverLabelsOf<6>(call, 0, {0, 1, 2, 3, 4, 5}, parts.label);
  nest.ForEachRow([&](const auto& at, int64_t n, const auto& step) {
    for (int64_t i = 0; i < n; ++i) {
      T found[] = {0, 0};
      for (int64_t p = 0; p < parts.count; ++p) {
        found[0] +=
            sums[at[1] + i * step[1] + p] * std::exp(tops[at[0] + i * step[0] + p] - whole[at[3] + i * step[3]]);
        found[1] += picks[at[2] + i * step[2] + p];
      }
      for (size_t k = 0; k < 2; ++k) {
        T& value = call.outputs[k].as<T>()[at[4 + k] + i * step[4 + k]];
        value = (call.Adds(k) ? value : T(0)) + found[k];
      }
    }
  });
  return absl::OkStatus();
}

template <class T>
absl::Status LossFromPartials(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 3, 3, 1));
  const T* tops = call.inputs[0].as<T>();
  const T* sums = call.inputs[1].as<T>();
  const T* picks = call.inputs[2].as<T>();
  double sum = 0;
  OverLabelsOf<3>(call, 0, {0, 1, 2}).ForEachRow([&](const auto& at, int64_t n, const auto& step) {
    for (int64_t i = 0; i < n; ++i) {
      const double log_sum = std::log(static_cast<double>(sums[at[1] + i * step[1]]));
      sum += log_sum + tops[at[0] + i * step[0]] - picks[at[2] + i * step[2]];
    }
  });
  SetScalar<T>(call, sum * call.attrs->scale);
  return absl::OkStatus();
}

template <class T>
absl::Status PartialsGrad(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 5, 5, 1));
  MESHWRIGHT_RETURN_IF_ERROR(CheckLabels(call, 4, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Classes classes, ClassesOf(call, 1));
  const T factor = static_cast<T>(call.attrs->scale) * *call.inputs[0].as<T>();
  const T* logits = call.inputs[1].as<T>();
  const T* tops = call.inputs[2].as<T>();
  const T* sums = call.inputs[3].as<T>();
  const int32_t* labels = call.inputs[4].as<int32_t>();
  T* dx = call.outputs[0].as<T>();
  const auto nest = OverLabelsOf<5>(call, 1, {1, 2, 3, 4, 5}, classes.label);
  nest.ForEachRow([&](const auto& at, int64_t n, const auto& step) {
    for (int64_t i = 0; i < n; ++i) {
      const T* row = logits + at[0] + i * step[0];
      T* out = dx + at[4] + i * step[4];
      const T top = tops[at[1] + i * step[1]], share = factor / sums[at[2] + i * step[2]];
      const int64_t label = labels[at[3] + i * step[3]] - classes.begin;
      for (int64_t c = 0; c < classes.count; ++c) {
        const T d = share * std::exp(row[c] - top) - (c == label ? factor : T(0));
        out[c] = (call.Adds(0) ? out[c] : T(0)) + d;
      }
    }
  });
  return absl::OkStatus();
}

#define MESHWRIGHT_INSTANTIATE(T)                               \
  template absl::Status MseLoss<T>(const KernelCall&);          \
  template absl::Status MseLossGrad<T>(const KernelCall&);      \
  template absl::Status CrossEntropy<T>(const KernelCall&);     \
  template absl::Status CrossEntropyGrad<T>(const KernelCall&); \
  template absl::Status RowMax<T>(const KernelCall&);           \
  template absl::Status ExpSumAndPick<T>(const KernelCall&);    \
  template absl::Status RowPartials<T>(const KernelCall&);      \
  template absl::Status JoinPartials<T>(const KernelCall&);     \
  template absl::Status LossFromPartials<T>(const KernelCall&); \
  template absl::Status PartialsGrad<T>(const KernelCall&);
MESHWRIGHT_INSTANTIATE(float)
MESHWRIGHT_INSTANTIATE(double)
#undef MESHWRIGHT_INSTANTIATE

}  // namespace meshwright::host
