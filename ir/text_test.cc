#include "ir/text.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(ParseIntTest, TakesDigitsOnly) {
  EXPECT_THAT(ParseInt("0"), IsOk());
  EXPECT_EQ(*ParseInt("-17"), -17);
  EXPECT_EQ(*ParseInt("9223372036854775807"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(*ParseInt("-9223372036854775808"), std::numeric_limits<int64_t>::min());
}

TEST(ParseIntTest, RefusesWhatOtherReadersGuessAt) {
  EXPECT_EQ(MessageOf(ParseInt("010").status()), "found \"010\", wanted an integer; write 10");
  EXPECT_EQ(MessageOf(ParseInt("1e3").status()), "found \"1e3\", wanted an integer; write 1000");
  EXPECT_EQ(MessageOf(ParseInt("2.0").status()), "found \"2.0\", wanted an integer; write 2");
  EXPECT_EQ(MessageOf(ParseInt("1_000").status()), "found \"1_000\", wanted an integer; write 1000");
  for (const char* text :
       {"", "-", "+1", "12abc", " 1", "1 ", "0x10", "0o17", "1.5", "1e400", ".5", "5.", "--1", "١"}) {
    SCOPED_TRACE(text);
    const absl::Status status = ParseInt(text).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, "wanted an integer"));
    EXPECT_EQ(MessageOf(status).find(';'), std::string::npos) << "advice for what nobody can guess: " << status;
  }
}

TEST(ParseIntTest, SaysTheRange) {
  EXPECT_EQ(MessageOf(ParseInt("300", 0, 255).status()), "found \"300\", wanted an integer from 0 to 255");
  EXPECT_EQ(MessageOf(ParseInt("-1", 0).status()), "found \"-1\", wanted an integer of at least 0");
  EXPECT_EQ(MessageOf(ParseInt("12345678901234567890").status()), "found \"12345678901234567890\", wanted an integer");
  EXPECT_EQ(*ParseInt("255", 0, 255), 255);
  EXPECT_EQ(*ParseInt("0", 0, 255), 0);
}

TEST(ParseDoubleTest, IsFinite) {
  EXPECT_EQ(*ParseDouble("0.9"), 0.9);
  EXPECT_EQ(*ParseDouble("-1e-5"), -1e-5);
  EXPECT_EQ(*ParseDouble("7"), 7);
  for (const char* text : {"nan", ".nan", "inf", ".inf", "-.inf", "1.5e400", "1e-400", ".5", "5.", "1e", "010", "1_0",
                           "0x1p3", "", "e5", "1,5"}) {
    EXPECT_THAT(ParseDouble(text), StatusIs(absl::StatusCode::kInvalidArgument, "wanted a number")) << text;
  }
  EXPECT_EQ(MessageOf(ParseDouble("1.1", 0, 1).status()), "found \"1.1\", wanted a number from 0 to 1");
}

TEST(ParseQuantityTest, KnowsPowersOfTenAndOfTwoBytesAndBits) {
  EXPECT_EQ(*ParseBytes("80 GB"), Bytes(80'000'000'000));
  EXPECT_EQ(*ParseBytes("40 GiB"), GiB(40));
  EXPECT_EQ(*ParseBytes("80GB"), Bytes(80'000'000'000));
  EXPECT_EQ(*ParseBytes("1.5 KiB"), Bytes(1536));
  EXPECT_EQ(*ParseBytes("0 B"), Bytes(0));
  EXPECT_EQ(*ParseQuantity("450 GB/s", UnitKind::kBytesPerSecond), 450e9);
  EXPECT_EQ(*ParseQuantity("400 Gb/s", UnitKind::kBytesPerSecond), 50e9);  // 8 bits to the byte
  EXPECT_EQ(*ParseQuantity("400Gbps", UnitKind::kBytesPerSecond), 50e9);
  EXPECT_EQ(*ParseQuantity("312 TFLOP/s", UnitKind::kFlopsPerSecond), 312e12);
  EXPECT_EQ(*ParseQuantity("2 h", UnitKind::kTime), 7200);
  EXPECT_EQ(*ParseQuantity("2.5 USD/h", UnitKind::kPrice), 2.5);
  EXPECT_EQ(*ParseNanos("10 us"), Nanos(10'000));
  EXPECT_EQ(*ParseNanos("10 µs"), Nanos(10'000));
  EXPECT_EQ(*ParseNanos("9.4 us"), Nanos(9'400));
  EXPECT_EQ(*ParseNanos("1e-3 s"), Nanos(1'000'000));
}

TEST(ParseQuantityTest, SizesAndTimesAreRoundedToTheNearest) {
  EXPECT_EQ(*ParseBytes("0.3 KiB"), Bytes(307));  // 307.2
  EXPECT_EQ(*ParseBytes("80.1 GB"), Bytes(80'100'000'000));
  EXPECT_EQ(*ParseNanos("1.6 ns"), Nanos(2));
  EXPECT_THAT(ParseNanos("0.1 ns"), StatusIs(absl::StatusCode::kInvalidArgument, "0 or at least one"));
  EXPECT_THAT(ParseBytes("5000 PB"), StatusIs(absl::StatusCode::kInvalidArgument, "2^62 bytes"));  // 5.0e18 > 4.6e18
}

TEST(ParseQuantityTest, ANumberWithoutUnitIsAnErrorThatSaysWhichToWrite) {
  EXPECT_EQ(MessageOf(ParseQuantity("450", UnitKind::kBytesPerSecond).status()),
            "found \"450\", which has no unit, wanted a rate; write e.g. \"450 GB/s\"");
  EXPECT_EQ(MessageOf(ParseQuantity("60", UnitKind::kTime).status()),
            "found \"60\", which has no unit, wanted a time; write e.g. \"60 us\" or \"60 s\"");
  EXPECT_EQ(MessageOf(ParseQuantity("fast", UnitKind::kTime).status()),
            "found \"fast\", wanted a time; write e.g. \"10 us\"");
}

TEST(ParseQuantityTest, AnUnknownUnitIsAnErrorWithTheNearest) {
  EXPECT_THAT(ParseQuantity("312 TFLOPS", UnitKind::kFlopsPerSecond),
              StatusIs(absl::StatusCode::kInvalidArgument, "did you mean \"TFLOP/s\"?"));
  EXPECT_THAT(ParseBytes("80 GB/s"), StatusIs(absl::StatusCode::kInvalidArgument, "one of the units B, kB, MB"));
  EXPECT_THAT(ParseBytes("80 gb"), StatusIs(absl::StatusCode::kInvalidArgument, "did you mean \"GB\"?"));
  EXPECT_THAT(ParseBytes("80 GB GB"), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ParseQuantityTest, RefusesNegativeAndWhereItMakesNoSenseZero) {
  EXPECT_THAT(ParseBytes("-1 GB"), StatusIs(absl::StatusCode::kInvalidArgument, "not negative"));
  EXPECT_THAT(ParseQuantity("0 GB/s", UnitKind::kBytesPerSecond),
              StatusIs(absl::StatusCode::kInvalidArgument, "a rate above zero"));
  EXPECT_THAT(ParseQuantity("1e308 TFLOP/s", UnitKind::kFlopsPerSecond), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(NearestNameTest, GuessesOnlyWhatIsNear) {
  constexpr absl::string_view kNames[] = {"hidden", "layers", "heads", "kv_heads"};
  EXPECT_EQ(NearestName("leyers", kNames), "layers");
  EXPECT_EQ(NearestName("hiddne", kNames), "hidden");  // two neighbours swapped count as one
  EXPECT_EQ(NearestName("HEADS", kNames), "heads");
  EXPECT_EQ(NearestName("rows", kNames), "");
  EXPECT_EQ(NearestName("x", kNames), "");
  EXPECT_EQ(NearestName("", kNames), "");
  EXPECT_EQ(NearestName(std::string(1000000, 'h'), kNames), "");
}

TEST(NearestNameTest, TakesTheFirstOfEquallyNear) {
  constexpr absl::string_view kNames[] = {"dp1", "dp2"};
  EXPECT_EQ(NearestName("dp3", kNames), "dp1");
}

// As other tools call the same thing.
TEST(NearestNameTest, GuessesByWordsWhereLettersDiffer) {
  constexpr absl::string_view kNames[] = {"batch",         "sequence",           "learning_rate", "tensor_parallel",
                                          "data_parallel", "semi_auto_parallel", "auto_parallel", "h100-sxm"};
  EXPECT_EQ(NearestName("global_batch_size", kNames), "batch");
  EXPECT_EQ(NearestName("seq", kNames), "sequence");
  EXPECT_EQ(NearestName("lr", kNames), "learning_rate");
  EXPECT_EQ(NearestName("tp", kNames), "tensor_parallel");
  EXPECT_EQ(NearestName("tensor_parallel_size", kNames), "tensor_parallel");
  EXPECT_EQ(NearestName("auto", kNames), "auto_parallel") << "nearer in length than semi_auto_parallel";
  EXPECT_EQ(NearestName("H100-80GB-SXM5", kNames), "h100-sxm");
  EXPECT_EQ(NearestName("pp", kNames), "");
  EXPECT_EQ(NearestName("b", kNames), "") << "a letter is no word";
}

TEST(ParseAmountTest, LettersAreThousandsToTrillions) {
  for (const auto& [text, amount] : std::vector<std::pair<std::string, double>>{
           {"300e9", 300e9}, {"300B", 300e9}, {"15T", 15e12}, {"1.5t", 1.5e12}, {"2M", 2e6}, {"1k", 1000}, {"1", 1}}) {
    ASSERT_OK_AND_ASSIGN(const double parsed, ParseAmount(text));
    EXPECT_DOUBLE_EQ(parsed, amount) << text;
  }
  for (const char* const bad : {"", "T", "0", "-1T", "2TB", "0.5", "nan", "inf", "1e400", "1e300T"}) {
    EXPECT_THAT(ParseAmount(bad),
                StatusIs(absl::StatusCode::kInvalidArgument, "wanted a number of at least 1, e.g. 300e9 or 300B"))
        << bad;
  }
}

TEST(UnknownNameTest, ListsTheNames) {
  constexpr absl::string_view kNames[] = {"gpipe", "1f1b"};
  EXPECT_EQ(MessageOf(UnknownName("1f1b2", kNames)),
            "found \"1f1b2\", wanted one of gpipe, 1f1b; did you mean \"1f1b\"?");
  EXPECT_EQ(MessageOf(UnknownName("zero", kNames)), "found \"zero\", wanted one of gpipe, 1f1b");
}

TEST(QuoteForMessageTest, EscapesAndCuts) {
  EXPECT_EQ(QuoteForMessage("a\"b\\\n\x1b[2J"), R"("a\"b\\\n\x1b[2J")");
  EXPECT_EQ(QuoteForMessage(std::string(1000, 'x')), "\"" + std::string(60, 'x') + "...\"");
  EXPECT_EQ(QuoteForMessage(std::string(59, 'x') + "éé"), "\"" + std::string(59, 'x') + "é...\"");
}

TEST(QuoteYamlTest, QuotesWhatIsNotSafeAsItIs) {
  EXPECT_EQ(QuoteYaml("layers.0/mlp"), "layers.0/mlp");
  EXPECT_EQ(QuoteYaml("true"), "\"true\"");
  EXPECT_EQ(QuoteYaml("No"), "\"No\"");
  EXPECT_EQ(QuoteYaml("12"), "\"12\"");
  EXPECT_EQ(QuoteYaml(""), "\"\"");
  EXPECT_EQ(QuoteYaml("a: b"), "\"a: b\"");
  EXPECT_EQ(QuoteYaml("80 GB \"x\"\n"), "\"80 GB \\\"x\\\"\\n\"");
  EXPECT_EQ(QuoteYaml("\xff"), "\"\xEF\xBF\xBD\"");
}

TEST(ReadUtf8Test, RefusesWhatIsNotTheShortestForm) {
  EXPECT_EQ(ReadUtf8("é").code, 0xE9u);
  EXPECT_EQ(ReadUtf8("😀").code, 0x1F600u);
  EXPECT_EQ(ReadUtf8("😀x").length, 4u);
  for (const char* text : {"\xC0\xAF", "\x80", "\xE0\x80\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC3", "\xFF"}) {
    EXPECT_EQ(ReadUtf8(text).length, 0u);
  }
}

}  // namespace
}  // namespace meshwright
