// What kernels cost that not all ranks of a class run: one rank's timeline stands for the class.
#ifndef MESHWRIGHT_SIMULATOR_SINGLE_RANKS_H_
#define MESHWRIGHT_SIMULATOR_SINGLE_RANKS_H_

#include <cstdint>
#include <vector>

#include "ir/program.h"
#include "simulator/price.h"

namespace meshwright {

// Of kernels on buffers that single ranks own, those of the rank with the most work count; the others run beside it.
// `blocks`: the prices of each block's instructions.
void KeepBusiestOwner(const RankClass& rank_class, std::vector<std::vector<InstructionPrice>>& blocks);

// Of kernels that a rank runs for each layer in turn (Turn in ir/program.h), those of all layers take what they take
// the rank with the most work; in each layer they have their part of it.
void ShareTurns(const RankClass& rank_class, int64_t ranks, std::vector<std::vector<InstructionPrice>>& blocks);

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_SINGLE_RANKS_H_
