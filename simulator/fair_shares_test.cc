#include "simulator/fair_shares.h"

#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "simulator/flows.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;

std::vector<int32_t> Rates(int32_t num_links, const std::vector<std::vector<SharedUse>>& uses,
                           const std::vector<int32_t>& most = {}) {
  std::vector<Claim> claims;
  for (size_t i = 0; i < uses.size(); ++i) claims.push_back({uses[i], {}, most.empty() ? kWhole : most[i]});
  ShareFairly(num_links, absl::MakeSpan(claims));
  std::vector<int32_t> rates;
  for (const Claim& claim : claims) rates.push_back(claim.rate);
  return rates;
}

TEST(FairSharesTest, WhatFitsRunsAtFullSpeed) {
  EXPECT_THAT(Rates(1, {{{0, 6000}}, {{0, 4000}}}), ElementsAre(kWhole, kWhole));
}

TEST(FairSharesTest, AllThatCrossAFullLinkAreSlowedAlike) {
  // 0.9 and 0.3 of a link: 1 / 1.2.
  EXPECT_THAT(Rates(1, {{{0, 9000}}, {{0, 3000}}}), ElementsAre(8333, 8333));
  // One that asks for twice the link, as all groups of a class over an uplink of half the bandwidth.
  EXPECT_THAT(Rates(1, {{{0, 20000}}}), ElementsAre(5000));
}

TEST(FairSharesTest, WhoIsSlowerAlreadyLeavesTheRest) {
  // a and b fill link 0 (a half each), so that c has half of link 1 for b and 5 / 6 of what it asks for there: 0.6.
  EXPECT_THAT(Rates(2, {{{0, kWhole}}, {{0, kWhole}, {1, kWhole}}, {{1, 6000}}}), ElementsAre(5000, 5000, 8333));
  // The first reaches a fifth for itself: 0.8 is left to the second.
  EXPECT_THAT(Rates(1, {{{0, kWhole}}, {{0, kWhole}}}, {2000, kWhole}), ElementsAre(2000, 8000));
}

// Where all ask for the whole of each of their links, these are the rates of single messages.
TEST(FairSharesTest, AreTheRatesOfMessages) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const int32_t num_links = 2 + static_cast<int32_t>(random() % 5);
    std::vector<FlowRoute> routes(1 + random() % 6);
    std::vector<std::vector<SharedUse>> uses(routes.size());
    for (size_t r = 0; r < routes.size(); ++r) {
      for (int32_t link = 0; link < num_links; ++link) {
        if (random() % 2 == 0 && (link + 1 < num_links || !routes[r].links.empty())) continue;
        routes[r].links.push_back(link);
        uses[r].push_back({link, kWhole});
      }
    }
    const std::vector<BytesPerSecond> links(static_cast<size_t>(num_links), BytesPerSecond(kWhole));
    const std::vector<BytesPerSecond> messages = FairRates(links, routes);
    const std::vector<int32_t> rates = Rates(num_links, uses);
    for (size_t r = 0; r < routes.size(); ++r) EXPECT_NEAR(rates[r], messages[r].raw(), 6);
  }
}

}  // namespace
}  // namespace meshwright
