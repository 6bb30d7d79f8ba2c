#include "tools/import/known_keys.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/text.h"

namespace meshwright {
namespace {

constexpr size_t kMostTold = 20;  // unknown keys

NodeRef SectionOf(const NodeRef& root, absl::string_view section) { return section.empty() ? root : root[section]; }

}  // namespace

bool IsOn(const NodeRef& setting) {
  if (setting.is_map()) {
    for (const absl::string_view key : {"enabled", "device"}) {
      if (setting[key].present()) return IsOn(setting[key]);
    }
    return setting.size() > 0;
  }
  if (!setting.is_scalar()) return setting.is_list() && setting.size() > 0;
  const std::string text = absl::AsciiStrToLower(setting.text());
  constexpr absl::string_view kOff[] = {"", "false", "no", "none", "null", "off", "0", "auto"};
  return !absl::c_linear_search(kOff, text);
}

absl::Status CheckKnownKeys(const NodeRef& root, absl::Span<const KnownKey> rows, std::vector<std::string>& notes) {
  std::vector<absl::string_view> sections;
  for (const KnownKey& row : rows) {
    if (!absl::c_linear_search(sections, row.section)) sections.push_back(row.section);
    const NodeRef setting = SectionOf(root, row.section)[row.key];
    if (!IsOn(setting)) continue;
    if (row.use == KeyUse::kLeftOut) notes.push_back(absl::StrCat(setting.Path(), ": ", row.text));
    if (row.use != KeyUse::kRefused) continue;
    return setting.Locate(absl::UnimplementedError(absl::StrCat("found it switched on, wanted ", row.text)));
  }
  std::vector<std::string> unknown;
  for (const absl::string_view section : sections) {
    for (const NodeRef& child : SectionOf(root, section).children()) {
      const bool known = absl::c_any_of(rows, [&](const KnownKey& row) {
        return row.section == section &&
               (row.key == child.key() || (absl::EndsWith(row.key, ".") && absl::StartsWith(child.key(), row.key)));
      });
      const bool is_section = section.empty() && absl::c_linear_search(sections, child.key());
      if (known || is_section || child.key().empty()) continue;
      unknown.push_back(QuoteForMessage(absl::StrCat(section, section.empty() ? "" : ".", child.key())));
    }
  }
  if (unknown.empty()) return absl::OkStatus();
  const size_t told = std::min(unknown.size(), kMostTold), more = unknown.size() - told;
  unknown.resize(told);
  notes.push_back(absl::StrCat("not looked at: ", absl::StrJoin(unknown, ", "),
                               more > 0 ? absl::StrCat(" and ", more, " more") : ""));
  return absl::OkStatus();
}

}  // namespace meshwright
