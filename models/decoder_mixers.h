// What of a decoder's layers mixes the tokens of a sequence: attention, and linear attention or a state space in its
// place. Used by decoder.cc.
//
// Thread safety: none; each graph has a builder of its own.
#ifndef MESHWRIGHT_MODELS_DECODER_MIXERS_H_
#define MESHWRIGHT_MODELS_DECODER_MIXERS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "models/decoder_pieces.h"

namespace meshwright {

class DecoderMixers : public DecoderPieces {
 protected:
  using DecoderPieces::DecoderPieces;

  // What attention, a feed-forward layer or experts add to the residual stream: the sum of all that there are.
  struct Branch {
    TensorId result, bias, adapted, shared, shared_adapted;
  };

  // A token sees `window` tokens, or with 0 all before it.
  absl::StatusOr<Branch> Attention(TensorId normed, int64_t window);
  // REQUIRES: the model has `linear_attention`.
  absl::StatusOr<Branch> LinearAttention(TensorId normed);

 private:
  absl::StatusOr<TensorId> Heads(TensorId normed, const AttentionHeads& heads);
  absl::StatusOr<TensorId> LatentHeads(TensorId normed);
  // `compared`: elements of a query and of a key. `made`: what attention makes of a token, of heads of keys, of queries
  // for each, and of a value.
  absl::StatusOr<TensorId> Attend(TensorId qkv, int64_t window, int64_t compared, const Shape& made);
  absl::StatusOr<TensorId> GateResult(TensorId normed, TensorId context, const Shape& made);

  // A parameter of each head of linear attention.
  TensorId OfLinearHeads(const char* name, Initializer init);
  // Through a vector of so many elements.
  absl::StatusOr<TensorId> Narrow(const std::string& name, TensorId normed, int64_t rank, int64_t width);
  // `amounts`: of kKimiDelta, whose gates are decays.
  absl::StatusOr<TensorId> Recur(TensorId mixed, TensorId gates, TensorId amounts);
  absl::StatusOr<TensorId> NormGated(TensorId made, TensorId gate);
};

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_DECODER_MIXERS_H_
