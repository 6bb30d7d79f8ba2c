#include "tools/import/links.h"

#include "absl/strings/numbers.h"

namespace meshwright {
namespace {

struct CapabilityRow {
  int capability;
  absl::string_view device;
};
// The most common of each capability first.
constexpr CapabilityRow kCapabilities[] = {
    {70, "v100-sxm-32gb"},
    {70, "v100-sxm-16gb"},
    {70, "v100-pcie-32gb"},
    {70, "v100-pcie-16gb"},
    {70, "v100-sxm3-32gb"},
    {75, "t4"},
    {75, "quadro-rtx-8000"},
    {75, "titan-rtx"},
    {75, "rtx-2080-ti"},
    {80, "a100-sxm-80gb"},
    {80, "a100-sxm-40gb"},
    {80, "a100-pcie-80gb"},
    {80, "a100-pcie-40gb"},
    {80, "a100-sxm-64gb"},
    {80, "a800-sxm"},
    {80, "a30"},
    {86, "a10"},
    {86, "a10g"},
    {86, "a40"},
    {86, "rtx-a6000"},
    {86, "rtx-a5000"},
    {86, "rtx-3090"},
    {86, "rtx-3090-ti"},
    {89, "l40s"},
    {89, "l4"},
    {89, "l40"},
    {89, "l20"},
    {89, "rtx-4090"},
    {89, "rtx-6000-ada"},
    {90, "h100-sxm"},
    {90, "h200"},
    {90, "h100-pcie"},
    {90, "h100-nvl"},
    {90, "gh200"},
    {90, "gh200-quad"},
    {90, "h100-sxm-96gb"},
    {90, "h100-sxm-64gb"},
    {90, "h800-sxm"},
    {90, "h20"},
    {100, "b200"},
    {100, "gb200"},
    {103, "b300"},
    {103, "gb300"},
    {107, "vr200"},
    {120, "rtx-5090"},
    {120, "rtx-pro-6000"},
};

// What a lane carries, by generation from 1, and its transfers in a second as Linux prints them. 8b/10b coding until 2,
// 128b/130b until 5; 6 has 242 of 256 bytes. Rounded as data sheets do.
struct PcieRow {
  double giga_transfers, gigabytes;
};
constexpr PcieRow kPcie[] = {{2.5, 0.25},     {5, 0.5},        {8, 15.75 / 16},
                             {16, 31.5 / 16}, {32, 63.0 / 16}, {64, 121.0 / 16}};

constexpr int64_t kMostLanes = 32;

}  // namespace

int ComputeCapability(absl::string_view device) {
  for (const CapabilityRow& row : kCapabilities) {
    if (row.device == device) return row.capability;
  }
  return 0;
}

std::vector<std::string> DevicesOfCapability(int capability) {
  std::vector<std::string> names;
  for (const CapabilityRow& row : kCapabilities) {
    if (row.capability == capability) names.emplace_back(row.device);
  }
  return names;
}

std::optional<BytesPerSecond> NvLinkRate(const Device& device) {
  constexpr int kGraphicsAmpere = 86;
  if (ComputeCapability(device.name) == kGraphicsAmpere) return GBps(14.0625);
  switch (device.generation) {
    case Generation::kVolta:
    case Generation::kAmpere:
    case Generation::kHopper:
      return GBps(25);
    case Generation::kBlackwell:
      return GBps(50);
    case Generation::kAda:
    case Generation::kHost:
      return std::nullopt;
  }
  return std::nullopt;
}

int64_t MostNvLinks(const Device& device) {
  constexpr int kRubin = 107;
  if (ComputeCapability(device.name) == kRubin) return 36;
  switch (device.generation) {
    case Generation::kVolta:
      return 6;
    case Generation::kAmpere:
      return 12;
    case Generation::kHopper:
    case Generation::kBlackwell:
      return 18;
    case Generation::kAda:
    case Generation::kHost:
      return 0;
  }
  return 0;
}

std::optional<BytesPerSecond> PcieRate(int64_t generation, int64_t lanes) {
  if (generation < 1 || generation > static_cast<int64_t>(std::size(kPcie)) || lanes < 1 || lanes > kMostLanes) {
    return std::nullopt;
  }
  return GBps(kPcie[generation - 1].gigabytes * static_cast<double>(lanes));
}

std::optional<BytesPerSecond> PcieRateOfSpeed(absl::string_view speed, int64_t lanes) {
  double transfers = 0;
  const size_t space = speed.find(' ');
  if (space == absl::string_view::npos || speed.substr(space, 5) != " GT/s" ||
      !absl::SimpleAtod(speed.substr(0, space), &transfers)) {
    return std::nullopt;
  }
  for (size_t i = 0; i < std::size(kPcie); ++i) {
    if (kPcie[i].giga_transfers == transfers) return PcieRate(static_cast<int64_t>(i) + 1, lanes);
  }
  return std::nullopt;
}

BytesPerSecond UsualPcieRate(Generation generation) {
  int64_t pcie = 3;
  if (generation >= Generation::kAmpere) pcie = 4;
  if (generation >= Generation::kHopper) pcie = 5;
  constexpr int64_t kLanes = 16;
  return *PcieRate(pcie, kLanes);
}

}  // namespace meshwright
