// How numbers are written for people and for other programs.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_NUMBERS_H_
#define MESHWRIGHT_TOOLS_NUMBERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ir/quantities.h"

namespace meshwright {

// The shortest text that reads back as the same number: "0.1", "1e+300". YAML and JSON read it.
std::string ShortestNumber(double value);
std::string ShortestNumber(float value);

// For people, three or four digits: "12.3 us", "812.3 ms", "1 h 12 min", "61.3 GiB", "1,024", "1.23 M".
std::string ShowTime(Nanos time);
std::string ShowSeconds(double seconds);  // the same; any length
std::string ShowBytes(Bytes bytes);
std::string ShowCount(int64_t count);
std::string ShowLarge(double count);       // "174.6 B", "300 B", "1.2 k"
std::string ShowPercent(double fraction);  // "47.3 %"
std::string ShowDollars(double dollars);   // "$1,234", "$12.34", "$1.23 M"

std::string ShowTuples(const std::vector<std::vector<int64_t>>& tuples);  // "((2, 4), (4, 1))"

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_NUMBERS_H_
