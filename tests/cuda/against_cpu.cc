// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/against_cpu.h"

#include "ops/cuda/operations.h"

namespace tandem::ops::test {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors OnGpu(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(tensor.clone().to(at::kCUDA));
  }
  return copies;
}

Tensors InDouble(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) {
    const bool number = tensor.is_floating_point();
    copies.push_back(number ? tensor.clone().to(at::kDouble) : tensor.clone());
  }
  return copies;
}

}  // namespace

void AgainstCpuTest::Compare(const Tensors& in, const Tensors& out,
                             const std::function<void(const Operations&, const Tensors&, Tensors&)>& run,
                             double slack, int repeats, std::optional<double> statistics_slack) {
  Tensors expected = InDouble(out);
  run(CpuOperations(), InDouble(in), expected);
  const Tensors on_gpu = OnGpu(in);
  Tensors first;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    Tensors now = OnGpu(out);
    run(CudaOperations(), on_gpu, now);
    for (at::Tensor& tensor : now) {
      tensor = tensor.cpu();
    }
    if (repeat == 0) {
      first = now;
    }
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_TRUE(SameBits(now[i], first[i])) << "output " << i << " does not repeat, run " << repeat;
    }
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (!out[i].is_floating_point()) {
      EXPECT_TRUE(SameBits(first[i], expected[i])) << "output " << i;
      continue;
    }
    // What is left in double was computed from statistics.
    const at::ScalarType type = out[i].scalar_type();
    const double tolerance = (type == GetParam() ? slack : statistics_slack.value_or(slack)) *
                             Tolerance(type == at::kDouble ? StatisticsOf(GetParam()) : type);
    EXPECT_LE(RelativeError(first[i], expected[i]), tolerance) << "output " << i;
  }
}

}  // namespace tandem::ops::test
