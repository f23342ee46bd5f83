// SPDX-License-Identifier: Apache-2.0
// What `metrics` and `norms` print of a job's reports.
#include <gmock/gmock.h>

#include "tests/cli/command_fixture.h"

namespace tandem::cli {
namespace {

TEST_F(CommandTest, MetricsAreAnObjectALine) {
  for (int step = 1; step <= 5; ++step) {
    server_->reports.push_back(SampleReport(step));
  }
  (*server_->reports[4].mutable_scalars())["validation_loss"] = 2.5;
  server_->reports[3].set_loss(NAN);
  EXPECT_EQ(Tandem({"metrics", "headers", "-o", "json"}), kOk);
  EXPECT_EQ(
      console_.out.substr(0, console_.out.find('\n')),
      R"({"step":1,"loss":5.5,"grad_norm":0.8423,"learning_rate":0.000761,"tokens":4096,"seconds":0.5})");
  const std::vector<nlohmann::json> lines = JsonLines();
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_TRUE(lines[3]["loss"].is_null());
  EXPECT_EQ(lines[4]["validation_loss"], 2.5);
  EXPECT_EQ(Tandem({"metrics", "headers"}), kOk);
  EXPECT_EQ(console_.out.substr(0, console_.out.find('\n')),
            "STEP    LOSS  VALIDATION  GRAD NORM  LEARNING RATE  TOKENS  SECONDS");
  EXPECT_EQ(console_.err, "");
}

TEST_F(CommandTest, MetricsHaveAColumnForEachValidationText) {
  for (int step = 1; step <= 2; ++step) {
    server_->reports.push_back(SampleReport(step));
  }
  auto& scalars = *server_->reports[1].mutable_scalars();
  scalars["validation_loss"] = 2.5;
  scalars["validation_loss/en"] = 2.25;
  scalars["validation_loss/de"] = 2.75;
  EXPECT_EQ(Tandem({"metrics", "headers"}), kOk);
  EXPECT_EQ(console_.out.substr(0, console_.out.find('\n')),
            "STEP    LOSS  VALIDATION      DE      EN  GRAD NORM  LEARNING RATE  TOKENS  SECONDS");
  EXPECT_THAT(console_.out, testing::ContainsRegex("\n +2 +[0-9.]+ +2.5000 +2.7500 +2.2500 "));
}

TEST_F(CommandTest, MetricsMarkNonfiniteSteps) {
  for (int step = 1; step <= 3; ++step) {
    server_->reports.push_back(SampleReport(step));
  }
  server_->reports[1].set_nonfinite(842496);
  server_->reports[1].set_grad_norm(NAN);
  EXPECT_EQ(Tandem({"metrics", "headers"}), kOk);
  EXPECT_THAT(console_.out, testing::ContainsRegex("\n +2 [^\n]* nan [^\n]* 842496 gradient elements not "
                                                   "finite, weights left alone\n +3 [^\n]*[0-9] *\n"));
  EXPECT_EQ(Tandem({"metrics", "headers", "-o", "json"}), kOk);
  EXPECT_THAT(console_.out, testing::HasSubstr("\"grad_norm\":null"));
}

TEST_F(CommandTest, NormsShowTheNewestOrGivenStep) {
  server_->jobs = {SampleJob(v1::JOB_STATE_RUNNING, 4)};
  server_->jobs[0].set_last_step(5);
  server_->table.add_parameters()->set_name("model.embed_tokens.weight");
  server_->table.mutable_parameters(0)->add_shape(256);
  server_->table.mutable_parameters(0)->add_shape(128);
  server_->table.add_parameters()->set_name("model.norm.weight");
  server_->table.mutable_parameters(1)->add_shape(128);
  for (int step = 1; step <= 5; ++step) {
    v1::StepReport report = SampleReport(step);
    for (const double weight : {40.0, 11.3}) {
      report.mutable_norms()->add_weight(weight);
      report.mutable_norms()->add_gradient(0.2 * step);
      report.mutable_norms()->add_update(0.01 * step);
    }
    server_->reports.push_back(report);
  }
  EXPECT_EQ(Tandem({"norms", "headers"}), kOk);
  EXPECT_EQ(console_.out,
            "STEP 5                     SHAPE    WEIGHT  GRADIENT  UPDATE  UPDATE/WEIGHT\n"
            "model.embed_tokens.weight  256x128    40.0      1.00  0.0500       1.25e-03\n"
            "model.norm.weight          128        11.3      1.00  0.0500       4.42e-03\n");
  EXPECT_EQ(Tandem({"norms", "headers", "--step", "2", "--top", "1", "-o", "json"}), kOk);
  EXPECT_EQ(
      console_.out,
      R"({"step":2,"name":"model.norm.weight","shape":[128],"weight":11.3,"gradient":0.4,"update":0.02,"gradient_rms":0.035355339059327376,"update_rms":0.0017677669529663686})"
      "\n");
  for (v1::StepReport& report : server_->reports) {
    report.mutable_norms()->add_rms(0.25);
    report.mutable_norms()->add_max_abs(2);
    report.mutable_norms()->add_gradient_max_abs(0.5);
    report.mutable_norms()->add_update_max_abs(0.001);
  }
  EXPECT_EQ(Tandem({"norms", "headers", "--norm", "max"}), kOk);
  EXPECT_EQ(console_.out,
            "STEP 5                     SHAPE    WEIGHT  GRADIENT  UPDATE  UPDATE/WEIGHT\n"
            "model.embed_tokens.weight  256x128    2.00     0.500  0.0010       5.00e-04\n"
            "model.norm.weight          128\n")
      << "a report may lack some";
  EXPECT_EQ(Tandem({"norms", "headers", "--norm", "rms", "--top", "1"}), kOk);
  EXPECT_THAT(console_.out,
              testing::HasSubstr("model.norm.weight  128     0.999    0.0884  0.0044       4.42e-03"));
  EXPECT_EQ(Tandem({"norms", "headers", "--norm", "l1"}), kUsage);
  EXPECT_EQ(Tandem({"norms", "headers", "--step", "1", "-o", "json"}), kOk);
  EXPECT_THAT(console_.out, testing::HasSubstr(R"("rms":0.25,"max_abs":2.0,"gradient_max_abs":0.5,)"
                                               R"("update_max_abs":0.001,"gradient_rms":)"));
  EXPECT_EQ(Tandem({"norms", "headers", "--step", "9"}), kNotFound);
  EXPECT_EQ(console_.err, "tandem: norms headers: step 9 has not been made yet; the newest is 5\n");
  server_->reports.erase(server_->reports.begin());
  EXPECT_EQ(Tandem({"norms", "headers", "--step", "1"}), kNotFound);
  EXPECT_EQ(console_.err,
            "tandem: norms headers: none are kept for step 1; the newest steps have them: omit --step\n");
  server_->reports.clear();
  server_->jobs[0].set_last_step(0);
  EXPECT_EQ(Tandem({"norms", "headers"}), kNotFound);
  EXPECT_EQ(console_.err, "tandem: norms headers: the job has made no step yet (RUNNING)\n");
  server_->jobs[0].mutable_resolved()->mutable_report()->set_parameter_norms(false);
  EXPECT_EQ(Tandem({"norms", "headers"}), kFailed);
  EXPECT_EQ(console_.err,
            "tandem: norms headers: the job keeps no norms; set report.parameter_norms: true in its file\n");
}

TEST_F(CommandTest, MetricsShowTheLoadOfExperts) {
  server_->jobs = {SampleJob(v1::JOB_STATE_RUNNING, 4)};
  server_->jobs[0].set_last_step(2);
  server_->jobs[0].mutable_resolved()->mutable_model()->mutable_moe()->set_num_experts(4);
  for (int step = 1; step <= 2; ++step) {
    v1::StepReport report = SampleReport(step);
    v1::ExpertLoad& load = *report.mutable_norms()->add_experts();
    load.set_layer(3);
    for (const int64_t tokens : {1000 * step, 0, 600, 400}) {
      load.add_tokens(tokens);
    }
    load.set_dropped(12);
    load.set_balance_loss(1.25);
    load.set_z_loss(4.5);
    load.set_further_passes(6);
    server_->reports.push_back(report);
  }
  EXPECT_EQ(Tandem({"metrics", "headers", "--moe"}), kOk);
  EXPECT_EQ(console_.out,
            "STEP 2   EXPERTS  TOKENS  LARGEST/MEAN  SMALLEST/MEAN  IDLE  DROPPED  BALANCE LOSS  Z LOSS  "
            "FURTHER PASSES\n"
            "layer 3        4   3,000          2.67           0.00     1       12          1.25    4.50  "
            "             6\n");
  EXPECT_EQ(console_.err, "");
  server_->jobs[0].mutable_resolved()->mutable_model()->set_model_type("deepseek_v3");
  EXPECT_EQ(Tandem({"metrics", "headers", "--moe"}), kOk);
  EXPECT_EQ(console_.err,
            "tandem: TOKENS are routed by scores and biases; BALANCE LOSS counts the experts with the "
            "highest scores, "
            "without biases\n");
  EXPECT_EQ(Tandem({"metrics", "headers", "--moe", "--step", "1", "-o", "json"}), kOk);
  EXPECT_EQ(
      console_.out,
      R"({"step":1,"layer":3,"tokens":[1000,0,600,400],"dropped":12,"balance_loss":1.25,"z_loss":4.5,"further_passes":6})"
      "\n");
  EXPECT_EQ(Tandem({"metrics", "headers", "--moe", "--step", "9"}), kNotFound);
  EXPECT_EQ(console_.err, "tandem: metrics --moe headers: step 9 has not been made yet; the newest is 2\n");
  server_->reports.clear();
  server_->jobs[0].mutable_resolved()->mutable_model()->clear_moe();
  EXPECT_EQ(Tandem({"metrics", "headers", "--moe"}), kFailed);
  EXPECT_EQ(console_.err, "tandem: metrics --moe headers: its model has no sparse layers\n");
}

}  // namespace
}  // namespace tandem::cli
