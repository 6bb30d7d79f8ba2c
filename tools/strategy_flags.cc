// The flags of all commands that plan, in the order in which --help has them.
#include <string>
#include <vector>

#include "tools/session.h"

namespace meshwright {

static std::vector<FlagSpec> MakeStrategyFlags() {
  const std::vector<FlagSpec> model = {
      {"precision", "TYPE", "float32, float64, bfloat16, float16: instead of the file's, gradients included",
       "dtype fp8 bf16 fp16"},
      {"parameters", "TYPE", "type in which weights of layers lie and are gathered: bfloat16 (as they are), float8",
       "fp8_param_gather fp8_param float8_parameters"},
      {"batch", "N", "sequences of a step, of a decoder", "global_batch global_batch_size batch_size gbs"},
      {"sequence", "N", "tokens of a sequence, of a decoder", "seq seq_len seq_length context_length"},
      {"lora_rank", "N", "train adapters of that rank beside frozen weights (LoRA), of a decoder",
       "lora lora_r lora_dim"},
  };
  const std::vector<FlagSpec> parallelism = {
      {"data_parallel", "N", "ranks that share the batch", "dp dp_size"},
      {"tensor_parallel", "N", "ranks that share each layer's products", "tp tp_size tensor_model_parallel_size"},
      {"expert_parallel", "N", "data-parallel ranks that share the experts", "ep ep_size expert_model_parallel_size"},
      {"dispatcher", "WAY", "of tokens to experts: all_to_all, per_node, per_rank; default: the fastest"},
      {"spread_experts", "", "over tensor-parallel ranks, each expert on one, or --nospread_experts"},
      {"context_parallel", "N", "ranks that share every sequence, through attention too",
       "cp cp_size context_parallel_size"},
      {"context_exchange", "WAY", "how they come by all keys and values: all_gather or ring; default: the faster"},
      {"stages", "N", "stages of the pipeline",
       "pp pp_size pipeline_parallel pipeline_model_parallel_size pipeline_stages"},
      {"max_data_parallel", "N", "the most that the search may choose"},
      {"max_tensor_parallel", "N", "the same of that degree", "max_tp"},
      {"max_expert_parallel", "N", "the same of that degree", "max_ep"},
      {"max_context_parallel", "N", "the same of that degree", "max_cp"},
      {"max_stages", "N", "the same of stages", "max_pp max_pipeline_stages max_pipeline_parallel"},
      {"microbatches", "N", "micro-batches of a step", "gas gradient_accumulation_steps num_microbatches"},
      {"microbatch", "N", "rows of one micro-batch on one data-parallel rank", "mbs micro_batch micro_batch_size"},
      {"sequence_parallel", "", "split norms and residuals over tensor-parallel ranks, or --nosequence_parallel"},
      {"recompute", "WHAT", "none, selective, full",
       "ac activation_checkpointing gradient_checkpointing recompute_granularity"},
      {"parallel_optimizer", "", "split optimizer state over replicas, or --noparallel_optimizer",
       "zero1 distributed_optimizer use_distributed_optimizer"},
      {"shard_parameters", "", "split parameters and gradients, too (ZeRO-3, FSDP), or --noshard_parameters; decoders",
       "zero zero_stage zero2 zero3 fsdp"},
      {"optimizer_weight_shard_size", "N", "over groups of so many neighbouring replicas each (HSDP); -1: over all",
       "hsdp data_parallel_shard_degree dp_shard mics_shard_size"},
      {"parallel_optimizer_threshold", "SIZE", "smaller parameters stay whole, e.g. 64KiB"},
      {"bucket", "SIZE", "of fused gradients, e.g. 64MiB; 0B: none are fused", "bucket_size"},
      {"schedule", "NAME", "gpipe, 1f1b, zero_bubble_h1, zero_bubble_v, dualpipe_v, dualpipe; any: the fastest",
       "pipeline_schedule"},
      {"virtual_pipeline_stages", "N", "chunks of a stage's layers: an interleaved pipeline, of a decoder",
       "vp vpp interleave"},
      {"gradients_mean", "", "divide gradients by the number of replicas"},
      {"pipeline_loss", "WHAT", "sum, mean: of the micro-batch losses, as it is reported"},
  };
  const std::vector<FlagSpec> networks = {
      {"mode", "MODE", "stand_alone, data_parallel, hybrid_parallel, semi_auto_parallel, auto_parallel"},
      {"search_mode", "MODE", "dynamic_programming, recursive_programming, sharding_propagation"},
      {"ignore_shards", "", "as if no operator had a `shard`"},
  };
  std::vector<FlagSpec> all;
  const auto add = [&](const std::vector<FlagSpec>& flags, const std::string& section) {
    for (const FlagSpec& flag : flags) all.push_back({flag.name, flag.value, flag.help, flag.others_say, section});
  };
  add(model, "The model");
  add(parallelism, "How it is split: what is given here is fixed, the rest is searched");
  add(networks, "Networks of operators");
  return all;
}

const std::vector<FlagSpec>& StrategyFlags() {
  static const auto* const kSpecs = new std::vector<FlagSpec>(MakeStrategyFlags());
  return *kSpecs;
}

}  // namespace meshwright
