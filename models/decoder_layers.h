// Which kinds of layers a decoder has, in which order: stretches of a run that is repeated, each a segment of the
// graph.
//
// Thread safety: plain values, pure functions.
#ifndef MESHWRIGHT_MODELS_DECODER_LAYERS_H_
#define MESHWRIGHT_MODELS_DECODER_LAYERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "models/decoder.h"

namespace meshwright {

struct LayerKind {
  bool mixer = true, feed_forward = true;  // a layer of a pattern has one of the two
  bool experts = true;                     // of the feed-forward layer, where the model has some
  int64_t window = 0;                      // 0: all of the sequence
  bool linear = false;                     // the mixer is linear attention or a state space
  friend bool operator==(const LayerKind&, const LayerKind&) = default;
};

struct LayerInRun {
  std::string prefix;  // of the names of what is in it
  LayerKind kind;
};
struct Stretch {
  std::string name;
  int64_t repeat = 1;
  std::vector<LayerInRun> run;
};

// In the order of the model. REQUIRES: CheckDecoder is OK.
std::vector<Stretch> StretchesOf(const DecoderConfig& config);

// Of every layer, in the order of the model.
std::vector<LayerKind> KindsOf(const DecoderConfig& config);

// Of a layer that predicts a further token, and what names in the k-th of them begin with.
LayerKind NextKind(const DecoderConfig& config);
std::string NextPrefix(int64_t k);

// A pattern of letters as runs that are repeated, so that few letters are written out: "MEMEMEM*E" -> "ME" 3, "M*E" 1.
struct PatternRun {
  std::string letters;
  int64_t repeat = 1;
};
std::vector<PatternRun> RunsOfPattern(const std::string& pattern);

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_DECODER_LAYERS_H_
