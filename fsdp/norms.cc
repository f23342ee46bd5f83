// SPDX-License-Identifier: Apache-2.0
#include "fsdp/norms.h"

#include <bit>
#include <cmath>
#include <limits>

#include "fsdp/vector_clones.h"

namespace tandem::fsdp {
namespace {

// Element i goes to lane i % kLanes; the lanes are added as a tree. So the order is the same whether the
// compiler uses vectors of 2, 4 or 8, or none.
constexpr int64_t kLanes = 8;

[[gnu::always_inline]] inline double AddLanes(const double* lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

template <typename T>
[[gnu::always_inline]] inline double SumAny(const T* values, int64_t elements) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= elements; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = static_cast<double>(values[i + lane]);
      lanes[lane] += value * value;
    }
  }
  for (int64_t lane = 0; i < elements; ++i, ++lane) {
    const double value = static_cast<double>(values[i]);
    lanes[lane] += value * value;
  }
  return AddLanes(lanes);
}

template <typename T>
[[gnu::always_inline]] inline double SumFiniteAny(const T* values, int64_t elements, int64_t& nonfinite) {
  int64_t bad = 0;
  for (int64_t i = 0; i < elements; ++i) {
    bad += std::abs(values[i]) <= std::numeric_limits<T>::max() ? 0 : 1;
  }
  if (bad == 0) {
    return SumAny(values, elements);
  }
  nonfinite += bad;
  double sum = 0;
  for (int64_t i = 0; i < elements; ++i) {
    if (std::isfinite(values[i])) {
      sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
  }
  return sum;
}

// Magnitudes have the order of their bits as integers, whose maximum is vectorised where that of floating
// point, with its NaN, is not; NaN is above infinity there. Bits: as wide as T.
template <typename Bits, typename T>
[[gnu::always_inline]] inline T MaxAbsAny(const T* values, int64_t elements) {
  constexpr Bits kInfinity = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
  Bits most = 0;
  for (int64_t i = 0; i < elements; ++i) {
    const Bits magnitude = std::bit_cast<Bits>(values[i]) & std::numeric_limits<Bits>::max();
    const Bits number = magnitude > kInfinity ? 0 : magnitude;
    most = number > most ? number : most;
  }
  return std::bit_cast<T>(most);
}

}  // namespace

TANDEM_VECTOR_CLONES double SumOfSquares(const float* values, int64_t elements) {
  return SumAny(values, elements);
}
TANDEM_VECTOR_CLONES double SumOfSquares(const double* values, int64_t elements) {
  return SumAny(values, elements);
}
TANDEM_VECTOR_CLONES double MaxAbs(const float* values, int64_t elements) {
  return MaxAbsAny<int32_t>(values, elements);
}
TANDEM_VECTOR_CLONES double MaxAbs(const double* values, int64_t elements) {
  return MaxAbsAny<int64_t>(values, elements);
}
TANDEM_VECTOR_CLONES double SumOfFiniteSquares(const float* values, int64_t elements, int64_t& nonfinite) {
  return SumFiniteAny(values, elements, nonfinite);
}
TANDEM_VECTOR_CLONES double SumOfFiniteSquares(const double* values, int64_t elements, int64_t& nonfinite) {
  return SumFiniteAny(values, elements, nonfinite);
}

}  // namespace tandem::fsdp
