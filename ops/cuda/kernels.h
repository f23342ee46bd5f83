// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/causal_conv.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/gated_delta.h"
#include "ops/gated_norm.h"
#include "ops/head_norm.h"
#include "ops/latent_heads.h"
#include "ops/norm_gate.h"
#include "ops/output_gate.h"
#include "ops/qkv_bias.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/squared_relu.h"
#include "ops/state_scan.h"
#include "ops/swiglu.h"
#include "ops/token_gate.h"

struct CUstream_st;

namespace tandem::ops::cuda {

using device::Arithmetic;
using device::Bf16;

// The kernels of all operations except attention, for float, double and Bf16, on the current GPU. Each does
// what the struct of its arguments says. A call launches on `stream` and returns the runtime's error
// (cudaError_t). No kernel adds atomically.
using Stream = CUstream_st*;

template <typename E>
int Launch(const CausalConvArgs<E>& args, Stream stream);
template <typename E>
int Launch(const CausalConvBackwardArgs<E>& args, Stream stream);
template <typename E>
int Launch(const CrossEntropyArgs<E>& args, Stream stream);
template <typename E>
int Launch(const EmbeddingArgs<E>& args, Stream stream);
template <typename E>  // sorts the tokens by their ids
int Launch(const EmbeddingBackwardArgs<E>& args, Stream stream);
template <typename E>
int Launch(const GatedDeltaArgs<E>& args, Stream stream);
template <typename E>
int Launch(const GatedDeltaBackwardArgs<E>& args, Stream stream);
template <typename E>
int Launch(const GatedNormArgs<E>& args, Stream stream);
template <typename E>
int Launch(const GatedNormBackwardArgs<E>& args, Stream stream);
template <typename E>
int Launch(const HeadNormArgs<E>& args, Stream stream);
template <typename E>
int Launch(const HeadNormBackwardArgs<E>& args, Stream stream);
template <typename E>
int Launch(const NormGateArgs<E>& args, Stream stream);
template <typename E>
int Launch(const NormGateBackwardArgs<E>& args, Stream stream);
template <typename E>
int Launch(const OutputGateArgs<E>& args, Stream stream);
template <typename E>
int Launch(const OutputGateBackwardArgs<E>& args, Stream stream);
template <typename E>
int Launch(const PackLatentHeadsArgs<E>& args, Stream stream);
template <typename E>
int Launch(const QkvBiasArgs<E>& args, Stream stream);
template <typename E>
int Launch(const QkvBiasBackwardArgs<E>& args, Stream stream);
template <typename E>
int Launch(const RmsNormArgs<E>& args, Stream stream);
template <typename E>
int Launch(const RmsNormBackwardArgs<E>& args, Stream stream);
template <typename E>
int Launch(const RopeArgs<E>& args, Stream stream);
template <typename E>
int Launch(const SquaredReluArgs<E>& args, Stream stream);
template <typename E>
int Launch(const SquaredReluBackwardArgs<E>& args, Stream stream);
template <typename E>
int Launch(const StateScanArgs<E>& args, Stream stream);
template <typename E>
int Launch(const StateScanBackwardArgs<E>& args, Stream stream);
template <typename E>
int Launch(const SwiGluArgs<E>& args, Stream stream);
template <typename E>
int Launch(const SwiGluBackwardArgs<E>& args, Stream stream);
template <typename E>
int Launch(const TokenGateArgs<E>& args, Stream stream);
template <typename E>
int Launch(const TokenGateBackwardArgs<E>& args, Stream stream);
template <typename E>
int Launch(const UnpackLatentHeadsArgs<E>& args, Stream stream);

// To be used after the definition of Launch for those arguments.
#define TANDEM_KERNEL(Args)                                \
  template int Launch(const Args<float>&, Stream stream);  \
  template int Launch(const Args<double>&, Stream stream); \
  template int Launch(const Args<Bf16>&, Stream stream);

// Some query rows of one sequence in causal attention, between its matrix products. Their scores are [heads,
// rows, columns]. Row i reads columns starts[i] ... columns - rows + i, and its lse is at lse[head *
// lse_stride + columns - rows + i]. T is float or double; scores are not rounded.
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
