// SPDX-License-Identifier: Apache-2.0
#include "fsdp/optimizer.h"

#include <cmath>

#include "fsdp/vector_clones.h"

namespace tandem::fsdp {
namespace {

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
