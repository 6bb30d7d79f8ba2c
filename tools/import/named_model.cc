#include "tools/import/named_model.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "models/hugging_face.h"
#include "models/model_file.h"

namespace meshwright {

absl::Status ReadNamedModel(const NodeRef& in, const ImportHints& hints, std::optional<int64_t> sequence,
                            Recipe& recipe, std::vector<std::string>& notes) {
  if (!hints.model.given()) {
    return in.Error("nothing of the model, which its code says", "the config.json of the model",
                    "give it as --model=config.json");
  }
  if (hints.sequence.has_value()) sequence = hints.sequence;
  MESHWRIGHT_ASSIGN_OR_RETURN(const Document document, ParseDocument(hints.model.text, hints.model.path));
  std::optional<ModelFile> file;
  if (!IsHuggingFaceConfig(document.root())) {
    MESHWRIGHT_ASSIGN_OR_RETURN(file, ParseModelFile(hints.model.text, hints.model.path));
    if (!file->is_decoder()) {
      return absl::UnimplementedError(absl::StrCat(hints.model.path, ": found operators, wanted a decoder"));
    }
    if (!sequence.has_value()) sequence = file->training.sequence;
  }
  if (!sequence.has_value()) {
    return in.Error("nothing that says how long a sequence is", "its tokens", "give them as --sequence=4096");
  }
  recipe.training.sequence = *sequence;
  if (file.has_value()) {
    recipe.model = std::get<DecoderConfig>(file->model);
    notes.insert(notes.end(), file->left_out.begin(), file->left_out.end());
  } else {
    MESHWRIGHT_ASSIGN_OR_RETURN(recipe.model, ReadHuggingFace(document.root(), recipe.training, notes));
  }
  if (hints.vocab.has_value()) recipe.model.vocab = *hints.vocab;
  return absl::OkStatus();
}

}  // namespace meshwright
