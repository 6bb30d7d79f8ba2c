// measure: see tools/measure/measure_main.h. On GPUs it becomes measure_gpu, which lies beside it.
#include "tools/become.h"
#include "tools/host_player.h"
#include "tools/measure/measure_main.h"

int main(int argc, char** argv) {
  if (meshwright::WantsGpu(meshwright::MeasureCommandLine().flags, argc, argv)) {
    return meshwright::BecomeForGpus("measure", "_gpu", argv);
  }
  return meshwright::MeasureMain(argc, argv, meshwright::OpenHost);
}
