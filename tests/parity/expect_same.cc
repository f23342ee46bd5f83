// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/expect_same.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/device/seeded_scheduler.h"

namespace tandem::parity {
namespace {

// Of lists of doubles.
template <typename List>
bool SameBits(const List& a, const List& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) {
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
  });
}

bool SameBits(std::optional<double> a, std::optional<double> b) {
  return a.has_value() == b.has_value() && (!a || SameBits(std::array{*a}, std::array{*b}));
}

std::string Text(std::optional<double> loss) { return loss ? absl::StrCat(*loss) : "none"; }

// The bits of mtp_loss/1 and so on, by name.
std::map<std::string, uint64_t> DepthLosses(const v1::StepReport& step) {
  std::map<std::string, uint64_t> losses;
  for (const auto& [name, value] : step.scalars()) {
    if (name.starts_with("mtp_loss/")) {
      losses[name] = std::bit_cast<uint64_t>(value);
    }
  }
  return losses;
}

// Empty: there is none.
std::string DifferenceOfSteps(const v1::StepReport& x, const v1::StepReport& y) {
  const std::string where = absl::StrCat("step ", x.step(), ": ");
  if (x.step() != y.step()) {
    return absl::StrCat("steps ", x.step(), " and ", y.step());
  }
  if (!SameBits(std::array{x.loss(), x.grad_norm(), x.learning_rate()},
                std::array{y.loss(), y.grad_norm(), y.learning_rate()})) {
    return absl::StrCat(where, "loss ", x.loss(), " and ", y.loss(), ", norm ", x.grad_norm(), " and ",
                        y.grad_norm());
  }
  if (x.tokens() != y.tokens() || x.nonfinite() != y.nonfinite()) {
    return absl::StrCat(where, x.tokens(), " and ", y.tokens(), " tokens, ", x.nonfinite(), " and ",
                        y.nonfinite(), " elements that are not finite");
  }
  if (DepthLosses(x) != DepthLosses(y)) {
    return absl::StrCat(where, "losses of depths");
  }
  const v1::Norms& a = x.norms();
  const v1::Norms& b = y.norms();
  if (!SameBits(a.weight(), b.weight()) || !SameBits(a.gradient(), b.gradient()) ||
      !SameBits(a.update(), b.update()) || !SameBits(a.max_abs(), b.max_abs()) ||
      !SameBits(a.gradient_max_abs(), b.gradient_max_abs()) ||
      !SameBits(a.update_max_abs(), b.update_max_abs())) {
    return absl::StrCat(where, "the norms of a parameter");
  }
  if (!std::equal(a.experts().begin(), a.experts().end(), b.experts().begin(), b.experts().end(),
                  [](const v1::ExpertLoad& load, const v1::ExpertLoad& other) {
                    return load.SerializeAsString() == other.SerializeAsString();
                  })) {
    return absl::StrCat(where, "the load of experts");
  }
  const std::optional<double> v = ValidationLossOf(x);
  const std::optional<double> w = ValidationLossOf(y);
  return SameBits(v, w) ? "" : absl::StrCat(where, "validation loss ", Text(v), " and ", Text(w));
}

}  // namespace

std::string FirstDifference(const JobRun& a, const JobRun& b) {
  for (const JobRun* run : {&a, &b}) {
    if (!run->unequal_replicas.empty()) {
      return absl::StrCat("two ranks differ in ", *run->unequal_replicas.begin());
    }
  }
  if (a.steps.size() != b.steps.size()) {
    return absl::StrCat(a.steps.size(), " and ", b.steps.size(), " steps");
  }
  if (a.start.has_value() != b.start.has_value()) {
    return absl::StrCat("step 0: only the ", a.start ? "first" : "second", " run has it");
  }
  if (a.start) {
    if (std::string difference = DifferenceOfSteps(*a.start, *b.start); !difference.empty()) {
      return difference;
    }
  }
  for (size_t i = 0; i < a.steps.size(); ++i) {
    if (std::string difference = DifferenceOfSteps(a.steps[i], b.steps[i]); !difference.empty()) {
      return difference;
    }
  }
  for (const auto& [name, bytes] : a.arrays) {
    const auto found = b.arrays.find(name);
    if (found == b.arrays.end() || found->second != bytes) {
      return absl::StrCat(name, " differs");
    }
  }
  for (const auto& [name, bytes] : a.node_states) {
    const auto found = b.node_states.find(name);
    if (found == b.node_states.end() || found->second != bytes) {
      return absl::StrCat(name, " differs");
    }
  }
  return a.arrays.size() == b.arrays.size() && a.node_states.size() == b.node_states.size()
             ? ""
             : "one run has more arrays or states";
}

void ExpectSameBits(const JobRun& a, const JobRun& b) { EXPECT_EQ(FirstDifference(a, b), ""); }

void ExpectSameBitsInOrders(const JobRun& ordinary, const plan::JobPlan& plan, uint64_t seeds) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    device::SeededScheduler scheduler(plan.topology.world, seed);
    ASSERT_EQ(FirstDifference(ordinary, RunJob(plan, {.fill_with_nan = true, .scheduler = &scheduler})), "")
        << "seed " << seed;
  }
}

void ExpectSameBitsInOrdersOfTheOverlap(JobOptions options) {
  options.steps = 2;
  options.overlap = true;
  options.delay_weight_gradients = true;
  const plan::JobPlan plan = MakeJob(options);
  ExpectSameBitsInOrders(RunJob(plan), plan, 5);
}

JobRun RunOn(int ranks, JobOptions options, int microbatches) {
  options.ranks = ranks;
  options.microbatches_per_rank = microbatches / ranks;
  return RunJob(MakeJob(options), {.fill_with_nan = ranks > 1});
}

JobRun ExpectSameBitsOnRanks(const JobOptions& options, const std::vector<int>& ranks, int microbatches) {
  const JobRun one = RunOn(1, options, microbatches);
  for (const int shared : ranks) {
    EXPECT_EQ(FirstDifference(one, RunOn(shared, options, microbatches)), "") << shared << " ranks";
  }
  return one;
}

JobRun ExpectSameBitsAfter(int64_t step, JobOptions options, const std::vector<JobOptions>& resumed) {
  const TemporaryFolder folder;
  options.checkpoint_directory = folder.path();
  options.checkpoint_every_steps = step;
  plan::JobPlan plan = MakeJob(options);
  plan.train.checkpoint.keep = 10;
  const JobRun whole = RunJob(plan);
  for (JobOptions other : resumed) {
    SCOPED_TRACE(testing::Message() << "resumed on " << other.ranks << " ranks");
    const TemporaryFolder elsewhere;
    other.checkpoint_directory = elsewhere.path();
    other.checkpoint_every_steps = step;
    other.resume = absl::StrCat(folder.path(), "/step-", step);
    const JobRun run = RunJob(MakeJob(other));
    EXPECT_EQ(run.resumed_step, step);
    EXPECT_TRUE(run.warnings.empty());
    ExpectSameBits(Tail(whole, static_cast<size_t>(step) + 1), run);
  }
  return whole;
}

JobOptions SharedAmong(int ranks, JobOptions options) {
  options.microbatches_per_rank = options.ranks * options.microbatches_per_rank / ranks;
  options.ranks = ranks;
  return options;
}

JobRun Tail(JobRun whole, size_t first) {
  whole.start.reset();
  whole.steps.erase(whole.steps.begin(), whole.steps.begin() + static_cast<int64_t>(first) - 1);
  return whole;
}

JobRun ExpectSameBitsOfSchedules(JobOptions options) {
  const JobRun sequential = RunJob(MakeJob(options), {.fill_with_nan = true});
  if (options.expert_parallel > 1) {
    options.separate_weight_gradients = true;
    EXPECT_EQ(FirstDifference(sequential, RunJob(MakeJob(options), {.fill_with_nan = true})), "")
        << "experts' weight gradients on a stream of their own";
    options.separate_weight_gradients = false;
  }
  options.overlap = true;
  for (const bool delays : {false, true}) {
    for (const char* recompute : {"off", "layer"}) {
      SCOPED_TRACE(testing::Message()
                   << "delayed weight gradients: " << delays << ", recompute " << recompute);
      options.delay_weight_gradients = delays;
      options.recompute = recompute;
      EXPECT_EQ(FirstDifference(sequential, RunJob(MakeJob(options), {.fill_with_nan = true})), "");
    }
  }
  return sequential;
}

}  // namespace tandem::parity
