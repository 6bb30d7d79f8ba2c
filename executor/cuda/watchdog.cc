#include "executor/cuda/watchdog.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/time/clock.h"

namespace meshwright::cuda {
namespace {

constexpr absl::Duration kLongestNap = absl::Milliseconds(100);
constexpr double kGrace = 0.5;  // of the deadline, for the rank's thread to act on its end

}  // namespace

Watchdog::Watchdog(Driver& driver, absl::Duration deadline)
    : driver_(driver), deadline_(deadline), thread_([this] { Run(); }) {}

void Watchdog::Stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::Watch(int64_t index, Communicator communicator) {
  const std::lock_guard<std::mutex> lock(mutex_);
  communicators_.emplace_back(index, communicator);
}

void Watchdog::Begin() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!begun_.has_value()) begun_ = absl::Now();
}

void Watchdog::End() {
  const std::lock_guard<std::mutex> lock(mutex_);
  begun_.reset();
}

std::optional<Watchdog::Failure> Watchdog::failure() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

std::optional<Watchdog::Failure> Watchdog::LookNow() {
  const std::lock_guard<std::mutex> lock(mutex_);
  LookLocked();
  return failure_;
}

// An error of the rank's own says more than that another rank failed.
void Watchdog::LookLocked() {
  if (failure_.has_value() && failure_->error != CommError::kRemote) return;
  for (const auto& [index, communicator] : communicators_) {
    const CommError error = driver_.AsyncError(communicator);
    if (error == CommError::kNone || error == CommError::kInProgress) continue;
    if (!failure_.has_value() || error != CommError::kRemote) failure_ = Failure{index, error};
  }
}

bool Watchdog::expired() {
  const std::lock_guard<std::mutex> lock(mutex_);
  expired_ = expired_ || (begun_.has_value() && absl::Now() - *begun_ > deadline_);
  return expired_;
}

void Watchdog::AbortAll() {
  const std::lock_guard<std::mutex> lock(mutex_);
  AbortLocked();
}

void Watchdog::AbortLocked() {
  if (std::exchange(aborted_, true)) return;
  for (const auto& [index, communicator] : communicators_) driver_.AbortCommunicator(communicator);
  communicators_.clear();
}

void Watchdog::Run() {
  const auto nap = absl::ToChronoNanoseconds(std::min(deadline_ / 20, kLongestNap));
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    LookLocked();
    if (begun_.has_value() && absl::Now() - *begun_ > deadline_) expired_ = true;
    if (begun_.has_value() && absl::Now() - *begun_ > deadline_ * (1 + kGrace)) AbortLocked();
    changed_.wait_for(lock, nap, [&] { return stopping_; });
  }
}

}  // namespace meshwright::cuda
