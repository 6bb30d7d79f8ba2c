#include "tools/profile/profile_testing.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "zlib.h"

namespace meshwright {

std::string ProfileEvent(absl::string_view category, absl::string_view name, absl::string_view begin,
                         absl::string_view duration, int stream, absl::string_view args) {
  return absl::StrCat(R"({"ph": "X", "cat": ")", category, R"(", "name": ")", name, R"(", "pid": 0, "tid": )", stream,
                      R"(, "ts": )", begin, duration.empty() ? "" : R"(, "dur": )", duration,
                      R"(, "args": {"External id": 12, "device": 0, "stream": )", stream, args, "}}");
}

std::string ProfileText(const std::vector<std::string>& events) {
  return absl::StrCat(R"({
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84942979072}],
  "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 8, "pg_config": [{"pg_name": "0", "rank": 5}]},
  "displayTimeUnit": "ms",
  "traceEvents": [
)",
                      absl::StrJoin(events, ",\n"), R"(
  ],
  "traceName": "trace.json"
}
)");
}

std::string PackedAsGzip(const std::string& text) {
  z_stream stream = {};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    return "";
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));  // which zlib only reads
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace meshwright
