// Texts of programs that have been damaged: whatever they say, reading, writing and verifying them ends well.
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "ir/verify.h"

namespace meshwright {
namespace {

constexpr char kSeed[] = R"(program good mesh pp=2 a=2 b=2 microbatches 2
class s0 arena 16384
  buffer x float32 (16, 32) {a | b} input microbatches 2 bytes 512 offset 0 init normal value=0.5
  buffer w float32 (32, 16) {b | -} parameter layers 2 bytes 1024 offset 1024
  buffer y float32 (16, 16) {a | -} partial sum b temporary bytes 512 offset 3072
  buffer y@1 float32 (16, 16) {a | -} activation bytes 512 offset 3584
  buffer y@2 float32 (16, 16) {a | b} temporary bytes 256 offset 4096
  buffer dw float32 (32, 16) {b | -} partial sum a gradient layers 2 bytes 1024 offset 4352
  buffer dw@1 float32 (32, 16) {b | -} gradient layers 2 bytes 1024 offset 4352 alias dw
  event made layers 2
  event reduced
  block start forward
    compute Fill scale=0 writes dw
  block "f 1" forward
    compute Feed writes x
    compute MatMul "m k, k n -> m n" reads x w writes y waits reduced records made @"a b"
    comm all_reduce sum (b) activation reads y writes y@1 waits made records reduced
    compute slice reads y@1 writes y@2 waits reduced
    compute all_to_all (b) dim 1 to 0 activation reads y@2 writes y@2
    compute permute reads y@1 writes y@1
    send to +1 activation reads y@1 waits reduced
  block u backward
    comm reduce_scatter sum (a) dim 1 gradient reads dw+1 writes dw@1+1 waits made
    compute Momentum learning_rate=0.1 reads w dw@1 w writes w w
  slot start mb 0 layer 0 x2 up
  slot "f 1" mb 0 layer 0 x2 down
  slot u mb 1 layer 0
class s1
  buffer y float32 (16, 16) {a | -} temporary
  block f forward
    receive from -1 activation writes y
  slot f mb 0 layer 1
)";

class Damage {
 public:
  explicit Damage(uint32_t seed) : random_(seed) {}

  std::string Apply(std::string text) {
    for (size_t n = 1 + Below(4); n > 0; --n) text = Once(std::move(text));
    return text;
  }

 private:
  size_t Below(size_t n) { return random_() % n; }

  std::string Once(std::string text) {
    if (text.empty()) return text;
    const std::vector<std::string> lines = absl::StrSplit(text, '\n');
    const std::vector<std::string> words = absl::StrSplit(text, ' ');
    switch (Below(6)) {
      case 0:  // a byte
        text[Below(text.size())] = static_cast<char>(Below(256));
        return text;
      case 1: {  // a word in the place of another
        std::vector<std::string> changed = words;
        changed[Below(changed.size())] = words[Below(words.size())];
        return absl::StrJoin(changed, " ");
      }
      case 2: {  // a line less
        std::vector<std::string> changed = lines;
        changed.erase(changed.begin() + Below(changed.size()));
        return absl::StrJoin(changed, "\n");
      }
      case 3: {  // a line more
        std::vector<std::string> changed = lines;
        changed.insert(changed.begin() + Below(changed.size()), lines[Below(lines.size())]);
        return absl::StrJoin(changed, "\n");
      }
      case 4: {  // a number
        const std::string numbers[] = {"0", "-1", "2147483647", "-2147483648", "9223372036854775807", "1000000007"};
        const size_t at = text.find_first_of("0123456789", Below(text.size()));
        if (at != std::string::npos) text.replace(at, 1, numbers[Below(6)]);
        return text;
      }
      default:  // an end
        return text.substr(0, Below(text.size() + 1));
    }
  }

  std::mt19937 random_;
};

TEST(ProgramFuzzTest, DamagedTextsEndWell) {
  int read = 0, right = 0;
  for (uint32_t seed = 0; seed < 10000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const absl::StatusOr<Program> program = ParseProgram(Damage(seed).Apply(kSeed));
    if (!program.ok()) {
      EXPECT_TRUE(absl::IsInvalidArgument(program.status()));
      continue;
    }
    ++read;
    const std::string text = ToText(*program);
    ASSERT_OK_AND_ASSIGN(const Program again, ParseProgram(text));
    EXPECT_EQ(ToText(again), text);
    const absl::Status status = VerifyProgram(*program);
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    right += status.ok() ? 1 : 0;
    if (status.ok()) {
      for (int64_t rank = 0; rank < std::min<int64_t>(8, program->mesh.num_ranks()); ++rank) DumpRank(*program, rank);
    }
  }
  // Some of every sort.
  EXPECT_GT(read, 1000);
  EXPECT_GT(right, 10);
  EXPECT_LT(right, read);
}

}  // namespace
}  // namespace meshwright
