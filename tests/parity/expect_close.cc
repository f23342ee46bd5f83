// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/expect_close.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/parity/expect_same.h"

namespace tandem::parity {
namespace {

using Kind = double Tolerance::*;

// Gets every quantity of two runs that is to be close, and how far the two are from each other, relative to
// the first run's.
using Visit = std::function<void(Kind kind, const std::string& what, double distance)>;

// A distance that is NaN comes of a number that is not finite in one run alone: there is none larger.
double OrInfinity(double distance) {
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

// slack: of the difference, what says nothing. The norms of a step that is skipped are NaN in both runs.
void VisitNumbers(Kind kind, const std::string& what, double a, double b, const Visit& visit,
                  double slack = 0) {
  const bool same = a == b || (std::isnan(a) && std::isnan(b));
  const double difference = same ? 0 : OrInfinity(std::abs(a - b));
  const double distance = std::max(0.0, difference - slack);
  visit(kind, absl::StrCat(what, ": ", a, " and ", b),
        distance == 0 ? 0 : OrInfinity(distance / std::abs(a)));
}

// Between 1 and the next larger number of the main weights' type.
double UnitInTheLastPlace(const plan::JobPlan& plan) {
  return plan.precision.common.main == model::ComputeType::kFp64 ? std::numeric_limits<double>::epsilon()
                                                                 : std::numeric_limits<float>::epsilon();
}

template <typename T>
double RelativeDistance(const std::string& a, const std::string& b) {
  double distance = 0;
  double length = 0;
  for (size_t i = 0; i + sizeof(T) <= a.size(); i += sizeof(T)) {
    T x;
    T y;
    std::memcpy(&x, a.data() + i, sizeof(T));
    std::memcpy(&y, b.data() + i, sizeof(T));
    const double difference = static_cast<double>(x) - static_cast<double>(y);
    distance += difference * difference;
    length += static_cast<double>(x) * static_cast<double>(x);
  }
  return distance == 0 ? 0 : OrInfinity(std::sqrt(distance / length));
}

// ulp: of the main weights' type.
void VisitSteps(const v1::StepReport& x, const v1::StepReport& y, double ulp, const Visit& visit) {
  const std::string step = absl::StrCat("step ", x.step(), ": ");
  const Kind norm = x.step() <= 1 ? &Tolerance::first_norm : &Tolerance::later_norm;
  EXPECT_EQ(x.step(), y.step());
  EXPECT_EQ(x.tokens(), y.tokens()) << step;
  EXPECT_EQ(x.nonfinite(), y.nonfinite()) << step;
  VisitNumbers(&Tolerance::loss, step + "loss", x.loss(), y.loss(), visit);
  const std::optional<double> v = ValidationLossOf(x);
  const std::optional<double> w = ValidationLossOf(y);
  EXPECT_EQ(v.has_value(), w.has_value()) << step << "only one run has a validation loss";
  if (v && w) {
    VisitNumbers(&Tolerance::loss, step + "validation loss", *v, *w, visit);
  }
  VisitNumbers(norm, step + "gradient norm", x.grad_norm(), y.grad_norm(), visit);
  const v1::Norms& a = x.norms();
  const v1::Norms& b = y.norms();
  ASSERT_EQ(a.weight_size(), b.weight_size());
  for (int i = 0; i < a.weight_size(); ++i) {
    const std::string of = absl::StrCat(" of parameter ", i);
    VisitNumbers(norm, step + "norm of the weight" + of, a.weight(i), b.weight(i), visit);
    VisitNumbers(norm, step + "norm of the gradient" + of, a.gradient(i), b.gradient(i), visit);
    // An update is the difference of two weights, each rounded to their type: a first update of 1e-3 of a
    // weight of 1 is known to 1e-4 of itself, however close the gradients are. And AdamW divides a gradient
    // by about itself, which makes the rounding of a gradient near epsilon as large as a step: no update is a
    // "first norm".
    VisitNumbers(&Tolerance::later_norm, step + "norm of the update" + of, a.update(i), b.update(i), visit,
                 ulp * a.weight(i));
  }
}

void VisitRuns(const plan::JobPlan& plan, const JobRun& a, const JobRun& b, const Visit& visit) {
  const double ulp = UnitInTheLastPlace(plan);
  EXPECT_EQ(a.unequal_replicas, std::set<std::string>());
  EXPECT_EQ(b.unequal_replicas, std::set<std::string>());
  EXPECT_EQ(a.start.has_value(), b.start.has_value()) << "only one run has a step 0";
  if (a.start && b.start) {
    VisitSteps(*a.start, *b.start, ulp, visit);
  }
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) {
    VisitSteps(a.steps[i], b.steps[i], ulp, visit);
  }
  ASSERT_EQ(a.arrays.size(), b.arrays.size());
  for (const auto& [name, bytes] : a.arrays) {
    const auto found = b.arrays.find(name);
    ASSERT_TRUE(found != b.arrays.end() && found->second.size() == bytes.size()) << name;
    visit(&Tolerance::state, name,
          plan.precision.hidden() == model::ComputeType::kFp64
              ? RelativeDistance<double>(bytes, found->second)
              : RelativeDistance<float>(bytes, found->second));
  }
}

// How many tokens each expert got and turned away.
void ExpectSameLoads(const v1::StepReport& a, const v1::StepReport& b) {
  ASSERT_EQ(a.norms().experts_size(), b.norms().experts_size()) << "step " << a.step();
  for (int i = 0; i < a.norms().experts_size(); ++i) {
    const v1::ExpertLoad& load = a.norms().experts(i);
    const v1::ExpertLoad& other = b.norms().experts(i);
    EXPECT_TRUE(
        std::equal(load.tokens().begin(), load.tokens().end(), other.tokens().begin(), other.tokens().end()))
        << "step " << a.step() << ": tokens of the experts of layer " << load.layer();
    EXPECT_EQ(load.dropped(), other.dropped()) << "step " << a.step() << ": layer " << load.layer();
  }
}

}  // namespace

void ExpectClose(const plan::JobPlan& plan, const JobRun& a, const JobRun& b, const Tolerance& tolerance) {
  VisitRuns(plan, a, b, [&](Kind kind, const std::string& what, double distance) {
    EXPECT_LE(distance, tolerance.*kind) << what;
  });
  const bool fp64 = plan.precision.common.main == model::ComputeType::kFp64;  // in fp32 scores change places
  for (size_t i = 0; fp64 && i < std::min(a.steps.size(), b.steps.size()); ++i) {
    ExpectSameLoads(a.steps[i], b.steps[i]);
  }
}

Tolerance DistanceBetween(const plan::JobPlan& plan, const JobRun& a, const JobRun& b) {
  Tolerance largest;
  VisitRuns(plan, a, b, [&](Kind kind, const std::string&, double distance) {
    largest.*kind = std::max(largest.*kind, distance);
  });
  return largest;
}

void ExpectLossesNearFp32(JobOptions options) {
  options.steps = 40;
  const JobRun run = RunOn(1, options);
  options.precision.clear();
  const JobRun fp32 = RunOn(1, options);
  double largest = 0;
  for (size_t i = 0; i < run.steps.size(); ++i) {
    largest = std::max(largest, std::abs(run.steps[i].loss() / fp32.steps[i].loss() - 1));
  }
  std::printf("losses after 40 steps %g, in fp32 %g; largest difference %g\n", run.steps.back().loss(),
              fp32.steps.back().loss(), largest);
  EXPECT_GT(largest, 0);
  EXPECT_LT(largest, 1.0 / 256);
  EXPECT_LT(run.steps.back().loss(), 0.8 * run.steps.front().loss());
}

void ExpectNumbersOfRanksWithEveryExpert(const JobOptions& options) {
  JobOptions twin = options;
  twin.expert_parallel = 1;
  twin.chunks.clear();
  const plan::JobPlan whole = MakeJob(twin);
  ExpectClose(whole, RunJob(whole), RunJob(MakeJob(options), {.fill_with_nan = true}),
              options.fp64 ? kFp64 : kFp32);
}

}  // namespace tandem::parity
