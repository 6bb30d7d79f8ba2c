// What the tools are given to read: a model file, a plan, or the config.json of a Hugging Face model.
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "ir/document.h"
#include "ir/status.h"
#include "ir/text.h"
#include "models/hugging_face.h"
#include "tools/exit_code.h"
#include "tools/files.h"
#include "tools/session.h"

namespace meshwright {

absl::StatusOr<SourceFile> ReadSource(const std::string& path) {
  MESHWRIGHT_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxDocumentBytes));
  return SourceFile{path, std::move(text)};
}

bool IsPlan(absl::string_view text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, "schema:")) return true;
  }
  return false;
}

absl::StatusOr<std::optional<int64_t>> BatchFrom(const Flags& flags) {
  absl::StatusOr<std::optional<int64_t>> batch = flags.Int("batch", 1, kMostRows);
  const std::string text = flags.Text("batch");
  const absl::StatusOr<double> tokens = ParseAmount(text);
  if (batch.ok() || !tokens.ok() || !absl::ascii_isalpha(text.back())) return batch;
  std::string remedy = absl::StrCat("for ", text, " tokens, write ", text, " over the tokens of a sequence");
  const absl::StatusOr<std::optional<int64_t>> sequence = flags.Int("sequence", 1, kLongestSequence);
  if (sequence.ok() && sequence->has_value() && *tokens >= static_cast<double>(**sequence)) {
    remedy = absl::StrCat(text, " tokens are about ", std::llround(*tokens / static_cast<double>(**sequence)), " of ",
                          **sequence);
  }
  return Flags::Wrong("batch", WrongInput(QuoteForMessage(text), "sequences of a step, an integer", remedy));
}

// The folder of a Hugging Face model stands for the config.json in it.
static std::string FileAt(const std::string& path) {
  const std::string config = (std::filesystem::path(path) / "config.json").string();
  std::error_code error;
  return std::filesystem::is_directory(path, error) && std::filesystem::exists(config, error) ? config : path;
}

absl::StatusOr<SourceFile> ReadModelSource(const std::string& given, const Flags& flags) {
  const std::string path = FileAt(given);
  MESHWRIGHT_ASSIGN_OR_RETURN(SourceFile source, ReadSource(path));
  const absl::StatusOr<Document> document = ParseDocument(source.text, source.path);
  if (!document.ok() || !IsHuggingFaceConfig(document->root())) return source;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> batch, BatchFrom(flags));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> sequence, flags.Int("sequence", 1, kLongestSequence));
  if (batch.has_value() && sequence.has_value()) {
    return SourceFile{path, ModelFileAround(path, *batch, *sequence), std::move(source.text)};
  }
  return WithExit(ExitCode::kUsage,
                  absl::InvalidArgumentError(absl::StrCat(
                      path,
                      ": a config.json does not say how its model is trained; give --batch and --sequence, e.g. "
                      "--batch=1024 --sequence=8192, or write a model file with `huggingface: ..`")));
}

}  // namespace meshwright
