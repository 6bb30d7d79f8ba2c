// What tests and benchmarks of the simulator need: prices by name, pipelines made by hand, random programs, and a
// second player so plain that it can be believed. For tests only.
#ifndef MESHWRIGHT_SIMULATOR_TESTING_H_
#define MESHWRIGHT_SIMULATOR_TESTING_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ir/program.h"
#include "ir/quantities.h"
#include "ir/strategy.h"
#include "simulator/price.h"

namespace meshwright {

// Every instruction costs `time` (a Sync nothing) and takes nothing of the device.
Prices UnitPrices(const Program& program, Nanos time = Millis(1));
// The price of each instruction by its origin; 0 for one that is not listed.
Prices PricesByOrigin(const Program& program, const std::map<std::string, InstructionPrice>& prices);

// A kernel, slowed down by what communication takes of the multiprocessors.
InstructionPrice KernelPrice(Nanos time);
// Communication that takes these shares (0 .. 1) of the multiprocessors and of the node's links.
InstructionPrice CommunicationPrice(Nanos time, double multiprocessors, double links);

struct PipelineOptions {
  int64_t stages = 2;
  int64_t microbatches = 4;
  int64_t layers = 1;            // per stage
  int64_t instructions = 1;      // kernels of one layer's forward block, all with origin "F"; backward: "B"
  int64_t collective_every = 0;  // every so many kernels a collective on the compute stream, origin "T"; 0: none
  Schedule schedule = Schedule::kOneFOneB;
  bool optimizer = false;  // gradient all-reduce on the comm stream (origin "R"), then AdamW (origin "U")
};
// A pipeline as planner/ would lower it: forward and backward blocks of one layer, receives and sends (origin "X") on
// streams of their own with the waits that these need. Buffers of 256 bytes per layer: a parameter, its gradient, and
// an activation per micro-batch that is kept from the forward to the backward pass.
Program MakePipeline(const PipelineOptions& options);
// With a reduction more on the comm stream of a stage that is not the last, origin "Z", once the forward pass of the
// `back`th micro-batch from the end is done there.
Program WithLateReduction(Program pipeline, size_t stage, int64_t back);

// Random streams, events, folds and transfers that cannot deadlock, on 1 to `most_stages` classes of so many ranks.
// Buffers mean nothing.
Program RandomProgram(uint32_t seed, int64_t most_stages = 3, int64_t ranks_per_stage = 2);
// A program with a class for each rank, and its prices repeated: rank r of class c is class c x ranks + r, and sends to
// its like of the peer.
Program WithClassPerRank(const Program& program);
Prices WithClassPerRank(const Program& program, const Prices& prices);
// Random times and shares, some of them 0.
Prices RandomPrices(const Program& program, uint32_t seed);

// The rules of ir/program.h and simulator/price.h, with no regard for speed: every issued instruction is an entry of a
// list, and from moment to moment the whole list is asked what could begin. No error handling.
struct PlainTimes {
  struct Entry {
    size_t class_index, slot;
    int64_t layer;
    size_t instruction;
    Nanos begin, end;
  };
  std::vector<Entry> entries;  // by class, in issue order
  Nanos makespan;
};
PlainTimes PlayPlainly(const Program& program, const Prices& prices);

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_TESTING_H_
