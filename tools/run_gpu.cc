// run_gpu: run on GPUs. What `run --device=gpu` becomes.
#include "tools/gpu_player.h"
#include "tools/run_main.h"

int main(int argc, char** argv) { return meshwright::RunMain(argc, argv, meshwright::OpenGpus); }
