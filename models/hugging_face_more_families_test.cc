// As hugging_face_families_test, of families with names of keys or kinds of layers of their own.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "models/hugging_face_testing.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

// What layers have that is not modelled is told.
TEST(HuggingFaceMoreFamiliesTest, OthersSayWhatTheyHave) {
  const auto of = [](absl::string_view type) {
    return Read(absl::StrCat(R"({"hidden_size": 64, "num_hidden_layers": 4, "model_type": ")", type, "\"}"));
  };
  for (const auto& [type, what] :
       {std::pair("mimo_v2_flash", "values narrower than keys is not modelled"),
        std::pair("longcat_flash", "a layer of two attentions"), std::pair("minimax", "lightning attention"),
        std::pair("lfm2_moe", "a short convolution in place of attention"),
        std::pair("falcon_h1", "a state space beside attention in one layer"),
        std::pair("jamba", "(Mamba) is not modelled"),
        std::pair("cohere2_moe", "a layer with experts beside attention")}) {
    EXPECT_THAT(of(type), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(what))) << type;
  }
  // MiniMax M3's decoder calls itself an M2.
  EXPECT_THAT(Read(R"({"model_type": "minimax_m3_vl", "text_config": {"model_type": "minimax_m2", "hidden_size": 64,
      "sparse_attention_config": {}}})"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("blocks that an indexer picks")));
}

}  // namespace
}  // namespace meshwright
