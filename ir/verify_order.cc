// Rules 8 to 11: one class plays one step in its order of issue.
//
// What the streams guarantee is kept as vector clocks: for each stream, how many of its instructions are done before an
// instruction starts. A stream passes its clock on to its next instruction, an event to whoever waits for it. Program
// order fixes what every read means, so whatever touches the same memory (one of them writing) must be ordered as it
// was issued. For each buffer instance it is enough to know the last use on each stream and the last write.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ir/program_text.h"
#include "ir/status.h"
#include "ir/verify.h"
#include "ir/verify_internal.h"

namespace meshwright::verify_internal {
namespace {

constexpr size_t kMaxPairs = size_t{1} << 26;  // of instances that share memory: half a gigabyte

// Where the instances of a buffer or event stand in the flat list of all instances, and which one an instruction means.
struct InstanceRef {
  uint32_t base = 0;
  int32_t layers = 1, microbatches = 1;
  int32_t layer_shift = 0;

  uint32_t At(int32_t layer, int32_t microbatch) const {
    const int32_t l = layers == 1 ? 0 : (layer + layer_shift) % layers;
    const int32_t m = microbatches == 1 ? 0 : microbatch % microbatches;
    return base + static_cast<uint32_t>(l * microbatches + m);
  }
};

// An instruction as the player needs it: ranges in the lists of its Step.
struct FlatInstruction {
  uint8_t stream = 0;
  uint32_t reads_end = 0, writes_end = 0;  // from where the one before ends
  uint32_t waits_end = 0, records_end = 0;
  const Transfer* transfer = nullptr;
  bool gathers = false;  // each read into its write
};
struct FlatBlock {
  std::vector<FlatInstruction> instructions;
  std::vector<InstanceRef> reads, writes, waits, records;
};

struct BufferState {
  Clock used = {};          // the last use on each stream
  int32_t write_place = 0;  // the last write
  uint8_t write_stream = 0;
  bool written = false;      // in this step, or lasting from the one before
  bool overwritten = false;  // since then, through a buffer that shares the memory
  uint8_t overwrite_stream = 0;
  int32_t overwrite_place = 0;
};

// Whether everything in `before` is done where `now` holds.
bool Done(const Clock& before, const Clock& now) {
  bool done = true;
  for (size_t s = 0; s < kStreams; ++s) done &= before[s] <= now[s];
  return done;
}

bool Lasts(BufferRole role) {
  return role == BufferRole::kParameter || role == BufferRole::kMaster || role == BufferRole::kOptimizerState;
}

class Player {
 public:
  Player(const Program& program, size_t c) : program_(program), class_(program.classes[c]) {
    uint32_t base = 0;
    for (const Buffer& buffer : class_.buffers) {
      bases_.push_back(base);
      base += static_cast<uint32_t>(buffer.layers * buffer.microbatches);
    }
    bases_.push_back(base);
    buffers_.resize(base);
    uint32_t event_base = 0;
    for (const Event& event : class_.events) {
      event_bases_.push_back(event_base);
      event_base += static_cast<uint32_t>(event.layers * event.microbatches);
    }
    events_.resize(event_base);
    has_pieces_.resize(class_.buffers.size());
    for (size_t b = 0; b < class_.buffers.size(); ++b) {
      const BufferId root = RootOf(class_, BufferId(b));
      if (!Lasts(class_.buffers[b].role) || !IsPieceOf(class_.buffers[b], class_.buffers[root.index()])) continue;
      has_pieces_[root.index()] = true;
    }
    for (size_t b = 0; b < class_.buffers.size(); ++b) {
      if (!Lasts(class_.buffers[b].role) || has_pieces_[b]) continue;
      for (uint32_t i = bases_[b]; i < bases_[b + 1]; ++i) buffers_[i].written = true;
    }
    for (const Block& block : class_.blocks) blocks_.push_back(Flatten(block));
  }

  absl::StatusOr<ClassTransfers> Play() {
    MESHWRIGHT_RETURN_IF_ERROR(CheckEvents());
    if (!FindNeighbours()) return Broken(11, class_, "over 2^26 pairs of buffer instances share memory");
    ClassTransfers result;
    int64_t issued = 0;
    for (issue_.slot = 0; issue_.slot < class_.slots.size(); ++issue_.slot) {
      const Slot& slot = class_.slots[issue_.slot];
      const FlatBlock& block = blocks_[slot.block.index()];
      for (issue_.layer = 0; issue_.layer < slot.count; ++issue_.layer) {
        issued += static_cast<int64_t>(block.instructions.size());
        if (issued > kMaxVerified) {
          result.complete = false;
          return result;
        }
        MESHWRIGHT_RETURN_IF_ERROR(PlayLayer(slot, block, result));
      }
    }
    MESHWRIGHT_RETURN_IF_ERROR(CheckEnd());
    return result;
  }

 private:
  FlatBlock Flatten(const Block& block) const {
    FlatBlock flat;
    for (const Instruction& instruction : block.instructions) {
      for (const Operand& read : instruction.reads) flat.reads.push_back(RefOf(read));
      const auto* compute = std::get_if<Compute>(&instruction.work);
      for (const Operand& write : instruction.writes) {
        const BufferRole role = class_.buffers[write.buffer.index()].role;
        const bool adds =
            compute != nullptr && compute->accumulate && (role == BufferRole::kGradient || role == BufferRole::kLoss);
        if (adds) flat.reads.push_back(RefOf(write));
        flat.writes.push_back(RefOf(write));
      }
      for (const EventRef& ref : instruction.waits) flat.waits.push_back(RefOf(ref));
      for (const EventRef& ref : instruction.records) flat.records.push_back(RefOf(ref));
      FlatInstruction& out = flat.instructions.emplace_back();
      out.stream = static_cast<uint8_t>(instruction.stream);
      out.reads_end = static_cast<uint32_t>(flat.reads.size());
      out.writes_end = static_cast<uint32_t>(flat.writes.size());
      out.waits_end = static_cast<uint32_t>(flat.waits.size());
      out.records_end = static_cast<uint32_t>(flat.records.size());
      out.transfer = std::get_if<Transfer>(&instruction.work);
      const auto* collective = std::get_if<Collective>(&instruction.work);
      out.gathers = collective != nullptr && collective->kind == CollectiveKind::kAllGather;
    }
    return flat;
  }
  InstanceRef RefOf(const Operand& operand) const {
    const Buffer& buffer = class_.buffers[operand.buffer.index()];
    return {bases_[operand.buffer.index()], static_cast<int32_t>(buffer.layers),
            static_cast<int32_t>(buffer.microbatches), operand.layer_shift};
  }
  InstanceRef RefOf(const EventRef& ref) const {
    const Event& event = class_.events[ref.event.index()];
    return {event_bases_[ref.event.index()], static_cast<int32_t>(event.layers),
            static_cast<int32_t>(event.microbatches), ref.layer_shift};
  }

  // For each instance the others that share memory with it: by address where memory is planned, else aliases. False if
  // there are too many.
  bool FindNeighbours() {
    std::vector<std::pair<uint32_t, uint32_t>> pairs;
    if (class_.arena.raw() > 0) {
      if (!PairsByAddress(pairs)) return false;
    } else {
      for (size_t a = 0; a < class_.buffers.size(); ++a) {
        for (size_t b = 0; b < a; ++b) {
          if (!SameAlias(a, b)) continue;
          for (uint32_t i = 0; i < bases_[a + 1] - bases_[a]; ++i) pairs.push_back({bases_[a] + i, bases_[b] + i});
        }
      }
    }
    neighbours_begin_.assign(buffers_.size() + 1, 0);
    for (const auto& [a, b] : pairs) {
      ++neighbours_begin_[a + 1];
      ++neighbours_begin_[b + 1];
    }
    for (size_t i = 1; i < neighbours_begin_.size(); ++i) neighbours_begin_[i] += neighbours_begin_[i - 1];
    neighbours_.resize(2 * pairs.size());
    std::vector<uint32_t> next(neighbours_begin_.begin(), neighbours_begin_.end() - 1);
    for (const auto& [a, b] : pairs) {
      neighbours_[next[a]++] = b;
      neighbours_[next[b]++] = a;
    }
    return true;
  }

  bool SameAlias(size_t a, size_t b) const { return RootOf(class_, BufferId(a)) == RootOf(class_, BufferId(b)); }

  bool PairsByAddress(std::vector<std::pair<uint32_t, uint32_t>>& pairs) const {
    struct Interval {
      int64_t begin, end;
      uint32_t instance;
    };
    std::vector<Interval> intervals;
    for (size_t b = 0; b < class_.buffers.size(); ++b) {
      const Buffer& buffer = class_.buffers[b];
      for (uint32_t i = bases_[b]; i < bases_[b + 1]; ++i) {
        const int64_t begin = buffer.offset.raw() + static_cast<int64_t>(i - bases_[b]) * buffer.bytes.raw();
        intervals.push_back({begin, begin + buffer.bytes.raw(), i});
      }
    }
    std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) {
      return std::pair(a.begin, a.instance) < std::pair(b.begin, b.instance);
    });
    std::vector<Interval> open;  // those that reach beyond the current begin
    for (const Interval& interval : intervals) {
      std::erase_if(open, [&](const Interval& other) { return other.end <= interval.begin; });
      for (const Interval& other : open) {
        const int64_t owner = class_.buffers[BufferOf(interval.instance)].owner;
        const int64_t others = class_.buffers[BufferOf(other.instance)].owner;
        if (owner >= 0 && others >= 0 && owner != others) continue;  // no rank has both
        pairs.push_back({other.instance, interval.instance});
      }
      if (pairs.size() > kMaxPairs) return false;
      open.push_back(interval);
    }
    return true;
  }

  // Rule 8.
  absl::Status CheckEvents() const {
    std::vector<bool> runs(class_.blocks.size(), false), recorded(class_.events.size(), false);
    for (const Slot& slot : class_.slots) runs[slot.block.index()] = true;
    for (size_t b = 0; b < class_.blocks.size(); ++b) {
      if (!runs[b]) continue;
      for (const Instruction& instruction : class_.blocks[b].instructions) {
        for (const EventRef& ref : instruction.records) recorded[ref.event.index()] = true;
      }
    }
    for (size_t b = 0; b < class_.blocks.size(); ++b) {
      if (!runs[b]) continue;
      for (size_t i = 0; i < class_.blocks[b].instructions.size(); ++i) {
        for (const EventRef& ref : class_.blocks[b].instructions[i].waits) {
          if (recorded[ref.event.index()]) continue;
          return Broken(8, program_, class_, class_.blocks[b], i,
                        absl::StrCat("nothing records ", class_.events[ref.event.index()].name));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status PlayLayer(const Slot& slot, const FlatBlock& block, ClassTransfers& result) {
    const auto layer = static_cast<int32_t>(slot.layer + slot.step * issue_.layer);
    const auto microbatch = static_cast<int32_t>(slot.microbatch);
    uint32_t read = 0, write = 0, wait = 0, record = 0;
    for (size_t i = 0; i < block.instructions.size(); ++i) {
      const FlatInstruction& instruction = block.instructions[i];
      issue_.instruction = i;
      Clock& clock = clocks_[instruction.stream];
      for (; wait < instruction.waits_end; ++wait) {
        const Clock& other = events_[block.waits[wait].At(layer, microbatch)];
        for (size_t s = 0; s < kStreams; ++s) clock[s] = std::max(clock[s], other[s]);
      }
      const int32_t place = clock[instruction.stream] + 1;
      if (instruction.transfer != nullptr) {
        result.transfers.push_back(
            {issue_, instruction.transfer, static_cast<Stream>(instruction.stream), place, clock});
      }
      clock[instruction.stream] = place;
      for (; read < instruction.reads_end; ++read) {
        const uint32_t instance = block.reads[read].At(layer, microbatch);
        BufferState& state = buffers_[instance];
        const bool ready = state.written && !state.overwritten && state.write_place <= clock[state.write_stream];
        if (!ready) return ReadError(instance);
        state.used[instruction.stream] = place;
      }
      const uint32_t first_read = i == 0 ? 0 : block.instructions[i - 1].reads_end;
      for (uint32_t w = write; write < instruction.writes_end; ++write) {
        const uint32_t instance = block.writes[write].At(layer, microbatch);
        const std::optional<uint32_t> gathered =
            instruction.gathers ? std::optional(block.reads[first_read + write - w].At(layer, microbatch))
                                : std::nullopt;
        MESHWRIGHT_RETURN_IF_ERROR(Write(instance, gathered, instruction.stream, place, clock));
      }
      for (; record < instruction.records_end; ++record) {
        events_[block.records[record].At(layer, microbatch)] = clock;
      }
    }
    return absl::OkStatus();
  }

  // `gathered` is what the instance is gathered from: a piece of it stays what it is.
  absl::Status Write(uint32_t instance, std::optional<uint32_t> gathered, uint8_t stream, int32_t place,
                     const Clock& clock) {
    BufferState& state = buffers_[instance];
    if (!Done(state.used, clock)) return OrderError(instance, instance, clock);
    for (uint32_t n = neighbours_begin_[instance]; n < neighbours_begin_[instance + 1]; ++n) {
      BufferState& other = buffers_[neighbours_[n]];
      if (!Done(other.used, clock)) return OrderError(instance, neighbours_[n], clock);
      if (other.used[stream] == place && !SameAlias(BufferOf(instance), BufferOf(neighbours_[n]))) {
        return Error(11, absl::StrCat("writes ", Name(instance), ", which shares memory with its operand ",
                                      Name(neighbours_[n])));
      }
      if (neighbours_[n] == gathered && IsPiece(*gathered, instance)) continue;
      other.overwritten = true;
      other.overwrite_stream = stream;
      other.overwrite_place = place;
    }
    state.used[stream] = place;
    state.write_place = place;
    state.write_stream = stream;
    state.written = true;
    state.overwritten = false;
    return absl::OkStatus();
  }

  // A piece of what is no more than an alias lies at its beginning, and not where its rows do.
  bool IsPiece(uint32_t instance, uint32_t of) const {
    const size_t piece = BufferOf(instance), whole = BufferOf(of);
    const Buffer& root = class_.buffers[RootOf(class_, BufferId(piece)).index()];
    return SameAlias(piece, whole) && IsPieceOf(class_.buffers[piece], class_.buffers[whole]) &&
           IsPieceOf(class_.buffers[piece], root);
  }

  // The end of rule 11.
  absl::Status CheckEnd() const {
    for (uint32_t i = 0; i < buffers_.size(); ++i) {
      const Buffer& buffer = class_.buffers[BufferOf(i)];
      if (!Lasts(buffer.role) || !buffers_[i].overwritten || has_pieces_[BufferOf(i)]) continue;
      return Broken(
          11, class_,
          absl::StrCat(NameOf(buffer.role), " ", Name(i), " must last to the next step, but ",
                       Describe(buffers_[i].overwrite_stream, buffers_[i].overwrite_place), " overwrites its memory"));
    }
    return absl::OkStatus();
  }

  // --- messages

  size_t BufferOf(uint32_t instance) const {
    return std::upper_bound(bases_.begin(), bases_.end(), instance) - bases_.begin() - 1;
  }

  // "y", or "y[layer 1, micro-batch 0]" where there are several instances.
  std::string Name(uint32_t instance) const {
    const size_t b = BufferOf(instance);
    const Buffer& buffer = class_.buffers[b];
    if (buffer.layers == 1 && buffer.microbatches == 1) return buffer.name;
    const int64_t i = instance - bases_[b];
    return absl::StrCat(buffer.name, "[layer ", i / buffer.microbatches, ", micro-batch ", i % buffer.microbatches,
                        "]");
  }

  std::string Place(const Issue& issue) const {
    const Slot& slot = class_.slots[issue.slot];
    return absl::StrCat("layer ", slot.layer + slot.step * issue.layer, ", micro-batch ", slot.microbatch);
  }

  // The instruction at this place of a stream, found by counting.
  std::string Describe(size_t stream, int32_t place) const {
    int32_t count = 0;
    Issue issue;
    for (issue.slot = 0; issue.slot < class_.slots.size(); ++issue.slot) {
      const Slot& slot = class_.slots[issue.slot];
      const Block& block = class_.blocks[slot.block.index()];
      for (issue.layer = 0; issue.layer < slot.count; ++issue.layer) {
        for (issue.instruction = 0; issue.instruction < block.instructions.size(); ++issue.instruction) {
          const Instruction& instruction = block.instructions[issue.instruction];
          if (static_cast<size_t>(instruction.stream) != stream || ++count != place) continue;
          return absl::StrCat("block ", block.name, ", instruction ", issue.instruction, " (",
                              ToText(instruction, class_, program_.mesh), ") at ", Place(issue));
        }
      }
    }
    return "nothing";  // not reached: every place counted was issued
  }

  absl::Status Error(int rule, const std::string& what) const {
    const Block& block = class_.blocks[class_.slots[issue_.slot].block.index()];
    return Broken(rule, program_, class_, block, issue_.instruction, absl::StrCat("at ", Place(issue_), ": ", what));
  }

  absl::Status ReadError(uint32_t instance) const {
    const BufferState& state = buffers_[instance];
    if (!state.written) return Error(9, absl::StrCat("reads ", Name(instance), ", which nothing has written"));
    if (state.overwritten) {
      return Error(11, absl::StrCat("reads ", Name(instance), ", whose memory is overwritten by ",
                                    Describe(state.overwrite_stream, state.overwrite_place)));
    }
    return Error(10, absl::StrCat("may read ", Name(instance), " before it is written by ",
                                  Describe(state.write_stream, state.write_place), "; wait for an event"));
  }

  // A write to `instance` is not ordered after the last uses of `other`, which is the same or shares its memory.
  absl::Status OrderError(uint32_t instance, uint32_t other, const Clock& clock) const {
    const BufferState& state = buffers_[other];
    size_t s = 0;
    while (state.used[s] <= clock[s]) ++s;
    const bool wrote = state.write_stream == s && state.write_place == state.used[s];
    const std::string shares = other == instance ? "it" : absl::StrCat(Name(other), ", which shares its memory,");
    return Error(10, absl::StrCat("may write ", Name(instance), " before ", shares, " is ", wrote ? "written" : "read",
                                  " by ", Describe(s, state.used[s]), "; wait for an event"));
  }

  const Program& program_;
  const RankClass& class_;
  std::vector<uint32_t> bases_, event_bases_;  // of the instances of each buffer; one more at the end
  std::vector<FlatBlock> blocks_;
  std::vector<uint32_t> neighbours_begin_, neighbours_;
  std::vector<bool> has_pieces_;      // by buffer: steps leave their rows in aliases of it, and gather them first
  std::vector<BufferState> buffers_;  // by instance
  std::vector<Clock> events_;         // by instance: what is done once the latest record is
  std::array<Clock, kStreams> clocks_ = {};
  Issue issue_;  // what is being issued
};

}  // namespace

absl::StatusOr<ClassTransfers> VerifyOrder(const Program& program, size_t c) { return Player(program, c).Play(); }

}  // namespace meshwright::verify_internal
