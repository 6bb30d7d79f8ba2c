#include "executor/manual/mpi_launch.h"

#include <memory>
#include <utility>

#include "executor/host/mpi.h"
#include "ir/error_kind.h"

namespace meshwright::manual {

Join JoinWithMpi(absl::Duration deadline) {
  return [deadline]() -> absl::StatusOr<std::shared_ptr<Endpoint>> {
    absl::StatusOr<std::unique_ptr<MpiWorld>> world = MpiWorld::Join();
    if (!world.ok()) return LaunchError("init: ", world.status().message());
    (*world)->set_deadline(deadline);
    return std::shared_ptr<Endpoint>(*std::move(world));
  };
}

}  // namespace meshwright::manual
