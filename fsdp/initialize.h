// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "fsdp/host_device.h"
#include "fsdp/layout.h"
#include "fsdp/philox.h"

namespace tandem::fsdp {

// The distribution of a parameter's initial elements.
enum class Distribution : uint8_t {
  kNormal,  // mean 0, standard deviation `deviation`
  kOnes,
  kUniform,     // uniform in ±deviation
  kTimeSteps,   // softplus of the value is log-uniform in [0.001, 0.1] (Mamba-2's dt_bias)
  kDecayRates,  // exp of the value is uniform in [1, 16] (Mamba-2's A_log)
};

// exp(x) for 0 <= x <= 5, as (exp(x / 64))^64 with a Taylor series for exp(x / 64). Unlike std::exp,
// additions, products and quotients have the same bits on every device.
TANDEM_HOST_DEVICE inline double ExpBySquares(double x) {
  const double y = x / 64;
  double power = 1 + y / 9;
  for (int n = 8; n > 0; --n) {
    power = 1 + y / n * power;
  }
  for (int i = 0; i < 6; ++i) {
    power *= power;
  }
  return power;
}

// log(x) for 0 < x <= 16.
TANDEM_HOST_DEVICE inline double LogUpTo16(double x) {
  return LogOfFraction(static_cast<uint64_t>(x * 0x1p49)) + 2.7725887222397811;  // log(16)
}

// The initial value of element `index` of the whole parameter. It is a pure function and has the same bits on
// every device. Only kNormal and kUniform use the deviation; if it is 0, all elements are +0.
TANDEM_HOST_DEVICE inline double InitialValue(Distribution distribution, double deviation, uint64_t seed,
                                              uint64_t stream, uint64_t index) {
  switch (distribution) {
    case Distribution::kOnes:
      return 1;
    case Distribution::kTimeSteps: {
      const double step = 0.001 * ExpBySquares(4.6051701859880914 * PhiloxUniform(seed, stream, index));
      // The inverse of softplus, log(exp(step) - 1).
      return LogUpTo16(step) + LogUpTo16((ExpBySquares(step) - 1) / step);
    }
    case Distribution::kDecayRates:
      return LogUpTo16(1 + 15 * PhiloxUniform(seed, stream, index));
    case Distribution::kUniform:
      return deviation == 0 ? 0 : deviation * (2 * PhiloxUniform(seed, stream, index) - 1);
    case Distribution::kNormal:
      break;
  }
  return deviation == 0 ? 0 : deviation * PhiloxNormal(seed, stream, index);
}

// The initial values of a parameter.
struct ParameterInit {
  Distribution distribution = Distribution::kNormal;
  double deviation = 0;
};

// The number of a parameter's random stream. It depends only on the parameter's name.
uint64_t ParameterStream(const Parameter& parameter);

// Writes the initial values of elements `part` (flat coordinates, within the parameter) to `values`;
// values[0] is that of part.begin. Each value depends only on the seed, the parameter's name and the index
// within the whole parameter, however it is sliced. T is float or double.
template <typename T>
void InitializeParameter(uint64_t seed, const Parameter& parameter, const ParameterInit& init, Range part,
                         T* values);

}  // namespace tandem::fsdp
