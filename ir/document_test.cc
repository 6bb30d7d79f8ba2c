#include "ir/document.h"

#include <cstdio>
#include <fstream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Repeat(absl::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) absl::StrAppend(&all, text);
  return all;
}

// The message of the error that parsing `text` ends in, or "OK".
std::string ErrorOf(absl::string_view text) {
  const absl::StatusOr<Document> document = ParseDocument(text, "f.yaml");
  if (document.ok()) return "OK";
  EXPECT_EQ(document.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(document.status().message());
}

template <class T>
std::string MessageOf(const absl::StatusOr<T>& result) {
  return std::string(result.status().message());
}

class Doc {  // a document that must parse
 public:
  explicit Doc(absl::string_view text) : document_(ParseDocument(text, "f.yaml")) {
    EXPECT_THAT(document_, IsOk()) << text;
  }
  NodeRef operator[](absl::string_view field) const { return document_->root()[field]; }
  NodeRef root() const { return document_->root(); }

 private:
  absl::StatusOr<Document> document_;
};

TEST(ParseDocumentTest, KeepsOrderPlacesAndQuotes) {
  const Doc doc("z: 1\na:\n  - x\n  - 'y z'\n  - {b: [1, 2]}\nm:\n");
  ASSERT_EQ(doc.root().size(), 3u);
  const std::vector<NodeRef> fields = doc.root().children();
  EXPECT_EQ(fields[0].key(), "z");
  EXPECT_EQ(fields[1].key(), "a");
  EXPECT_TRUE(fields[2].is_null());
  const std::vector<NodeRef> items = doc["a"].children();
  ASSERT_EQ(items.size(), 3u);
  EXPECT_FALSE(items[0].quoted());
  EXPECT_TRUE(items[1].quoted());
  EXPECT_EQ(items[1].text(), "y z");
  EXPECT_EQ(items[1].line(), 4);
  EXPECT_EQ(items[1].column(), 5);
  const NodeRef two = items[2]["b"].children()[1];
  EXPECT_EQ(two.Path(), "a[2].b[1]");
  EXPECT_EQ(two.line(), 5);
  EXPECT_EQ(two.column(), 13);
  EXPECT_EQ(fields[2].line(), 6) << "an empty value is where its key is";
}

TEST(ParseDocumentTest, TakesJsonTooAndWindowsFiles) {
  const Doc json("{\"a\": [1, null, true], \"b\": \"x\\u00e9\"}");
  EXPECT_EQ(json["b"].text(), "xé");
  EXPECT_TRUE(json["a"].children()[1].is_null());
  const Doc windows(
      "\xEF\xBB\xBF"
      "a: 1\r\nb: 2\r\n");
  EXPECT_EQ(*windows["b"].AsInt(0), 2);
  EXPECT_EQ(windows["b"].line(), 2);
}

// The rows of the table of measured yaml-cpp behaviour, in its order.
TEST(HostileInputTest, NestedAliasesAreRefusedBeforeTheyGrow) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    absl::StrAppendFormat(&bomb, "a%d: &a%d [%s*a%d]\n", i, i, Repeat(absl::StrFormat("*a%d, ", i - 1), 8), i - 1);
  }
  EXPECT_EQ(ErrorOf(bomb), "f.yaml:1:5: found the anchor \"a0\", wanted plain values; remove it");
  EXPECT_THAT(ErrorOf("a: [1]\nb: *a\n"), HasSubstr("f.yaml:2:4: "));
}

TEST(HostileInputTest, AValueThatContainsItselfIsRefused) {
  EXPECT_EQ(ErrorOf("a: &a [*a]"), "f.yaml:1:4: found the anchor \"a\", wanted plain values; remove it");
}

TEST(HostileInputTest, DepthIsLimited) {
  EXPECT_EQ(ErrorOf(Repeat("[", 64) + Repeat("]", 64)), "OK");
  EXPECT_EQ(ErrorOf(Repeat("[", 65) + Repeat("]", 65)),
            "f.yaml:1:65: found more than 64 lists and maps within each other, wanted a flatter file");
  EXPECT_THAT(ErrorOf(Repeat("[", 600) + Repeat("]", 600)), HasSubstr("more than 64"));
  EXPECT_THAT(ErrorOf(Repeat("{a: ", 600) + "1" + Repeat("}", 600)), HasSubstr("more than 64"));
  EXPECT_THAT(ErrorOf(Repeat("- ", 500) + "x"), HasSubstr("more than 64"));
  EXPECT_NE(ErrorOf(Repeat("[", 1 << 20)), "OK");
  EXPECT_NE(ErrorOf(Repeat("{a: ", 1 << 18)), "OK");
}

TEST(HostileInputTest, ADuplicateKeyNamesBothLines) {
  EXPECT_EQ(ErrorOf("tp: 1\npp: 1\ntp: 2\n"),
            "f.yaml:3:1: found the key \"tp\" a second time (lines 1 and 3), wanted it once; remove one of the two");
  EXPECT_THAT(ErrorOf("{a: 1, \"a\": 2}"), HasSubstr("a second time (lines 1 and 1)"));
  EXPECT_EQ(ErrorOf("x: {a: 1}\ny: {a: 1}\n"), "OK");
  EXPECT_EQ(ErrorOf("x: {a: {b: 1}, b: 1}"), "OK");
}

TEST(HostileInputTest, MergeKeysAreRefused) {
  EXPECT_THAT(ErrorOf("<<: {a: 1}\n"), HasSubstr("f.yaml:1:1: found the merge key <<"));
}

TEST(HostileInputTest, LeadingZerosAreRefused) {
  const Doc doc("a: 010\n");
  EXPECT_EQ(MessageOf(doc["a"].AsInt(0)), "f.yaml:1:4: a: found \"010\", wanted an integer of at least 0; write 10");
  EXPECT_THAT(doc["a"].AsDouble(), StatusIs(absl::StatusCode::kInvalidArgument, "wanted a number"));
}

TEST(HostileInputTest, NanAndInfAreRefused) {
  const Doc doc("a: [.nan, .inf, -.inf, .NaN, nan, inf]\n");
  for (const NodeRef& item : doc["a"].children()) {
    EXPECT_THAT(item.AsDouble(), StatusIs(absl::StatusCode::kInvalidArgument, "wanted a number")) << item.text();
  }
}

TEST(HostileInputTest, NumbersThatDoNotFitAreRefusedWithLineAndField) {
  const Doc doc("a: [1e3, 1_000, 12abc, 1.5e400, 12345678901234567890, -1, 300]\n");
  const std::vector<NodeRef> items = doc["a"].children();
  for (size_t i = 0; i < items.size(); ++i) {
    EXPECT_THAT(items[i].AsInt(0, 255),
                StatusIs(absl::StatusCode::kInvalidArgument, absl::StrCat(": a[", i, "]: found")))
        << items[i].text();
  }
  EXPECT_THAT(items[3].AsDouble(), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(HostileInputTest, OnlyTrueAndFalseAreBools) {
  const Doc doc("a: [yes, \"true\", True, 1, on]\nb: true\nc: false\n");
  for (const NodeRef& item : doc["a"].children()) {
    EXPECT_THAT(item.AsBool(), StatusIs(absl::StatusCode::kInvalidArgument, "wanted true or false")) << item.text();
  }
  EXPECT_EQ(MessageOf(doc["a"].children()[1].AsBool()),
            "f.yaml:1:10: a[1]: found the text \"true\", wanted true or false; remove the quotes");
  EXPECT_TRUE(*doc["b"].AsBool());
  EXPECT_FALSE(*doc["c"].AsBool());
}

TEST(HostileInputTest, TabsBrokenMapsAndOpenQuotesAreExplained) {
  EXPECT_EQ(ErrorOf("a: 1\n\tb: 2\n"),
            "f.yaml:2:1: found a tab at the beginning of a line, wanted spaces; indent with spaces instead of tabs");
  EXPECT_EQ(ErrorOf("a: {b: [1, 2}\n"),
            "f.yaml:1:13: found a closing bracket of another kind, wanted first the one that was opened last");
  EXPECT_THAT(ErrorOf("a: {\"b"), HasSubstr("found the end of the file within a text in quotes, wanted the closing"));
  EXPECT_THAT(ErrorOf("a: - b\n"), HasSubstr("found a dash within a value, wanted the dashes of a list on lines of"));
  EXPECT_THAT(ErrorOf("a: @b\n"), HasSubstr("found a character that begins no value, wanted a value, in quotes"));
  EXPECT_EQ(ErrorOf("a:\n\tb: 2\n"),
            "f.yaml:2:3: found a second key within a value, wanted each key on a line of its own, in the column of its "
            "neighbours; indent with spaces instead of tabs");
  EXPECT_EQ(ErrorOf("a: b: c\n"),
            "f.yaml:1:5: found a second key within a value, wanted each key on a line of its own, in the column of its "
            "neighbours");
  EXPECT_EQ(ErrorOf("a:\n  - 1\n - 2\n"),
            "f.yaml:3:2: found a line that begins in no column of those above, wanted keys below each other");
  EXPECT_THAT(
      ErrorOf("a: {b: {c: 1}{d: 2}}\n"),
      HasSubstr("found neither a comma nor the closing bracket, wanted one of the two behind a value within { }"));
  EXPECT_THAT(ErrorOf("a: [[1][2]]\n"), HasSubstr("wanted one of the two behind a value within [ ]"));
}

TEST(HostileInputTest, NoiseIsRefusedBySizeFirst) {
  uint32_t state = 1;
  std::string noise;
  for (int i = 0; i < 20'000'000; ++i) noise.push_back(static_cast<char>((state = state * 1664525 + 1013904223) >> 24));
  EXPECT_EQ(ErrorOf(noise), "f.yaml:1:1: found 20000000 bytes, wanted a file of at most 1048576");
  EXPECT_NE(ErrorOf(noise.substr(0, 1000)), "OK");
}

TEST(HostileInputTest, ValuesAreCounted) {
  EXPECT_EQ(ErrorOf("[" + Repeat("1,", 99'998) + "1]"), "OK");  // the list is a value too
  EXPECT_THAT(ErrorOf("[" + Repeat("1,", 99'999) + "1]"), HasSubstr("more than 100000 values"));
}

TEST(HostileInputTest, SecondDocumentsTagsAndOddKeysAreRefused) {
  EXPECT_THAT(ErrorOf("a: 1\n---\nb: 2\n"), HasSubstr("f.yaml:2:1: found a second document"));
  EXPECT_THAT(ErrorOf("- a\nb: 1\n"), HasSubstr("f.yaml:2:1: found a second document, or text behind the end"));
  EXPECT_EQ(ErrorOf("---\na: 1\n...\n"), "OK");
  EXPECT_THAT(ErrorOf("a: !!str 1\n"), HasSubstr("f.yaml:1:4: found the tag \"tag:yaml.org,2002:str\""));
  EXPECT_THAT(ErrorOf("a: !!str null\n"), HasSubstr("found the tag"));
  EXPECT_THAT(ErrorOf("a: ! 12\n"), HasSubstr("found the tag \"!\""));
  EXPECT_THAT(ErrorOf("a: !!map {b: 1}\n"), HasSubstr("found the tag"));
  EXPECT_THAT(ErrorOf("? [1, 2]\n: 3\n"), HasSubstr("a list or map as a key"));
  EXPECT_THAT(ErrorOf("? {a: 1}\n: 3\n"), HasSubstr("a list or map as a key"));
  EXPECT_THAT(ErrorOf("~: 3\n"), HasSubstr("an empty key"));
  EXPECT_THAT(ErrorOf("&x a: 1\n"), HasSubstr("the anchor \"x\""));
  EXPECT_THAT(ErrorOf("a: &x\n"), HasSubstr("the anchor \"x\""));
}

TEST(HostileInputTest, WhatIsCutOffIsRefused) {
  EXPECT_EQ(ErrorOf("a: 'foo\n"), "f.yaml:1:4: found a quote that is never closed, wanted a ' at the end");
  EXPECT_EQ(ErrorOf("a: 'it''s'\nb: \"\\\"\"\n"), "OK");
  EXPECT_NE(ErrorOf("a: 'it''s"), "OK");
  EXPECT_NE(ErrorOf("a: \"foo\n"), "OK");
  EXPECT_NE(ErrorOf("a: \"foo\\\""), "OK");
  EXPECT_EQ(ErrorOf("{a: 1"),
            "f.yaml:1:1: found a list or map as a key, wanted `key: value`; is a closing bracket missing behind it?");
  EXPECT_NE(ErrorOf("a: [1,\n2\n"), "OK");
  EXPECT_EQ(ErrorOf("a: 1\nb\n"), "f.yaml:2:1: found the key \"b\" without a colon, wanted `key: value`");
  EXPECT_NE(ErrorOf("{a: 1 b: 2}"), "OK");
  EXPECT_EQ(ErrorOf(""), "f.yaml:1:1: found nothing, wanted a YAML document");
  EXPECT_EQ(ErrorOf("# only a comment\n"), "f.yaml:1:1: found nothing, wanted a YAML document");
  EXPECT_EQ(ErrorOf("---\n"), "f.yaml:1:1: found nothing, wanted a YAML document");
}

TEST(HostileInputTest, BytesThatAreNotTextAreRefused) {
  EXPECT_EQ(ErrorOf("a: 1\nb: \xFF\n"),
            "f.yaml:2:4: found the byte 0xFF, wanted text in UTF-8; save the file in that encoding");
  EXPECT_EQ(ErrorOf("a: \x1b[2J\n"), "f.yaml:1:4: found a control character (U+001B), wanted printable text");
  EXPECT_EQ(ErrorOf("a: \"\\x1b[2J\"\n"),
            "f.yaml:1:4: found a control character (U+001B) in a text, wanted printable text");
  EXPECT_NE(ErrorOf(std::string("a: 1\0", 5)), "OK");
  EXPECT_NE(ErrorOf(std::string("\xFF\xFE"
                                "a\0:\0",
                                6)),
            "OK");
  EXPECT_NE(ErrorOf("a: 1\rb: 2\n"), "OK");
}

TEST(NodeRefTest, AMissingFieldSaysWhatWasWanted) {
  const Doc doc("links:\n  nvlink:\n    bandwidths: \"450 GB/s\"\n");
  EXPECT_EQ(MessageOf(doc["links"]["nvlink"]["bandwidth"].AsBytesPerSecond()),
            "f.yaml:3:5: links.nvlink.bandwidth: found nothing, wanted a number with a unit; add it");
  EXPECT_EQ(MessageOf(doc["steps"].AsInt(1)), "f.yaml:1:1: steps: found nothing, wanted an integer; add it");
  EXPECT_EQ(MessageOf(doc["links"]["pcie"]["lanes"].AsInt(1)),
            "f.yaml:2:3: links.pcie.lanes: found nothing, wanted an integer; add it");
  EXPECT_FALSE(doc["steps"].present());
  EXPECT_TRUE(doc["links"].present());
}

TEST(NodeRefTest, AFieldOfWhatIsNoMapIsAnError) {
  const Doc doc("a: [1, 2]\nb:\n");
  EXPECT_EQ(MessageOf(doc["a"]["x"].AsInt(0)), "f.yaml:1:4: a: found a list of 2, wanted a map with the key x");
  EXPECT_EQ(MessageOf(doc["b"]["x"].AsInt(0)), "f.yaml:2:1: b: found nothing, wanted a map with the key x");
}

TEST(NodeRefTest, FallbacksAreForMissingFieldsOnly) {
  const Doc doc("a: 3\nb:\nc: x\n");
  EXPECT_EQ(*doc["a"].AsIntOr(7, 1), 3);
  EXPECT_EQ(*doc["none"].AsIntOr(7, 1), 7);
  EXPECT_EQ(MessageOf(doc["b"].AsIntOr(7, 1)),
            "f.yaml:2:1: b: found nothing, wanted an integer; write a value or remove the key");
  EXPECT_THAT(doc["c"].AsIntOr(7, 1), StatusIs(absl::StatusCode::kInvalidArgument, "found \"x\""));
  EXPECT_EQ(*doc["none"].AsDoubleOr(0.5), 0.5);
  EXPECT_EQ(*doc["none"].AsBoolOr(true), true);
  EXPECT_EQ(*doc["none"].AsStringOr("s"), "s");
  EXPECT_EQ(*doc["none"].AsBytesOr(MiB(1)), MiB(1));
  EXPECT_TRUE(doc["none"].AsListIfPresent()->empty());
  EXPECT_TRUE(doc["none"].AsMapIfPresent()->empty());
  EXPECT_THAT(doc["b"].AsListIfPresent(), StatusIs(absl::StatusCode::kInvalidArgument, "wanted a list"));
  EXPECT_THAT(doc["none"].AsList(), StatusIs(absl::StatusCode::kInvalidArgument, "found nothing, wanted a list"));
}

TEST(NodeRefTest, ReadsQuantities) {
  const Doc doc("memory: 80 GB\nbandwidth: \"450 GB/s\"\nlatency: 9.4 us\npeak: 312 TFLOP/s\nbare: 450\n");
  EXPECT_EQ(*doc["memory"].AsBytes(), Bytes(80'000'000'000));
  EXPECT_EQ(*doc["bandwidth"].AsBytesPerSecond(), GBps(450));
  EXPECT_EQ(*doc["latency"].AsNanos(), Nanos(9400));
  EXPECT_EQ(*doc["peak"].AsFlopsPerSecond(), Teraflops(312));
  EXPECT_EQ(MessageOf(doc["bare"].AsBytesPerSecond()),
            "f.yaml:5:7: bare: found \"450\", which has no unit, wanted a rate; write e.g. \"450 GB/s\"");
}

enum class Fruit { kApple, kPear };
constexpr absl::string_view kFruits[] = {"apple", "pear"};

TEST(NodeRefTest, ReadsEnums) {
  const Doc doc("a: pear\nb: peer\nc: [pear]\n");
  EXPECT_EQ(*doc["a"].AsEnum<Fruit>(kFruits), Fruit::kPear);
  EXPECT_EQ(*doc["none"].AsEnumOr(Fruit::kApple, kFruits), Fruit::kApple);
  EXPECT_EQ(MessageOf(doc["b"].AsEnum<Fruit>(kFruits)),
            "f.yaml:2:4: b: found \"peer\", wanted one of apple, pear; did you mean \"pear\"?");
  EXPECT_EQ(MessageOf(doc["c"].AsEnum<Fruit>(kFruits)), "f.yaml:3:4: c: found a list of 1, wanted one of apple, pear");
}

TEST(NodeRefTest, ReadsVariants) {
  const Doc doc("a: pear\nb: {pear: {size: 3}}\nc: {pear: 1, apple: 2}\nd: {plum: 1}\ne: {}\nf: [pear]\n");
  ASSERT_OK_AND_ASSIGN(const NodeRef::Variant bare, doc["a"].AsVariant(kFruits));
  EXPECT_EQ(bare.index, 1u);
  EXPECT_FALSE(bare.options.present());
  EXPECT_EQ(*bare.options["size"].AsIntOr(7, 1), 7);
  ASSERT_OK_AND_ASSIGN(const NodeRef::Variant with_options, doc["b"].AsVariant(kFruits));
  EXPECT_EQ(with_options.index, 1u);
  EXPECT_EQ(*with_options.options["size"].AsIntOr(7, 1), 3);
  EXPECT_THAT(doc["c"].AsVariant(kFruits), StatusIs(absl::StatusCode::kInvalidArgument,
                                                    "found a map of 2, wanted a map "
                                                    "with one of the keys apple, pear"));
  EXPECT_THAT(doc["d"].AsVariant(kFruits),
              StatusIs(absl::StatusCode::kInvalidArgument, "d.plum: found an unknown key"));
  EXPECT_THAT(doc["e"].AsVariant(kFruits), StatusIs(absl::StatusCode::kInvalidArgument, "found an empty map"));
  EXPECT_THAT(doc["f"].AsVariant(kFruits), StatusIs(absl::StatusCode::kInvalidArgument, "found a list of 1"));
  EXPECT_THAT(doc["g"].AsVariant(kFruits), StatusIs(absl::StatusCode::kInvalidArgument, "g: found nothing"));
}

TEST(NodeRefTest, ReadsLists) {
  const Doc doc("shape: [16, 32]\nbad: [16, x]\nnames: [a, \"b\"]\nreal: [0.5, 1]\nempty: []\n");
  EXPECT_THAT(*doc["shape"].AsInts(1), ElementsAre(16, 32));
  EXPECT_EQ(MessageOf(doc["bad"].AsInts(1)), "f.yaml:2:11: bad[1]: found \"x\", wanted an integer of at least 1");
  EXPECT_THAT(*doc["names"].AsStrings(), ElementsAre("a", "b"));
  EXPECT_THAT(*doc["real"].AsDoubles(), ElementsAre(0.5, 1));
  EXPECT_TRUE(doc["empty"].AsInts(1)->empty());
  EXPECT_THAT(doc["names"].AsMap(), StatusIs(absl::StatusCode::kInvalidArgument, "found a list of 2, wanted a map"));
}

TEST(NodeRefTest, NamesAreSafe) {
  const Doc doc(
      "good: [a, layers.0/mlp, Q-1, 7, x..y]\n"
      "bad: ['', 'a b', ../x, a/../b, /a, a/, a//b, '$(ls)', '</script>', 'é', \"a\\nb\", ., {a: 1}]\n");
  for (const NodeRef& item : doc["good"].children()) EXPECT_THAT(item.AsName(), IsOk()) << item.text();
  for (const NodeRef& item : doc["bad"].children()) {
    EXPECT_THAT(item.AsName(), StatusIs(absl::StatusCode::kInvalidArgument, "wanted a name")) << item.text();
  }
  const Doc long_name(absl::StrCat("a: ", Repeat("x", 129), "\nb: ", Repeat("x", 128)));
  EXPECT_FALSE(long_name["a"].AsName().ok());
  EXPECT_THAT(long_name["b"].AsName(), IsOk());
}

TEST(NodeRefTest, UnknownKeysAreErrorsAtTheKey) {
  const Doc doc("name: x\ntraining:\n  steps: 1\n  leraning_rate: 2\n");
  EXPECT_OK(doc.root().CheckKeys({"training", "name"}));
  EXPECT_EQ(std::string(doc["training"].CheckKeys({"steps", "learning_rate"}).message()),
            "f.yaml:4:3: training.leraning_rate: found an unknown key, wanted one of steps, learning_rate; "
            "did you mean \"learning_rate\"?");
  // As in MindSpore's Python; commas end the values of a map in braces.
  const Doc tuple("{op: MatMul, shard: ((2, 4), (4, 1))}\n");
  EXPECT_THAT(tuple.root().CheckKeys({"op", "shard"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "a tuple is written as a list: [[2, 4], [4, 1]]"));
  EXPECT_THAT(doc["name"].CheckKeys({"a"}), StatusIs(absl::StatusCode::kInvalidArgument, "found \"x\", wanted a map"));
  EXPECT_THAT(doc["none"].CheckKeys({"a"}), StatusIs(absl::StatusCode::kInvalidArgument, "wanted a map; add it"));
}

TEST(NodeRefTest, StrangeKeysAreQuotedInPaths) {
  const Doc doc("\"a b\\n\": {\"x.y\": 1}\n");
  EXPECT_EQ(doc["a b\n"]["x.y"].Path(), "\"a b\\n\".\"x.y\"");
}

TEST(NodeRefTest, LocatesErrorsOfOthers) {
  const Doc doc("heads: 12\n");
  EXPECT_EQ(std::string(doc["heads"].Error("12", "a divisor of 100", "write 10").message()),
            "f.yaml:1:8: heads: found 12, wanted a divisor of 100; write 10");
  EXPECT_EQ(doc["heads"].Locate(absl::UnimplementedError("no kernel")),
            absl::UnimplementedError("f.yaml:1:8: heads: no kernel"));
  EXPECT_OK(doc["heads"].Locate(absl::OkStatus()));
}

TEST(DocumentTest, NodeRefsSurviveMovesAndCopies) {
  absl::StatusOr<Document> parsed = ParseDocument("a: 1\n", "f.yaml");
  ASSERT_OK(parsed);
  const NodeRef a = parsed->root()["a"];
  std::optional<Document> moved = *std::move(parsed);
  const Document copy = *moved;
  moved.reset();
  EXPECT_EQ(*a.AsInt(0), 1);
  EXPECT_EQ(copy.file_name(), "f.yaml");
}

TEST(ReadTextFileTest, WhatCannotBeReadIsAnError) {
  const std::string path = testing::TempDir() + "/document_test.yaml";
  std::ofstream(path) << "a: 1\n";
  ASSERT_OK_AND_ASSIGN(const std::string text, ReadTextFile(path));
  EXPECT_EQ(text, "a: 1\n");
  std::remove(path.c_str());
  EXPECT_THAT(ReadTextFile(path), StatusIs(absl::StatusCode::kNotFound, "cannot be opened: No such file"));
  EXPECT_FALSE(ReadTextFile(testing::TempDir()).ok());  // a folder
}

TEST(QuoteYamlTest, ReadsBackAsTheSameText) {
  for (const char* text :
       {"plain",     "true",  "null", "~",   "",   "- a", "a: b", "#x", "\"q\"", "back\\slash", "two\nlines",
        "tab\there", " lead", "é😀",   "010", "<<", "*a",  "&a",   "!x", "a #b",  "{",           "'"}) {
    SCOPED_TRACE(text);
    const Doc doc(absl::StrCat("x: ", QuoteYaml(text), "\n"));
    EXPECT_EQ(*doc["x"].AsString(), text);
  }
}

}  // namespace
}  // namespace meshwright
