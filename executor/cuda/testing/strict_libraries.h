// The CUDA runtime, cuBLASLt and NCCL, as far as real_driver.cc and real_products.cc call them: the functions
// themselves, on host memory, so that these files are run where there is no GPU. They do little work, and are strict:
// what the libraries' documentation forbids is noted in `broken_rules`. Each rule says there where it stands.
//
//   cudaGetLastError   keeps an error that was returned until it is asked, "not ready" among them
//   capture            no allocation and no query by the thread that captures; timed events as nodes of the graph; no
//                      wait for what was recorded outside; all streams joined at the end
//   communicators      do not block: nothing is called on one before it has said ncclSuccess since the last call; one
//                      thread at a time; aborts of one thread together, each once
//
// A collective hands each rank what it gave itself: numbers mean nothing.
//
// Thread safety: as of the libraries; the functions here from any thread.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_TESTING_STRICT_LIBRARIES_H_
#define MESHWRIGHT_EXECUTOR_CUDA_TESTING_STRICT_LIBRARIES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace meshwright::cuda::testing {

struct LibraryOptions {
  int devices = 8;
  int driver = 13000, runtime = 13000, nccl = 22809;
  // What the heuristic gives for each product, by number: whether its state is good, and whether it can be launched.
  std::vector<bool> good = {true}, launches = {true};
  bool hangs = false;             // no event ever happens
  bool refuses_captured = false;  // the second call of NCCL in each capture
  int64_t failing_split = -1;     // the n-th communicator that is split off: ncclInternalError from its n-th group on
  int64_t fails_at = 0;
};

struct LibraryCounts {
  int64_t captures = 0, graphs = 0, polls = 0, groups = 0, aborted = 0, communicators = 0;
  std::vector<int64_t> products;  // launched, by number of the algorithm
};

// Forgets everything, and begins anew with these.
void ResetLibraries(const LibraryOptions& options = {});
std::vector<std::string> BrokenRules();
LibraryCounts CountsOfLibraries();

}  // namespace meshwright::cuda::testing

#endif  // MESHWRIGHT_EXECUTOR_CUDA_TESTING_STRICT_LIBRARIES_H_
