#include "tests/parity/expect_close.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <string>

namespace tandem::parity {
namespace {

void ExpectNear(double a, double b, double tolerance, const std::string& what) {
  EXPECT_LE(std::abs(a - b), tolerance * std::abs(a)) << what << ": " << a << " and " << b;
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
  return distance == 0 ? 0 : std::sqrt(distance / length);
}

}  // namespace

void ExpectClose(const plan::JobPlan& plan, const JobRun& a, const JobRun& b, const Tolerance& tolerance) {
  EXPECT_EQ(a.unequal_replicas, std::set<std::string>());
  EXPECT_EQ(b.unequal_replicas, std::set<std::string>());
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) {
    const trainer::StepSummary& x = a.steps[i];
    const trainer::StepSummary& y = b.steps[i];
    SCOPED_TRACE(testing::Message() << "step " << x.step);
    const double norm = x.step == 1 ? tolerance.first_norm : tolerance.later_norm;
    EXPECT_EQ(x.nonfinite, y.nonfinite);
    ExpectNear(x.loss, y.loss, tolerance.loss, "loss");
    ExpectNear(x.grad_norm, y.grad_norm, norm, "gradient norm");
    const auto validation = x.scalars.find("validation_loss");
    if (validation != x.scalars.end()) {
      ExpectNear(validation->second, y.scalars.at("validation_loss"), tolerance.loss, "validation loss");
    }
    ASSERT_EQ(x.weight.size(), y.weight.size());
    for (size_t item = 0; item < x.weight.size(); ++item) {
      SCOPED_TRACE(testing::Message() << "parameter " << item);
      ExpectNear(x.weight[item], y.weight[item], norm, "norm of the weight");
      ExpectNear(x.gradient[item], y.gradient[item], norm, "norm of the gradient");
      ExpectNear(x.update[item], y.update[item], norm, "norm of the update");
    }
  }
  ASSERT_EQ(a.arrays.size(), b.arrays.size());
  for (const auto& [name, bytes] : a.arrays) {
    const auto found = b.arrays.find(name);
    ASSERT_TRUE(found != b.arrays.end() && found->second.size() == bytes.size()) << name;
    const double distance = plan.precision.hidden() == model::ComputeType::kFp64
                                ? RelativeDistance<double>(bytes, found->second)
                                : RelativeDistance<float>(bytes, found->second);
    EXPECT_LE(distance, tolerance.state) << name;
  }
}

}  // namespace tandem::parity
