// How far apart the ranks' own copies of a parameter have drifted (S17.2): of a program that is split by hand, where
// nothing but its author keeps them equal.
#ifndef MESHWRIGHT_EXECUTOR_COPIES_H_
#define MESHWRIGHT_EXECUTOR_COPIES_H_

#include <string>
#include <vector>

#include "executor/runner.h"
#include "ir/program.h"

namespace meshwright {

struct Spread {
  std::string parameter;
  double spread;  // over its elements, the largest difference between two ranks
};

// Whether ranks have parameters of their own, drawn alike (Initializer::copies).
bool HasCopies(const Program& program);

// Of those parameters, in the order of the program. `result` must hold the parameters (RunOptions::keep_parameters).
std::vector<Spread> SpreadOfCopies(const Program& program, const RunResult& result);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_COPIES_H_
