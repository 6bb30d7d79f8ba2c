#include "simulator/standstill.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace meshwright {

Standstill::Waiting Standstill::FirstLeft() const {
  for (size_t c = 0; c < classes_.size(); ++c) {
    for (size_t s = 0; s < kNumStreams; ++s) {
      if (const int32_t task = courses_[c].Head(classes_[c], s); task >= 0) return {c, task};
    }
  }
  return {};
}

Standstill::Waiting Standstill::BlockerOf(const Waiting& waiting) const {
  const Task& task = TaskOf(waiting);
  for (int32_t i = 0; i < task.num_waits; ++i) {
    const Wait& wait = lists_[waiting.c].waits[static_cast<size_t>(task.first_wait + i)];
    if (!courses_[waiting.c].Done(classes_[waiting.c], wait, 0)) return {waiting.c, wait.task};
  }
  return {task.PeerOf(waiting.c), task.partner};
}

Standstill::Waiting Standstill::HeadBefore(const Waiting& blocker) const {
  const size_t stream = static_cast<size_t>(TaskOf(blocker).run->stream);
  return {blocker.c, courses_[blocker.c].Head(classes_[blocker.c], stream)};
}

absl::Status Standstill::Describe(const Program& program, Nanos now) const {
  std::vector<Waiting> path = {FirstLeft()};
  while (std::count(path.begin(), path.end(), path.back()) == 1) {
    path.push_back(HeadBefore(BlockerOf(path.back())));
  }
  const auto name_of = [&](const Waiting& waiting) {
    return meshwright::Describe(program, waiting.c, TaskOf(waiting));
  };
  std::string message =
      absl::StrCat("instructions wait for each other, nothing goes on after ", ToSeconds(now) * 1e3, " ms:");
  for (auto waiting = std::find(path.begin(), path.end(), path.back()); waiting + 1 != path.end(); ++waiting) {
    const Waiting blocker = BlockerOf(*waiting);
    absl::StrAppend(&message, "\n  ", name_of(*waiting), " waits for ", name_of(blocker));
    if (HeadBefore(blocker) == blocker) continue;
    absl::StrAppend(&message, ", which stands on the ", NameOf(TaskOf(blocker).run->stream),
                    " stream behind the next line's");
  }
  return absl::FailedPreconditionError(message);
}

}  // namespace meshwright
