// For tests of hugging_face: reads a config.json, and counts the parameters of what it says, and by hand.
#ifndef MESHWRIGHT_MODELS_HUGGING_FACE_TESTING_H_
#define MESHWRIGHT_MODELS_HUGGING_FACE_TESTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "ir/document.h"
#include "ir/graph.h"
#include "ir/testing.h"
#include "models/decoder.h"
#include "models/hugging_face.h"
#include "models/training.h"

namespace meshwright {

inline Training TrainingOf(int64_t sequence) {
  Training training;
  training.batch = 1;
  training.sequence = sequence;
  return training;
}

inline absl::StatusOr<DecoderConfig> Read(absl::string_view json, int64_t sequence = 64,
                                          std::vector<std::string>* notices = nullptr) {
  const absl::StatusOr<Document> document = ParseDocument(json, "config.json");
  if (!document.ok()) return document.status();
  std::vector<std::string> unread;
  return ReadHuggingFace(document->root(), TrainingOf(sequence), notices == nullptr ? unread : *notices);
}

inline int64_t CountOf(const absl::StatusOr<DecoderConfig>& config) {
  EXPECT_THAT(config, IsOk());
  if (!config.ok()) return -1;
  const absl::StatusOr<Graph> graph = BuildDecoder(*config, TrainingOf(64), "hf", 1);
  EXPECT_THAT(graph, IsOk());
  return graph.ok() ? graph->NumParameters() : -1;
}

// Of a layer, by hand: queries and the output, keys and values, a gate and two products of a feed-forward layer, norms.
constexpr int64_t Layer(int64_t hidden, int64_t queries, int64_t keys, int64_t ffn) {
  return 2 * hidden * (queries + keys) + 3 * hidden * ffn + 2 * hidden;
}

// The embedding, the last norm and the output layer.
constexpr int64_t Ends(int64_t vocab, int64_t hidden) { return 2 * vocab * hidden + hidden; }

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_HUGGING_FACE_TESTING_H_
