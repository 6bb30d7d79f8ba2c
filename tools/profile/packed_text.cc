#include "tools/profile/packed_text.h"

#include <algorithm>
#include <limits>
#include <new>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/text.h"

namespace meshwright {

bool IsPacked(absl::string_view bytes) { return absl::StartsWith(bytes, "\x1f\x8b"); }

PackedText::PackedText(absl::string_view bytes, size_t most)
    : rest_(bytes), packed_(IsPacked(bytes)), most_(most), piece_(1 << 16) {
  constexpr int kGzip = 16;  // added to the window's bits: with gzip's header
  // Of these arguments it can say nothing but that there is no memory.
  if (packed_ && inflateInit2(&stream_, MAX_WBITS + kGzip) != Z_OK) throw std::bad_alloc();
}

PackedText::~PackedText() {
  if (packed_) inflateEnd(&stream_);
}

PackedText::int_type PackedText::underflow() {
  if (gptr() == egptr() && !done_) Fill();
  return gptr() == egptr() ? traits_type::eof() : traits_type::to_int_type(*gptr());
}

// The next piece of the text; none at its end.
void PackedText::Fill() {
  const size_t capacity = piece_.size();
  size_t size = 0;
  if (!packed_) {
    size = std::min(capacity, rest_.size());
    std::copy_n(rest_.begin(), size, piece_.begin());
    rest_.remove_prefix(size);
    done_ = rest_.empty();
  }
  while (size == 0 && !done_) {
    const size_t given = std::min<size_t>(rest_.size(), std::numeric_limits<uInt>::max());
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest_.data()));  // which zlib only reads
    stream_.avail_in = static_cast<uInt>(given);
    stream_.next_out = reinterpret_cast<Bytef*>(piece_.data());
    stream_.avail_out = static_cast<uInt>(capacity);
    const int state = inflate(&stream_, Z_NO_FLUSH);
    rest_.remove_prefix(given - stream_.avail_in);
    size = capacity - stream_.avail_out;
    if (state == Z_STREAM_END) {
      // An archive may follow another; what else follows is no text.
      done_ = !IsPacked(rest_) || inflateReset(&stream_) != Z_OK;
    } else if (state != Z_OK) {
      done_ = true;
      status_ = state == Z_BUF_ERROR
                    ? WrongInput("the end of the file within packed text", "the whole file", "copy it again")
                    : WrongInput("packed text that is damaged", "a file as gzip writes it", "copy it again");
    }
  }
  unpacked_ += size;
  if (unpacked_ > most_) {
    size = 0;
    done_ = true;
    status_ = WrongInput(absl::StrCat("more than ", most_, " bytes of text"), "a shorter one",
                         "profile fewer steps, without stacks and shapes");
  }
  setg(piece_.data(), piece_.data(), piece_.data() + size);
}

}  // namespace meshwright
