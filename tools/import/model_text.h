// A model file (models/model_file.h) of what a trainer was told: model, training, the split and, where it is known, the
// cluster, so that nothing is left to a search that the trainer's user has decided.
//
//   a trainer's configuration -> a reader -> Recipe (tools/export/recipe.h) -> model.yaml
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_IMPORT_MODEL_TEXT_H_
#define MESHWRIGHT_TOOLS_IMPORT_MODEL_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "tools/export/recipe.h"

namespace meshwright {

// Of the recipe: of `cluster` nodes, devices_per_node (0: not known) and the device's name ("": not known), of `layers`
// what each part has, empty where they are dealt evenly; `data` 0 where the number of devices is
// not known, and `microbatch` 0 where the search chooses it. What the recipe has by default is left out. `heading` is a
// sentence for the first line, a comment.
std::string ModelText(const Recipe& recipe, absl::string_view heading);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_MODEL_TEXT_H_
