#include "costmodel/goodput.h"

#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace meshwright {
namespace {

constexpr Nanos kMinute = Millis(60e3);
constexpr Nanos kHour = kMinute * 60;

TEST(GoodputTest, WithoutFailuresOnlyCheckpointsCost) {
  EXPECT_DOUBLE_EQ(Goodput(1000, kHour, {.checkpoint = kMinute * 3, .restart = kHour}), 60.0 / 63.0);
  EXPECT_EQ(BestCheckpointInterval(1000, {.checkpoint = kMinute, .restart = {}}), kForever);
}

TEST(GoodputTest, IsTheFormulas) {
  // 1,000 devices, 1e-5 failures a device-hour: one each 100 hours. Checkpoints of 6 minutes after each hour, restarts
  // of half an hour: 1 / (100 exp(0.005) (exp(0.011) - 1)).
  const Reliability reliability = {
      .failures_per_device_hour = 1e-5, .checkpoint = kMinute * 6, .restart = kMinute * 30};
  EXPECT_NEAR(Goodput(1000, kHour, reliability), 1 / (100 * std::exp(0.005) * (std::exp(0.011) - 1)), 1e-12);
}

TEST(GoodputTest, TheAssumptionsComeNearWhatThatRunReports) {
  // The paper reports more than 90 % effective training time.
  const Reliability reliability = {.failures_per_device_hour = kPublishedFailuresPerDeviceHour,
                                   .checkpoint = kAssumedCheckpoint,
                                   .restart = kAssumedRestart};
  const Nanos interval = BestCheckpointInterval(16384, reliability);
  EXPECT_GT(Goodput(16384, interval, reliability), 0.85);
  EXPECT_LT(Goodput(16384, interval, reliability), 0.95);
}

TEST(GoodputTest, AgreesWithRunsThatFailAtRandom) {
  // A run is played failure by failure: lost work since the last checkpoint, restarts, failures during both.
  const Reliability reliability = {
      .failures_per_device_hour = 1e-3, .checkpoint = kMinute * 5, .restart = kMinute * 20};
  const int64_t devices = 500;  // a failure each 2 hours
  const double segment = 3600 + 300, restart = 1200, mean = 7200;
  std::mt19937_64 random(1);
  std::exponential_distribution<double> until_failure(1 / mean);
  const int segments = 200'000;
  double time = 0, next_failure = until_failure(random);
  for (int i = 0; i < segments; ++i) {
    double left = segment;
    while (next_failure < left) {
      time += next_failure;
      next_failure = until_failure(random);
      left = segment + restart;
    }
    time += left;
    next_failure -= left;
  }
  // The standard error of the mean of 200,000 segments is below 0.3 %.
  EXPECT_NEAR(Goodput(devices, kHour, reliability) / (segments * 3600.0 / time), 1, 0.01);
}

TEST(BestCheckpointIntervalTest, NoOtherIsBetter) {
  for (const double rate : {1e-6, 1e-5, 1e-4}) {
    for (const int64_t devices : {8, 1024, 16384}) {
      SCOPED_TRACE(absl::StrCat(rate, " failures a device-hour, ", devices, " devices"));
      const Reliability reliability = {
          .failures_per_device_hour = rate, .checkpoint = kMinute, .restart = kMinute * 10};
      const Nanos best = BestCheckpointInterval(devices, reliability);
      for (const double factor : {0.8, 0.95, 1.05, 1.25}) {
        const Nanos other = Nanos(std::llround(static_cast<double>(best.raw()) * factor));
        EXPECT_LE(Goodput(devices, other, reliability), Goodput(devices, best, reliability)) << factor;
      }
    }
  }
}

}  // namespace
}  // namespace meshwright
