// Small models for tests and benchmarks of the search. For tests only.
#ifndef MESHWRIGHT_PLANNER_SEARCH_TESTING_H_
#define MESHWRIGHT_PLANNER_SEARCH_TESTING_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "planner/search/problem.h"

namespace meshwright {

// A decoder with the label names that degrees mean (evaluate.h): layer norms without bias, fused attention, GeLU.
struct ToyDecoder {
  int64_t layers = 2, hidden = 64, heads = 4, ffn = 256, vocab = 256, sequence = 32;
  bool tied = false;  // the head's weight is the embedding
  int64_t experts = 0, top_k = 2;
  int64_t dense_layers = 0, expert_every = 1;  // as models/decoder.h, with dense layers of `ffn`
  DType dtype = DType::kBFloat16;
  bool unrolled = false;  // every layer's operators stand in the graph, as "layer0.qkv" and so on
};
absl::StatusOr<Graph> BuildToyDecoder(const ToyDecoder& sizes, int64_t rows);

// AdamW, batch rows of it on the cluster.
Problem ToyDecoderProblem(const ToyDecoder& sizes, int64_t batch, Cluster cluster);

// GPT-3 175B.
ToyDecoder Gpt3();

// The chain of S14.9: x (64, 128) w1 (128, 64), relu, w2 (64, 64); operators matmul1, relu, matmul2. No loss.
absl::StatusOr<Graph> BuildChain();

// The tutorial of S15.7: x (256, 784) w (784, 64) + bias, relu, w2 (64, 10); operators matmul, add, relu, matmul2.
absl::StatusOr<Graph> BuildFeedForward();

// relu(x w) w2 against a target, as seed B has it: x (rows, 32), w (32, 16), w2 (16, 16).
absl::StatusOr<Graph> BuildSeedB(int64_t rows);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_TESTING_H_
