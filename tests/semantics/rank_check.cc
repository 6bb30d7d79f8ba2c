// One process of a job of eight that F02, F04 and F05 start: checks what it is told to, prints "rank R of N: ok".
//
//   rank_check values|groups|derivatives SEED
#include <cstdio>
#include <cstdlib>
#include <string>

#include "executor/manual/launch.h"
#include "executor/manual/mpi_launch.h"
#include "tests/semantics/worked_collectives.h"

int main(int argc, char** argv) {
  using namespace meshwright::manual;  // a program of one page
  if (argc != 3) return 2;
  const std::string what = argv[1];
  const absl::Status status = Launch({.join_mpi = JoinWithMpi()}, [&](Context& context) -> absl::Status {
    const absl::Status checked = what == "values"   ? CheckWorkedValues(context)
                                 : what == "groups" ? CheckGroups(context)
                                                    : CheckDerivatives(context, std::strtoull(argv[2], nullptr, 10));
    if (!checked.ok()) return checked;
    std::printf("rank %d of %d: ok\n", static_cast<int>(context.GetRank().value()),
                static_cast<int>(context.GetGroupSize().value()));
    return absl::OkStatus();
  });
  if (!status.ok()) std::printf("%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
