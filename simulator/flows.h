// Messages over a network whose links they share: each message runs at its max-min fair rate.
//
// A network is links and routes over them; traffic is trains of equal messages, which is what collectives are made of:
// in a ring all-reduce over n ranks each rank sends 2 (n - 1) messages to its neighbour, and may send the next one when
// it has received the one before. A train is stored once, whatever its number of messages, so a ring of n ranks takes
// n trains and not 2 n (n - 1) flows.
//
//   FlowNetwork network;
//   for (...) network.links.push_back(GBps(50));
//   for (...) network.routes.push_back({{out, in}, Micros(2)});
//   MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TrainTimes> times, PlayTrains(network, trains));
//
// Rates are max-min fair: no message can go faster without slowing down one that is not faster than it (progressive
// filling; Bertsekas and Gallager, Data Networks, 6.5.2). They change whenever a message begins or ends, and only those
// are looked at that share a link, over whatever chain of links, with it; a message that has its links to itself is
// one addition. Everything that happens at one nanosecond is one event.
//
// Cost: proportional to the number of messages, times the size of the set that shares links where they are shared.
// Memory: proportional to links, routes and trains, not messages.
// Thread safety: pure functions.
#ifndef MESHWRIGHT_SIMULATOR_FLOWS_H_
#define MESHWRIGHT_SIMULATOR_FLOWS_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/quantities.h"

namespace meshwright {

struct FlowRoute {
  absl::InlinedVector<int32_t, 4> links;  // indices into FlowNetwork::links, each at most once; not empty
  Nanos latency;                          // from a message's last byte leaving to its arrival
};

struct FlowNetwork {
  std::vector<BytesPerSecond> links;  // one direction each
  std::vector<FlowRoute> routes;
};

// `count` messages of `size` over one route, one after the other. Message 0 leaves at `begin`, once train `after`, if
// there is one, has arrived; message i > 0 when message i - 1 has left, and message i - 1 of train `feeder`, if there
// is one, has arrived.
struct Train {
  int32_t route = 0;
  Bytes size = {};
  int64_t count = 1;
  Nanos begin = {};
  int32_t after = -1;
  int32_t feeder = -1;
};

struct TrainTimes {
  Nanos begin;  // the first message leaves
  Nanos end;    // the last one has arrived

  friend bool operator==(const TrainTimes&, const TrainTimes&) = default;
};

// times[i] are those of trains[i]. Whole nanoseconds; a message's end is rounded up.
//
// kInvalidArgument: an index is out of range, a link has no bandwidth, a size, time or latency is negative, a count is
// below 1, or a feeder has too few messages. kFailedPrecondition: trains wait for each other; the message names one.
absl::StatusOr<std::vector<TrainTimes>> PlayTrains(const FlowNetwork& network, absl::Span<const Train> trains);

// Max-min fair rates of one message on each of `routes`, all at once: for steady states.
// REQUIRES: indices in range, links of positive bandwidth.
std::vector<BytesPerSecond> FairRates(const std::vector<BytesPerSecond>& links, absl::Span<const FlowRoute> routes);

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_FLOWS_H_
