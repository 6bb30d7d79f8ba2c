#include "tools/export/trainer_flag.h"

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "ir/status.h"

namespace meshwright {
namespace {

std::vector<const Trainer*> KnownTrainers() {
  std::vector<const Trainer*> known;
  for (const Trainer& trainer : kTrainers) {
    if (trainer.words != nullptr) known.push_back(&trainer);
  }
  return known;
}

std::vector<absl::string_view> Names() {
  std::vector<absl::string_view> names;
  for (const Trainer* const trainer : KnownTrainers()) names.push_back(trainer->name);
  return names;
}

}  // namespace

FlagSpec TrainerFlag() {
  return {"trainer", "TRAINER",
          absl::StrCat("that will run it: predicts and ranks as it goes there; ", absl::StrJoin(Names(), ", ")),
          "framework"};
}

absl::StatusOr<const Trainer*> TrainerFrom(const Flags& flags) {
  const std::vector<absl::string_view> names = Names();
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> chosen, flags.Choice("trainer", names));
  return flags.Has("trainer") ? KnownTrainers()[*chosen] : nullptr;
}

}  // namespace meshwright
