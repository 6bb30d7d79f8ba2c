// Blocks of a program that cost the same, so that one of them is priced for all: those of stages that have the same
// layers, and those of a stage's chunks.
//
// Two blocks are alike where all is equal that a price depends on: the phase; the work and stream of each instruction;
// type, shape, layout and role of each operand; and where the class's first rank stands in its node, which groups
// depend on. A block with transfers, permutes or buffers of single ranks is like no other, as what these cost depends
// on the class.
//
// Lifetime: that of the program. Size: a row for each distinct block. Thread safety: none.
#ifndef MESHWRIGHT_SIMULATOR_ALIKE_BLOCKS_H_
#define MESHWRIGHT_SIMULATOR_ALIKE_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "ir/program.h"
#include "simulator/class_copies.h"

namespace meshwright {

class AlikeBlocks {
 public:
  AlikeBlocks(const Program& program, const ClassCopies& copies, int64_t devices_per_node)
      : program_(program), copies_(copies), devices_per_node_(devices_per_node), kinds_(program.classes.size()) {}

  struct Place {
    size_t class_index = 0, block = 0;
  };
  // The first block like this one that was asked for; nothing where this is the first.
  std::optional<Place> FindOrNote(const Place& place);

 private:
  const Block& BlockAt(const Place& place) const {
    return program_.classes[copies_.Of(place.class_index)].blocks[place.block];
  }
  bool AreAlike(const Place& a, const Place& b) const;
  // By buffer of a class, which is no copy: a number that it has in common with those that cost the same.
  const std::vector<int32_t>& KindsOf(size_t c);
  int32_t KindOf(const Buffer& buffer);

  const Program& program_;
  const ClassCopies& copies_;
  const int64_t devices_per_node_;
  std::vector<std::vector<int32_t>> kinds_;              // by class, as far as they were asked for
  std::vector<const Buffer*> of_kind_;                   // one of each
  std::map<uint64_t, std::vector<int32_t>> kinds_seen_;  // by what is quick to see
  std::map<uint64_t, std::vector<Place>> seen_;          // by what is quick to see
};

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_ALIKE_BLOCKS_H_
