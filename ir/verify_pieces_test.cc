// Buffers that lie inside of another: what the verifier says of them.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "ir/verify.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

// "OK", or what the verifier says.
std::string Verdict(const std::string& text) {
  const absl::StatusOr<Program> program = ParseProgram(text);
  if (!program.ok()) return absl::StrCat("does not parse: ", program.status().message());
  const absl::Status status = VerifyProgram(*program);
  return status.ok() ? "OK" : std::string(status.message());
}

// A rank's rows of w, 8 x 16 x 4 bytes, lie inside of it: they last, and the rest of w is gathered before it is read.
TEST(VerifyPiecesTest, PiecesLieInsideOfTheWhole) {
  constexpr char kPieces[] = R"(program pieces mesh a=2
class c arena 2048
  buffer w float32 (16, 16) {- | -} parameter bytes 1024 offset 0
  buffer w@rows float32 (16, 16) {a | -} parameter bytes 1024 offset 0 alias w
  buffer y float32 (16, 16) {- | -} temporary bytes 1024 offset 1024
  block f forward
    compute all_gather (a) dim 0 parameter reads w@rows writes w
    compute ReLU reads w writes y
    compute Scale scale=2 reads w@rows writes w@rows
  slot f mb 0 layer 0
)";
  const auto changed = [&](const std::string& from, const std::string& to) {
    const std::string text = absl::StrReplaceAll(kPieces, {{from, to}});
    EXPECT_NE(text, kPieces) << from;
    return Verdict(text);
  };
  EXPECT_EQ(Verdict(kPieces), "OK");
  EXPECT_EQ(
      changed("    compute all_gather (a) dim 0 parameter reads w@rows writes w\n", ""),
      "rule 9: class c, block f, instruction 0 (compute ReLU reads w writes y): at layer 0, micro-batch 0: reads w, "
      "which nothing has written");
  EXPECT_EQ(
      changed("reads w@rows writes w@rows\n", "reads w@rows writes w@rows\n    compute ReLU reads w writes y\n"),
      "rule 11: class c, block f, instruction 3 (compute ReLU reads w writes y): at layer 0, micro-batch 0: reads "
      "w, whose memory is overwritten by block f, instruction 2 (compute Scale scale=2 reads w@rows writes w@rows) "
      "at layer 0, micro-batch 0");
  // Written by anything else, the whole is written over its piece, too.
  EXPECT_THAT(changed("compute all_gather (a) dim 0 parameter reads w@rows writes w",
                      "compute Fill \" -> d0 d1\" scale=1 writes w"),
              HasSubstr("reads w@rows, whose memory is overwritten by"));
  // Rows of what has another shape than the memory's first owner lie at its beginning on all ranks.
  const std::string reshaped = absl::StrReplaceAll(
      kPieces,
      {{"parameter bytes", "activation bytes"},
       {"offset 0\n  buffer w@rows", "offset 0 alias v\n  buffer w@rows"},
       {"  buffer w float32", "  buffer v float32 (32, 8) {- | -} activation bytes 1024 offset 0\n  buffer w float32"},
       {"    compute all_gather", "    compute Fill \" -> d0 d1\" scale=1 writes w@rows\n    compute all_gather"}});
  EXPECT_THAT(Verdict(reshaped), HasSubstr("reads w@rows, whose memory is overwritten by"));
  const std::string small = absl::StrReplaceAll(kPieces, {{"(16, 16)", "(4, 16)"}});
  EXPECT_EQ(Verdict(small), "rule 2: class c: buffer w@rows is a piece of w of 128 bytes, wanted a multiple of 256");
}

}  // namespace
}  // namespace meshwright
