// One test per rule: a correct program with one change that breaks this rule and no other.
#include "ir/verify.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

// Two stages, two micro-batches. Stage 0: y = x w with k split over b, reduced beside the kernels and sent; the
// gradient comes back; dw is reduced in place over a, then w is updated. Stage 1 turns y into its own gradient.
constexpr char kGood[] = R"(program good mesh pp=2 a=2 b=2 microbatches 2
class s0
  buffer x float32 (16, 32) {a | b} input microbatches 2
  buffer w float32 (32, 16) {b | -} parameter
  buffer y float32 (16, 16) {a | -} partial sum b temporary
  buffer y@1 float32 (16, 16) {a | -} activation microbatches 2
  buffer y@2 float32 (16, 16) {a | b} temporary
  buffer dy float32 (16, 16) {a | -} temporary
  buffer dw float32 (32, 16) {b | -} partial sum a gradient
  buffer dw@1 float32 (32, 16) {b | -} gradient alias dw
  event made
  event reduced
  event got
  event used
  event summed
  block start forward
    compute Fill writes dw
  block f forward
    compute Feed writes x
    compute MatMul "m k, k n -> m n" reads x w writes y waits reduced records made
    comm all_reduce sum (b) activation reads y writes y@1 waits made records reduced
    compute slice reads y@1 writes y@2 waits reduced
    send to +1 activation reads y@1 waits reduced
  block b backward
    receive from +1 activation writes dy waits used records got
    compute MatMul "m k, m n -> k n" accumulate reads x dy writes dw waits got records used
  block u backward
    comm all_reduce sum (a) gradient reads dw writes dw@1 waits used records summed
    compute SGD learning_rate=0.1 reads w dw@1 writes w waits summed
    comm sync waits summed
  slot start mb 0 layer 0
  slot f mb 0 layer 0
  slot f mb 1 layer 0
  slot b mb 0 layer 0
  slot b mb 1 layer 0
  slot u mb 0 layer 0
class s1
  buffer y float32 (16, 16) {a | -} temporary
  buffer dy float32 (16, 16) {a | -} temporary
  event got
  event used
  event sent
  block f forward
    receive from -1 activation writes y waits used records got
    compute ReLU reads y writes dy waits got sent records used
  block b backward
    send to -1 activation reads dy waits used records sent
  slot f mb 0 layer 0
  slot b mb 0 layer 0
  slot f mb 1 layer 0
  slot b mb 1 layer 0
)";

// What the verifier says when `from` (which must be there) becomes `to`.
std::string Changed(const std::string& text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  std::string changed = text;
  if (at != std::string::npos) changed.replace(at, from.size(), to);
  const absl::StatusOr<Program> program = ParseProgram(changed);
  if (!program.ok()) return absl::StrCat("does not parse: ", program.status().message());
  const absl::Status status = VerifyProgram(*program);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status));
  return status.ok() ? "OK" : std::string(status.message());
}
std::string Changed(const std::string& from, const std::string& to) { return Changed(kGood, from, to); }

TEST(VerifyTest, AcceptsACorrectProgram) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kGood));
  EXPECT_OK(VerifyProgram(program));
}

TEST(VerifyTest, Rule1IndicesAreInRange) {
  EXPECT_EQ(Changed("reads x w writes y", "reads x w writes %9"),
            "rule 1: class s0, block f, instruction 1 (compute MatMul \"m k, k n -> m n\" reads x w writes %9 waits "
            "reduced records made): there is no such buffer");
  EXPECT_EQ(Changed("compute slice reads y@1 writes y@2 waits reduced", "compute slice reads y@1 writes y@2 waits %-1"),
            "rule 1: class s0, block f, instruction 3 (compute slice reads y@1 writes y@2 waits %-1): there is no such "
            "event");
  EXPECT_EQ(Changed("all_reduce sum (b)", "all_reduce sum (%7)"),
            "rule 1: class s0: block f, instruction 2 (comm all_reduce sum (%7) activation reads y writes y@1 waits "
            "made records reduced) uses an axis that the mesh lacks");
  EXPECT_EQ(Changed("all_reduce sum (b)", "all_reduce sum (b, b)"),
            "rule 1: class s0: block f, instruction 2 (comm all_reduce sum (b, b) activation reads y writes y@1 waits "
            "made records reduced) uses the axes b and b, which name the same ranks");
  EXPECT_EQ(Changed("y@2 float32 (16, 16) {a | b}", "y@2 float32 (16, 16) {pp | b}"),
            "rule 1: class s0: buffer y@2 uses the axis pp, which crosses stages");
  EXPECT_EQ(Changed("gradient alias dw", "gradient alias %7"), "rule 1: class s0: buffer dw@1 is an alias of itself");
  EXPECT_EQ(Changed("gradient alias dw", "gradient alias %8"),
            "rule 1: class s0: buffer dw@1 is an alias of no buffer");
  EXPECT_EQ(Changed("  event made\n", "  event made layers 0\n"),
            "rule 1: class s0: event made has 0 layers and 1 micro-batches, wanted at least 1");
  EXPECT_EQ(Changed("input microbatches 2", "input layers 100000 microbatches 10000"),
            "rule 1: class s0: with buffer x there are over 2^22 instances");
  EXPECT_EQ(Changed("slot f mb 1 layer 0", "slot f mb 2 layer 0"),
            "rule 1: class s0: slot 2 is for micro-batch 2 of 2");
  EXPECT_EQ(Changed("slot f mb 1 layer 0", "slot %4 mb 1 layer 0"), "rule 1: class s0: slot 2 runs no block");
  EXPECT_EQ(Changed("slot f mb 1 layer 0", "slot f mb 1 layer 0 x0 up"),
            "rule 1: class s0: slot 2 runs 0 layers from 0 with step 1, wanted at least one, with step 1 or -1");
  EXPECT_EQ(Changed("slot f mb 1 layer 0", "slot f mb 1 layer 0 x3 down"),
            "rule 1: class s0: slot 2 runs down to layer -2");
  EXPECT_EQ(Changed("writes y waits reduced records made", "writes y waits reduced-1 records made"),
            "rule 1: class s0: slot 1 runs block f, which names layer -1");
  EXPECT_EQ(Changed("writes y waits reduced records made", "writes y waits reduced+2147483647 records made"), "OK");
  EXPECT_EQ(Changed(absl::StrReplaceAll(kGood, {{"y waits reduced records", "y waits reduced+2147483647 records"}}),
                    "slot f mb 0 layer 0", "slot f mb 0 layer 1"),
            "rule 1: class s0: slot 1 runs block f, which names layer 2147483648");
  EXPECT_EQ(Changed("class s1\n", "class s1 stage 0\n"), "rule 1: class s1 is of stage 0, wanted 1");
  EXPECT_EQ(Changed("mesh pp=2 a=2 b=2", "mesh a=2 b=2"),
            "rule 1: there are 2 classes, so the first axis of the mesh must be pp=2; the mesh is a=2 b=2");
  EXPECT_EQ(Changed("microbatches 2", "microbatches 0"), "rule 1: the program has 0 micro-batches");
  EXPECT_EQ(VerifyProgram(Program()).message(), "rule 1: the program has no class");
}

TEST(VerifyTest, Rule2BuffersLieInTheArena) {
  // (16/2) x 16 x 4 bytes = 512.
  constexpr char kGoodPlan[] = R"(program planned mesh a=2 b=2
class c arena 2048
  buffer w float32 (16, 16) {a | -} parameter layers 2 bytes 512 offset 0
  buffer x float32 (16, 16) {a | -} temporary bytes 512 offset 1024
  buffer y float32 (16, 16) {a | -} partial sum b temporary bytes 512 offset 1536
  buffer z float32 (16, 16) {a | -} temporary bytes 512 offset 1536 alias y
  block f forward
    compute Fill writes x
    compute Add reads x w writes x
  slot f mb 0 layer 0 x2 up
)";
  const auto changed = [&](const std::string& from, const std::string& to) { return Changed(kGoodPlan, from, to); };
  EXPECT_EQ(changed("arena 2048", "arena 2048"), "OK");
  EXPECT_EQ(changed("{a | -} parameter", "{a} parameter"),
            "rule 2: class c: buffer w: the layout {a} has 1 dims, the tensor (16, 16) has 2");
  EXPECT_EQ(changed("(16, 16) {a | -} temporary bytes 512 offset 1024", "(0, 16) {a | -} temporary bytes 512 offset 0"),
            "rule 2: class c: buffer x has the shape (0, 16), wanted dims of at least 1");
  EXPECT_EQ(changed("bytes 512 offset 1024", "bytes 256 offset 1024"),
            "rule 2: class c: buffer x has 256 bytes, wanted at least 512");
  EXPECT_EQ(changed("bytes 512 offset 1024", "bytes 512 offset 1000"),
            "rule 2: class c: buffer x has 512 bytes at offset 1000, wanted multiples of 256");
  EXPECT_EQ(changed("bytes 512 offset 1024", "bytes 512 offset 1792"),
            "rule 2: class c: buffer x ends at 2304, outside the arena of 2048 bytes");
  EXPECT_EQ(changed("offset 1536 alias y", "offset 1024 alias y"),
            "rule 2: class c: buffer z is an alias of y but lies elsewhere in the arena");
  EXPECT_EQ(changed("temporary bytes 512 offset 1536 alias y", "temporary layers 2 bytes 512 offset 1536 alias y"),
            "rule 2: class c: buffer z is an alias of y, which has other instances");
  EXPECT_EQ(changed("z float32", "z float64"), "rule 2: class c: buffer z (1024 bytes) is an alias of y (512 bytes)");
}

TEST(VerifyTest, Rule3OperandsAgreeWithTheRule) {
  EXPECT_THAT(Changed("compute Feed writes x", "compute Feed on_host writes x"),
              testing::HasSubstr("is fed by the host as it is"));
  const std::string product = R"(rule 3: class s0, block f, instruction 1 (compute MatMul "m k, k n -> m n" reads x w )"
                              R"(writes y waits reduced records made): )";
  EXPECT_EQ(Changed("buffer w float32 (32, 16)", "buffer w float32 (48, 16)"),
            product + "k is 32 in input 0 and 48 in input 1");
  EXPECT_EQ(Changed("buffer w float32 (32, 16) {b | -}", "buffer w float32 (32, 16) {- | b}"),
            product + "k is split over b in input 0 (x) and over - in input 1 (w)");
  EXPECT_EQ(Changed("buffer w float32 (32, 16) {b | -}", "buffer w bfloat16 (32, 16) {b | -}"),
            product + "multiplies float32 by bfloat16");
  EXPECT_EQ(Changed("buffer w float32 (32, 16) {b | -}", "buffer w float8 (32, 16) {b | -}"),
            product + "multiplies float32 by float8");
  EXPECT_EQ(Changed("reads x w writes y", "reads x writes y"),
            R"(rule 3: class s0, block f, instruction 1 (compute MatMul "m k, k n -> m n" reads x writes y waits )"
            R"(reduced records made): takes 2 inputs (m k, k n -> m n), found 1)");
  EXPECT_EQ(Changed("compute ReLU reads y writes dy", "compute ReLU reads y writes dy y"),
            "rule 3: class s1, block f, instruction 1 (compute ReLU reads y writes dy y waits got sent records used): "
            "takes 1 outputs (d0 d1 -> d0 d1), found 2");
  EXPECT_EQ(Changed("compute ReLU reads y", "compute ReLU \"m! n -> m! n\" reads y"),
            "rule 3: class s1, block f, instruction 1 (compute ReLU \"m! n -> m! n\" reads y writes dy waits got sent "
            "records used): m must stay whole, but input 0 (y) splits it over a");
  EXPECT_EQ(Changed("compute ReLU reads y", "compute ReLU \"1 n -> m n\" reads y"),
            "rule 3: class s1, block f, instruction 1 (compute ReLU \"1 n -> m n\" reads y writes dy waits got sent "
            "records used): dim 0 of input 0 is 16, wanted 1 (1 n -> m n)");
  // Both dims of an outer product over one axis: fine for each operand alone.
  EXPECT_EQ(Changed(R"(program p mesh a=2
class c
  buffer x float32 (8) {a} parameter
  buffer y float32 (8) {a} parameter
  buffer z float32 () {} partial sum a temporary
  block f forward
    compute ReduceSum "m, n -> " reads x y writes z
  slot f mb 0 layer 0
)",
                    "program p", "program p"),
            "rule 3: class c, block f, instruction 0 (compute ReduceSum \"m, n -> \" reads x y writes z): m and n are "
            "both split over a");
  EXPECT_EQ(Changed(R"(program p mesh a=2
class c
  buffer x float32 (8, 8) {- | -} parameter
  buffer y float32 (8, 8) {- | -} temporary alias x
  block f forward
    compute Softmax reads x writes y
  slot f mb 0 layer 0
)",
                    "program p", "program p"),
            "rule 3: class c, block f, instruction 0 (compute Softmax reads x writes y): writes its own input x and is "
            "not elementwise in it");
}

TEST(VerifyTest, Rule4PartialSumsAreReducedBeforeUse) {
  const std::string product = R"(rule 4: class s0, block f, instruction 1 (compute MatMul "m k, k n -> m n" reads x w )"
                              R"(writes y waits reduced records made): )";
  EXPECT_EQ(Changed("{a | -} partial sum b temporary", "{a | -} temporary"),
            product + "output 0 (y) is partial over -, wanted b");
  EXPECT_EQ(Changed("{a | -} partial sum b temporary", "{a | -} partial max b temporary"),
            product + "output 0 (y) holds a partial max, wanted sum");
  EXPECT_EQ(
      Changed("compute SGD learning_rate=0.1 reads w dw@1", "compute SGD learning_rate=0.1 reads w dw"),
      "rule 4: class s0, block u, instruction 1 (compute SGD learning_rate=0.1 reads w dw writes w waits summed): "
      "input 1 (dw) is partial over a; reduce it first");
}

TEST(VerifyTest, Rule4LetsLinearOpsPassPartialSumsOn) {
  const std::string text = R"(program p mesh a=2 b=2
class c
  buffer x float32 (8, 8) {b | -} partial sum a temporary
  buffer y float32 (8, 8) {b | -} partial sum a temporary
  buffer s float32 (8) {-} partial sum a.b temporary
  buffer m float32 (8, 8) {b | -} partial max a temporary
  buffer n float32 (8, 8) {b | -} temporary
  block f forward
    compute Fill writes x
    compute Fill writes y
    compute Fill writes m
    compute Fill writes n
    compute Add reads x y writes y
    compute ReduceSum "i j -> j" reads y writes s
  slot f mb 0 layer 0
)";
  EXPECT_EQ(Changed(text, "reads x y writes y", "reads x y writes y"), "OK");
  EXPECT_EQ(
      Changed(text, "reads x y writes y", "reads x n writes y"),
      "rule 4: class c, block f, instruction 4 (compute Add reads x n writes y): input 0 is partial over a, input "
      "1 over -");
  EXPECT_EQ(Changed(text, "reads x y writes y", "reads m writes m"),
            "rule 4: class c, block f, instruction 4 (compute Add reads m writes m): input 0 (m) is partial over a; "
            "reduce it first");
  EXPECT_EQ(Changed(text, "compute Add reads x y", "compute Mul reads x y"),
            "rule 4: class c, block f, instruction 4 (compute Mul reads x y writes y): input 0 (x) is partial over a; "
            "reduce it first");
  EXPECT_EQ(
      Changed(text, "partial sum a.b temporary", "partial sum a temporary"),
      "rule 4: class c, block f, instruction 5 (compute ReduceSum \"i j -> j\" reads y writes s): output 0 (s) is "
      "partial over a, wanted a.b");
}

TEST(VerifyTest, Rule5CollectivesChangeLayoutsAsTheySay) {
  const std::string reduce =
      "rule 5: class s0, block f, instruction 2 (comm all_reduce sum (b) activation reads y writes y@1 waits made "
      "records reduced): ";
  EXPECT_EQ(
      Changed("all_reduce sum (b)", "all_reduce sum (a)"),
      "rule 5: class s0, block f, instruction 2 (comm all_reduce sum (a) activation reads y writes y@1 waits made "
      "records reduced): not partial over a, layout of y {a | -} partial sum b");
  EXPECT_EQ(
      Changed("all_reduce sum (b)", "all_reduce max (b)"),
      "rule 5: class s0, block f, instruction 2 (comm all_reduce max (b) activation reads y writes y@1 waits made "
      "records reduced): found a partial sum in the layout of y {a | -} partial sum b");
  EXPECT_EQ(Changed("y@1 float32 (16, 16) {a | -} activation", "y@1 float32 (16, 16) {- | a} activation"),
            reduce + "makes {a | -} of y, but y@1 is {- | a}");
  EXPECT_EQ(Changed("y@1 float32 (16, 16)", "y@1 bfloat16 (16, 16)"),
            reduce + "makes y@1 bfloat16 (16, 16) of y float32 (16, 16)");
  EXPECT_EQ(Changed("reads y writes y@1 waits made", "reads y y writes y@1 waits made"),
            "rule 5: class s0, block f, instruction 2 (comm all_reduce sum (b) activation reads y y writes y@1 waits "
            "made records reduced): reads 2 and writes 1 buffers, wanted pairs");
}

// The layouts that each kind makes, and the ways to miss them.
TEST(VerifyTest, Rule5KnowsEachKind) {
  const auto with = [](const std::string& collective) {
    return Changed(R"(program p mesh a=2 b=2 one=1
class c
  buffer x float32 (16, 16) {a.b | -} parameter
  buffer x1 float32 (16, 16) {a.one | -} temporary
  buffer x2 float32 (16, 16) {a | b} temporary
  buffer h bfloat16 (16, 16) {a.b | -} parameter
  buffer h1 bfloat16 (16, 16) {a | -} temporary
  buffer p float32 (16, 16) {a | -} partial sum b temporary
  block f forward
    compute Fill writes p
    COLLECTIVE
  slot f mb 0 layer 0
)",
                   "COLLECTIVE", collective);
  };
  EXPECT_EQ(with("compute all_gather (b) dim 0 activation reads x writes x1"), "OK");  // an axis of size 1 is no axis
  EXPECT_EQ(with("compute reduce_scatter sum (b) dim 0 activation reads p writes x"), "OK");
  EXPECT_EQ(with("compute reduce_scatter sum (b) dim 1 activation reads p writes x2"), "OK");
  EXPECT_EQ(with("compute all_to_all (b) dim 0 to 1 activation reads x writes x2"), "OK");
  EXPECT_EQ(with("compute broadcast (a) parameter reads x writes x"), "OK");
  EXPECT_THAT(with("compute all_gather (a) dim 0 activation reads x writes x1"),
              testing::EndsWith("): no a at the end of dim 0 of x {a.b | -}"));
  EXPECT_THAT(with("compute all_gather (b) dim 2 activation reads x writes x1"),
              testing::EndsWith("): there is no dim 2 of x {a.b | -}"));
  EXPECT_THAT(with("compute all_to_all (b) dim 0 to 0 activation reads x writes x2"),
              testing::EndsWith("): cannot move to dim 0 of x {a.b | -}"));
  EXPECT_THAT(with("compute all_to_all (b) dim 0 to 1 activation reads x writes x1"),
              testing::EndsWith("): makes {a | b} of x, but x1 is {a.one | -}"));
  EXPECT_THAT(with("compute reduce_scatter sum (b) dim 1 activation reads p writes x"),
              testing::EndsWith("): makes {a | b} of p, but x is {a.b | -}"));
  EXPECT_THAT(with("compute all_gather (b) dim 0 activation reads x h writes x1 h1"),
              testing::EndsWith("): carries float32 and bfloat16"));
}

TEST(VerifyTest, Rule6LocalMoves) {
  const std::string slice =
      "rule 6: class s0, block f, instruction 3 (compute slice reads y@1 writes y@2 waits reduced): ";
  EXPECT_EQ(Changed("y@2 float32 (16, 16) {a | b}", "y@2 float32 (16, 16) {b | a}"),
            slice + "cannot make {b | a} of {a | -}: dim 0 of a rank's new piece lies outside its old one");
  EXPECT_EQ(Changed("y@2 float32 (16, 16) {a | b}", "y@2 float32 (16, 16) {a | -} partial sum b"),
            slice + "cannot make {a | -} partial sum b of {a | -}: it does not reduce");
  EXPECT_EQ(Changed("y@2 float32 (16, 16) {a | b}", "y@2 float32 (16, 32) {a | b}"),
            slice + "makes y@2 float32 (16, 32) of y@1 float32 (16, 16)");
  EXPECT_EQ(
      Changed("compute slice reads y@1 writes y@2", "compute permute reads y@1 writes y@2"),
      "rule 6: class s0, block f, instruction 3 (compute permute reads y@1 writes y@2 waits reduced): cannot make "
      "pieces of (8, 8) of (8, 16)");
  const auto exchange = [&](const std::string& sources) {
    return Changed("compute slice reads y@1 writes y@2",
                   "compute permute (b) from " + sources + " reads y@1 writes y@1");
  };
  EXPECT_EQ(exchange("1 2"),
            "rule 6: class s0, block f, instruction 3 (compute permute (b) from 1 2 reads y@1 writes y@1 waits "
            "reduced): wants 2 sources from -1 to 1");
  EXPECT_EQ(Changed("compute slice reads y@1 writes y@2", "compute permute (b) from 1 -1 reads y@1 writes y@2"),
            "rule 6: class s0, block f, instruction 3 (compute permute (b) from 1 -1 reads y@1 writes y@2 waits "
            "reduced): cannot make {a | b} of {a | -}");
  EXPECT_EQ(Changed("comm sync waits summed", "comm sync reads w waits summed"),
            "rule 6: class s0, block u, instruction 2 (comm sync reads w waits summed): has operands");
}

// 6 ranks read as 2 x 3 and as 3 x 2: the same pieces under two names, and pieces that only look alike.
TEST(VerifyTest, Rule6ComparesPiecesAndNotTheirNames) {
  const auto with = [](const std::string& layout) {
    return Changed(R"(program p mesh ranks=6 2x3=2@3 3x2=3@2 3x1=3@1 2x1=2@1
class c
  buffer x float32 (36) {2x3} parameter
  buffer y float32 (36) LAYOUT temporary
  block f forward
    compute slice reads x writes y
  slot f mb 0 layer 0
)",
                   "LAYOUT", layout);
  };
  EXPECT_EQ(with("{2x3.3x1}"), "OK");
  EXPECT_EQ(with("{3x2.2x1}"), "OK");  // rank r holds piece r of 6 under both
  EXPECT_THAT(with("{3x2}"), testing::HasSubstr("cannot make {3x2} of {2x3}"));
}

TEST(VerifyTest, Rule7TransfersHaveAPartner) {
  EXPECT_EQ(Changed("send to +1 activation reads y@1", "send to -1 activation reads y@1"),
            "rule 7: class s0, block f, instruction 4 (send to -1 activation reads y@1 waits reduced): there is no "
            "stage -1 to exchange with");
  EXPECT_EQ(Changed("send to +1 activation reads y@1", "send to +1 activation reads y@1 writes y@1"),
            "rule 7: class s0, block f, instruction 4 (send to +1 activation reads y@1 writes y@1 waits reduced): a "
            "send writes nothing");
  EXPECT_EQ(Changed("send to +1 activation reads y@1", "send to +1 activation"),
            "rule 7: class s0, block f, instruction 4 (send to +1 activation waits reduced): moves nothing");
}

TEST(VerifyTest, Rule8EventsAreRecorded) {
  EXPECT_EQ(Changed("waits got records used\n  block u", "waits got\n  block u"),
            "rule 8: class s0, block b, instruction 0 (receive from +1 activation writes dy waits used records got): "
            "nothing records used");
  // Recorded, but only by a block that no slot runs.
  EXPECT_EQ(
      Changed("  slot start mb 0 layer 0\n",
              "  event never\n  block unused forward\n    comm sync records never\n"
              "  block starts forward\n    compute Fill writes dw waits never\n"
              "  slot starts mb 0 layer 0\n"),
      "rule 8: class s0, block starts, instruction 0 (compute Fill writes dw waits never): nothing records never");
}

TEST(VerifyTest, Rule9OnlyWhatWasWrittenIsRead) {
  EXPECT_EQ(Changed("    compute Feed writes x\n", ""),
            "rule 9: class s0, block f, instruction 0 (compute MatMul \"m k, k n -> m n\" reads x w writes y waits "
            "reduced records made): at layer 0, micro-batch 0: reads x[layer 0, micro-batch 0], which nothing has "
            "written");
  // A gradient must be filled before it is added to.
  EXPECT_EQ(Changed("  slot start mb 0 layer 0\n", ""),
            "rule 9: class s0, block b, instruction 1 (compute MatMul \"m k, m n -> k n\" accumulate reads x dy writes "
            "dw waits got records used): at layer 0, micro-batch 0: reads dw, which nothing has written");
  // Micro-batch 1 is another instance.
  EXPECT_EQ(Changed("  slot f mb 1 layer 0\n", ""),
            "rule 9: class s0, block b, instruction 1 (compute MatMul \"m k, m n -> k n\" accumulate reads x dy writes "
            "dw waits got records used): at layer 0, micro-batch 1: reads x[layer 0, micro-batch 1], which nothing has "
            "written");
}

TEST(VerifyTest, Rule10ReadsWaitForWrites) {
  EXPECT_EQ(Changed("reads y writes y@1 waits made", "reads y writes y@1"),
            "rule 10: class s0, block f, instruction 2 (comm all_reduce sum (b) activation reads y writes y@1 records "
            "reduced): at layer 0, micro-batch 0: may read y before it is written by block f, instruction 1 (compute "
            "MatMul \"m k, k n -> m n\" reads x w writes y waits reduced records made) at layer 0, micro-batch 0; wait "
            "for an event");
  // The event of another layer's instance does not help.
  const std::string layers = absl::StrReplaceAll(kGood, {{"event made", "event made layers 2"}});
  EXPECT_EQ(Changed(layers, "waits made", "waits made"), "OK");
  EXPECT_THAT(Changed(layers, "waits made", "waits made+1"), testing::StartsWith("rule 10: class s0, block f"));
}

TEST(VerifyTest, Rule10WritesWaitForReadsAndWrites) {
  // Write after read: MatMul of micro-batch 1 while the all_reduce of micro-batch 0 still reads y.
  EXPECT_EQ(Changed("compute slice reads y@1 writes y@2 waits reduced", "comm slice reads y@1 writes y@2"),
            "OK");  // the MatMul's own wait is enough
  EXPECT_EQ(Changed(std::string(kGood), "writes y waits reduced records made", "writes y records made"),
            "OK");  // and so is the slice's
  const std::string neither = absl::StrReplaceAll(
      kGood, {{"compute slice reads y@1 writes y@2 waits reduced", "comm slice reads y@1 writes y@2"}});
  EXPECT_EQ(
      Changed(neither, "writes y waits reduced records made", "writes y records made"),
      "rule 10: class s0, block f, instruction 1 (compute MatMul \"m k, k n -> m n\" reads x w writes y records "
      "made): at layer 0, micro-batch 1: may write y before it is read by block f, instruction 2 (comm all_reduce "
      "sum (b) activation reads y writes y@1 waits made records reduced) at layer 0, micro-batch 0; wait for an "
      "event");
  // Write after write.
  EXPECT_EQ(
      Changed(R"(program p mesh one
class c
  buffer x float32 (8) {-} temporary
  block f forward
    compute Fill writes x
    comm Fill writes x
  slot f mb 0 layer 0
)",
              "program p", "program p"),
      "rule 10: class c, block f, instruction 1 (comm Fill writes x): at layer 0, micro-batch 0: may write x "
      "before it is written by block f, instruction 0 (compute Fill writes x) at layer 0, micro-batch 0; wait for "
      "an event");
}

// A wait is for the latest record before it, and means all that was done by then, on any stream.
TEST(VerifyTest, Rule10EventsCarryWhatTheyWaitedFor) {
  const std::string text = R"(program p mesh one
class c
  buffer x float32 (8) {-} temporary
  event one
  event two
  block f forward
    compute Fill writes x records one
    comm sync waits one records two
    receive sync waits two
    receive Scale reads x writes x
  slot f mb 0 layer 0
)";
  EXPECT_EQ(Changed(text, "program p", "program p"), "OK");
  EXPECT_THAT(Changed(text, "comm sync waits one", "comm sync"), testing::StartsWith("rule 10"));
  // A second record takes the place of the first one, whose guarantees are not kept.
  EXPECT_THAT(Changed(text, "records two\n", "records two\n    send sync records two\n"),
              testing::StartsWith("rule 10"));
}

// x and y share 256 bytes of memory.
constexpr char kShared[] = R"(program p mesh one
class c arena 1024
  buffer x float32 (128) {-} temporary bytes 512 offset 0
  buffer y float32 (128) {-} temporary bytes 512 offset 256
  buffer w float32 (64) {-} parameter bytes 256 offset 768
  event done
  block f forward
    compute Fill writes x
    compute Scale reads x writes x
    compute Fill writes y
    compute Scale reads y writes y
  slot f mb 0 layer 0
)";

TEST(VerifyTest, Rule10OrdersWhateverSharesMemory) {
  EXPECT_EQ(Changed(kShared, "program p", "program p"), "OK");
  EXPECT_EQ(Changed(kShared, "compute Fill writes y", "comm Fill writes y"),
            "rule 10: class c, block f, instruction 2 (comm Fill writes y): at layer 0, micro-batch 0: may write y "
            "before x, which shares its memory, is written by block f, instruction 1 (compute Scale reads x writes x) "
            "at layer 0, micro-batch 0; wait for an event");
}

TEST(VerifyTest, Rule11NothingIsReadThatWasOverwritten) {
  EXPECT_EQ(
      Changed(kShared, "compute Scale reads y writes y", "compute Scale reads x writes x"),
      "rule 11: class c, block f, instruction 3 (compute Scale reads x writes x): at layer 0, micro-batch 0: reads "
      "x, whose memory is overwritten by block f, instruction 2 (compute Fill writes y) at layer 0, micro-batch 0");
  EXPECT_EQ(Changed(kShared, "compute Scale reads y writes y", "compute Scale reads y writes x"),
            "rule 11: class c, block f, instruction 3 (compute Scale reads y writes x): at layer 0, micro-batch 0: "
            "writes x, which shares memory with its operand y");
  EXPECT_EQ(
      Changed(kShared, "parameter bytes 256 offset 768", "parameter bytes 256 offset 512"),
      "rule 11: class c: parameter w must last to the next step, but block f, instruction 3 (compute Scale reads y "
      "writes y) at layer 0, micro-batch 0 overwrites its memory");
  // Through an alias, before memory is planned: dw is gone once dw@1 is written.
  EXPECT_EQ(
      Changed("    comm sync waits summed\n", "    compute Scale reads dw writes dw\n"),
      "rule 11: class s0, block u, instruction 2 (compute Scale reads dw writes dw): at layer 0, micro-batch 0: "
      "reads dw, whose memory is overwritten by block u, instruction 0 (comm all_reduce sum (a) gradient reads dw "
      "writes dw@1 waits used records summed) at layer 0, micro-batch 0");
}

TEST(VerifyTest, Rule12TransfersPair) {
  EXPECT_EQ(Changed("  slot b mb 1 layer 0\n  slot u", "  slot u"),
            "rule 12: class s1 sends 2 times to class s0, which receives 1 times");
  EXPECT_EQ(Changed("class s1\n  buffer y float32 (16, 16) {a | -}", "class s1\n  buffer y float32 (16, 16) {a | b}"),
            "rule 3: class s1, block f, instruction 1 (compute ReLU reads y writes dy waits got sent records used): d1 "
            "is split over b in input 0 (y) and over - in output 0 (dy)");
  EXPECT_EQ(Changed("  buffer dy float32 (16, 16) {a | -} temporary\n  buffer dw",
                    "  buffer dy float32 (16, 16) {a | -} temporary\n  buffer dz float32 (16, 8) {a | -} temporary\n  "
                    "buffer dw"),
            "OK");
  EXPECT_EQ(
      Changed(absl::StrReplaceAll(kGood, {{"  buffer dw float32",
                                           "  buffer dz float32 (16, 8) {a | -} temporary\n  buffer dw float32"}}),
              "writes dy waits used records got", "writes dz waits used\n    compute Fill writes dy records got"),
      "rule 12: class s1, block b, instruction 0 (send to -1 activation reads dy waits used records sent): meets, "
      "as number 0 to class s0, block b, instruction 0 (receive from +1 activation writes dz waits used), but dy "
      "float32 (16, 16) {a | -} meets dz float32 (16, 8) {a | -}");
}

TEST(VerifyTest, Rule13ClassesDoNotWaitForEachOther) {
  // Stage 1 wants to send micro-batch 0's gradient only after it has micro-batch 1; stage 0 sends that later.
  const std::string text =
      absl::StrReplaceAll(kGood, {{"  slot f mb 1 layer 0\n  slot b mb 0 layer 0\n  slot b mb 1 layer 0\n  slot u",
                                   "  slot b mb 0 layer 0\n  slot f mb 1 layer 0\n  slot b mb 1 layer 0\n  slot u"}});
  // In this order stage 0's MatMul of micro-batch 1 comes behind the backward MatMul of micro-batch 0.
  EXPECT_EQ(Changed(text, "program good", "program good"), "OK");
  const size_t stage1 = text.find("class s1");
  const std::string swapped =
      absl::StrReplaceAll(text.substr(stage1), {{"slot b mb 0", "slot f mb 1"}, {"slot f mb 1", "slot b mb 0"}});
  EXPECT_EQ(
      Changed(text.substr(0, stage1) + swapped, "program good", "program good"),
      "rule 13: classes s0, s1 wait for each other:\n"
      "  s0: send to s1 (f, instruction 4, layer 0, micro-batch 0) | receive from s1 (b, instruction 0, layer 0, "
      "micro-batch 0) <-- stuck\n"
      "  s1: receive from s0 (f, instruction 0, layer 0, micro-batch 0) | receive from s0 (f, instruction 0, layer "
      "0, micro-batch 1) <-- stuck");
}

// One stream for all that a rank sends and receives cannot work when both sides receive first, and when both send
// first it can no more: a send ends when it is received.
TEST(VerifyTest, Rule13SendsAreNotBuffered) {
  const auto with = [](const std::string& first, const std::string& second) {
    return Changed(absl::StrCat(R"(program p mesh pp=2
class s0
  buffer x float32 (8) {-} parameter
  buffer y float32 (8) {-} temporary
  block f forward
    compute send to +1 activation reads x
    compute receive from +1 activation writes y
  slot f mb 0 layer 0
class s1
  buffer x float32 (8) {-} parameter
  buffer y float32 (8) {-} temporary
  block f forward
    )",
                                first, "\n    ", second, "\n  slot f mb 0 layer 0\n"),
                   "program p", "program p");
  };
  EXPECT_EQ(with("compute receive from -1 activation writes y", "compute send to -1 activation reads x"), "OK");
  EXPECT_EQ(with("receive from -1 activation writes y", "send to -1 activation reads x"), "OK");
  EXPECT_EQ(with("send to -1 activation reads x", "receive from -1 activation writes y"), "OK");  // two streams
  EXPECT_EQ(with("compute send to -1 activation reads x", "compute receive from -1 activation writes y"),
            "rule 13: classes s0, s1 wait for each other:\n"
            "  s0: send to s1 (f, instruction 0, layer 0, micro-batch 0) <-- stuck\n"
            "  s1: send to s0 (f, instruction 0, layer 0, micro-batch 0) <-- stuck");
}

// What comes after kMaxVerified instructions is not played, as the header says.
TEST(VerifyTest, LongStepsAreCheckedFromTheirBeginning) {
  const auto with = [](int64_t layers) {
    return Changed(R"(program p mesh one
class c
  buffer x float32 (8) {-} temporary
  buffer y float32 (8) {-} temporary
  block long forward
    compute Fill writes x
  block wrong forward
    compute Scale reads y writes y
  slot long mb 0 layer 0 xLAYERS up
  slot wrong mb 0 layer 0
)",
                   "LAYERS", absl::StrCat(layers));
  };
  EXPECT_THAT(with(kMaxVerified - 1), testing::StartsWith("rule 9"));
  EXPECT_EQ(with(kMaxVerified), "OK");
}

}  // namespace
}  // namespace meshwright
