// run_gpu: run on GPUs. What `run --device=gpu` becomes.
#include <cstdio>
#include <cstdlib>

#include "tools/gpu_player.h"
#include "tools/run_main.h"

// A device that never answers again could hold up what a process does when it ends: after a failure nothing is done.
int main(int argc, char** argv) {
  const int code = meshwright::RunMain(argc, argv, meshwright::OpenGpus);
  if (code == 0) return 0;
  std::fflush(nullptr);
  std::_Exit(code);
}
