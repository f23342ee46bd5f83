// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/attention.h"
#include "ops/cuda/kernels.h"

namespace tandem::ops::cuda {

// Causal attention of shapes that cuDNN does not compute (attention_work.h): in float and double, and for
// other heads in bfloat16, which is computed in float. The scores of some rows of one sequence are in work
// memory at a time, and LibTorch computes the products. Uses the current GPU and stream. E is float, double
// or Bf16.
template <typename E>
void BlockedAttention(const AttentionArgs<E>& args);
template <typename E>
void BlockedAttention(const AttentionBackwardArgs<E>& args);

// Some query rows of one sequence in causal attention. Their scores are [heads, rows, columns]. Row i reads
// columns starts[i] ... columns - rows + i, and its lse is at lse[head * lse_stride + columns - rows + i]. T
// is float or double; scores are not rounded.
struct ScoreBlock {
  int64_t heads = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t lse_stride = 0;
  const int64_t* starts = nullptr;  // null: all rows read from column 0 on
};

// Turns scores into probabilities in place, with zeros for what a row does not read. Writes lse.
template <typename T>
int CausalSoftmax(const ScoreBlock& block, T* scores, T* lse, Stream stream);

// Turns scores into probabilities in place, with a known lse.
template <typename T>
int CausalProbabilities(const ScoreBlock& block, const T* lse, T* scores, Stream stream);

// Turns `grad` into the gradient of the scores in place: p (grad - sum_j p grad).
template <typename T>
int SoftmaxBackward(const ScoreBlock& block, const T* probabilities, T* grad, Stream stream);

}  // namespace tandem::ops::cuda
