// A model file: the one YAML file that is enough to plan. What to train, on what, and how the user wants it split.
//
//   name: gpt2_124m
//   architecture: {decoder: {hidden: 768, layers: 12, heads: 12, vocab: 50257, ...}}   # models/decoder.h
//   training: {batch: 512, sequence: 1024, ...}                                        # models/training.h
//   parallel: {pipeline_stages: 2, ...}                                                # models/parallel.h
//   cluster: h100x8                                                                    # costmodel/library.h reads it
//   context: {device_target: GPU, max_device_memory: 28GB, save_graphs: 2, save_graphs_path: graphs}
//   callbacks: {model_checkpoint: {directory: "device/{rank_id}"}}                      # models/callbacks.h
//
// `cells: {head: {comm_fusion: 2}, "": {comm_fusion: 3}}` says something of all parameters below a cell: those named
// head, head.* and head/*; all of the model's for "". Of several cells the last one in the file holds.
// `cells: {block1: {recompute: true}}` says something of all operators below, named likewise (S13.2).
//
// Instead of `architecture`: `inputs`, `parameters` and `operators` (models/operators.h), or `huggingface: config.json`
// (models/hugging_face.h), a path within the folder of the model file.
//
// Errors: kInvalidArgument as `file:line:column: field.path: found X, wanted Y; remedy`; kFailedPrecondition for knobs
// that exclude each other; kUnimplemented for what a Hugging Face file asks and we do not model; kNotFound for files.
// Thread safety: plain values; functions are pure but for reading files.
#ifndef MESHWRIGHT_MODELS_MODEL_FILE_H_
#define MESHWRIGHT_MODELS_MODEL_FILE_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/document.h"
#include "ir/graph.h"
#include "ir/quantities.h"
#include "models/callbacks.h"
#include "models/decoder.h"
#include "models/operators.h"
#include "models/parallel.h"
#include "models/training.h"

namespace meshwright {

enum class DeviceTarget : uint8_t { kCpu, kGpu };
inline constexpr absl::string_view kDeviceTargetNames[] = {"CPU", "GPU"};

// What concerns the process that runs the plan (S1.8).
struct Context {
  bool graph_mode = true;                     // PYNATIVE_MODE: no whole graph, so no planning
  std::optional<DeviceTarget> device_target;  // not set: a GPU where there is one
  std::optional<Bytes> max_device_memory;     // planner and executor stay below it
  // S16.9. 0: none; 1: what the planner was given and what each rank runs; 2: the same, and both in our own notation;
  // 3: drawings too.
  int64_t save_graphs = 0;
  std::string save_graphs_path = ".";
};

// The knobs of the section `context:` (S1.8), with their defaults as a file spells them.
struct ProcessKnob {
  absl::string_view name, fallback;
};
inline constexpr std::array kProcessKnobs = {
    ProcessKnob{"mode", "GRAPH_MODE"},   ProcessKnob{"device_target", "None"}, ProcessKnob{"max_device_memory", "None"},
    ProcessKnob{"save_graphs", "false"}, ProcessKnob{"save_graphs_path", "."},
};
// Reads the section; a missing one has the defaults of Context.
absl::StatusOr<Context> ReadContext(const NodeRef& in);

struct ModelFile {
  std::string name;
  std::variant<OperatorModel, DecoderConfig> model;
  Training training;
  Parallel parallel;
  Context context;
  Callbacks callbacks;
  std::string config;                 // the text of the file that `huggingface:` names
  std::string config_path;            // of that file
  std::vector<std::string> left_out;  // of what it holds, or taken for something near; in `notices`, too
  std::vector<std::string> notices;   // what was read, but not as its author may think
  Document document;                  // the file itself

  // The `cluster:` section, which is not read here; missing where the file has none.
  NodeRef cluster() const { return document.root()["cluster"]; }
  // Whether the author splits the program (models/by_hand.h).
  bool by_hand() const {
    const OperatorModel* const operators = std::get_if<OperatorModel>(&model);
    return operators != nullptr && operators->by_hand();
  }
  bool is_decoder() const { return std::holds_alternative<DecoderConfig>(model); }
};

// Checks the whole file, and that the graph of a whole step can be built (but for one that is split by hand, whose
// shapes depend on the ranks). A `config` that is not empty is what the file of `huggingface:` holds, which then is not
// read. A `sequence` of more than 0 tokens takes the place of the file's, of a decoder, and so do the flags.
absl::StatusOr<ModelFile> ParseModelFile(absl::string_view text, absl::string_view file_name,
                                         absl::string_view config = {}, int64_t sequence = 0,
                                         const ParallelFlags& flags = {});

// Per parameter, its fusion id where that is not 1 (S10.7): comm_fusion of the parameter, then of the cells in order.
// And that of each collective that the author wrote and gave one (S10.8). kInvalidArgument, at the line: a cell that
// has no parameter.
absl::StatusOr<std::map<std::string, int64_t>> FusionIds(const ModelFile& file);

// The operators that backward computes again, by their names in the file's graph (S13.1, S13.2): of cells in order,
// those below but for the ones whose values leave the cell; what an operator says itself holds. `graph` is the file's.
// kInvalidArgument, at the line: a cell that has no operator. E-STATE: cells of a decoder.
absl::StatusOr<std::set<std::string>> RecomputedOps(const ModelFile& file, const Graph& graph);

// The forward graph of one micro-batch of `rows` rows, with its loss: the reduction of training.loss_reduction over
// these rows. kInvalidArgument unless 1 <= rows <= training.batch. A program that its author splits by hand is that of
// `ranks` ranks, and may have something to warn of; E-STATE in a mode in which the planner splits (S1.5).
absl::StatusOr<Graph> BuildGraph(const ModelFile& file, int64_t rows, int64_t ranks = 1,
                                 std::vector<std::string>* warnings = nullptr);

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_MODEL_FILE_H_
