#include "planner/passes/repeat_pieces.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace meshwright {
namespace {

// The kind's mark becomes the piece's. What belongs to a piece names no other's.
std::string WithMark(const std::string& text, const PieceKinds::Piece& piece) {
  return piece.mark == piece.mark_in_cut ? text : absl::StrReplaceAll(text, {{piece.mark, piece.mark_in_cut}});
}

class Repeater {
 public:
  Repeater(const Program& program, const PieceKinds& kinds, const Graph& cut)
      : from_(program.classes[0]), kinds_(kinds), cut_(cut) {
    to_.name = program.name;
    to_.mesh = program.mesh;
    to_.classes.emplace_back();
    to().name = from_.name;
    to().events = from_.events;
    pieces_of_.resize(kinds.graph.segments.size());
    for (size_t s = 0; s < kinds.of.size(); ++s) {
      place_.push_back(pieces_of_[kinds.of[s].kind].size());
      pieces_of_[kinds.of[s].kind].push_back(s);
    }
  }

  Program Run() {
    NoteStreams();
    NoteKinds();
    size_t copies = 0;
    for (size_t b = 0; b < from_.buffers.size(); ++b) {
      first_.push_back(copies);
      copies += IsOfPieces(b) ? pieces_of_[static_cast<size_t>(kind_of_[b])].size() : 1;
    }
    copies_.resize(copies);
    to().buffers.reserve(copies);
    for (size_t begin = 0, end = 0; begin < from_.buffers.size(); begin = end) {
      for (end = begin + 1; end < from_.buffers.size() && order_[end] == order_[begin]; ++end) {
      }
      CopyBuffers(begin, end);
    }
    for (size_t s = 0; s < kinds_.of.size(); ++s) {
      for (size_t phase = 0; phase < 2; ++phase) CopyBlock(s, from_.blocks[2 * kinds_.of[s].kind + phase]);
    }
    return std::move(to_);
  }

 private:
  static constexpr int kNone = -1, kSeveral = -2;
  // Of what each piece has its own: buffers stand by pieces, of gradients and backward blocks from the last to the
  // first.
  enum class Order : uint8_t { kShared, kParameters, kGradients, kForward, kBackward };

  RankClass& to() { return to_.classes[0]; }
  bool IsOfPieces(size_t b) const { return kind_of_[b] >= 0; }
  static bool IsPersistent(const Buffer& buffer) {
    return buffer.role == BufferRole::kParameter || buffer.role == BufferRole::kGradient;
  }

  // What each chain hands on, by the name of its buffer: the name in the graph that is cut, and its layers there.
  void NoteStreams() {
    const std::vector<size_t> chains = ChainsOf(kinds_.graph), chains_in_cut = ChainsOf(cut_);
    std::vector<int64_t> layers(cut_.segments.size(), 1);  // by chain in the graph that is cut
    for (size_t s = 0; s < cut_.segments.size(); ++s) layers[chains_in_cut[s]] += cut_.segments[s].repeat;
    for (size_t s = 0; s < cut_.segments.size(); ++s) {
      if (cut_.segments[s].carries.empty()) continue;
      const size_t chain = chains_in_cut[s];
      for (const char* what : {"/stream", "/gradient"}) {
        streams_[absl::StrCat(kinds_.graph.segments[chains[kinds_.of[s].kind]].name, what)] = {
            absl::StrCat(cut_.segments[chain].name, what), layers[chain]};
      }
    }
  }

  // Of parameters and gradients the kind whose layers they are, of what blocks make the one kind that uses it.
  void NoteKinds() {
    kind_of_.assign(from_.buffers.size(), kNone);
    order_.assign(from_.buffers.size(), Order::kBackward);
    for (size_t k = 0; k < from_.blocks.size(); ++k) {
      const int kind = static_cast<int>(k / 2);
      const bool forward = from_.blocks[k].phase == Phase::kForward;
      for (const Instruction& instruction : from_.blocks[k].instructions) {
        for (const auto* operands : {&instruction.reads, &instruction.writes}) {
          for (const Operand& operand : *operands) {
            int& known = kind_of_[operand.buffer.index()];
            known = known == kNone || known == kind ? kind : kSeveral;
            if (forward) order_[operand.buffer.index()] = Order::kForward;
          }
        }
      }
    }
    absl::flat_hash_map<std::string, int> of_parameter;  // and of its gradient
    for (const Tensor& tensor : kinds_.graph.tensors) {
      if (tensor.kind != TensorKind::kParameter || !tensor.segment.valid()) continue;
      const int kind = static_cast<int>(tensor.segment.index());
      of_parameter[tensor.name] = of_parameter[absl::StrCat("d", tensor.name)] = kind;
    }
    for (size_t b = 0; b < from_.buffers.size(); ++b) {
      const Buffer& buffer = from_.buffers[b];
      if (streams_.count(buffer.name) > 0) kind_of_[b] = kSeveral;
      if (IsPersistent(buffer)) {
        const auto found = of_parameter.find(buffer.name);
        kind_of_[b] = found == of_parameter.end() ? kSeveral : found->second;
        order_[b] = buffer.role == BufferRole::kParameter ? Order::kParameters : Order::kGradients;
      }
      if (!IsOfPieces(b)) order_[b] = Order::kShared;
    }
  }

  // Those of one order.
  void CopyBuffers(size_t begin, size_t end) {
    std::vector<std::pair<size_t, size_t>> copies;  // piece and buffer before
    for (size_t b = begin; b < end; ++b) {
      if (!IsOfPieces(b)) {
        CopyShared(b);
        continue;
      }
      for (const size_t s : pieces_of_[static_cast<size_t>(kind_of_[b])]) copies.emplace_back(s, b);
    }
    const bool downwards = order_[begin] == Order::kGradients || order_[begin] == Order::kBackward;
    std::stable_sort(copies.begin(), copies.end(), [downwards](const auto& x, const auto& y) {
      return downwards ? y.first < x.first : x.first < y.first;
    });
    for (const auto& [s, b] : copies) {
      const Buffer& buffer = from_.buffers[b];
      Buffer& copy = AddCopy(b, s);
      copy.name = WithMark(buffer.name, kinds_.of[s]);
      const Segment& segment = cut_.segments[s];
      if (IsPersistent(buffer) || buffer.role == BufferRole::kActivation) copy.layers = segment.repeat;
      if (buffer.role == BufferRole::kParameter) copy.first_layer = segment.first;
    }
  }
  void CopyShared(size_t b) {
    Buffer& copy = AddCopy(b, 0);
    const auto stream = streams_.find(copy.name);
    if (stream != streams_.end()) std::tie(copy.name, copy.layers) = stream->second;
  }
  Buffer& AddCopy(size_t b, size_t s) {
    CopyOf(BufferId(b), s) = BufferId(to().buffers.size());
    return to().buffers.emplace_back(from_.buffers[b]);
  }
  // What piece `s` uses for it.
  BufferId& CopyOf(BufferId before, size_t s) {
    const size_t b = before.index();
    return copies_[first_[b] + (IsOfPieces(b) ? place_[s] : 0)];
  }

  void CopyBlock(size_t s, const Block& block) {
    const PieceKinds::Piece& piece = kinds_.of[s];
    Block& copy = to().blocks.emplace_back(block);
    copy.name = WithMark(block.name, piece);
    for (Instruction& instruction : copy.instructions) {
      if (piece.mark != piece.mark_in_cut) instruction.origin = WithMark(instruction.origin, piece);
      for (auto* operands : {&instruction.reads, &instruction.writes}) {
        for (Operand& operand : *operands) operand.buffer = CopyOf(operand.buffer, s);
      }
    }
  }

  const RankClass& from_;
  const PieceKinds& kinds_;
  const Graph& cut_;
  Program to_;
  std::vector<std::vector<size_t>> pieces_of_;                                 // by kind
  std::vector<size_t> place_;                                                  // by piece, among those of its kind
  absl::flat_hash_map<std::string, std::pair<std::string, int64_t>> streams_;  // name and layers after, by name before
  std::vector<int> kind_of_;                                                   // by buffer before
  std::vector<Order> order_;                                                   // by buffer before
  std::vector<size_t> first_;     // by buffer before, where its copies begin: one, or one for each piece of its kind
  std::vector<BufferId> copies_;  // after
};

}  // namespace

Program RepeatPieces(const Program& program, const PieceKinds& kinds, const Graph& cut) {
  return Repeater(program, kinds, cut).Run();
}

}  // namespace meshwright
