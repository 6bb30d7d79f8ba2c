#include "tools/import/toml_text.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/damage.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr absl::string_view kText = R"(# a comment
title = "an: [odd] \"one\" #"

[training]
seq_len = 8_192   # tokens
lr = 3e-4
compile = true
parts = [
  "layers.1",
  'layers.2',
]
[model.inner]
name = "8"
when = 1979-05-27
)";

TEST(TomlTextTest, ValuesLieWhereTheFileHasThem) {
  ASSERT_OK_AND_ASSIGN(const Document document, ParseToml(kText, "a.toml"));
  const NodeRef in = document.root();
  EXPECT_THAT(in["title"].AsString().value(), "an: [odd] \"one\" #");
  const NodeRef length = in["training.seq_len"];
  EXPECT_THAT(length.AsInt(1).value(), 8192);
  EXPECT_EQ(length.line(), 5);
  EXPECT_EQ(length.column(), 11);
  EXPECT_DOUBLE_EQ(in["training.lr"].AsDouble().value(), 3e-4);
  EXPECT_TRUE(in["training.compile"].AsBool().value());
  EXPECT_THAT(in["training.parts"].AsStrings().value(), ElementsAre("layers.1", "layers.2"));
  EXPECT_EQ(in["training.parts"].line(), 8);
  EXPECT_TRUE(in["model.inner.name"].quoted());  // a text, and no number
  EXPECT_EQ(in["model.inner.name"].line(), 13);
  EXPECT_THAT(std::string(length.AsInt(1, 5).status().message()),
              HasSubstr("a.toml:5:11: \"training.seq_len\": found"));
}

TEST(TomlTextTest, Errors) {
  const auto error = [](absl::string_view text) { return std::string(ParseToml(text, "a.toml").status().message()); };
  EXPECT_THAT(error("[a]\nb = \n"), HasSubstr("a.toml:2:5: "));
  EXPECT_THAT(error("a = 1\n[[ .b]]\n"), HasSubstr("a.toml:1:1: found text that is no TOML"));
  EXPECT_THAT(error("[\na = 1\n"), HasSubstr("a.toml:1:1: found text that is no TOML"));
  EXPECT_EQ(error("a = [\n  [\n    1,\n  ],\n [],\n]\n"), "");
  EXPECT_THAT(error("a = 1\na = 2\n"), HasSubstr("a.toml:2:"));
  EXPECT_THAT(error(absl::StrCat("x = 1\n[a", std::string(100000, '.'), "b]")),
              HasSubstr("a.toml:2:1: found more than 64 points"));
  EXPECT_THAT(error(absl::StrCat("x = ", std::string(100000, '['))),
              HasSubstr("a.toml:1:1: found more than 64 points"));
  EXPECT_THAT(error(absl::StrCat("x = \"", std::string(200, '.'), "\"")), "");  // a text may have any
  // Short lines whose keys are long together.
  std::string keys;
  for (int i = 0; i < 20000; ++i) absl::StrAppend(&keys, "[", std::string(100, 'a'), i, ".b]\nc = 1\n");
  EXPECT_THAT(error(keys), HasSubstr("wanted at most"));
  EXPECT_THAT(error("\xff\xfe"), HasSubstr("a.toml:1:"));
}

TEST(TomlTextTest, DamagedFilesAreReadOrRefused) {
  constexpr absl::string_view kTokens[] = {"[",      "]",   "{",   "}",    "=",     "\"",      "'",
                                           "\"\"\"", "'''", ".",   ",",    "\n",    "#",       "-1",
                                           "1e400",  "nan", "inf", "true", "[[a]]", "\\u0000", "\xff"};
  uint32_t read = 0;
  for (uint32_t seed = 0; seed < 10000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const absl::StatusOr<Document> document = ParseToml(Damaged(std::string(kText), kTokens, 4, random), "a.toml");
    if (document.ok()) {
      ++read;
    } else {
      EXPECT_THAT(std::string(document.status().message()), HasSubstr("a.toml:"));
    }
  }
  EXPECT_GT(read, 100u);
}

}  // namespace
}  // namespace meshwright
