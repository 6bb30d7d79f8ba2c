#include "executor/host/testing.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>

namespace meshwright {

// With SO_REUSEADDR on both sockets a port may be bound twice, as long as one of them does not listen.
ReservedPort::ReservedPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int on = 1;
  setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(socket_.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)) == 0) return;
  std::perror("no port can be reserved");
  std::abort();
}

}  // namespace meshwright
