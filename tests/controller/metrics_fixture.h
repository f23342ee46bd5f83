// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "controller/metrics/metrics.h"
#include "tests/controller/job_builder.h"
#include "tests/platform/fake_clock.h"

namespace tandem::controller {

// Metrics with a clock of their own, and the state of a controller to look at.
class MetricsTest : public ::testing::Test {
 protected:
  static v1::StepReport ReportOf(int64_t step) {
    v1::StepReport out;
    out.set_step(step);
    out.set_attempt(1);
    out.set_loss(2.5);
    out.set_tokens(1000);
    out.set_seconds(0.02);
    return out;
  }

  static v1::Job JobOf(const std::string& id, const std::string& name) {
    v1::Job job;
    job.set_id(id);
    job.set_name(name);
    job.add_attempts();
    job.mutable_checkpoints()->set_saved(1);
    return job;
  }

  std::string Text() const { return prometheus::TextSerializer().Serialize(metrics_->Collect()); }

  static int CountLines(const std::string& text, const std::string& beginning) {
    std::istringstream lines(text);
    int count = 0;
    for (std::string line; std::getline(lines, line);) {
      count += line.starts_with(beginning) ? 1 : 0;
    }
    return count;
  }

  // Both ranks of the driver's job report that they are ready, and what they send in a step, by purpose.
  void SayReady(const std::map<std::string, double>& sent_bytes) {
    for (const v1::RankSlot& slot : Current(driver_.Job()).slots()) {
      v1::AttemptStatus status = StatusOf("id-job", driver_.Job().attempt());
      v1::Ready& ready = *AddRank(status, slot.rank(), v1::RANK_PHASE_READY).mutable_ready();
      ready.mutable_sent_bytes()->insert(sent_bytes.begin(), sent_bytes.end());
      driver_.Say(slot.worker(), status);
      metrics_->Reported(driver_.state, CurrentAttempt(driver_.Job()));
    }
  }

  platform::FakeClock clock_{kStart};
  const std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>(clock_);
  Driver driver_;
};

}  // namespace tandem::controller
