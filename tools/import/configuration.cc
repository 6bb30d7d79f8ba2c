#include "tools/import/configuration.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/document.h"
#include "ir/status.h"
#include "ir/text.h"
#include "models/model_file.h"
#include "tools/import/accelerate.h"
#include "tools/import/bridge.h"
#include "tools/import/deepspeed.h"
#include "tools/import/megatron.h"
#include "tools/import/model_text.h"
#include "tools/import/nanotron.h"
#include "tools/import/options.h"
#include "tools/import/toml_text.h"
#include "tools/import/torchtitan.h"

namespace meshwright {
namespace {

using Read = absl::StatusOr<Recipe> (*)(absl::string_view text, absl::string_view file_name, absl::string_view name,
                                        const ImportHints& hints, std::vector<std::string>& notes);

// "runs/train_8b.sh" -> "train_8b".
absl::string_view BaseName(absl::string_view path) {
  path.remove_prefix(path.rfind('/') == absl::string_view::npos ? 0 : path.rfind('/') + 1);
  const size_t dot = path.rfind('.');
  return dot == absl::string_view::npos || dot == 0 ? path : path.substr(0, dot);
}

absl::StatusOr<Recipe> Megatron(absl::StatusOr<Options> options, absl::string_view name, const ImportHints& hints,
                                std::vector<std::string>& notes) {
  MESHWRIGHT_RETURN_IF_ERROR(options.status());
  MESHWRIGHT_ASSIGN_OR_RETURN(Recipe recipe, ReadMegatron(*options, name, hints));
  notes.insert(notes.end(), options->notes.begin(), options->notes.end());
  return recipe;
}

absl::StatusOr<Recipe> MegatronScript(absl::string_view text, absl::string_view file_name, absl::string_view name,
                                      const ImportHints& hints, std::vector<std::string>& notes) {
  return Megatron(OptionsOfScript(text, file_name, MegatronOptions(), hints.variables), name, hints, notes);
}

absl::StatusOr<Recipe> MegatronLog(absl::string_view text, absl::string_view file_name, absl::string_view name,
                                   const ImportHints& hints, std::vector<std::string>& notes) {
  return Megatron(OptionsOfLog(text, file_name), name, hints, notes);
}

absl::StatusOr<Recipe> Bridge(absl::string_view text, absl::string_view file_name, absl::string_view name,
                              const ImportHints& hints, std::vector<std::string>& notes) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Document document, ParseDocument(text, file_name));
  return Megatron(OptionsOfBridge(document.root(), file_name), name, hints, notes);
}

absl::StatusOr<Recipe> Nanotron(absl::string_view text, absl::string_view file_name, absl::string_view name,
                                const ImportHints& hints, std::vector<std::string>& notes) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Document document, ParseDocument(text, file_name));
  return ReadNanotron(document.root(), name, hints, notes);
}

absl::StatusOr<Recipe> DeepSpeed(absl::string_view text, absl::string_view file_name, absl::string_view name,
                                 const ImportHints& hints, std::vector<std::string>& notes) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Document document, ParseDocument(text, file_name));
  return ReadDeepSpeed(document.root(), name, hints, {}, notes);
}

absl::StatusOr<Recipe> Accelerate(absl::string_view text, absl::string_view file_name, absl::string_view name,
                                  const ImportHints& hints, std::vector<std::string>& notes) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Document document, ParseDocument(text, file_name));
  return ReadAccelerate(document.root(), name, hints, notes);
}

absl::StatusOr<Recipe> Torchtitan(absl::string_view text, absl::string_view file_name, absl::string_view name,
                                  const ImportHints& hints, std::vector<std::string>& notes) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Document document, ParseToml(text, file_name));
  return ReadTorchtitan(document.root(), name, hints, notes);
}

struct Configuration {
  absl::string_view name, title;
  bool (*looks)(absl::string_view text);
  Read read;
  bool says_model = true;  // else --model does
};
constexpr Configuration kConfigurations[] = {
    {"megatron_log", "the arguments in a log of Megatron-LM",
     [](absl::string_view text) { return LooksLikeArguments(text, MegatronOptions()); }, MegatronLog},
    {"megatron", "the arguments of Megatron-LM",
     [](absl::string_view text) { return LooksLikeScript(text, MegatronOptions()); }, MegatronScript},
    {"nemo", "Megatron-Bridge's configuration", LooksLikeBridge, Bridge},
    {"nanotron", "nanotron's configuration", LooksLikeNanotron, Nanotron},
    {"accelerate", "Accelerate's configuration", LooksLikeAccelerate, Accelerate, false},
    {"deepspeed", "DeepSpeed's configuration", LooksLikeDeepSpeed, DeepSpeed, false},
    {"torchtitan", "torchtitan's configuration", LooksLikeTorchtitan, Torchtitan, false},
};

}  // namespace

std::string ConfigurationNames() {
  return absl::StrJoin(kConfigurations, ", ", [](std::string* out, const Configuration& configuration) {
    absl::StrAppend(out, configuration.name);
  });
}

bool LooksLikeConfiguration(absl::string_view text) {
  return absl::c_any_of(kConfigurations, [&](const Configuration& configuration) { return configuration.looks(text); });
}

absl::StatusOr<Imported> ImportConfiguration(absl::string_view text, absl::string_view file_name,
                                             absl::string_view from, const ImportHints& hints) {
  for (const Configuration& configuration : kConfigurations) {
    if (from.empty() ? !configuration.looks(text) : from != configuration.name) continue;
    if (configuration.says_model && (hints.model.given() || hints.sequence.has_value())) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_name, ": found --", hints.model.given() ? "model" : "sequence", " beside ",
                       configuration.title, ", wanted none: model and sequences are in the file"));
    }
    Imported imported;
    MESHWRIGHT_ASSIGN_OR_RETURN(const Recipe recipe,
                                configuration.read(text, file_name, BaseName(file_name), hints, imported.notes));
    imported.text = ModelText(recipe, absl::StrCat("From ", configuration.title, " in ", recipe.name, "."));
    MESHWRIGHT_RETURN_IF_ERROR(ParseModelFile(imported.text, absl::StrCat("what was read of ", file_name)).status());
    return imported;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(file_name, ": found ", from.empty() ? "nothing that is known" : QuoteForMessage(from),
                   ", wanted one of ", ConfigurationNames(), ", cluster",
                   from.empty() ? "; --from says which, where the file does not look like it" : ""));
}

}  // namespace meshwright
