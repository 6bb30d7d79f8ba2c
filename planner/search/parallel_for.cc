#include "planner/search/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace meshwright {

void ParallelFor(size_t n, int threads, const std::function<void(size_t)>& fn) {
  const size_t wanted = threads > 0 ? static_cast<size_t>(threads) : std::max(1u, std::thread::hardware_concurrency());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < n; i = next++) fn(i);
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < std::min(n, wanted); ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
}

}  // namespace meshwright
