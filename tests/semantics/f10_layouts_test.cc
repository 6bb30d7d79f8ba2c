// F10: layouts over named axes (S6.1 to S6.7, S6.9 to S6.12), as `layouts:` and `shard: {layout: ...}` of model files
// say them; R13, R14. Their serial form (S6.13) is held by planner/strategy_file_test.
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/document.h"
#include "ir/error_kind.h"
#include "ir/testing.h"
#include "tests/semantics/networks.h"
#include "tests/semantics/pipelines.h"

namespace meshwright {
namespace {

constexpr absl::string_view kCube = "cube: {device_matrix: [2, 2, 2], alias_name: [dp, sp, mp]}";

std::string WithLayout(absl::string_view in, absl::string_view more = "", absl::string_view layouts = kCube,
                       absl::string_view x = "[256, 784]", absl::string_view w = "[784, 512]",
                       absl::string_view y = "[256, 512]") {
  const std::string keys = absl::StrCat("shard: {layout: cube, in_strategy: ", in, "}", more);
  return Product({.x = x, .w = w, .y = y, .keys = keys, .layouts = layouts});
}
constexpr absl::string_view kSeedD = "[[mp, [sp, dp]], [[sp, dp], None]]";

// S6.9: seed D's program.
TEST(F10Test, SeedD) {
  ASSERT_OK_AND_ASSIGN(const Network n, Network::Make(WithLayout(kSeedD)));
  const struct {
    const char *x_rows, *k, *all_reduce, *mirror;
  } table[] = {
      {"0:128", "0:196", "0-2-4-6", "0-1"},   {"128:256", "0:196", "1-3-5-7", "0-1"},
      {"0:128", "392:588", "0-2-4-6", "2-3"}, {"128:256", "392:588", "1-3-5-7", "2-3"},
      {"0:128", "196:392", "0-2-4-6", "4-5"}, {"128:256", "196:392", "1-3-5-7", "4-5"},
      {"0:128", "588:784", "0-2-4-6", "6-7"}, {"128:256", "588:784", "1-3-5-7", "6-7"},
  };
  EXPECT_EQ(n.Local("matmul"), "(128, 196)(196, 512)->(128, 512)");
  for (int64_t rank = 0; rank < 8; ++rank) {
    SCOPED_TRACE(rank);
    EXPECT_EQ(n.Reads("matmul", 0, rank), absl::StrCat(table[rank].x_rows, ", ", table[rank].k));
    EXPECT_EQ(n.Reads("matmul", 1, rank), absl::StrCat(table[rank].k, ", 0:512"));
    EXPECT_EQ(n.Mirror("w", rank), table[rank].mirror);
    EXPECT_EQ(n.Holds("matmul", rank), absl::StrCat(table[rank].x_rows, ", 0:512"));
    // An AllReduce may use any order of its group (S6.8); ours is the layout's.
    EXPECT_EQ(n.Reduces("matmul", rank), rank % 2 == 0 ? "all_reduce 0-4-2-6" : "all_reduce 1-5-3-7");
  }
}

// S6.5, S6.4: one element per rank. No tuple can say what the layout says.
TEST(F10Test, OneElementPerRank) {
  ASSERT_OK_AND_ASSIGN(const Network layout,
                       Network::Make(WithLayout(kSeedD, "", kCube, "[2, 4]", "[4, 2]", "[2, 2]")));
  ASSERT_OK_AND_ASSIGN(
      const Network tuple,
      Network::Make(Product({.x = "[2, 4]", .w = "[4, 2]", .y = "[2, 2]", .keys = "shard: [[2, 4], [4, 1]]"})));
  const int64_t rows_of_layout[2][4] = {{0, 4, 2, 6}, {1, 5, 3, 7}};
  const int64_t rows_of_tuple[2][4] = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t column = 0; column < 4; ++column) {
      const std::string element = absl::StrCat(row, ":", row + 1, ", ", column, ":", column + 1);
      EXPECT_EQ(layout.Reads("matmul", 0, rows_of_layout[row][column]), element);
      EXPECT_EQ(tuple.Reads("matmul", 0, rows_of_tuple[row][column]), element);
    }
  }
}

// S6.4's third call: three axes on one dim, mp most significant: rank (dp, sp, mp) has row 4 mp + 2 sp + dp.
TEST(F10Test, ThreeAxesOnADim) {
  ASSERT_OK_AND_ASSIGN(const Network n, Network::Make(WithLayout("[[[mp, sp, dp], None], [None, None]]", "", kCube,
                                                                 "[8, 4]", "[4, 4]", "[8, 4]")));
  for (int64_t rank = 0; rank < 8; ++rank) {
    const int64_t dp = rank / 4, sp = rank / 2 % 2, mp = rank % 2, row = 4 * mp + 2 * sp + dp;
    EXPECT_EQ(n.Reads("matmul", 0, rank), absl::StrCat(row, ":", row + 1, ", 0:4"));
    EXPECT_EQ(n.Replicas("matmul", 1, rank), "0,1,2,3,4,5,6,7");  // S6.3: axes not used are replicas
  }
}

// S6.10.
TEST(F10Test, ContractionOverOneAxis) {
  for (const char* names : {"alias_name", "name"}) {  // both keywords of S6.1
    const std::string line = absl::StrCat("cube: {device_matrix: [8], ", names, ": [tp]}");
    ASSERT_OK_AND_ASSIGN(const Network n, Network::Make(WithLayout("[[None, tp], [tp, None]]", "", line, "[256, 512]",
                                                                   "[512, 512]", "[256, 512]")));
    EXPECT_EQ(n.Local("matmul"), "(256, 64)(64, 512)->(256, 512)");
    EXPECT_EQ(n.Reduces("matmul", 3), "all_reduce 0-1-2-3-4-5-6-7");
    EXPECT_EQ(n.Mirror("w", 3), "");
    EXPECT_EQ(n.OutputReplicas("matmul", 3), "0,1,2,3,4,5,6,7");
  }
}

// S6.11.
TEST(F10Test, OneElementOnEachOf128Devices) {
  const std::string keys = absl::StrCat("shard: {layout: large, in_strategy: ", kSeedD, "}");
  ASSERT_OK_AND_ASSIGN(const Network n,
                       Network::Make(Product({.x = "[4, 32]",
                                              .w = "[32, 4]",
                                              .y = "[4, 4]",
                                              .keys = keys,
                                              .layouts = "large: {device_matrix: [8, 4, 4], alias_name: [dp, sp, mp]}",
                                              .devices = 128})));
  EXPECT_EQ(n.Reads("matmul", 0, 1), "1:2, 0:1");
  EXPECT_EQ(n.Reads("matmul", 0, 4), "0:1, 8:9");
  EXPECT_EQ(n.Reads("matmul", 0, 16), "0:1, 1:2");
  EXPECT_EQ(n.Reads("matmul", 0, 127), "3:4, 31:32");
}

// S6.6: with transpose flags entries stand in the stored order.
TEST(F10Test, TransposedInputs) {
  ASSERT_OK_AND_ASSIGN(const Network n,
                       Network::Make(WithLayout("[[mp, [sp, dp]], [None, [sp, dp]]]", ", transpose_b: true", kCube,
                                                "[256, 784]", "[512, 784]", "[256, 512]")));
  EXPECT_EQ(n.Local("matmul"), "(128, 196)(512, 196)->(128, 512)");
  EXPECT_EQ(n.Reads("matmul", 1, 4), "0:512, 196:392");
}

// S6.7: the inferred layout: AllReduce; with the contracting axes appended to dim 0: ReduceScatter; nothing else.
TEST(F10Test, OutLayouts) {
  const auto with = [](absl::string_view out) {
    return WithLayout(kSeedD, absl::StrCat(", out_strategy: [", out, "]"));
  };
  ASSERT_OK_AND_ASSIGN(const Network reduced, Network::Make(with("[mp, None]")));
  EXPECT_EQ(reduced.Reduces("matmul", 0), "all_reduce 0-4-2-6");
  ASSERT_OK_AND_ASSIGN(const Network scattered, Network::Make(with("[[mp, sp, dp], None]")));
  EXPECT_EQ(scattered.Reduces("matmul", 0), "reduce_scatter 0-4-2-6");
  for (const char* out : {"[[mp, dp, sp], None]", "[[sp, dp, mp], None]", "[mp, sp]", "[None, None]", "[mp]"}) {
    const absl::Status status = Network::Make(with(out)).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, "out_strategy"));
    EXPECT_EQ(KindOf(status), "E-LAYOUT") << status;
  }
  // Nothing contracted: only the inferred one.
  const auto columns = [](absl::string_view out) {
    return WithLayout("[[mp, None], [None, sp]]", absl::StrCat(", out_strategy: [", out, "]"));
  };
  ASSERT_OK_AND_ASSIGN(const Network plain, Network::Make(columns("[mp, sp]")));
  EXPECT_EQ(plain.Reduces("matmul", 0), "");
  EXPECT_EQ(KindOf(Network::Make(columns("[[mp, dp], sp]")).status()), "E-LAYOUT");
}

// R13, R14, S6.1, S6.2, S6.6.
TEST(F10Test, Errors) {
  const auto expect = [](const std::string& yaml, absl::string_view kind, const std::string& what) {
    const absl::Status status = Network::Make(yaml).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, what));
    EXPECT_EQ(KindOf(status), kind) << status;
  };
  const auto layout = [](absl::string_view line) { return WithLayout("[[a, None], [None, None]]", "", line); };
  expect(layout("cube: {device_matrix: [2, 2], alias_name: [a]}"), "E-VALUE",
         "found 1 names, wanted one for each of the 2");
  expect(layout("cube: {device_matrix: [2, 4], alias_name: [a, a]}"), "E-VALUE", "found \"a\" twice");
  expect(layout("cube: {device_matrix: [2, 4], alias_name: [None, b]}"), "E-VALUE", "found \"None\"");
  expect(layout("cube: {device_matrix: [2, 4], alias_name: ['', b]}"), "E-VALUE", "alias_name[0]: found \"\"");
  expect(layout("cube: {device_matrix: [0, 4], alias_name: [a, b]}"), "E-VALUE", "device_matrix[0]: found \"0\"");
  expect(layout("cube: {device_matrix: [x, 4], alias_name: [a, b]}"), "E-TYPE", "device_matrix[0]: found \"x\"");
  expect(layout("cube: {device_matrix: 8, alias_name: [a]}"), "E-TYPE", "device_matrix: found \"8\"");
  expect(layout("cube: {device_matrix: [8], alias_name: a}"), "E-TYPE", "alias_name: found \"a\"");
  expect(layout("other: {device_matrix: [8], alias_name: [a]}"), "E-VALUE", "found \"cube\"");

  expect(WithLayout("[[x, None], [None, None]]"), "E-VALUE", "found \"x\"");
  expect(WithLayout("[[mp, mp], [None, None]]"), "E-VALUE",
         "found \"mp\", wanted an axis that this tensor does not use");
  expect(WithLayout("[[[mp, None], None], [None, None]]"), "E-VALUE", "found \"None\"");
  expect(WithLayout("[[[], None], [None, None]]"), "E-VALUE", "found an empty list");
  expect(WithLayout("[[], [None, None]]"), "E-VALUE", "found an empty list");
  expect(WithLayout("[[mp, None]]"), "E-LAYOUT", "found a list of 1, wanted one entry for each of the 2 inputs");
  expect(WithLayout("[[mp], [None, None]]"), "E-LAYOUT", "has 1 dims");

  expect(WithLayout(kSeedD, "", "cube: {device_matrix: [2, 2, 1], alias_name: [dp, sp, mp]}"), "E-LAYOUT",
         "the device matrix (2, 2, 1) has 4 devices, a stage has 8");
  expect(WithLayout("[[mp, [sp, dp]], [[dp, sp], None]]"), "E-LAYOUT",
         "the contracting dimension must be split equally, over the same axes in the same order");
  expect(WithLayout("[[mp, sp], [dp, None]]"), "E-LAYOUT", "the contracting dimension must be split equally");
  expect(WithLayout("[[mp, None], [None, mp]]"), "E-LAYOUT", "splits both \"m\" and \"n\"");
  expect(WithLayout("[[mp, None], [None, None]]", "", kCube, "[255, 784]", "[784, 512]", "[255, 512]"), "E-LAYOUT",
         "is 255, which 2 pieces do not divide");
}

// S6.12: tuples and layouts in one network, connected by redistribution: seed D's scheme in small (S18.2).
TEST(F10Test, TuplesAndLayoutsMixed) {
  ASSERT_OK_AND_ASSIGN(const std::string text, ReadTextFile("models/configs/oracle_d.yaml"));
  ASSERT_OK_AND_ASSIGN(const Network n, Network::Make(text));
  EXPECT_EQ(n.Local("matmul1"), "(4, 3)(3, 8)->(4, 8)");
  EXPECT_EQ(n.Local("relu1"), "(2, 8)->(2, 8)");
  EXPECT_EQ(n.Local("matmul2"), "(8, 1)(1, 8)->(8, 8)");
  EXPECT_EQ(n.Local("relu2"), "(1, 8)->(1, 8)");
  EXPECT_EQ(n.Local("matmul3"), "(1, 8)(8, 4)->(1, 4)");
  EXPECT_EQ(n.Reads("matmul1", 0, 5), "4:8, 3:6");
  ASSERT_OK_AND_ASSIGN(const RunResult run, RunSteps(n.program(), 6));
  const double expected[] = {1.379620138, 1.363466394, 1.354297826, 1.344983313, 1.334692313, 1.319384193};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(run.losses[i], expected[i], 1e-9);
}

}  // namespace
}  // namespace meshwright
