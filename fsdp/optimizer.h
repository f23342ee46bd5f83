#pragma once

#include <cstdint>

namespace tandem::fsdp {

struct OptimizerInputs;

// What the formula of OptimizerInputs needs for one element, in the type of the shard.
template <typename T>
struct AdamWScalars {
  AdamWScalars(const OptimizerInputs& inputs, double clip);

  T divisor;
  T clip;
  T beta1;
  T beta2;
  T one_minus_beta1;
  T one_minus_beta2;
  T correction1;  // 1 - beta1^t
  T correction2;  // 1 - beta2^t
  T learning_rate;
  T epsilon;
  T weight_decay;
};

// Updates weights and moments of `elements` elements, each alone. mean: out, sum / divisor, not clipped.
// update: out, new - old weight. The arrays do not overlap.
void AdamWStep(const AdamWScalars<float>& scalars, int64_t elements, const float* sum, float* weight,
               float* exp_avg, float* exp_avg_sq, float* mean, float* update);
void AdamWStep(const AdamWScalars<double>& scalars, int64_t elements, const double* sum, double* weight,
               double* exp_avg, double* exp_avg_sq, double* mean, double* update);

// mean alone, for steps that leave the weights as they are.
void MeanGradient(const AdamWScalars<float>& scalars, int64_t elements, const float* sum, float* mean);
void MeanGradient(const AdamWScalars<double>& scalars, int64_t elements, const double* sum, double* mean);

}  // namespace tandem::fsdp
