#include "tests/semantics/play.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "executor/cuda/testing/run_on_stand_ins.h"
#include "executor/host/run_on_threads.h"
#include "ir/status.h"
#include "ir/verify.h"
#include "tests/gpu/suite_case.h"

namespace meshwright {
namespace {

std::string Variable(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

absl::StatusOr<RunResult> PlayOnStandIns(const Program& program, const RunOptions& options, const DataSource& data,
                                         cuda::testing::StandInKernelKind kernels) {
  MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(program));
  cuda::testing::StandInMachine machine(program.mesh.num_ranks());
  cuda::testing::StandInRun run = RunOnStandIns(program, options, data, cuda::testing::Patient(), machine, kernels);
  MESHWRIGHT_RETURN_IF_ERROR(FirstError(run.statuses));
  // What the devices' kernels read and write is not told to the stand-ins.
  const bool checked = kernels == cuda::testing::StandInKernelKind::kHost;
  if (checked && !machine.faults().empty()) return absl::InternalError(absl::StrJoin(machine.faults(), "\n"));
  return std::move(run.result);
}

// FNV-1a: names files, the same on every machine.
uint64_t Fingerprint(const std::string& text) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
  return hash;
}

void Keep(const std::string& folder, const Program& program, const RunOptions& options, const DataSource& data,
          const RunResult& result) {
  const auto* const synthetic = dynamic_cast<const SyntheticData*>(&data);
  const bool plain = options.initial == nullptr && !options.checkpoint.has_value() && options.first_step == 0 &&
                     !options.seed_per_rank && !result.losses.empty();
  if (synthetic == nullptr || !plain || program.mesh.num_ranks() < 2) return;
  const SuiteCase suite_case = {options, synthetic->seed(), result.losses, program};
  const std::string text = ToText(suite_case);
  std::ofstream(absl::StrCat(folder, "/", program.mesh.num_ranks(), "_ranks_", absl::Hex(Fingerprint(text)), ".case"))
      << text;
}

}  // namespace

absl::StatusOr<RunResult> Play(const Program& program, const RunOptions& options, const DataSource& data) {
  using cuda::testing::StandInKernelKind;
  const std::string backend = Variable("MESHWRIGHT_BACKEND", "host");
  if (backend == "stand_ins") return PlayOnStandIns(program, options, data, StandInKernelKind::kHost);
  if (backend == "emulated") return PlayOnStandIns(program, options, data, StandInKernelKind::kEmulated);
  if (backend != "host") {
    return absl::InvalidArgumentError(
        absl::StrCat("MESHWRIGHT_BACKEND: found \"", backend, "\", wanted host, stand_ins or emulated"));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(RunResult result, RunOnThreads(program, options, data));
  const std::string folder = Variable("MESHWRIGHT_SUITE_CASES", "");
  if (!folder.empty()) Keep(folder, program, options, data, result);
  return result;
}

bool DevicesSumInAnotherOrder() { return Variable("MESHWRIGHT_BACKEND", "host") == "emulated"; }

}  // namespace meshwright
