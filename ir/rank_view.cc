#include "ir/rank_view.h"

namespace meshwright {

absl::string_view DumpName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "AllReduce";
    case CollectiveKind::kAllGather:
      return "AllGather";
    case CollectiveKind::kReduceScatter:
      return "ReduceScatter";
    case CollectiveKind::kBroadcast:
      return "Broadcast";
    case CollectiveKind::kAllToAll:
      return "AlltoAll";
  }
  return "";
}

Shape RankView::LocalShapeOf(const Operand& operand) const {
  const Buffer& buffer = BufferOf(operand);
  return LocalShape(buffer.shape, buffer.layout, program_.mesh);
}

int64_t RankView::PeerOf(const Transfer& transfer) const {
  return rank_ + transfer.stage_offset * program_.ranks_per_class();
}

RankView::Bounds RankView::BoundsOf(const Instruction& slice) const {
  const Buffer &from = BufferOf(slice.reads[0]), &to = BufferOf(slice.writes[0]);
  const Shape base = SliceBegin(from.shape, from.layout, program_.mesh, rank_);
  Bounds bounds{SliceBegin(to.shape, to.layout, program_.mesh, rank_), LocalShapeOf(slice.writes[0])};
  for (size_t d = 0; d < bounds.begin.size(); ++d) {
    bounds.begin[d] -= base[d];
    bounds.end[d] += bounds.begin[d];
  }
  return bounds;
}

RankView::Partners RankView::PartnersOf(const Permute& permute) const {
  const std::vector<int64_t> group = GroupOf(permute.axes);
  const auto own = static_cast<size_t>(program_.mesh.PositionOf(rank_, permute.axes));
  Partners partners;
  for (size_t place = 0; place < permute.sources.size(); ++place) {
    if (permute.sources[place] == static_cast<int32_t>(own)) partners.to.push_back(group[place]);
  }
  if (permute.sources[own] >= 0) partners.from.push_back(group[static_cast<size_t>(permute.sources[own])]);
  return partners;
}

}  // namespace meshwright
