#include "ir/program_text.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

// Every kind of line and of work, every optional word.
constexpr char kEverything[] = R"(program "every field" mesh pp=2 x2=2 x1=2 microbatches 4 loss_divisor 0.1
class "stage 0" arena 4096
  buffer x float32 (16, 32) {x2 | x1} input microbatches 2 init formula a=7 b=3 modulus=11 divide=11
  buffer w float32 (32, 16) {x1 | -} parameter layers 4 bytes 1024 offset 256 init normal value=0.01
  buffer "w\"1" bfloat16 (16) {x2.x1} master init constant value=1 frozen
  buffer "reads" float32 (16, 16) {x2 | -} partial sum x1 activation microbatches 2
  buffer y@1 float32 (16, 16) {x2 | -} temporary
  buffer y@2 float32 (16, 16) {- | x2} temporary layers 2 microbatches 3 first_layer 8 alias y@1
  buffer loss float32 () {} partial max x2.x1 loss
  event ready layers 4 microbatches 2
  event "layers done"
  block "layers forward" forward
    compute Feed writes x
    compute MatMul "m k, k n -> m n" reads x w writes "reads" records ready "layers done" @matmul
    compute MatMul "m k, k n -> m n" accumulate recompute on_host scale=0.5 causal=false top_k=3 reads x w+1 writes "reads"
    compute ReLU reads y@1 writes y@1 @"layers/relu forward"
    comm all_reduce sum (x1) gradient reads "reads" "w\"1"-1 writes y@1 "w\"1" waits ready+1 "layers done"
    compute all_gather (x2, x1) dim 1 parameter reads y@1 writes y@2
    compute reduce_scatter max (x1) dim 1 activation reads y@1 writes y@2
    compute all_to_all (x2) dim 0 to 1 activation reads y@1 writes y@2
    compute broadcast () report reads y@1 writes y@1
    compute slice reads y@1 writes y@2
    comm permute reads y@1 writes y@2
    comm sync waits ready records "layers done"
    send to +1 activation reads y@1
    comm send to +1 gradient reads y@1
    comm permute (x2, x1) from 1 2 3 -1 reads y@1 writes y@2
  block "layers backward" backward
    receive from -1 activation writes y@1
    compute receive from -1 report writes y@1
    compute ReLU "" reads x writes y@1
    compute ReLU turn 1 step 3 reads x writes y@1
    comm broadcast (x1) root 1 step 3 parameter reads y@1 writes y@1
    compute StridedSlice "a x! -> a y!" begin=0,1 strides=1,2 sources=3,-1 reads x writes y@1
    compute Add "a, b -> a b" reads x w writes y@1
  block empty forward
  slot "layers forward" mb 0 layer 0 x4 up
  slot "layers backward" mb 3 layer 7 x2 down
  slot empty mb 1 layer 0 x3 step 2
class other stage 7
)";

TEST(ProgramTextTest, EveryFieldRoundTrips) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kEverything));
  EXPECT_EQ(ToText(program), kEverything);
}

TEST(ProgramTextTest, ReadsWhatItSays) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kEverything));
  EXPECT_EQ(program.name, "every field");
  EXPECT_EQ(program.num_microbatches, 4);
  EXPECT_EQ(program.loss_divisor, 0.1);
  ASSERT_EQ(program.classes.size(), 2u);
  const RankClass& stage = program.classes[0];
  EXPECT_EQ(stage.arena, Bytes(4096));
  EXPECT_EQ(program.classes[1].stage, 7);

  const Buffer& w = stage.buffers[1];
  EXPECT_EQ(w.bytes, Bytes(1024));
  EXPECT_EQ(w.offset, Bytes(256));
  EXPECT_EQ(w.layers, 4);
  EXPECT_EQ(w.init.kind, Initializer::Kind::kNormal);
  EXPECT_EQ(w.init.value, 0.01);
  EXPECT_TRUE(w.trainable);
  EXPECT_EQ(stage.buffers[2].name, "w\"1");
  EXPECT_FALSE(stage.buffers[2].trainable);
  EXPECT_EQ(stage.buffers[6].layout.reduction, Reduction::kMax);

  const std::vector<Instruction>& forward = stage.blocks[0].instructions;
  const auto& product = std::get<Compute>(forward[2].work);
  EXPECT_TRUE(product.accumulate);
  EXPECT_TRUE(product.recompute);
  EXPECT_TRUE(product.on_host);
  EXPECT_EQ(product.attrs->scale, 0.5);
  EXPECT_FALSE(product.attrs->causal);
  EXPECT_EQ(product.attrs->top_k, 3);
  EXPECT_EQ(forward[2].reads[1], (Operand{BufferId(1), 1}));
  // No rule is written: it is that of ReLU's row for a (16, 16) input.
  EXPECT_EQ(ToText(std::get<Compute>(forward[3].work).rule), "d0 d1 -> d0 d1");
  EXPECT_EQ(forward[3].origin, "layers/relu forward");
  EXPECT_EQ(forward[4].stream, Stream::kComm);
  EXPECT_EQ(forward[4].waits[0], (EventRef{EventId(0), 1}));
  EXPECT_TRUE(std::holds_alternative<Sync>(forward[11].work));
  EXPECT_EQ(forward[12].stream, Stream::kSend);
  EXPECT_EQ(forward[13].stream, Stream::kComm);
  EXPECT_EQ(stage.buffers[5].first_layer, 8);
  EXPECT_EQ(stage.buffers[5].alias, BufferId(4));
  EXPECT_FALSE(stage.buffers[4].alias.valid());
  EXPECT_EQ(stage.slots[1].step, -1);
  EXPECT_EQ(stage.slots[2].step, 2);
}

TEST(ProgramTextTest, SpacesAndCommentsDoNotMatter) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram("\n# a comment\nprogram p   mesh x1=2 # behind\n"
                                                           "class c\r\n\tbuffer  x float32 (4,8){x1|-}input\n"));
  EXPECT_EQ(ToText(program), "program p mesh x1=2\nclass c\n  buffer x float32 (4, 8) {x1 | -} input\n");
}

TEST(ProgramTextTest, NamesWithEveryCharacterRoundTrip) {
  std::string name;
  for (int c = 1; c < 256; ++c) name += static_cast<char>(c);
  name += "\\n\\\\n\"";
  Program program;
  program.name = name;
  RankClass& rank_class = program.classes.emplace_back();
  rank_class.name = "";
  rank_class.buffers.resize(2);
  rank_class.buffers[0].name = name;
  rank_class.buffers[1].name = "@#%";
  Instruction& instruction = rank_class.blocks.emplace_back().instructions.emplace_back();
  instruction.work = Slice{};
  instruction.reads = {{BufferId(0), -3}};
  instruction.writes = {{BufferId(1), 0}};
  instruction.origin = name;
  ASSERT_OK_AND_ASSIGN(const Program read, ParseProgram(ToText(program)));
  EXPECT_EQ(read.name, name);
  EXPECT_EQ(read.classes[0].buffers[0].name, name);
  EXPECT_EQ(read.classes[0].blocks[0].instructions[0].origin, name);
  EXPECT_EQ(read.classes[0].blocks[0].instructions[0].reads[0], instruction.reads[0]);
  EXPECT_EQ(ToText(read), ToText(program));
}

TEST(ProgramTextTest, NumbersRoundTripExactly) {
  Program program;
  program.loss_divisor = 1.0 / 3;
  RankClass& rank_class = program.classes.emplace_back();
  Compute compute;
  compute.op = OpKind::kScale;
  compute.attrs.Change([](OpAttrs& attrs) {
    attrs.scale = 0.1 + 0.2;  // not 0.3
    attrs.epsilon = 5e-324;
    attrs.theta = -0.0;
    attrs.beta1 = 1.7976931348623157e308;
  });
  rank_class.blocks.emplace_back().instructions.emplace_back().work = compute;
  ASSERT_OK_AND_ASSIGN(const Program read, ParseProgram(ToText(program)));
  EXPECT_EQ(read.loss_divisor, 1.0 / 3);
  EXPECT_EQ(std::get<Compute>(read.classes[0].blocks[0].instructions[0].work).attrs, compute.attrs);
  EXPECT_EQ(ToText(read), ToText(program));
}

// Programs that the verifier refuses can be written and read too: tests of the verifier need them.
TEST(ProgramTextTest, IndicesOutOfRangeAndEqualNamesAreWrittenByNumber) {
  constexpr char kText[] = R"(program p mesh one
class c
  buffer x float32 (4) {-} temporary alias %1
  buffer x float32 (4) {-} temporary
  block b forward
    compute slice reads %0 writes %1-2 waits %9 records %-1
    comm all_reduce sum (%3) gradient reads %7 writes %-1
    compute Add reads %7 writes %0
  slot %5 mb 0 layer 0
)";
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kText));
  EXPECT_EQ(ToText(program), kText);
  EXPECT_EQ(program.classes[0].blocks[0].instructions[0].writes[0], (Operand{BufferId(1), -2}));
  EXPECT_FALSE(program.classes[0].blocks[0].instructions[1].writes[0].buffer.valid());
}

TEST(ProgramTextTest, ScalarOperandsRoundTrip) {
  constexpr char kText[] = R"(program p mesh one
class c
  buffer s float32 () {} temporary
  buffer x float32 (4) {-} temporary
  block b forward
    compute Broadcast " -> m" reads s writes x
    compute ReduceSum "m -> " reads x writes s
    compute Fill " -> m" writes x
    compute Fill " -> " writes s
    compute Scale scale=2 reads s writes s
)";
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kText));
  EXPECT_EQ(ToText(program), kText);
  const std::vector<Instruction>& instructions = program.classes[0].blocks[0].instructions;
  EXPECT_EQ(std::get<Compute>(instructions[0].work).rule->inputs.size(), 1u);
  EXPECT_EQ(std::get<Compute>(instructions[2].work).rule->inputs.size(), 0u);
}

TEST(ProgramTextTest, OneInstruction) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kEverything));
  EXPECT_EQ(ToText(program.classes[0].blocks[0].instructions[12], program.classes[0], program.mesh),
            "send to +1 activation reads y@1");
}

// Each text is wrong in one place; the message says where, what was found and what was wanted.
TEST(ProgramTextTest, ErrorsSayWhereAndWhat) {
  constexpr char kHead[] =
      "program p mesh x1=2\nclass c\n  buffer x float32 (4) {x1} input\n  event e\n  block b forward\n";
  const std::pair<std::string, std::string> cases[] = {
      {"", R"(1:1: found the end of the text, wanted program NAME mesh ...)"},
      {"programme p", R"(1:1: found "programme", wanted "program")"},
      {"program p\n", R"(1:10: found the end of the line, wanted "mesh")"},
      {"program p mesh x1=0\n", R"(1:16: mesh "x1=0": found "x1=0", wanted name=size, as in dp=4)"},
      {"program p mesh one microbatches many", R"(1:33: found "many", wanted how many micro-batches)"},
      {"program p mesh one\nbuffer x", R"(2:1: found "buffer", wanted class NAME)"},
      {"program p mesh one\nclass c\ncompute", R"(3:1: found "compute", wanted class, buffer, event, block or slot)"},
      {"program p mesh one\nclass -c", R"(2:7: found "-c", wanted a name (in quotes if it is not a plain word))"},
      {"program p mesh one\nclass \"c", R"(2:7: found a quote that is not closed, wanted "...")"},
      {absl::StrCat(kHead, "buffer y float33"), R"(6:10: found "float33", wanted an element type: float64, float32,)"},
      {absl::StrCat(kHead, "buffer y float32 (4 5)"), R"(6:21: found "5", wanted ",")"},
      {absl::StrCat(kHead, "buffer y float32 (4) - input"), R"(6:22: found "-", wanted a layout, as in {x1 | -})"},
      {absl::StrCat(kHead, "buffer y float32 (4) {x7} input"), R"(6:22: no axis "x7" in the mesh x1=2)"},
      {absl::StrCat(kHead, "buffer y float32 (4) {-} inputs"), R"(6:26: found "inputs", wanted a role: parameter,)"},
      {absl::StrCat(kHead, "buffer y float32 (4) {-} input init normal mean=0"),
       R"(6:44: found "mean=0", wanted one of the keys value, low, high,)"},
      {absl::StrCat(kHead, "buffer y float32 (4) {-} input init normal value=o"),
       R"(6:44: found "value=o", wanted a value for value)"},
      {absl::StrCat(kHead, "computer ReLU"),
       R"(6:1: found "computer", wanted class, buffer, event, block, slot or the stream of an instruction: compute,)"},
      {absl::StrCat(kHead, "compute Relu"), R"(6:9: found "Relu", wanted an op, a collective, slice, permute, sync,)"},
      {absl::StrCat(kHead, "compute ReLU reads z"), R"(6:20: found "z", wanted a buffer of this class; there are: x)"},
      {absl::StrCat(kHead, "compute ReLU reads x+y"),
       R"(6:20: found "x+y", wanted a name and a layer shift, as in x-1)"},
      {absl::StrCat(kHead, "compute ReLU reads x writes x waits f"),
       R"(6:37: found "f", wanted an event of this class; there are: e)"},
      {absl::StrCat(kHead, "compute ReLU writes x reads x"),
       R"(6:23: found "reads", wanted reads, writes, waits, records)"},
      {absl::StrCat(kHead, "compute MatMul \"m k\" reads x"), R"(6:16: an index rule is written inputs -> outputs)"},
      {absl::StrCat(kHead, "comm all_reduce (x1)"), R"(6:17: found "(", wanted a reduction: sum, max, min, prod)"},
      {absl::StrCat(kHead, "comm all_reduce sum (x2)"), R"(6:22: found "x2", wanted an axis of the mesh x1=2)"},
      {absl::StrCat(kHead, "comm all_reduce sum (x1)"),
       R"(6:25: found the end of the line, wanted a purpose: activation,)"},
      {absl::StrCat(kHead, "send to next"), R"(6:9: found "next", wanted how many stages away, as in +1)"},
      {absl::StrCat(kHead, "compute slice @"), R"(6:16: found the end of the line, wanted an origin behind the @)"},
      {absl::StrCat(kHead, "slot b mb 0 layer 0 4 up"), R"(6:21: found "4", wanted how many layers, as in x4)"},
      {absl::StrCat(kHead, "slot c mb 0 layer 0"), R"(6:6: found "c", wanted a block of this class; there are: b)"},
      {absl::StrCat(kHead, "slot b mb 0 layer 0 x4 up up"), R"(6:27: found "up", wanted the end of the line)"},
      {absl::StrCat(kHead, "event x 4"), R"(6:9: found "4", wanted the end of the line)"},
  };
  for (const auto& [text, message] : cases) {
    SCOPED_TRACE(text);
    EXPECT_THAT(ParseProgram(text), StatusIs(absl::StatusCode::kInvalidArgument, testing::StartsWith(message)));
  }
}

// Seed B's network on 8 ranks (S16.11): MatMul ((2,4),(4,1)), ReLU ((2,4)), MatMul ((2,4),(4,1)).
constexpr char kSeedB[] = R"(program seed_b mesh a=2 b=4
class all
  buffer x float32 (16, 32) {a | b} input
  buffer w float32 (32, 16) {b | -} parameter
  buffer w2 float32 (16, 16) {b | -} parameter
  buffer y float32 (16, 16) {a | -} partial sum b temporary
  buffer y@1 float32 (16, 16) {a | -} temporary
  buffer y@2 float32 (16, 16) {a | b} temporary
  buffer z float32 (16, 16) {a | b} activation
  buffer dw float32 (32, 16) {b | -} partial sum a gradient
  buffer dw2 float32 (16, 16) {b | -} partial sum a gradient
  buffer dw@1 float32 (32, 16) {b | -} gradient
  buffer dw2@1 float32 (16, 16) {b | -} gradient
  block forward forward
    compute MatMul "m k, k n -> m n" reads x w writes y
    compute all_reduce sum (b) activation reads y writes y@1
    compute slice reads y@1 writes y@2
    compute ReLU reads y@2 writes z
    compute MatMul "m k, k n -> m n" reads z w2 writes y
  block update forward
    comm all_reduce sum (a) gradient reads dw dw2 writes dw@1 dw2@1
    compute all_gather (b) dim 1 activation reads y@2 writes y@1
  slot forward mb 0 layer 0
  slot forward mb 1 layer 0
  slot update mb 0 layer 0
)";

TEST(DumpRankTest, ShowsTheRanksOwnShapesGroupsAndSlices) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kSeedB));
  EXPECT_EQ(DumpRank(program, 0), R"(# forward: layer 0, micro-batch 0
- Load w (8, 16)
1 MatMul (8, 8) (8, 16) -> (8, 16)
2 AllReduce sum ranks 0-1-2-3 fusion 0 (8, 16)
3 StridedSlice begin (0, 0) end (8, 4) strides (1, 1) (8, 16) -> (8, 4)
4 ReLU (8, 4) -> (8, 4)
- Load w2 (4, 16)
5 MatMul (8, 4) (4, 16) -> (8, 16)
# forward: layer 0, micro-batch 1, as above
# update: layer 0, micro-batch 0
6 AllReduce sum ranks 0-4 fusion 1 (8, 16) (4, 16)
7 AllGather ranks 0-1-2-3 fusion 0 dim 1 (8, 4) -> (8, 16)
)");
  // Rank 5 = (1, 1): AllReduce 4-5-6-7, StridedSlice (0,4) (8,8).
  const std::string rank5 = DumpRank(program, 5);
  EXPECT_THAT(rank5, testing::HasSubstr("2 AllReduce sum ranks 4-5-6-7 fusion 0 (8, 16)\n"
                                        "3 StridedSlice begin (0, 4) end (8, 8) strides (1, 1) (8, 16) -> (8, 4)\n"));
  EXPECT_THAT(rank5, testing::HasSubstr("6 AllReduce sum ranks 1-5 fusion 1"));
}

TEST(DumpRankTest, PeersAreRanks) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(R"(program p mesh pp=2 x1=2
class s0
  buffer y float32 (4, 8) {x1 | -} temporary
  block f forward
    send to +1 activation reads y
  slot f mb 0 layer 0 x2 up
class s1
  buffer y float32 (4, 8) {x1 | -} temporary
  block f forward
    receive from -1 activation writes y
  slot f mb 0 layer 5 x3 down
)"));
  EXPECT_EQ(DumpRank(program, 1), "# f: layers 0, 1, micro-batch 0\n1 Send to rank 3 (2, 8)\n");
  EXPECT_EQ(DumpRank(program, 3), "# f: layers 5 to 3, micro-batch 0\n1 Receive from rank 1 (2, 8)\n");
}

}  // namespace
}  // namespace meshwright
