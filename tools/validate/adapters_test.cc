#include "tools/validate/adapters.h"

#include "gtest/gtest.h"
#include "models/decoder.h"
#include "simulator/price.h"
#include "tools/validate/framework.h"
#include "tools/validate/signs.h"

namespace meshwright {
namespace {

Framework HuggingFaceWith(SignSet signs) {
  Framework framework;
  framework.eager = true;
  framework.signs = signs;
  framework.signs.Add(Sign::kHuggingFace);
  return framework;
}

// Hidden 8, two heads of 4 that share keys and values, gates of 16.
DecoderConfig SmallLlama() {
  DecoderConfig model;
  model.hidden = 8;
  model.heads = 2;
  model.kv_heads = 1;
  model.head_dim = 4;
  model.ffn = 16;
  model.activation = Activation::kSwiglu;
  return model;
}

HostPace With(const Framework& framework) {
  HostPace host;
  AddAdapters(framework, SmallLlama(), &host);
  return host;
}

// Inputs of 8 each, results of 8 and 4: forward 7 * 16 + 12 * 12 bytes, backward 15 * 16 + 8 * 12, for 8 queries.
TEST(AdaptersTest, OfQueriesAndValues) {
  const HostPace host = With(HuggingFaceWith({}));
  EXPECT_DOUBLE_EQ(host.queries.forward, (7 * 16 + 12 * 12) / 8.0);
  EXPECT_DOUBLE_EQ(host.queries.backward, (15 * 16 + 8 * 12) / 8.0);
  EXPECT_DOUBLE_EQ(host.products, 1 + 5 * 2 / 4.0);
}

// Inputs: 8 six times and 16; results 8 + 4 + 4, 8, 16 + 16, 8. In one product or three, queries, keys and values have
// as many results.
TEST(AdaptersTest, OfAllProducts) {
  const HostPace apart = With(HuggingFaceWith({Sign::kAllAdapted}));
  EXPECT_DOUBLE_EQ(apart.queries.forward, (7 * 64 + 12 * 64) / 8.0);
  EXPECT_DOUBLE_EQ(apart.queries.backward, (15 * 64 + 8 * 64) / 8.0);
  EXPECT_DOUBLE_EQ(apart.products, 1 + 5 * 7 / 4.0);
  const HostPace joined = With(HuggingFaceWith({Sign::kAllAdapted, Sign::kJoinedQueries}));
  EXPECT_DOUBLE_EQ(joined.queries.forward, (7 * 48 + 12 * 64) / 8.0);
  EXPECT_DOUBLE_EQ(joined.products, 1 + 5 * 5 / 4.0);
}

TEST(AdaptersTest, OfOthersAreTheirOwn) {
  Framework nemo;
  nemo.eager = true;
  nemo.signs = {Sign::kNemo};
  EXPECT_EQ(With(nemo), HostPace());
}

}  // namespace
}  // namespace meshwright
