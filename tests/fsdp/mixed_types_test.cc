#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "comm/run_thread_ranks.h"
#include "tests/fsdp/test_unit.h"

namespace tandem::fsdp {
namespace {

using test::SameBits;
using test::TestUnit;
using test::Views;

constexpr int kContributions = 12;

device::Device& Cpu() {
  static const std::unique_ptr<device::Device> device = device::MakeCpuDevice();
  return *device;
}

Layout SmallLayout() {
  return MakeLayout({{.name = "norm", .shape = {37}},
                     {.name = "q", .shape = {20, 33}, .block = 0},
                     {.name = "k", .shape = {7, 33}, .block = 0},
                     {.name = "bias", .shape = {1}}},
                    /*element_bytes=*/2);
}

// Of one global microbatch: the same wherever it is computed. What is no parameter is NaN.
at::Tensor Contribution(const Layout& layout, at::ScalarType type, int ranks, int64_t step, int microbatch) {
  at::Tensor flat =
      at::full({GatheredElements(layout, ranks)}, std::numeric_limits<double>::quiet_NaN(), type);
  std::mt19937_64 random(static_cast<uint64_t>(step * 1000 + microbatch));
  std::normal_distribution<double> normal;
  for (at::Tensor& view : Views(layout, flat)) {
    at::Tensor values = at::empty({view.numel()}, at::kDouble);
    for (int64_t i = 0; i < values.numel(); ++i) values.data_ptr<double>()[i] = normal(random);
    view.copy_(values.view(view.sizes()));
  }
  return flat;
}

AdamWConfig Config() {
  AdamWConfig config = test::kAdamW;
  config.divisor = kContributions;
  return config;
}

struct Outcome {
  at::Tensor weights;    // [layout.elements], like the others
  at::Tensor published;  // undefined where nothing is
  at::Tensor gathered;
  std::vector<double> norms;  // by step
};

Outcome Train(UnitTypes types, int ranks, int steps) {
  const Layout layout = SmallLayout();
  const bool publishes = types.compute != types.main;
  Outcome outcome{.weights = at::zeros({layout.elements}, types.main),
                  .published = at::zeros({layout.elements}, types.compute)};
  comm::RunThreadRanks(ranks, [&](comm::Communicator& comm) {
    TestUnit unit(layout, types, comm, Cpu(), CpuShardKernels(), Config());
    unit.Initialize(17);
    const int rounds = kContributions / ranks;
    for (int64_t step = 1; step <= steps; ++step) {
      for (int round = 0; round < rounds; ++round) {
        unit.Reduce(Contribution(layout, types.transport, ranks, step, round * ranks + comm.rank()),
                    /*add=*/round > 0, /*last=*/round + 1 == rounds);
      }
      const NormOutcome agreed = unit.Norm(kContributions, 5);
      if (comm.rank() == 0) outcome.norms.push_back(agreed.norm);
      unit.OptimizerStep(step);
    }
    const at::Tensor gathered = unit.Unshard();
    const Range owned = unit.unit().owned();
    outcome.weights.narrow(0, owned.begin, owned.size()).copy_(unit.weights());
    if (publishes) outcome.published.narrow(0, owned.begin, owned.size()).copy_(unit.published());
    if (comm.rank() == 0) outcome.gathered = gathered.narrow(0, 0, layout.elements).clone();
  });
  return outcome;
}

// Every parameter, without what lies between them.
void ExpectSameParameters(const at::Tensor& a, const at::Tensor& b) {
  const Layout layout = SmallLayout();
  const std::vector<at::Tensor> left = Views(layout, a);
  const std::vector<at::Tensor> right = Views(layout, b);
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_TRUE(SameBits(left[i].contiguous(), right[i].contiguous())) << layout.parameters[i].name;
  }
}

class MixedTypesTest : public testing::TestWithParam<UnitTypes> {};
INSTANTIATE_TEST_SUITE_P(Types, MixedTypesTest,
                         testing::Values(UnitTypes{at::kFloat, at::kBFloat16, at::kBFloat16},
                                         UnitTypes{at::kFloat, at::kBFloat16, at::kFloat},
                                         UnitTypes{at::kFloat, at::kFloat, at::kBFloat16}),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param.compute)) + "_" +
                                  c10::toString(info.param.transport);
                         });

TEST_P(MixedTypesTest, AnyNumberOfRanksGivesTheSameBits) {
  const Outcome one = Train(GetParam(), 1, 4);
  for (const int ranks : {2, 3, 4, 12}) {
    SCOPED_TRACE(ranks);
    const Outcome many = Train(GetParam(), ranks, 4);
    ExpectSameParameters(one.weights, many.weights);
    ExpectSameParameters(one.gathered, many.gathered);
    EXPECT_EQ(one.norms, many.norms);
  }
}

TEST_P(MixedTypesTest, WhatIsGatheredIsTheWeightsRoundedToTheComputeType) {
  for (const int steps : {0, 3}) {  // after the initialisation, and after an optimizer step
    const Outcome outcome = Train(GetParam(), 3, steps);
    const at::Tensor rounded = outcome.weights.to(GetParam().compute);
    ExpectSameParameters(outcome.gathered, rounded);
    if (GetParam().compute != GetParam().main) {
      ExpectSameParameters(outcome.published, rounded);
      EXPECT_FALSE(outcome.weights.equal(rounded.to(at::kFloat))) << "main weights must not be rounded";
    }
  }
}

// In bfloat16 the sum would stop at 256.
TEST_P(MixedTypesTest, ContributionsAreAddedUpInTheMainType) {
  const Layout layout = SmallLayout();
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    TestUnit unit(layout, GetParam(), comm, Cpu(), CpuShardKernels(), Config());
    unit.Initialize(1);
    const at::Tensor ones = at::ones({GatheredElements(layout, 2)}, GetParam().transport);
    for (int round = 0; round < 500; ++round) unit.Reduce(ones, round > 0, round == 499);
    const Range first = layout.parameters[0].range;
    if (comm.rank() == 0) {
      EXPECT_TRUE(unit.gradients().narrow(0, first.begin, first.size()).eq(1000).all().item<bool>());
    }
  });
}

// The operand of an OptimizerStep is written whatever the outcome is.
TEST_P(MixedTypesTest, ASkippedStepPublishesTheOldWeights) {
  if (GetParam().compute == GetParam().main) return;
  const Layout layout = SmallLayout();
  comm::RunThreadRanks(1, [&](comm::Communicator& comm) {
    TestUnit unit(layout, GetParam(), comm, Cpu(), CpuShardKernels(), Config());
    unit.Initialize(1);
    const at::Tensor before = unit.published();
    unit.Reduce(Contribution(layout, GetParam().transport, 1, 1, 0), false, true);
    unit.SetOutcome({.finite = false});
    unit.OptimizerStep(1);
    ExpectSameParameters(unit.published(), before);
    unit.SetOutcome({.finite = true});
    unit.OptimizerStep(2);
    EXPECT_FALSE(SameBits(unit.published(), before));
  });
}

}  // namespace
}  // namespace tandem::fsdp
