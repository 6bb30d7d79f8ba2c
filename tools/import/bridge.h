// The configuration of Megatron-Bridge, NeMo's trainer on Megatron-Core, as Megatron-LM's options: the run_config.yaml
// that it keeps with a checkpoint, or what is laid over a recipe (--config-file). What the file does not have is as
// Megatron-Core has it; a file without the model's sizes, which are its recipe's, is an error of the one that is
// missing.
//
// Errors: kInvalidArgument as ir/document.h says them. Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_IMPORT_BRIDGE_H_
#define MESHWRIGHT_TOOLS_IMPORT_BRIDGE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/document.h"
#include "tools/import/options.h"

namespace meshwright {

bool LooksLikeBridge(absl::string_view text);

Options OptionsOfBridge(const NodeRef& in, absl::string_view file_name);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_BRIDGE_H_
