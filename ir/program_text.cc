#include "ir/program_text.h"

#include <charconv>
#include <map>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/program_fields.h"

namespace meshwright {
namespace {

using program_text_internal::DefaultRule;
using program_text_internal::IsBareName;
using program_text_internal::kInitNames;
using program_text_internal::kPhaseNames;
using program_text_internal::VisitFields;

// The shortest text that reads back as the same number.
std::string NumberText(double x) {
  char buffer[32];
  const std::to_chars_result result = std::to_chars(buffer, buffer + sizeof(buffer), x);
  return std::string(buffer, result.ptr);
}
std::string NumberText(int64_t x) { return absl::StrCat(x); }
std::string NumberText(bool x) { return x ? "true" : "false"; }
std::string NumberText(const Shape& x) { return absl::StrJoin(x, ","); }

std::string NameText(absl::string_view name) {
  if (IsBareName(name)) return std::string(name);
  std::string text = "\"";
  for (char c : name) {
    if (c == '"' || c == '\\') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return text + '"';
}

// " key=x" for each field that is not as in a fresh Attrs.
template <class Attrs>
std::string FieldsText(const Attrs& attrs) {
  const Attrs fresh{};
  std::vector<std::string> usual;
  VisitFields(fresh, fresh, [&](absl::string_view, auto& field) { usual.push_back(NumberText(field)); });
  std::string text;
  size_t i = 0;
  VisitFields(attrs, attrs, [&](absl::string_view key, auto& field) {
    const std::string number = NumberText(field);
    if (number != usual[i++]) absl::StrAppend(&text, " ", key, "=", number);
  });
  return text;
}

void AppendCounts(std::string& text, int64_t layers, int64_t microbatches) {
  if (layers != 1) absl::StrAppend(&text, " layers ", layers);
  if (microbatches != 1) absl::StrAppend(&text, " microbatches ", microbatches);
}

// Names of one vector, for references into it.
class References {
 public:
  template <class T>
  explicit References(const std::vector<T>& things) {
    for (const T& thing : things) {
      names_.push_back(thing.name);
      ++count_[thing.name];
    }
  }

  template <class Tag>
  std::string Text(Id<Tag> id, int32_t layer_shift = 0) const {
    std::string text;
    if (id.valid() && id.index() < names_.size() && count_.at(names_[id.index()]) == 1) {
      text = NameText(names_[id.index()]);
    } else {
      text = absl::StrCat("%", id.valid() ? static_cast<int64_t>(id.index()) : -1);
    }
    if (layer_shift != 0) absl::StrAppend(&text, layer_shift > 0 ? "+" : "", layer_shift);
    return text;
  }

 private:
  std::vector<std::string> names_;
  std::map<std::string, int> count_;
};

std::string AxesText(const AxisList& axes, const Mesh& mesh) {
  return absl::StrCat(
      "(",
      absl::StrJoin(axes, ", ",
                    [&](std::string* out, AxisId id) {
                      const bool known = id.valid() && id.index() < mesh.axes().size();
                      absl::StrAppend(out, known ? mesh.axis(id).name
                                                 : absl::StrCat("%", id.valid() ? static_cast<int>(id.index()) : -1));
                    }),
      ")");
}

// The stream on which a transfer runs unless its text says otherwise.
Stream UsualStream(const Transfer& transfer) { return transfer.send ? Stream::kSend : Stream::kReceive; }

class InstructionWriter {
 public:
  InstructionWriter(const RankClass& rank_class, const Mesh& mesh)
      : class_(rank_class), mesh_(mesh), buffers_(rank_class.buffers), events_(rank_class.events) {}

  std::string Text(const Instruction& instruction) const {
    std::string text = std::visit([&](const auto& work) { return WorkText(instruction, work); }, instruction.work);
    AppendList(text, " reads", instruction.reads);
    AppendList(text, " writes", instruction.writes);
    AppendList(text, " waits", instruction.waits);
    AppendList(text, " records", instruction.records);
    if (!instruction.origin.empty()) absl::StrAppend(&text, " @", NameText(instruction.origin));
    return text;
  }

 private:
  std::string WorkText(const Instruction& instruction, const Compute& compute) const {
    std::string text = absl::StrCat(NameOf(instruction.stream), " ", NameOf(compute.op));
    if (!(*compute.rule == RuleByDefault(instruction, compute))) {
      const bool none = *compute.rule == IndexRule{};
      absl::StrAppend(&text, " \"", none ? "" : ToText(compute.rule), "\"");
    }
    if (compute.accumulate) text += " accumulate";
    if (compute.recompute) text += " recompute";
    if (compute.on_host) text += " on_host";
    if (compute.turn.first >= 0) absl::StrAppend(&text, " turn ", compute.turn.first, " step ", compute.turn.step);
    return text + FieldsText(*compute.attrs);
  }
  std::string WorkText(const Instruction& instruction, const Slice&) const {
    return absl::StrCat(NameOf(instruction.stream), " slice");
  }
  std::string WorkText(const Instruction& instruction, const Permute& permute) const {
    const std::string text = absl::StrCat(NameOf(instruction.stream), " permute");
    if (permute.sources.empty()) return text;
    return absl::StrCat(text, " ", AxesText(permute.axes, mesh_), " from ", absl::StrJoin(permute.sources, " "));
  }
  std::string WorkText(const Instruction& instruction, const Sync&) const {
    return absl::StrCat(NameOf(instruction.stream), " sync");
  }
  std::string WorkText(const Instruction& instruction, const Collective& c) const {
    std::string text = absl::StrCat(NameOf(instruction.stream), " ", NameOf(c.kind));
    if (InfoOf(c.kind).reduces || c.reduction != Reduction::kSum) absl::StrAppend(&text, " ", NameOf(c.reduction));
    absl::StrAppend(&text, " ", AxesText(c.axes, mesh_));
    const bool moves = c.kind == CollectiveKind::kAllToAll;
    const bool has_dim = moves || c.kind == CollectiveKind::kAllGather || c.kind == CollectiveKind::kReduceScatter;
    if (has_dim || c.dim != 0 || c.to_dim != 0) absl::StrAppend(&text, " dim ", c.dim);
    if (moves || c.to_dim != 0) absl::StrAppend(&text, " to ", c.to_dim);
    if (c.root != 0 || c.root_step != 0) absl::StrAppend(&text, " root ", c.root);
    if (c.root_step != 0) absl::StrAppend(&text, " step ", c.root_step);
    return absl::StrCat(text, " ", NameOf(c.purpose));
  }
  std::string WorkText(const Instruction& instruction, const Transfer& t) const {
    std::string text;
    if (instruction.stream != UsualStream(t)) text = absl::StrCat(NameOf(instruction.stream), " ");
    absl::StrAppend(&text, t.send ? "send to " : "receive from ", t.stage_offset >= 0 ? "+" : "", t.stage_offset);
    return absl::StrCat(text, " ", NameOf(t.purpose));
  }

  IndexRule RuleByDefault(const Instruction& instruction, const Compute& compute) const {
    std::vector<Shape> shapes;
    for (const Operand& read : instruction.reads) {
      if (!read.buffer.valid() || read.buffer.index() >= class_.buffers.size()) return {};
      shapes.push_back(class_.buffers[read.buffer.index()].shape);
    }
    return DefaultRule(compute.op, shapes);
  }

  std::string Reference(const Operand& operand) const { return buffers_.Text(operand.buffer, operand.layer_shift); }
  std::string Reference(const EventRef& ref) const { return events_.Text(ref.event, ref.layer_shift); }
  template <class List>
  void AppendList(std::string& text, absl::string_view word, const List& list) const {
    if (!list.empty()) absl::StrAppend(&text, word);
    for (const auto& item : list) absl::StrAppend(&text, " ", Reference(item));
  }

  const RankClass& class_;
  const Mesh& mesh_;
  const References buffers_, events_;
};

// `index` is the buffer's own: a buffer is named by those behind it only.
std::string BufferText(const Buffer& buffer, size_t index, const References& buffers, const Mesh& mesh) {
  std::string text = absl::StrCat("buffer ", NameText(buffer.name), " ", NameOf(buffer.dtype), " ",
                                  ToText(buffer.shape), " ", ToText(buffer.layout, mesh), " ", NameOf(buffer.role));
  AppendCounts(text, buffer.layers, buffer.microbatches);
  if (buffer.first_layer != 0) absl::StrAppend(&text, " first_layer ", buffer.first_layer);
  if (buffer.bytes != Bytes() || buffer.offset != Bytes()) {
    absl::StrAppend(&text, " bytes ", buffer.bytes.raw(), " offset ", buffer.offset.raw());
  }
  if (buffer.alias.valid()) {
    const bool before = buffer.alias.index() < index;
    absl::StrAppend(&text, " alias ", before ? buffers.Text(buffer.alias) : absl::StrCat("%", buffer.alias.index()));
  }
  if (buffer.owner >= 0) absl::StrAppend(&text, " owner ", buffer.owner);
  const std::string fields = FieldsText(buffer.init);
  if (buffer.init.kind != Initializer{}.kind || !fields.empty()) {
    absl::StrAppend(&text, " init ", kInitNames[static_cast<size_t>(buffer.init.kind)], fields);
  }
  if (!buffer.trainable) text += " frozen";
  return text;
}

std::string SlotText(absl::string_view word, const Slot& slot, const References& blocks) {
  std::string text = absl::StrCat(word, " ", blocks.Text(slot.block), " mb ", slot.microbatch, " layer ", slot.layer);
  if (slot.count == 1 && slot.step == 1) return text;
  absl::StrAppend(&text, " x", slot.count);
  if (slot.step == 1) return text + " up";
  if (slot.step == -1) return text + " down";
  return absl::StrCat(text, " step ", slot.step);
}

void AppendClass(std::string& text, const RankClass& rank_class, size_t index, const Mesh& mesh) {
  absl::StrAppend(&text, "class ", NameText(rank_class.name));
  if (rank_class.stage != static_cast<int64_t>(index)) absl::StrAppend(&text, " stage ", rank_class.stage);
  if (rank_class.arena != Bytes()) absl::StrAppend(&text, " arena ", rank_class.arena.raw());
  text += '\n';
  const References buffers(rank_class.buffers);
  for (size_t i = 0; i < rank_class.buffers.size(); ++i) {
    absl::StrAppend(&text, "  ", BufferText(rank_class.buffers[i], i, buffers, mesh), "\n");
  }
  for (const Event& event : rank_class.events) {
    absl::StrAppend(&text, "  event ", NameText(event.name));
    AppendCounts(text, event.layers, event.microbatches);
    text += '\n';
  }
  const InstructionWriter writer(rank_class, mesh);
  for (const Block& block : rank_class.blocks) {
    absl::StrAppend(&text, "  block ", NameText(block.name), " ", kPhaseNames[static_cast<size_t>(block.phase)], "\n");
    for (const Instruction& instruction : block.instructions) {
      absl::StrAppend(&text, "    ", writer.Text(instruction), "\n");
    }
  }
  const References blocks(rank_class.blocks);
  for (const Slot& slot : rank_class.start) absl::StrAppend(&text, "  ", SlotText("start", slot, blocks), "\n");
  for (const Slot& slot : rank_class.slots) absl::StrAppend(&text, "  ", SlotText("slot", slot, blocks), "\n");
}

}  // namespace

std::string ToText(const Program& program) {
  std::string text = absl::StrCat("program ", NameText(program.name), " mesh ", ToText(program.mesh));
  if (program.num_microbatches != 1) absl::StrAppend(&text, " microbatches ", program.num_microbatches);
  if (program.loss_divisor != 1) absl::StrAppend(&text, " loss_divisor ", NumberText(program.loss_divisor));
  text += '\n';
  for (size_t c = 0; c < program.classes.size(); ++c) AppendClass(text, program.classes[c], c, program.mesh);
  return text;
}

std::string ToText(const Instruction& instruction, const RankClass& rank_class, const Mesh& mesh) {
  return InstructionWriter(rank_class, mesh).Text(instruction);
}

}  // namespace meshwright
