// Ranks on the host. See tools/run_main.h.
#ifndef MESHWRIGHT_TOOLS_HOST_PLAYER_H_
#define MESHWRIGHT_TOOLS_HOST_PLAYER_H_

#include "executor/host/run_on_endpoint.h"
#include "executor/host/run_on_threads.h"
#include "tools/run_main.h"

namespace meshwright {

inline absl::StatusOr<RankPlayer> OpenHost() {
  RankPlayer player;
  player.threads = RunOnThreads;
  player.process = RunOnEndpoint;
  return player;
}

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_HOST_PLAYER_H_
