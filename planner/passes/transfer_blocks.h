// The blocks by which a value crosses from one part of the pipeline to another, and the events that order them. Used by
// split_stages.
//
// `what` names the value and its way in names and origins: "layers/stream 1->2". `buffer` is the class's own, and the
// events have an instance for each micro-batch that it has room for. No slot plays the blocks yet.
//
// Thread safety: none; each changes the class that it is given.
#ifndef MESHWRIGHT_PLANNER_PASSES_TRANSFER_BLOCKS_H_
#define MESHWRIGHT_PLANNER_PASSES_TRANSFER_BLOCKS_H_

#include <cstdint>
#include <string>

#include "ir/program.h"

namespace meshwright {

// Between parts of one stage: a copy.
BlockId AddTurn(RankClass& c, const std::string& what, Phase phase, BufferId from, Operand to);

struct SendBlocks {
  BlockId await_sent;  // before the pass that makes the value: what it overwrites must have left
  BlockId send;        // behind it
};
SendBlocks AddSend(RankClass& c, const std::string& what, Phase phase, BufferId buffer, int32_t stage_offset);

struct ReceiveBlocks {
  BlockId receive;
  BlockId arrival;  // before the pass that reads it, where some receives are issued `early`; or else invalid
  BlockId release;  // behind the last pass that reads it
};
ReceiveBlocks AddReceive(RankClass& c, const std::string& what, Phase phase, Phase of_release, BufferId buffer,
                         int32_t stage_offset, bool early);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_TRANSFER_BLOCKS_H_
