#include <cstring>
#include <memory>

#include "executor/cuda/testing/stand_in.h"
#include "executor/host/kernels.h"
#include "ir/status.h"

namespace meshwright::cuda::testing {
namespace {

// A call that outlives its caller; rule and attributes belong to the program, which outlives both.
struct OwnedCall {
  KernelCall call;
  std::vector<TensorView> inputs, outputs;
  explicit OwnedCall(const KernelCall& from)
      : call(from), inputs(from.inputs.begin(), from.inputs.end()), outputs(from.outputs.begin(), from.outputs.end()) {
    call.inputs = inputs;
    call.outputs = outputs;
  }
};

// The bytes between the first and the last element that a strided copy touches.
Access Reach(const std::byte* data, int64_t element, const Shape& extents, const Shape& strides, bool write) {
  int64_t last = 0;
  for (size_t d = 0; d < extents.size(); ++d) last += (extents[d] - 1) * strides[d];
  return {data, (last + 1) * element, write};
}

void CopyStrided(const StridedCopy& copy, size_t dim, int64_t from, int64_t to) {
  if (dim == copy.extents.size()) {
    std::memcpy(copy.to + to * copy.element, copy.from + from * copy.element, static_cast<size_t>(copy.element));
    return;
  }
  for (int64_t i = 0; i < copy.extents[dim]; ++i) {
    CopyStrided(copy, dim + 1, from + i * copy.from_strides[dim], to + i * copy.to_strides[dim]);
  }
}

}  // namespace

StandInKernels::StandInKernels(StandInDriver& driver) : driver_(driver) {}

absl::Status StandInKernels::Run(DeviceStream stream, const KernelCall& call, Scratch&, StepValues* values) {
  const auto owned = std::make_shared<OwnedCall>(call);
  std::vector<Access> accesses;
  const std::byte* step = nullptr;
  if (values != nullptr) {
    MESHWRIGHT_ASSIGN_OR_RETURN(step, values->Get("step", [](int64_t step) { return static_cast<uint64_t>(step); }));
    accesses.push_back({step, sizeof(uint64_t), false});
  }
  for (const TensorView& view : owned->inputs) accesses.push_back({view.data, view.bytes(), false});
  for (size_t i = 0; i < owned->outputs.size(); ++i) {
    const TensorView& view = owned->outputs[i];
    if (call.Adds(i)) accesses.push_back({view.data, view.bytes(), false});
    accesses.push_back({view.data, view.bytes(), true});
  }
  return driver_.RunKernel(stream, std::move(accesses), [owned, step] {
    if (step != nullptr) std::memcpy(&owned->call.step, step, sizeof(owned->call.step));
    return RunHostKernel(owned->call);
  });
}

// Rows are told one by one, so that two copies into one tensor do not seem to touch the same bytes.
absl::Status StandInKernels::Copy(DeviceStream stream, const StridedCopy& copy) {
  std::vector<Access> accesses = {Reach(copy.from, copy.element, copy.extents, copy.from_strides, false)};
  if (copy.extents.size() < 2) {
    accesses.push_back(Reach(copy.to, copy.element, copy.extents, copy.to_strides, true));
  } else {
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < copy.extents.size(); ++d) rows *= copy.extents[d];
    for (int64_t row = 0; row < rows; ++row) {
      int64_t at = 0, rest = row;
      for (size_t d = copy.extents.size() - 1; d-- > 0;) {
        at += rest % copy.extents[d] * copy.to_strides[d];
        rest /= copy.extents[d];
      }
      accesses.push_back(
          Reach(copy.to + at * copy.element, copy.element, {copy.extents.back()}, {copy.to_strides.back()}, true));
    }
  }
  return driver_.RunKernel(stream, std::move(accesses), [copy] {
    CopyStrided(copy, 0, 0, 0);
    return absl::OkStatus();
  });
}

}  // namespace meshwright::cuda::testing
