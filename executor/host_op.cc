#include "executor/host_op.h"

#include <cstddef>
#include <vector>

#include "executor/host/kernels.h"
#include "ir/status.h"

namespace meshwright {

absl::Status RunOnHost(Backend& backend, Stream stream, const KernelCall& call) {
  std::vector<std::vector<std::byte>> memory;
  memory.reserve(call.inputs.size() + call.outputs.size());
  const auto here = [&](const TensorView& on_device) {
    TensorView view = on_device;
    view.data = memory.emplace_back(static_cast<size_t>(on_device.bytes())).data();
    return view;
  };
  std::vector<TensorView> inputs, outputs;
  for (const TensorView& input : call.inputs) {
    inputs.push_back(here(input));
    MESHWRIGHT_RETURN_IF_ERROR(backend.CopyOut(stream, input.data, absl::MakeSpan(memory.back())));
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    outputs.push_back(here(call.outputs[i]));
    if (!call.Adds(i)) continue;
    MESHWRIGHT_RETURN_IF_ERROR(backend.CopyOut(stream, call.outputs[i].data, absl::MakeSpan(memory.back())));
  }
  KernelCall on_host = call;
  on_host.inputs = inputs;
  on_host.outputs = outputs;
  MESHWRIGHT_RETURN_IF_ERROR(RunHostKernel(on_host));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const absl::Span<const std::byte> made(outputs[i].data, static_cast<size_t>(outputs[i].bytes()));
    MESHWRIGHT_RETURN_IF_ERROR(backend.CopyIn(stream, made, call.outputs[i].data));
  }
  return absl::OkStatus();
}

}  // namespace meshwright
