// export: hands a plan to the trainer that people use.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "ir/text.h"
#include "tools/command.h"
#include "tools/exit_code.h"
#include "tools/export/writers.h"
#include "tools/files.h"
#include "tools/plan_file.h"
#include "tools/session.h"

namespace meshwright {
namespace {

Command ExportCommand() {
  return {
      .name = "export",
      .summary = "Writes a plan as the configuration of a trainer.",
      .arguments = "PLAN.yaml",
      .example = {"plan models/configs/llama3_70b.yaml", "export plan.yaml --to=megatron --out=train.sh"},
      .flags = {{"to", "TRAINER", "megatron, nemo, torchtitan, nanotron, deepspeed; mindspore for models of operators"},
                {"out", "FILE", "where it goes; standard output unless given"}},
  };
}

absl::Status RunExport(const Flags& flags) {
  std::vector<absl::string_view> names;
  std::vector<const Trainer*> trainers;
  for (const Trainer& trainer : kTrainers) {
    names.push_back(trainer.name);
    trainers.push_back(&trainer);
  }
  if (!flags.Has("to")) return Flags::Wrong("to", WrongInput("nothing", absl::StrCat("one of ", ListNames(names))));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> to, flags.Choice("to", names));
  const std::string out = flags.Has("out") ? flags.Text("out") : "-";
  MESHWRIGHT_RETURN_IF_ERROR(CheckOutputs({out}, {flags.arguments()[0]}));
  MESHWRIGHT_ASSIGN_OR_RETURN(const SourceFile source, ReadSource(flags.arguments()[0]));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Plan plan, ParsePlan(source));
  const absl::StatusOr<Exported> exported = trainers[*to]->write(plan);
  if (absl::IsUnimplemented(exported.status())) return WithExit(ExitCode::kNothingFits, exported.status());
  MESHWRIGHT_RETURN_IF_ERROR(exported.status());
  std::vector<std::string> notices;
  for (const std::string& difference : exported->differences) notices.push_back(absl::StrCat("differs: ", difference));
  PrintNotices(notices);
  MESHWRIGHT_RETURN_IF_ERROR(WriteFile(out, exported->text));
  if (out != "-") Print(absl::StrCat("wrote ", out, "\n"));
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshwright

int main(int argc, char** argv) {
  return meshwright::RunCommand(meshwright::ExportCommand(), meshwright::RunExport, argc, argv);
}
