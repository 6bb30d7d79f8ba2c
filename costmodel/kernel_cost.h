// How long one kernel takes on a device that does nothing else.
//
// Pure functions of a KernelWork (shapes, operations, bytes) and a Device (data sheet figures and KernelConstants);
// what runs beside the kernel is the simulator's business. Each class of kernel has its formula, see kernel_cost.cc;
// all of them charge KernelConstants::startup, the time of the shortest kernel in a stream that is issued ahead of
// time. The time that the CPU needs to issue a kernel is CostModel::HostLaunch, not part of the price.
//
// Where to trust it: README.md of this folder has the errors against published measurements.
//
// Cost of a call: well under a microsecond; the planner calls it millions of times. Thread safety: pure functions.
#ifndef MESHWRIGHT_COSTMODEL_KERNEL_COST_H_
#define MESHWRIGHT_COSTMODEL_KERNEL_COST_H_

#include <cstdint>

#include "ir/cluster.h"
#include "ir/dtype.h"
#include "ir/kernel_work.h"
#include "ir/quantities.h"

namespace meshwright {

// What a kernel waits for most: the term of its formula that was largest.
enum class Bound : uint8_t { kNothing, kCompute, kMemory, kLaunch };

struct KernelEstimate {
  Nanos time;
  Bound bound = Bound::kNothing;
  bool estimated = false;  // rests on constants that were scaled from another device, or on a peak it does not have
};

// Prices one kernel. A type that the device has no peak for is priced at the next slower type that it does have
// (float8 as float16, bfloat16 as float16, float16 and tfloat32 as float32), and marked estimated. So is float64 as
// float32 where a user's own file has no rate of it, although no device is as fast; the library's all have one.
//
// Every dimension and count of `work` must be >= 0; a kernel without operations and bytes costs its start-up, and
// KernelClass::kNone costs nothing.
KernelEstimate EstimateKernel(const KernelWork& work, const Device& device);

// Operations a second of a product inside of a wave, at the clock that the peak is quoted for.
double ProductRate(DType dtype, const Device& device);
// The same of the products in fused attention, whose scores and values never wait.
double AttentionRate(DType dtype, const Device& device);

inline Nanos PriceKernel(const KernelWork& work, const Device& device) { return EstimateKernel(work, device).time; }

}  // namespace meshwright

#endif  // MESHWRIGHT_COSTMODEL_KERNEL_COST_H_
