// How far apart the ranks' own values of a parameter have drifted (S17.2): of a program that is split by hand, where
// nothing but its author keeps them equal.
#ifndef MESHWRIGHT_EXECUTOR_SPREAD_H_
#define MESHWRIGHT_EXECUTOR_SPREAD_H_

#include <string>
#include <vector>

#include "executor/runner.h"
#include "ir/program.h"

namespace meshwright {

struct Spread {
  std::string parameter;
  double spread;  // over its elements, the largest difference between two ranks
};

// Whether ranks have values of their own of a trainable parameter (Initializer::by_rank).
bool HasSpread(const Program& program);

// Of those parameters, in the order of the program. `result` must hold the parameters (RunOptions::keep_parameters).
std::vector<Spread> SpreadByRank(const Program& program, const RunResult& result);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_SPREAD_H_
