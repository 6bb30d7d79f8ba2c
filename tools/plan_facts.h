// What a plan's report says that is found from it, whether for people (plan_text.cc) or for programs (plan_json.cc).
//
// Thread safety: pure functions; references live as long as the report.
#ifndef MESHWRIGHT_TOOLS_PLAN_FACTS_H_
#define MESHWRIGHT_TOOLS_PLAN_FACTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ir/cluster.h"
#include "planner/search/search.h"
#include "tools/plan_report.h"
#include "tools/session.h"
#include "tools/track_record.h"

namespace meshwright {

inline const Candidate& Best(const PlanReport& report) { return report.result.ranked.front(); }

// Of the ranks that have a parameter, those that share what is split of it; 0 where it is all of them, or nothing is.
int64_t GroupOf(const Candidate& candidate);

// What published runs of the kind took, of decoders on devices; null for others. A plan computes all experts of a rank
// in one product (ir/op_list.h), never one after the other.
const TrackRecord* RecordOf(const PlanReport& report);

// Those that a token uses: all but those of other experts.
int64_t ActiveParameters(const PlanReport& report);

const Trainer& UsualTrainer(const Session& session);

// What the record's multiples are of: the best with the habits of a trainer.
const Prediction& LikeARun(const PlanReport& report);

// Seconds of all tokens, as `whatif` has it, but for failures; 0 where nobody says how many.
double RunSeconds(const PlanReport& report);

// Of what the plan uses, the figures that are estimated: one kernel of attention, the device's first.
std::vector<std::string> Estimates(const Cluster& cluster);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_PLAN_FACTS_H_
