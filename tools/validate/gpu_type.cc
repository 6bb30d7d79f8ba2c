#include "tools/validate/gpu_type.h"

#include <regex>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "costmodel/library.h"
#include "tools/validate/row_model.h"

namespace meshwright {
namespace {

// Longer names first: "gh200" holds "h200", and "a100" "a10".
constexpr absl::string_view kChips[] = {
    "gb300", "gb200",    "gh200",    "b300",    "b200", "h200",    "h100", "h800",  "vr200", "rubin",    "a100",
    "a800",  "v100",     "l40s",     "3090 ti", "3090", "4090",    "5090", "a6000", "a30",   "a10g",     "h20",
    "a40",   "pro 6000", "6000 ada", "l40",     "l20",  "2080 ti", "a10",  "l4",    "t4",    "rtx 8000", "titan rtx"};

// Machines by name, as AWS and Google let them (their pages of instance types).
struct Machine {
  absl::string_view name, device;
};
constexpr Machine kMachines[] = {
    {"p3.", "v100 16gb"},
    {"p3dn.", "v100 32gb"},
    {"p4d.", "a100 40gb"},
    {"p4de.", "a100 80gb"},
    {"p5.", "h100"},
    {"p5e.", "h200"},
    {"p5en.", "h200"},
    {"g5.", "a10g"},
    {"g6.", "l4"},
    {"g4dn", "t4"},
    {"g6e.", "l40s"},
    {"a4x-", "gb200"},
    {"a4-", "b200"},
    {"a3-ultra", "h200"},
    {"a3-", "h100"},
    {"a2-highgpu", "a100 40gb"},
    {"a2-ultra", "a100 80gb"},
};

// "a4000" does not name the A40.
bool Names(absl::string_view lower, absl::string_view chip) {
  for (size_t at = lower.find(chip); at != absl::string_view::npos; at = lower.find(chip, at + 1)) {
    const size_t behind = at + chip.size();
    if (behind == lower.size() || !absl::ascii_isdigit(static_cast<unsigned char>(lower[behind]))) return true;
  }
  return false;
}

// What tells devices of one chip apart, most telling first.
std::vector<std::string> NamesOf(const std::string& lower, absl::string_view chip, double memory_gb) {
  std::string memory;
  std::smatch match;
  static const std::regex* const kMemory = new std::regex(R"((\d{2,3})\s*gi?b)");
  if (memory_gb > 0) {
    memory = absl::StrCat(" ", memory_gb, "gb");
  } else if (std::regex_search(lower, match, *kMemory)) {
    memory = absl::StrCat(" ", match[1].str(), "gb");
  }
  std::vector<std::string> names;
  for (const absl::string_view form : {"pcie", "sxm", "nvl"}) {
    if (!absl::StrContains(lower, form)) continue;
    if (!memory.empty()) names.push_back(absl::StrCat(chip, " ", form, memory));
    names.push_back(absl::StrCat(chip, " ", form));
  }
  if (!memory.empty()) names.push_back(absl::StrCat(chip, memory));
  names.emplace_back(chip);
  return names;
}

}  // namespace

absl::StatusOr<std::string> DeviceNamed(absl::string_view text, double memory_gb) {
  if (IsDeviceFile(text)) return std::string(text);
  if (memory_gb > 0) {
    const std::string exact = absl::StrCat(text, " ", memory_gb, "GB");
    if (FindDevice(exact).ok()) return exact;
  }
  if (FindDevice(text).ok()) return std::string(text);
  const std::string lower = absl::AsciiStrToLower(text);
  for (const absl::string_view chip : kChips) {
    if (!Names(lower, chip)) continue;
    for (const std::string& name : NamesOf(lower, chip, memory_gb)) {
      if (FindDevice(name).ok()) return name;
    }
  }
  for (const Machine& machine : kMachines) {
    if (absl::StartsWith(lower, machine.name) && FindDevice(machine.device).ok()) return std::string(machine.device);
  }
  return CannotExpress("unknown device", text);
}

}  // namespace meshwright
