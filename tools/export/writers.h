// A plan in the configuration of a trainer that people use.
//
// What the trainer cannot do is an error that says which flag of `plan` avoids it; what it does otherwise than the plan
// is a difference, which stands in the file and is told on standard error. Option names are those of Megatron-LM's and
// nanotron's argument lists, torchtitan's config/ and DeepSpeed's JSON documentation, as of November 2026.
//
// Errors: kUnimplemented, ending the command as one that asks for what cannot be had. Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_EXPORT_WRITERS_H_
#define MESHWRIGHT_TOOLS_EXPORT_WRITERS_H_

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "planner/search/problem.h"
#include "tools/export/recipe.h"
#include "tools/plan_file.h"

namespace meshwright {

struct Exported {
  std::string text;
  std::vector<std::string> differences;  // a sentence each
};

absl::StatusOr<Exported> ToMegatron(const Plan& plan);    // a bash script around torchrun and pretrain_gpt.py
absl::StatusOr<Exported> ToNemo(const Plan& plan);        // YAML over a recipe of Megatron-Bridge
absl::StatusOr<Exported> ToTorchtitan(const Plan& plan);  // a Python function that changes a Trainer.Config
absl::StatusOr<Exported> ToNanotron(const Plan& plan);    // sections of its YAML file
absl::StatusOr<Exported> ToDeepSpeed(const Plan& plan);   // ds_config.json
absl::StatusOr<Exported> ToMindSpore(const Plan& plan);   // Python: the context, and a strategy for each operator

// What a row of docs/tables.md would say of the trainer's run with that configuration, as of the date above: by these
// words `validate` knows what frameworks do besides a program, and so does a prediction of the plan as the trainer runs
// it (trainer_prediction.h).
struct TrainerWords {
  std::string zero_fsdp, recompute, attention, other_opts;
  bool rings_keys = true;     // context parallelism as the plan has it, else keys are gathered
  bool pads_experts = false;  // to the plan's capacity, else tokens are spread evenly and none is padded
  bool deals_layers = true;   // out to stages as the plan does, else by its own rule
  bool takes_bucket = true;   // of gradients, the plan's
};
TrainerWords WordsOfMegatron(const Recipe& recipe);
TrainerWords WordsOfNemo(const Recipe& recipe);  // its recipes, and those of Megatron-Bridge, on Megatron-Core
TrainerWords WordsOfTorchtitan(const Recipe& recipe);
TrainerWords WordsOfNanotron(const Recipe& recipe);
TrainerWords WordsOfDeepSpeed(const Recipe& recipe);

// Problem::narrow: what a writer would refuse, or does not write, is not searched.
void NarrowToNemo(Problem* problem);
void NarrowToTorchtitan(Problem* problem);
void NarrowToNanotron(Problem* problem);
void NarrowToDeepSpeed(Problem* problem);

struct Trainer {
  absl::string_view name;   // of --to and --trainer
  absl::string_view title;  // "Megatron-LM", as logs of it are called, too (tools/step_log.h)
  // Whose errors are also what it cannot run.
  absl::StatusOr<Exported> (*write)(const Plan& plan);
  TrainerWords (*words)(const Recipe& recipe);  // null: no run of it is known
  void (*narrow)(Problem* problem);             // null: it has all choices of a search
};
inline constexpr std::array kTrainers = {
    Trainer{"megatron", "Megatron-LM", ToMegatron, WordsOfMegatron, nullptr},
    Trainer{"nemo", "NeMo", ToNemo, WordsOfNemo, NarrowToNemo},
    Trainer{"torchtitan", "torchtitan", ToTorchtitan, WordsOfTorchtitan, NarrowToTorchtitan},
    Trainer{"nanotron", "nanotron", ToNanotron, WordsOfNanotron, NarrowToNanotron},
    Trainer{"deepspeed", "DeepSpeed", ToDeepSpeed, WordsOfDeepSpeed, NarrowToDeepSpeed},
    Trainer{"mindspore", "MindSpore", ToMindSpore, nullptr, nullptr},
};

// For the model that is trained through adapters (PEFT's words); "" for others. kUnimplemented: of products whose
// adapters no published run has, so that nothing is known of them.
absl::StatusOr<std::string> AdapterWords(const Recipe& recipe);

// "gradients in bf16" or "in float32", for TrainerWords::other_opts.
std::string GradientWords(const Recipe& recipe);

// Whose buckets are the trainer's own, of a layer or more: one of all that a search has (planner/search/space.cc).
inline void FixBucket(Problem* problem) {
  if (!problem->bucket.has_value()) problem->bucket = MiB(512);
}

// --- for the writers -------------------------------------------------------------------------------------------------

// "--num-layers" and "32", "--swiglu" and "".
using MegatronOptionList = std::vector<std::pair<std::string, std::string>>;
// Whether options alone say what a layer is, or stand over a recipe of the same model, whose layers may be others than
// options make; differences tell of these.
enum class LayersFrom { kOptions, kRecipe };
// Checks what Megatron-Core can do, and says it in options of Megatron-LM.
absl::StatusOr<MegatronOptionList> MegatronOptionsOf(const Plan& plan, const Recipe& recipe, LayersFrom layers,
                                                     std::vector<std::string>& differences);

// Lines of a comment, each behind "# ": which plan this is, what is predicted, what differs.
std::string Heading(const Plan& plan, const std::vector<std::string>& differences);

// kUnimplemented: "nanotron has no <what>; plan with <flag>".
absl::Status HasNo(absl::string_view trainer, absl::string_view what, absl::string_view flag);

// Of keys and values, what divides those of all layers.
int64_t KeyHeads(const DecoderConfig& model);

// What all of them ask: heads and sequences that divide. Differences are added.
absl::Status CheckCommon(absl::string_view trainer, const Recipe& recipe, std::vector<std::string>& differences);

// kUnimplemented where the model is trained through adapters.
absl::Status RefuseAdapters(absl::string_view trainer, const Recipe& recipe);

// Whether the loss of a float16 run has a scale that stays as it is, 1 where it is not scaled at all: trainers scale it
// dynamically where they are told nothing.
bool IsConstantScale(const Training& training);
// Of a dynamic one, the factors that trainers do not take: they double and halve it.
void TellOfScaling(absl::string_view trainer, const Training& training, std::vector<std::string>& differences);

// Of a trainer whose file does not say how attention is computed.
void TellOfUnfused(absl::string_view trainer, const Recipe& recipe, std::vector<std::string>& differences);

// What the model has in its config.json and not in the plan: for writers of the model itself.
void AddLeftOut(const Plan& plan, std::vector<std::string>& differences);

// kUnimplemented unless the decoder is built as Llama is: gates, RMS norms, rotary positions, no biases.
absl::Status CheckLlama(absl::string_view trainer, const Recipe& recipe);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_EXPORT_WRITERS_H_
