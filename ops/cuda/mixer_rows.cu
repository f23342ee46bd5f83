// SPDX-License-Identifier: Apache-2.0
// What Mamba-2 mixers compute around their scan: a convolution, and the norm of gated rows, in which a block
// has a group of columns of some rows. Also squared ReLUs.
#include <cuda_runtime.h>

#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "ops/causal_conv.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/partial_sums.cuh"
#include "ops/gated_norm.h"
#include "ops/mixer_work.h"
#include "ops/squared_relu.h"

namespace tandem::ops::cuda {
namespace {

template <typename T>
__device__ T FastSigmoidOf(T x) {
  return 1 / (1 + Exp(-x));
}

// A thread has kPack channels of a run of tokens of a sequence, blockIdx.x among all runs. The convolution
// has at most kWidth tokens.
constexpr int kRunTokens = static_cast<int>(kConvTokens);

template <int kPack, int kWidth, typename E, typename T = Arithmetic<E>>
struct ConvRun {
  template <typename Args>
  __device__ explicit ConvRun(const Args& args)
      : width(static_cast<int>(args.width)),
        channel((static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kPack),
        inside(channel < args.channels) {
    const int64_t runs = ConvBlocks(1, args.length);
    sequence = blockIdx.x / runs;
    begin = blockIdx.x % runs * kRunTokens;
    end = min(begin + kRunTokens, args.length);
    if (!inside) {
      return;
    }
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      bias[k] = args.bias == nullptr ? T{0} : Widen(args.bias[channel + k]);
#pragma unroll
      for (int back = 0; back < kWidth; ++back) {
        weight[back][k] = back < width ? Widen(args.weight[(channel + k) * width + width - 1 - back]) : T{0};
      }
    }
#pragma unroll
    for (int back = 1; back < kWidth; ++back) {
      if (back < width && begin - back >= 0) {
        Read(args, begin - back, x[back - 1]);
      }
    }
  }

  template <typename Args>
  __device__ void Read(const Args& args, int64_t token, T (&to)[kPack]) const {
    Widen(PackAt<E, kPack>(args.x + (sequence * args.length + token) * args.x_stride + channel, 0), to);
  }

  // x[back] is the token `back` places before this one, for all tokens that Sums reads.
  template <typename Args>
  __device__ void Next(const Args& args, int64_t token) {
#pragma unroll
    for (int back = kWidth - 1; back > 0; --back) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        x[back][k] = x[back - 1][k];
      }
    }
    Read(args, token, x[0]);
    const int64_t* const start = args.documents.At(sequence, token);
    reach = static_cast<int>(min(token - (start == nullptr ? 0 : *start), static_cast<int64_t>(width - 1)));
  }

  // Computes the activation's input for the token.
  __device__ void Sums(T (&sums)[kPack]) const {
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      sums[k] = bias[k];
#pragma unroll
      for (int back = kWidth - 1; back >= 0; --back) {
        sums[k] += back <= reach ? weight[back][k] * x[back][k] : T{0};
      }
    }
  }

  const int width;
  const int64_t channel;
  const bool inside;
  int64_t sequence = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int reach = 0;  // how many tokens before this one it reads
  T bias[kPack];
  T weight[kWidth][kPack];  // of the token so many places before
  T x[kWidth][kPack] = {};
};

template <int kPack, int kWidth, typename E>
__global__ void __launch_bounds__(kThreads) Convolve(CausalConvArgs<E> args) {
  using T = Arithmetic<E>;
  ConvRun<kPack, kWidth, E> run(args);
  if (!run.inside) {
    return;
  }
#pragma unroll 4
  for (int64_t t = run.begin; t < run.end; ++t) {
    run.Next(args, t);
    T sums[kPack];
    run.Sums(sums);
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      sums[k] *= FastSigmoidOf(sums[k]);
    }
    Pack<E, kPack> y;
    Narrow(sums, y);
    SetPack(args.y + (run.sequence * args.length + t) * args.channels + run.channel, 0, y);
  }
}

// The gradient of a token is complete when the last token that reads it has been seen, which may be in the
// next run. partial_sums: [runs, channels, width + 1], of the weights and the bias.
template <int kPack, int kWidth, typename E, typename T>
__global__ void __launch_bounds__(kThreads)
    ConvolveBackward(CausalConvBackwardArgs<E> args, T* partial_sums) {
  ConvRun<kPack, kWidth, E> run(args);
  if (!run.inside) {
    return;
  }
  T grad_weight[kWidth][kPack] = {};
  T grad_bias[kPack] = {};
  T grads[kWidth][kPack] = {};  // of the sums of the token so many places before
  int reaches[kWidth];
#pragma unroll
  for (int& reach : reaches) {
    reach = -1;
  }
#pragma unroll 4
  for (int64_t t = run.begin; t < run.end + kWidth - 1; ++t) {
#pragma unroll
    for (int back = kWidth - 1; back > 0; --back) {
      reaches[back] = reaches[back - 1];
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        grads[back][k] = grads[back - 1][k];
      }
    }
    reaches[0] = -1;
    const int64_t row = run.sequence * args.length + t;
    if (t < args.length) {
      run.Next(args, t);
      reaches[0] = run.reach;
      T grad_y[kPack];
      Widen(PackAt<E, kPack>(args.grad_y + row * args.channels + run.channel, 0), grad_y);
      T sums[kPack];
      run.Sums(sums);
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        const T sigmoid = FastSigmoidOf(sums[k]);
        grads[0][k] = grad_y[k] * (sigmoid + sums[k] * sigmoid * (1 - sigmoid));
        if (t < run.end) {
          grad_bias[k] += grads[0][k];
#pragma unroll
          for (int back = 0; back < kWidth; ++back) {
            grad_weight[back][k] += back <= run.reach ? grads[0][k] * run.x[back][k] : T{0};
          }
        }
      }
    }
    if (t - (kWidth - 1) < run.begin) {
      continue;
    }
    T grad_x[kPack] = {};
#pragma unroll
    for (int ahead = 0; ahead < kWidth; ++ahead) {  // of the token kWidth - 1 before
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        grad_x[k] +=
            ahead <= reaches[kWidth - 1 - ahead] ? run.weight[ahead][k] * grads[kWidth - 1 - ahead][k] : T{0};
      }
    }
    Pack<E, kPack> packed;
    Narrow(grad_x, packed);
    SetPack(args.grad_x + (row - (kWidth - 1)) * args.grad_x_stride + run.channel, 0, packed);
  }
  T* const partial = partial_sums + (blockIdx.x * args.channels + run.channel) * (run.width + 1);
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
#pragma unroll
    for (int back = 0; back < kWidth; ++back) {
      if (back < run.width) {
        partial[k * (run.width + 1) + run.width - 1 - back] = grad_weight[back][k];
      }
    }
    partial[k * (run.width + 1) + run.width] = grad_bias[k];
  }
}

// Converts [channels, width + 1] to the weights' gradients and, if they are not null, the biases'.
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

// y silu(gate), and the numbers that its gradients need.
template <typename T>
struct GatedElement {
  __device__ GatedElement(T y, T gate)
      : y(y), sigmoid(FastSigmoidOf(gate)), silu(gate * sigmoid), gated(y * silu) {}

  __device__ T GradOfGate(T grad) const { return grad * y * (sigmoid + silu * (1 - sigmoid)); }

  T y;
  T sigmoid;
  T silu;
  T gated;
};

// kPack elements of y and its gate.
template <int kPack, typename E, typename T = Arithmetic<E>>
struct GatedPack {
  __device__ GatedPack(const E* y, const E* gate, int64_t pack) {
    Widen(PackAt<E, kPack>(y, pack), y_);
    Widen(PackAt<E, kPack>(gate, pack), gate_);
  }
  __device__ GatedElement<T> operator[](int k) const { return GatedElement<T>(y_[k], gate_[k]); }

  T y_[kPack];
  T gate_[kPack];
};

template <int kPack, int kBlock, typename E>
__global__ void NormGated(GatedNormArgs<E> args) {
  using T = Arithmetic<E>;
  const int64_t columns = args.columns / args.groups;
  const int64_t row = blockIdx.x / args.groups;
  const int64_t begin = blockIdx.x % args.groups * columns;
  const E* const y = args.y + row * args.columns + begin;
  const E* const gate = args.gate + row * args.gate_stride + begin;
  T squares = 0;
  for (int64_t i = threadIdx.x; i < columns / kPack; i += kBlock) {
    const GatedPack<kPack, E> elements(y, gate, i);
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      const T gated = elements[k].gated;
      squares += gated * gated;
    }
  }
  const T r = rsqrt(BlockSum<kBlock>(squares) / static_cast<T>(columns) + static_cast<T>(args.epsilon));
  for (int64_t i = threadIdx.x; i < columns / kPack; i += kBlock) {
    const GatedPack<kPack, E> elements(y, gate, i);
    T normed[kPack];
    Widen(PackAt<E, kPack>(args.weight + begin, i), normed);
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      normed[k] *= elements[k].gated * r;
    }
    Pack<E, kPack> packed;
    Narrow(normed, packed);
    SetPack(args.normed + row * args.columns + begin, i, packed);
  }
}

// A block has a group of columns of every gridDim.y-th row. partial_sums: [gridDim.y, columns], of the
// weight's gradient, which is added up in shared memory if in_shared.
template <int kPack, int kBlock, typename E, typename T>
__global__ void NormGatedBackward(GatedNormBackwardArgs<E> args, T* partial_sums, bool in_shared) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  const int64_t columns = args.columns / args.groups;
  const int64_t begin = blockIdx.x * columns;
  T* const partial = partial_sums + blockIdx.y * args.columns + begin;
  T* const weights = in_shared ? reinterpret_cast<T*>(dynamic) : partial;
  for (int64_t i = threadIdx.x; i < columns / kPack; i += kBlock) {
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      weights[i * kPack + k] = 0;
    }
  }
  for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y) {
    const E* const grad = args.grad_normed + row * args.columns + begin;
    const E* const y = args.y + row * args.columns + begin;
    const E* const gate = args.gate + row * args.gate_stride + begin;
    T squares = 0;
    T dot = 0;
    for (int64_t i = threadIdx.x; i < columns / kPack; i += kBlock) {
      const GatedPack<kPack, E> elements(y, gate, i);
      T grads[kPack];
      T weight[kPack];
      Widen(PackAt<E, kPack>(grad, i), grads);
      Widen(PackAt<E, kPack>(args.weight + begin, i), weight);
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        const T gated = elements[k].gated;
        squares += gated * gated;
        dot += grads[k] * gated * weight[k];
      }
    }
    const T r = rsqrt(BlockSum<kBlock>(squares) / static_cast<T>(columns) + static_cast<T>(args.epsilon));
    const T shrink = r * r * r * BlockSum<kBlock>(dot) / static_cast<T>(columns);
    for (int64_t i = threadIdx.x; i < columns / kPack; i += kBlock) {
      const GatedPack<kPack, E> elements(y, gate, i);
      T grads[kPack];
      T of_y[kPack];
      T of_gate[kPack];
      Widen(PackAt<E, kPack>(grad, i), grads);
      Widen(PackAt<E, kPack>(args.weight + begin, i), of_y);  // the weights
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        const GatedElement<T> element = elements[k];
        weights[i * kPack + k] += grads[k] * element.gated * r;
        const T of_gated = grads[k] * of_y[k] * r - element.gated * shrink;
        of_y[k] = of_gated * element.silu;
        of_gate[k] = element.GradOfGate(of_gated);
      }
      Pack<E, kPack> packed;
      Narrow(of_y, packed);
      SetPack(args.grad_y + row * args.columns + begin, i, packed);
      Narrow(of_gate, packed);
      SetPack(args.grad_gate + row * args.grad_gate_stride + begin, i, packed);
    }
  }
  if (in_shared) {
    for (int64_t i = threadIdx.x; i < columns / kPack; i += kBlock) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        partial[i * kPack + k] = weights[i * kPack + k];
      }
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

// Calls launch with the channels of a thread and the largest width of a convolution as constants.
template <typename E, typename Args, typename Launch>
void WithConvRun(const Args& args, std::initializer_list<int64_t> strides,
                 std::initializer_list<const void*> matrices, const Launch& launch) {
  const auto with_width = [&](auto packed) {
    if (args.width <= 4) {
      launch(packed, std::integral_constant<int, 4>());
    } else {
      launch(packed, std::integral_constant<int, static_cast<int>(kMostConvWidth)>());
    }
  };
  WithPacks<E>(strides, matrices, with_width);
}

template <typename Args>
dim3 ConvGrid(const Args& args, int64_t pack) {
  return {static_cast<unsigned>(ConvBlocks(args.sequences, args.length)),
          static_cast<unsigned>((args.channels / pack + kThreads - 1) / kThreads)};
}

// Calls launch with the pack of a thread and the threads of a block as constants: as few threads as give
// each a pack of a group of columns, if that suffices.
template <typename E, typename Launch>
void WithGatedRows(int64_t columns, std::initializer_list<int64_t> strides,
                   std::initializer_list<const void*> matrices, const Launch& launch) {
  const auto with_block = [&](auto packed) {
    if (columns <= 128 * decltype(packed)::kSize) {
      launch(packed, std::integral_constant<int, 128>());
    } else {
      launch(packed, std::integral_constant<int, kThreads>());
    }
  };
  WithPacks<E>(strides, matrices, with_block);
}

}  // namespace

template <typename E>
int Launch(const CausalConvArgs<E>& args, Stream stream) {
  if (args.sequences * args.length > 0) {
    WithConvRun<E>(args, {args.channels, args.x_stride}, {args.x, args.y}, [&](auto packed, auto width) {
      constexpr int kPack = decltype(packed)::kSize;
      Convolve<kPack, decltype(width)::value><<<ConvGrid(args, kPack), kThreads, 0, stream>>>(args);
    });
  }
  return cudaGetLastError();
}
TANDEM_KERNEL(CausalConvArgs)

template <typename E>
int Launch(const CausalConvBackwardArgs<E>& args, Stream stream) {
  using T = Arithmetic<E>;
  const int64_t runs = ConvBlocks(args.sequences, args.length);
  const int64_t sums = args.channels * (args.width + 1);
  T* const partial_sums = static_cast<T*>(args.work.begin);
  T* const total = partial_sums + runs * sums;
  if (runs > 0) {
    WithConvRun<E>(args, {args.channels, args.x_stride, args.grad_x_stride},
                   {args.x, args.grad_y, args.grad_x}, [&](auto packed, auto width) {
                     constexpr int kPack = std::max(1, decltype(packed)::kSize / 2);  // registers
                     ConvolveBackward<kPack, decltype(width)::value>
                         <<<ConvGrid(args, kPack), kThreads, 0, stream>>>(args, partial_sums);
                   });
  }
  AddPartialSums<<<PartialSumBlocks(sums), kThreads, 0, stream>>>(partial_sums, sums, runs, sums,
                                                                  /*add=*/false, total);
  SplitGradients<<<Blocks(sums), kThreads, 0, stream>>>(total, args.channels, args.width, args.grad_weight,
                                                        args.grad_bias);
  return cudaGetLastError();
}
TANDEM_KERNEL(CausalConvBackwardArgs)

template <typename E>
int Launch(const GatedNormArgs<E>& args, Stream stream) {
  const int64_t columns = args.columns / args.groups;
  if (args.rows > 0) {
    WithGatedRows<E>(columns, {columns, args.gate_stride}, {args.y, args.gate, args.weight, args.normed},
                     [&](auto packed, auto block) {
                       constexpr int kBlock = decltype(block)::value;
                       NormGated<decltype(packed)::kSize, kBlock>
                           <<<static_cast<unsigned>(args.rows * args.groups), kBlock, 0, stream>>>(args);
                     });
  }
  return cudaGetLastError();
}
TANDEM_KERNEL(GatedNormArgs)

template <typename E>
int Launch(const GatedNormBackwardArgs<E>& args, Stream stream) {
  auto* const partial_sums = static_cast<Arithmetic<E>*>(args.work.begin);
  const int64_t columns = args.columns / args.groups;
  const int64_t rows = std::min(args.rows, kGatedRows);
  const auto bytes = static_cast<size_t>(columns) * sizeof(*partial_sums);
  const bool in_shared = bytes <= (47U << 10);  // of the 48 KiB that a block has by default
  if (rows > 0) {
    WithGatedRows<E>(columns, {columns, args.gate_stride, args.grad_gate_stride},
                     {args.grad_normed, args.y, args.gate, args.weight, args.grad_y, args.grad_gate},
                     [&](auto packed, auto block) {
                       constexpr int kBlock = decltype(block)::value;
                       const dim3 grid(static_cast<unsigned>(args.groups), static_cast<unsigned>(rows));
                       NormGatedBackward<decltype(packed)::kSize, kBlock>
                           <<<grid, kBlock, in_shared ? bytes : 0, stream>>>(args, partial_sums, in_shared);
                     });
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
