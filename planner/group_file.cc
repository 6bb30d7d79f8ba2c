#include "planner/group_file.h"

#include <algorithm>
#include <map>
#include <set>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/group_name.h"

namespace meshwright {
namespace {

bool IsSaved(const Buffer& buffer) {
  return buffer.role == BufferRole::kParameter || buffer.role == BufferRole::kMaster ||
         buffer.role == BufferRole::kOptimizerState;
}

void AddGroups(const Program& program, size_t c, std::set<std::vector<int64_t>>& groups) {
  std::set<AxisList> axes;
  for (const Block& block : program.classes[c].blocks) {
    for (const Instruction& instruction : block.instructions) {
      if (const auto* collective = std::get_if<Collective>(&instruction.work)) axes.insert(collective->axes);
    }
  }
  for (const AxisList& list : axes) {
    if (program.mesh.SizeOf(list) == 1) continue;
    for (int64_t local = 0; local < program.ranks_per_class(); ++local) {
      groups.insert(program.mesh.Group(program.RankOf(c, local), list));
    }
  }
}

void AddRestoreLists(const Program& program, size_t c, std::vector<std::vector<int64_t>>& lists) {
  std::vector<const AxisList*> splits;
  for (const Buffer& buffer : program.classes[c].buffers) {
    if (!IsSaved(buffer)) continue;
    for (const AxisList& axes : buffer.layout.dims) splits.push_back(&axes);
  }
  std::map<std::vector<int64_t>, std::vector<int64_t>> by_pieces;
  for (int64_t local = 0; local < program.ranks_per_class(); ++local) {
    const int64_t rank = program.RankOf(c, local);
    std::vector<int64_t> pieces;
    for (const AxisList* axes : splits) pieces.push_back(program.mesh.PositionOf(rank, *axes));
    by_pieces[pieces].push_back(rank);
  }
  for (auto& [pieces, ranks] : by_pieces) lists.push_back(std::move(ranks));
}

std::string RanksText(const std::vector<int64_t>& ranks) { return absl::StrCat("[", absl::StrJoin(ranks, ", "), "]"); }

}  // namespace

const std::vector<int64_t>& GroupFile::RestoreListOf(int64_t rank) const {
  for (const std::vector<int64_t>& list : restore_lists) {
    if (std::binary_search(list.begin(), list.end(), rank)) return list;
  }
  static const auto* const kNobody = new std::vector<int64_t>();
  return *kNobody;
}

GroupFile GroupFileOf(const Program& program) {
  GroupFile file;
  std::set<std::vector<int64_t>> groups;
  for (size_t c = 0; c < program.classes.size(); ++c) {
    AddGroups(program, c, groups);
    AddRestoreLists(program, c, file.restore_lists);
  }
  file.groups.assign(groups.begin(), groups.end());
  std::sort(file.restore_lists.begin(), file.restore_lists.end());
  return file;
}

std::string ToJson(const GroupFile& file) {
  std::vector<std::string> groups, lists;
  for (const std::vector<int64_t>& ranks : file.groups) {
    groups.push_back(absl::StrCat("    {\"name\": \"", GroupName(ranks), "\", \"ranks\": ", RanksText(ranks), "}"));
  }
  for (const std::vector<int64_t>& ranks : file.restore_lists) lists.push_back(absl::StrCat("    ", RanksText(ranks)));
  const auto list = [](const std::vector<std::string>& lines) {
    return lines.empty() ? "[]" : absl::StrCat("[\n", absl::StrJoin(lines, ",\n"), "\n  ]");
  };
  return absl::StrCat("{\n  \"groups\": ", list(groups), ",\n  \"restore_lists\": ", list(lists), "\n}\n");
}

}  // namespace meshwright
