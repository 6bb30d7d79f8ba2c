// The group file (S16.4): which ranks communicate, and who can give back a lost rank's checkpoint.
//
//   {
//     "groups": [
//       {"name": "4-11795743325248501408", "ranks": [0, 1, 2, 3]}
//     ],
//     "restore_lists": [
//       [0, 4]
//     ]
//   }
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_PLANNER_GROUP_FILE_H_
#define MESHWRIGHT_PLANNER_GROUP_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ir/program.h"

namespace meshwright {

struct GroupFile {
  std::vector<std::vector<int64_t>> groups;  // of all collectives, each once; the order of the ranks counts
  // Ranks with identical parameters and optimizer state. Every rank is in one list.
  std::vector<std::vector<int64_t>> restore_lists;

  // That of `rank`.
  const std::vector<int64_t>& RestoreListOf(int64_t rank) const;
};

// Ascending in both lists.
GroupFile GroupFileOf(const Program& program);
std::string ToJson(const GroupFile& file);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_GROUP_FILE_H_
