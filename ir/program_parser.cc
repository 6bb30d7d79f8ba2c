// ParseProgram: one function per kind of line, each reading the line's tokens in order.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "ir/program_fields.h"
#include "ir/program_line.h"
#include "ir/program_text.h"
#include "ir/status.h"

namespace meshwright {
namespace {

using program_text_internal::DefaultRule;
using program_text_internal::kInitNames;
using program_text_internal::kListWords;
using program_text_internal::kPhaseNames;
using program_text_internal::Line;
using program_text_internal::Token;
using program_text_internal::Tokenize;
using program_text_internal::VisitFields;
using program_text_internal::Wrong;

// The names of the enumerators up to `last`, for Line::Choice.
template <class Enum>
std::vector<absl::string_view> NamesUpTo(Enum last) {
  std::vector<absl::string_view> names;
  for (size_t i = 0; i <= static_cast<size_t>(last); ++i) names.push_back(NameOf(static_cast<Enum>(i)));
  return names;
}
template <class Enum>
constexpr Enum LastBefore(Enum count) {
  return static_cast<Enum>(static_cast<size_t>(count) - 1);
}

// A reference as it stands in the text: x, x+1, "w 1"-1, %3.
struct Reference {
  Token token;
  std::string name;   // without shift
  std::string shift;  // "+1", or nothing
};

absl::StatusOr<Reference> ReadReference(Line& line, absl::string_view what) {
  Reference reference;
  reference.token = line.Peek();
  if (reference.token.kind == Token::Kind::kString) {
    reference.name = line.Next().text;
    if (line.Peek().glued && line.Peek().kind == Token::Kind::kWord) reference.shift = line.Next().text;
    return reference;
  }
  if (reference.token.kind != Token::Kind::kWord) return line.Error(what);
  const std::string& text = line.Next().text;
  const size_t sign = text.find_first_of("+-", text[0] == '%' ? 2 : 1);
  reference.name = text.substr(0, sign);
  if (sign != std::string::npos) reference.shift = text.substr(sign);
  return reference;
}

// The things of one kind that a class has so far, by name.
class Names {
 public:
  void Add(const std::string& name) {
    Entry& entry = entries_[name];
    if (entry.times++ == 0) entry.index = count_;
    ++count_;
  }

  template <class Tag>
  absl::StatusOr<Id<Tag>> Find(const Line& line, const Reference& reference, absl::string_view what) const {
    int32_t index = 0;
    const bool named = reference.token.kind == Token::Kind::kString || reference.name[0] != '%';
    if (!named && absl::SimpleAtoi(reference.name.substr(1), &index)) {
      return index < 0 ? Id<Tag>() : Id<Tag>(static_cast<size_t>(index));
    }
    const auto found = entries_.find(reference.name);
    if (found == entries_.end()) return line.Error(reference.token, absl::StrCat(what, "; there are: ", List()));
    if (found->second.times > 1)
      return line.Error(reference.token, absl::StrCat(what, " of that name alone, or %INDEX"));
    return Id<Tag>(found->second.index);
  }

 private:
  struct Entry {
    size_t index = 0;
    int times = 0;
  };
  std::string List() const {
    if (entries_.empty()) return "none";
    return absl::StrJoin(entries_, ", ", [](std::string* out, const auto& entry) { out->append(entry.first); });
  }
  std::map<std::string, Entry> entries_;
  size_t count_ = 0;
};

bool ReadNumber(const std::string& text, double& value) { return absl::SimpleAtod(text, &value); }
bool ReadNumber(const std::string& text, int64_t& value) { return absl::SimpleAtoi(text, &value); }
bool ReadNumber(const std::string& text, bool& value) { return absl::SimpleAtob(text, &value); }
bool ReadNumber(const std::string& text, Shape& values) {
  values.clear();
  for (const absl::string_view number : absl::StrSplit(text, ',')) {
    if (!absl::SimpleAtoi(number, &values.emplace_back())) return false;
  }
  return true;
}

// Reads key=x words into the fields of `attrs`.
template <class Attrs>
absl::Status ReadFields(Line& line, Attrs& attrs) {
  while (line.IsField()) {
    const Token& token = line.Next();
    const size_t equals = token.text.find('=');
    const std::string key = token.text.substr(0, equals);
    std::string value = token.text.substr(equals + 1);
    // A list, 0,1: words and commas with nothing between them.
    while (line.IsMark(",") && line.Peek().glued) {
      value += line.Next().text;
      if (line.Peek().glued && line.Peek().kind == Token::Kind::kWord) value += line.Next().text;
    }
    bool known = false, good = false;
    std::vector<absl::string_view> keys;
    VisitFields(attrs, attrs, [&](absl::string_view name, auto& field) {
      keys.push_back(name);
      if (name != key) return;
      known = true;
      good = ReadNumber(value, field);
    });
    if (!known) return line.Error(token, absl::StrCat("one of the keys ", absl::StrJoin(keys, ", ")));
    if (!good) return line.Error(token, absl::StrCat("a value for ", key));
  }
  return absl::OkStatus();
}

class Parser {
 public:
  absl::StatusOr<Program> Run(absl::string_view text) {
    int number = 0;
    bool named = false;
    for (absl::string_view content : absl::StrSplit(text, '\n')) {
      MESHWRIGHT_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(content, ++number));
      Line line(number, std::move(tokens));
      if (line.AtEnd()) continue;
      MESHWRIGHT_RETURN_IF_ERROR(named ? ReadLine(line) : ReadProgram(line));
      MESHWRIGHT_RETURN_IF_ERROR(line.ExpectEnd());
      named = true;
    }
    if (!named) return Wrong(number, 1, "the end of the text", "program NAME mesh ...");
    return std::move(program_);
  }

 private:
  absl::Status ReadProgram(Line& line) {
    MESHWRIGHT_RETURN_IF_ERROR(line.Expect("program"));
    MESHWRIGHT_ASSIGN_OR_RETURN(program_.name, line.Name());
    MESHWRIGHT_RETURN_IF_ERROR(line.Expect("mesh"));
    const Token first = line.Peek();
    std::vector<std::string> words;
    while (line.IsField() || (words.empty() && line.IsWord("one"))) words.push_back(line.Next().text);
    absl::StatusOr<Mesh> mesh = ParseMesh(absl::StrJoin(words, " "));
    if (!mesh.ok()) return line.Locate(first, mesh.status());
    program_.mesh = *std::move(mesh);
    if (line.Take("microbatches")) {
      MESHWRIGHT_ASSIGN_OR_RETURN(program_.num_microbatches, line.Integer("how many micro-batches"));
    }
    if (line.Take("loss_divisor")) {
      MESHWRIGHT_ASSIGN_OR_RETURN(program_.loss_divisor, line.Double("a number"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadLine(Line& line) {
    if (line.Take("class")) return ReadClass(line);
    if (program_.classes.empty()) return line.Error("class NAME");
    if (line.Take("buffer")) return ReadBuffer(line);
    if (line.Take("event")) return ReadEvent(line);
    if (line.Take("block")) return ReadBlock(line);
    if (line.Take("start")) return ReadSlot(line, Class().start);
    if (line.Take("slot")) return ReadSlot(line, Class().slots);
    if (Class().blocks.empty()) return line.Error("class, buffer, event, block or slot");
    return ReadInstruction(line);
  }

  RankClass& Class() { return program_.classes.back(); }

  absl::Status ReadClass(Line& line) {
    RankClass& rank_class = program_.classes.emplace_back();
    buffers_ = events_ = blocks_ = Names();
    MESHWRIGHT_ASSIGN_OR_RETURN(rank_class.name, line.Name());
    rank_class.stage = static_cast<int64_t>(program_.classes.size()) - 1;
    if (line.Take("stage")) {
      MESHWRIGHT_ASSIGN_OR_RETURN(rank_class.stage, line.Integer("the number of the stage"));
    }
    if (line.Take("arena")) MESHWRIGHT_RETURN_IF_ERROR(ReadBytes(line, rank_class.arena));
    return absl::OkStatus();
  }

  absl::Status ReadBytes(Line& line, Bytes& bytes) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t number, line.Integer("a number of bytes"));
    bytes = Bytes(number);
    return absl::OkStatus();
  }

  absl::Status ReadCounts(Line& line, int64_t& layers, int64_t& microbatches) {
    if (line.Take("layers")) {
      MESHWRIGHT_ASSIGN_OR_RETURN(layers, line.Integer("how many layers"));
    }
    if (line.Take("microbatches")) {
      MESHWRIGHT_ASSIGN_OR_RETURN(microbatches, line.Integer("how many micro-batches"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Shape> ReadShape(Line& line) {
    MESHWRIGHT_RETURN_IF_ERROR(line.ExpectMark("("));
    Shape shape;
    while (!line.TakeMark(")")) {
      if (!shape.empty()) MESHWRIGHT_RETURN_IF_ERROR(line.ExpectMark(","));
      MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t extent, line.Integer("the size of a dim"));
      shape.push_back(extent);
    }
    return shape;
  }

  absl::StatusOr<Layout> ReadLayout(Line& line) {
    const Token first = line.Peek();
    if (first.kind != Token::Kind::kLayout) return line.Error("a layout, as in {x1 | -}");
    std::string text = line.Next().text;
    if (line.Take("partial")) {
      absl::StrAppend(&text, " partial ", line.Next().text);
      absl::StrAppend(&text, " ", line.Next().text);
    }
    absl::StatusOr<Layout> layout = ParseLayout(text, program_.mesh);
    if (!layout.ok()) return line.Locate(first, layout.status());
    return layout;
  }

  absl::Status ReadBuffer(Line& line) {
    Buffer buffer;
    MESHWRIGHT_ASSIGN_OR_RETURN(buffer.name, line.Name());
    MESHWRIGHT_ASSIGN_OR_RETURN(const size_t dtype, line.Choice(NamesUpTo(DType::kBool), "an element type"));
    buffer.dtype = static_cast<DType>(dtype);
    MESHWRIGHT_ASSIGN_OR_RETURN(buffer.shape, ReadShape(line));
    MESHWRIGHT_ASSIGN_OR_RETURN(buffer.layout, ReadLayout(line));
    MESHWRIGHT_ASSIGN_OR_RETURN(const size_t role, line.Choice(NamesUpTo(LastBefore(BufferRole::kNumRoles)), "a role"));
    buffer.role = static_cast<BufferRole>(role);
    MESHWRIGHT_RETURN_IF_ERROR(ReadCounts(line, buffer.layers, buffer.microbatches));
    if (line.Take("first_layer")) {
      MESHWRIGHT_ASSIGN_OR_RETURN(buffer.first_layer, line.Integer("the number of a layer"));
    }
    if (line.Take("bytes")) {
      MESHWRIGHT_RETURN_IF_ERROR(ReadBytes(line, buffer.bytes));
      MESHWRIGHT_RETURN_IF_ERROR(line.Expect("offset"));
      MESHWRIGHT_RETURN_IF_ERROR(ReadBytes(line, buffer.offset));
    }
    if (line.Take("alias")) {
      constexpr absl::string_view kWhat = "a buffer above this one";
      MESHWRIGHT_ASSIGN_OR_RETURN(const Reference alias, ReadReference(line, kWhat));
      if (!alias.shift.empty()) return line.Error(alias.token, kWhat);
      MESHWRIGHT_ASSIGN_OR_RETURN(buffer.alias, buffers_.Find<BufferTag>(line, alias, kWhat));
    }
    if (line.Take("owner")) {
      MESHWRIGHT_ASSIGN_OR_RETURN(buffer.owner, line.Integer("the place of a rank"));
    }
    if (line.Take("init")) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const size_t kind, line.Choice(kInitNames, "how it starts"));
      buffer.init.kind = static_cast<Initializer::Kind>(kind);
      MESHWRIGHT_RETURN_IF_ERROR(ReadFields(line, buffer.init));
    }
    buffer.trainable = !line.Take("frozen");
    buffers_.Add(buffer.name);
    Class().buffers.push_back(std::move(buffer));
    return absl::OkStatus();
  }

  absl::Status ReadEvent(Line& line) {
    Event event;
    MESHWRIGHT_ASSIGN_OR_RETURN(event.name, line.Name());
    MESHWRIGHT_RETURN_IF_ERROR(ReadCounts(line, event.layers, event.microbatches));
    events_.Add(event.name);
    Class().events.push_back(std::move(event));
    return absl::OkStatus();
  }

  absl::Status ReadBlock(Line& line) {
    Block block;
    MESHWRIGHT_ASSIGN_OR_RETURN(block.name, line.Name());
    MESHWRIGHT_ASSIGN_OR_RETURN(const size_t phase, line.Choice(kPhaseNames, "a phase"));
    block.phase = static_cast<Phase>(phase);
    blocks_.Add(block.name);
    Class().blocks.push_back(std::move(block));
    return absl::OkStatus();
  }

  absl::Status ReadSlot(Line& line, std::vector<Slot>& slots) {
    Slot slot;
    constexpr absl::string_view kWhat = "a block of this class";
    MESHWRIGHT_ASSIGN_OR_RETURN(const Reference block, ReadReference(line, kWhat));
    if (!block.shift.empty()) return line.Error(block.token, kWhat);
    MESHWRIGHT_ASSIGN_OR_RETURN(slot.block, blocks_.Find<BlockTag>(line, block, kWhat));
    MESHWRIGHT_RETURN_IF_ERROR(line.Expect("mb"));
    MESHWRIGHT_ASSIGN_OR_RETURN(slot.microbatch, line.Integer("the number of a micro-batch"));
    MESHWRIGHT_RETURN_IF_ERROR(line.Expect("layer"));
    MESHWRIGHT_ASSIGN_OR_RETURN(slot.layer, line.Integer("the number of a layer"));
    if (!line.AtEnd()) {
      const Token times = line.Next();
      if (times.text[0] != 'x' || !absl::SimpleAtoi(times.text.substr(1), &slot.count)) {
        return line.Error(times, "how many layers, as in x4");
      }
      if (line.Take("down")) {
        slot.step = -1;
      } else if (line.Take("step")) {
        MESHWRIGHT_ASSIGN_OR_RETURN(slot.step, line.Integer("a step from layer to layer"));
      } else {
        MESHWRIGHT_RETURN_IF_ERROR(line.Take("up") ? absl::OkStatus() : line.Error("up or down"));
      }
    }
    slots.push_back(slot);
    return absl::OkStatus();
  }

  absl::Status ReadInstruction(Line& line) {
    Instruction instruction;
    std::string rule;  // as written
    Token rule_token;  // where
    MESHWRIGHT_RETURN_IF_ERROR(ReadStreamAndWork(line, instruction, rule, rule_token));
    if (line.Take("reads")) MESHWRIGHT_RETURN_IF_ERROR(ReadOperands(line, instruction.reads));
    if (line.Take("writes")) MESHWRIGHT_RETURN_IF_ERROR(ReadOperands(line, instruction.writes));
    if (line.Take("waits")) MESHWRIGHT_RETURN_IF_ERROR(ReadEventRefs(line, instruction.waits));
    if (line.Take("records")) MESHWRIGHT_RETURN_IF_ERROR(ReadEventRefs(line, instruction.records));
    if (!line.AtEnd()) MESHWRIGHT_RETURN_IF_ERROR(ReadOrigin(line, instruction.origin));
    if (auto* compute = std::get_if<Compute>(&instruction.work)) {
      MESHWRIGHT_RETURN_IF_ERROR(SetRule(line, rule, rule_token, instruction, *compute));
    }
    Class().blocks.back().instructions.push_back(std::move(instruction));
    return absl::OkStatus();
  }

  absl::Status ReadStreamAndWork(Line& line, Instruction& instruction, std::string& rule, Token& rule_token) {
    if (line.AtEnd()) return line.Error("a stream");
    MESHWRIGHT_ASSIGN_OR_RETURN(const size_t stream,
                                line.Choice(NamesUpTo(LastBefore(Stream::kNumStreams)),
                                            "class, buffer, event, block, slot or the stream of an instruction"));
    instruction.stream = static_cast<Stream>(stream);
    if ((instruction.stream == Stream::kSend && line.IsWord("to")) || line.Take("send")) {
      return ReadTransfer(line, true, instruction);
    }
    if ((instruction.stream == Stream::kReceive && line.IsWord("from")) || line.Take("receive")) {
      return ReadTransfer(line, false, instruction);
    }
    if (line.Take("slice")) {
      instruction.work = Slice{};
      return absl::OkStatus();
    }
    if (line.Take("permute")) {
      return ReadPermute(line, instruction);
    }
    if (line.Take("sync")) {
      instruction.work = Sync{};
      return absl::OkStatus();
    }
    const Token& token = line.Peek();
    if (token.kind == Token::Kind::kWord) {
      if (const std::optional<CollectiveKind> kind = CollectiveKindFromName(token.text)) {
        line.Next();
        return ReadCollective(line, *kind, instruction);
      }
      if (const std::optional<OpKind> op = OpKindFromName(token.text)) {
        line.Next();
        return ReadCompute(line, *op, instruction, rule, rule_token);
      }
    }
    return line.Error("an op, a collective, slice, permute, sync, send or receive");
  }

  absl::Status ReadPermute(Line& line, Instruction& instruction) {
    Permute permute;
    if (line.IsMark("(")) {
      MESHWRIGHT_ASSIGN_OR_RETURN(permute.axes, ReadAxes(line));
      MESHWRIGHT_RETURN_IF_ERROR(line.Expect("from"));
      const int64_t ranks = program_.mesh.SizeOf(permute.axes);
      for (int64_t place = 0; place < ranks; ++place) {
        MESHWRIGHT_ASSIGN_OR_RETURN(const int32_t source, line.Integer32("the place of a rank, or -1"));
        permute.sources.push_back(source);
      }
    }
    instruction.work = std::move(permute);
    return absl::OkStatus();
  }

  absl::Status ReadTransfer(Line& line, bool send, Instruction& instruction) {
    Transfer transfer;
    transfer.send = send;
    MESHWRIGHT_RETURN_IF_ERROR(line.Expect(send ? "to" : "from"));
    MESHWRIGHT_ASSIGN_OR_RETURN(transfer.stage_offset, line.Integer32("how many stages away, as in +1"));
    MESHWRIGHT_ASSIGN_OR_RETURN(transfer.purpose, ReadPurpose(line));
    instruction.work = transfer;
    return absl::OkStatus();
  }

  absl::StatusOr<Purpose> ReadPurpose(Line& line) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const size_t purpose, line.Choice(NamesUpTo(Purpose::kReport), "a purpose"));
    return static_cast<Purpose>(purpose);
  }

  absl::StatusOr<AxisList> ReadAxes(Line& line) {
    AxisList axes;
    MESHWRIGHT_RETURN_IF_ERROR(line.ExpectMark("("));
    while (!line.TakeMark(")")) {
      if (!axes.empty()) MESHWRIGHT_RETURN_IF_ERROR(line.ExpectMark(","));
      MESHWRIGHT_ASSIGN_OR_RETURN(const AxisId axis, ReadAxis(line));
      axes.push_back(axis);
    }
    return axes;
  }

  absl::Status ReadCollective(Line& line, CollectiveKind kind, Instruction& instruction) {
    Collective collective;
    collective.kind = kind;
    if (InfoOf(kind).reduces || !line.IsMark("(")) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const size_t reduction, line.Choice(NamesUpTo(Reduction::kProd), "a reduction"));
      collective.reduction = static_cast<Reduction>(reduction);
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(collective.axes, ReadAxes(line));
    if (line.Take("dim")) {
      MESHWRIGHT_ASSIGN_OR_RETURN(collective.dim, line.Integer32("the number of a dim"));
    }
    if (line.Take("to")) {
      MESHWRIGHT_ASSIGN_OR_RETURN(collective.to_dim, line.Integer32("the number of a dim"));
    }
    if (line.Take("root")) {
      MESHWRIGHT_ASSIGN_OR_RETURN(collective.root, line.Integer32("the place of a rank"));
      if (line.Take("step")) {
        MESHWRIGHT_ASSIGN_OR_RETURN(collective.root_step, line.Integer32("a number of places"));
      }
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(collective.purpose, ReadPurpose(line));
    instruction.work = std::move(collective);
    return absl::OkStatus();
  }

  absl::StatusOr<AxisId> ReadAxis(Line& line) {
    const Token& token = line.Peek();
    int32_t index = 0;
    if (token.kind == Token::Kind::kWord && token.text[0] == '%' && absl::SimpleAtoi(token.text.substr(1), &index)) {
      line.Next();
      return index < 0 ? AxisId() : AxisId(static_cast<size_t>(index));
    }
    const AxisId axis = program_.mesh.Find(token.text);
    if (!axis.valid()) return line.Error(absl::StrCat("an axis of the mesh ", ToText(program_.mesh)));
    line.Next();
    return axis;
  }

  absl::Status ReadCompute(Line& line, OpKind op, Instruction& instruction, std::string& rule, Token& rule_token) {
    Compute compute;
    compute.op = op;
    rule_token = line.Peek();
    if (rule_token.kind == Token::Kind::kString) rule = line.Next().text;
    compute.accumulate = line.Take("accumulate");
    compute.recompute = line.Take("recompute");
    compute.on_host = line.Take("on_host");
    if (line.Take("turn")) {
      MESHWRIGHT_ASSIGN_OR_RETURN(compute.turn.first, line.Integer32("the place of a rank"));
      if (line.Take("step")) {
        MESHWRIGHT_ASSIGN_OR_RETURN(compute.turn.step, line.Integer32("a number of places"));
      }
    }
    OpAttrs attrs;
    MESHWRIGHT_RETURN_IF_ERROR(ReadFields(line, attrs));
    compute.attrs = std::move(attrs);
    instruction.work = std::move(compute);
    return absl::OkStatus();
  }

  // The rule as written, or the one that the op's row gives.
  absl::Status SetRule(const Line& line, const std::string& text, const Token& token, const Instruction& instruction,
                       Compute& compute) {
    if (token.kind != Token::Kind::kString) {
      std::vector<Shape> shapes;
      for (const Operand& read : instruction.reads) {
        if (!read.buffer.valid() || read.buffer.index() >= Class().buffers.size()) return absl::OkStatus();
        shapes.push_back(Class().buffers[read.buffer.index()].shape);
      }
      compute.rule = DefaultRule(compute.op, shapes);
      return absl::OkStatus();
    }
    if (text.empty()) return absl::OkStatus();
    absl::StatusOr<IndexRule> rule = ParseRule(text);
    if (!rule.ok()) return line.Locate(token, rule.status());
    // "-> m" may mean no input or one without dims; the reads tell.
    if (rule->inputs.empty() && instruction.reads.size() == 1) rule->inputs.emplace_back();
    compute.rule = *std::move(rule);
    return absl::OkStatus();
  }

  // Whether a list of references ends here.
  static bool ListEnds(const Line& line) {
    if (line.AtEnd()) return true;
    for (absl::string_view word : kListWords) {
      if (line.IsWord(word)) return true;
    }
    return line.Peek().kind == Token::Kind::kWord && line.Peek().text[0] == '@';
  }

  static absl::StatusOr<int32_t> ShiftOf(const Line& line, const Reference& reference) {
    int32_t shift = 0;
    if (!reference.shift.empty() && !absl::SimpleAtoi(reference.shift, &shift)) {
      return line.Error(reference.token, "a name and a layer shift, as in x-1");
    }
    return shift;
  }

  absl::Status ReadOperands(Line& line, absl::InlinedVector<Operand, 4>& operands) {
    constexpr absl::string_view kWhat = "a buffer of this class";
    do {
      MESHWRIGHT_ASSIGN_OR_RETURN(const Reference reference, ReadReference(line, kWhat));
      Operand operand;
      MESHWRIGHT_ASSIGN_OR_RETURN(operand.layer_shift, ShiftOf(line, reference));
      MESHWRIGHT_ASSIGN_OR_RETURN(operand.buffer, buffers_.Find<BufferTag>(line, reference, kWhat));
      operands.push_back(operand);
    } while (!ListEnds(line));
    return absl::OkStatus();
  }

  absl::Status ReadEventRefs(Line& line, absl::InlinedVector<EventRef, 2>& refs) {
    constexpr absl::string_view kWhat = "an event of this class";
    do {
      MESHWRIGHT_ASSIGN_OR_RETURN(const Reference reference, ReadReference(line, kWhat));
      EventRef ref;
      MESHWRIGHT_ASSIGN_OR_RETURN(ref.layer_shift, ShiftOf(line, reference));
      MESHWRIGHT_ASSIGN_OR_RETURN(ref.event, events_.Find<EventTag>(line, reference, kWhat));
      refs.push_back(ref);
    } while (!ListEnds(line));
    return absl::OkStatus();
  }

  // @name or @"any name".
  absl::Status ReadOrigin(Line& line, std::string& origin) {
    const Token& token = line.Peek();
    if (token.kind != Token::Kind::kWord || token.text[0] != '@') {
      return line.Error("reads, writes, waits, records (in this order) or @ORIGIN");
    }
    origin = line.Next().text.substr(1);
    if (!origin.empty()) return absl::OkStatus();
    if (!line.Peek().glued || line.Peek().kind != Token::Kind::kString) return line.Error("an origin behind the @");
    origin = line.Next().text;
    return absl::OkStatus();
  }

  Program program_;
  Names buffers_, events_, blocks_;  // of the current class
};

}  // namespace

absl::StatusOr<Program> ParseProgram(absl::string_view text) { return Parser().Run(text); }

}  // namespace meshwright
