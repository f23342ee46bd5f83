// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/matrix_product.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAFunctions.h>

#include <array>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "ops/cuda/product_plan.h"
#include "ops/linear_work.h"
#include "ops/tensor_access.h"

namespace tandem::ops::cuda {
class MatrixProduct::Plans {
 public:
  // The handle is of the current GPU; both live as long as this.
  std::pair<cublasLtHandle_t, const ProductPlan*> Find(const ProductOperands& operands)
      ABSL_LOCKS_EXCLUDED(mu_) {
    const int device = c10::cuda::current_device();
    const absl::MutexLock lock(&mu_);
    cublasLtHandle_t& handle = handles_[device];
    if (handle == nullptr) {
      CheckProduct(cublasLtCreate(&handle), "no handle");
    }
    std::array<int64_t, 18> key = {device, operands.adds};
    size_t next = 2;
    for (const Operand* m : {&operands.left, &operands.right, &operands.addend, &operands.output}) {
      for (const int64_t part : {static_cast<int64_t>(m->type) * 64 + m->alignment() * 2 + m->transposed,
                                 m->rows, m->columns, m->stride}) {
        key[next++] = part;
      }
    }
    std::unique_ptr<ProductPlan>& plan = plans_[key];
    if (plan == nullptr) {
      const std::string product = operands.text();
      plan = std::make_unique<ProductPlan>(
          handle, operands,
          product.empty() ? nullptr : ProductTable::OfBuild().Find(ProductMachine(), product));
    }
    return {handle, plan.get()};
  }

 private:
  absl::Mutex mu_;
  // Of the process: cuBLASLt may be gone when statics are destroyed.
  std::map<int, cublasLtHandle_t> handles_ ABSL_GUARDED_BY(mu_);
  std::map<std::array<int64_t, 18>, std::unique_ptr<ProductPlan>> plans_ ABSL_GUARDED_BY(mu_);
};

MatrixProduct::MatrixProduct() : plans_(std::make_unique<Plans>()) {}
MatrixProduct::~MatrixProduct() = default;

void MatrixProduct::Multiply(const ProductArgs& product, CUstream_st* stream) {
  const ProductOperands operands(product);
  at::Tensor& output = product.output;
  CheckWork("a matrix product", product.work, kGpuLinearWorkBytes);
  if (output.numel() == 0) {
    return;
  }
  if (operands.left.columns == 0) {
    if (!operands.adds) {
      output.zero_();
    } else if (operands.addend.memory != operands.output.memory) {
      output.copy_(product.addend);
    }
    return;
  }
  const auto [handle, plan] = plans_->Find(operands);
  plan->Run(handle, operands, product.work, stream);
}

std::string MatrixProduct::Digest() {
  const std::string machine = ProductMachine();
  return ProductTable::OfBuild().DigestOf(machine);
}

}  // namespace tandem::ops::cuda
