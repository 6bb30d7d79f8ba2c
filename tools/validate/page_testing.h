// The tables of pages, for tests that hold them to what the program says.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_PAGE_TESTING_H_
#define MESHWRIGHT_TOOLS_VALIDATE_PAGE_TESTING_H_

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace meshwright {

// The lines of the page's first table whose header begins so; nothing where it has none.
inline std::vector<std::string> LinesUnder(const char* page, absl::string_view header) {
  std::ifstream in(page);
  std::vector<std::string> lines;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (absl::StartsWith(line, header)) {
      inside = true;
      std::getline(in, line);  // the rule under it
    } else if (inside && !absl::StartsWith(line, "|")) {
      break;
    } else if (inside) {
      lines.push_back(line);
    }
  }
  return lines;
}

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_PAGE_TESTING_H_
