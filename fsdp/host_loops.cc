// SPDX-License-Identifier: Apache-2.0
#include "fsdp/host_loops.h"

#include <bit>
#include <cmath>
#include <limits>

// Marks a function that is also compiled for AVX2. The dynamic loader chooses the version. Both give the same
// bits, because this file is compiled without contraction into fused multiply-add, and every element
// is computed alone or summed in an order that the source fixes. Sanitizers start before the loader can
// choose, so the mark has no effect with them.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define TANDEM_VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define TANDEM_VECTOR_CLONES
#endif

namespace tandem::fsdp {
namespace {

constexpr int64_t kBlock = 4096;  // elements of the accumulator that stay in the first-level cache

template <typename T, typename C>
[[gnu::always_inline]] inline void FoldAny(T* accumulator, const C* contributions, int64_t elements,
                                           int64_t stride, int num_contributions, bool add) {
  for (int64_t begin = 0; begin < elements; begin += kBlock) {
    const int64_t block = std::min(kBlock, elements - begin);
    T* __restrict const sum = accumulator + begin;
    for (int r = 0; r < num_contributions; ++r) {
      const C* __restrict const term = contributions + r * stride + begin;
      if (r == 0 && !add) {
        for (int64_t i = 0; i < block; ++i) {
          sum[i] = Widen(term[i]);
        }
      } else {
        for (int64_t i = 0; i < block; ++i) {
          sum[i] += Widen(term[i]);
        }
      }
    }
  }
}

// Element i goes to lane i % kLanes, and the lanes are added as a tree. So the order does not depend on
// whether the compiler uses vectors of 2, 4 or 8 elements, or none.
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

// Magnitudes have the same order as their bits as integers, with NaN above infinity. The maximum of integers
// is vectorised; that of floating point is not, because of NaN. Bits: an integer as wide as T.
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

template <bool kOut, typename T>
[[gnu::always_inline]] inline void StepEach(const AdamWScalars<T>& scalars, int64_t elements,
                                            const T* __restrict sum, T* __restrict weight,
                                            T* __restrict exp_avg, T* __restrict exp_avg_sq,
                                            T* __restrict mean, T* __restrict update) {
  const AdamWScalars<T> s = scalars;
  for (int64_t i = 0; i < elements; ++i) {
    const T mean_gradient = sum[i] / s.divisor;
    const T gradient = s.clip * mean_gradient;
    exp_avg[i] = s.beta1 * exp_avg[i] + s.one_minus_beta1 * gradient;
    exp_avg_sq[i] = s.beta2 * exp_avg_sq[i] + s.one_minus_beta2 * gradient * gradient;
    const T direction = (exp_avg[i] / s.correction1) / (std::sqrt(exp_avg_sq[i] / s.correction2) + s.epsilon);
    const T old = weight[i];
    weight[i] = old - s.learning_rate * (direction + s.weight_decay * old);
    if constexpr (kOut) {
      mean[i] = mean_gradient;
      update[i] = weight[i] - old;
    }
  }
}

template <typename T>
[[gnu::always_inline]] inline void StepAny(const AdamWScalars<T>& scalars, int64_t elements, const T* sum,
                                           T* weight, T* exp_avg, T* exp_avg_sq, T* mean, T* update) {
  if (mean != nullptr) {
    StepEach<true>(scalars, elements, sum, weight, exp_avg, exp_avg_sq, mean, update);
  } else {
    StepEach<false>(scalars, elements, sum, weight, exp_avg, exp_avg_sq, mean, update);
  }
}

template <typename T>
[[gnu::always_inline]] inline void MeanAny(const AdamWScalars<T>& scalars, int64_t elements,
                                           const T* __restrict sum, T* __restrict mean) {
  const T divisor = scalars.divisor;
  for (int64_t i = 0; i < elements; ++i) {
    mean[i] = sum[i] / divisor;
  }
}

}  // namespace

TANDEM_VECTOR_CLONES void Fold(float* accumulator, const float* contributions, int64_t elements,
                               int64_t stride, int num_contributions, bool add) {
  FoldAny(accumulator, contributions, elements, stride, num_contributions, add);
}

TANDEM_VECTOR_CLONES void Fold(double* accumulator, const double* contributions, int64_t elements,
                               int64_t stride, int num_contributions, bool add) {
  FoldAny(accumulator, contributions, elements, stride, num_contributions, add);
}

TANDEM_VECTOR_CLONES void Fold(float* accumulator, const Bf16* contributions, int64_t elements,
                               int64_t stride, int num_contributions, bool add) {
  FoldAny(accumulator, contributions, elements, stride, num_contributions, add);
}

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

TANDEM_VECTOR_CLONES void AdamWStep(const AdamWScalars<float>& scalars, int64_t elements, const float* sum,
                                    float* weight, float* exp_avg, float* exp_avg_sq, float* mean,
                                    float* update) {
  StepAny(scalars, elements, sum, weight, exp_avg, exp_avg_sq, mean, update);
}

TANDEM_VECTOR_CLONES void AdamWStep(const AdamWScalars<double>& scalars, int64_t elements, const double* sum,
                                    double* weight, double* exp_avg, double* exp_avg_sq, double* mean,
                                    double* update) {
  StepAny(scalars, elements, sum, weight, exp_avg, exp_avg_sq, mean, update);
}

TANDEM_VECTOR_CLONES void Publish(const float* __restrict weight, int64_t elements,
                                  Bf16* __restrict published) {
  for (int64_t i = 0; i < elements; ++i) {
    published[i] = RoundToBf16(weight[i]);
  }
}

TANDEM_VECTOR_CLONES void MeanGradient(const AdamWScalars<float>& scalars, int64_t elements, const float* sum,
                                       float* mean) {
  MeanAny(scalars, elements, sum, mean);
}

TANDEM_VECTOR_CLONES void MeanGradient(const AdamWScalars<double>& scalars, int64_t elements,
                                       const double* sum, double* mean) {
  MeanAny(scalars, elements, sum, mean);
}

}  // namespace tandem::fsdp
