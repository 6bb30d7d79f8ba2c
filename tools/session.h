// From files and flags to a planning problem: what plan, run and whatif have in common.
//
//   model file ──┐                       ┌── Problem: graph of a micro-batch, batch, optimizer, what is fixed
//   flags ───────┴── OpenModel ─ Session ┴── what a plan file must remember: text of the file, changes, cluster
//
// Ownership: values; a Session's problem shares the model file with it. Thread safety: const access from many threads.
#ifndef MESHWRIGHT_TOOLS_SESSION_H_
#define MESHWRIGHT_TOOLS_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/dtype.h"
#include "models/model_file.h"
#include "planner/search/problem.h"
#include "tools/flags.h"

namespace meshwright {

// What flags change about the model itself. The rest of the flags fixes choices of the search.
struct ModelChanges {
  std::optional<DType> precision;    // computing, parameters, gradients
  std::optional<int64_t> batch;      // decoders: sequences of a step
  std::optional<int64_t> sequence;   // decoders: tokens of each
  std::optional<int64_t> stages;     // operator form: operators in order, as evenly as possible, whatever the file says
  std::optional<double> tokens;      // of the whole run
  std::optional<int64_t> lora_rank;  // decoders: adapters train alone, of all products unless the file says which
  std::optional<bool> float8_parameters;  // decoders
  friend bool operator==(const ModelChanges&, const ModelChanges&) = default;
};

// A file that was read: its path, for messages and for what lies beside it, and its text. Of a model file that names a
// Hugging Face config.json, the text of that, too.
struct SourceFile {
  std::string path, text, config = {};
};
// "-" is the standard input.
absl::StatusOr<SourceFile> ReadSource(const std::string& path);
// The same for a model: of a Hugging Face config.json the model file around it (models/hugging_face.h), with --batch
// and --sequence; `path` may be the folder in which it lies. kUsage where one of them is missing.
absl::StatusOr<SourceFile> ReadModelSource(const std::string& path, const Flags& flags);
// --batch, sequences of a step: what users have in tokens ("4M") is an error that says how many sequences they are.
absl::StatusOr<std::optional<int64_t>> BatchFrom(const Flags& flags);
// Whether the text is a plan rather than a model file: its top level has a key `schema`.
bool IsPlan(absl::string_view text);

struct Session {
  SourceFile source;                      // the model file
  std::shared_ptr<const ModelFile> file;  // with `changes`
  ModelChanges changes;
  Problem problem;
  int64_t idle_devices = 0;          // of those that the user has, beside the problem's (tools/idle_devices.h)
  std::vector<std::string> notices;  // what was read, but not as the user may think
};

// Flags that change the model or fix a choice of the search.
const std::vector<FlagSpec>& StrategyFlags();

// A model file and its cluster, with StrategyFlags and ClusterFlags applied. Where `cluster` is given it counts instead
// of the file's, and cluster flags are not looked at.
// Errors: kInvalidArgument with file, line and column, or usage errors that name the flag.
absl::StatusOr<Session> OpenModel(const SourceFile& source, const Flags& flags,
                                  std::optional<Cluster> cluster = std::nullopt);

// The same with changes that were written down in a plan; the user's choices are those of the file alone.
absl::StatusOr<Session> ReopenModel(const SourceFile& source, const ModelChanges& changes, Cluster cluster);

// "1,536 x 2,048 tokens" or "16 rows": what one step trains on.
std::string ShowBatch(const Problem& problem);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_SESSION_H_
