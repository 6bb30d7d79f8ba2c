// From kernel calls to bodies and launch shapes: what the files of executor/cuda/lower_*.cc share.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_LOWERING_H_
#define MESHWRIGHT_EXECUTOR_CUDA_LOWERING_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "absl/status/status.h"
#include "executor/call_operands.h"
#include "executor/cuda/driver.h"
#include "executor/cuda/kernels.h"
#include "executor/cuda/kernels/launcher.h"
#include "executor/cuda/kernels/vectors.h"
#include "executor/kernel_call.h"
#include "ir/index_rule.h"

namespace meshwright::cuda {

// One call under way.
struct Lowering {
  Driver& driver;
  KernelLauncher& launcher;
  Scratch& scratch;
  DeviceStream stream;
  const KernelCall& call;
  bool wide = false;  // computed in double
  bool tf32 = false;
  StepValues* values = nullptr;  // as Kernels::Run has them
  bool wgmma = false;            // kernels of Hopper's own may be launched

  template <class Body>
  absl::Status Launch(const LaunchShape& shape, const Body& body) const {
    return launcher.Launch(stream, shape, wide, body);
  }
  // A thread for each of `points`, within reason.
  template <class Body>
  absl::Status LaunchPoints(int64_t points, const Body& body) const {
    if (points == 0) return absl::OkStatus();
    return Launch({std::min<int64_t>((points + 255) / 256, kMostBlocks), 256, 0}, body);
  }
  // The same, eight points a thread where `body.vectors` says so.
  template <class Body>
  absl::Status LaunchVectors(int64_t points, const Body& body) const {
    return LaunchPoints(body.vectors ? (points + kVector - 1) / kVector : points, body);
  }
  // A block for each of `rows`.
  template <class Body>
  absl::Status LaunchRows(int64_t rows, int64_t width, const Body& body, int64_t shared_per_thread = 0) const {
    if (rows == 0) return absl::OkStatus();
    const int32_t threads = width > 512 ? 256 : width > 64 ? 128 : 32;
    return Launch({std::min(rows, kMostBlocks), threads, shared_per_thread * threads}, body);
  }
  static constexpr int64_t kMostBlocks = 65536;
};

constexpr int64_t kSharedLimit = 96 * 1024;  // bytes of a block, on every device that is compiled for

Elem ElemOf(DType dtype);  // of the types that Check lets through
inline Ref RefOf(const TensorView& view) { return {view.data, ElemOf(view.dtype)}; }

// Adds a dim inside the others; dims of extent 1 vanish, neighbours that are contiguous in every operand merge.
void AddDim(Places& places, int64_t extent, std::initializer_list<int64_t> strides);
absl::Status CheckDims(const Places& places);  // kUnimplemented when there are too many

// Whether a body can take eight neighbours of such operands at a time (kernels/vectors.h): they are of 16 or 32 bits
// and begin at multiples of 16 bytes. Operands that are not there do not count.
bool TakesVectors(std::initializer_list<Ref> operands);
// And whether those of `places` have neighbours side by side; after the first `written` also one element for all of
// them.
bool TakesVectors(const Places& places, std::initializer_list<Ref> operands, size_t written = 1);

// In how many parts work of `extent` steps for each of `points`, which threads take by eights, keeps a device busy:
// divides `extent`, and leaves each part a few steps.
int64_t PartsOf(int64_t extent, int64_t points);

// Launches a body whose operands are set: with vectors where they let it.
absl::Status LaunchPointwise(const Lowering& l, Pointwise body);

// All elements of the views = value.
absl::Status LaunchFill(const Lowering& l, absl::Span<const TensorView> views, double value);

// Over the output's points: operand 0 is output 0, then the inputs in `inputs`.
Places OverOutput(const KernelCall& call, std::initializer_list<size_t> inputs);

// lowering.cc
absl::Status Lower(const Lowering& l);
// An op and its epilogue as two kernels, where no kernel does both.
absl::Status LowerInParts(const Lowering& l);
// lower_elementwise.cc
absl::Status LowerElementwise(const Lowering& l);
// lower_movement.cc
absl::Status LowerMovement(const Lowering& l);
// lower_rows.cc
absl::Status LowerRows(const Lowering& l);
// lower_tiles.cc
absl::Status LowerAttention(const Lowering& l);
absl::Status LowerMergeAttention(const Lowering& l);
absl::Status LowerLatentHeads(const Lowering& l);
absl::Status LowerExperts(const Lowering& l);
absl::Status LowerGroups(const Lowering& l);
// lower_recurrent.cc
absl::Status LowerRecurrent(const Lowering& l);
// lower_products.cc
absl::Status LowerProduct(const Lowering& l);

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_LOWERING_H_
