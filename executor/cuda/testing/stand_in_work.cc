#include "executor/cuda/testing/stand_in_work.h"

#include <cstring>

namespace meshwright::cuda::testing {

std::string Enter(const Access& access, size_t stream, const VectorClock& clock,
                  std::map<std::byte*, Allocation>& allocations) {
  if (access.bytes == 0) return "";
  auto found = allocations.upper_bound(const_cast<std::byte*>(access.data));
  if (found == allocations.begin()) return "memory that is not allocated";
  --found;
  const int64_t begin = access.data - found->second.data;
  if (begin + access.bytes > found->second.size) return "memory that is not allocated";
  return found->second.shadow.Access(begin, begin + access.bytes, access.write, stream, clock.time[stream], clock);
}

void CopyBytes(const std::byte* from, std::byte* to, int64_t size) {
  if (size == 1) {
    __atomic_store_n(reinterpret_cast<uint8_t*>(to), static_cast<uint8_t>(*from), __ATOMIC_RELEASE);
  } else {
    std::memmove(to, from, static_cast<size_t>(size));
  }
}

}  // namespace meshwright::cuda::testing
