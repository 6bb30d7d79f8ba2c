// For tests of jobs over sockets.
#ifndef MESHWRIGHT_EXECUTOR_HOST_TESTING_H_
#define MESHWRIGHT_EXECUTOR_HOST_TESTING_H_

#include "executor/host/socket_frames.h"

namespace meshwright {

// A port of the loopback address that is this test's own: while this lives the system gives it to nobody, neither to
// who asks for any free port nor to the own end of a connection, and one process can listen there as ListenAt does. A
// port that was free a moment ago would be anybody's.
class ReservedPort {
 public:
  ReservedPort();
  int number() const { return OwnAddress(socket_).port; }

 private:
  const OwnedFd socket_;  // bound, and does not listen
};

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_HOST_TESTING_H_
