// import: what users already have, as files of ours.
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "costmodel/library.h"
#include "ir/document.h"
#include "ir/status.h"
#include "ir/text.h"
#include "models/training.h"
#include "tools/command.h"
#include "tools/exit_code.h"
#include "tools/files.h"
#include "tools/import/cluster.h"
#include "tools/import/configuration.h"
#include "tools/import/hints.h"
#include "tools/import/imported.h"

namespace meshwright {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;  // of a log

Command ImportCommand() {
  return {
      .name = "import",
      .summary = "Makes a model file of a trainer's script, settings or log, a cluster file of nvidia-smi's output.",
      .arguments = "FILE",
      .example = {"plan models/configs/llama3_70b.yaml", "export plan.yaml --to=megatron --out=train.sh",
                  "import train.sh --device=h100 --vocab=128256 --out=mine.yaml", "plan mine.yaml --trainer=megatron",
                  "plan models/configs/llama3_8b.yaml --stages=1 --context_parallel=1 --parallel_optimizer",
                  "export plan.yaml --to=deepspeed --out=ds_config.json",
                  "import ds_config.json --model=models/configs/llama3_8b.yaml --device=h100 --out=mine.yaml"},
      .flags = {{"out", "FILE", "where it goes; standard output unless given"},
                {"device", "NAME", "the devices, which no configuration says (h100-sxm, a100-80gb, ...)"},
                {"nodes", "N", "of a cluster file: how many machines like the one described there are"},
                {"devices", "N", "how many there are, where the file does not say it"},
                {"batch", "N", "sequences of a step, where the file does not say it"},
                {"sequence", "N", "tokens of one, where the file does not say it"},
                {"model", "FILE",
                 "the model, where the file does not say it: its config.json, the folder of that, or a model file"},
                {"deepspeed", "FILE", "the ds_config.json that a file of Accelerate names"},
                {"vocab", "N", "words of the vocabulary, where a tokenizer's file says it"},
                {"set", "A=1,B=2", "variables that a script takes from its environment"},
                {"from", "KIND",
                 absl::StrCat("what the file is, where it does not look like it: ", ConfigurationNames(),
                              ", cluster")}},
  };
}

absl::StatusOr<std::map<std::string, std::string>> ReadVariables(const std::string& text) {
  std::map<std::string, std::string> variables;
  for (const absl::string_view one : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(one, absl::MaxSplits('=', 1));
    if (parts.first.empty() || !absl::StrContains(one, '=')) {
      return Flags::Wrong("set", WrongInput(QuoteForMessage(one), "NAME=VALUE"));
    }
    variables[std::string(parts.first)] = std::string(parts.second);
  }
  return variables;
}

// The config.json of a checkpoint, where its folder is named.
absl::StatusOr<NamedFile> ReadNamed(const std::string& path) {
  if (path.empty()) return NamedFile();
  std::error_code error;
  const std::string config = (std::filesystem::path(path) / "config.json").string();
  const std::string file = std::filesystem::is_directory(path, error) ? config : path;
  MESHWRIGHT_ASSIGN_OR_RETURN(std::string text, ReadFile(file, kMaxDocumentBytes));
  return NamedFile{file, std::move(text)};
}

absl::Status RunImport(const Flags& flags) {
  const std::string path = flags.arguments()[0], out = flags.Has("out") ? flags.Text("out") : "-";
  MESHWRIGHT_RETURN_IF_ERROR(CheckOutputs({out}, {path, flags.Text("model"), flags.Text("deepspeed")}));
  ImportHints hints;
  hints.device = flags.Text("device");
  if (!hints.device.empty() && !IsDeviceFile(hints.device)) {
    const absl::Status known = FindDevice(hints.device).status();
    if (!known.ok()) return Flags::Wrong("device", known);
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(hints.devices, flags.Int("devices", 1, int64_t{1} << 24));
  MESHWRIGHT_ASSIGN_OR_RETURN(hints.batch, flags.Int("batch", 1, int64_t{1} << 32));
  MESHWRIGHT_ASSIGN_OR_RETURN(hints.vocab, flags.Int("vocab", 2, int64_t{1} << 32));
  MESHWRIGHT_ASSIGN_OR_RETURN(hints.sequence, flags.Int("sequence", 1, kLongestSequence));
  MESHWRIGHT_ASSIGN_OR_RETURN(hints.model, ReadNamed(flags.Text("model")));
  MESHWRIGHT_ASSIGN_OR_RETURN(hints.deepspeed, ReadNamed(flags.Text("deepspeed")));
  MESHWRIGHT_ASSIGN_OR_RETURN(hints.variables, ReadVariables(flags.Text("set")));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostBytes));
  const std::string from = flags.Text("from");
  const bool cluster = from.empty() ? !LooksLikeConfiguration(text) && LooksLikeCluster(text) : from == "cluster";
  ClusterHints of_cluster;
  if (flags.Has("device")) of_cluster.device = hints.device;
  MESHWRIGHT_ASSIGN_OR_RETURN(of_cluster.nodes, flags.Int("nodes", 1, int64_t{1} << 20));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Imported imported, cluster ? ImportCluster(text, path, of_cluster)
                                                               : ImportConfiguration(text, path, from, hints));
  PrintNotices(imported.notes);
  MESHWRIGHT_RETURN_IF_ERROR(WriteFile(out, imported.text));
  if (out != "-") Print(absl::StrCat("wrote ", out, "\n"));
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshwright

int main(int argc, char** argv) {
  return meshwright::RunCommand(meshwright::ImportCommand(), meshwright::RunImport, argc, argv);
}
