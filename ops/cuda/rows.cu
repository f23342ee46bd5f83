// Norms, rotation, activation, addition: loops over rows.
#include <cuda_runtime.h>

#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"

namespace tandem::ops::cuda {
namespace {

template <typename T>
__device__ T ReciprocalRms(const T* x, T epsilon, int64_t columns) {
  T squares = 0;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) squares += x[i] * x[i];
  return 1 / sqrt(BlockSum(squares) / static_cast<T>(columns) + epsilon);
}

template <typename T>
__global__ void RmsNormRow(const T* x, const T* weight, T epsilon, int64_t columns, T* y) {
  x += blockIdx.x * columns;
  y += blockIdx.x * columns;
  const T r = ReciprocalRms(x, epsilon, columns);
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) y[i] = x[i] * r * weight[i];
}

// With r = 1 / rms(x) and g = grad_y * weight: grad_x = r * (g - x * r^2 * mean(g * x)).
template <typename T>
__global__ void RmsNormBackwardRow(const T* grad_y, const T* x, const T* weight, T epsilon, int64_t columns,
                                   const T* residual, bool add_x, T* grad_x, T* reciprocals) {
  const int64_t begin = blockIdx.x * columns;
  x += begin;
  grad_y += begin;
  grad_x += begin;
  const T r = ReciprocalRms(x, epsilon, columns);
  T dot = 0;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) dot += grad_y[i] * x[i] * weight[i];
  const T shrink = r * r * r * BlockSum(dot) / static_cast<T>(columns);
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    T gradient = grad_y[i] * weight[i] * r - x[i] * shrink;
    if (residual != nullptr) gradient += residual[begin + i];
    grad_x[i] = add_x ? grad_x[i] + gradient : gradient;
  }
  if (threadIdx.x == 0) reciprocals[blockIdx.x] = r;
}

// One thread a column: neighbouring threads read neighbouring elements.
template <typename T>
__global__ void RmsNormBackwardWeight(const T* grad_y, const T* x, const T* reciprocals, int64_t rows,
                                      int64_t columns, bool add, T* grad_weight) {
  TANDEM_EACH(i, columns) {
    T sum = add ? grad_weight[i] : T{0};
    for (int64_t row = 0; row < rows; ++row) {
      sum += grad_y[row * columns + i] * x[row * columns + i] * reciprocals[row];
    }
    grad_weight[i] = sum;
  }
}

template <typename T>
__global__ void RopeEach(const T* cosines, const T* sines, T sign, int64_t rows, int64_t length,
                         int64_t heads, int64_t half, int64_t row_stride, T* x) {
  TANDEM_EACH(index, rows * heads * half) {
    const int64_t i = index % half;
    const int64_t head = index / half % heads;
    const int64_t row = index / half / heads;
    T* const first = x + row * row_stride + head * 2 * half + i;
    T* const second = first + half;
    const T c = cosines[row % length * half + i];
    const T s = sines[row % length * half + i] * sign;
    const T a = *first;
    const T b = *second;
    *first = a * c - b * s;
    *second = b * c + a * s;
  }
}

template <typename T>
__global__ void SwiGluEach(const T* gate_up, int64_t rows, int64_t inner, T* activated) {
  TANDEM_EACH(index, rows * inner) {
    const int64_t row = index / inner;
    const T g = gate_up[row * 2 * inner + index % inner];
    const T u = gate_up[row * 2 * inner + inner + index % inner];
    activated[index] = g / (1 + exp(-g)) * u;
  }
}

template <typename T>
__global__ void SwiGluBackwardEach(const T* gate_up, const T* grad_activated, int64_t rows, int64_t inner,
                                   T* grad_gate_up, T* activated) {
  TANDEM_EACH(index, rows * inner) {
    const int64_t at = index / inner * 2 * inner + index % inner;
    const T g = gate_up[at];
    const T u = gate_up[at + inner];
    const T grad = grad_activated[index];
    const T sigmoid = 1 / (1 + exp(-g));
    const T silu = g * sigmoid;
    grad_gate_up[at] = grad * u * (sigmoid + silu * (1 - sigmoid));
    grad_gate_up[at + inner] = grad * silu;
    activated[index] = silu * u;
  }
}

template <typename T>
__global__ void AddEach(const T* x, int64_t elements, T* y) {
  TANDEM_EACH(i, elements) y[i] += x[i];
}

}  // namespace

template <typename T>
int RmsNorm(const T* x, const T* weight, double epsilon, int64_t rows, int64_t columns, T* y, Stream stream) {
  RmsNormRow<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(x, weight, static_cast<T>(epsilon),
                                                                   columns, y);
  return cudaGetLastError();
}

template <typename T>
int RmsNormBackward(const T* grad_y, const T* x, const T* weight, double epsilon, int64_t rows,
                    int64_t columns, const T* residual, bool add_x, T* grad_x, bool add_weight,
                    T* grad_weight, T* reciprocals, Stream stream) {
  RmsNormBackwardRow<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
      grad_y, x, weight, static_cast<T>(epsilon), columns, residual, add_x, grad_x, reciprocals);
  RmsNormBackwardWeight<<<Blocks(columns), kThreads, 0, stream>>>(grad_y, x, reciprocals, rows, columns,
                                                                  add_weight, grad_weight);
  return cudaGetLastError();
}

template <typename T>
int Rope(const T* cosines, const T* sines, int sign, int64_t rows, int64_t length, int64_t heads,
         int64_t head_dim, int64_t row_stride, T* x, Stream stream) {
  RopeEach<<<Blocks(rows * heads * head_dim / 2), kThreads, 0, stream>>>(
      cosines, sines, static_cast<T>(sign), rows, length, heads, head_dim / 2, row_stride, x);
  return cudaGetLastError();
}

template <typename T>
int SwiGlu(const T* gate_up, int64_t rows, int64_t inner, T* activated, Stream stream) {
  SwiGluEach<<<Blocks(rows * inner), kThreads, 0, stream>>>(gate_up, rows, inner, activated);
  return cudaGetLastError();
}

template <typename T>
int SwiGluBackward(const T* gate_up, const T* grad_activated, int64_t rows, int64_t inner, T* grad_gate_up,
                   T* activated, Stream stream) {
  SwiGluBackwardEach<<<Blocks(rows * inner), kThreads, 0, stream>>>(gate_up, grad_activated, rows, inner,
                                                                    grad_gate_up, activated);
  return cudaGetLastError();
}

template <typename T>
int Add(const T* x, int64_t elements, T* y, Stream stream) {
  AddEach<<<Blocks(elements), kThreads, 0, stream>>>(x, elements, y);
  return cudaGetLastError();
}

#define TANDEM_INSTANTIATE(T)                                                                              \
  template int RmsNorm(const T*, const T*, double, int64_t, int64_t, T*, Stream);                          \
  template int RmsNormBackward(const T*, const T*, const T*, double, int64_t, int64_t, const T*, bool, T*, \
                               bool, T*, T*, Stream);                                                      \
  template int Rope(const T*, const T*, int, int64_t, int64_t, int64_t, int64_t, int64_t, T*, Stream);     \
  template int SwiGlu(const T*, int64_t, int64_t, T*, Stream);                                             \
  template int SwiGluBackward(const T*, const T*, int64_t, int64_t, T*, T*, Stream);                       \
  template int Add(const T*, int64_t, T*, Stream);

TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(double)

}  // namespace tandem::ops::cuda
