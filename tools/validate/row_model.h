// The model of a row: the sizes that the cells give, and for those that are empty what its name and its number of
// parameters tell.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_ROW_MODEL_H_
#define MESHWRIGHT_TOOLS_VALIDATE_ROW_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/decoder.h"
#include "tools/validate/csv.h"

namespace meshwright {

// kUnimplemented, "reason: detail": what the tool cannot express. The part before the colon is what it is counted
// under.
absl::Status CannotExpress(absl::string_view reason, absl::string_view detail);

// What a row that is not predicted says: the reason above, or "damaged cell: file:line: ..." of another error.
std::string WhySkipped(const absl::Status& status);

// Of Llama and what came after it: gated, with rotary positions and RMS norms, and never trained without fused
// attention (LLaMA's paper has xformers' of early 2023).
bool IsModernFamily(absl::string_view model_name);

// The tokens of the fullest expert over the mean, where nobody says. No token is dropped and no slot padded, and tokens
// are spread evenly: by force in published runs of NeMo and Megatron-Bridge (`moe_router_force_load_balancing`; the
// note under their tables) and of AutoModel.
inline constexpr double kEvenRouting = 1;

// How much more than the mean the fullest of 64 experts gets where a trained router chooses: 0.72 and 0.52 with an
// auxiliary loss, of 1 and 3 billion parameters, and 0.04 with biases (Wang et al. 2024, arXiv 2408.15664, table 2).
inline constexpr int64_t kMeasuredExperts = 64;
inline constexpr double kFullestByLoss = (0.72 + 0.52) / 2, kFullestByBias = 0.04;
// Fine-tuned, what experts get deviates by this share of their mean: Moonlight on Tulu-3, whose biases are updated by
// 0.0001 (NeMo AutoModel's examples/convergence/tulu3/models/moonlight-16b/README.md).
inline constexpr double kTunedDeviation = 0.53;

// What keeps experts even.
enum class Balance : uint8_t { kLoss, kBias, kTuned };

// The same of the fullest of `ranks` that `experts` are spread over, and 1: loads of experts taken as independent
// draws, of which a rank has the sum of several. 1 where a rank has all.
double NaturalRouting(int64_t experts, int64_t ranks, Balance balance);

// Tokens of a row where the cell is empty.
int64_t DefaultSequence(absl::string_view model_name);

// Tokens of a step where no cell says the batch: GPT-3's for a model of this many parameters.
int64_t DefaultTokens(double parameters);

// Rows of that many tokens, of which each replica has as many, a power of two: so that micro-batches divide them.
int64_t DefaultBatch(double parameters, int64_t sequence, int64_t replicas);

// The multiple of `unit` that is nearest to `rows`, where it is within a twentieth of it; else 0. Sources round.
int64_t NearMultiple(int64_t rows, int64_t unit);

// Parameters of the matrices, in the whole model.
double NumParameters(const DecoderConfig& config);

// `sequence`: tokens of a row. `defaults` gets a line for each cell that was empty.
//
// kUnimplemented: no size and nothing to guess it from. kInvalidArgument: a damaged cell.
absl::StatusOr<DecoderConfig> ReadRowModel(const CsvCells& cells, int64_t sequence, std::vector<std::string>* defaults);

// Lets tokens have experts side by side: of one group, the smallest that holds so many.
void ChooseNeighbours(DecoderConfig* model);

// Of the copies of a token, one for each of its experts, how many would be sent if one went to each of `nodes` nodes
// that has any: a share. `nodes` divides the experts.
double ShareSentOnce(const DecoderConfig& model, int64_t nodes);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_ROW_MODEL_H_
