// SPDX-License-Identifier: Apache-2.0
// What Mamba-2 mixers compute around their scan: a convolution, in which a thread has a channel of some
// tokens, and the norm of what is gated, in which a block has a group of some rows. Squared ReLUs beside.
#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/kernels.h"
#include "ops/cuda/partial_sums.cuh"
#include "ops/mixer_work.h"

namespace tandem::ops::cuda {
namespace {

template <typename T>
__device__ T SigmoidOf(T x) {
  return 1 / (1 + exp(-x));
}

// The last tokens of a channel that a convolution reads, and its weights.
template <typename E, typename T = Arithmetic<E>>
struct Window {
  template <typename Args>
  __device__ Window(const Args& args, int64_t channel)
      : width(static_cast<int>(args.width)), bias(args.bias == nullptr ? T{0} : Widen(args.bias[channel])) {
    for (int j = 0; j < width; ++j) {
      weight[j] = Widen(args.weight[channel * width + j]);
    }
  }

  // What the activation gets of a token at `x`, of which `before` tokens of its document are before it.
  __device__ T Sum(const E* x, int64_t stride, int64_t before) const {
    T sum = bias;
    for (int back = static_cast<int>(min(before, static_cast<int64_t>(width - 1))); back >= 0; --back) {
      sum += weight[width - 1 - back] * Widen(x[-back * stride]);
    }
    return sum;
  }

  int width;
  T bias;
  T weight[kMostConvWidth];
};

// Of row `row` of all sequences.
template <typename Args>
__device__ int64_t TokensBefore(const Args& args, int64_t row) {
  const int64_t token = row % args.length;
  const int64_t* const start = args.documents.At(row / args.length, token);
  return token - (start == nullptr ? 0 : *start);
}

dim3 ChannelBlocks(int64_t channels, int64_t groups) {
  return {static_cast<unsigned>((channels + kThreads - 1) / kThreads), static_cast<unsigned>(groups)};
}

template <typename E>
__global__ void Convolve(CausalConvArgs<E> args) {
  using T = Arithmetic<E>;
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (channel >= args.channels) {
    return;
  }
  const Window<E> window(args, channel);
  for (int64_t row = blockIdx.y; row < args.sequences * args.length; row += gridDim.y) {
    const T sum = window.Sum(args.x + row * args.x_stride + channel, args.x_stride, TokensBefore(args, row));
    Narrow(sum * SigmoidOf(sum), args.y[row * args.channels + channel]);
  }
}

// A block has kConvTokens tokens of a sequence, from the last to the first, behind which it looks for the
// sums that read them. partial_sums: [blocks, channels, width + 1], of the weights and the bias.
template <typename E, typename T>
__global__ void ConvolveBackward(CausalConvBackwardArgs<E> args, int64_t blocks_a_sequence, T* partial_sums) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (channel >= args.channels) {
    return;
  }
  const Window<E> window(args, channel);
  const int width = window.width;
  const int64_t first_row = blockIdx.y / blocks_a_sequence * args.length;
  const int64_t begin = blockIdx.y % blocks_a_sequence * kConvTokens;
  const int64_t end = min(begin + kConvTokens, args.length);
  T grad_weight[kMostConvWidth] = {};
  T grad_bias = 0;
  T grads[kMostConvWidth] = {};  // of the sums of token t, at t % width
  for (int64_t t = min(end + width - 1, args.length) - 1; t >= begin; --t) {
    const int64_t row = first_row + t;
    const int64_t before = TokensBefore(args, row);
    const E* const x = args.x + row * args.x_stride + channel;
    const T sum = window.Sum(x, args.x_stride, before);
    const T sigmoid = SigmoidOf(sum);
    const T grad =
        Widen(args.grad_y[row * args.channels + channel]) * (sigmoid + sum * sigmoid * (1 - sigmoid));
    grads[t % width] = grad;
    if (t >= end) {
      continue;  // of the block behind
    }
    grad_bias += grad;
    for (int back = static_cast<int>(min(before, static_cast<int64_t>(width - 1))); back >= 0; --back) {
      grad_weight[width - 1 - back] += grad * Widen(x[-back * args.x_stride]);
    }
    T grad_x = 0;
    for (int ahead = 0; ahead < width && t + ahead < args.length; ++ahead) {
      if (TokensBefore(args, row + ahead) < ahead) {
        break;  // another document
      }
      grad_x += window.weight[width - 1 - ahead] * grads[(t + ahead) % width];
    }
    Narrow(grad_x, args.grad_x[row * args.grad_x_stride + channel]);
  }
  T* const partial = partial_sums + (blockIdx.y * args.channels + channel) * (width + 1);
  for (int j = 0; j < width; ++j) {
    partial[j] = grad_weight[j];
  }
  partial[width] = grad_bias;
}

// From [channels, width + 1] to the weights' gradients and, if they are not null, the biases'.
template <typename T>
__global__ void SplitGradients(const T* sums, int64_t channels, int64_t width, T* weights, T* biases) {
  TANDEM_EACH(i, channels * (width + 1)) {
    const int64_t channel = i / (width + 1);
    const int64_t j = i % (width + 1);
    if (j < width) {
      weights[channel * width + j] = sums[i];
    } else if (biases != nullptr) {
      biases[channel] = sums[i];
    }
  }
}

// y silu(gate), and what its gradients need.
template <typename T>
struct GatedElement {
  __device__ GatedElement(T y, T gate)
      : y(y), sigmoid(SigmoidOf(gate)), silu(gate * sigmoid), gated(y * silu) {}

  __device__ T GradOfGate(T grad) const { return grad * y * (sigmoid + silu * (1 - sigmoid)); }

  T y;
  T sigmoid;
  T silu;
  T gated;
};

template <typename E>
__global__ void NormGated(GatedNormArgs<E> args) {
  using T = Arithmetic<E>;
  const int64_t columns = args.columns / args.groups;
  const int64_t row = blockIdx.x / args.groups;
  const int64_t begin = blockIdx.x % args.groups * columns;
  const E* const y = args.y + row * args.columns + begin;
  const E* const gate = args.gate + row * args.gate_stride + begin;
  T squares = 0;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    const GatedElement<T> element(Widen(y[i]), Widen(gate[i]));
    squares += element.gated * element.gated;
  }
  const T r = rsqrt(BlockSum(squares) / static_cast<T>(columns) + static_cast<T>(args.epsilon));
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    const GatedElement<T> element(Widen(y[i]), Widen(gate[i]));
    Narrow(element.gated * r * Widen(args.weight[begin + i]), args.normed[row * args.columns + begin + i]);
  }
}

// A block has a group of every gridDim.y-th row. partial_sums: [gridDim.y, columns], of the weight's
// gradient.
template <typename E, typename T>
__global__ void NormGatedBackward(GatedNormBackwardArgs<E> args, T* partial_sums) {
  const int64_t columns = args.columns / args.groups;
  const int64_t begin = blockIdx.x * columns;
  T* const weights = partial_sums + blockIdx.y * args.columns + begin;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    weights[i] = 0;
  }
  for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y) {
    const E* const grad = args.grad_normed + row * args.columns + begin;
    const E* const y = args.y + row * args.columns + begin;
    const E* const gate = args.gate + row * args.gate_stride + begin;
    T squares = 0;
    T dot = 0;
    for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
      const GatedElement<T> element(Widen(y[i]), Widen(gate[i]));
      squares += element.gated * element.gated;
      dot += Widen(grad[i]) * element.gated * Widen(args.weight[begin + i]);
    }
    const T r = rsqrt(BlockSum(squares) / static_cast<T>(columns) + static_cast<T>(args.epsilon));
    const T shrink = r * r * r * BlockSum(dot) / static_cast<T>(columns);
    for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
      const GatedElement<T> element(Widen(y[i]), Widen(gate[i]));
      weights[i] += Widen(grad[i]) * element.gated * r;
      const T of_gated = Widen(grad[i]) * Widen(args.weight[begin + i]) * r - element.gated * shrink;
      Narrow(of_gated * element.silu, args.grad_y[row * args.columns + begin + i]);
      Narrow(element.GradOfGate(of_gated), args.grad_gate[row * args.grad_gate_stride + begin + i]);
    }
  }
}

template <typename E>
__global__ void SquareRelu(SquaredReluArgs<E> args) {
  TANDEM_EACH(i, args.elements) {
    const Arithmetic<E> x = Widen(args.up[i]);
    Narrow(x < 0 ? Arithmetic<E>{0} : x * x, args.activated[i]);
  }
}

template <typename E>
__global__ void SquareReluBackward(SquaredReluBackwardArgs<E> args) {
  using T = Arithmetic<E>;
  TANDEM_EACH(i, args.elements) {
    const T x = Widen(args.up[i]);
    const T positive = x < 0 ? T{0} : x;
    Narrow(Widen(args.grad_activated[i]) * positive * 2, args.grad_up[i]);
    Narrow(positive * positive, args.activated[i]);
  }
}

}  // namespace

template <typename E>
int Launch(const CausalConvArgs<E>& args, Stream stream) {
  const int64_t rows = args.sequences * args.length;
  if (rows > 0) {
    Convolve<<<ChannelBlocks(args.channels, std::min<int64_t>(rows, 65535)), kThreads, 0, stream>>>(args);
  }
  return cudaGetLastError();
}
TANDEM_KERNEL(CausalConvArgs)

template <typename E>
int Launch(const CausalConvBackwardArgs<E>& args, Stream stream) {
  using T = Arithmetic<E>;
  const int64_t blocks = ConvBlocks(args.sequences, args.length);
  const int64_t sums = args.channels * (args.width + 1);
  T* const partial_sums = static_cast<T*>(args.work.begin);
  T* const total = partial_sums + blocks * sums;
  if (blocks > 0) {
    ConvolveBackward<<<ChannelBlocks(args.channels, blocks), kThreads, 0, stream>>>(
        args, blocks / args.sequences, partial_sums);
  }
  AddPartialSums<<<PartialSumBlocks(sums), kThreads, 0, stream>>>(partial_sums, sums, blocks, sums,
                                                                  /*add=*/false, total);
  SplitGradients<<<Blocks(sums), kThreads, 0, stream>>>(total, args.channels, args.width, args.grad_weight,
                                                        args.grad_bias);
  return cudaGetLastError();
}
TANDEM_KERNEL(CausalConvBackwardArgs)

template <typename E>
int Launch(const GatedNormArgs<E>& args, Stream stream) {
  if (args.rows > 0) {
    NormGated<<<static_cast<unsigned>(args.rows * args.groups), kThreads, 0, stream>>>(args);
  }
  return cudaGetLastError();
}
TANDEM_KERNEL(GatedNormArgs)

template <typename E>
int Launch(const GatedNormBackwardArgs<E>& args, Stream stream) {
  auto* const partial_sums = static_cast<Arithmetic<E>*>(args.work.begin);
  const int64_t rows = std::min(args.rows, kGatedRows);
  if (rows > 0) {
    NormGatedBackward<<<dim3(static_cast<unsigned>(args.groups), static_cast<unsigned>(rows)), kThreads, 0,
                        stream>>>(args, partial_sums);
  }
  AddPartialSums<<<PartialSumBlocks(args.columns), kThreads, 0, stream>>>(
      partial_sums, args.columns, rows, args.columns, /*add=*/false, args.grad_weight);
  return cudaGetLastError();
}
TANDEM_KERNEL(GatedNormBackwardArgs)

template <typename E>
int Launch(const SquaredReluArgs<E>& args, Stream stream) {
  if (args.elements > 0) {
    SquareRelu<<<Blocks(args.elements), kThreads, 0, stream>>>(args);
  }
  return cudaGetLastError();
}
TANDEM_KERNEL(SquaredReluArgs)

template <typename E>
int Launch(const SquaredReluBackwardArgs<E>& args, Stream stream) {
  if (args.elements > 0) {
    SquareReluBackward<<<Blocks(args.elements), kThreads, 0, stream>>>(args);
  }
  return cudaGetLastError();
}
TANDEM_KERNEL(SquaredReluBackwardArgs)

}  // namespace tandem::ops::cuda
