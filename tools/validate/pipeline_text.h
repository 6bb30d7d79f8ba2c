// What the column other_opts says of a pipeline: its schedule, and how layers are dealt out to stages.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_PIPELINE_TEXT_H_
#define MESHWRIGHT_TOOLS_VALIDATE_PIPELINE_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ir/strategy.h"

namespace meshwright {

struct PipelineText {
  Schedule schedule = Schedule::kOneFOneB;
  std::string taken_for_another;  // the schedule's name where `schedule` only comes near to it, or it is not known
  // Embedding and loss count as a layer each: "the first and the last stage have one layer less", "reduced by one layer
  // each" (Llama 3 herd of models, section 3.3.2),
  // `account_for_embedding_in_pipeline_split` with `account_for_loss_in_pipeline_split` (Megatron-Core,
  // transformer_config.py), `allow-padding-num-layers` (sail-sg/zero-bubble-pipeline-parallelism, README).
  bool ends_count = false;
  bool balanced = false;  // "layers redistributed to balance the output layer"
  // Of each part, from the first to the last, where a layout is written out as for Megatron-Core's
  // `pipeline_model_parallel_layout`: "layout et*9|t*8|t*8|t*7l", "layout et|(tt|)*3ttl"; and its layers that predict
  // further tokens, "m"; or "2 MTP layers".
  std::vector<int64_t> layers;
  int64_t further = 0;
};

// Schedules: "1F1B", "interleaved", "GPipe"; "ZB-H1", and "ZB-1p", which is searched within the same memory and idles
// as long by its authors' count; "ZB-V" (Qi et al., Zero Bubble Pipeline Parallelism, 2023, sections 2, 3 and 6, table
// 5). "ZB-2p" and "ZB-H2" have as many micro-batches again in flight as ZB-H1, in place of which they are taken.
// "V-Half" idles half of what 1F1B does and keeps half as much (Qi et al., Pipeline Parallelism with Controllable
// Memory, 2024): nearer to ZB-V, which has two chunks a stage, too. DualPipe idles about as long as ZB-1p (DeepSeek-V3
// Technical Report, table 2: 14 passes for 15 on 16 stages, with F, B and W of one length). Another word behind
// "schedule" is taken for 1f1b. `options`: in lower case.
PipelineText ReadPipelineText(absl::string_view options);

// Layers of each part of a pipeline whose ends count as a layer: every part as many, but for the first and the last
// one, which have one less, and may have none. Empty if that does not come out even. `parts` >= 2.
std::vector<int64_t> LayersWithEnds(int64_t layers, int64_t parts);

// Layers of each stage so that the slowest is as fast as may be, where the last one has the loss too, which costs as
// much as `head` layers and may leave it none (Yeung et al., Balancing Pipeline Parallelism with Vocabulary
// Parallelism, 2024, figure 3). What does not come out even goes to the stages behind, which keep fewer micro-batches.
// `stages` >= 2.
std::vector<int64_t> LayersBesideHead(int64_t layers, int64_t stages, double head);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_PIPELINE_TEXT_H_
