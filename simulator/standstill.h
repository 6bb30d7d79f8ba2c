// Why nothing goes on in a play whose streams have tasks left. Private to the library of player.h.
//
// Thread safety: reads what it is given.
#ifndef MESHWRIGHT_SIMULATOR_STANDSTILL_H_
#define MESHWRIGHT_SIMULATOR_STANDSTILL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ir/program.h"
#include "ir/quantities.h"
#include "simulator/play_state.h"
#include "simulator/tasks.h"

namespace meshwright {

class Standstill {
 public:
  // All by class; they must outlive this.
  Standstill(const std::vector<TaskList>& lists, const std::vector<Course>& courses,
             const std::vector<ClassState>& classes)
      : lists_(lists), courses_(courses), classes_(classes) {}

  // Whether some stream has tasks left.
  bool AnyLeft() const { return FirstLeft().task >= 0; }
  // From any stream that is stuck, whoever waits for whom leads into a circle, which is the message
  // (kFailedPrecondition). REQUIRES: AnyLeft(), nothing runs, and no class has taken turns.
  absl::Status Describe(const Program& program, Nanos now) const;

 private:
  // The next task of a stream that never began.
  struct Waiting {
    size_t c = 0;
    int32_t task = -1;
    friend bool operator==(const Waiting&, const Waiting&) = default;
  };

  const Task& TaskOf(const Waiting& waiting) const { return courses_[waiting.c].tasks[waiting.task]; }
  Waiting FirstLeft() const;
  // What a waiting task waits for: the first of its events that has not happened, or else its partner.
  Waiting BlockerOf(const Waiting& waiting) const;
  Waiting HeadBefore(const Waiting& blocker) const;

  const std::vector<TaskList>& lists_;
  const std::vector<Course>& courses_;
  const std::vector<ClassState>& classes_;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_STANDSTILL_H_
