// Norms, rotation, activation, addition: loops over rows.
#include <cuda_runtime.h>

#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"

namespace tandem::ops::cuda {
namespace {

template <typename E, typename T>
__device__ T ReciprocalRms(const E* x, T epsilon, int64_t columns) {
  T squares = 0;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) squares += Widen(x[i]) * Widen(x[i]);
  return 1 / sqrt(BlockSum(squares) / static_cast<T>(columns) + epsilon);
}

template <typename E, typename T>
__global__ void RmsNormRow(const E* x, const E* weight, T epsilon, int64_t columns, E* y) {
  x += blockIdx.x * columns;
  y += blockIdx.x * columns;
  const T r = ReciprocalRms(x, epsilon, columns);
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    Narrow(Widen(x[i]) * r * Widen(weight[i]), y[i]);
  }
}

// With r = 1 / rms(x) and g = grad_y * weight: grad_x = r * (g - x * r^2 * mean(g * x)).
template <typename E, typename T>
__global__ void RmsNormBackwardRow(const E* grad_y, const E* x, const E* weight, T epsilon, int64_t columns,
                                   const E* residual, bool add_x, E* grad_x, T* reciprocals) {
  const int64_t begin = blockIdx.x * columns;
  x += begin;
  grad_y += begin;
  grad_x += begin;
  const T r = ReciprocalRms(x, epsilon, columns);
  T dot = 0;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    dot += Widen(grad_y[i]) * Widen(x[i]) * Widen(weight[i]);
  }
  const T shrink = r * r * r * BlockSum(dot) / static_cast<T>(columns);
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    T gradient = Widen(grad_y[i]) * Widen(weight[i]) * r - Widen(x[i]) * shrink;
    if (residual != nullptr) gradient += Widen(residual[begin + i]);
    Narrow(add_x ? Widen(grad_x[i]) + gradient : gradient, grad_x[i]);
  }
  if (threadIdx.x == 0) reciprocals[blockIdx.x] = r;
}

// One thread a column: neighbouring threads read neighbouring elements.
template <typename E, typename T>
__global__ void RmsNormBackwardWeight(const E* grad_y, const E* x, const T* reciprocals, int64_t rows,
                                      int64_t columns, bool add, T* grad_weight) {
  TANDEM_EACH(i, columns) {
    T sum = add ? grad_weight[i] : T{0};
    for (int64_t row = 0; row < rows; ++row) {
      sum += Widen(grad_y[row * columns + i]) * Widen(x[row * columns + i]) * reciprocals[row];
    }
    grad_weight[i] = sum;
  }
}

template <typename E, typename T>
__global__ void RopeEach(const T* cosines, const T* sines, T sign, int64_t rows, int64_t length,
                         int64_t heads, int64_t half, int64_t row_stride, E* x) {
  TANDEM_EACH(index, rows * heads * half) {
    const int64_t i = index % half;
    const int64_t head = index / half % heads;
    const int64_t row = index / half / heads;
    E* const first = x + row * row_stride + head * 2 * half + i;
    E* const second = first + half;
    const T c = cosines[row % length * half + i];
    const T s = sines[row % length * half + i] * sign;
    const T a = Widen(*first);
    const T b = Widen(*second);
    Narrow(a * c - b * s, *first);
    Narrow(b * c + a * s, *second);
  }
}

template <typename E>
__global__ void SwiGluEach(const E* gate_up, int64_t rows, int64_t inner, E* activated) {
  using T = Arithmetic<E>;
  TANDEM_EACH(index, rows * inner) {
    const int64_t row = index / inner;
    const T g = Widen(gate_up[row * 2 * inner + index % inner]);
    const T u = Widen(gate_up[row * 2 * inner + inner + index % inner]);
    Narrow(g / (1 + exp(-g)) * u, activated[index]);
  }
}

template <typename E>
__global__ void SwiGluBackwardEach(const E* gate_up, const E* grad_activated, int64_t rows, int64_t inner,
                                   E* grad_gate_up, E* activated) {
  using T = Arithmetic<E>;
  TANDEM_EACH(index, rows * inner) {
    const int64_t at = index / inner * 2 * inner + index % inner;
    const T g = Widen(gate_up[at]);
    const T u = Widen(gate_up[at + inner]);
    const T grad = Widen(grad_activated[index]);
    const T sigmoid = 1 / (1 + exp(-g));
    const T silu = g * sigmoid;
    Narrow(grad * u * (sigmoid + silu * (1 - sigmoid)), grad_gate_up[at]);
    Narrow(grad * silu, grad_gate_up[at + inner]);
    Narrow(silu * u, activated[index]);
  }
}

template <typename E>
__global__ void AddEach(const E* x, int64_t elements, E* y) {
  TANDEM_EACH(i, elements) Narrow(Widen(y[i]) + Widen(x[i]), y[i]);
}

}  // namespace

template <typename E>
int RmsNorm(const E* x, const E* weight, double epsilon, int64_t rows, int64_t columns, E* y, Stream stream) {
  RmsNormRow<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
      x, weight, static_cast<Arithmetic<E>>(epsilon), columns, y);
  return cudaGetLastError();
}

template <typename E, typename T>
int RmsNormBackward(const E* grad_y, const E* x, const E* weight, double epsilon, int64_t rows,
                    int64_t columns, const E* residual, bool add_x, E* grad_x, bool add_weight,
                    T* grad_weight, T* reciprocals, Stream stream) {
  RmsNormBackwardRow<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
      grad_y, x, weight, static_cast<T>(epsilon), columns, residual, add_x, grad_x, reciprocals);
  RmsNormBackwardWeight<<<Blocks(columns), kThreads, 0, stream>>>(grad_y, x, reciprocals, rows, columns,
                                                                  add_weight, grad_weight);
  return cudaGetLastError();
}

template <typename E, typename T>
int Rope(const T* cosines, const T* sines, int sign, int64_t rows, int64_t length, int64_t heads,
         int64_t head_dim, int64_t row_stride, E* x, Stream stream) {
  RopeEach<<<Blocks(rows * heads * head_dim / 2), kThreads, 0, stream>>>(
      cosines, sines, static_cast<T>(sign), rows, length, heads, head_dim / 2, row_stride, x);
  return cudaGetLastError();
}

template <typename E>
int SwiGlu(const E* gate_up, int64_t rows, int64_t inner, E* activated, Stream stream) {
  SwiGluEach<<<Blocks(rows * inner), kThreads, 0, stream>>>(gate_up, rows, inner, activated);
  return cudaGetLastError();
}

template <typename E>
int SwiGluBackward(const E* gate_up, const E* grad_activated, int64_t rows, int64_t inner, E* grad_gate_up,
                   E* activated, Stream stream) {
  SwiGluBackwardEach<<<Blocks(rows * inner), kThreads, 0, stream>>>(gate_up, grad_activated, rows, inner,
                                                                    grad_gate_up, activated);
  return cudaGetLastError();
}

template <typename E>
int Add(const E* x, int64_t elements, E* y, Stream stream) {
  AddEach<<<Blocks(elements), kThreads, 0, stream>>>(x, elements, y);
  return cudaGetLastError();
}

#define TANDEM_INSTANTIATE(E)                                                                              \
  template int RmsNorm(const E*, const E*, double, int64_t, int64_t, E*, Stream);                          \
  template int RmsNormBackward(const E*, const E*, const E*, double, int64_t, int64_t, const E*, bool, E*, \
                               bool, Arithmetic<E>*, Arithmetic<E>*, Stream);                              \
  template int Rope(const Arithmetic<E>*, const Arithmetic<E>*, int, int64_t, int64_t, int64_t, int64_t,   \
                    int64_t, E*, Stream);                                                                  \
  template int SwiGlu(const E*, int64_t, int64_t, E*, Stream);                                             \
  template int SwiGluBackward(const E*, const E*, int64_t, int64_t, E*, E*, Stream);                       \
  template int Add(const E*, int64_t, E*, Stream);

TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(double)
TANDEM_INSTANTIATE(Bf16)

}  // namespace tandem::ops::cuda
