#include "simulator/testing.h"

#include <algorithm>
#include <random>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "simulator/fair_shares.h"

namespace meshwright {
namespace {

Instruction Make(Work work, Stream stream, std::string origin) {
  Instruction instruction;
  instruction.work = std::move(work);
  instruction.stream = stream;
  instruction.origin = std::move(origin);
  return instruction;
}

// One stage of MakePipeline.
class StageBuilder {
 public:
  StageBuilder(const PipelineOptions& options, int64_t stage) : options_(options), stage_(stage) {
    rank_class_.name = absl::StrCat("stage ", stage);
    rank_class_.stage = stage;
    for (size_t i = 0; i < 2; ++i) {
      arrived_[i] = AddEvent("arrived");
      ready_[i] = AddEvent("ready");
    }
    weight_ = AddBuffer("w", BufferRole::kParameter, 1);
    gradient_ = AddBuffer("dw", BufferRole::kGradient, 1);
    kept_ = AddBuffer("kept", BufferRole::kActivation, WarmUp());
    first_ = stage == 0;
    last_ = stage == options.stages - 1;
    if (!first_) receive_forward_ = AddReceive("receive forward", -1, 0, Phase::kForward);
    forward_ = AddLayer("layers forward", "F", Phase::kForward);
    if (!last_) send_forward_ = AddSend("send forward", 1, 0, Phase::kForward);
    if (!last_) receive_backward_ = AddReceive("receive backward", 1, 1, Phase::kBackward);
    backward_ = AddLayer("layers backward", "B", Phase::kBackward);
    if (!first_) send_backward_ = AddSend("send backward", -1, 1, Phase::kBackward);
  }

  RankClass Build() {
    const int64_t m = options_.microbatches;
    const int64_t warm_up = WarmUp();
    for (int64_t i = 0; i < warm_up; ++i) Forward(i);
    for (int64_t i = 0; i < m; ++i) {
      Backward(i);
      if (i + warm_up < m) Forward(i + warm_up);
    }
    if (options_.optimizer) AddOptimizer();
    return std::move(rank_class_);
  }

 private:
  // Micro-batches whose forward pass comes before the first backward pass.
  int64_t WarmUp() const {
    const int64_t m = options_.microbatches;
    return options_.schedule == Schedule::kGpipe ? m : std::min(m, options_.stages - stage_);
  }

  BufferId AddBuffer(std::string name, BufferRole role, int64_t microbatches) {
    Buffer buffer;
    buffer.name = std::move(name);
    buffer.role = role;
    buffer.shape = {64};
    buffer.layout = Layout::Replicated(1);
    buffer.layers = options_.layers;
    buffer.microbatches = microbatches;
    buffer.bytes = Bytes(256);
    rank_class_.buffers.push_back(std::move(buffer));
    return BufferId(rank_class_.buffers.size() - 1);
  }
  EventId AddEvent(std::string name) {
    rank_class_.events.push_back({absl::StrCat(name, rank_class_.events.size()), 1, options_.microbatches});
    return EventId(rank_class_.events.size() - 1);
  }
  BlockId AddBlock(Block block) {
    rank_class_.blocks.push_back(std::move(block));
    return BlockId(rank_class_.blocks.size() - 1);
  }
  BlockId AddReceive(std::string name, int32_t offset, size_t direction, Phase phase) {
    Instruction receive = Make(Transfer{false, offset, Purpose::kActivation}, Stream::kReceive, "X");
    receive.records.push_back({arrived_[direction], 0});
    Instruction sync = Make(Sync{}, Stream::kCompute, "arrival");
    sync.waits.push_back({arrived_[direction], 0});
    return AddBlock({std::move(name), phase, {std::move(receive), std::move(sync)}});
  }
  BlockId AddSend(std::string name, int32_t offset, size_t direction, Phase phase) {
    Instruction sync = Make(Sync{}, Stream::kCompute, "departure");
    sync.records.push_back({ready_[direction], 0});
    Instruction send = Make(Transfer{true, offset, Purpose::kActivation}, Stream::kSend, "X");
    send.waits.push_back({ready_[direction], 0});
    return AddBlock({std::move(name), phase, {std::move(sync), std::move(send)}});
  }
  BlockId AddLayer(std::string name, std::string origin, Phase phase) {
    Block block{std::move(name), phase, {}};
    for (int64_t i = 0; i < options_.instructions; ++i) {
      Instruction& kernel = block.instructions.emplace_back(Make(Compute{}, Stream::kCompute, origin));
      kernel.reads = {{phase == Phase::kForward ? weight_ : kept_}};
      kernel.writes = {{phase == Phase::kForward ? kept_ : gradient_}};
      if (options_.collective_every > 0 && (i + 1) % options_.collective_every == 0) {
        block.instructions.push_back(Make(Collective{}, Stream::kCompute, "T"));
      }
    }
    return AddBlock(std::move(block));
  }
  void AddOptimizer() {
    const EventId ready = AddEvent("gradients"), reduced = AddEvent("reduced");
    Block block{"optimizer", Phase::kBackward, {}};
    block.instructions.push_back(Make(Sync{}, Stream::kCompute, "gradients"));
    block.instructions.back().records.push_back({ready, 0});
    Collective reduce;
    reduce.purpose = Purpose::kGradient;
    block.instructions.push_back(Make(reduce, Stream::kComm, "R"));
    block.instructions.back().waits.push_back({ready, 0});
    block.instructions.back().records.push_back({reduced, 0});
    Compute update;
    update.op = OpKind::kAdamW;
    block.instructions.push_back(Make(update, Stream::kCompute, "U"));
    block.instructions.back().waits.push_back({reduced, 0});
    AddSlot(AddBlock(std::move(block)), 0, 1, 0);
  }

  void AddSlot(BlockId block, int64_t microbatch, int64_t count, int64_t layer) {
    rank_class_.slots.push_back({block, microbatch, layer, count, layer == 0 ? 1 : -1});
  }
  void Forward(int64_t microbatch) {
    if (!first_) AddSlot(receive_forward_, microbatch, 1, 0);
    AddSlot(forward_, microbatch, options_.layers, 0);
    if (!last_) AddSlot(send_forward_, microbatch, 1, 0);
  }
  void Backward(int64_t microbatch) {
    if (!last_) AddSlot(receive_backward_, microbatch, 1, 0);
    AddSlot(backward_, microbatch, options_.layers, options_.layers - 1);
    if (!first_) AddSlot(send_backward_, microbatch, 1, 0);
  }

  const PipelineOptions& options_;
  const int64_t stage_;
  RankClass rank_class_;
  BufferId weight_, gradient_, kept_;
  EventId arrived_[2], ready_[2];
  BlockId receive_forward_, forward_, send_forward_, receive_backward_, backward_, send_backward_;
  bool first_ = false, last_ = false;
};

class RandomProgramMaker {
 public:
  explicit RandomProgramMaker(uint32_t seed) : random_(seed) {}

  Program Build(int64_t most_stages, int64_t ranks_per_stage) {
    const int64_t stages = Up(1, most_stages);
    program_.name = "random";
    program_.num_microbatches = Up(1, 3);
    program_.mesh = Mesh::RowMajor({{"pp", stages}, {"x", ranks_per_stage}});
    program_.classes.resize(static_cast<size_t>(stages));
    for (RankClass& rank_class : program_.classes) {
      rank_class.name = absl::StrCat("stage ", &rank_class - program_.classes.data());
      for (int64_t i = Up(1, 4); i > 0; --i) rank_class.events.push_back({"e", Up(1, 3), Up(1, 3)});
      for (int64_t i = 0; i < kBlocks; ++i) AddBlock(&rank_class, {});
    }
    // All slots in one order that every class agrees with; both halves of a transfer stand at the same place of it.
    for (int64_t i = Up(3, 25); i > 0; --i) {
      const size_t from = static_cast<size_t>(Up(0, stages - 1));
      const size_t to = static_cast<size_t>(Up(0, stages - 1));
      if (from == to) {
        AddSlot(&program_.classes[from], static_cast<size_t>(Up(0, kBlocks - 1)), Up(1, 4));
      } else {
        const int32_t offset = static_cast<int32_t>(to) - static_cast<int32_t>(from);
        AddBlock(&program_.classes[from], Transfer{true, offset, Purpose::kActivation});
        AddSlot(&program_.classes[from], program_.classes[from].blocks.size() - 1, 1);
        AddBlock(&program_.classes[to], Transfer{false, -offset, Purpose::kActivation});
        AddSlot(&program_.classes[to], program_.classes[to].blocks.size() - 1, 1);
      }
    }
    return std::move(program_);
  }

 private:
  static constexpr int64_t kBlocks = 3;  // without transfers; they come first in each class

  int64_t Up(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  bool Chance(int percent) { return Up(1, 100) <= percent; }

  // A random block, which holds `transfer` where its direction is given.
  void AddBlock(RankClass* rank_class, std::optional<Transfer> transfer) {
    Block block{absl::StrCat("block ", rank_class->blocks.size()), Chance(50) ? Phase::kForward : Phase::kBackward, {}};
    const int64_t size = Up(1, 8);
    const int64_t place = transfer.has_value() ? Up(0, size - 1) : -1;
    const bool quiet = Chance(40);  // without events: folds
    for (int64_t i = 0; i < size; ++i) {
      if (i == place) {
        const Stream stream = Chance(20) ? Stream::kCompute : transfer->send ? Stream::kSend : Stream::kReceive;
        block.instructions.push_back(Make(*transfer, stream, "transfer"));
      } else {
        block.instructions.push_back(RandomInstruction(quiet));
      }
      if (quiet) continue;
      Instruction& instruction = block.instructions.back();
      const int64_t events = static_cast<int64_t>(rank_class->events.size());
      while (Chance(25)) instruction.waits.push_back({EventId(static_cast<size_t>(Up(0, events - 1))), Shift()});
      while (Chance(25)) instruction.records.push_back({EventId(static_cast<size_t>(Up(0, events - 1))), Shift()});
    }
    rank_class->blocks.push_back(std::move(block));
  }
  int32_t Shift() { return static_cast<int32_t>(Chance(20) ? Up(0, 1) : 0); }

  Instruction RandomInstruction(bool quiet) {
    const Stream stream = Chance(quiet ? 90 : 60) ? Stream::kCompute : static_cast<Stream>(Up(0, 3));
    switch (Up(0, 9)) {
      case 0:
        return Make(Sync{}, stream, "sync");
      case 1:
        return Make(Permute{}, stream, "permute");
      case 2:
      case 3: {
        Collective collective;
        collective.purpose = static_cast<Purpose>(Up(0, 3));
        return Make(collective, stream, "collective");
      }
      case 4:
        return Make(Slice{}, stream, "slice");
      default: {
        Compute compute;
        compute.recompute = Chance(20);
        return Make(compute, stream, "kernel");
      }
    }
  }

  void AddSlot(RankClass* rank_class, size_t block, int64_t count) {
    const bool down = Chance(50);
    rank_class->slots.push_back(
        {BlockId(block), Up(0, program_.num_microbatches - 1), down ? count - 1 : 0, count, down ? -1 : 1});
  }

  std::mt19937 random_;
  Program program_;
};

// One issued instruction of PlayPlainly.
struct Issued {
  const Instruction* instruction;
  const InstructionPrice* price;
  std::vector<size_t> waits;  // entries, the one before it on its stream included
  size_t partner = SIZE_MAX;
  int64_t remaining = 0;
  bool begun = false, done = false;
};

constexpr int32_t kMostShared = 3;  // links that random prices share between classes

class PlainPlayer {
 public:
  PlainPlayer(const Program& program, const Prices& prices) : program_(program), prices_(prices) {}

  PlainTimes Play() {
    for (size_t c = 0; c < program_.classes.size(); ++c) Issue(c);
    Match();
    while (true) {
      while (BeginSome()) {
      }
      Nanos step = kForever;
      for (size_t i = 0; i < issued_.size(); ++i) {
        if (!Runs(i)) continue;
        const int64_t rate = RateOf(i);
        step = std::min(step, Nanos((issued_[i].remaining + rate - 1) / rate));
      }
      if (step == kForever) break;
      std::vector<int64_t> progress(issued_.size());
      for (size_t i = 0; i < issued_.size(); ++i) progress[i] = Runs(i) ? step.raw() * RateOf(i) : 0;
      now_ += step;
      for (size_t i = 0; i < issued_.size(); ++i) {
        if (!Runs(i)) continue;
        issued_[i].remaining -= progress[i];
        if (issued_[i].remaining <= 0) End(i);
      }
    }
    times_.makespan = now_;
    return std::move(times_);
  }

 private:
  void Issue(size_t c) {
    const RankClass& rank_class = program_.classes[c];
    std::map<std::pair<size_t, int64_t>, size_t> records;  // event and instance: the latest
    std::map<Stream, size_t> last;
    for (size_t s = 0; s < rank_class.slots.size(); ++s) {
      const Slot& slot = rank_class.slots[s];
      const Block& block = rank_class.blocks[slot.block.index()];
      for (int64_t k = 0; k < slot.count; ++k) {
        const int64_t layer = slot.layer + k * slot.step;
        const auto key = [&](const EventRef& ref) {
          const Event& event = rank_class.events[ref.event.index()];
          return std::make_pair(ref.event.index(), InstanceOf(event, layer + ref.layer_shift, slot.microbatch));
        };
        for (size_t i = 0; i < block.instructions.size(); ++i) {
          const Instruction& instruction = block.instructions[i];
          const size_t self = issued_.size();
          Issued issued{&instruction, &prices_.classes[c][slot.block.index()][i], {}};
          if (last.count(instruction.stream) > 0) issued.waits.push_back(last[instruction.stream]);
          for (const EventRef& ref : instruction.waits) {
            if (records.count(key(ref)) > 0) issued.waits.push_back(records[key(ref)]);
          }
          for (const EventRef& ref : instruction.records) records[key(ref)] = self;
          last[instruction.stream] = self;
          issued_.push_back(std::move(issued));
          times_.entries.push_back({c, s, layer, i, Nanos(), Nanos()});
        }
      }
    }
  }

  void Match() {
    std::map<std::pair<int64_t, int64_t>, std::vector<size_t>> sends, receives;  // by sender and receiver
    for (size_t i = 0; i < issued_.size(); ++i) {
      const auto* transfer = std::get_if<Transfer>(&issued_[i].instruction->work);
      if (transfer == nullptr) continue;
      const int64_t self = static_cast<int64_t>(times_.entries[i].class_index);
      const int64_t peer = self + transfer->stage_offset;
      if (transfer->send) {
        sends[{self, peer}].push_back(i);
      } else {
        receives[{peer, self}].push_back(i);
      }
    }
    for (const auto& [pair, entries] : sends) {
      for (size_t n = 0; n < entries.size(); ++n) {
        const size_t receive = receives[pair][n];
        issued_[entries[n]].partner = receive;
        issued_[receive].partner = entries[n];
      }
    }
  }

  bool Runs(size_t i) const { return issued_[i].begun && !issued_[i].done; }
  bool CouldBegin(size_t i) const {
    if (issued_[i].begun) return false;
    return std::all_of(issued_[i].waits.begin(), issued_[i].waits.end(), [&](size_t w) { return issued_[w].done; });
  }

  bool BeginSome() {
    bool some = false;
    for (size_t i = 0; i < issued_.size(); ++i) {
      const size_t partner = issued_[i].partner;
      if (!CouldBegin(i) || (partner != SIZE_MAX && !CouldBegin(partner))) continue;
      Nanos time = issued_[i].price->time;
      if (partner != SIZE_MAX) time = std::max(time, issued_[partner].price->time);
      Begin(i, time);
      if (partner != SIZE_MAX) Begin(partner, time);
      some = true;
    }
    return some;
  }
  void Begin(size_t i, Nanos time) {
    issued_[i].begun = true;
    issued_[i].remaining = time.raw() * kWhole;
    times_.entries[i].begin = now_;
    if (time == Nanos()) End(i);
  }
  void End(size_t i) {
    issued_[i].done = true;
    times_.entries[i].end = now_;
  }

  static bool IsKernel(const Instruction& instruction) {
    return std::holds_alternative<Compute>(instruction.work) || std::holds_alternative<Slice>(instruction.work) ||
           std::holds_alternative<Sync>(instruction.work);
  }

  int64_t RateOf(size_t i) const {
    const int64_t rate = RateOnDevices(i);
    if (issued_[i].price->shared.empty() &&
        (issued_[i].partner == SIZE_MAX || issued_[issued_[i].partner].price->shared.empty())) {
      return rate;
    }
    std::vector<Claim> claims;
    size_t own = 0;
    for (size_t j = 0; j < issued_.size(); ++j) {
      // Both halves of a transfer are one claim, here at the first of them.
      const size_t partner = issued_[j].partner;
      if (!Runs(j) || (partner != SIZE_MAX && partner < j)) continue;
      if (j == i || partner == i) own = claims.size();
      Claim claim{issued_[j].price->shared, {}, static_cast<int32_t>(RateOnDevices(j))};
      if (partner != SIZE_MAX) claim.more_uses = issued_[partner].price->shared;
      claims.push_back(claim);
    }
    ShareFairly(kMostShared, absl::MakeSpan(claims));
    return claims[own].rate;
  }
  int64_t RateOnDevices(size_t i) const {
    const int64_t rate = OwnRateOf(i);
    return issued_[i].partner == SIZE_MAX ? rate : std::min(rate, OwnRateOf(issued_[i].partner));
  }
  int64_t OwnRateOf(size_t i) const {
    int64_t sms = 0, memory = 0;
    std::array<int64_t, kNumLinks> links = {};
    for (size_t j = 0; j < issued_.size(); ++j) {
      if (!Runs(j) || times_.entries[j].class_index != times_.entries[i].class_index) continue;
      if (IsKernel(*issued_[j].instruction)) continue;
      sms += issued_[j].price->multiprocessors;
      memory += issued_[j].price->memory;
      for (size_t l = 0; l < kNumLinks; ++l) links[l] += issued_[j].price->links[l];
    }
    const InstructionPrice& price = *issued_[i].price;
    if (IsKernel(*issued_[i].instruction)) {
      const int64_t taken = price.slowed_by == SlowedBy::kMultiprocessors ? sms
                            : price.slowed_by == SlowedBy::kMemory        ? memory
                                                                          : 0;
      return std::max<int64_t>(kWhole - taken, kLeastRate);
    }
    int64_t rate = kWhole;
    for (size_t l = 0; l < kNumLinks; ++l) {
      if (price.links[l] > 0 && links[l] > kWhole) rate = std::min(rate, int64_t{kWhole} * kWhole / links[l]);
    }
    return rate;
  }

  const Program& program_;
  const Prices& prices_;
  std::vector<Issued> issued_;
  PlainTimes times_;
  Nanos now_;
};

}  // namespace

InstructionPrice KernelPrice(Nanos time) {
  InstructionPrice price;
  price.time = time;
  price.slowed_by = SlowedBy::kMultiprocessors;
  return price;
}

InstructionPrice CommunicationPrice(Nanos time, double multiprocessors, double links) {
  InstructionPrice price;
  price.time = time;
  price.multiprocessors = static_cast<int32_t>(multiprocessors * kWhole);
  price.links.fill(static_cast<int32_t>(links * kWhole));
  return price;
}

Prices UnitPrices(const Program& program, Nanos time) {
  Prices prices;
  for (const RankClass& rank_class : program.classes) {
    auto& blocks = prices.classes.emplace_back();
    for (const Block& block : rank_class.blocks) {
      auto& instructions = blocks.emplace_back(block.instructions.size());
      for (size_t i = 0; i < block.instructions.size(); ++i) {
        if (!std::holds_alternative<Sync>(block.instructions[i].work)) instructions[i].time = time;
      }
    }
  }
  return prices;
}

Prices PricesByOrigin(const Program& program, const std::map<std::string, InstructionPrice>& prices) {
  Prices result = UnitPrices(program, Nanos());
  for (size_t c = 0; c < program.classes.size(); ++c) {
    for (size_t b = 0; b < program.classes[c].blocks.size(); ++b) {
      const std::vector<Instruction>& instructions = program.classes[c].blocks[b].instructions;
      for (size_t i = 0; i < instructions.size(); ++i) {
        const auto found = prices.find(instructions[i].origin);
        if (found != prices.end()) result.classes[c][b][i] = found->second;
      }
    }
  }
  return result;
}

Program MakePipeline(const PipelineOptions& options) {
  Program program;
  program.name = "pipeline";
  program.num_microbatches = options.microbatches;
  program.mesh = Mesh::RowMajor({{"pp", options.stages}});
  for (int64_t stage = 0; stage < options.stages; ++stage) {
    program.classes.push_back(StageBuilder(options, stage).Build());
  }
  return program;
}

Program WithLateReduction(Program pipeline, size_t stage, int64_t back) {
  RankClass& c = pipeline.classes[stage];
  Instruction reduce;
  reduce.work.emplace<Collective>().purpose = Purpose::kGradient;
  reduce.stream = Stream::kComm;
  reduce.origin = "Z";
  for (const Block& block : c.blocks) {
    if (block.name == "send forward") reduce.waits = block.instructions[0].records;
  }
  c.blocks.push_back({"late", Phase::kBackward, {std::move(reduce)}});
  c.slots.push_back({BlockId(c.blocks.size() - 1), pipeline.num_microbatches - back});
  return pipeline;
}

Program RandomProgram(uint32_t seed, int64_t most_stages, int64_t ranks_per_stage) {
  return RandomProgramMaker(seed).Build(most_stages, ranks_per_stage);
}

Program WithClassPerRank(const Program& program) {
  const int64_t stages = static_cast<int64_t>(program.classes.size()), ranks = program.mesh.num_ranks() / stages;
  Program each = program;
  each.mesh = Mesh::RowMajor({{"pp", stages * ranks}});
  each.classes.clear();
  for (RankClass rank_class : program.classes) {
    for (Block& block : rank_class.blocks) {
      for (Instruction& instruction : block.instructions) {
        if (auto* transfer = std::get_if<Transfer>(&instruction.work)) {
          transfer->stage_offset *= static_cast<int32_t>(ranks);
        }
      }
    }
    each.classes.insert(each.classes.end(), static_cast<size_t>(ranks), rank_class);
  }
  return each;
}

Prices WithClassPerRank(const Program& program, const Prices& prices) {
  const size_t ranks = static_cast<size_t>(program.mesh.num_ranks()) / program.classes.size();
  Prices each = prices;
  each.classes.clear();
  for (const auto& of_class : prices.classes) each.classes.insert(each.classes.end(), ranks, of_class);
  return each;
}

Prices RandomPrices(const Program& program, uint32_t seed) {
  std::mt19937 random(seed);
  const auto up = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  const bool contention = up(0, 3) > 0, shared = up(0, 2) == 0;
  Prices prices = UnitPrices(program, Nanos());
  for (size_t c = 0; c < program.classes.size(); ++c) {
    for (size_t b = 0; b < program.classes[c].blocks.size(); ++b) {
      const std::vector<Instruction>& instructions = program.classes[c].blocks[b].instructions;
      for (size_t i = 0; i < instructions.size(); ++i) {
        if (std::holds_alternative<Sync>(instructions[i].work)) continue;
        InstructionPrice& price = prices.classes[c][b][i];
        price.time = Nanos(up(0, 4) == 0 ? 0 : up(1, 50));
        const bool kernel = std::holds_alternative<Compute>(instructions[i].work) ||
                            std::holds_alternative<Slice>(instructions[i].work);
        if (kernel) price.slowed_by = static_cast<SlowedBy>(up(0, 2));
        if (kernel || !contention || up(0, 3) == 0) continue;
        price.multiprocessors = up(0, 5000);
        price.memory = up(0, 5000);
        for (int32_t& link : price.links) link = up(0, 2) == 0 ? 0 : up(1, kWhole);
        for (int32_t link = 0; shared && link < kMostShared; ++link) {
          if (up(0, 1) == 0) price.shared.push_back({link, up(1, 2 * kWhole)});
        }
      }
    }
  }
  return prices;
}

PlainTimes PlayPlainly(const Program& program, const Prices& prices) { return PlainPlayer(program, prices).Play(); }

}  // namespace meshwright
