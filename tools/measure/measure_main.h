// measure: calibrates the cost model on the machine at hand, or lays it beside a log of nccl-tests.
//
//   measure --out=my_machine.yaml      FILE is a cluster file; beside it FILE's name with .csv (every sample) and, of
//                                      each collective, with .all_reduce.2.log (the form of nccl-tests)
//
// Kernels run on one rank, collectives on groups of ranks: threads, or, where a launcher has left its variables
// (tools:launch, torchrun, srun), the processes of that job, which then measures collectives alone.
//
// Thread safety: called once, from main.
#ifndef MESHWRIGHT_TOOLS_MEASURE_MEASURE_MAIN_H_
#define MESHWRIGHT_TOOLS_MEASURE_MEASURE_MAIN_H_

#include "tools/command.h"
#include "tools/run_main.h"

namespace meshwright {

Command MeasureCommandLine();
int MeasureMain(int argc, char** argv, const OpenPlayer& open);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_MEASURE_MEASURE_MAIN_H_
