// What a user may want to know about the program that was chosen: gradients_mean that scales parameters differently
// (S8.4), entries of an index list that name no gradient (S10.4), parameters that the parallel optimizer leaves whole
// (S11.4).
//
// Thread safety: pure function.
#ifndef MESHWRIGHT_PLANNER_SEARCH_NOTES_H_
#define MESHWRIGHT_PLANNER_SEARCH_NOTES_H_

#include <string>
#include <vector>

#include "ir/program.h"
#include "ir/strategy.h"

namespace meshwright {

std::vector<std::string> NotesOn(const Program& program, const Strategy& strategy);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_NOTES_H_
