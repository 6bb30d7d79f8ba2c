// measure_gpu: what `measure --device=gpu` becomes.
#include "tools/gpu_player.h"
#include "tools/measure/measure_main.h"

int main(int argc, char** argv) { return meshwright::MeasureMain(argc, argv, meshwright::OpenGpus); }
