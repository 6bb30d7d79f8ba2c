#include "planner/passes/cut_runs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/passes/pipeline_parts.h"

namespace meshwright {
namespace {

// Layers [from, to) of `repeat` runs, of which the first is number `first`.
struct Piece {
  int64_t first = 0, repeat = 1;
  int64_t from = 0, to = 1;
  std::string mark = {};  // what the names of its tensors end with
};
using Pieces = std::vector<std::vector<Piece>>;  // by segment

constexpr absl::string_view kMark = "@cut";

std::string MarkOf(size_t piece) { return piece == 0 ? "" : absl::StrCat(kMark, piece); }

std::vector<Piece> PiecesOf(const Segment& segment, const std::vector<int64_t>& cuts) {
  const int64_t size = segment.layers();
  std::vector<Piece> pieces;
  int64_t uncut = 0;  // the first run that is in no piece yet
  for (size_t i = 0; i < cuts.size();) {
    const int64_t run = cuts[i] / size;
    if (run > uncut) pieces.push_back({uncut, run - uncut, 0, size});
    int64_t from = 0;
    for (; i < cuts.size() && cuts[i] / size == run; ++i) {
      pieces.push_back({run, 1, from, cuts[i] % size});
      from = cuts[i] % size;
    }
    pieces.push_back({run, 1, from, size});
    uncut = run + 1;
  }
  if (uncut < segment.repeat) pieces.push_back({uncut, segment.repeat - uncut, 0, size});
  for (size_t k = 0; k < pieces.size(); ++k) pieces[k].mark = MarkOf(k);
  return pieces;
}

Pieces PiecesOf(const Graph& forward, const std::vector<Cut>& cuts) {
  Pieces pieces;
  size_t next = 0;
  for (size_t s = 0; s < forward.segments.size(); ++s) {
    std::vector<int64_t> within;
    for (; next < cuts.size() && cuts[next].segment == s; ++next) within.push_back(cuts[next].layer);
    pieces.push_back(PiecesOf(forward.segments[s], within));
  }
  return pieces;
}

// Whether a piece's blocks are the other's but for names and the number of runs.
bool AreAlike(const Piece& a, const Piece& b) {
  return a.from == b.from && a.to == b.to && (a.repeat > 1) == (b.repeat > 1);
}

// Writes a graph anew, segment by segment, with each in pieces.
class Cutter {
 public:
  Cutter(const Graph& from, const Pieces& pieces) : from_(from), pieces_(pieces), tensors_(from.tensors.size()) {}

  Graph Run() {
    to_.name = from_.name;
    for (size_t i = 0; i < from_.tensors.size(); ++i) {
      if (!from_.tensors[i].segment.valid()) tensors_[i] = {Copy(TensorId(i), SegmentId(), "")};
    }
    for (size_t s = 0; s < pieces_.size(); ++s) {
      const std::vector<int64_t> layers = LayersOfOps(from_, SegmentId(s));
      AddTensors(SegmentId(s), layers);
      for (size_t k = 0; k < pieces_[s].size(); ++k) {
        AddOps(SegmentId(s), k, layers);
        AddSegment(from_.segments[s], pieces_[s][k], k);
      }
    }
    to_.loss = Outside(from_.loss);
    return std::move(to_);
  }

 private:
  static bool IsIn(int64_t layer, const Piece& piece) { return piece.from <= layer && layer < piece.to; }

  TensorId Copy(TensorId id, SegmentId segment, const std::string& mark) {
    Tensor tensor = from_.tensor(id);
    tensor.name += mark;
    tensor.segment = segment;
    tensor.producer = OpId();
    to_.tensors.push_back(std::move(tensor));
    return TensorId(to_.tensors.size() - 1);
  }

  // Those of the segment, piece by piece. `layers`: by op. What a run begins or ends with is in each piece.
  void AddTensors(SegmentId segment, const std::vector<int64_t>& layers) {
    std::vector<int64_t> layer_of(from_.tensors.size(), -1);
    for (size_t i = 0; i < from_.ops.size(); ++i) {
      if (layers[i] < 0) continue;
      for (const TensorId id : from_.ops[i].inputs) {
        if (from_.tensor(id).kind == TensorKind::kParameter) layer_of[id.index()] = layers[i];
      }
      for (const TensorId id : from_.ops[i].outputs) layer_of[id.index()] = layers[i];
    }
    const std::vector<Piece>& pieces = pieces_[segment.index()];
    for (size_t k = 0; k < pieces.size(); ++k) {
      for (size_t i = 0; i < from_.tensors.size(); ++i) {
        if (from_.tensors[i].segment != segment) continue;
        tensors_[i].resize(pieces.size());
        if (layer_of[i] >= 0 && !IsIn(layer_of[i], pieces[k])) continue;
        tensors_[i][k] = Copy(TensorId(i), SegmentId(to_.segments.size() + k), pieces[k].mark);
      }
    }
  }

  void AddOps(SegmentId segment, size_t k, const std::vector<int64_t>& layers) {
    for (size_t i = 0; i < from_.ops.size(); ++i) {
      if (!IsIn(layers[i], pieces_[segment.index()][k])) continue;
      Op op = from_.ops[i];
      op.segment = SegmentId(to_.segments.size());
      for (TensorId& input : op.inputs) input = Read(input, segment, k);
      for (TensorId& output : op.outputs) {
        const bool made_here = from_.tensor(output).producer == OpId(i);
        output = tensors_[output.index()][k];
        if (made_here) to_.tensors[output.index()].producer = OpId(to_.ops.size());
      }
      to_.ops.push_back(std::move(op));
    }
  }

  void AddSegment(Segment segment, const Piece& piece, size_t k) {
    const std::vector<TensorId> ends = std::exchange(segment.layer_ends, {});
    segment.name += piece.mark;
    segment.repeat = piece.repeat;
    segment.first += piece.first;
    for (int64_t layer = piece.from; layer + 1 < piece.to; ++layer) {
      segment.layer_ends.push_back(tensors_[ends[static_cast<size_t>(layer)].index()][k]);
    }
    for (Carry& carry : segment.carries) {
      const TensorId out =
          piece.to <= static_cast<int64_t>(ends.size()) ? ends[static_cast<size_t>(piece.to) - 1] : carry.out;
      carry.initial = k == 0 ? Outside(carry.initial) : tensors_[carry.final.index()][k - 1];
      carry.in = tensors_[carry.in.index()][k];
      carry.out = tensors_[out.index()][k];
      carry.final = tensors_[carry.final.index()][k];
    }
    to_.segments.push_back(std::move(segment));
  }

  // What other segments see of a tensor: that of the last piece.
  TensorId Outside(TensorId id) const { return id.valid() ? tensors_[id.index()].back() : id; }

  // What piece k of the segment reads.
  TensorId Read(TensorId id, SegmentId segment, size_t k) const {
    if (from_.tensor(id).segment != segment) return Outside(id);
    const Segment& of = from_.segment(segment);
    const int64_t from = pieces_[segment.index()][k].from;
    const bool comes_in = from > 0 && id == of.layer_ends[static_cast<size_t>(from) - 1];
    return tensors_[(comes_in ? of.carries[0].in : id).index()][k];
  }

  const Graph& from_;
  const Pieces& pieces_;  // by segment
  Graph to_;
  std::vector<std::vector<TensorId>> tensors_;  // by tensor, what stands for it in each piece of its segment
};

}  // namespace

std::vector<Cut> CutsOf(const Graph& forward, const Strategy& strategy) {
  const int64_t parts = strategy.stages * strategy.chunks;
  std::vector<Cut> cuts;
  for (size_t s = 0; s < forward.segments.size() && parts > 1;) {
    const std::vector<Stack> chain = ChainFrom(forward, s);
    int64_t before = 0, part_begins = 0;  // layers of the chain
    size_t part = 0;
    const std::vector<int64_t>& given = strategy.layers_per_stage;
    const std::vector<int64_t> layers = given.empty() ? EvenLayers(LayersOf(chain), parts) : given;
    for (const Stack& stack : chain) {
      const int64_t end = before + stack.repeat * stack.layers;
      for (; part < layers.size() && part_begins < end; part_begins += layers[part++]) {
        const Cut cut = {stack.segment, part_begins - before};
        if (cut.layer % stack.layers != 0 && (cuts.empty() || cuts.back() != cut)) cuts.push_back(cut);
      }
      before = end;
    }
    s += chain.size();
  }
  return cuts;
}

Graph CutRuns(const Graph& forward, const std::vector<Cut>& cuts) {
  return cuts.empty() ? forward : Cutter(forward, PiecesOf(forward, cuts)).Run();
}

Graph CutRuns(const Graph& forward, const Strategy& strategy) { return CutRuns(forward, CutsOf(forward, strategy)); }

absl::string_view PieceMark(absl::string_view name) { return name.substr(std::min(name.size(), name.rfind(kMark))); }

std::optional<PieceKinds> KindsOf(const Graph& forward, const std::vector<Cut>& cuts) {
  PieceKinds result;
  Pieces kinds;
  size_t before = 0;  // kinds of the segments before
  for (const std::vector<Piece>& pieces : PiecesOf(forward, cuts)) {
    std::vector<Piece>& of_segment = kinds.emplace_back();
    for (auto piece = pieces.begin(); piece != pieces.end(); ++piece) {
      const auto is_like = [&](const Piece& other) { return AreAlike(*piece, other); };
      if (std::any_of(piece + 1, pieces.end(), is_like)) continue;
      of_segment.push_back(*piece);
      if (pieces.size() > 1) of_segment.back().mark = absl::StrCat(kMark, of_segment.size() - 1);
    }
    for (const Piece& piece : pieces) {
      const auto kind = std::find_if(of_segment.begin(), of_segment.end(),
                                     [&](const Piece& other) { return AreAlike(piece, other); });
      result.of.push_back({before + static_cast<size_t>(kind - of_segment.begin()), kind->mark, piece.mark});
    }
    before += of_segment.size();
  }
  if (before == result.of.size()) return std::nullopt;
  result.graph = Cutter(forward, kinds).Run();
  return result;
}

Graph SortLayers(const Graph& forward) {
  Pieces pieces;
  bool sorted = true;
  for (const Segment& segment : forward.segments) {
    std::vector<Piece>& of = pieces.emplace_back();
    for (int64_t layer = 0; layer < segment.layers(); ++layer) {
      of.push_back({0, segment.repeat, layer, layer + 1, MarkOf(of.size())});
    }
    sorted = sorted && segment.layers() == 1;
  }
  return sorted ? forward : Cutter(forward, pieces).Run();
}

}  // namespace meshwright
