#include "tools/validate/framework_memory.h"

#include "costmodel/memory_overheads.h"
#include "gtest/gtest.h"
#include "ir/program.h"

namespace meshwright {
namespace {

// Two layers of hidden 64 and ffn 256, a vocabulary of 1000, 128 tokens in two rows. 1000 parameters a rank.
TrainingRun UsualRun() {
  TrainingRun run;
  run.model.layers = 2;
  run.model.hidden = 64;
  run.model.heads = 4;
  run.model.head_dim = 16;
  run.model.ffn = 256;
  run.model.vocab = 1000;
  run.model.activation = Activation::kGelu;
  run.training.dtype = DType::kBFloat16;
  run.training.sequence = 64;
  run.training.batch = 16;
  run.degrees.microbatch = 2;
  return run;
}

Bytes& Of(Prediction* prediction, BufferRole role) { return prediction->memory[static_cast<size_t>(role)]; }

// 2 bytes a weight, 4 a gradient, 8 of state, which `replicas` share.
Prediction PredictionOf(int64_t replicas) {
  const int64_t owned = 1000 / replicas;
  Prediction prediction;
  Of(&prediction, BufferRole::kParameter) = Bytes(2 * 1000);
  Of(&prediction, BufferRole::kGradient) = Bytes(4 * 1000);
  Of(&prediction, BufferRole::kOptimizerState) = Bytes(8 * owned);
  prediction.arena = Bytes(100'000);
  prediction.peak = Bytes(100'000);
  prediction.capacity = Bytes(100'000'000);
  return prediction;
}

TEST(FrameworkMemoryTest, NothingBesideWhereNothingIsKnown) {
  EXPECT_EQ(HeldBesideArena(UsualRun(), Strategy(), PredictionOf(1)), Bytes());
  EXPECT_EQ(CachedBesideArena(UsualRun(), PredictionOf(1)), Bytes(5'000));  // 5 %
}

// Of 4 replicas each owns 250: pieces of 2 + 4 bytes, where they are no views of what is whole. A tied embedding over
// two stages of two ranks each: 1000 x 64 / 2 gradients of 4 bytes are summed in place.
TEST(FrameworkMemoryTest, PiecesAndWhatIsDoneInPlace) {
  TrainingRun run = UsualRun();
  run.parallel_optimizer = true;
  run.degrees.data = 4;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(4)), Bytes());
  run.copies.shards = run.copies.pieces = true;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(4)), Bytes(250 * 6));
  // Where replicas divide nothing a rank owns all, and of experts' pieces nothing is told.
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes());
  run.degrees.expert = 2;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(4)), Bytes());
  run.degrees.expert = 1;
  run.copies.shards = false;
  run.copies.whole = -4;  // ZeRO-2 has pieces of gradients, and no whole ones
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(4)), Bytes(250 * 4 - 4000));
  TrainingRun tied = UsualRun();
  tied.model.tied_embeddings = true;
  tied.degrees.pipeline = 2;
  tied.degrees.tensor = 2;
  EXPECT_EQ(HeldBesideArena(tied, Strategy(), PredictionOf(1)), Bytes(-1000 * 64 / 2 * 4));
}

// Beside embedding and head, 2 x 64,000 elements, there are two layers of 10,000: of 2 bytes or of 9/16. Over two ranks
// the program has a half of all layers, and two of eight whole: of 20,000 elements 15,000; frameworks have the half of
// six layers and two whole, 12,500.
TEST(FrameworkMemoryTest, FrozenWeights) {
  Prediction prediction = PredictionOf(1);
  Of(&prediction, BufferRole::kParameter) = Bytes(2 * (128'000 + 20'000));
  Of(&prediction, BufferRole::kOptimizerState) = Bytes();
  TrainingRun run = UsualRun();
  run.frozen = true;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes());
  run.quantized = true;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes(-20'000 * 23 / 16));
  run.quantized = false;
  run.parallel_optimizer = run.shard_parameters = true;
  run.degrees.data = 2;
  run.model.layers = 8;
  Of(&prediction, BufferRole::kParameter) = Bytes(2 * (128'000 + 15'000));
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes(2 * (12'500 - 15'000)));
  run.copies.host_weights = true;  // six on the host
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes(2 * (5'000 - 15'000)));
  run.copies.wide_rest = true;  // the embedding and the head of 4 bytes
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes(2 * (128'000 + 5'000 - 15'000)));
}

// 128 tokens of 1000 logits, 6 bytes each; of two layers with two products each, the half that other ranks have of 128
// tokens x 64 x 2 bytes.
TEST(FrameworkMemoryTest, LogitsAndGatheredInputs) {
  TrainingRun run = UsualRun();
  run.copies.logits = 6;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes(128 * 1000 * 6));
  run.copies.logits = 0;
  run.copies.gathered_inputs = true;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes());
  run.degrees.tensor = 2;
  run.degrees.sequence_parallel = true;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes(2 * 2 * 128 * 64 * 2 / 2));
}

// Of two layers each of 128 tokens goes to two experts, whose results are as wide as the model, of 2 bytes; a quarter
// more where experts are fuller than even. Where they are made again, nobody has them.
TEST(FrameworkMemoryTest, ResultsOfExpertsThatWeighInside) {
  TrainingRun run = UsualRun();
  run.model.experts = 8;
  run.model.experts_per_token = 2;
  run.model.capacity_factor = 1.25;
  Prediction keeps = PredictionOf(1);
  Of(&keeps, BufferRole::kActivation) = Bytes(200'000);
  EXPECT_EQ(HeldBesideArena(run, Strategy(), keeps), Bytes());
  run.copies.weighs_inside = true;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), keeps), Bytes(-2 * 128 * 2 * 64 * 2 * 5 / 4));
  // Whole experts on each rank make a part of the results, parts of experts all of them.
  run.degrees.tensor = 2;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), keeps), Bytes(-2 * 128 * 2 * 64 * 2 * 5 / 4));
  run.degrees.spread_experts = true;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), keeps), Bytes(-128 * 2 * 64 * 2 * 5 / 4));
  run.degrees.tensor = 1;
  run.recompute_ops = {"mlp2"};
  EXPECT_EQ(HeldBesideArena(run, Strategy(), keeps), Bytes());
  run.recompute_ops = {"activation"};
  run.recompute = Recompute::kLayer;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), keeps), Bytes());
}

// Of four layers two have state spaces, of 2 groups of 8 each for keys and queries: 128 tokens of 2 x 16 elements of 2
// bytes.
TEST(FrameworkMemoryTest, StateSpacesThatConvolveAgain) {
  TrainingRun run = UsualRun();
  run.model.layers = 4;
  run.model.layer_pattern = "M*M*";
  run.model.linear_attention.form = LinearForm::kStateSpace;
  run.model.linear_attention.key_heads = 2;
  run.model.linear_attention.key_dim = 8;
  run.model.linear_attention.value_heads = 4;
  run.model.linear_attention.value_dim = 16;
  ASSERT_EQ(CountLayers(run.model).linear, 2);
  Prediction keeps = PredictionOf(1);
  Of(&keeps, BufferRole::kActivation) = Bytes(200'000);
  EXPECT_EQ(HeldBesideArena(run, Strategy(), keeps), Bytes());
  run.copies.scans_again = true;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), keeps), Bytes(-2 * 128 * 2 * 16 * 2));
  run.model.linear_attention.form = LinearForm::kGatedDelta;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), keeps), Bytes());
}

// Two layers of 128 tokens: two masks of 64, and 3 bytes of each of 4 heads' 64 keys; of as many micro-batches as are
// under way, four over as many stages of half a layer. What the update takes, 4 x 1000, goes where that was.
TEST(FrameworkMemoryTest, DropoutAndCopiesOfTheUpdate) {
  TrainingRun run = UsualRun();
  run.copies.norms = kDropoutMasks;
  run.copies.scores = kDropoutScores;
  const int64_t kept = 2 * 128 * (2 * 64 + 3 * 4 * 64);
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes(kept));
  run.copies.update = 4;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes(kept));
  run.copies.norms = run.copies.scores = 0;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes(4 * 1000));
  Prediction keeps = PredictionOf(1);
  Of(&keeps, BufferRole::kActivation) = Bytes(3000);
  EXPECT_EQ(HeldBesideArena(run, Strategy(), keeps), Bytes(1000));
  TrainingRun stages = UsualRun();
  stages.copies.scores = kDropoutScores;
  stages.model.vocab = 1;
  stages.degrees.pipeline = 4;
  Strategy strategy;
  strategy.stages = 4;
  strategy.microbatches = 8;
  EXPECT_EQ(HeldBesideArena(stages, strategy, PredictionOf(1)), Bytes(2 * 128 * 3 * 4 * 64));
}

// A tied embedding over two stages, 1000 x 64 of whose gradient, 4 bytes, is summed in place. The last stage, whose 128
// x 1000 logits take 6 bytes for a while, has masters and moments of it, 4 + 8; of four replicas each a fourth.
TEST(FrameworkMemoryTest, BothStagesHaveTheStateOfATiedEmbedding) {
  TrainingRun run = UsualRun();
  run.model.tied_embeddings = true;
  run.degrees.pipeline = 2;
  Prediction last = PredictionOf(1);
  Of(&last, BufferRole::kTemporary) = Bytes(6 * 128'000);
  EXPECT_EQ(HeldBesideArena(run, Strategy(), last), Bytes(64'000 * (4 + 8 - 4)));
  run.parallel_optimizer = true;
  run.degrees.data = 4;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), last), Bytes(64'000 * (3 - 4)));
}

// Tensor parallelism of 2 has an embedding of 1000 x 64 whole, where the program has half: 2 bytes, 4 and 4 + 8 each.
TEST(FrameworkMemoryTest, AnEmbeddingThatIsNotCut) {
  TrainingRun run = UsualRun();
  run.degrees.tensor = 2;
  run.copies.whole_table = true;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes(32'000 * (2 + 4 + 12)));
  run.degrees.tensor = 1;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes());
}

// Four experts of 2 x 64 x 256 in each of two layers, over two ranks, and those over four replicas: half of them on
// each rank, 131,072, of which the program has half split away, with 4 bytes of gradient and 4 + 8 of state.
TEST(FrameworkMemoryTest, ExpertsThatReplicasDoNotSplit) {
  TrainingRun run = UsualRun();
  run.model.experts = 4;
  run.degrees.expert = 2;
  run.degrees.data = 4;
  run.copies.whole_experts = true;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes(131'072 / 2 * (4 + 12)));
  run.copies.shards = true;  // and what it has of gathered weights a second time
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes(131'072 / 2 * (4 + 12 - 2)));
  run.copies.shards = false;
  run.degrees.pipeline = 2;  // of one layer, at four replicas
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes(131'072 / 4 * (4 + 12)));
  run.degrees.expert = 4;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes());
}

// What the loss holds goes where a layer that is run again has more: of 128 x 1000 logits the program has 2 bytes at
// the loss alone, with 6 more 8; 400,000 bytes are there in a layer. Four less take the other 2 away as well.
TEST(FrameworkMemoryTest, TheLossIsAtAnotherTimeThanALayer) {
  TrainingRun run = UsualRun();
  run.copies.logits = 6;
  Prediction layers = PredictionOf(1);
  Of(&layers, BufferRole::kTemporary) = Bytes(400'000);
  Of(&layers, BufferRole::kActivation) = Bytes(1'000'000);
  EXPECT_EQ(HeldBesideArena(run, Strategy(), layers), Bytes(8 * 128'000 - 400'000));
  run.copies.logits = -4;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), layers), Bytes(-2 * 128'000));
  Of(&layers, BufferRole::kTemporary) = Bytes(256'000);
  EXPECT_EQ(HeldBesideArena(run, Strategy(), layers), Bytes(-4 * 128'000));
}

// 4000 bytes of gradients that are made while what was kept goes, and 4 bytes each of 1000 parameters in the update.
TEST(FrameworkMemoryTest, FreshGradients) {
  TrainingRun run = UsualRun();
  run.copies.fresh_gradients = true;
  Prediction prediction = PredictionOf(1);
  Of(&prediction, BufferRole::kActivation) = Bytes(3000);
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes(-3000));
  Of(&prediction, BufferRole::kActivation) = Bytes(5000);
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes(-4000));
  run.copies.update = 4;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes(8000 - 9000));
  run.copies.update = 0;
  run.copies.one_gradient = true;
  run.model.vocab = 5;  // the largest parameter is of 5 x 64: 1280 bytes
  Of(&prediction, BufferRole::kActivation) = Bytes(1000);
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes(1280 - 5000));
}

// 6 bytes of 1000 parameters in the update, or of 200 at a time.
TEST(FrameworkMemoryTest, GroupsOfParametersAreUpdatedInTurn) {
  TrainingRun run = UsualRun();
  run.copies.update = 6;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes(6000));
  run.copies.updated_at_once = 200;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes(1200));
}

// Of 4 ranks each owns 250 parameters, and has 1000 more whole: 2000 bytes gathered, of which 2 x 64 x 2 are the
// embedding's and the head's, and 4000 of gradients. Of the 6000 kept the loss, 128 x 4, is gone when the first layer
// is gathered for its backward pass. Gradients of several micro-batches are summed whole, 1000 of 2 bytes.
TEST(FrameworkMemoryTest, ShardedParametersAreNotGatheredAllStep) {
  TrainingRun run = UsualRun();
  run.parallel_optimizer = run.shard_parameters = true;
  run.degrees.data = 4;
  run.model.vocab = 1;
  run.copies.fresh_gradients = true;
  Prediction prediction = PredictionOf(4);
  Of(&prediction, BufferRole::kParameter) = Bytes(2 * (1000 + 250));
  Of(&prediction, BufferRole::kGradient) = Bytes(4 * (1000 + 250));
  Of(&prediction, BufferRole::kActivation) = Bytes(6000);
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes(6000 - 512 - 11'000));
  run.copies.fresh_gradients = false;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes());
  run.copies.sum = 2;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes(2000 - 4000));
}

// Weights of layers in float8: of 1512 bytes 2 x 4 x 64 elements of embedding and head take 1024, the other 488 one
// each, 1000 in all. Where ranks hold parts, of which a quarter is the ends' as of what is whole: 1512 bytes beside the
// rank's 128 x 2 + 122 of its 250 are gathered, of which the loss, where it is the most, has none.
TEST(FrameworkMemoryTest, NarrowWeightsAreAsMany) {
  TrainingRun run = UsualRun();
  run.model.vocab = 4;
  run.training.float8_parameters = true;
  run.copies.whole = 3;
  Prediction prediction = PredictionOf(4);
  Of(&prediction, BufferRole::kParameter) = Bytes(1512);
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes(3000));
  run.copies.whole = 0;
  run.parallel_optimizer = run.shard_parameters = true;
  run.degrees.data = 4;
  run.copies.sum = 2;
  Of(&prediction, BufferRole::kParameter) = Bytes(1512 + 378);
  Of(&prediction, BufferRole::kGradient) = Bytes(4 * (1000 + 250));
  Of(&prediction, BufferRole::kActivation) = Bytes(6000);
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes(2000 - 4000));
}

// Keys for each of 64 elements of queries, 4 bytes, in two layers of 128 tokens; checkpoints of 128 x 64 x 2 on the
// host.
TEST(FrameworkMemoryTest, KeysAndCheckpoints) {
  TrainingRun run = UsualRun();
  run.copies.keys = 4;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes(2 * 128 * 64 * 4));
  run.recompute = Recompute::kLayer;
  run.copies.offloads = true;
  Prediction prediction = PredictionOf(1);
  Of(&prediction, BufferRole::kActivation) = Bytes(100'000);
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes(-2 * 128 * 64 * 2));
}

// Parameters through lists: a flat buffer of 2000 bytes and the rank's own part, 500. The list's tensors, 500 each,
// find room in a wide product's 2 x 256 x 128 bytes. Two layers' two results before they are scattered: 128 x 64 x 2
// each.
TEST(FrameworkMemoryTest, WhatTheAllocatorKeeps) {
  TrainingRun run = UsualRun();
  run.parallel_optimizer = true;
  run.degrees.data = 4;
  run.copies.gathers_lists = true;
  EXPECT_EQ(CachedBesideArena(run, PredictionOf(4)), Bytes(2500));
  run.training.sequence = 1;  // logits, the largest, of two tokens: 8000
  run.model.vocab = 50;       // a wide product's 1024: still
  EXPECT_EQ(CachedBesideArena(run, PredictionOf(4)), Bytes(2500));
  run.degrees.microbatch = 1;
  run.model.ffn = 128;  // 256 and 200 bytes: the list is beside
  EXPECT_EQ(CachedBesideArena(run, PredictionOf(4)), Bytes(4500));
  TrainingRun tensor = UsualRun();
  tensor.copies.gathers_lists = true;
  tensor.degrees.tensor = 2;
  tensor.degrees.sequence_parallel = true;
  EXPECT_EQ(CachedBesideArena(tensor, PredictionOf(1)), Bytes(2 * 2 * 128 * 64 * 2));
  // Without room it gives back what no pass uses.
  Prediction full = PredictionOf(4);
  full.capacity = full.peak + Bytes(2499);
  run = UsualRun();
  run.parallel_optimizer = true;
  run.degrees.data = 4;
  run.copies.gathers_lists = true;
  Of(&full, BufferRole::kActivation) = Bytes(1000);
  EXPECT_EQ(CachedBesideArena(run, full), Bytes(1500));
  full.capacity = full.peak;
  EXPECT_EQ(CachedBesideArena(run, full), Bytes());
}

// Over two nodes of 8: tensor parallelism of 4 and 2 stages of 2 replicas. The program has three groups, a framework
// one of all devices and one of a replica's 8 beside.
TEST(FrameworkMemoryTest, Communicators) {
  TrainingRun run = UsualRun();
  run.cluster.device.generation = Generation::kAmpere;
  run.cluster.nodes = 2;
  run.cluster.devices_per_node = 8;
  run.degrees.tensor = 4;
  run.degrees.data = 2;
  run.degrees.pipeline = 2;
  Prediction prediction = PredictionOf(1);
  const Bytes program = kCommunicatorBytes + kPairCommunicatorBytes + kNodeCommunicatorBytes;
  prediction.outside = {{"communicators", program}};
  EXPECT_EQ(GroupBytes(run, prediction), kCommunicatorBytes * 2);
  run.early_nccl = true;
  const Bytes early = kEarlyCommunicatorBytes * 3 + kEarlyPairCommunicatorBytes + kNodeCommunicatorBytes;
  EXPECT_EQ(GroupBytes(run, prediction), early - program);
  run.degrees.data = run.degrees.pipeline = 1;  // one group is all there is
  prediction.outside = {{"communicators", kEarlyCommunicatorBytes}};
  EXPECT_EQ(GroupBytes(run, prediction), Bytes());
  run.early_context = true;
  EXPECT_EQ(GroupBytes(run, prediction), MiB(942 - 750));
}

// Adapters of 50 parameters with 16 bytes each; over four ranks that split weights a fourth. They keep 6 bytes of each
// of 128 tokens and 2 layers.
TEST(FrameworkMemoryTest, Adapters) {
  TrainingRun run = UsualRun();
  run.adapters = 50;
  run.copies.adapters = 16;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes(800));
  run.copies.adapted = 6;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes(800 + 128 * 2 * 6));
  run.copies.adapted = 0;
  run.frozen = run.shard_parameters = true;
  const Bytes whole = HeldBesideArena(run, Strategy(), PredictionOf(1));
  run.adapters = 0;
  const Bytes without = HeldBesideArena(run, Strategy(), PredictionOf(1));
  EXPECT_EQ(whole - without, Bytes(800));  // one replica
}

// A layer that is run again keeps 8 bytes of 128 x 64 elements for a while, where a loss of 4 bytes of 128 logits
// was; of fresh gradients all are there by then.
TEST(FrameworkMemoryTest, StepsOfALayerThatIsRunAgain) {
  TrainingRun run = UsualRun();
  run.model.vocab = 1;
  run.copies.norms = 8;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes(2 * 128 * 64 * 8));  // of all layers
  run.recompute = Recompute::kLayer;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes(128 * 64 * 8 - 512));
  run.copies.fresh_gradients = true;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes(128 * 64 * 8));
  // Two ranks have 64 tokens each, and keys and values of 3 x 16 of all 128.
  run.degrees.context = 2;
  run.model.kv_heads = 3;
  run.copies.gathered_keys = true;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), Bytes(64 * 64 * 8 + 128 * 2 * 48 * 2));
}

// The head's gradient of 1000 x 64 elements, 2 bytes, comes when all that was kept is there, less the loss but for its
// 2 bytes of 128 x 1000 logits: 10 - 2. A tied embedding's comes beside it when all gradients are.
TEST(FrameworkMemoryTest, GradientsOfHeadAndEmbedding) {
  TrainingRun run = UsualRun();
  run.copies.fresh_gradients = true;
  run.training.fused_loss = false;
  run.copies.logits = -8;  // 2 in all, which is what passes less 4
  Prediction prediction = PredictionOf(1);
  Of(&prediction, BufferRole::kTemporary) = Bytes(6 * 128'000);
  Of(&prediction, BufferRole::kActivation) = Bytes(2'000'000);
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes(-8 * 128'000 + 128'000 - 4000));
  run.frozen = true;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes(-8 * 128'000 - 4000));
  run.frozen = false;
  run.copies.logits = 0;
  run.model.tied_embeddings = true;
  Of(&prediction, BufferRole::kTemporary) = Bytes();
  Of(&prediction, BufferRole::kActivation) = Bytes();
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes(128'000));
}

// Two workspaces of cuBLAS are the allocator's, one of which the program's overheads have.
TEST(FrameworkMemoryTest, Workspaces) {
  TrainingRun run = UsualRun();
  run.cluster.device.generation = Generation::kHopper;
  run.copies.workspaces = 2;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(1)), MiB(64));
  EXPECT_EQ(GroupBytes(run, PredictionOf(1)), Bytes() - MiB(32));
}

// Of four ranks that share 1000 parameters each has 250 on the host, with gradient, master and moments: 2 + 4 + 4 + 8,
// or 2 less where weights are the masters.
TEST(FrameworkMemoryTest, WhatTrainsIsOnTheHost) {
  TrainingRun run = UsualRun();
  run.parallel_optimizer = run.shard_parameters = true;
  run.degrees.data = 4;
  run.copies.host_weights = true;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(4)), Bytes(-250 * 18));
  run.copies.owned = -2;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), PredictionOf(4)), Bytes(-250 * 18));  // 16, and the 2
}

// With a loss that holds nothing a layer that is run again is the most: 4 x 64 of hidden, 2 x 64 of queries, and for
// each of two experts three of 256 and 2 x 64 that goes there and back; 2 bytes each of 128 tokens.
TEST(FrameworkMemoryTest, ALayerOfExpertsThatIsRunAgain) {
  TrainingRun run = UsualRun();
  run.training.fused_loss = false;
  run.copies.fresh_gradients = true;
  run.copies.logits = -10;
  run.model.kv_heads = 0;
  run.recompute = Recompute::kLayer;
  Prediction prediction = PredictionOf(1);
  Of(&prediction, BufferRole::kTemporary) = Bytes(6 * 128'000);
  Of(&prediction, BufferRole::kActivation) = Bytes(2'000'000);
  const int64_t rest = -10 * 128'000 - 4000, dense = 4 * 64 + 2 * 64 + 3 * 256;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes(rest + 2 * 128 * dense));
  run.model.experts = 4;
  run.model.experts_per_token = 2;
  EXPECT_EQ(HeldBesideArena(run, Strategy(), prediction), Bytes(rest + 2 * 128 * (dense + 3 * 256 + 2 * 2 * 64)));
}

}  // namespace
}  // namespace meshwright
