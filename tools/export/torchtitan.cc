// torchtitan: a function that changes a Trainer.Config of the user's registry, with the fields of August 2026
// (torchtitan/config/configs.py). The optimizer stays the registry's.
#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "ir/status.h"
#include "tools/export/writers.h"

namespace meshwright {
namespace {

// torch.distributed.pipelining's names.
absl::StatusOr<std::string> ScheduleOf(const Recipe& recipe) {
  if (recipe.schedule == Schedule::kZeroBubbleV) return std::string("ZBVZeroBubble");
  if (recipe.schedule == Schedule::kDualPipeV) return std::string("DualPipeV");
  if (recipe.schedule == Schedule::kOneFOneB) return std::string(recipe.chunks > 1 ? "Interleaved1F1B" : "1F1B");
  if (recipe.schedule == Schedule::kGpipe && recipe.chunks == 1) return std::string("GPipe");
  return HasNo("torchtitan", absl::StrCat("schedule ", NameOf(recipe.schedule)), "--schedule=1f1b");
}

// Parts of the pipeline by the names of modules, the embedding in front and the head behind.
constexpr absl::string_view kParts = R"(
def parts_of(layers):
    parts, first = [], 0
    for count in layers:
        parts.append([f"layers.{i}" for i in range(first, first + count)])
        first += count
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "lm_head"]
    return parts

)";

std::string PipelineLines(const Recipe& recipe, const std::string& schedule) {
  if (recipe.pipeline == 1) return "    p.pipeline_parallel_degree = 1\n";
  return absl::StrCat("    p.pipeline_parallel_degree = ", recipe.pipeline, "\n    p.pipeline_parallel_schedule = \"",
                      schedule, "\"\n    p.num_pp_microbatches = ", recipe.microbatches,
                      "\n    p.module_fqns_per_model_part = parts_of([", absl::StrJoin(recipe.layers, ", "), "])\n");
}

// Whether forward and backward passes run as CUDA graphs: it refuses to capture pipelines, and experts whose dispatcher
// waits for the CPU (config/configs.py, `disable_cuda_graphs`).
bool Captures(const Recipe& recipe) { return recipe.pipeline == 1 && recipe.expert == 1; }

}  // namespace

absl::StatusOr<Exported> ToTorchtitan(const Plan& plan) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Recipe recipe, RecipeOf(plan));
  MESHWRIGHT_RETURN_IF_ERROR(RefuseAdapters("torchtitan", recipe));
  Exported out;
  MESHWRIGHT_RETURN_IF_ERROR(CheckCommon("torchtitan", recipe, out.differences));
  if (const int64_t keys = KeyHeads(recipe.model); keys % recipe.tensor != 0) {
    return HasNo("torchtitan", "tensor parallelism above the heads of keys and values",
                 absl::StrCat("--tensor_parallel=", keys));
  }
  if (recipe.training.dtype != DType::kBFloat16 && recipe.training.dtype != DType::kFloat32) {
    return HasNo("torchtitan", absl::StrCat("training in ", NameOf(recipe.training.dtype)), "--precision=bfloat16");
  }
  if (recipe.training.gradient_dtype != DType::kFloat32) {
    out.differences.push_back(
        absl::StrCat("torchtitan reduces gradients in float32, the plan in ", NameOf(recipe.training.gradient_dtype)));
  }
  if (recipe.product_bits() > 0) {
    out.differences.push_back(
        absl::StrCat("products in ", NameOfProducts(recipe), " are a converter of the model's in your registry"));
  }
  if (recipe.training.float8_parameters) {
    if (!recipe.shard_parameters) {
      return HasNo("torchtitan", "weights in float8 but those that FSDP gathers", "--shard_parameters");
    }
    out.differences.push_back("weights are gathered in float8 where that converter has enable_fsdp_float8_all_gather");
  }
  TellOfUnfused("torchtitan", recipe, out.differences);
  std::string schedule;
  if (recipe.pipeline > 1) {
    MESHWRIGHT_ASSIGN_OR_RETURN(schedule, ScheduleOf(recipe));
    // Rounds of as many micro-batches each (torch/distributed/pipelining/schedules.py, ScheduleInterleaved1F1B).
    const int64_t rounds = std::max<int64_t>(1, recipe.microbatches / recipe.pipeline);
    if (schedule == "Interleaved1F1B" && recipe.microbatches % rounds != 0) {
      return HasNo("torchtitan",
                   absl::StrCat("interleaved pipeline of ", recipe.pipeline, " stages with ", recipe.microbatches,
                                " micro-batches, which must be a multiple of the ", rounds, " rounds"),
                   "--virtual_pipeline_stages=1");
    }
    if (schedule == "Interleaved1F1B" && rounds > 1 && recipe.microbatches % recipe.pipeline != 0) {
      out.differences.push_back(absl::StrCat("torchtitan takes micro-batches in groups of ",
                                             recipe.microbatches / rounds, " through the chunks, the plan of ",
                                             recipe.pipeline, ", the last of ",
                                             recipe.pipeline + recipe.microbatches % recipe.pipeline));
    }
  }
  if (recipe.training.optimizer.kind != OpKind::kAdamW) {
    out.differences.push_back("the optimizer stays the registry's, AdamW");
  }
  const bool shard = recipe.shard_optimizer && recipe.data > 1;
  if (shard && !recipe.shard_parameters) {
    out.differences.push_back(
        "the plan splits the optimizer alone; torchtitan splits gradients, too (fully_shard that keeps parameters)");
  }
  if (recipe.recompute == Recompute::kSelective) {
    out.differences.push_back(
        "torchtitan's selective checkpointing keeps products and runs all else again, the plan norms, activations and "
        "the core of attention");
  }
  if (recipe.exchange == ContextExchange::kRing) {
    out.differences.push_back("torchtitan gathers keys and values, the plan hands them round a ring");
  }
  if (recipe.expert > 1 && recipe.tensor > 1) {
    out.differences.push_back(
        "expert parallelism takes ranks of data and tensor parallelism there, of data alone here");
  }
  constexpr absl::string_view kCheckpoint[] = {"None", "SelectiveAC.Config()", "FullAC.Config()", "FullAC.Config()"};
  const absl::string_view checkpoint = kCheckpoint[static_cast<size_t>(recipe.recompute)];
  std::string imports;
  if (checkpoint != "None") {
    imports = absl::StrCat("from torchtitan.distributed.activation_checkpoint import ",
                           checkpoint.substr(0, checkpoint.find('.')), "\n\n");
  }
  const int64_t sequences = recipe.microbatch;
  const std::string function = absl::StrCat("plan_", absl::StrReplaceAll(recipe.name, {{".", "_"}, {"-", "_"}}));
  out.text = absl::StrCat(
      Heading(plan, out.differences),
      "#\n# Give it the configuration of the model in your registry, such as llama3_8b(): `cfg = ", function,
      "(llama3_8b())`.\n# Start ", recipe.devices(), " processes:\n#   torchrun --nnodes ", recipe.cluster.nodes,
      " --nproc-per-node ", recipe.cluster.devices_per_node,
      " --rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:29400 -m torchtitan.train ...\n", imports.empty() ? "" : "\n",
      imports, recipe.pipeline > 1 ? absl::string_view("\n") : absl::string_view(),
      recipe.pipeline > 1 ? kParts : absl::string_view("\n\n"), "\ndef ", function, "(cfg):\n    p = cfg.parallelism\n",
      "    p.data_parallel_replicate_degree = ", shard ? recipe.copies : recipe.data,
      "\n    p.data_parallel_shard_degree = ", shard ? recipe.data / recipe.copies : 1,
      "\n    p.fsdp_reshard_after_forward = \"", recipe.shard_parameters ? "always" : "never",
      "\"\n    p.tensor_parallel_degree = ", recipe.tensor,
      "\n    p.enable_sequence_parallel = ", recipe.sequence_parallel ? "True" : "False",
      "\n    p.context_parallel_degree = ", recipe.context, "\n    p.expert_parallel_degree = ", recipe.expert, "\n",
      PipelineLines(recipe, schedule),
      "    cfg.training.num_tokens_per_microbatch_per_dp_rank = ", sequences * recipe.training.sequence, "  # ",
      sequences, " x ", recipe.training.sequence,
      "\n    cfg.training.num_tokens_per_train_step = ", recipe.batch * recipe.training.sequence, "  # ", recipe.batch,
      " x ", recipe.training.sequence, "\n    cfg.training.max_context_length = ", recipe.training.sequence,
      "\n    cfg.training.mixed_precision_param = \"", NameOf(recipe.training.dtype),
      "\"\n    cfg.training.steps = ", recipe.training.steps, "\n",
      Captures(recipe) ? "" : "    cfg.training.disable_cuda_graphs = True\n",
      "    cfg.activation_checkpoint = ", checkpoint, "\n    return cfg\n");
  return out;
}

// Compiled only where the user's own configuration says so.
TrainerWords WordsOfTorchtitan(const Recipe& recipe) {
  TrainerWords words;
  words.other_opts = "torchtitan, gradients in float32";  // TrainingConfig::mixed_precision_reduce has no other value
  // It captures forward and backward passes unless told otherwise, but for what it refuses to (ToTorchtitan).
  if (Captures(recipe)) absl::StrAppend(&words.other_opts, ", full iteration graphs");
  words.attention = "sdpa";
  const bool shard = recipe.shard_optimizer && recipe.data > 1;
  words.zero_fsdp = shard ? "FSDP2" : recipe.data > 1 ? "DDP" : "none";
  if (shard && !recipe.shard_parameters) absl::StrAppend(&words.zero_fsdp, ", no reshard after forward");
  if (shard && recipe.copies > 1) absl::StrAppend(&words.zero_fsdp, ", HSDP, dp_replicate ", recipe.copies);
  constexpr absl::string_view kRecompute[] = {"none", "selective op", "full", "full"};
  words.recompute = std::string(kRecompute[static_cast<size_t>(recipe.recompute)]);
  words.rings_keys = false;
  words.takes_bucket = false;
  return words;
}

void NarrowToTorchtitan(Problem* problem) { FixBucket(problem); }

}  // namespace meshwright
