// The one file of this folder that needs LibTorch's own optimizer.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <vector>

#include "comm/thread_communicator.h"
#include "fsdp/sharded_unit.h"

namespace tandem::fsdp {
namespace {

TEST(AdamWTest, EqualsLibTorchInDouble) {
  const Layout layout = MakeLayout({{.name = "a", .shape = {13, 7}}, {.name = "b", .shape = {33}}}, 8);
  const int64_t elements = GatheredElements(layout, 1);
  const auto zeros = [&] { return at::zeros({elements}, at::kDouble); };
  ShardedUnit unit("unit", layout, 1, 0, zeros(), zeros(), zeros(), zeros());
  unit.Initialize(3, {{.deviation = 0.5}, {.ones = true}});
  const auto communicators = comm::MakeThreadCommunicators("test", 1);

  const NormOutcome agreed{.clip = 0.7};
  const OptimizerInputs inputs{.learning_rate = 3e-3,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .epsilon = 1e-8,
                               .weight_decay = 0.1,
                               .divisor = 6,
                               .agreed = &agreed};
  std::vector<at::Tensor> reference;
  at::Tensor weights = unit.weights();
  for (const at::Tensor& view : ParameterViews(layout, weights)) {
    reference.push_back(view.clone().requires_grad_());
  }
  torch::optim::AdamW optimizer(reference, torch::optim::AdamWOptions(inputs.learning_rate)
                                               .betas({inputs.beta1, inputs.beta2})
                                               .eps(inputs.epsilon)
                                               .weight_decay(inputs.weight_decay));
  at::manual_seed(5);
  at::Tensor staging = zeros();
  for (int64_t step = 1; step <= 100; ++step) {
    const at::Tensor slot = at::randn({elements}, at::kDouble);
    unit.ReduceGradients(*communicators[0], slot, staging, /*add=*/false);
    OptimizerInputs now = inputs;
    now.step = step;
    unit.OptimizerStep(now);
    const std::vector<at::Tensor> gradients = ParameterViews(layout, slot);
    for (size_t i = 0; i < reference.size(); ++i) {
      reference[i].mutable_grad() = gradients[i] / inputs.divisor * agreed.clip;
    }
    optimizer.step();
  }
  weights = unit.weights();
  const std::vector<at::Tensor> ours = ParameterViews(layout, weights);
  for (size_t i = 0; i < reference.size(); ++i) {
    const at::Tensor theirs = reference[i].detach();
    EXPECT_LE((ours[i] - theirs).norm().item<double>() / theirs.norm().item<double>(), 1e-12);
    EXPECT_GT((theirs - theirs.mean()).norm().item<double>(), 0.1) << "the steps did something";
    // The norms that the step left are those of its tensors.
    EXPECT_NEAR(unit.norms()[i].weight.value(), theirs.square().sum().item<double>(), 1e-9);
  }
}

}  // namespace
}  // namespace tandem::fsdp
