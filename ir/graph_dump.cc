#include "ir/graph_dump.h"

#include <algorithm>
#include <map>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "ir/group_name.h"
#include "ir/program_fields.h"
#include "ir/rank_view.h"

namespace meshwright {
namespace {

std::string TypeName(DType dtype) {
  std::string name(NameOf(dtype));
  name[0] = absl::ascii_toupper(static_cast<unsigned char>(name[0]));
  return name;
}
std::string TypeText(DType dtype, const Shape& shape) {
  return absl::StrCat("<Tensor[", TypeName(dtype), "], ", ToText(shape), ">");
}
std::string Param(absl::string_view name) { return absl::StrCat("%para_", name); }
std::string NumberOf(size_t number) { return absl::StrCat("%", number); }

// "((2, 4), (4, 1))". With `wholes`, of which each input is a piece, the pieces count too (S6.14).
std::string StrategyText(const std::vector<const Buffer*>& inputs, const Mesh& mesh,
                         const std::vector<const Tensor*>& wholes = {}) {
  std::vector<std::string> tuples;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<int64_t> pieces;
    for (size_t d = 0; d < inputs[i]->shape.size(); ++d) {
      const bool known = i < wholes.size() && wholes[i]->shape.size() == inputs[i]->shape.size();
      const int64_t cut = known ? wholes[i]->shape[d] / inputs[i]->shape[d] : 1;
      pieces.push_back(mesh.SizeOf(inputs[i]->layout.dims[d]) * cut);
    }
    tuples.push_back(absl::StrCat("(", absl::StrJoin(pieces, ", "), ")"));
  }
  return absl::StrCat("(", absl::StrJoin(tuples, ", "), ")");
}

// Into how many pieces an operator is interleaved, from one of them.
int64_t PiecesOf(const std::vector<const Tensor*>& wholes, const std::vector<const Buffer*>& inputs) {
  int64_t pieces = 1;
  for (size_t i = 0; i < inputs.size() && i < wholes.size(); ++i) {
    pieces = std::max(pieces, NumElements(wholes[i]->shape) / NumElements(inputs[i]->shape));
  }
  return pieces;
}

// An instruction's origin is its segment and its operator: "model/matmul". Scopes name the segment.
absl::string_view OperatorOf(absl::string_view origin) {
  const size_t slash = origin.find('/');
  return slash == absl::string_view::npos ? origin : origin.substr(slash + 1);
}

template <class T>
std::string FieldText(const T& value) {
  if constexpr (std::is_same_v<T, Shape>) {
    return ToText(value);
  } else {
    return absl::StrCat(value);
  }
}

// What differs from the defaults, behind the rule.
std::string AttrsText(const OpAttrs& attrs, const IndexRule& rule, bool on_host) {
  std::vector<std::string> parts;
  if (!rule.labels.empty()) parts.push_back(absl::StrCat("rule: ", ToText(rule)));
  const OpAttrs usual;
  std::vector<std::string> defaults;
  program_text_internal::VisitFields(
      usual, usual, [&](absl::string_view, const auto& value) { defaults.push_back(FieldText(value)); });
  size_t field = 0;
  program_text_internal::VisitFields(attrs, attrs, [&](absl::string_view name, const auto& value) {
    const std::string text = FieldText(value);
    if (text != defaults[field++]) parts.push_back(absl::StrCat(name, ": ", text));
  });
  if (on_host) parts.emplace_back("device_target: CPU");
  return absl::StrJoin(parts, ", ");
}

DumpNode LoadNode(absl::string_view name, DType dtype, const Shape& shape, absl::string_view scope) {
  DumpNode node;
  node.name = std::string(name);
  node.op = "Load";
  node.args = {Param(name)};
  node.inputs = {absl::StrCat("<Ref[Tensor[", TypeName(dtype), "]], ", ToText(shape), ", ref_key=:", name, ">")};
  node.outputs = {TypeText(dtype, shape)};
  node.scope = std::string(scope);
  return node;
}

absl::string_view PrefixOf(const Collective& collective, Phase phase) {
  switch (collective.purpose) {
    case Purpose::kGradient:
      return "mirror_op_";
    case Purpose::kParameter:
      return "optimizer_op_";
    case Purpose::kReport:
      return "forward_op_";
    case Purpose::kActivation:
      break;
  }
  if (!InfoOf(collective.kind).reduces) return "redistribution_op_";
  return phase == Phase::kForward ? "forward_op_" : "backward_op_";
}

class Execution {
 public:
  Execution(const Program& program, int64_t rank) : view_(program, rank), class_(view_.rank_class()) {}

  Dump Run() {
    std::vector<bool> shown(class_.blocks.size(), false);
    for (const Slot& slot : class_.slots) {
      if (shown[slot.block.index()]) continue;
      shown[slot.block.index()] = true;
      block_ = &class_.blocks[slot.block.index()];
      for (const Instruction& instruction : block_->instructions) Add(instruction);
    }
    return std::move(dump_);
  }

 private:
  std::string TypeOf(const Operand& operand) const {
    return TypeText(view_.BufferOf(operand).dtype, view_.LocalShapeOf(operand));
  }
  std::string Scope() const { return absl::StrCat("Default/", block_->name); }

  void Add(const Instruction& instruction) {
    DumpNode node;
    node.name = std::string(OperatorOf(instruction.origin));
    node.scope = Scope();
    for (const Operand& read : instruction.reads) {
      node.args.push_back(Source(read));
      node.inputs.push_back(TypeOf(read));
    }
    for (const Operand& write : instruction.writes) node.outputs.push_back(TypeOf(write));
    const size_t number = dump_.size() + 1;
    std::visit([&](const auto& work) { Describe(instruction, work, number, node); }, instruction.work);
    for (const Operand& write : instruction.writes) source_[write.buffer] = NumberOf(number);
    dump_.push_back(std::move(node));
  }

  // Who made what is read; a parameter is loaded the first time.
  std::string Source(const Operand& read) {
    const auto found = source_.find(read.buffer);
    if (found != source_.end()) return found->second;
    const Buffer& buffer = view_.BufferOf(read);
    if (buffer.role != BufferRole::kParameter) return Param(buffer.name);
    dump_.push_back(LoadNode(buffer.name, buffer.dtype, view_.LocalShapeOf(read), Scope()));
    return source_[read.buffer] = NumberOf(dump_.size());
  }

  void Describe(const Instruction& instruction, const Compute& compute, size_t, DumpNode& node) {
    node.op = std::string(NameOf(compute.op));
    node.instance = node.name;
    node.attrs = AttrsText(compute.attrs, compute.rule, compute.on_host);
    std::vector<const Buffer*> buffers;
    for (const Operand& read : instruction.reads) buffers.push_back(&view_.BufferOf(read));
    if (!buffers.empty()) node.in_strategy = StrategyText(buffers, view_.mesh());
  }

  void Describe(const Instruction& instruction, const Slice&, size_t number, DumpNode& node) {
    const RankView::Bounds bounds = view_.BoundsOf(instruction);
    node.op = "StridedSlice";
    node.args.insert(node.args.end(),
                     {ToText(bounds.begin), ToText(bounds.end), ToText(Shape(bounds.begin.size(), 1))});
    node.instance = absl::StrCat("redistribution_op_", number, "StridedSlice");
  }

  void Describe(const Instruction& instruction, const Collective& collective, size_t number, DumpNode& node) {
    node.op = std::string(DumpName(collective.kind));
    node.instance = absl::StrCat(PrefixOf(collective, block_->phase), number);
    std::vector<int64_t> ranks = view_.GroupOf(collective.axes);
    node.attrs = absl::StrCat("group: ", GroupName(ranks), ", fusion: ", instruction.reads.size() > 1 ? ++fusions_ : 0);
    if (InfoOf(collective.kind).reduces) absl::StrAppend(&node.attrs, ", op: ", NameOf(collective.reduction));
    const bool cut = ranks.size() > kMaxRanksShown;
    if (cut) ranks.resize(kMaxRanksShown);
    absl::StrAppend(&node.attrs, ", rank_list: (", absl::StrJoin(ranks, ", "), cut ? ", ..." : "",
                    "), group_ranks: ", absl::StrJoin(ranks, "-"), cut ? "-..." : "", ", index: 0");
    if (collective.kind == CollectiveKind::kAllReduce || collective.kind == CollectiveKind::kBroadcast) return;
    absl::StrAppend(&node.attrs, ", dim: ", collective.dim);
    if (collective.kind == CollectiveKind::kAllToAll) absl::StrAppend(&node.attrs, ", to_dim: ", collective.to_dim);
  }

  void Describe(const Instruction&, const Permute& permute, size_t number, DumpNode& node) {
    node.op = permute.sources.empty() ? "Permute" : "NeighborExchange";
    node.instance = absl::StrCat(permute.sources.empty() ? "redistribution_op_" : "forward_op_", number, node.op);
    if (permute.sources.empty()) return;
    const RankView::Partners partners = view_.PartnersOf(permute);
    node.attrs = absl::StrCat("send_rank_ids: (", absl::StrJoin(partners.to, ", "), "), recv_rank_ids: (",
                              absl::StrJoin(partners.from, ", "), ")");
  }

  void Describe(const Instruction&, const Transfer& transfer, size_t number, DumpNode& node) {
    node.op = transfer.send ? "Send" : "Receive";
    node.instance = absl::StrCat("pipeline_op_", number);
    node.attrs = absl::StrCat(transfer.send ? "dest_rank: " : "src_rank: ", view_.PeerOf(transfer));
  }

  void Describe(const Instruction&, const Sync&, size_t, DumpNode& node) { node.op = "Sync"; }

  const RankView view_;
  const RankClass& class_;
  const Block* block_ = nullptr;
  std::map<BufferId, std::string> source_;
  Dump dump_;
  int64_t fusions_ = 0;
};

// What the program's forward ops read, by name.
std::map<std::string, std::vector<const Buffer*>> StrategiesOf(const Program& program) {
  std::map<std::string, std::vector<const Buffer*>> strategies;
  for (const RankClass& c : program.classes) {
    for (const Block& block : c.blocks) {
      if (block.phase != Phase::kForward) continue;
      for (const Instruction& instruction : block.instructions) {
        const auto* compute = std::get_if<Compute>(&instruction.work);
        const std::string name(OperatorOf(instruction.origin));
        if (compute == nullptr || compute->recompute || strategies.count(name) > 0) continue;
        std::vector<const Buffer*>& buffers = strategies[name];
        for (const Operand& read : instruction.reads) buffers.push_back(&c.buffers[read.buffer.index()]);
      }
    }
  }
  return strategies;
}

std::string DotText(absl::string_view text) { return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}); }

}  // namespace

Dump DumpGraph(const Graph& graph, const Program& program) {
  const auto strategies = StrategiesOf(program);
  Dump dump;
  std::vector<std::string> source(graph.tensors.size());
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::kForward) continue;
    DumpNode node;
    node.name = node.instance = op.name;
    node.op = std::string(NameOf(op.kind));
    node.attrs = AttrsText(op.attrs, op.rule, op.on_host);
    node.scope = absl::StrCat("Default/", graph.segment(op.segment).name);
    for (const TensorId id : op.inputs) {
      const Tensor& tensor = graph.tensor(id);
      std::string& from = source[id.index()];
      if (from.empty() && tensor.kind == TensorKind::kParameter) {
        dump.push_back(LoadNode(tensor.name, tensor.dtype, tensor.shape, node.scope));
        from = NumberOf(dump.size());
      }
      if (from.empty()) from = Param(tensor.name);
      node.args.push_back(from);
      node.inputs.push_back(TypeText(tensor.dtype, tensor.shape));
    }
    for (const TensorId id : op.outputs) {
      node.outputs.push_back(TypeText(graph.tensor(id).dtype, graph.tensor(id).shape));
      source[id.index()] = NumberOf(dump.size() + 1);
    }
    if (const auto own = strategies.find(op.name); own != strategies.end() && !own->second.empty()) {
      node.in_strategy = StrategyText(own->second, program.mesh);
    } else if (const auto first = strategies.find(absl::StrCat(op.name, "/0")); first != strategies.end()) {
      std::vector<const Tensor*> tensors;
      for (const TensorId id : op.inputs) tensors.push_back(&graph.tensor(id));
      const int64_t pieces = PiecesOf(tensors, first->second);
      node.in_strategy = StrategyText(first->second, program.mesh, tensors);
      absl::StrAppend(&node.attrs, node.attrs.empty() ? "" : ", ", "interleaved_parallel: ", pieces);
    }
    dump.push_back(std::move(node));
  }
  return dump;
}

Dump DumpExecution(const Program& program, int64_t rank) { return Execution(program, rank).Run(); }

std::string ToText(const Dump& dump) {
  std::string text;
  for (size_t i = 0; i < dump.size(); ++i) {
    const DumpNode& node = dump[i];
    absl::StrAppend(&text, NumberOf(i + 1), "(", node.name, ") = ", node.op, "(", absl::StrJoin(node.args, ", "), ")");
    if (!node.instance.empty()) absl::StrAppend(&text, " {instance name: ", node.instance, "}");
    if (!node.attrs.empty()) absl::StrAppend(&text, " primitive_attrs: {", node.attrs, "}");
    if (!node.in_strategy.empty()) absl::StrAppend(&text, " {in_strategy: ", node.in_strategy, "}");
    absl::StrAppend(&text, "\n    : (", absl::StrJoin(node.inputs, ", "), ") -> (", absl::StrJoin(node.outputs, ", "),
                    ")\n    # scope: (", node.scope, ")\n");
  }
  return text;
}

std::string ToDot(const Dump& dump) {
  std::string text = "digraph {\n  node [shape=box]\n";
  for (size_t i = 0; i < dump.size(); ++i) {
    const DumpNode& node = dump[i];
    absl::StrAppend(&text, "  n", i + 1, " [label=\"", DotText(node.op), " ", DotText(node.name), "\\n",
                    DotText(absl::StrJoin(node.inputs, ", ")), "\\n-> ", DotText(absl::StrJoin(node.outputs, ", ")),
                    "\"]\n");
    for (const std::string& arg : node.args) {
      if (arg.size() < 2 || arg[0] != '%') continue;
      if (absl::ascii_isdigit(static_cast<unsigned char>(arg[1]))) {
        absl::StrAppend(&text, "  n", arg.substr(1), " -> n", i + 1, "\n");
      } else {
        absl::StrAppend(&text, "  \"", DotText(arg.substr(1)), "\" -> n", i + 1, "\n");
      }
    }
  }
  return text + "}\n";
}

}  // namespace meshwright
