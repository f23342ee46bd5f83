// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fsdp/host_device.h"

namespace tandem::fsdp {

// T is float or double.
template <typename T>
TANDEM_HOST_DEVICE bool IsFinite(T value) {
  return value - value == 0;
}

// A sum of doubles kept as an unevaluated pair, |low| <= ulp(high)/2, error about 2^-100 (Knuth's TwoSum).
// Unlike the value of a plain sum of doubles, its rounded value does not depend on how the terms were split
// between ranks, so the clip coefficient has the same bits for any number of ranks.
struct DoubleDouble {
  double high = 0;
  double low = 0;

  TANDEM_HOST_DEVICE void Add(double term) {
    const double sum = high + term;
    const double part = sum - high;
    const double error = (high - (sum - part)) + (term - part);
    low += error;
    Renormalise(sum);
  }
  TANDEM_HOST_DEVICE void Add(const DoubleDouble& other) {
    Add(other.high);
    Add(other.low);
  }
  TANDEM_HOST_DEVICE double value() const { return high + low; }

 private:
  // An infinite or NaN sum keeps no low part: inf - inf would turn it into NaN.
  TANDEM_HOST_DEVICE void Renormalise(double sum) {
    if (!IsFinite(sum)) {
      high = sum;
      low = 0;
      return;
    }
    high = sum + low;
    low -= high - sum;
  }
};

}  // namespace tandem::fsdp
