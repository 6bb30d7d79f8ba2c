// How numbers, quantities with units and names are written in files and flags, and what is said about them in errors.
//
// The readers here are strict, because a number that is guessed wrong costs a training run: no leading zeros (010 is
// 8 to some readers and 10 to others), no underscores, no trailing letters, no "1e3" for an integer, no nan or inf, and
// no quantity without its unit. Every error has the form `found X, wanted Y; remedy`; whoever knows the place puts it
// in front (ir/document.h for files: `file:line:column: field.path: `).
//
// Errors: absl::InvalidArgumentError. Thread safety: pure functions.
#ifndef MESHWRIGHT_IR_TEXT_H_
#define MESHWRIGHT_IR_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/quantities.h"

namespace meshwright {

// An integer from `min` to `max`: an optional minus sign and decimal digits.
absl::StatusOr<int64_t> ParseInt(absl::string_view text, int64_t min = std::numeric_limits<int64_t>::min(),
                                 int64_t max = std::numeric_limits<int64_t>::max());

// A finite number from `min` to `max`: "0.9", "-3", "1e-5". Digits are needed on both sides of a point.
absl::StatusOr<double> ParseDouble(absl::string_view text, double min = std::numeric_limits<double>::lowest(),
                                   double max = std::numeric_limits<double>::max());

// "300e9", or with K, M, B or T behind it for 1e3 to 1e12: "300B". At least 1.
absl::StatusOr<double> ParseAmount(absl::string_view text);

// What a quantity measures. Its units are the rows of kUnits in text.cc; k, M, G, T, P, E are powers of ten, Ki, Mi,
// Gi, Ti, Pi powers of two, B a byte and b a bit.
enum class UnitKind : uint8_t {
  kBytes,           // "80 GB", "40 GiB"                  base unit: byte
  kBytesPerSecond,  // "450 GB/s", "400 Gb/s"             byte per second
  kTime,            // "10 us", "2.5 h"                   second
  kFlops,           // "6.3 TFLOP"                        operation
  kFlopsPerSecond,  // "312 TFLOP/s"                      operation per second
  kFrequency,       // "1.98 GHz"                         hertz
  kPower,           // "700 W"                            watt
  kPrice,           // "2.5 USD/h"                        US dollar per hour
};

// A quantity in the base unit of its kind: a number, optional spaces, a unit: "450 GB/s", "80GB". Never negative;
// rates, frequency and power are not zero either. A number without a unit is an error that says which unit to write.
absl::StatusOr<double> ParseQuantity(absl::string_view text, UnitKind kind);

// The same as typed quantities. Sizes and times are rounded to the nearest byte and nanosecond; one that is not zero
// but would round to zero, or does not fit 62 bits, is an error.
absl::StatusOr<Bytes> ParseBytes(absl::string_view text);
absl::StatusOr<Nanos> ParseNanos(absl::string_view text);

// The one form of an error: `found X, wanted Y; remedy`, without the last part if `remedy` is empty.
absl::Status WrongInput(absl::string_view found, absl::string_view wanted, absl::string_view remedy = "");

// `text` in double quotes for a message: escaped, and cut after some 60 characters.
std::string QuoteForMessage(absl::string_view text);

// Whether `name` is safe in messages and as a file name: letters, digits, `_ - . /` only, none of the parts between
// slashes empty or of dots alone, at most 128 characters.
absl::Status CheckName(absl::string_view name);

// The name nearest to `name` in edit distance (letter case counts little): at most a third of the letters may differ.
// Of equally near ones the first. Where none is so near, one that shares its words: "batch" for "global_batch_size",
// "learning_rate" for "lr". "" where there is no guess worth making.
absl::string_view NearestName(absl::string_view name, absl::Span<const absl::string_view> names);

// "a, b, c": for messages. Only the first 24, then how many there are.
std::string ListNames(absl::Span<const absl::string_view> names);

// `name` is not in `names`: `found "leyers", wanted one of hidden, layers; did you mean "layers"?`.
absl::Status UnknownName(absl::string_view name, absl::Span<const absl::string_view> names);

// `text` as a YAML scalar on one line that reads back as the same text: as it is where that is safe, else in double
// quotes. Bytes that are not UTF-8 become U+FFFD.
std::string QuoteYaml(absl::string_view text);

// The first character of a UTF-8 text. `length` is 0 if the text does not begin with a whole, valid one.
struct Utf8Char {
  uint32_t code = 0;
  size_t length = 0;
};
Utf8Char ReadUtf8(absl::string_view text);

// A control character other than newline and tab: no text that we read has one, since it could rewrite a terminal.
bool IsControl(uint32_t code);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_TEXT_H_
