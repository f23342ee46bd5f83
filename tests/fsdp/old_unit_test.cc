// Until the trainer has left ShardedUnit: what takes its place gives its bits.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "comm/run_thread_ranks.h"
#include "fsdp/sharded_unit.h"
#include "tests/fsdp/test_unit.h"

namespace tandem::fsdp {
namespace {

TEST(OldUnitTest, TheNewUnitGivesItsBits) {
  const std::unique_ptr<device::Device> device = device::MakeCpuDevice();
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const Layout layout = MakeLayout({{.name = "norm", .shape = {37}},
                                      {.name = "q", .shape = {200, 33}, .block = 0},
                                      {.name = "k", .shape = {7, 33}, .block = 0},
                                      {.name = "out", .shape = {33, 20}}},
                                     static_cast<int>(c10::elementSize(type)));
    for (const int ranks : {1, 3}) {
      comm::RunThreadRanks(ranks, [&](comm::Communicator& comm) {
        const auto zeros = [&] { return at::zeros({ShardElements(layout, ranks)}, type); };
        ShardedUnit old("unit", layout, ranks, comm.rank(), zeros(), zeros(), zeros(), zeros());
        AdamWConfig config = test::kAdamW;
        config.divisor = 2 * ranks;
        test::TestUnit unit(layout, type, comm, *device, CpuShardKernels(), config);
        old.Initialize(4, test::Inits(layout, 0.02));
        unit.Initialize(4);
        at::Tensor staging = at::zeros({GatheredElements(layout, ranks)}, type);
        at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(comm.rank()));
        for (int64_t step = 1; step <= 4; ++step) {
          for (int round = 0; round < 2; ++round) {
            const at::Tensor contribution = at::randn({GatheredElements(layout, ranks)}, generator, type);
            old.ReduceGradients(comm, contribution, staging, round > 0);
            unit.Reduce(contribution, round > 0, round == 1);
          }
          NormTerms terms;
          old.AddTerms(&terms);
          EXPECT_EQ(terms.high, unit.terms().squares.high);
          EXPECT_EQ(terms.low, unit.terms().squares.low);
          const NormOutcome agreed = unit.Norm(2 * ranks, 0.5);
          EXPECT_LT(agreed.clip, 1);
          old.OptimizerStep({.step = step,
                             .learning_rate = 1e-2,
                             .beta1 = config.beta1,
                             .beta2 = config.beta2,
                             .epsilon = config.epsilon,
                             .weight_decay = config.weight_decay,
                             .divisor = config.divisor,
                             .agreed = &agreed});
          unit.OptimizerStep(step);
          EXPECT_TRUE(test::SameBits(old.weights(), unit.weights()));
          EXPECT_TRUE(test::SameBits(old.exp_avg(), unit.exp_avg()));
          EXPECT_TRUE(test::SameBits(old.exp_avg_sq(), unit.exp_avg_sq()));
          for (size_t i = 0; i < layout.parameters.size(); ++i) {
            EXPECT_EQ(old.norms()[i].weight.low, unit.norms()[i].weight.low);
            EXPECT_EQ(old.norms()[i].gradient.high, unit.norms()[i].gradient.high);
            EXPECT_EQ(old.norms()[i].update.high, unit.norms()[i].update.high);
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace tandem::fsdp
