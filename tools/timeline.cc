#include "tools/timeline.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <new>
#include <vector>

#include "absl/strings/match.h"
#include "ir/perfetto_trace.h"
#include "zlib.h"

namespace meshwright {
namespace {

std::string Gzip(absl::string_view text) {
  constexpr int kGzip = 16;   // added to the window's bits: with gzip's header
  constexpr int kMemory = 8;  // zlib's default
  z_stream stream = {};
  // Of these arguments it can say nothing but that there is no memory.
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + kGzip, kMemory, Z_DEFAULT_STRATEGY) !=
      Z_OK) {
    throw std::bad_alloc();
  }
  std::string out;
  std::vector<char> piece(1 << 16);
  for (int state = Z_OK; state == Z_OK;) {
    const size_t size = std::min<size_t>(text.size(), std::numeric_limits<uInt>::max());
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));  // which zlib only reads
    stream.avail_in = static_cast<uInt>(size);
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    state = deflate(&stream, size == text.size() ? Z_FINISH : Z_NO_FLUSH);
    text.remove_prefix(size - stream.avail_in);
    out.append(piece.data(), piece.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  return out;
}

}  // namespace

std::string TimelineFor(absl::string_view file, const Trace& trace, const Program& program) {
  if (absl::EndsWith(file, ".pftrace")) return ToPerfetto(trace, program);
  std::string json = ToChromeJson(trace, program);
  return absl::EndsWith(file, ".gz") ? Gzip(json) : json;
}

}  // namespace meshwright
