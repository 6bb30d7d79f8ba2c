#include "planner/search/bounds.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/inlined_vector.h"
#include "costmodel/memory_overheads.h"
#include "ir/status.h"
#include "planner/lower.h"
#include "planner/schedule.h"
#include "planner/search/balance.h"
#include "planner/search/evaluate.h"
#include "planner/search/parallel_for.h"

namespace meshwright {
namespace {

// Into how many parts the optimizer's work and state on a parameter are split (S11.4).
int64_t Parts(const Probe::Shares& shares, const Combination& combination) {
  const Degrees& degrees = combination.degrees;
  const int64_t replicas = shares.replicas * (degrees.data / degrees.expert_data() / degrees.copies);
  return combination.parallel_optimizer && shares.rows % replicas == 0 ? replicas : 1;
}

int64_t RanksOfClass(const Degrees& degrees) { return degrees.data * degrees.context * degrees.tensor; }

// One stage runs each micro-batch forward and backward at once, whatever the schedule.
Schedule ScheduleOf(const Combination& combination) {
  return combination.degrees.pipeline > 1 ? combination.pipelining.schedule : Schedule::kOneFOneB;
}

int64_t NumParts(const Combination& combination) {
  return combination.degrees.pipeline * combination.pipelining.chunks;
}

// How a combination's layers lie on its stages.
struct Stages {
  Stages(const Probe& probe, const Combination& combination)
      : count(combination.degrees.pipeline),
        schedule(ScheduleOf(combination)),
        chunks(combination.pipelining.chunks * DirectionsOf(schedule)),
        probe(probe) {
    const std::vector<int64_t>& given = combination.layers;
    const std::vector<int64_t> even =
        given.empty() ? EvenLayers(LayersOf(probe.runs), NumParts(combination)) : std::vector<int64_t>();
    int64_t begin = 0;
    for (const int64_t layers : given.empty() ? even : given) {
      AddPart(begin, begin + layers);
      begin += layers;
      ++parts;
    }
  }
  // How often one pass of the chunk runs the segment, which is one of the chain.
  int64_t Layers(size_t segment, int64_t stage, int64_t chunk) const {
    const size_t part = static_cast<size_t>(PartAt(schedule, stage, chunk, count)) % parts;
    return kept[part * probe.stacks.size() + segment - probe.stacks[0].segment];
  }
  // The same of all chunks; of another segment once where the stage has it.
  int64_t Runs(size_t segment, int64_t stage) const {
    if (probe.segments[segment].run < 0) return Has(segment, stage) ? 1 : 0;
    int64_t layers = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) layers += Layers(segment, stage, chunk);
    return layers;
  }
  // And of what the stage updates.
  int64_t OwnRuns(size_t segment, int64_t stage) const {
    if (probe.segments[segment].run < 0) return Owns(segment, stage) ? 1 : 0;
    return BothWays() ? Layers(segment, stage, 0) : Runs(segment, stage);
  }
  // And of its first chunk.
  int64_t FirstRuns(size_t segment, int64_t stage) const {
    if (probe.segments[segment].run >= 0) return Layers(segment, stage, 0);
    return Has(segment, stage) && (chunks == 1 || IsBefore(segment)) ? 1 : 0;
  }
  bool BothWays() const { return DirectionsOf(schedule) > 1; }
  int64_t count;
  Schedule schedule;
  int64_t chunks;
  const Probe& probe;
  size_t parts = 0;
  std::vector<int64_t> kept;  // part by part, how many layers it has of each kind

 private:
  // Layers [begin, end) of the chain.
  void AddPart(int64_t begin, int64_t end) {
    int64_t before = 0;
    for (const Stack& runs : probe.runs) {
      const int64_t all = runs.repeat * runs.layers;
      const int64_t from = std::clamp<int64_t>(begin - before, 0, all), to = std::clamp<int64_t>(end - before, 0, all);
      // Of those in front of a layer every runs.layers-th is of the kind, from the i-th on.
      const auto in_front = [&](int64_t layer, int64_t i) { return (layer + runs.layers - 1 - i) / runs.layers; };
      for (int64_t i = 0; i < runs.layers; ++i) kept.push_back(in_front(to, i) - in_front(from, i));
      before += all;
    }
  }
  // Of a segment that is none of the chain: whether it stands before the layers.
  bool IsBefore(size_t segment) const { return !probe.stacks.empty() && segment < probe.stacks[0].segment; }
  bool Has(size_t segment, int64_t stage) const {
    if (BothWays() && stage == 0) return true;
    return Owns(segment, stage) || (BothWays() && stage + 1 == count);
  }
  bool Owns(size_t segment, int64_t stage) const {
    if (count == 1) return true;
    if (BothWays()) return stage == (IsBefore(segment) ? 0 : count - 1);
    return stage == (IsBefore(segment) ? 0 : StageOfPart(schedule, count * chunks - 1, count));
  }
};

PartCosts PartCostsOf(const Probe& probe) {
  PartCosts costs;
  const auto both = [&](size_t segment) { return probe.segments[segment].forward + probe.segments[segment].backward; };
  for (size_t s = 0; s < probe.segments.size(); ++s) {
    if (probe.segments[s].run < 0) (s < probe.stacks[0].segment ? costs.before : costs.behind) += both(s);
  }
  size_t first = probe.stacks[0].segment;  // the kind of the first layer in a run
  for (const Stack& runs : probe.runs) {
    for (int64_t layer = 0; layer < runs.repeat * runs.layers; ++layer) {
      costs.layers.push_back(both(first + static_cast<size_t>(layer % runs.layers)));
    }
    first += static_cast<size_t>(runs.layers);
  }
  return costs;
}

// How many instances a stage has of a buffer: counted once for all buffers of which there is one for the same things.
class Instances {
 public:
  // `in_flight`: micro-batches, by chunk; outlives this.
  Instances(const Stages& stages, int64_t stage, const std::vector<int64_t>& in_flight)
      : stages_(stages), stage_(stage), in_flight_(in_flight) {
    known_.assign(8 * (stages.probe.stacks.size() + 1), -1);
  }

  int64_t Of(const Probe::BufferUse& use) {
    const bool one_way =
        use.shares.has_value() && stages_.BothWays();  // each direction's state is on one of two stages
    int64_t& known = known_[static_cast<size_t>(8 * (use.layered + 1) + 4 * one_way + 2 * use.border + use.in_flight)];
    if (known < 0) known = Count(use, one_way ? 1 : stages_.chunks);
    return known;
  }

 private:
  int64_t Count(const Probe::BufferUse& use, int64_t chunks) const {
    const std::vector<Stack>& stacks = stages_.probe.stacks;
    const bool each = use.layered >= 0 || use.border;
    int64_t instances = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      int64_t layers = each ? 0 : 1;
      if (use.layered >= 0) {
        layers = stages_.Layers(stacks[static_cast<size_t>(use.layered)].segment, stage_, chunk);
      } else if (use.border) {
        for (const Stack& stack : stacks) layers += stages_.Layers(stack.segment, stage_, chunk);
        ++layers;
      }
      const int64_t held = layers * (use.in_flight ? in_flight_[static_cast<size_t>(chunk)] : 1);
      // What is not of single layers belongs to one of the chunks.
      instances = each || chunk == 0 ? instances + held : std::min(instances, held);
    }
    return instances;
  }

  const Stages& stages_;
  const int64_t stage_;
  const std::vector<int64_t>& in_flight_;
  absl::InlinedVector<int64_t, 24> known_;  // -1: not yet
};

// What a probe that takes less says is taken where it is so many times the device's memory: redistributions of larger
// tensors may be others, which keep a little less.
constexpr double kSurely = 1.1;

// Stages in the middle have fewer micro-batches in flight the later they are, and no more layers.
bool IsLookedAt(int64_t stage, int64_t stages) { return stage <= 1 || stage + 1 == stages; }

}  // namespace

LowerBounds::Key LowerBounds::KeyOf(const Combination& combination) {
  const Degrees& d = combination.degrees;
  return {{d.tensor, d.sequence_parallel, d.expert, d.expert_groups, d.spread_experts, d.context, d.exchange},
          d.microbatch,
          combination.recompute,
          combination.shard_parameters};
}

absl::StatusOr<LowerBounds> LowerBounds::Make(const Problem& problem, const CostModel& costs, const DecoderFacts& facts,
                                              const std::vector<Combination>& combinations, int threads) {
  LowerBounds bounds;
  bounds.batch_ = problem.batch;
  bounds.process_ = ProcessBytes(problem.cluster);
  bounds.surely_ = Bytes(std::llround(kSurely * static_cast<double>(CapacityOf(problem).raw())));
  // What is asked of each program, those that take less first: fewer rows, then more that is computed again.
  using Asked = std::map<bool, std::vector<const Combination*>>;  // by whether parameters are sharded
  std::map<SplitKey, std::map<std::pair<int64_t, int>, Asked>> distinct;
  std::set<std::pair<Key, int64_t>> parts;
  std::optional<Combination> last;  // bounds are of all buckets, and such combinations stand side by side
  for (const Combination& combination : combinations) {
    Combination of_any_bucket = combination;
    of_any_bucket.bucket = Bytes();
    if (last == of_any_bucket) continue;
    last = of_any_bucket;
    const auto& [split, rows, recompute, sharded] = KeyOf(combination);
    distinct[split][{rows, -static_cast<int>(recompute)}][sharded].push_back(&combination);
    bounds.CountInFlight(combination);
    if (combination.degrees.pipeline > 1) parts.insert({KeyOf(combination), NumParts(combination)});
  }
  std::vector<const std::map<std::pair<int64_t, int>, Asked>*> splits;
  for (const auto& [unused, programs] : distinct) splits.push_back(&programs);
  std::vector<Probes> made(splits.size());
  KeptForProbes kept;
  ParallelFor(splits.size(), threads, [&](size_t i) {
    const auto too_large = [&](const Combination* combination) {
      return bounds.PeakOfSmaller(made[i], *combination, bounds.surely_) > bounds.surely_;
    };
    for (const auto& [unused, asked] : *splits[i]) {
      if (absl::c_all_of(asked, [&](const auto& one) { return absl::c_all_of(one.second, too_large); })) continue;
      absl::StatusOr<LoweredProbe> lowered = LowerProbe(problem, costs, facts, *asked.begin()->second[0], kept);
      for (const auto& [sharded, of_sharding] : asked) {
        const Combination& first = *of_sharding[0];
        made[i].emplace(KeyOf(first), lowered.ok() ? ReadProbe(problem, costs, first, *lowered) : lowered.status());
      }
    }
  });
  for (Probes& probes : made) bounds.probes_.merge(probes);
  bounds.Balance(parts);
  return bounds;
}

Bytes LowerBounds::PeakOfSmaller(const Probes& probes, const Combination& combination, Bytes enough) const {
  const auto& [split, unused, recompute, sharded] = KeyOf(combination);
  Bytes peak;
  // In the order of Recompute each computes more again than the one before, and keeps no more.
  for (auto probe = probes.upper_bound({split, combination.degrees.microbatch, Recompute::kLayer, true});
       probe != probes.begin() && peak <= enough;) {
    const auto& [of_split, rows, again, of_sharded] = (--probe)->first;
    if (of_split != split) break;
    if (of_sharded != sharded || again < recompute || !probe->second.ok()) continue;
    peak = std::max(peak, PeakOf(*probe->second, rows, combination));
  }
  return peak;
}

int64_t LowerBounds::MicrobatchesOf(const Combination& combination) const {
  return batch_ / (combination.degrees.data * combination.degrees.microbatch);
}

LowerBounds::FlightKey LowerBounds::FlightKeyOf(const Combination& combination) const {
  return {combination.degrees.pipeline,
          MicrobatchesOf(combination),
          {ScheduleOf(combination), combination.pipelining.chunks}};
}

void LowerBounds::CountInFlight(const Combination& combination) {
  const FlightKey key = FlightKeyOf(combination);
  const auto [found, is_new] = in_flight_.try_emplace(key);
  if (!is_new) return;
  const auto [stages, microbatches, pipelining] = key;
  const Schedule schedule = pipelining.schedule;
  const int64_t chunks = pipelining.chunks * DirectionsOf(schedule);
  const std::vector<std::vector<Pass>> all =
      SplitsBackward(schedule) ? PassesOf(schedule, stages, microbatches, chunks) : std::vector<std::vector<Pass>>();
  for (int64_t s = 0; s < stages; ++s) {
    if (!IsLookedAt(s, stages)) continue;
    const std::vector<Pass> passes =
        all.empty() ? PassesOfStage(schedule, s, stages, microbatches, chunks) : all[static_cast<size_t>(s)];
    for (int64_t chunk = 0; chunk < chunks; ++chunk) found->second[s].push_back(MaxInFlight(passes, chunk));
  }
}

void LowerBounds::Balance(const std::set<std::pair<Key, int64_t>>& asked) {
  for (const auto& [key, parts] : asked) {
    const auto found = probes_.find(key);
    if (found == probes_.end() || !found->second.ok() || found->second->stacks.empty()) continue;
    std::vector<int64_t> layers = BalancedLayers(PartCostsOf(*found->second), parts);
    if (!layers.empty()) balanced_.emplace(std::make_pair(key, parts), std::move(layers));
  }
}

const std::vector<int64_t>& LowerBounds::Balanced(const Combination& combination) const {
  static const std::vector<int64_t>* const kNone = new std::vector<int64_t>();
  if (DirectionsOf(ScheduleOf(combination)) > 1) return *kNone;
  const auto found = balanced_.find({KeyOf(combination), NumParts(combination)});
  return found == balanced_.end() ? *kNone : found->second;
}

absl::StatusOr<LowerBound> LowerBounds::Of(const Combination& combination) const {
  const auto probe = probes_.find(KeyOf(combination));
  if (probe == probes_.end()) return LowerBound{Nanos(), PeakOfSmaller(probes_, combination, surely_)};
  if (!probe->second.ok()) return probe->second.status();
  return LowerBound{StepOf(*probe->second, combination),
                    PeakOf(*probe->second, combination.degrees.microbatch, combination)};
}

Nanos LowerBounds::StepOf(const Probe& probe, const Combination& combination) const {
  const Stages stages(probe, combination);
  const int64_t microbatches = MicrobatchesOf(combination) / DirectionsOf(stages.schedule);  // of a chunk
  const bool in_turns = TakesTurns(stages.schedule);
  Nanos step, forward_before, backward_before;
  Nanos start = Nanos() - kForever, finish = Nanos() - kForever;  // the terms over i, less what runs to stage s
  for (int64_t s = 0; s < stages.count; ++s) {
    Nanos forward, backward, clear, update;
    Nanos first_forward, first_backward;  // of the first chunk
    Nanos run_clear, run_update;          // of the layers of a run so far, those that take longest
    int last_run = -1;
    for (size_t k = 0; k < probe.segments.size(); ++k) {
      const Probe::SegmentCost& cost = probe.segments[k];
      const int64_t runs = stages.Runs(k, s);
      if (runs == 0) continue;
      const Nanos forward_time = in_turns ? cost.forward_kernels : cost.forward;
      const Nanos backward_time = in_turns ? cost.backward_kernels : cost.backward;
      forward += forward_time * runs;
      backward += backward_time * runs;
      const int64_t first = stages.FirstRuns(k, s);
      first_forward += forward_time * first;
      first_backward += backward_time * first;
      const Nanos own_clear = cost.clear * runs;
      Nanos own_update;
      const int64_t own = stages.OwnRuns(k, s);
      for (const auto& [shares, time] : cost.update) own_update += time * own / Parts(shares, combination);
      own_update += cost.in_turns * own / RanksOfClass(combination.degrees);
      // One kernel clears or updates what all layers of a run have, and takes at least as long as for one of them.
      const bool goes_on = cost.run >= 0 && cost.run == last_run;
      if (!goes_on) run_clear = run_update = Nanos();
      clear += std::max(run_clear, own_clear) - run_clear;
      update += std::max(run_update, own_update) - run_update;
      run_clear = std::max(run_clear, own_clear);
      run_update = std::max(run_update, own_update);
      last_run = cost.run;
    }
    start = std::max(start, clear - forward_before);
    finish = std::max(finish, update - backward_before);
    step = std::max(step, start + forward_before + (forward + backward) * microbatches + finish + backward_before);
    if (!stages.BothWays()) forward_before += first_forward;
    // Where gradients of parameters have passes of their own, nobody waits for a stage's last pass.
    if (!SplitsBackward(stages.schedule)) backward_before += first_backward;
  }
  return step;
}

Bytes LowerBounds::PeakOf(const Probe& probe, int64_t rows, const Combination& combination) const {
  const Stages stages(probe, combination);
  const std::map<int64_t, std::vector<int64_t>>& in_flight = in_flight_.at(FlightKeyOf(combination));
  Bytes peak;
  for (int64_t s = 0; s < stages.count; ++s) {
    if (!IsLookedAt(s, stages.count)) continue;
    absl::InlinedVector<bool, 64> here(probe.segments.size()), owned = here;
    Bytes inside;
    for (size_t k = 0; k < probe.segments.size(); ++k) {
      if (stages.Runs(k, s) == 0) continue;
      here[k] = true;
      owned[k] = stages.OwnRuns(k, s) > 0;
      inside = std::max({inside, probe.segments[k].forward_inside, probe.segments[k].backward_inside});
    }
    Instances instances(stages, s, in_flight.at(s));
    Bytes arena = inside;
    for (const Probe::BufferUse& use : probe.buffers) {
      const absl::InlinedVector<bool, 64>& counted = use.shares.has_value() ? owned : here;
      if (absl::c_none_of(use.segments, [&](uint32_t k) { return counted[k]; })) continue;
      Bytes bytes = use.bytes * instances.Of(use);
      if (use.in_flight) bytes = bytes * combination.degrees.microbatch / rows;
      if (use.shares.has_value()) bytes = bytes / Parts(*use.shares, combination);
      arena += bytes;
    }
    peak = std::max(peak, arena);
  }
  return peak + process_;
}

}  // namespace meshwright
