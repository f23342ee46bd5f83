// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "cli/commands/job_file.h"
#include "tests/cli/command_fixture.h"

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;

TEST(JobSettingTest, SetsFieldsOfAnyDepthAndType) {
  v1::JobSpec spec;
  spec.mutable_training()->set_steps(7);
  spec.mutable_training()->mutable_optimizer()->set_no_weight_decay("a");
  for (const char* setting :
       {"training.steps=20", "training.optimizer.learning_rate=1e-4",
        "training.optimizer.no_weight_decay=*.norm*, b", "parallelism.fsdp.strategy=hsdp",
        "data.train=/data/a # b: c.txt", "data.validation=/data/h?ld/*", "report.parameter_norms=true"}) {
    EXPECT_TRUE(ApplySetting(setting, spec).empty()) << setting;
  }
  EXPECT_EQ(spec.training().steps(), 20);
  EXPECT_DOUBLE_EQ(spec.training().optimizer().learning_rate(), 1e-4);
  EXPECT_EQ(spec.training().optimizer().no_weight_decay(), "*.norm*, b");
  EXPECT_EQ(spec.parallelism().fsdp().strategy(), v1::STRATEGY_HSDP);
  EXPECT_EQ(spec.data().train(), "/data/a # b: c.txt");
  EXPECT_EQ(spec.data().validation(), "/data/h?ld/*");
  EXPECT_TRUE(spec.report().parameter_norms());
}

TEST(JobSettingTest, SetsListEntriesByIndex) {
  v1::JobSpec spec;
  EXPECT_TRUE(ApplySetting("data.validation_sets=[{path: /a}, {path: /b, name: old}]", spec).empty());
  EXPECT_TRUE(ApplySetting("data.validation_sets[1].name=new", spec).empty());
  EXPECT_TRUE(ApplySetting("data.validation_sets[0]={path: /c}", spec).empty());
  ASSERT_EQ(spec.data().validation_sets_size(), 2);
  EXPECT_EQ(spec.data().validation_sets(0).path(), "/c");
  EXPECT_EQ(spec.data().validation_sets(1).path(), "/b");
  EXPECT_EQ(spec.data().validation_sets(1).name(), "new");
  for (const char* setting : {"data.validation_sets[2].name=x", "data.validation_sets[-1].name=x",
                              "data.validation_sets[1]x.name=x", "data.validation_sets[].name=x",
                              "data.validation_sets.name=x", "training.steps[0]=3"}) {
    EXPECT_FALSE(ApplySetting(setting, spec).empty()) << setting;
  }
  const std::vector<v1::Violation> wrong = ApplySetting("data.validation_sets[1].nmae=x", spec);
  ASSERT_EQ(wrong.size(), 1u);
  EXPECT_EQ(wrong[0].path(), "data.validation_sets[1].nmae");
}

TEST(JobSettingTest, UnknownFieldChangesNothing) {
  v1::JobSpec spec;
  spec.mutable_training()->set_steps(7);
  for (const char* setting :
       {"training.stepz=20", "training.steps=many", "training.steps", "=3", "training..steps=3",
        "training.steps=3\nname: b", "TRAINING.steps=3", "training.steps=null", "training=3"}) {
    EXPECT_FALSE(ApplySetting(setting, spec).empty()) << setting;
  }
  EXPECT_EQ(spec.training().steps(), 7);
  EXPECT_EQ(spec.name(), "");
}

TEST(JobSettingTest, ValueSetsNoOtherField) {
  v1::JobSpec spec;
  ASSERT_TRUE(ApplySetting("data.validation_sets=[{path: /a, name: old}]", spec).empty());
  const std::string before = spec.DebugString();
  for (const char* setting :
       {"name='b', training: {steps: 9}", "name='', training: {steps: 3}",
        "training.recompute=\"x\", steps: 3", "training={steps: 3}, name: b",
        "report={parameter_norms: true}, name: b", "data.validation_sets=[{path: /c}], train: /x",
        "data.validation_sets[0]={path: /c}, {path: /d}", "data.validation_sets[0]={path: /c}, {}",
        "data.validation_sets[0].name='c', path: /c"}) {
    const std::vector<v1::Violation> wrong = ApplySetting(setting, spec);
    ASSERT_EQ(wrong.size(), 1u) << setting;
    EXPECT_EQ(wrong[0].path(), "--set") << setting;
    EXPECT_EQ(spec.DebugString(), before) << setting;
  }
}

class SetTest : public CommandTest {};

TEST_F(SetTest, SubmitSendsWhatTheCommandLineSays) {
  server_->jobs = {SampleJob(v1::JOB_STATE_QUEUED, 1)};
  EXPECT_EQ(Tandem({"submit", "-f", GoodJobFile(), "--set", "training.steps=5", "--set", "training.steps=6",
                    "--set", "name=other"}),
            kOk)
      << console_.err;
  ASSERT_EQ(server_->submitted.size(), 1u);
  EXPECT_EQ(server_->submitted[0].spec().training().steps(), 6);
  EXPECT_EQ(server_->submitted[0].spec().name(), "other");
}

TEST_F(SetTest, ViolationNamesTheOption) {
  const std::string file = GoodJobFile();
  EXPECT_EQ(Tandem({"validate", "-f", file, "--set", "training.steps=0"}), kInvalidSpec);
  EXPECT_THAT(console_.err, testing::StartsWith("--set training.steps: "));
  EXPECT_EQ(Tandem({"validate", "-f", file, "--set", "training.stepz=3"}), kInvalidSpec);
  EXPECT_THAT(console_.err, testing::StartsWith("--set training.stepz: "));
  EXPECT_THAT(console_.err, HasSubstr("steps"));
  EXPECT_EQ(Tandem({"validate", "-f", file, "--set", "steps"}), kInvalidSpec);
  EXPECT_THAT(console_.err, testing::StartsWith("--set: steps is not allowed; allowed: FIELD=VALUE"));
}

}  // namespace
}  // namespace tandem::cli
