// SPDX-License-Identifier: Apache-2.0
#include "fsdp/class_shard.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/comm/run_thread_ranks.h"
#include "tests/device/tensors.h"
#include "tests/fsdp/test_unit.h"

namespace tandem::fsdp {
namespace {

using test::Cpu;
using test::MixedLayout;
using test::SameBits;
using test::TestUnit;
using test::Views;

constexpr int kContributions = 12;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Fits into one granule, so that all ranks but the first own nothing.
Layout TinyLayout(ClassTypes types) {
  return MakeLayout({{.name = "norm", .shape = {9}}}, test::ElementBytes(types));
}

// The contribution of one global microbatch of one step: the same wherever it is computed. Everything that is
// no parameter is NaN.
at::Tensor Contribution(const Layout& layout, at::ScalarType type, int num_ranks, int64_t step,
                        int microbatch) {
  at::Tensor flat = at::full({PaddedElements(layout, {.inner = num_ranks})}, kNan, type);
  std::mt19937_64 random(static_cast<uint64_t>(step * 1000 + microbatch));
  std::normal_distribution<double> normal;
  for (at::Tensor& view : Views(layout, flat)) {
    at::Tensor values = at::empty({view.numel()}, at::kDouble);
    for (int64_t i = 0; i < values.numel(); ++i) {
      values.data_ptr<double>()[i] = normal(random);
    }
    view.copy_(values.view(view.sizes()));
  }
  return flat;
}

// All of a unit's state after some steps, put together from the ranks.
struct Outcome {
  at::Tensor weights;  // [layout.elements]
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
  std::vector<NormOutcome> agreed;              // per step
  std::vector<ParameterNorms> parameter_norms;  // per parameter, of all ranks
  at::Tensor gathered;
};

Outcome Train(const Layout& layout, ClassTypes types, int ranks, int steps) {
  Outcome outcome;
  const auto fresh = [&] {
    return at::full({layout.elements}, kNan, at::TensorOptions().dtype(device::ScalarTypeOf(types.main)));
  };
  outcome.weights = fresh();
  outcome.exp_avg = fresh();
  outcome.exp_avg_sq = fresh();
  std::vector<std::vector<ParameterNorms>> norms(static_cast<size_t>(ranks));
  comm::RunThreadRanks(ranks, [&](comm::Communicator& comm) {
    TestUnit unit(layout, types, comm, Cpu(), CpuShardKernels(), test::kAdamW);
    unit.Initialize(17);
    const int rounds = kContributions / ranks;
    for (int64_t step = 1; step <= steps; ++step) {
      for (int round = 0; round < rounds; ++round) {
        unit.Reduce(Contribution(layout, device::ScalarTypeOf(types.transport), ranks, step,
                                 round * ranks + comm.rank()),
                    /*add=*/round > 0,
                    /*last=*/round + 1 == rounds);
      }
      const NormOutcome agreed = unit.Norm(kContributions, 5);
      if (comm.rank() == 0) {
        outcome.agreed.push_back(agreed);
      }
      unit.OptimizerStep(step);
    }
    norms[static_cast<size_t>(comm.rank())] = unit.norms();
    const at::Tensor gathered = unit.Unshard();
    const Range owned = unit.unit().owned();
    outcome.weights.narrow(0, owned.begin, owned.size()).copy_(unit.weights());
    outcome.exp_avg.narrow(0, owned.begin, owned.size()).copy_(unit.exp_avg());
    outcome.exp_avg_sq.narrow(0, owned.begin, owned.size()).copy_(unit.exp_avg_sq());
    if (comm.rank() == 0) {
      outcome.gathered = gathered.narrow(0, 0, layout.elements).clone();
    }
  });
  for (size_t parameter = 0; parameter < layout.parameters.size(); ++parameter) {
    ParameterNorms total;
    for (const std::vector<ParameterNorms>& rank : norms) {
      total.weight.Add(rank[parameter].weight);
      total.gradient.Add(rank[parameter].gradient);
      total.update.Add(rank[parameter].update);
    }
    outcome.parameter_norms.push_back(total);
  }
  return outcome;
}

void ExpectSameNorms(const ParameterNorms& a, const ParameterNorms& b) {
  for (const auto& [x, y] :
       {std::pair{&a.weight, &b.weight}, {&a.gradient, &b.gradient}, {&a.update, &b.update}}) {
    EXPECT_EQ(x->squares.value(), y->squares.value());
    EXPECT_EQ(x->max_abs, y->max_abs);
  }
}

class ClassShardTest : public testing::TestWithParam<ClassTypes> {
 protected:
  static at::ScalarType main() { return device::ScalarTypeOf(GetParam().main); }
  static at::ScalarType transport() { return device::ScalarTypeOf(GetParam().transport); }
};

TEST_P(ClassShardTest, AnyNumberOfRanksGivesTheSameBits) {
  for (const Layout& layout : {MixedLayout(GetParam()), TinyLayout(GetParam())}) {
    const Outcome one = Train(layout, GetParam(), 1, 5);
    ASSERT_FALSE(at::isnan(one.gathered.narrow(0, 0, layout.parameters[0].range.end)).any().item<bool>());
    for (const int ranks : {2, 3, 4, 6, 12}) {
      SCOPED_TRACE(ranks);
      const Outcome many = Train(layout, GetParam(), ranks, 5);
      EXPECT_TRUE(SameBits(one.weights, many.weights));
      EXPECT_TRUE(SameBits(one.exp_avg, many.exp_avg));
      EXPECT_TRUE(SameBits(one.exp_avg_sq, many.exp_avg_sq));
      for (size_t step = 0; step < one.agreed.size(); ++step) {
        EXPECT_EQ(one.agreed[step].norm, many.agreed[step].norm);
        EXPECT_EQ(one.agreed[step].clip, many.agreed[step].clip);
        EXPECT_TRUE(many.agreed[step].applied);
      }
      for (size_t i = 0; i < one.parameter_norms.size(); ++i) {
        ExpectSameNorms(one.parameter_norms[i], many.parameter_norms[i]);
      }
    }
  }
}

TEST_P(ClassShardTest, TheGatherIsExact) {
  for (const int ranks : {1, 2, 3, 4}) {
    const Outcome outcome = Train(MixedLayout(GetParam()), GetParam(), ranks, 2);
    EXPECT_TRUE(SameBits(outcome.gathered, outcome.weights.to(device::ScalarTypeOf(GetParam().compute))));
  }
}

TEST_P(ClassShardTest, PaddingOfTheStateStaysZero) {
  const Layout layout = MixedLayout(GetParam());
  const Outcome outcome = Train(layout, GetParam(), 3, 3);
  at::Tensor padding = at::ones({layout.elements}, at::kBool);
  for (const Parameter& parameter : layout.parameters) {
    padding.narrow(0, parameter.range.begin, parameter.range.size()).fill_(false);
  }
  EXPECT_GT(padding.sum().item<int64_t>(), 0);
  for (const at::Tensor& state : {outcome.weights, outcome.exp_avg, outcome.exp_avg_sq}) {
    EXPECT_TRUE(state.masked_select(padding).eq(0).all().item<bool>());
  }
}

// No rank draws numbers of its own: whatever a rank holds is its part of the one tensor.
TEST_P(ClassShardTest, InitialWeightsMatchOnEveryMesh) {
  const Layout layout = MixedLayout(GetParam());
  const ClassTypes types = GetParam();
  const auto weights = [&](const UnitMesh& mesh) {
    const ClassShard unit("u", layout, mesh, types, Cpu(), CpuShardKernels());
    at::Tensor held = at::full({unit.held().size()}, kNan, main());
    const device::Memory memory{static_cast<char*>(held.mutable_data_ptr()),
                                static_cast<int64_t>(held.nbytes())};
    unit.Initialize(17, test::Inits(layout, 0.02), {.weights = memory});
    return held;
  };
  const at::Tensor whole = weights({});
  for (const bool inner_shards : {true, false}) {
    for (const bool outer_shards : {false, inner_shards}) {
      for (int rank = 0; rank < 6; ++rank) {
        const UnitMesh mesh{.inner = 3,
                            .inner_rank = rank % 3,
                            .outer = 2,
                            .outer_rank = rank / 3,
                            .inner_shards_optimizer = inner_shards,
                            .outer_shards_optimizer = outer_shards};
        const Range held = WithoutPadding(layout, HeldRange(layout, mesh));
        EXPECT_TRUE(SameBits(weights(mesh).narrow(0, 0, held.size()).contiguous(),
                             whole.narrow(0, held.begin, held.size()).contiguous()))
            << rank;
      }
    }
  }
}

// Without a gradient, weight decay alone moves weights.
TEST_P(ClassShardTest, WeightDecayActsOnTheParametersThatDecay) {
  const Layout layout =
      MakeLayout({{.name = "matrix", .shape = {20, 33}}, {.name = "norm", .shape = {37}, .decays = false}},
                 test::ElementBytes(GetParam()));
  comm::RunThreadRanks(1, [&](comm::Communicator& comm) {
    TestUnit unit(layout, GetParam(), comm, Cpu(), CpuShardKernels());
    unit.Initialize(3, /*deviation=*/1);
    const at::Tensor before = unit.weights();
    unit.Reduce(at::zeros({PaddedElements(layout, {.inner = 1})}, transport()), /*add=*/false, /*last=*/true);
    unit.Norm(1, 0);
    unit.OptimizerStep(1, /*learning_rate=*/0.5);
    const std::vector<at::Tensor> old = Views(layout, before);
    const at::Tensor after = unit.weights();
    const std::vector<at::Tensor> moved = Views(layout, after);
    EXPECT_TRUE(at::allclose(moved[0], old[0] * (1 - 0.5 * test::kAdamW.weight_decay)));
    EXPECT_FALSE(at::allclose(moved[0], old[0]));
    EXPECT_TRUE(SameBits(moved[1].contiguous(), old[1].contiguous()));
    EXPECT_EQ(unit.norms()[1].update.squares.value(), 0);
    EXPECT_EQ(unit.norms()[1].update.max_abs, 0);
  });
}

TEST_P(ClassShardTest, NormsAreThoseOfTheTensors) {
  const Layout layout = MixedLayout(GetParam());
  const Outcome before = Train(layout, GetParam(), 2, 2);
  const Outcome after = Train(layout, GetParam(), 2, 3);
  at::Tensor mean = at::zeros({layout.elements}, at::kDouble);
  for (int microbatch = 0; microbatch < kContributions; ++microbatch) {
    mean += Contribution(layout, transport(), 1, 3, microbatch);
  }
  mean /= kContributions;
  const double tolerance = main() == at::kDouble ? 1e-12 : 1e-5;
  const auto squares = [](const at::Tensor& values) { return values.square().sum().item<double>(); };
  double total = 0;
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const Range range = layout.parameters[i].range;
    const auto part = [&](const at::Tensor& flat) {
      return flat.narrow(0, range.begin, range.size()).to(at::kDouble);
    };
    const double weight = squares(part(after.weights));
    const double gradient = squares(part(mean));
    const double update = squares(part(after.weights) - part(before.weights));
    const ParameterNorms& norms = after.parameter_norms[i];
    EXPECT_NEAR(norms.weight.squares.value(), weight, 1e-12 * weight);
    EXPECT_NEAR(norms.gradient.squares.value(), gradient, tolerance * gradient);
    EXPECT_NEAR(norms.update.squares.value(), update, 1e-6 * update);
    const auto largest = [&](const at::Tensor& values) { return values.abs().max().item<double>(); };
    EXPECT_EQ(norms.weight.max_abs, largest(part(after.weights)));
    const double steepest = largest(part(mean));
    EXPECT_NEAR(norms.gradient.max_abs, steepest, tolerance * steepest);
    EXPECT_EQ(norms.update.max_abs,
              largest((after.weights - before.weights).narrow(0, range.begin, range.size())));
    total += gradient;
  }
  EXPECT_NEAR(after.agreed.back().norm, std::sqrt(total), tolerance * std::sqrt(total));
}

// The norm's terms come from the same pass as the last fold: they are of all contributions, and of nothing
// else.
TEST_P(ClassShardTest, LastReductionWritesTheTerms) {
  const Layout layout = MixedLayout(GetParam());
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    TestUnit unit(layout, GetParam(), comm, Cpu(), CpuShardKernels());
    unit.Initialize(1);
    for (int round = 0; round < 3; ++round) {
      unit.Reduce(Contribution(layout, transport(), 2, 1, 2 * round + comm.rank()), round > 0, round == 2);
      if (round < 2) {
        EXPECT_TRUE(std::isnan(unit.terms().squares.high)) << "written in round " << round;
      }
    }
    const at::Tensor gradients = unit.gradients();
    double expected = 0;
    for (const Piece& piece : unit.unit().pieces()) {
      expected += gradients.narrow(0, piece.range.begin - unit.unit().owned().begin, piece.range.size())
                      .to(at::kDouble)
                      .square()
                      .sum()
                      .item<double>();
    }
    EXPECT_NEAR(unit.terms().squares.value(), expected, 1e-12 * expected);
    EXPECT_EQ(unit.terms().nonfinite, 0);
    // The next run starts over.
    const at::Tensor one = Contribution(layout, transport(), 2, 2, comm.rank());
    unit.Reduce(one, /*add=*/false, /*last=*/true);
    const double first = unit.terms().squares.value();
    unit.Reduce(one, /*add=*/false, /*last=*/true);
    EXPECT_EQ(unit.terms().squares.value(), first);
  });
}

TEST_P(ClassShardTest, NonfiniteGradientsAreCountedAndSkipped) {
  const Layout layout = MixedLayout(GetParam());
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    TestUnit unit(layout, GetParam(), comm, Cpu(), CpuShardKernels(), test::kAdamW);
    unit.Initialize(1);
    unit.Reduce(Contribution(layout, transport(), 2, 1, comm.rank()), false, true);
    EXPECT_TRUE(unit.Norm(2, 0).applied);
    unit.OptimizerStep(1);
    const at::Tensor weights = unit.weights();
    const at::Tensor exp_avg = unit.exp_avg();
    const at::Tensor exp_avg_sq = unit.exp_avg_sq();
    const std::vector<ParameterNorms> norms = unit.norms();

    const at::Tensor bad = Contribution(layout, transport(), 2, 2, comm.rank());
    Views(layout, bad)[0][3].fill_(comm.rank() == 0 ? kNan : kInfinity);
    Views(layout, bad)[0][5].fill_(kInfinity);
    unit.Reduce(bad, false, true);
    EXPECT_EQ(unit.terms().nonfinite, comm.rank() == 0 ? 2 : 0);
    EXPECT_TRUE(std::isfinite(unit.terms().squares.high));
    const NormOutcome agreed = unit.Norm(2, 1);
    EXPECT_EQ(agreed.nonfinite, 2) << "every rank knows";
    EXPECT_FALSE(agreed.applied);
    unit.OptimizerStep(2);
    EXPECT_TRUE(SameBits(unit.weights(), weights));
    EXPECT_TRUE(SameBits(unit.exp_avg(), exp_avg));
    EXPECT_TRUE(SameBits(unit.exp_avg_sq(), exp_avg_sq));
    for (size_t i = 0; i < norms.size(); ++i) {
      EXPECT_EQ(unit.norms()[i].weight.squares.value(), norms[i].weight.squares.value());
      EXPECT_EQ(unit.norms()[i].weight.max_abs, norms[i].weight.max_abs);
      EXPECT_EQ(unit.norms()[i].update.squares.value(), 0);
      EXPECT_EQ(unit.norms()[i].update.max_abs, 0);
    }
    // Which parameter it was can be read from the norms.
    if (comm.rank() == 0) {
      EXPECT_FALSE(std::isfinite(unit.norms()[0].gradient.squares.value()));
    }
    EXPECT_TRUE(std::isfinite(unit.norms()[3].gradient.squares.value()));

    // The next step, with finite gradients, is as if nothing had been.
    unit.Reduce(Contribution(layout, transport(), 2, 3, comm.rank()), false, true);
    EXPECT_EQ(unit.terms().nonfinite, 0);
    EXPECT_TRUE(unit.Norm(2, 0).applied);
    unit.OptimizerStep(3);
    EXPECT_FALSE(at::isnan(unit.weights()).any().item<bool>());
    EXPECT_FALSE(SameBits(unit.weights(), weights));
  });
}

TEST_P(ClassShardTest, RanksWithoutElementsTakePart) {
  const Layout layout = TinyLayout(GetParam());
  comm::RunThreadRanks(4, [&](comm::Communicator& comm) {
    TestUnit unit(layout, GetParam(), comm, Cpu(), CpuShardKernels());
    unit.Initialize(1);
    EXPECT_EQ(unit.unit().owned().size(), comm.rank() == 0 ? 64 : 0);
    EXPECT_EQ(unit.weights().numel(), unit.unit().owned().size());
    unit.Reduce(at::zeros({PaddedElements(layout, {.inner = 4})}, transport()), false, true);
    EXPECT_EQ(unit.terms().squares.high, 0);
    EXPECT_EQ(unit.Norm(1, 0).norm, 0);
    unit.OptimizerStep(1, 0);
    EXPECT_EQ(unit.norms()[0].weight.squares.value(), comm.rank() == 0 ? 9 : 0);
    EXPECT_EQ(unit.norms()[0].weight.max_abs, comm.rank() == 0 ? 1 : 0);
  });
}

// In bfloat16 the sum would stop at 256.
TEST_P(ClassShardTest, ContributionsAreAddedUpInTheMainType) {
  const Layout layout = MixedLayout(GetParam());
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    TestUnit unit(layout, GetParam(), comm, Cpu(), CpuShardKernels());
    unit.Initialize(1);
    const at::Tensor ones = at::ones({PaddedElements(layout, {.inner = 2})}, transport());
    for (int round = 0; round < 500; ++round) {
      unit.Reduce(ones, round > 0, round == 499);
    }
    if (comm.rank() == 0) {
      EXPECT_TRUE(unit.gradients().narrow(0, 0, layout.parameters[0].range.end).eq(1000).all().item<bool>());
    }
  });
}

// What is gathered is there from the initialisation on, and a skipped step writes it too.
TEST_P(ClassShardTest, PublishedWeightsAreRoundedCopies) {
  if (GetParam().compute == GetParam().main) {
    return;  // nothing is published
  }
  const Layout layout = MixedLayout(GetParam());
  comm::RunThreadRanks(1, [&](comm::Communicator& comm) {
    TestUnit unit(layout, GetParam(), comm, Cpu(), CpuShardKernels());
    unit.Initialize(1);
    const auto expect_published = [&] {
      EXPECT_TRUE(SameBits(unit.published(), unit.weights().to(device::ScalarTypeOf(GetParam().compute))));
    };
    expect_published();
    const at::Tensor before = unit.published();
    unit.Reduce(Contribution(layout, transport(), 1, 1, 0), false, true);
    unit.SetOutcome({.applied = false});
    unit.OptimizerStep(1);
    EXPECT_TRUE(SameBits(unit.published(), before));
    unit.SetOutcome({.applied = true});
    unit.OptimizerStep(2);
    EXPECT_FALSE(SameBits(unit.published(), before));
    expect_published();
    EXPECT_FALSE(
        unit.weights().equal(unit.weights().to(device::ScalarTypeOf(GetParam().compute)).to(main())));
  });
}

INSTANTIATE_TEST_SUITE_P(Types, ClassShardTest, testing::ValuesIn(test::kClassTypes),
                         [](const auto& info) { return test::NameOf(info.param); });

TEST(BindCopyTest, CollectedGradientsGetTheContributionsType) {
  std::vector<float> collected = {1, -2.5F, 1e-30F, 1.01F};
  std::vector<float> contribution(4, 7);
  std::vector<device::Bf16> rounded(4);
  const auto bind = [&](auto& to, device::ElementKind type) {
    return BindCopy(device::MemoryOf(collected), device::ElementKind::kFloat, device::MemoryOf(to), type,
                    Cpu(), CpuShardKernels());
  };
  const BoundCall copy = bind(contribution, device::ElementKind::kFloat);
  copy();
  EXPECT_EQ(contribution, collected);
  collected[1] = 4;
  copy();
  EXPECT_EQ(contribution[1], 4) << "bound once, it reads what is there now";
  bind(rounded, device::ElementKind::kBf16)();
  const at::Tensor expected = at::tensor(collected).to(at::kBFloat16);
  EXPECT_TRUE(SameBits(expected, device::FlatTensorIn(Cpu(), device::MemoryOf(rounded), at::kBFloat16)));
  EXPECT_THROW(bind(contribution, device::ElementKind::kDouble), std::invalid_argument);
  EXPECT_THROW(bind(contribution, device::ElementKind::kBf16), std::invalid_argument);
  device::Memory part = device::MemoryOf(contribution);
  part.bytes -= 1;
  EXPECT_THROW(BindCopy(part, device::ElementKind::kFloat, part, device::ElementKind::kFloat, Cpu(),
                        CpuShardKernels()),
               std::invalid_argument)
      << "the last element is not whole";
}

}  // namespace
}  // namespace tandem::fsdp
