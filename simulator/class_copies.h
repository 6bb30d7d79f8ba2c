// Classes of a Program that are not written out, since they run the blocks of another: in a pipeline of alike stages
// the simulator needs of each its own slots and how many micro-batches its events tell apart, and the rest once.
//
// Thread safety: plain value.
#ifndef MESHWRIGHT_SIMULATOR_CLASS_COPIES_H_
#define MESHWRIGHT_SIMULATOR_CLASS_COPIES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace meshwright {

// All that takes a program with these reads blocks and buffers of a class `c` from the class Of(c), and takes where `c`
// is in the cluster from `c` itself. A copy has a name, a stage, slots, an arena, and as many events as that class,
// each with its sizes; its list of blocks and that of buffers are empty.
struct ClassCopies {
  // By class: the first class with its blocks, which is itself where it has its own. Empty: each has its own.
  std::vector<size_t> of;
  // By class, of copies: for how many micro-batches each buffer has room.
  std::vector<std::vector<int64_t>> microbatches;

  size_t Of(size_t c) const { return of.empty() ? c : of[c]; }
};

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_CLASS_COPIES_H_
