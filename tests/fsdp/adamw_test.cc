// SPDX-License-Identifier: Apache-2.0
// The one file of this folder that needs LibTorch's own optimizer.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <vector>

#include "tests/comm/thread_communicator.h"
#include "tests/fsdp/test_unit.h"

namespace tandem::fsdp {
namespace {

TEST(AdamWTest, EqualsLibTorchInDouble) {
  const Layout layout = MakeLayout({{.name = "a", .shape = {13, 7}}, {.name = "b", .shape = {33}}}, 8);
  const int64_t elements = PaddedElements(layout, {.inner = 1});
  const auto communicators = comm::MakeThreadCommunicators("test", 1);
  const std::unique_ptr<device::Device> device = device::MakeCpuDevice();
  const AdamWConfig config = test::kAdamW;
  test::TestUnit unit(layout, device::ElementKind::kDouble, *communicators[0], *device, CpuShardKernels(),
                      config);
  unit.Initialize(3, 0.5);

  constexpr double kLearningRate = 3e-3;
  constexpr double kClip = 0.7;
  constexpr double kDivisor = 6;
  unit.SetOutcome({.clip = kClip, .divisor = kDivisor});
  std::vector<at::Tensor> reference;
  for (const at::Tensor& view : test::Views(layout, unit.weights())) {
    reference.push_back(view.clone().requires_grad_());
  }
  torch::optim::AdamW optimizer(reference, torch::optim::AdamWOptions(kLearningRate)
                                               .betas({config.beta1, config.beta2})
                                               .eps(config.epsilon)
                                               .weight_decay(config.weight_decay));
  at::manual_seed(5);
  for (int64_t step = 1; step <= 100; ++step) {
    const at::Tensor contribution = at::randn({elements}, at::kDouble);
    unit.Reduce(contribution, /*add=*/false, /*last=*/true);
    unit.OptimizerStep(step, kLearningRate);
    const std::vector<at::Tensor> gradients = test::Views(layout, contribution);
    for (size_t i = 0; i < reference.size(); ++i) {
      reference[i].mutable_grad() = gradients[i] / kDivisor * kClip;
    }
    optimizer.step();
  }
  const at::Tensor weights = unit.weights();
  const std::vector<at::Tensor> ours = test::Views(layout, weights);
  for (size_t i = 0; i < reference.size(); ++i) {
    const at::Tensor theirs = reference[i].detach();
    EXPECT_LE((ours[i] - theirs).norm().item<double>() / theirs.norm().item<double>(), 1e-12);
    EXPECT_GT((theirs - theirs.mean()).norm().item<double>(), 0.1) << "the steps did something";
    // The norms that the step left are those of its tensors.
    EXPECT_NEAR(unit.norms()[i].weight.squares.value(), theirs.square().sum().item<double>(), 1e-9);
  }
}

}  // namespace
}  // namespace tandem::fsdp
