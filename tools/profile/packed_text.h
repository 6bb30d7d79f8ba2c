// The text of a file that may be in gzip's format (RFC 1952), unpacked while it is read: never whole in memory.
//
//   PackedText text(bytes, most);
//   std::istream stream(&text);
//   ...                          // reads to the end, or to where it could not go on
//   text.status();
//
// Ownership: `bytes` must outlive it. Thread safety: one thread at a time.
#ifndef MESHWRIGHT_TOOLS_PROFILE_PACKED_TEXT_H_
#define MESHWRIGHT_TOOLS_PROFILE_PACKED_TEXT_H_

#include <cstddef>
#include <streambuf>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "zlib.h"

namespace meshwright {

// Whether a file begins as an archive of gzip does.
bool IsPacked(absl::string_view bytes);

class PackedText : public std::streambuf {
 public:
  // Text beyond `most` bytes is not unpacked. Bytes that are not packed are the text themselves.
  PackedText(absl::string_view bytes, size_t most);
  ~PackedText() override;
  PackedText(const PackedText&) = delete;
  PackedText& operator=(const PackedText&) = delete;

  // Why the text ended before its end; kInvalidArgument, without the file: damaged, cut short, more than `most`.
  const absl::Status& status() const { return status_; }

 protected:
  int_type underflow() override;

 private:
  void Fill();

  absl::string_view rest_;  // not yet handed to zlib
  const bool packed_;
  const size_t most_;
  size_t unpacked_ = 0;
  bool done_ = false;
  z_stream stream_ = {};
  std::vector<char> piece_;
  absl::Status status_;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_PROFILE_PACKED_TEXT_H_
