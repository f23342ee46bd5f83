// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/matrix_product.h"

#include <cuda_runtime_api.h>

#include <array>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "ops/array_checks.h"
#include "ops/cuda/product_plan.h"
#include "ops/linear_work.h"

namespace tandem::ops::cuda {
namespace {

void CheckStart(cudaError_t error) { Check(error == cudaSuccess, "a product: ", cudaGetErrorString(error)); }

int CurrentDevice() {
  int device = 0;
  CheckStart(cudaGetDevice(&device));
  return device;
}

// Binds a product without terms, whose result is what it is added to.
std::function<void(CUstream_st* stream)> BindOfNothing(const ProductArgs& product, bool adds) {
  const Array& output = product.output;
  const Array& from = adds ? product.addend : output;
  CheckElements("the output of a product of nothing", output, output.elements(), DeviceKind::kGpu);
  CheckElements("what is added to", from, output.elements(), DeviceKind::kGpu);
  return [adds, from = from.begin, to = output.begin, bytes = output.bytes()](CUstream_st* stream) {
    if (!adds) {
      CheckStart(cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), stream));
    } else if (from != to) {
      CheckStart(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream));
    }
  };
}

}  // namespace

class MatrixProduct::Plans {
 public:
  // Returns the current GPU's handle; both results live as long as this object.
  std::pair<cublasLtHandle_t, const ProductPlan*> Find(const ProductOperands& operands)
      ABSL_LOCKS_EXCLUDED(mu_) {
    const int device = CurrentDevice();
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
  // Never destroyed: cuBLASLt may be gone when statics are destroyed.
  std::map<int, cublasLtHandle_t> handles_ ABSL_GUARDED_BY(mu_);
  std::map<std::array<int64_t, 18>, std::unique_ptr<ProductPlan>> plans_ ABSL_GUARDED_BY(mu_);
};

MatrixProduct::MatrixProduct() : plans_(std::make_unique<Plans>()) {}
MatrixProduct::~MatrixProduct() = default;

std::function<void(CUstream_st* stream)> MatrixProduct::Bind(const ProductArgs& product) {
  const ProductOperands operands(product);
  const Array& output = product.output;
  Checked("a matrix product", product.work, kGpuLinearWorkBytes);
  if (output.elements() == 0) {
    return [](CUstream_st*) {};
  }
  if (operands.left.columns == 0) {
    return BindOfNothing(product, operands.adds);
  }
  const auto [handle, plan] = plans_->Find(operands);
  return [handle = handle, plan = plan, operands, work = product.work](CUstream_st* stream) {
    plan->Run(handle, operands, work, stream);
  };
}

std::string MatrixProduct::Digest() {
  const std::string machine = ProductMachine();
  return ProductTable::OfBuild().DigestOf(machine);
}

}  // namespace tandem::ops::cuda
