// run_gpu_mpi: run on GPUs, a process of an MPI job for each, started by `mpirun -np N run --device=gpu ...`.
#include "tools/gpu_player.h"
#include "tools/run_main.h"

int main(int argc, char** argv) { return meshwright::RunMpiMain(argc, argv, meshwright::OpenGpus); }
