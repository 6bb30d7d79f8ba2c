#include "tools/training_data.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tools/exit_code.h"

namespace meshwright {
namespace {

// Numbers of an idx file's header are big-endian.
std::string Number(uint32_t n) {
  return {static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8), static_cast<char>(n)};
}

// `count` images of 2 x 2 pixels with their labels.
void WriteMnist(const std::string& folder, uint32_t count) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/train-images-idx3-ubyte", std::ios::binary)
      << Number(0x803) << Number(count) << Number(2) << Number(2) << std::string(count * 4, 'p');
  std::ofstream(folder + "/train-labels-idx1-ubyte", std::ios::binary)
      << Number(0x801) << Number(count) << std::string(count, '\3');
}

Training Mnist() {
  Training training;
  training.data = DataSet::kMnist;
  training.batch = 8;
  return training;
}

class TrainingDataTest : public testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("DATA_PATH");
    folder_ = absl::StrCat(std::string(testing::TempDir()), "/mnist");
    std::filesystem::remove_all(folder_);
  }
  std::string folder_;
};

TEST_F(TrainingDataTest, SyntheticDataHasNoEnd) {
  ASSERT_OK_AND_ASSIGN(const TrainingData data, OpenTrainingData(Training(), {}, 1, ""));
  EXPECT_EQ(data.steps_per_epoch, 0);
}

TEST_F(TrainingDataTest, AFileThatNothingWouldReadIsRefused) {
  const absl::Status status = OpenTrainingData(Training(), {}, 1, folder_).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("wanted a model whose training.data is text or mnist"));
}

// 20 images are two batches of eight, and four that are left over.
TEST_F(TrainingDataTest, MnistIsFoundInThreeWays) {
  WriteMnist(folder_, 20);
  Training training = Mnist();
  ASSERT_OK_AND_ASSIGN(const TrainingData by_flag, OpenTrainingData(training, {}, 1, folder_));
  EXPECT_EQ(by_flag.steps_per_epoch, 2);
  training.data_path = folder_;
  EXPECT_OK(OpenTrainingData(training, {}, 1, "").status());
  ::setenv("DATA_PATH", folder_.c_str(), 1);
  EXPECT_OK(OpenTrainingData(Mnist(), {}, 1, "").status());
}

TEST_F(TrainingDataTest, TheFilesMayLieInTrain) {
  WriteMnist(folder_ + "/train", 20);
  ASSERT_OK_AND_ASSIGN(const TrainingData data, OpenTrainingData(Mnist(), {}, 1, folder_));
  EXPECT_EQ(data.steps_per_epoch, 2);
}

TEST_F(TrainingDataTest, WhatIsNotThereIsAnIoError) {
  const absl::Status nowhere = OpenTrainingData(Mnist(), {}, 1, "").status();
  EXPECT_EQ(ExitCodeOf(nowhere), ExitCode::kIo);
  EXPECT_THAT(std::string(nowhere.message()), testing::HasSubstr("give --data=FOLDER or set DATA_PATH"));
  EXPECT_EQ(ExitCodeOf(OpenTrainingData(Mnist(), {}, 1, folder_).status()), ExitCode::kIo);
}

}  // namespace
}  // namespace meshwright
