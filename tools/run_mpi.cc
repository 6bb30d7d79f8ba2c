// run_mpi: run with ranks as processes of an MPI job, started by `mpirun -np N run ...`.
#include "tools/host_player.h"
#include "tools/run_main.h"

int main(int argc, char** argv) { return meshwright::RunMpiMain(argc, argv, meshwright::OpenHost); }
