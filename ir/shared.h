// A value that never changes, so that all copies share it: copying one is counting one more, whatever it holds.
//
//   Shared<IndexRule> rule = *ParseRule("m k, k n -> m n");
//   rule->labels.size();
//   rule.Change([](IndexRule& own) { own.labels[0].whole = true; });  // of this copy; the others keep theirs
//
// Two are equal where their values are; where they share one, nothing is compared. One that was made from nothing has
// no memory and stands for T().
//
// Ownership: counted, by all copies. Thread safety: that of a value; copies in different threads may share.
#ifndef MESHWRIGHT_IR_SHARED_H_
#define MESHWRIGHT_IR_SHARED_H_

#include <memory>
#include <utility>

namespace meshwright {

template <typename T>
class Shared {
 public:
  Shared() = default;
  Shared(T value) : value_(std::make_shared<const T>(std::move(value))) {}  // NOLINT: stands for the value

  const T& operator*() const { return value_ != nullptr ? *value_ : Default(); }
  const T* operator->() const { return &**this; }
  operator const T&() const { return **this; }  // NOLINT: stands for the value

  // Replaces the value by what `edit` makes of a copy: a function of T&.
  template <typename Edit>
  void Change(const Edit& edit) {
    T own = **this;
    edit(own);
    value_ = std::make_shared<const T>(std::move(own));
  }

  friend bool operator==(const Shared& a, const Shared& b) { return a.value_ == b.value_ || *a == *b; }

 private:
  static const T& Default() {
    static const T value;
    return value;
  }

  std::shared_ptr<const T> value_;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_SHARED_H_
