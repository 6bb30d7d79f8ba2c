// What the CPU that issues a block, and a framework that runs collectives beside something else, change in the block's
// prices. Private to the library of price.h. `groups`: by instruction, of collectives how their groups lie on nodes.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_SIMULATOR_KEEP_PACE_H_
#define MESHWRIGHT_SIMULATOR_KEEP_PACE_H_

#include <vector>

#include "ir/mesh.h"
#include "ir/program.h"
#include "ir/quantities.h"
#include "simulator/price.h"

namespace meshwright {

// Makes the kernels of the block last as long as issuing all of it takes, where that is longer than running it; blocks
// of the optimizer are left alone. `launch`: to issue a kernel from compiled code.
//
// Where the CPU waits for counts (ExpertPace::waits), it runs ahead from there on only: what is issued behind starts no
// sooner than issuing has come to it.
//
//   block        a b S c d      S: tokens leave for their experts
//   from S on    S c d a b      the next layer's a and b, or the block's own, follow without a wait
void KeepPace(const Block& block, const RankClass& rank_class, const Mesh& mesh, const HostPace& host, Nanos launch,
              std::vector<InstructionPrice>* prices);

// Repeats activations' collectives for each matrix whose product reads what was gathered, or made the gradient that is
// scattered or summed (HostPace::gathers_each).
void GatherEach(const Block& block, const RankClass& rank_class, const Mesh& mesh,
                std::vector<InstructionPrice>* prices);

// Leaves of activations' collectives inside a node what the products that read or make them do not cover, a piece at
// least (HostPace::overlaps_products).
void OverlapProducts(const Block& block, const std::vector<GroupShape>& groups, std::vector<InstructionPrice>* prices);

// Leaves of the all-to-alls of tokens what the kernels of another micro-batch do not cover: as many as the block has
// itself, since forward and backward passes of two micro-batches alternate. Kernels lack the multiprocessors that an
// all-to-all beside them takes: `share` of them, in kWhole-ths, or by their price where it is 0.
void OverlapExperts(const Block& block, int32_t share, std::vector<InstructionPrice>* prices);

// Leaves `share` of the time of the all-to-alls of tokens that cross nodes.
void SendShare(const Block& block, const std::vector<GroupShape>& groups, double share,
               std::vector<InstructionPrice>* prices);

// Of two all-to-alls of the same tokens, over the network and inside the node, the shorter is taken to run beside the
// other: kernels that do both at once pass a token on as it comes (DeepEP's internode kernels).
void JoinDispatches(const Block& block, const std::vector<GroupShape>& groups, std::vector<InstructionPrice>* prices);

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_KEEP_PACE_H_
