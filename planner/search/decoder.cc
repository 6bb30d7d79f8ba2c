#include "planner/search/decoder.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "planner/search/bounds.h"
#include "planner/search/fixed_strategies.h"
#include "planner/search/nothing_fits.h"
#include "planner/search/parallel_for.h"
#include "planner/search/space.h"

namespace meshwright {
namespace {

// Simulated together; a constant, so that what is simulated does not depend on the number of threads.
constexpr size_t kBatch = 16;

struct Bounded {
  size_t index;  // in Space::combinations
  LowerBound bound;
};

class DecoderSearch {
 public:
  // All must outlive this.
  DecoderSearch(const Problem& problem, const DecoderFacts& facts, const SpaceOptions& of)
      : problem_(problem),
        facts_(facts),
        costs_(problem.cluster),
        evaluator_(problem, costs_),
        space_(DecoderSpace(problem, facts, of)) {}

  // Only what has the strategies that a file gave.
  void Keep(FixedStrategies& fixed) {
    std::vector<Combination>& all = space_.combinations;
    const auto kept = std::remove_if(
        all.begin(), all.end(), [&](const Combination& combination) { return !fixed.AllKept(combination.degrees); });
    if (kept != all.end()) space_.pruned["other strategies than those of the strategy file"] += all.end() - kept;
    all.erase(kept, all.end());
  }

  // With an empty ranking where nothing fits, or nothing is fast enough. What was simulated before is not simulated
  // again.
  absl::StatusOr<SearchResult> Run(const SearchOptions& options) {
    options_ = options;
    if (!bounded_) MESHWRIGHT_RETURN_IF_ERROR(Bound());
    result_ = bounds_;
    places_.clear();
    fastest_.clear();
    size_t done = 0;
    int64_t slower = 0;
    while (done < order_.size() && !IsSlower(order_[done])) {
      std::vector<size_t> batch;
      for (; done < order_.size() && batch.size() < kBatch && !IsSlower(order_[done]); ++done) {
        if (HasFasterTwin(order_[done])) {
          ++slower;
        } else {
          batch.push_back(order_[done].index);
        }
      }
      MESHWRIGHT_RETURN_IF_ERROR(SimulateBatch(batch, done - batch.size()));
    }
    const bool stopped = done < order_.size();
    slower += static_cast<int64_t>(order_.size() - done);
    if (slower > 0) result_.pruned["slower than the best by the lower bound of its time"] += slower;
    if (options_.faster_than.has_value() && !IsFastEnough() && (stopped || !places_.empty())) {
      result_.none_faster = true;
      return std::move(result_);
    }
    for (auto& [unused, place] : places_) result_.ranked.push_back(std::move(place.candidate));
    if (!options_.predicted_again) MESHWRIGHT_RETURN_IF_ERROR(Complete(result_.ranked));
    return std::move(result_);
  }

 private:
  // What might fit, the lowest bound of the step time first.
  absl::Status Bound() {
    std::vector<Combination>& all = space_.combinations;
    MESHWRIGHT_ASSIGN_OR_RETURN(const LowerBounds bounds,
                                LowerBounds::Make(problem_, costs_, facts_, all, options_.threads));
    result_ = SearchResult();
    result_.considered = space_.considered;
    result_.pruned = space_.pruned;
    AddBalanced(bounds, all);
    const Bytes capacity = CapacityOf(problem_);
    std::optional<Combination> bounded;  // what `bound` is of
    absl::StatusOr<LowerBound> bound;
    for (size_t i = 0; i < all.size(); ++i) {
      // Bounds are of all buckets, and combinations that differ in nothing else stand side by side.
      Combination of_any_bucket = all[i];
      of_any_bucket.bucket = Bytes();
      if (bounded != of_any_bucket) bound = bounds.Of(of_any_bucket);
      bounded = of_any_bucket;
      if (!bound.ok()) {
        MESHWRIGHT_RETURN_IF_ERROR(PruneAfter(bound.status()));
      } else if (bound->peak > capacity) {
        ++result_.pruned["does not fit in memory by the lower bound"];
      } else {
        order_.push_back({i, *bound});
      }
    }
    std::stable_sort(order_.begin(), order_.end(),
                     [](const Bounded& a, const Bounded& b) { return a.bound.step < b.bound.step; });
    bounds_ = std::move(result_);
    bounded_ = true;
    return absl::OkStatus();
  }

  // Of pipelines whose ends have more to do than layers, those with fewer layers there, behind all others.
  void AddBalanced(const LowerBounds& bounds, std::vector<Combination>& all) {
    const size_t even = all.size();
    for (size_t i = 0; i < even; ++i) {
      if (all[i].degrees.pipeline == 1 || !all[i].layers.empty()) continue;
      const std::vector<int64_t>& layers = bounds.Balanced(all[i]);
      if (layers.empty()) continue;
      all.push_back(all[i]);
      all.back().layers = layers;
    }
    result_.considered += static_cast<int64_t>(all.size() - even);
  }

  // A layout that the model does not allow, or that we do not lower, is one the less; all else ends the search.
  absl::Status PruneAfter(const absl::Status& status) {
    if (absl::IsInvalidArgument(status)) {
      // The first that was refused says what for; others of other degrees say the same with other numbers.
      if (refused_.empty()) refused_ = absl::StrCat("an operator does not divide: ", status.message());
      ++result_.pruned[refused_];
    } else if (absl::IsUnimplemented(status)) {
      ++result_.pruned[std::string(status.message())];
    } else {
      return status;
    }
    return absl::OkStatus();
  }

  // `done` came before.
  absl::Status SimulateBatch(const std::vector<size_t>& batch, size_t done) {
    std::vector<std::pair<size_t, Outcome*>> fresh;
    for (const size_t index : batch) {
      const auto [found, is_new] = simulated_.try_emplace(index);
      if (is_new) fresh.push_back({index, &found->second});
    }
    std::mutex progress;
    done += batch.size() - fresh.size();
    ParallelFor(fresh.size(), options_.threads, [&](size_t i) {
      const auto& [index, outcome] = fresh[i];
      outcome->status = EvaluateOne(space_.combinations[index], &outcome->candidate);
      if (options_.progress == nullptr) return;
      const std::lock_guard<std::mutex> lock(progress);
      options_.progress(static_cast<int64_t>(++done), static_cast<int64_t>(order_.size()));
    });
    for (const size_t index : batch) {
      const Outcome& outcome = simulated_.at(index);
      if (!outcome.status.ok()) {
        MESHWRIGHT_RETURN_IF_ERROR(PruneAfter(outcome.status));
        continue;
      }
      if (!outcome.candidate.prediction.fits()) {
        ++result_.pruned["does not fit in memory"];
        continue;
      }
      ++result_.simulated;
      Rank(index, outcome.candidate);
    }
    return absl::OkStatus();
  }

  absl::Status EvaluateOne(const Combination& combination, Candidate* candidate) const {
    MESHWRIGHT_ASSIGN_OR_RETURN(candidate->strategy, StrategyOf(problem_, combination, facts_.sizes));
    MESHWRIGHT_ASSIGN_OR_RETURN(candidate->prediction, evaluator_.Predict(candidate->strategy, Simulated::kWhatFits));
    candidate->degrees = combination.degrees;
    return absl::OkStatus();
  }

  // What has a place is simulated from beginning to end: its prediction says where the time goes, and holds what it was
  // ranked by.
  absl::Status Complete(std::vector<Candidate>& ranked) const {
    std::vector<absl::Status> results(ranked.size());
    ParallelFor(ranked.size(), options_.threads, [&](size_t i) { results[i] = CompleteOne(ranked[i]); });
    for (const absl::Status& result : results) MESHWRIGHT_RETURN_IF_ERROR(result);
    return absl::OkStatus();
  }

  absl::Status CompleteOne(Candidate& candidate) const {
    Prediction& prediction = candidate.prediction;
    if (prediction.time.Total() == prediction.step) return absl::OkStatus();
    MESHWRIGHT_ASSIGN_OR_RETURN(Evaluation whole, evaluator_.Evaluate(candidate.strategy));
    if (whole.prediction.step != prediction.step || whole.prediction.peak != prediction.peak) {
      return absl::InternalError(absl::StrCat("a step of ", candidate.strategy.microbatches, " micro-batches takes ",
                                              whole.prediction.step.raw(), " ns and ", whole.prediction.peak.raw(),
                                              " bytes; it was ranked by ", prediction.step.raw(), " ns and ",
                                              prediction.peak.raw(), " bytes, from fewer of them"));
    }
    prediction = std::move(whole.prediction);
    return absl::OkStatus();
  }

  // --- the ranking -------------------------------------------------------------------------------------------------

  using Group = std::tuple<Degrees, Pipelining, Recompute, bool, bool>;  // all choices but bucket and mostly chunks
  using Order = std::pair<Nanos, size_t>;                                // ties: first in the space
  struct Place {
    Group group;
    Candidate candidate;
  };

  Group GroupOf(size_t index) const {
    const Combination& combination = space_.combinations[index];
    const Pipelining& way = combination.pipelining;
    return {combination.degrees,
            {way.schedule, options_.predicted_again ? way.chunks : 1},
            combination.recompute,
            combination.parallel_optimizer,
            combination.shard_parameters};
  }
  // Whether one of the same group is known to be faster, so that this one could not have its place.
  bool HasFasterTwin(const Bounded& bounded) const {
    const auto found = fastest_.find(GroupOf(bounded.index));
    return found != fastest_.end() && found->second < bounded.bound.step;
  }

  // Whether it could not have a place of those that there are.
  bool IsSlower(const Bounded& bounded) const {
    if (options_.faster_than.has_value() && !IsFastEnough() && bounded.bound.step >= *options_.faster_than) return true;
    return Full() && bounded.bound.step > LastPlace();
  }
  // Whether the best is what was asked for.
  bool IsFastEnough() const {
    return !places_.empty() &&
           (!options_.faster_than.has_value() || places_.begin()->first.first < *options_.faster_than);
  }

  void Rank(size_t index, const Candidate& candidate) {
    const Group group = GroupOf(index);
    Nanos& fastest = fastest_.try_emplace(group, candidate.prediction.step).first->second;
    fastest = std::min(fastest, candidate.prediction.step);
    const Order order = {candidate.prediction.step, index};
    const auto same =
        std::find_if(places_.begin(), places_.end(), [&](const auto& place) { return place.second.group == group; });
    if (same != places_.end()) {
      if (same->first <= order) return;
      places_.erase(same);
    }
    places_.emplace(order, Place{group, candidate});
    if (places_.size() > MostPlaces()) places_.erase(std::prev(places_.end()));
  }
  size_t MostPlaces() const { return static_cast<size_t>(std::max<int64_t>(1, options_.keep)); }
  bool Full() const { return places_.size() == MostPlaces(); }
  Nanos LastPlace() const { return std::prev(places_.end())->first.first; }

  struct Outcome {
    absl::Status status;
    Candidate candidate;
  };

  const Problem& problem_;
  const DecoderFacts& facts_;
  const CostModel costs_;
  const Evaluator evaluator_;
  Space space_;
  bool bounded_ = false;
  std::vector<Bounded> order_;
  SearchResult bounds_;  // what they pruned
  std::string refused_;
  std::map<size_t, Outcome> simulated_;  // by index in Space::combinations

  // Of one run.
  SearchOptions options_;
  SearchResult result_;
  std::map<Order, Place> places_;
  std::map<Group, Nanos> fastest_;  // of what was simulated
};

// ZeRO-3, where it was left to a search that leaves it out.
std::string NotTried(const Problem& problem, const SpaceOptions& of) {
  if (of.parameters_split_over_more_devices || problem.cluster.num_devices() <= kMostDevicesOfSplitParameters ||
      problem.shard_parameters.has_value() || !problem.parallel_optimizer.value_or(true) ||
      problem.stages.value_or(1) > 1) {
    return "";
  }
  return absl::StrCat("parameters split (ZeRO-3, FSDP) over more than ", kMostDevicesOfSplitParameters,
                      " devices, where predictions are too fast; --shard_parameters tries them");
}

// Where the best plan's replicas do not divide the rows of most parameters, so that these stay whole (S11.4).
std::string NotSplit(const DecoderFacts& facts, const Candidate& best) {
  const auto hidden = facts.sizes.find("h");
  const int64_t ranks = best.degrees.data * best.degrees.context / best.degrees.copies;
  if (!best.strategy.parallel_optimizer || hidden == facts.sizes.end() || hidden->second % ranks == 0) return "";
  const int64_t group = std::gcd(hidden->second, ranks);
  return absl::StrCat(
      "the parallel optimizer leaves most parameters whole: ", hidden->second, " rows do not divide into ", ranks,
      group > 1
          ? absl::StrCat("; --optimizer_weight_shard_size=", group, " splits them over groups of so many replicas")
          : "");
}

}  // namespace

class DecoderSearches::Kept {
 public:
  explicit Kept(const Problem& asked) : asked_(asked), problem_(Narrowed(asked)) {}

  absl::StatusOr<SearchResult> Run(const SearchOptions& options) {
    if (!facts_.has_value()) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, problem_.graph(1));
      facts_ = FactsOf(graph);
    }
    SearchResult result;
    // What is left out at first is looked at where nothing else fits.
    for (size_t i = 0; i < std::size(kWidening) && result.ranked.empty() && !result.none_faster; ++i) {
      if (i == searches_.size()) MESHWRIGHT_RETURN_IF_ERROR(Add(kWidening[i]));
      MESHWRIGHT_ASSIGN_OR_RETURN(result, searches_[i]->Run(options));
      result.not_tried = NotTried(problem_, kWidening[i]);
    }
    if (result.none_faster) return result;
    if (result.ranked.empty()) {
      const Space space = DecoderSpace(problem_, *facts_, kWidening[std::size(kWidening) - 1]);
      if (space.combinations.empty()) return NothingValid(asked_, *facts_, result.pruned);
      const absl::Status none = NothingFits(asked_, *facts_, options.threads);
      // Where none could be lowered, the reasons are those of the search.
      return absl::IsInvalidArgument(none) ? NothingValid(asked_, *facts_, result.pruned) : none;
    }
    if (std::string note = NotSplit(*facts_, result.ranked.front()); !note.empty()) {
      result.warnings.push_back(std::move(note));
    }
    return result;
  }

 private:
  absl::Status Add(const SpaceOptions& of) {
    MESHWRIGHT_ASSIGN_OR_RETURN(FixedStrategies fixed, FixedStrategies::Make(problem_, facts_->sizes));
    auto search = std::make_unique<DecoderSearch>(problem_, *facts_, of);
    search->Keep(fixed);
    searches_.push_back(std::move(search));
    return absl::OkStatus();
  }

  const Problem asked_, problem_;
  std::optional<DecoderFacts> facts_;
  std::vector<std::unique_ptr<DecoderSearch>> searches_;  // by widening
};

DecoderSearches::DecoderSearches(const Problem& problem) : kept_(std::make_unique<Kept>(problem)) {}
DecoderSearches::~DecoderSearches() = default;

absl::StatusOr<SearchResult> DecoderSearches::Search(const SearchOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  absl::StatusOr<SearchResult> result = kept_->Run(options);
  if (result.ok()) {
    result->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  return result;
}

absl::StatusOr<SearchResult> SearchDecoder(const Problem& problem, const SearchOptions& options) {
  return DecoderSearches(problem).Search(options);
}

}  // namespace meshwright
