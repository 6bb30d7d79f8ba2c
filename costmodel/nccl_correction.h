// What NCCL's collectives take beyond NCCL's own prediction (nccl_tuner.h), from measurements.
//
// NCCL's latencies and bandwidths are right in kind, not in size: an A100 needs half as much again for small calls as
// the tables say, and a call of a few MiB, whose pipeline is neither empty nor full, takes longer than latency plus
// transfer. With L the predicted latency and X the predicted transfer time of the candidate that NCCL chooses:
//
//   between nodes    of L, the steps through the network take net_growth x min(1, S / (4 KiB blocks)) longer: the more
//                    blocks a call has, the more messages wait for the network's thread at the same time; with LL, but
//                    for what the cards add, net_growth x min(1, S / 4 KiB): the thread reads every line of 16 bytes
//                    for its flags before it sends them (src/transport/net.cc)
//   LL               base x ll_base + (L - base) x ll_step + L x ll_growth x min(1, S / (8 KiB ranks))
//                    + X max(0, 1 - ll_lines F / S): NCCL adds threads, then blocks, so that up to F (line_bytes of
//                    NcclChoice) each thread sends one line of 8 bytes a step, however many bytes there are; beyond it
//                    they take longer. Over PCIe, where links are slower than threads, and between nodes all of X;
//                    there a tree's steps inside nodes are by the factors of one node, but for growth
//   others           l + x + hump sqrt(l x),  l = scale L,  x = X / speed + copy
//                    (of sums in switches: no less than their blocks take, NcclCandidate::blocks_bus; of trees of
//                    switches nor than the cards, 2 (n - 1) / n S over n nodes, and on Blackwell their hump counts as
//                    many times as in one node; over more than 8 ranks of a node the hump is that of as many times x)
//   sums in one      l + x (1 + chunk (chunks - 1)) + fill x / (x + filled): NCCL halves the chunks of smaller calls,
//   node's switch    each costs something besides, and the pipeline is filled once
//   in the switch    of a call that pins alone put there, l of a node grows from where one with LL starts to what it is
//                    once each block and head has a chunk of 16 KiB: what it waits for is its pipelines
//   copy             the rank's own part of S, moved inside its memory: touches S / ranks / memory bandwidth
//                    (rings and trees; the switch does without)
//
// One row of constants per generation, fitted on half of the sizes of ai-dynamo/aiconfigurator's nccl-tests loops on
// one node (A100 SXM with NCCL 2.27.3, H100 SXM with 2.29.2; 2, 4 and 8 GPUs; all_reduce, all_gather, reduce_scatter);
// README.md has the errors on the other half and on tables that were not fitted.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_COSTMODEL_NCCL_CORRECTION_H_
#define MESHWRIGHT_COSTMODEL_NCCL_CORRECTION_H_

#include "costmodel/collective_cost.h"
#include "costmodel/nccl_tuner.h"
#include "ir/cluster.h"
#include "ir/quantities.h"

namespace meshwright {

// Time in us of the collective that NCCL chose, alone on its links. `latency_scale`: of everything that waits
// inside a node; between nodes the constants are those of all generations.
double CorrectedMicros(const NcclChoice& choice, Bytes size, const GroupShape& group, const Cluster& cluster,
                       double latency_scale = 1);

// Whether the constants were fitted on measurements of this kind of machine.
bool CorrectionIsMeasured(const GroupShape& group, const Cluster& cluster);

}  // namespace meshwright

#endif  // MESHWRIGHT_COSTMODEL_NCCL_CORRECTION_H_
