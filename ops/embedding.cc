#include "ops/embedding.h"

#include <ATen/core/Tensor.h>

#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/tensor_access.h"

namespace tandem::ops {

void Embedding(const at::Tensor& tokens, const at::Tensor& weight, at::Tensor& output) {
  const TokenGrid grid(tokens);
  const int64_t columns = weight.size(1);
  CheckMatrix("weight", weight, weight.size(0), columns);
  CheckMatrix("output", output, grid.size(), columns);
  WithElementType(weight, [&]<typename T>(T) {
    const T* rows = weight.const_data_ptr<T>();
    T* out = output.mutable_data_ptr<T>();
    grid.ForEach(weight.size(0), [&](int64_t row, int64_t id) {
      std::memcpy(out + row * columns, rows + id * columns, columns * sizeof(T));
    });
  });
}

void EmbeddingBackward(const at::Tensor& tokens, const at::Tensor& grad_output, bool add,
                       at::Tensor& grad_weight) {
  const TokenGrid grid(tokens);
  const int64_t columns = grad_weight.size(1);
  CheckMatrix("grad_weight", grad_weight, grad_weight.size(0), columns);
  CheckMatrix("grad_output", grad_output, grid.size(), columns);
  WithElementType(grad_weight, [&]<typename T>(T) {
    const cpu::Kernels<T>& kernels = cpu::BestKernels<T>();
    const T* in = grad_output.const_data_ptr<T>();
    T* rows = grad_weight.mutable_data_ptr<T>();
    if (!add) {
      std::memset(rows, 0, grad_weight.numel() * sizeof(T));
    }
    grid.ForEach(grad_weight.size(0), [&](int64_t row, int64_t id) {
      kernels.add(in + row * columns, columns, rows + id * columns);
    });
  });
}

}  // namespace tandem::ops
