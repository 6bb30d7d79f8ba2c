#include "executor/checkpoint.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "executor/narrow_floats.h"
#include "ir/document.h"
#include "ir/error_kind.h"
#include "ir/files.h"
#include "ir/program_text.h"
#include "ir/status.h"
#include "ir/temporary_file.h"
#include "ir/text.h"
#include "nlohmann/json.hpp"

namespace meshwright {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kRankField = "{rank_id}";
constexpr size_t kLargestFile = size_t{1} << 40;
constexpr int64_t kMostRanks = int64_t{1} << 20;

std::string ListText(const Shape& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

// {"w": {"shape": [32, 16], "begin": [8, 0], "layout": "{x2.x1 | -}"}}
std::string PlacesText(const std::vector<StatePiece>& pieces) {
  return absl::StrCat(
      "{",
      absl::StrJoin(pieces, ", ",
                    [](std::string* out, const StatePiece& piece) {
                      absl::StrAppend(out, nlohmann::json(piece.name).dump(), ": {\"shape\": ", ListText(piece.global),
                                      ", \"begin\": ", ListText(piece.begin), ", \"layout\": \"", piece.layout, "\"}");
                    }),
      "}");
}

absl::StatusOr<Shape> ReadShape(const NodeRef& in) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<int64_t> extents, in.AsInts(0, int64_t{1} << 48));
  return Shape(extents.begin(), extents.end());
}

absl::Status ReadPlace(const NodeRef& in, StatePiece& piece) {
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys({"shape", "begin", "layout"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(piece.global, ReadShape(in["shape"]));
  MESHWRIGHT_ASSIGN_OR_RETURN(piece.begin, ReadShape(in["begin"]));
  MESHWRIGHT_ASSIGN_OR_RETURN(piece.layout, in["layout"].AsStringOr(""));
  const Shape& own = piece.tensor.shape;
  bool inside = piece.global.size() == own.size() && piece.begin.size() == own.size();
  for (size_t d = 0; inside && d < own.size(); ++d) {
    inside = own[d] <= piece.global[d] && piece.begin[d] <= piece.global[d] - own[d];
  }
  if (inside) return absl::OkStatus();
  return in.Error(absl::StrCat("a piece ", ToText(own), " at ", ToText(piece.begin), " of ", ToText(piece.global)),
                  "a piece inside its tensor");
}

absl::StatusOr<int64_t> Number(const TensorFile& file, const std::string& key, int64_t fallback, int64_t min,
                               absl::string_view path) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end()) return fallback;
  const absl::StatusOr<int64_t> number = ParseInt(found->second, min, int64_t{1} << 48);
  if (!number.ok()) return ValueError(path, ": __metadata__.", key, ": ", number.status().message());
  return number;
}

absl::StatusOr<Checkpoint> FromTensorFile(TensorFile file, absl::string_view path) {
  Checkpoint checkpoint;
  MESHWRIGHT_ASSIGN_OR_RETURN(checkpoint.ranks, Number(file, "ranks", 1, 1, path));
  MESHWRIGHT_ASSIGN_OR_RETURN(checkpoint.rank, Number(file, "rank", 0, 0, path));
  if (checkpoint.ranks > kMostRanks || checkpoint.rank >= checkpoint.ranks) {
    return ValueError(path, ": __metadata__: found rank ", checkpoint.rank, " of ", checkpoint.ranks,
                      ", wanted a rank below their number");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(checkpoint.epoch, Number(file, "epoch", 1, 1, path));
  MESHWRIGHT_ASSIGN_OR_RETURN(checkpoint.step, Number(file, "step", 1, 1, path));
  MESHWRIGHT_ASSIGN_OR_RETURN(checkpoint.steps_done, Number(file, "steps_done", 0, 0, path));
  checkpoint.mesh = file.metadata["mesh"];
  for (auto& [name, tensor] : file.tensors) {
    StatePiece& piece = checkpoint.pieces.emplace_back();
    piece.name = name;
    piece.global = tensor.shape;
    piece.begin = Shape(tensor.shape.size(), 0);
    piece.tensor = std::move(tensor);
  }
  const auto places = file.metadata.find("pieces");
  if (places == file.metadata.end()) return checkpoint;
  MESHWRIGHT_ASSIGN_OR_RETURN(const Document document,
                              ParseDocument(places->second, absl::StrCat(path, " __metadata__.pieces")));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> items, document.root().AsMap());
  std::map<absl::string_view, const NodeRef*> by_name;
  for (const NodeRef& item : items) by_name[item.key()] = &item;
  for (StatePiece& piece : checkpoint.pieces) {
    const auto place = by_name.find(piece.name);
    if (place == by_name.end()) {
      return ValueError(path, ": __metadata__.pieces lacks the tensor ", QuoteForMessage(piece.name));
    }
    MESHWRIGHT_RETURN_IF_ERROR(ReadPlace(*place->second, piece));
  }
  return checkpoint;
}

// Calls f(first element of the row in the piece, in the whole, length) for every row of a piece of a tensor. Stops at
// the first error.
template <class F>
absl::Status ForEachRow(const Shape& shape, const Shape& global, const Shape& begin, const F& f) {
  const size_t dims = shape.size();
  const int64_t row = dims == 0 ? 1 : shape.back();
  Shape at(dims, 0);
  for (int64_t i = 0, n = NumElements(shape); i < n; i += row) {
    int64_t element = 0;
    for (size_t d = 0; d < dims; ++d) element = element * global[d] + begin[d] + at[d];
    MESHWRIGHT_RETURN_IF_ERROR(f(i, element, row));
    for (size_t d = dims; d-- > 1;) {
      if (++at[d - 1] < shape[d - 1]) break;
      at[d - 1] = 0;
    }
  }
  return absl::OkStatus();
}

// A tensor that is being put together.
struct Growing {
  StoredTensor tensor;
  std::vector<int32_t> source;  // per element: the checkpoint that it came from, -1: none yet
};

absl::Status Add(const StatePiece& piece, size_t number, absl::Span<const std::string> where, Growing& whole) {
  if (whole.source.empty() && NumElements(piece.global) > 0) {
    if (NumElements(piece.global) > static_cast<int64_t>(kLargestFile)) {
      return ValueError(where[number], ": ", QuoteForMessage(piece.name), " is too large: ", ToText(piece.global));
    }
    whole.tensor.dtype = piece.tensor.dtype;
    whole.tensor.shape = piece.global;
    whole.source.assign(static_cast<size_t>(NumElements(piece.global)), -1);
    whole.tensor.bytes.resize(whole.source.size() * static_cast<size_t>(SizeOf(piece.tensor.dtype).raw()));
  }
  if (whole.tensor.shape != piece.global || whole.tensor.dtype != piece.tensor.dtype) {
    return ValueError(where[number], ": ", QuoteForMessage(piece.name), " is part of ", ToText(piece.global), " ",
                      NameOf(piece.tensor.dtype), ", elsewhere of ", ToText(whole.tensor.shape), " ",
                      NameOf(whole.tensor.dtype));
  }
  const auto width = static_cast<size_t>(SizeOf(piece.tensor.dtype).raw());
  return ForEachRow(piece.tensor.shape, piece.global, piece.begin,
                    [&](int64_t from, int64_t to, int64_t length) -> absl::Status {
                      for (int64_t i = 0; i < length; ++i) {
                        const char* const own = piece.tensor.bytes.data() + static_cast<size_t>(from + i) * width;
                        char* const there = whole.tensor.bytes.data() + static_cast<size_t>(to + i) * width;
                        int32_t& source = whole.source[static_cast<size_t>(to + i)];
                        if (source < 0) {
                          std::memcpy(there, own, width);
                          source = static_cast<int32_t>(number);
                        } else if (std::memcmp(there, own, width) != 0) {
                          return ValueError(QuoteForMessage(piece.name), " differs in element ", to + i, " between ",
                                            where[static_cast<size_t>(source)], " and ", where[number],
                                            ", which hold the same part of it");
                        }
                      }
                      return absl::OkStatus();
                    });
}

// An element of a 16-bit floating type.
template <DType kType>
class Narrow {
 public:
  Narrow() = default;
  explicit Narrow(float value) : bits_(ToNarrow(kType, value)) {}
  operator float() const { return FromNarrow(kType, bits_); }

 private:
  uint16_t bits_ = 0;
};
using Float16 = Narrow<DType::kFloat16>;
using BFloat16 = Narrow<DType::kBFloat16>;

template <class To, class From>
void Convert(const StoredTensor& whole, const TensorView& to, int64_t from, int64_t place, int64_t length) {
  for (int64_t i = 0; i < length; ++i) {
    From value;
    std::memcpy(&value, whole.bytes.data() + static_cast<size_t>(from + i) * sizeof(From), sizeof(From));
    to.as<To>()[place + i] = static_cast<To>(value);
  }
}

template <class To>
absl::Status ConvertTo(absl::string_view name, const StoredTensor& whole, const TensorView& to) {
  return ForEachRow(to.shape, to.global, to.begin, [&](int64_t place, int64_t from, int64_t length) -> absl::Status {
    switch (whole.dtype) {
      case DType::kFloat64:
        Convert<To, double>(whole, to, from, place, length);
        return absl::OkStatus();
      case DType::kFloat32:
      case DType::kTFloat32:
        Convert<To, float>(whole, to, from, place, length);
        return absl::OkStatus();
      case DType::kInt32:
        Convert<To, int32_t>(whole, to, from, place, length);
        return absl::OkStatus();
      case DType::kFloat16:
        Convert<To, Float16>(whole, to, from, place, length);
        return absl::OkStatus();
      case DType::kBFloat16:
        Convert<To, BFloat16>(whole, to, from, place, length);
        return absl::OkStatus();
      case DType::kFloat8:
      case DType::kInt64:
      case DType::kBool:
        break;
    }
    return absl::UnimplementedError(absl::StrCat(QuoteForMessage(name), " is stored as ", NameOf(whole.dtype),
                                                 "; float64, float32, float16, bfloat16, int32 are read"));
  });
}

// "w@m" is "w" and "@m".
absl::string_view BaseOf(absl::string_view name) { return name.substr(0, name.find('@')); }

// What follows the base; which chunk of a stage a buffer is in (an interleaved pipeline's "w@chunk1@m") is left out,
// and which piece of the layers, where a run of them is cut ("w@cut2@m").
absl::string_view EndingOf(absl::string_view name) {
  absl::string_view ending = name.substr(BaseOf(name).size());
  for (const absl::string_view part : {"@cut", "@chunk"}) {
    if (absl::ConsumePrefix(&ending, part)) ending.remove_prefix(std::min(ending.find('@'), ending.size()));
  }
  return ending;
}

bool IsState(const Buffer& buffer) { return buffer.role == BufferRole::kOptimizerState; }

// Whether the buffer has a rank's rows of a frozen parameter (planner/passes/shard_optimizer.h): the whole one that is
// gathered from them may have room for two layers only.
bool IsOfFrozenRows(const Buffer& buffer) {
  return buffer.role == BufferRole::kParameter && !buffer.trainable && EndingOf(buffer.name) == "@shard";
}

// Whether the buffer's values come from another stage: a shared parameter, one update behind its owner's.
bool IsReceived(BufferId id, const RankClass& c) {
  for (const Block& block : c.blocks) {
    for (const Instruction& instruction : block.instructions) {
      if (!std::holds_alternative<Transfer>(instruction.work)) continue;
      for (const Operand& operand : instruction.writes) {
        if (operand.buffer == id) return true;
      }
    }
  }
  return false;
}

// Layers of the parameter of that name in the whole model.
int64_t LayersOf(const Program& program, absl::string_view base) {
  int64_t layers = 0;
  for (const RankClass& c : program.classes) {
    for (const Buffer& buffer : c.buffers) {
      // Where whole parameters are gathered layer by layer, only masters and rows of frozen ones have all layers.
      const bool parameter = buffer.role == BufferRole::kParameter || buffer.role == BufferRole::kMaster;
      if (!parameter || BaseOf(buffer.name) != base) continue;
      layers = std::max(layers, buffer.first_layer + buffer.layers);
    }
  }
  return layers;
}

std::string NameIn(const Program& program, const Buffer& buffer, absl::string_view ending, int64_t instance) {
  const absl::string_view base = BaseOf(buffer.name);
  std::string name(base);
  if (LayersOf(program, base) > 1) absl::StrAppend(&name, ".", buffer.first_layer + instance / buffer.microbatches);
  return absl::StrCat(name, ending);
}

// CKP-<epoch>_<step>.ckpt.
bool IsCheckpointName(absl::string_view name, absl::string_view prefix) {
  if (!absl::ConsumePrefix(&name, prefix) || !absl::ConsumePrefix(&name, "-") || !absl::ConsumeSuffix(&name, ".ckpt")) {
    return false;
  }
  const std::vector<absl::string_view> numbers = absl::StrSplit(name, '_');
  return numbers.size() == 2 && std::all_of(numbers.begin(), numbers.end(), [](absl::string_view number) {
           return !number.empty() && std::all_of(number.begin(), number.end(), absl::ascii_isdigit);
         });
}

}  // namespace

bool Checkpoint::integrated() const {
  return std::all_of(pieces.begin(), pieces.end(),
                     [](const StatePiece& piece) { return piece.tensor.shape == piece.global; });
}

std::string ToBytes(const Checkpoint& checkpoint) {
  TensorFile file;
  file.metadata = {{"schema", "meshwright/checkpoint/1"},
                   {"rank", absl::StrCat(checkpoint.rank)},
                   {"ranks", absl::StrCat(checkpoint.ranks)},
                   {"epoch", absl::StrCat(checkpoint.epoch)},
                   {"step", absl::StrCat(checkpoint.step)},
                   {"steps_done", absl::StrCat(checkpoint.steps_done)},
                   {"mesh", checkpoint.mesh}};
  if (!checkpoint.integrated()) file.metadata["pieces"] = PlacesText(checkpoint.pieces);
  for (const StatePiece& piece : checkpoint.pieces) file.tensors[piece.name] = piece.tensor;
  return ToBytes(file);
}

absl::StatusOr<Checkpoint> ParseCheckpoint(absl::string_view bytes, absl::string_view path) {
  MESHWRIGHT_ASSIGN_OR_RETURN(TensorFile file, ParseTensorFile(bytes, path));
  absl::StatusOr<Checkpoint> checkpoint = FromTensorFile(std::move(file), path);
  if (!checkpoint.ok()) return WithKind("E-VALUE", checkpoint.status());
  return checkpoint;
}

absl::StatusOr<SavedState> Merge(absl::Span<const Checkpoint> checkpoints, absl::Span<const std::string> where) {
  std::map<std::string, Growing> growing;
  SavedState state;
  for (size_t i = 0; i < checkpoints.size(); ++i) {
    if (i == 0) state.steps_done = checkpoints[i].steps_done;
    if (checkpoints[i].steps_done != state.steps_done) {
      return ValueError(where[i], ": found a checkpoint after ", checkpoints[i].steps_done, " steps, ", where[0],
                        " is one after ", state.steps_done);
    }
    for (const StatePiece& piece : checkpoints[i].pieces) {
      MESHWRIGHT_RETURN_IF_ERROR(Add(piece, i, where, growing[piece.name]));
    }
  }
  for (auto& [name, whole] : growing) {
    const auto missing = std::find(whole.source.begin(), whole.source.end(), -1);
    if (missing != whole.source.end()) {
      return ValueError(QuoteForMessage(name), ": no checkpoint has element ", missing - whole.source.begin(), " of ",
                        ToText(whole.tensor.shape), "; wanted those of all ranks");
    }
    state.tensors[name] = std::move(whole.tensor);
  }
  return state;
}

// Of another kind of file, before it is read whole: /dev/zero has no end. A pipe can be read once.
static absl::Status CheckBegin(const std::string& path) {
  std::error_code error;
  if (fs::is_fifo(path, error)) return absl::OkStatus();
  constexpr size_t kLengthBytes = 8;
  char begin[kLengthBytes + 1];
  std::ifstream file(path, std::ios::binary);
  if (!file.read(begin, sizeof(begin)) || begin[kLengthBytes] == '{') return absl::OkStatus();
  return ValueError(path,
                    ": found no { behind the eight bytes of a length, wanted a safetensors file, as run writes "
                    "with --checkpoint_dir");
}

absl::StatusOr<SavedState> LoadState(const std::string& path) {
  std::vector<Checkpoint> checkpoints;
  std::vector<std::string> where;
  const bool all_ranks = absl::StrContains(path, kRankField);
  for (int64_t rank = 0; rank == 0 || (all_ranks && rank < checkpoints[0].ranks); ++rank) {
    where.push_back(RankPath(path, rank));
    MESHWRIGHT_RETURN_IF_ERROR(CheckBegin(where.back()));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(where.back(), kLargestFile));
    MESHWRIGHT_ASSIGN_OR_RETURN(Checkpoint checkpoint, ParseCheckpoint(bytes, where.back()));
    if (all_ranks && (checkpoint.rank != rank || (rank > 0 && checkpoint.ranks != checkpoints[0].ranks))) {
      return ValueError(where.back(), ": found rank ", checkpoint.rank, " of ", checkpoint.ranks, ", wanted ", rank,
                        " of ", rank > 0 ? checkpoints[0].ranks : checkpoint.ranks);
    }
    if (!all_ranks && !checkpoint.integrated()) {
      return ValueError(path, ": found the pieces of rank ", checkpoint.rank, " of ", checkpoint.ranks,
                        ", wanted whole tensors; give a path with {rank_id} in it, for the files of all ranks");
    }
    checkpoints.push_back(std::move(checkpoint));
  }
  return Merge(checkpoints, where);
}

absl::Status CopyPiece(absl::string_view name, const StoredTensor& whole, const TensorView& to) {
  if (whole.shape != to.global) {
    return ValueError(QuoteForMessage(name), " is stored as ", ToText(whole.shape), ", the program has ",
                      ToText(to.global));
  }
  if (to.dtype == DType::kFloat64) return ConvertTo<double>(name, whole, to);
  if (to.dtype == DType::kFloat32) return ConvertTo<float>(name, whole, to);
  if (to.dtype == DType::kFloat16) return ConvertTo<Float16>(name, whole, to);
  if (to.dtype == DType::kBFloat16) return ConvertTo<BFloat16>(name, whole, to);
  if (to.dtype == DType::kInt32) return ConvertTo<int32_t>(name, whole, to);
  return absl::UnimplementedError(absl::StrCat("no checkpoint is read into ", NameOf(to.dtype)));
}

std::string StateName(const Program& program, size_t rank_class, BufferId id, int64_t instance) {
  const RankClass& c = program.classes[rank_class];
  const Buffer& buffer = c.buffers[id.index()];
  const absl::string_view base = BaseOf(buffer.name), ending = EndingOf(buffer.name);
  switch (buffer.role) {
    case BufferRole::kOptimizerState:
      return NameIn(program, buffer, ending, instance);
    case BufferRole::kMaster:
      return NameIn(program, buffer, "", instance);
    case BufferRole::kParameter: {
      const bool of_rows = IsOfFrozenRows(buffer);
      if ((!ending.empty() && !of_rows) || IsReceived(id, c)) return "";
      const bool elsewhere = std::any_of(c.buffers.begin(), c.buffers.end(), [&](const Buffer& other) {
        const bool holds = other.role == BufferRole::kMaster || (!of_rows && IsOfFrozenRows(other));
        return holds && BaseOf(other.name) == base;
      });
      return elsewhere ? "" : NameIn(program, buffer, "", instance);
    }
    case BufferRole::kGradient:
    case BufferRole::kInput:
    case BufferRole::kActivation:
    case BufferRole::kTemporary:
    case BufferRole::kLoss:
    case BufferRole::kNumRoles:
      break;
  }
  return "";
}

std::string SourceName(const Program& program, const Buffer& buffer, int64_t instance) {
  const absl::string_view ending = IsState(buffer) ? EndingOf(buffer.name) : "";
  return NameIn(program, buffer, ending, instance);
}

absl::StatusOr<std::vector<std::string>> CheckFits(const Program& program, const SavedState& state) {
  std::set<std::string> read, missing_state;
  for (const RankClass& c : program.classes) {
    for (const Buffer& buffer : c.buffers) {
      const bool parameter = buffer.role == BufferRole::kParameter || buffer.role == BufferRole::kMaster;
      if (!parameter && !IsState(buffer)) continue;
      for (int64_t instance = 0; instance < buffer.layers * buffer.microbatches; ++instance) {
        const std::string name = SourceName(program, buffer, instance);
        if (!read.insert(name).second) continue;
        const auto found = state.tensors.find(name);
        if (found == state.tensors.end()) {
          if (parameter) {
            std::vector<absl::string_view> names;
            for (const auto& [there, tensor] : state.tensors) names.push_back(there);
            return absl::NotFoundError(absl::StrCat("the checkpoint lacks the parameter ", QuoteForMessage(name),
                                                    "; it has ", ListNames(names)));
          }
          missing_state.insert(name);
        } else if (found->second.shape != buffer.shape) {
          return ValueError("the checkpoint has ", QuoteForMessage(name), " as ", ToText(found->second.shape),
                            ", the program as ", ToText(buffer.shape));
        }
      }
    }
  }
  std::vector<std::string> notices;
  const auto list = [](const std::set<std::string>& names) {
    return ListNames(std::vector<absl::string_view>(names.begin(), names.end()));
  };
  if (!missing_state.empty()) {
    notices.push_back(absl::StrCat("the checkpoint has no optimizer state ", list(missing_state), "; it starts anew"));
  }
  std::set<std::string> unread;
  for (const auto& [name, tensor] : state.tensors) {
    if (read.count(name) == 0) unread.insert(name);
  }
  if (!unread.empty()) notices.push_back(absl::StrCat("the checkpoint has what nothing reads: ", list(unread)));
  return notices;
}

absl::Status CheckDirectories(absl::Span<const std::string> directories) {
  std::map<std::string, size_t> first;
  for (size_t rank = 0; rank < directories.size(); ++rank) {
    std::error_code error;
    const std::string path = fs::weakly_canonical(fs::absolute(directories[rank]) / "", error).string();
    const auto [it, inserted] = first.emplace(error ? directories[rank] : path, rank);
    if (inserted) continue;
    return StateError("ranks ", it->second, " and ", rank, " would both write checkpoints to ", directories[rank],
                      "; put {rank_id} into the directory's name");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StatePiece>> MergedPieces(const std::vector<std::string>& of_ranks) {
  std::vector<Checkpoint> parts;
  std::vector<std::string> where;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    where.push_back(absl::StrCat("rank ", rank));
    MESHWRIGHT_ASSIGN_OR_RETURN(Checkpoint part, ParseCheckpoint(of_ranks[rank], where.back()));
    parts.push_back(std::move(part));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(SavedState state, Merge(parts, where));
  std::vector<StatePiece> pieces;
  for (auto& [name, tensor] : state.tensors) {
    pieces.push_back({name, tensor.shape, Shape(tensor.shape.size(), 0), "", std::move(tensor)});
  }
  return pieces;
}

std::string RankPath(absl::string_view pattern, int64_t rank) {
  return absl::StrReplaceAll(pattern, {{kRankField, absl::StrCat(rank)}});
}

absl::StatusOr<CheckpointWriter> CheckpointWriter::Open(const CheckpointOptions& options, const Program& program,
                                                        int64_t rank) {
  std::vector<std::string> directories;
  for (int64_t r = 0; r < program.mesh.num_ranks(); ++r) directories.push_back(RankPath(options.directory, r));
  MESHWRIGHT_RETURN_IF_ERROR(CheckDirectories(directories));
  CheckpointWriter writer;
  writer.directory_ = directories[static_cast<size_t>(rank)];
  writer.prefix_ = options.prefix;
  writer.keep_ = static_cast<size_t>(std::max<int64_t>(1, options.keep));
  MESHWRIGHT_RETURN_IF_ERROR(CreateFolders(writer.directory_));
  const std::string meta = absl::StrCat(options.prefix, "-graph.meta");
  std::vector<std::pair<fs::file_time_type, std::string>> there;
  std::error_code error;
  for (fs::directory_iterator it(writer.directory_, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code no_time;
    const fs::file_time_type time = it->last_write_time(no_time);
    if (IsCheckpointName(name, options.prefix)) there.emplace_back(time, name);
    const absl::string_view target = TargetOfTemporary(name);
    if (IsCheckpointName(target, options.prefix) || target == meta) RemoveAbandoned(it->path().string());
  }
  std::sort(there.begin(), there.end());
  for (auto& [time, name] : there) writer.names_.push_back(std::move(name));
  MESHWRIGHT_RETURN_IF_ERROR(WriteWholeFile(absl::StrCat(writer.directory_, "/", meta), ToText(program)));
  return writer;
}

absl::Status CheckpointWriter::Write(const Checkpoint& checkpoint) {
  const std::string name = absl::StrCat(prefix_, "-", checkpoint.epoch, "_", checkpoint.step, ".ckpt");
  MESHWRIGHT_RETURN_IF_ERROR(WriteWholeFile(absl::StrCat(directory_, "/", name), ToBytes(checkpoint)));
  names_.erase(std::remove(names_.begin(), names_.end(), name), names_.end());
  names_.push_back(name);
  return absl::OkStatus();
}

absl::Status CheckpointWriter::RemoveOldest() {
  while (names_.size() > keep_) {
    std::error_code error;
    fs::remove(absl::StrCat(directory_, "/", names_.front()), error);
    if (error) {
      return FileError(absl::StrCat(directory_, "/", names_.front(), ": cannot be removed: ", error.message()));
    }
    names_.erase(names_.begin());
  }
  return absl::OkStatus();
}

}  // namespace meshwright
