#include "models/callbacks.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<Callbacks> Read(const std::string& callbacks) {
  const absl::StatusOr<Document> document = ParseDocument(absl::StrCat("callbacks: ", callbacks, "\n"), "m.yaml");
  if (!document.ok()) return document.status();
  return ReadCallbacks(document->root()["callbacks"]);
}

TEST(CallbacksTest, WithoutTheSectionEveryStepIsPrintedAndNothingSaved) {
  ASSERT_OK_AND_ASSIGN(const Document document, ParseDocument("name: m\n", "m.yaml"));
  ASSERT_OK_AND_ASSIGN(const Callbacks callbacks, ReadCallbacks(document.root()["callbacks"]));
  EXPECT_EQ(callbacks.loss_monitor.per_print_times, 1);
  EXPECT_EQ(callbacks.loss_monitor.form, LossForm::kMonitor);
  EXPECT_FALSE(callbacks.loss_monitor.all_ranks);
  EXPECT_FALSE(callbacks.model_checkpoint.has_value());
}

TEST(CallbacksTest, ReadsWhatTheFileSays) {
  ASSERT_OK_AND_ASSIGN(
      const Callbacks callbacks,
      Read("{loss_monitor: {per_print_times: 10, form: loop, all_ranks: true}, "
           "model_checkpoint: {directory: \"device/{rank_id}\", prefix: NET, save_checkpoint_steps: 4, "
           "keep_checkpoint_max: 2, integrated_save: false}}"));
  EXPECT_EQ(callbacks.loss_monitor.per_print_times, 10);
  EXPECT_EQ(callbacks.loss_monitor.form, LossForm::kLoop);
  EXPECT_TRUE(callbacks.loss_monitor.all_ranks);
  ASSERT_TRUE(callbacks.model_checkpoint.has_value());
  const ModelCheckpoint& checkpoint = *callbacks.model_checkpoint;
  EXPECT_EQ(checkpoint.directory, "device/{rank_id}");
  EXPECT_EQ(checkpoint.prefix, "NET");
  EXPECT_EQ(checkpoint.save_checkpoint_steps, 4);
  EXPECT_EQ(checkpoint.keep_checkpoint_max, 2);
  EXPECT_FALSE(checkpoint.integrated_save);
}

// S16.5: CKP, every step, five files, whole parameters.
TEST(CallbacksTest, ACheckpointHasTheDefaultsThatUsersKnow) {
  ASSERT_OK_AND_ASSIGN(const Callbacks callbacks, Read("{model_checkpoint: {directory: device}}"));
  ASSERT_TRUE(callbacks.model_checkpoint.has_value());
  EXPECT_EQ(callbacks.model_checkpoint->prefix, "CKP");
  EXPECT_EQ(callbacks.model_checkpoint->save_checkpoint_steps, 1);
  EXPECT_EQ(callbacks.model_checkpoint->keep_checkpoint_max, 5);
  EXPECT_TRUE(callbacks.model_checkpoint->integrated_save);
  EXPECT_EQ(callbacks.loss_monitor.per_print_times, 1);
}

TEST(CallbacksTest, MistakesAreSaidWhereTheyStand) {
  const struct {
    const char *callbacks, *message;
  } cases[] = {
      {"[loss_monitor]", "m.yaml:1:12: callbacks: "},
      {"{loss_monitors: {}}", "callbacks.loss_monitors: found an unknown key"},
      {"{loss_monitor: {per_print_times: 0}}", "m.yaml:1:45: callbacks.loss_monitor.per_print_times: found \"0\""},
      {"{loss_monitor: {per_print_times: often}}", "per_print_times: found \"often\""},
      {"{loss_monitor: {form: short}}", "callbacks.loss_monitor.form: found \"short\", wanted one of monitor, loop"},
      {"{loss_monitor: {all_ranks: 1}}", "callbacks.loss_monitor.all_ranks: found"},
      {"{loss_monitor: {every: 3}}", "callbacks.loss_monitor.every: found an unknown key"},
      {"{model_checkpoint: {}}", "model_checkpoint.directory: "},
      {"{model_checkpoint: {directory: d, prefix: a/b}}", "model_checkpoint.prefix: found"},
      {"{model_checkpoint: {directory: d, save_checkpoint_steps: 0}}", "save_checkpoint_steps: found \"0\""},
      {"{model_checkpoint: {directory: d, keep_checkpoint_max: -1}}", "keep_checkpoint_max: found \"-1\""},
      {"{model_checkpoint: {directory: d, integrated_save: yes}}", "integrated_save: found"},
      {"{model_checkpoint: {directory: d, save_secs: 3}}", "model_checkpoint.save_secs: found an unknown key"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Read(c.callbacks), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message))) << c.callbacks;
  }
}

}  // namespace
}  // namespace meshwright
