// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/matrix_product.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "ops/cuda/product_plan.h"
#include "ops/linear_work.h"
#include "ops/tensor_access.h"

namespace tandem::ops::cuda {
namespace {

// Milliseconds of the work that `call` enqueues on the stream. Blocks.
template <typename Call>
float Milliseconds(CUstream_st* stream, const Call& call) {
  const auto check = [](cudaError_t error) {
    TORCH_CHECK(error == cudaSuccess, "time of a matrix product: ", cudaGetErrorString(error));
  };
  std::array<cudaEvent_t, 2> events{};
  for (cudaEvent_t& event : events) check(cudaEventCreate(&event));
  check(cudaEventRecord(events[0], stream));
  call();
  check(cudaEventRecord(events[1], stream));
  check(cudaEventSynchronize(events[1]));
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, events[0], events[1]));
  for (const cudaEvent_t event : events) check(cudaEventDestroy(event));
  return milliseconds;
}

}  // namespace

class MatrixProduct::Plans {
 public:
  // The handle is of the current GPU; both live as long as this.
  std::pair<cublasLtHandle_t, const ProductPlan*> Find(const ProductOperands& operands) {
    const int device = c10::cuda::current_device();
    const std::lock_guard lock(mutex_);
    cublasLtHandle_t& handle = handles_[device];
    if (handle == nullptr) CheckProduct(cublasLtCreate(&handle), "no handle");
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
  std::mutex mutex_;
  // Of the process: cuBLASLt may be gone when statics are destroyed.
  std::map<int, cublasLtHandle_t> handles_;
  std::map<std::array<int64_t, 18>, std::unique_ptr<ProductPlan>> plans_;
};

MatrixProduct::MatrixProduct() : plans_(std::make_unique<Plans>()) {}
MatrixProduct::~MatrixProduct() = default;

void MatrixProduct::Multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend,
                             at::Tensor& output, Workspace work, CUstream_st* stream) {
  const ProductOperands operands(a, b, addend, output);
  CheckWork("a matrix product", work, kGpuLinearWorkBytes);
  if (output.numel() == 0) return;
  if (operands.left.columns == 0) {
    if (!operands.adds) {
      output.zero_();
    } else if (operands.addend.memory != operands.output.memory) {
      output.copy_(addend);
    }
    return;
  }
  const auto [handle, plan] = plans_->Find(operands);
  plan->Run(handle, operands, work, stream);
}

std::vector<MatrixProduct::Candidate> MatrixProduct::Measure(const at::Tensor& a, const at::Tensor& b,
                                                             const at::Tensor& addend, at::Tensor& output,
                                                             int turns, Workspace work, CUstream_st* stream) {
  constexpr int kMostProposed = 64;
  const ProductOperands operands(a, b, addend, output);
  CheckWork("a matrix product", work, kGpuLinearWorkBytes);
  const std::string product = operands.text();
  TORCH_CHECK(!product.empty() && output.numel() > 0, "the table of products does not name such matrices");
  const cublasLtHandle_t handle = plans_->Find(operands).first;
  std::vector<Candidate> candidates;
  std::vector<std::unique_ptr<ProductPlan>> plans;
  for (const ProductTable::Algorithm& algorithm :
       ProductPlan(handle, operands, nullptr).Proposed(handle, operands, kMostProposed)) {
    candidates.push_back({.line = ProductTable::Line(ProductMachine(), product, algorithm)});
    plans.push_back(std::make_unique<ProductPlan>(handle, operands, &algorithm));
  }
  std::vector<std::vector<float>> times(candidates.size());
  for (int turn = -1; turn < turns; ++turn) {  // one more, to warm up
    for (size_t i = 0; i < plans.size(); ++i) {
      const float ms = Milliseconds(stream, [&] { plans[i]->Run(handle, operands, work, stream); });
      if (turn >= 0) times[i].push_back(ms);
    }
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    const auto middle = times[i].begin() + turns / 2;
    std::nth_element(times[i].begin(), middle, times[i].end());
    candidates[i].ms = *middle;
  }
  return candidates;
}

std::string MatrixProduct::Digest() {
  const std::string machine = ProductMachine();
  return ProductTable::OfBuild().DigestOf(machine);
}

}  // namespace tandem::ops::cuda
