// Runs fn(0) .. fn(n - 1), each once, on `threads` threads (0: as many as cores). `fn` writes results by index, so that
// they do not depend on the number of threads.
#ifndef MESHWRIGHT_PLANNER_SEARCH_PARALLEL_FOR_H_
#define MESHWRIGHT_PLANNER_SEARCH_PARALLEL_FOR_H_

#include <cstddef>
#include <functional>

namespace meshwright {

void ParallelFor(size_t n, int threads, const std::function<void(size_t)>& fn);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_PARALLEL_FOR_H_
