// What `import` makes of a file: text of ours, and what whoever reads it should know.
//
// Thread safety: plain values.
#ifndef MESHWRIGHT_TOOLS_IMPORT_IMPORTED_H_
#define MESHWRIGHT_TOOLS_IMPORT_IMPORTED_H_

#include <string>
#include <vector>

namespace meshwright {

struct Imported {
  std::string text;                // YAML of ours, ends in a newline
  std::vector<std::string> notes;  // a sentence each, for standard error: what was left out or taken for granted
};

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_IMPORTED_H_
