// The latest values of a function, by what it is given.
//
//   Latest<int64_t, Graph> graphs(64);
//   MESHWRIGHT_ASSIGN_OR_RETURN(const auto graph, graphs.Get(rows, [&] { return Build(rows); }));
//
// Ownership: values are shared with who asked for them. Thread safety: from many threads.
#ifndef MESHWRIGHT_PLANNER_SEARCH_LATEST_H_
#define MESHWRIGHT_PLANNER_SEARCH_LATEST_H_

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/statusor.h"
#include "ir/status.h"

namespace meshwright {

// Made outside the lock: two threads may make the same at once, and one of both is kept.
template <typename Key, typename Value>
class Latest {
 public:
  // Of more, the oldest makes room.
  explicit Latest(size_t most) : most_(most) {}

  // `make`: () -> absl::StatusOr<Value>, the function at `key`.
  template <typename Make>
  absl::StatusOr<std::shared_ptr<const Value>> Get(const Key& key, const Make& make) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (const auto found = values_.find(key); found != values_.end()) return found->second;
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(Value made, make());
    auto value = std::make_shared<const Value>(std::move(made));
    const std::lock_guard<std::mutex> lock(mutex_);
    if (values_.try_emplace(key, value).second) order_.push_back(key);
    if (order_.size() > most_) {
      values_.erase(order_.front());
      order_.pop_front();
    }
    return value;
  }

 private:
  const size_t most_;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const Value>> values_;
  std::deque<Key> order_;  // the oldest first
};

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_LATEST_H_
