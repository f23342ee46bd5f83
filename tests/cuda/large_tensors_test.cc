// SPDX-License-Identifier: Apache-2.0
// Tensors of more than 2^31 elements, and of more than 2^32: the last rows are what the CPU computes of them.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Device.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/cuda/operations.h"
#include "ops/linear_work.h"
#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

constexpr int64_t kLastRows = 3;  // that are compared

class CudaLargeTensorsTest : public testing::Test {
 protected:
  // Each test begins and ends without memory that LibTorch keeps.
  void SetUp() override { c10::cuda::CUDACachingAllocator::emptyCache(); }
  void TearDown() override { c10::cuda::CUDACachingAllocator::emptyCache(); }

  // What to say where the GPU has less free memory than so many GB; otherwise empty.
  static std::string TooLittleMemory(int64_t gigabytes) {
    size_t free = 0;
    size_t total = 0;
    if (cudaMemGetInfo(&free, &total) == cudaSuccess && free >= static_cast<size_t>(gigabytes) << 30) {
      return "";
    }
    return absl::StrCat("needs ", gigabytes, " GiB of free GPU memory, there are ", free >> 30);
  }

  // On the host, in double.
  static at::Tensor LastRowsOf(const at::Tensor& matrix) {
    return matrix.narrow(0, matrix.size(0) - kLastRows, kLastRows).cpu().to(at::kDouble);
  }
  static void ExpectClose(const at::Tensor& actual, const at::Tensor& expected, const char* what) {
    EXPECT_LE(RelativeError(actual, expected), 2 * Tolerance(at::kBFloat16)) << what;
    EXPECT_GT(expected.abs().max().item<double>(), 0) << what;
  }

  // run(logits, targets, lse, loss): logits -> their gradient, in place. All rows but the last are of zeros.
  static void CompareLoss(
      int64_t rows, int64_t vocabulary,
      const std::function<void(at::Tensor&, const at::Tensor&, at::Tensor&, at::Tensor&)>& run) {
    SCOPED_TRACE(testing::Message() << rows << " x " << vocabulary);
    const at::TensorOptions gpu(at::kCUDA);
    at::Tensor logits = at::zeros({rows, vocabulary}, gpu.dtype(at::kBFloat16));
    logits.narrow(0, rows - kLastRows, kLastRows).normal_();
    const at::Tensor last = LastRowsOf(logits);
    const at::Tensor targets = at::randint(vocabulary, {1, rows}, gpu.dtype(at::kLong));
    at::Tensor lse = at::empty({rows}, gpu.dtype(at::kFloat));
    at::Tensor loss = at::empty({1}, gpu.dtype(at::kDouble));
    run(logits, targets, lse, loss);

    at::Tensor expected = FilledWithNan({kLastRows, vocabulary}, at::kDouble);
    at::Tensor last_lse = FilledWithNan({kLastRows}, at::kDouble);
    at::Tensor last_loss = FilledWithNan({1}, at::kDouble);
    CpuOperations().CrossEntropy(last, targets.narrow(1, rows - kLastRows, kLastRows).cpu(), last_lse,
                                 last_loss, expected)();
    const double share = static_cast<double>(kLastRows) / static_cast<double>(rows);
    ExpectClose(LastRowsOf(logits), expected.mul(share), "gradient");
    EXPECT_NEAR(loss.item<double>(),
                share * last_loss.item<double>() + (1 - share) * std::log(static_cast<double>(vocabulary)),
                1e-5);
  }

  const Operations& ops_ = CudaOperations();
};

TEST_F(CudaLargeTensorsTest, ProductsAndActivation) {
  constexpr int64_t kRows = 38'000;
  constexpr int64_t kInner = 28'672;
  constexpr int64_t kInputs = 64;
  static_assert(kRows * 2 * kInner > int64_t{1} << 31);
  if (const std::string reason = TooLittleMemory(14); !reason.empty()) {
    GTEST_SKIP() << reason;
  }
  const at::TensorOptions bf16 = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const WorkMemory work(kGpuLinearWorkBytes, at::kCUDA);
  const at::Tensor x = at::randn({kRows, kInputs}, bf16);
  const at::Tensor weight = at::randn({2 * kInner, kInputs}, bf16);
  const at::Tensor weight_on_host = weight.cpu().to(at::kDouble);
  at::Tensor gate_up = at::empty({kRows, 2 * kInner}, bf16);
  ops_.Linear(x, weight, /*residual=*/{}, gate_up, work)();
  ExpectClose(LastRowsOf(gate_up), at::mm(LastRowsOf(x), weight_on_host.t()), "product");

  at::Tensor activated = at::empty({kRows, kInner}, bf16);
  at::Tensor expected = FilledWithNan({kLastRows, kInner}, at::kDouble);
  ops_.SwiGlu(gate_up, activated)();
  CpuOperations().SwiGlu(LastRowsOf(gate_up), expected)();
  ExpectClose(LastRowsOf(activated), expected, "activation");

  const at::Tensor grad = at::randn({kRows, kInner}, bf16);
  at::Tensor grad_gate_up = at::empty({kRows, 2 * kInner}, bf16);
  at::Tensor expected_grad = FilledWithNan({kLastRows, 2 * kInner}, at::kDouble);
  ops_.SwiGluBackward(gate_up, grad, grad_gate_up, activated)();
  CpuOperations().SwiGluBackward(LastRowsOf(gate_up), LastRowsOf(grad), expected_grad, expected)();
  ExpectClose(LastRowsOf(grad_gate_up), expected_grad, "activation's backward");

  at::Tensor grad_x = at::empty({kRows, kInputs}, bf16);
  ops_.LinearBackwardInput(grad_gate_up, weight, /*add=*/false, grad_x, work)();
  ExpectClose(LastRowsOf(grad_x), at::mm(LastRowsOf(grad_gate_up), weight_on_host), "product's backward");

  at::Tensor grad_weight = at::empty({2 * kInner, kInputs}, bf16);
  grad_gate_up.narrow(0, 0, kRows - kLastRows).zero_();  // the last rows alone count
  ops_.LinearBackwardWeight(grad_gate_up, x, /*add=*/false, grad_weight, work)();
  ExpectClose(grad_weight.cpu(), at::mm(LastRowsOf(grad_gate_up).t(), LastRowsOf(x)), "weight's gradient");
}

// Rows that several blocks hold, and that one has.
TEST_F(CudaLargeTensorsTest, Loss) {
  static_assert(int64_t{40'000} * 128'256 > int64_t{1} << 32);
  static_assert(int64_t{300'000} * 8192 > int64_t{1} << 31);
  if (const std::string reason = TooLittleMemory(11); !reason.empty()) {
    GTEST_SKIP() << reason;
  }
  const auto whole = [&](at::Tensor& logits, const at::Tensor& targets, at::Tensor& lse, at::Tensor& loss) {
    ops_.CrossEntropy(logits, targets, lse, loss, logits)();
  };
  CompareLoss(40'000, 128'256, whole);
  CompareLoss(300'000, 8192, whole);
}

}  // namespace
}  // namespace tandem::ops
