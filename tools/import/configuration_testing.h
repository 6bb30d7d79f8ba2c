// For tests of what trainers were told: a file as a model file, and that as a session.
#ifndef MESHWRIGHT_TOOLS_IMPORT_CONFIGURATION_TESTING_H_
#define MESHWRIGHT_TOOLS_IMPORT_CONFIGURATION_TESTING_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/status.h"
#include "tools/import/configuration.h"
#include "tools/session.h"

namespace meshwright {

inline absl::StatusOr<Session> OpenImported(const std::string& text) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Flags flags, Flags::Parse(StrategyFlags(), {}));
  return OpenModel({"imported.yaml", text, ""}, flags);
}

// Of Llama 3 8B, as Hugging Face has it.
inline constexpr absl::string_view kLlama3Config = R"({"model_type": "llama", "hidden_size": 4096,
  "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
  "vocab_size": 128256, "rope_theta": 500000.0, "rms_norm_eps": 1e-05, "tie_word_embeddings": false})";

// What --model=config.json, --sequence=4096, --batch=128 and --device=h100 say.
inline ImportHints LlamaHints() {
  ImportHints hints;
  hints.batch = 128;
  hints.device = "h100";
  hints.sequence = 4096;
  hints.model = {"config.json", std::string(kLlama3Config)};
  return hints;
}

// Each sentence once, "a|b".
inline std::string NotesOf(const Imported& imported) {
  std::string all;
  for (const std::string& note : imported.notes) all += all.empty() ? note : "|" + note;
  return all;
}

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_CONFIGURATION_TESTING_H_
