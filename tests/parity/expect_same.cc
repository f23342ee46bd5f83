// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/expect_same.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/device/seeded_scheduler.h"

namespace tandem::parity {
namespace {

bool SameBits(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint64_t>(a[i]) != std::bit_cast<uint64_t>(b[i])) {
      return false;
    }
  }
  return true;
}

bool SameBits(std::optional<double> a, std::optional<double> b) {
  return a.has_value() == b.has_value() && (!a || SameBits(std::vector{*a}, std::vector{*b}));
}

std::string Text(std::optional<double> loss) { return loss ? absl::StrCat(*loss) : "none"; }

// Empty: there is none.
std::string DifferenceOfSteps(const StepSummary& x, const StepSummary& y) {
  const std::string where = absl::StrCat("step ", x.step, ": ");
  if (x.step != y.step) {
    return absl::StrCat("steps ", x.step, " and ", y.step);
  }
  if (!SameBits({x.loss, x.grad_norm, x.learning_rate}, {y.loss, y.grad_norm, y.learning_rate})) {
    return absl::StrCat(where, "loss ", x.loss, " and ", y.loss, ", norm ", x.grad_norm, " and ",
                        y.grad_norm);
  }
  if (!SameBits(x.weight, y.weight) || !SameBits(x.gradient, y.gradient) || !SameBits(x.update, y.update) ||
      !SameBits(x.weight_max, y.weight_max) || !SameBits(x.gradient_max, y.gradient_max) ||
      !SameBits(x.update_max, y.update_max)) {
    return absl::StrCat(where, "the norms of an item");
  }
  if (x.experts != y.experts) {
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
    device::SeededScheduler scheduler(plan.train.ranks, seed);
    ASSERT_EQ(FirstDifference(ordinary, RunJob(plan, {.fill_with_nan = true, .scheduler = &scheduler})), "")
        << "seed " << seed;
  }
}

JobRun RunOn(int ranks, JobOptions options) {
  constexpr int kMicrobatchesOfAllRanks = 12;
  options.ranks = ranks;
  options.microbatches_per_rank = kMicrobatchesOfAllRanks / ranks;
  return RunJob(MakeJob(options));
}

JobRun Tail(JobRun whole, size_t first) {
  whole.start.reset();
  whole.steps.erase(whole.steps.begin(), whole.steps.begin() + static_cast<int64_t>(first) - 1);
  return whole;
}

}  // namespace tandem::parity
