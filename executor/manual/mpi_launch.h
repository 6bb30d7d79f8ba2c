// Lets Launch of executor/manual/launch.h run under mpirun. Apart from it, so that only programs that ask for MPI need
// its library.
//
//   Launch({.join_mpi = JoinWithMpi()}, Train);
#ifndef MESHWRIGHT_EXECUTOR_MANUAL_MPI_LAUNCH_H_
#define MESHWRIGHT_EXECUTOR_MANUAL_MPI_LAUNCH_H_

#include "absl/time/time.h"
#include "executor/manual/context.h"

namespace meshwright::manual {

// `deadline`: how long a rank waits for another before it gives up.
Join JoinWithMpi(absl::Duration deadline = absl::Minutes(2));

}  // namespace meshwright::manual

#endif  // MESHWRIGHT_EXECUTOR_MANUAL_MPI_LAUNCH_H_
