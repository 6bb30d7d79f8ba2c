#include "ir/program.h"

#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

constexpr char kTwoStages[] = R"(program p mesh pp=2 x2=2 x1=2 microbatches 3
class s0
  buffer x bfloat16 (16, 32) {x2 | x1} input layers 4 microbatches 2 bytes 256 offset 1024
  buffer s float32 () {} partial sum x2.x1 loss
  event e layers 2 microbatches 3
  block f forward
    compute Feed writes x
    compute Scale reads x writes x
  block u forward
    compute Scale reads x writes x
  slot f mb 0 layer 0 x4 up
  slot f mb 1 layer 3 x4 down
  slot u mb 0 layer 0
class s1
)";

TEST(ProgramTest, LocalBytesAreThoseOfOnePiece) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kTwoStages));
  // (16/2) x (32/2) elements of 2 bytes.
  EXPECT_EQ(LocalBytes(program.classes[0].buffers[0], program.mesh), Bytes(256));
  EXPECT_EQ(LocalBytes(program.classes[0].buffers[1], program.mesh), Bytes(4));
}

TEST(ProgramTest, NumIssuedCountsLayers) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kTwoStages));
  EXPECT_EQ(NumIssued(program.classes[0]), 4 * 2 + 4 * 2 + 1);
  EXPECT_EQ(NumIssued(program.classes[1]), 0);
}

TEST(ProgramTest, InstancesGoOverLayersThenMicroBatches) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kTwoStages));
  const Buffer& x = program.classes[0].buffers[0];  // 4 layers x 2 micro-batches
  EXPECT_EQ(InstanceOf(x, 0, 0), 0);
  EXPECT_EQ(InstanceOf(x, 3, 1), 7);
  EXPECT_EQ(InstanceOf(x, 5, 2), 2);  // layer 1, micro-batch 0
  EXPECT_EQ(OffsetOf(x, 3, 1), Bytes(1024 + 7 * 256));
  EXPECT_EQ(InstanceOf(program.classes[0].events[0], 1, 2), 5);
}

// Of mesh a=2 b=2 rank 3 has the second half of the 16 rows, and the second half of these: 4 rows of 64 bytes on.
TEST(ProgramTest, APieceLiesWhereItsRowsAre) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(R"(program pieces mesh a=2 b=2
class c
  buffer w float32 (16, 16) {a | -} parameter
  buffer w@rows float32 (16, 16) {a.b | -} parameter alias w
  buffer w@again float32 (16, 16) {a.b | -} parameter alias w@rows
  buffer w@same float32 (16, 16) {a | -} parameter alias w
  buffer w@columns float32 (16, 16) {a | b} parameter alias w
)"));
  const RankClass& c = program.classes[0];
  const auto place = [&](size_t b, int64_t rank) { return PlaceInRoot(c, BufferId(b), program.mesh, rank); };
  for (const size_t rows : {1, 2}) {
    EXPECT_TRUE(IsPieceOf(c.buffers[rows], c.buffers[0]));
    EXPECT_EQ(place(rows, 2), Bytes(0));
    EXPECT_EQ(place(rows, 3), Bytes(4 * 64));
  }
  for (const size_t other : {0, 3, 4}) {
    EXPECT_FALSE(IsPieceOf(c.buffers[other], c.buffers[0]));
    EXPECT_EQ(place(other, 3), Bytes(0));
  }
}

TEST(ProgramTest, WorkIsThatOfTheRanksOwnPieces) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(R"(program p mesh a=2 b=4
class c
  buffer x float32 (16, 32) {a | b} input
  buffer w float32 (32, 16) {b | -} parameter
  buffer y float32 (16, 16) {a | -} partial sum b temporary
  block f forward
    compute MatMul "m k, k n -> m n" reads x w writes y
)"));
  const Instruction& product = program.classes[0].blocks[0].instructions[0];
  const KernelWork work = WorkOf(product, std::get<Compute>(product.work), program.classes[0], program.mesh);
  // (8, 8) x (8, 16): m 8, k 8, n 16.
  EXPECT_EQ(work.flops, Flops(2 * 8 * 8 * 16));
  EXPECT_EQ(work.read, Bytes(4 * (8 * 8 + 8 * 16)));
  EXPECT_EQ(work.written, Bytes(4 * 8 * 16));
}

// What is added to is read first: a gradient whole, of a table's gradient the rows that the tokens name.
TEST(ProgramTest, AccumulatorsAreRead) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(R"(program p mesh a=2
class c
  buffer x float32 (4, 6) {- | -} input
  buffer dy float32 (4, 8) {- | -} temporary
  buffer dw float32 (6, 8) {- | -} gradient
  buffer ids int32 (4) {-} input
  buffer dtable float32 (1000, 8) {- | -} gradient
  block f backward
    compute MatMul "m k, m n -> k n" accumulate reads x dy writes dw
    compute GatherGrad "s h, s -> v h" accumulate reads dy ids writes dtable
)"));
  const auto work = [&](size_t i) {
    const Instruction& instruction = program.classes[0].blocks[0].instructions[i];
    return WorkOf(instruction, std::get<Compute>(instruction.work), program.classes[0], program.mesh);
  };
  EXPECT_EQ(work(0).read, Bytes(4 * (24 + 32 + 48)));
  EXPECT_EQ(work(1).read, Bytes(4 * (32 + 4 + 32)));
  EXPECT_EQ(work(1).written, Bytes(4 * 32));
}

TEST(ProgramTest, ClassesHoldConsecutiveRanks) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kTwoStages));
  EXPECT_EQ(program.ranks_per_class(), 4);
  EXPECT_EQ(program.RankOf(1, 3), 7);
}

TEST(ProgramTest, NamesAreThoseOfTheTexts) {
  EXPECT_EQ(NameOf(Stream::kReceive), "receive");
  EXPECT_EQ(NameOf(BufferRole::kOptimizerState), "optimizer_state");
  EXPECT_EQ(NameOf(Purpose::kReport), "report");
}

}  // namespace
}  // namespace meshwright
