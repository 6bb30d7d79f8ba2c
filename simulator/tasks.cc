#include "simulator/tasks.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "ir/status.h"

namespace meshwright {
namespace {

std::string NameOfInstruction(const RankClass& rank_class, const Block& block, size_t index) {
  const std::string& origin = block.instructions[index].origin;
  return absl::StrCat(rank_class.name, ", block \"", block.name, "\", instruction ", index,
                      origin.empty() ? "" : absl::StrCat(" (", origin, ")"));
}

// Which streams record and wait for each event of a class, as bit sets. An event that only one stream knows orders
// nothing that the stream does not order anyway.
class EventStreams {
 public:
  static absl::StatusOr<EventStreams> Of(const RankClass& rank_class) {
    EventStreams streams;
    streams.recorders_.resize(rank_class.events.size());
    streams.waiters_.resize(rank_class.events.size());
    for (const Block& block : rank_class.blocks) {
      for (size_t i = 0; i < block.instructions.size(); ++i) {
        const Instruction& instruction = block.instructions[i];
        for (const auto* refs : {&instruction.waits, &instruction.records}) {
          for (const EventRef& ref : *refs) {
            if (!ref.event.valid() || ref.event.index() >= rank_class.events.size()) {
              return absl::InvalidArgumentError(absl::StrCat(NameOfInstruction(rank_class, block, i),
                                                             " names an event that the class lacks: it has ",
                                                             rank_class.events.size()));
            }
            auto& sets = refs == &instruction.waits ? streams.waiters_ : streams.recorders_;
            sets[ref.event.index()] |= Bit(instruction.stream);
          }
        }
      }
    }
    return streams;
  }

  bool WaitMatters(EventId event, Stream waiter) const { return (recorders_[event.index()] & ~Bit(waiter)) != 0; }
  bool RecordMatters(EventId event) const {
    const uint32_t streams = recorders_[event.index()] | waiters_[event.index()];
    return waiters_[event.index()] != 0 && (streams & (streams - 1)) != 0;
  }

 private:
  static uint32_t Bit(Stream stream) { return uint32_t{1} << static_cast<uint32_t>(stream); }
  std::vector<uint32_t> recorders_, waiters_;
};

struct Communicates {
  bool operator()(const Compute&) const { return false; }
  bool operator()(const Slice&) const { return false; }
  bool operator()(const Sync&) const { return false; }
  bool operator()(const Collective&) const { return true; }
  bool operator()(const Permute&) const { return true; }
  bool operator()(const Transfer&) const { return true; }
};

// Cuts one block into runs.
class BlockCutter {
 public:
  BlockCutter(const RankClass& rank_class, const Block& block, const std::vector<InstructionPrice>& prices,
              const EventStreams& events, bool fold)
      : rank_class_(rank_class), block_(block), prices_(prices), events_(events), fold_(fold) {}

  UnrolledBlock Cut() {
    const bool optimizer = HoldsOptimizer(block_);
    const size_t size = block_.instructions.size();
    result_.pieces.reserve(size);
    of_piece_.reserve(size);
    for (size_t i = 0; i < block_.instructions.size(); ++i) {
      const Instruction& instruction = block_.instructions[i];
      const absl::InlinedVector<EventRef, 2> waits = WaitsThatMatter(instruction);
      const auto* transfer = std::get_if<Transfer>(&instruction.work);
      const bool foldable = fold_ && instruction.stream == Stream::kCompute && transfer == nullptr;
      if (open_ < 0 || !foldable || !waits.empty()) {
        const int32_t run = static_cast<int32_t>(result_.runs.size());
        result_.actions.push_back({false, run});
        Run& fresh = result_.runs.emplace_back();
        fresh.stream = instruction.stream;
        fresh.waits = waits;
        if (transfer != nullptr) {
          fresh.is_transfer = true;
          fresh.send = transfer->send;
          fresh.stage_offset = transfer->stage_offset;
        }
        if (instruction.stream == Stream::kCompute) open_ = foldable ? run : -1;
        current_ = run;
      } else {
        current_ = open_;
      }
      Append(instruction, static_cast<int32_t>(i), UseOf(instruction, block_.phase, optimizer));
      Record(instruction);
    }
    LayTogether();
    return std::move(result_);
  }

 private:
  // Waits for events that only this stream records say nothing; neither does one that this stream has waited for
  // before in this pass of the block, unless the event may have been recorded since.
  absl::InlinedVector<EventRef, 2> WaitsThatMatter(const Instruction& instruction) {
    absl::InlinedVector<EventRef, 2> waits;
    auto& waited = waited_[static_cast<size_t>(instruction.stream)];
    for (const EventRef& ref : instruction.waits) {
      if (!events_.WaitMatters(ref.event, instruction.stream)) continue;
      if (!waited.insert(ref).second && fold_) continue;
      waits.push_back(ref);
    }
    return waits;
  }

  // Pieces of one run must lie together, and kernels of a run may stand between instructions of other streams.
  void LayTogether() {
    if (!std::is_sorted(of_piece_.begin(), of_piece_.end())) {
      std::vector<Piece> pieces;
      pieces.reserve(of_piece_.size());
      for (size_t r = 0; r < result_.runs.size(); ++r) {
        for (size_t i = 0; i < of_piece_.size(); ++i) {
          if (of_piece_[i] == static_cast<int32_t>(r)) pieces.push_back(result_.pieces[i]);
        }
      }
      result_.pieces = std::move(pieces);
    }
    int32_t first = 0;
    result_.alone.reserve(result_.pieces.size() + result_.runs.size());
    for (Run& run : result_.runs) {
      run.first_piece = first;
      run.first_alone = static_cast<int32_t>(result_.alone.size());
      Nanos before;
      for (; first < run.first_piece + run.num_pieces; ++first) {
        const Nanos time = result_.pieces[static_cast<size_t>(first)].price->time;
        result_.alone.push_back({before, time, kWhole});
        before += time;
      }
      result_.alone.push_back({before, Nanos(), kWhole});
    }
  }

  void Append(const Instruction& instruction, int32_t index, TimeUse use) {
    Run& run = result_.runs[static_cast<size_t>(current_)];
    const InstructionPrice& price = prices_[static_cast<size_t>(index)];
    const bool communicates = std::visit(Communicates(), instruction.work);
    result_.pieces.push_back({&price, use, communicates, index});
    of_piece_.push_back(current_);
    ++run.num_pieces;
    run.time += price.time;
    const auto same_use = [use](const auto& entry) { return entry.first == use; };
    const auto entry = std::find_if(run.uses.begin(), run.uses.end(), same_use);
    if (entry == run.uses.end()) {
      run.uses.emplace_back(use, price.time);
    } else {
      entry->second += price.time;
    }
    run.takes |= communicates && price.Takes();
    for (size_t l = 0; communicates && l < kNumLinks; ++l) run.links[l] = std::max(run.links[l], price.links[l]);
    for (const SharedUse& use : price.shared) run.shared = std::max(run.shared, use.link + 1);
  }

  void Record(const Instruction& instruction) {
    Run& run = result_.runs[static_cast<size_t>(current_)];
    for (const EventRef& ref : instruction.records) {
      if (!events_.RecordMatters(ref.event)) continue;
      run.records.push_back(ref);
      for (auto& waited : waited_) {
        for (auto it = waited.begin(); it != waited.end();) it = it->event == ref.event ? waited.erase(it) : ++it;
      }
    }
    if (run.records.empty()) return;
    result_.actions.push_back({true, current_});
    if (current_ == open_) open_ = -1;
  }

  const RankClass& rank_class_;
  const Block& block_;
  const std::vector<InstructionPrice>& prices_;
  const EventStreams& events_;
  const bool fold_;
  UnrolledBlock result_;
  std::vector<int32_t> of_piece_;  // its run
  int32_t open_ = -1;              // the run of the compute stream that the next kernel may join
  int32_t current_ = -1;
  std::array<std::set<EventRef>, kNumStreams> waited_;
};

// Issues the slots of one class after the other.
class Issuer {
 public:
  explicit Issuer(Folding folding) : folding_(folding) {}

  // To `list`, which has the blocks.
  absl::Status Issue(const RankClass& rank_class, TaskList* list) {
    rank_class_ = &rank_class;
    list_ = list;
    if (list->blocks.get() != read_) ReadBlocks(*list->blocks);
    size_t registers = 0;
    rings_.clear();
    for (const Event& event : rank_class.events) {
      rings_.push_back({registers, event.layers, event.microbatches});
      registers += static_cast<size_t>(event.layers * event.microbatches);
    }
    registers_.assign(registers, kNothing);
    for (Steps& block : blocks_) block.is_one_run = folding_ != Folding::kNone && IsOneRun(*block.block);
    for (auto& seen : seen_) seen.fill(-1);
    for (auto& waits : waits_) waits.clear();
    last_.fill(kNothing);
    return IssueSlots();
  }

 private:
  // Classes that share blocks take the same steps, with rings of their own.
  void ReadBlocks(const std::vector<UnrolledBlock>& blocks) {
    read_ = &blocks;
    blocks_.clear();
    steps_.clear();
    refs_.clear();
    for (const UnrolledBlock& block : blocks) {
      Steps& of_block = blocks_.emplace_back(Steps{&block, steps_.size()});
      for (const UnrolledBlock::Action& action : block.actions) {
        const Run& run = block.runs[static_cast<size_t>(action.run)];
        Step& step = steps_.emplace_back(Step{&run, action.run, action.record, LeftOut(run), refs_.size()});
        const auto& refs = action.record ? run.records : run.waits;
        refs_.insert(refs_.end(), refs.begin(), refs.end());
        step.end = refs_.size();
      }
      of_block.end = steps_.size();
      if (ends_.size() < block.runs.size()) ends_.resize(block.runs.size());
    }
  }

  absl::Status IssueSlots() {
    Reserve();
    for (size_t s = 0; s < rank_class_->slots.size(); ++s) {
      const Slot& slot = rank_class_->slots[s];
      if (IsOutOfRange(slot)) {
        return absl::InvalidArgumentError(
            absl::StrCat(rank_class_->name, ", slot ", s, ": block, micro-batch or count is out of range"));
      }
      const Steps& block = blocks_[slot.block.index()];
      const int64_t count = slot.count;
      for (int64_t k = 0; k < count; ++k) {
        const bool may_extend = k > 0 && block.is_one_run;
        if (may_extend && block.block->runs[0].waits.empty()) {
          list_->tasks.back().count = static_cast<int32_t>(count);
          break;
        }
        IssueLayer(block, static_cast<int32_t>(s), slot.microbatch, slot.layer + k * slot.step, may_extend);
        if (!below_.valid()) continue;
        return absl::InvalidArgumentError(absl::StrCat(rank_class_->name, ", slot ", s, ": event \"",
                                                       rank_class_->events[below_.index()].name,
                                                       "\" is named for layer ", layer_below_));
      }
    }
    return absl::OkStatus();
  }

  // Of a block, in issue order: a run is issued, or its end is recorded.
  struct Step {
    const Run* run = nullptr;
    int32_t index = 0;  // of the run, in its block
    bool records = false, left_out = false;
    size_t first = 0, end = 0;  // in refs_: what it waits for, or records
  };
  struct Steps {
    const UnrolledBlock* block = nullptr;
    size_t first = 0, end = 0;  // in steps_
    bool is_one_run = false;
  };
  // Of an event: where its registers are.
  struct Ring {
    size_t first = 0;
    int64_t layers = 1, microbatches = 1;
  };

  bool IsOutOfRange(const Slot& slot) const {
    return !slot.block.valid() || slot.block.index() >= blocks_.size() || slot.microbatch < 0 || slot.count < 0;
  }

  // Room for all tasks, if none is folded into the one before.
  void Reserve() {
    std::vector<size_t> times(blocks_.size());
    for (const Slot& slot : rank_class_->slots) {
      if (!IsOutOfRange(slot)) times[slot.block.index()] += static_cast<size_t>(slot.count);
    }
    size_t most = 0;
    std::array<size_t, kNumStreams> on_stream = {};
    for (size_t b = 0; b < blocks_.size(); ++b) {
      for (const Run& run : blocks_[b].block->runs) {
        on_stream[static_cast<size_t>(run.stream)] += LeftOut(run) ? 0 : times[b];
      }
    }
    for (size_t s = 0; s < kNumStreams; ++s) {
      list_->streams[s].reserve(on_stream[s]);
      most += on_stream[s];
    }
    list_->tasks.reserve(most);
    list_->waits.reserve(most);
  }

  // Whether layers of the block can be one task: all of them write the same instance of what the run records, so that
  // only the last record counts.
  bool IsOneRun(const UnrolledBlock& block) const {
    if (block.runs.size() != 1) return false;
    const Run& run = block.runs[0];
    return run.stream == Stream::kCompute && !run.is_transfer && !LeftOut(run) &&
           std::all_of(run.records.begin(), run.records.end(),
                       [&](const EventRef& ref) { return rank_class_->events[ref.event.index()].layers == 1; });
  }

  bool LeftOut(const Run& run) const {
    return folding_ == Folding::kRunsWithoutSyncs && run.time == Nanos() && !run.is_transfer;
  }

  void IssueLayer(const Steps& block, int32_t slot, int64_t microbatch, int64_t layer, bool may_extend) {
    Wait* const ends = ends_.data();
    const Step* const behind = steps_.data() + block.end;
    for (const Step* at = steps_.data() + block.first; at != behind; ++at) {
      const Step& step = *at;
      Wait& end = ends[static_cast<size_t>(step.index)];
      const auto refs = absl::MakeConstSpan(refs_.data() + step.first, step.end - step.first);
      if (step.records) {
        for (const EventRef& ref : refs) RegisterOf(ref, microbatch, layer) = end;
        continue;
      }
      const Run& run = *step.run;
      const size_t stream = static_cast<size_t>(run.stream);
      std::vector<Wait>& waits = waits_[stream];
      for (const EventRef& ref : refs) {
        const Wait& recorded = RegisterOf(ref, microbatch, layer);
        // Streams are in order: what this one has already waited for, and all before it, is done.
        int32_t& latest = seen_[stream][static_cast<size_t>(recorded.stream)];
        if (recorded.stream == run.stream || recorded.task <= latest) continue;
        latest = recorded.task;
        waits.push_back(recorded);
      }
      Wait& last = last_[stream];
      if (step.left_out && (waits.empty() || run.records.empty())) {
        end = last;
        continue;
      }
      if (may_extend && waits.empty()) {
        ++list_->tasks.back().count;
        end = last;
        continue;
      }
      const int32_t previous = last.task;
      last = {static_cast<int32_t>(list_->tasks.size()), last.place + 1, run.stream};
      end = last;
      list_->streams[stream].push_back(last.task);
      const int32_t num_waits = static_cast<int32_t>(waits.size());
      list_->tasks.push_back({block.block, &run, slot, static_cast<int32_t>(layer), 1, previous, last.place,
                              static_cast<int32_t>(list_->waits.size()), num_waits, -1});
      if (num_waits == 0) continue;
      list_->waits.insert(list_->waits.end(), waits.begin(), waits.end());
      waits.clear();
    }
  }

  Wait& RegisterOf(const EventRef& ref, int64_t microbatch, int64_t layer) {
    const Ring& ring = rings_[ref.event.index()];
    int64_t instance = Within(microbatch, ring.microbatches);
    // Where there is only one instance over layers, any layer means it.
    if (ring.layers > 1) {
      const int64_t shifted = layer + ref.layer_shift;
      if (shifted < 0) below_ = ref.event, layer_below_ = shifted;
      instance += Within(std::max<int64_t>(0, shifted), ring.layers) * ring.microbatches;
    }
    return registers_[ring.first + static_cast<size_t>(instance)];
  }
  // i % n: most are below, and a division takes as long as all else here.
  static int64_t Within(int64_t i, int64_t n) { return i < n ? i : i % n; }

  static constexpr Wait kNothing = {-1, -1, Stream::kCompute};

  const Folding folding_;
  const RankClass* rank_class_ = nullptr;
  TaskList* list_ = nullptr;
  const std::vector<UnrolledBlock>* read_ = nullptr;
  EventId below_;  // that is named for a layer below 0
  int64_t layer_below_ = 0;
  std::vector<Steps> blocks_;
  std::vector<Step> steps_;
  std::vector<EventRef> refs_;
  std::vector<Ring> rings_;                                         // by event
  std::vector<Wait> registers_;                                     // the task that recorded last, per event instance
  std::vector<Wait> ends_;                                          // by run of a block: what is over when it is
  std::array<Wait, kNumStreams> last_;                              // tasks that have been issued
  std::array<std::vector<Wait>, kNumStreams> waits_;                // of the next task of each stream
  std::array<std::array<int32_t, kNumStreams>, kNumStreams> seen_;  // the last task of each stream waited for
};

absl::Status CheckPrices(const RankClass& rank_class, const Block& block, const std::vector<InstructionPrice>& prices) {
  if (prices.size() != block.instructions.size()) {
    return absl::InvalidArgumentError(absl::StrCat(rank_class.name, ", block \"", block.name, "\" has ",
                                                   block.instructions.size(), " instructions, the prices are for ",
                                                   prices.size()));
  }
  // Longest instruction that exact sharing can handle: time x kWhole stays within 64 bits.
  constexpr Nanos kLongest = Nanos(100'000'000'000'000);  // 28 hours
  for (size_t i = 0; i < prices.size(); ++i) {
    if (prices[i].time < Nanos()) {
      return absl::InvalidArgumentError(absl::StrCat(NameOfInstruction(rank_class, block, i), " has a negative price"));
    }
    if (prices[i].time > kLongest) {
      return absl::FailedPreconditionError(
          absl::StrCat(NameOfInstruction(rank_class, block, i), " cannot run on this cluster: it would take ",
                       prices[i].time >= kForever ? "for ever (is a link missing?)"
                                                  : absl::StrCat(ToSeconds(prices[i].time) / 3600, " hours")));
    }
  }
  return absl::OkStatus();
}

// Of all blocks of a class, which `rank_class` has.
absl::Status CheckWork(const Program& program, size_t class_index, const RankClass& rank_class) {
  const AxisId stage_axis = program.classes.size() > 1 ? program.mesh.Find("pp") : AxisId();
  for (const Block& block : rank_class.blocks) {
    for (size_t i = 0; i < block.instructions.size(); ++i) {
      const Instruction& instruction = block.instructions[i];
      if (const auto* transfer = std::get_if<Transfer>(&instruction.work)) {
        const int64_t peer = static_cast<int64_t>(class_index) + transfer->stage_offset;
        if (peer >= 0 && peer < static_cast<int64_t>(program.classes.size()) && transfer->stage_offset != 0) continue;
        return absl::InvalidArgumentError(absl::StrCat(NameOfInstruction(rank_class, block, i),
                                                       " is a transfer with stage ", peer, "; there are ",
                                                       program.classes.size(), " stages"));
      }
      const auto* collective = std::get_if<Collective>(&instruction.work);
      if (collective == nullptr || !stage_axis.valid()) continue;
      if (std::find(collective->axes.begin(), collective->axes.end(), stage_axis) != collective->axes.end()) {
        return absl::UnimplementedError(
            absl::StrCat(NameOfInstruction(rank_class, block, i),
                         " is a collective over the stages: its ranks are of several classes"));
      }
    }
  }
  return absl::OkStatus();
}

// What BlockCutter and UseOf ask of a work, of two of one kind.
struct CutsAlike {
  const Work& other;
  bool operator()(const Compute& a) const {
    const Compute& b = std::get<Compute>(other);
    return a.op == b.op && a.recompute == b.recompute;
  }
  bool operator()(const Collective& a) const { return a.purpose == std::get<Collective>(other).purpose; }
  bool operator()(const Transfer& a) const {
    const Transfer& b = std::get<Transfer>(other);
    return a.send == b.send && a.stage_offset == b.stage_offset;
  }
  bool operator()(const Slice&) const { return true; }
  bool operator()(const Permute&) const { return true; }
  bool operator()(const Sync&) const { return true; }
};

// Whether two classes, whose blocks have the same prices, are cut into the same runs.
bool AreCutAlike(const RankClass& a, const RankClass& b) {
  const auto alike = [](const Instruction& x, const Instruction& y) {
    return x.stream == y.stream && x.waits == y.waits && x.records == y.records && x.work.index() == y.work.index() &&
           std::visit(CutsAlike{y.work}, x.work);
  };
  return a.events.size() == b.events.size() &&
         std::equal(a.blocks.begin(), a.blocks.end(), b.blocks.begin(), b.blocks.end(),
                    [&](const Block& one, const Block& other) {
                      return one.phase == other.phase &&
                             std::equal(one.instructions.begin(), one.instructions.end(), other.instructions.begin(),
                                        other.instructions.end(), alike);
                    });
}

absl::StatusOr<std::vector<UnrolledBlock>> CutBlocks(const RankClass& rank_class,
                                                     const std::vector<std::vector<InstructionPrice>>& prices,
                                                     bool fold) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const EventStreams events, EventStreams::Of(rank_class));
  std::vector<UnrolledBlock> blocks;
  blocks.reserve(rank_class.blocks.size());
  for (size_t b = 0; b < rank_class.blocks.size(); ++b) {
    MESHWRIGHT_RETURN_IF_ERROR(CheckPrices(rank_class, rank_class.blocks[b], prices[b]));
    blocks.push_back(BlockCutter(rank_class, rank_class.blocks[b], prices[b], events, fold).Cut());
  }
  return blocks;
}

absl::Status MatchTransfers(const Program& program, std::vector<TaskList>* lists) {
  struct Halves {
    std::vector<int32_t> sends, receives;  // in issue order
  };
  std::map<std::pair<int32_t, int32_t>, Halves> pairs;  // by sender and receiver
  for (size_t c = 0; c < lists->size(); ++c) {
    const std::vector<Task>& tasks = (*lists)[c].tasks;
    const int32_t self = static_cast<int32_t>(c);
    std::array<std::vector<std::vector<int32_t>*>, 2> of_peer;  // receives, sends
    for (auto& of_side : of_peer) of_side.resize(lists->size());
    for (size_t i = 0; i < tasks.size(); ++i) {
      const Run& run = *tasks[i].run;
      if (!run.is_transfer) continue;
      const int32_t peer = self + run.stage_offset;
      auto*& mine = of_peer[run.send ? 1 : 0][static_cast<size_t>(peer)];
      if (mine == nullptr) {
        Halves& halves = pairs[run.send ? std::make_pair(self, peer) : std::make_pair(peer, self)];
        mine = run.send ? &halves.sends : &halves.receives;
        mine->reserve(tasks.size() / 4);
      }
      mine->push_back(static_cast<int32_t>(i));
    }
  }
  for (const auto& [pair, halves] : pairs) {
    const auto& [from, to] = pair;
    const auto& [sends, receives] = halves;
    TaskList& sender = (*lists)[static_cast<size_t>(from)];
    TaskList& receiver = (*lists)[static_cast<size_t>(to)];
    for (size_t i = 0; i < std::min(sends.size(), receives.size()); ++i) {
      sender.tasks[static_cast<size_t>(sends[i])].partner = receives[i];
      receiver.tasks[static_cast<size_t>(receives[i])].partner = sends[i];
    }
    if (sends.size() == receives.size()) continue;
    const bool more_sends = sends.size() > receives.size();
    const int32_t lonely = more_sends ? sends[receives.size()] : receives[sends.size()];
    const size_t where = static_cast<size_t>(more_sends ? from : to);
    return absl::InvalidArgumentError(
        absl::StrCat(program.classes[static_cast<size_t>(from)].name, " sends ", sends.size(), " times to ",
                     program.classes[static_cast<size_t>(to)].name, ", which receives ", receives.size(),
                     " times from it; the first without a partner is ",
                     Describe(program, where, (*lists)[where].tasks[static_cast<size_t>(lonely)])));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<TaskList>> Unroll(const Program& program, const Prices& prices, Folding folding,
                                             const ClassCopies& copies) {
  if (prices.classes.size() != program.classes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the program has ", program.classes.size(),
                                                   " classes, the prices are for ", prices.classes.size()));
  }
  std::vector<TaskList> lists(program.classes.size());
  Issuer issuer(folding);
  for (size_t c = 0; c < program.classes.size(); ++c) {
    const RankClass& written = program.classes[copies.Of(c)];
    if (prices.Of(c).size() != written.blocks.size()) {
      return absl::InvalidArgumentError(absl::StrCat(written.name, " has ", written.blocks.size(),
                                                     " blocks, the prices are for ", prices.Of(c).size()));
    }
    MESHWRIGHT_RETURN_IF_ERROR(CheckWork(program, c, written));
    const RankClass* const before = c > 0 ? &program.classes[copies.Of(c - 1)] : nullptr;
    const bool same_prices = c > 0 && (prices.IndexOf(c - 1) == prices.IndexOf(c) || prices.Of(c - 1) == prices.Of(c));
    if (same_prices && (before == &written || AreCutAlike(*before, written))) {
      lists[c].blocks = lists[c - 1].blocks;
    } else {
      MESHWRIGHT_ASSIGN_OR_RETURN(auto blocks, CutBlocks(written, prices.Of(c), folding != Folding::kNone));
      lists[c].blocks = std::make_shared<const std::vector<UnrolledBlock>>(std::move(blocks));
    }
    MESHWRIGHT_RETURN_IF_ERROR(issuer.Issue(program.classes[c], &lists[c]));
  }
  MESHWRIGHT_RETURN_IF_ERROR(MatchTransfers(program, &lists));
  return lists;
}

std::string Describe(const Program& program, size_t class_index, const Task& task) {
  const RankClass& rank_class = program.classes[class_index];
  const Slot& slot = rank_class.slots[static_cast<size_t>(task.slot)];
  if (rank_class.blocks.empty()) return absl::StrCat(rank_class.name, " slot ", task.slot);  // a copy
  const Block& block = rank_class.blocks[slot.block.index()];
  const Instruction& instruction = block.instructions[static_cast<size_t>(task.piece(0).instruction)];
  return absl::StrCat(
      rank_class.name, " slot ", task.slot, " (", block.name, ", micro-batch ", slot.microbatch, ", layer ", task.layer,
      ") ", task.run->is_transfer ? (task.run->send ? "send " : "receive ") : "",
      instruction.origin.empty() ? absl::StrCat("instruction ", task.piece(0).instruction) : instruction.origin);
}

}  // namespace meshwright
