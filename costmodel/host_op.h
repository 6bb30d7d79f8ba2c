// What a kernel costs that runs on the host of its device instead of on the device (S13.5): the copies of what it reads
// and writes over the link between the two, one after the other, and the kernel on one core of the host, which is what
// executor/host_op.h does.
//
// Where to trust it: the link is a data sheet's with a measured share, the core is a guess (data/host.yaml) until
// `measure` has seen the machine. Prices made of it are marked estimated.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_COSTMODEL_HOST_OP_H_
#define MESHWRIGHT_COSTMODEL_HOST_OP_H_

#include "absl/types/span.h"
#include "ir/cluster.h"
#include "ir/kernel_work.h"
#include "ir/quantities.h"

namespace meshwright {

// Of one device to its host, each way, in large copies. 0 for the host itself, which copies nothing.
BytesPerSecond HostLinkBandwidth(const Cluster& cluster);

// `copies` are the sizes of single copies, `host` is the device that stands for the host (library.h). Where the
// cluster's device is the host itself the kernel runs there anyway, at its own price.
Nanos PriceOnHost(const KernelWork& work, absl::Span<const Bytes> copies, const Cluster& cluster, const Device& host);

}  // namespace meshwright

#endif  // MESHWRIGHT_COSTMODEL_HOST_OP_H_
