#include "simulator/fair_shares.h"

#include <algorithm>
#include <limits>

namespace meshwright {
namespace {

struct LinkState {
  int64_t left = int64_t{kWhole} * kWhole;
  int64_t asked = 0;  // by those without a rate yet, at full speed
};

template <class Visit>
void ForEachUse(const Claim& claim, const Visit& visit) {
  for (const SharedUse& use : claim.uses) visit(use);
  for (const SharedUse& use : claim.more_uses) visit(use);
}

}  // namespace

void ShareFairly(int32_t num_links, absl::Span<Claim> claims) {
  std::vector<LinkState> links(static_cast<size_t>(num_links));
  const auto link_of = [&](const SharedUse& use) -> LinkState& { return links[static_cast<size_t>(use.link)]; };
  const auto level_of = [](const LinkState& link) {
    return link.asked > 0 ? link.left / link.asked : std::numeric_limits<int64_t>::max();
  };
  std::vector<Claim*> open;
  for (Claim& claim : claims) {
    open.push_back(&claim);
    ForEachUse(claim, [&](const SharedUse& use) { link_of(use).asked += use.share; });
  }
  while (!open.empty()) {
    int64_t level = std::numeric_limits<int64_t>::max();
    for (const Claim* claim : open) level = std::min<int64_t>(level, claim->most);
    for (const LinkState& link : links) level = std::min(level, level_of(link));
    std::vector<Claim*> rest, done;
    for (Claim* claim : open) {
      bool full = claim->most <= level;
      ForEachUse(*claim, [&](const SharedUse& use) { full = full || level_of(link_of(use)) <= level; });
      (full ? done : rest).push_back(claim);
    }
    for (Claim* claim : done) {
      claim->rate = static_cast<int32_t>(std::max<int64_t>(1, level));
      ForEachUse(*claim, [&](const SharedUse& use) {
        LinkState& link = link_of(use);
        link.left = std::max<int64_t>(0, link.left - level * use.share);
        link.asked -= use.share;
      });
    }
    open = std::move(rest);
  }
}

}  // namespace meshwright
