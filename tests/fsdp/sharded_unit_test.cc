#include "fsdp/sharded_unit.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "comm/run_thread_ranks.h"

namespace tandem::fsdp {
namespace {

constexpr int kContributions = 12;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Layout MixedLayout(at::ScalarType dtype) {
  return MakeLayout({{.name = "norm", .shape = {37}},
                     {.name = "q", .shape = {20, 33}, .block = 0},
                     {.name = "k", .shape = {7, 33}, .block = 0},
                     {.name = "out", .shape = {33, 20}},
                     {.name = "bias", .shape = {1}}},
                    static_cast<int>(c10::elementSize(dtype)));
}

// Fits into one granule, so that all ranks but the first own nothing.
Layout TinyLayout(at::ScalarType dtype) {
  return MakeLayout({{.name = "norm", .shape = {9}}}, static_cast<int>(c10::elementSize(dtype)));
}

std::vector<ParameterInit> Inits(const Layout& layout) {
  std::vector<ParameterInit> inits;
  for (const Parameter& parameter : layout.parameters) {
    inits.push_back(parameter.shape.size() == 1 ? ParameterInit{.ones = true}
                                                : ParameterInit{.deviation = 0.02});
  }
  return inits;
}

// The contribution of one global microbatch of one step: the same wherever it is computed. Everything that is
// no parameter is NaN.
at::Tensor Contribution(const Layout& layout, at::ScalarType dtype, int num_ranks, int64_t step,
                        int microbatch) {
  at::Tensor slot = at::full({GatheredElements(layout, num_ranks)}, kNan, dtype);
  std::mt19937_64 random(static_cast<uint64_t>(step * 1000 + microbatch));
  std::normal_distribution<double> normal;
  for (at::Tensor& view : ParameterViews(layout, slot)) {
    at::Tensor values = at::empty({view.numel()}, at::kDouble);
    for (int64_t i = 0; i < values.numel(); ++i) values.data_ptr<double>()[i] = normal(random);
    view.copy_(values.view(view.sizes()));
  }
  return slot;
}

// All of a unit's state after some steps, put together from the ranks.
struct Outcome {
  at::Tensor weights;  // [layout.elements]
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
  std::vector<double> grad_norms;                    // per step, with the clip that follows
  std::vector<std::vector<double>> parameter_norms;  // weight, gradient, update per parameter
  at::Tensor gathered;
};

NormTerms TermsOf(ShardedUnit& unit) {
  NormTerms terms;
  unit.AddTerms(&terms);
  return terms;
}

struct RankNorms {
  NormTerms terms;
  std::vector<ParameterNorms> norms;
};

Outcome Train(const Layout& layout, at::ScalarType dtype, int ranks, int steps) {
  Outcome outcome;
  const auto options = at::TensorOptions().dtype(dtype);
  outcome.weights = at::full({layout.elements}, kNan, options);
  outcome.exp_avg = at::full({layout.elements}, kNan, options);
  outcome.exp_avg_sq = at::full({layout.elements}, kNan, options);
  outcome.parameter_norms.resize(layout.parameters.size());
  std::vector<RankNorms> shared(static_cast<size_t>(ranks));
  comm::RunThreadRanks(ranks, [&](comm::Communicator& comm) {
    const int64_t shard = ShardElements(layout, ranks);
    // Garbage before, as fresh memory may hold.
    const auto fresh = [&] { return at::full({shard}, kNan, options); };
    ShardedUnit unit("unit", layout, ranks, comm.rank(), fresh(), fresh(), fresh(), fresh());
    unit.Initialize(17, Inits(layout));
    at::Tensor staging = at::full({GatheredElements(layout, ranks)}, kNan, options);
    at::Tensor token = at::zeros({1}, options);
    at::Tensor tokens = at::zeros({ranks}, options);
    for (int64_t step = 1; step <= steps; ++step) {
      for (int round = 0; round < kContributions / ranks; ++round) {
        const at::Tensor slot = Contribution(layout, dtype, ranks, step, round * ranks + comm.rank());
        unit.ReduceGradients(comm, slot, staging, /*add=*/round > 0);
      }
      shared[static_cast<size_t>(comm.rank())].terms = TermsOf(unit);
      comm.AllGather(token, tokens);
      DoubleDouble squares;
      int64_t nonfinite = 0;
      for (const RankNorms& rank : shared) {
        squares.Add(DoubleDouble{rank.terms.high, rank.terms.low});
        nonfinite += static_cast<int64_t>(rank.terms.nonfinite);
      }
      EXPECT_EQ(nonfinite, 0);
      const double norm = std::sqrt(squares.value()) / kContributions;
      const NormOutcome agreed{.clip = std::min(1.0, 5 / norm)};
      unit.OptimizerStep({.step = step,
                          .learning_rate = 1e-2,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .epsilon = 1e-8,
                          .weight_decay = 0.1,
                          .divisor = kContributions,
                          .agreed = &agreed});
      if (comm.rank() == 0) outcome.grad_norms.push_back(norm);
      comm.AllGather(token, tokens);
    }
    shared[static_cast<size_t>(comm.rank())].norms = unit.norms();
    at::Tensor slot = at::full({GatheredElements(layout, ranks)}, kNan, options);
    unit.Unshard(comm, slot);
    const Range owned = unit.owned();
    outcome.weights.narrow(0, owned.begin, owned.size()).copy_(unit.weights());
    outcome.exp_avg.narrow(0, owned.begin, owned.size()).copy_(unit.exp_avg());
    outcome.exp_avg_sq.narrow(0, owned.begin, owned.size()).copy_(unit.exp_avg_sq());
    if (comm.rank() == 0) outcome.gathered = slot.narrow(0, 0, layout.elements).clone();
  });
  for (size_t parameter = 0; parameter < layout.parameters.size(); ++parameter) {
    ParameterNorms total;
    for (const RankNorms& rank : shared) {
      total.weight.Add(rank.norms[parameter].weight);
      total.gradient.Add(rank.norms[parameter].gradient);
      total.update.Add(rank.norms[parameter].update);
    }
    outcome.parameter_norms[parameter] = {total.weight.value(), total.gradient.value(), total.update.value()};
  }
  return outcome;
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

class ShardedUnitTest : public testing::TestWithParam<at::ScalarType> {};

TEST_P(ShardedUnitTest, AnyNumberOfRanksGivesTheSameBits) {
  for (const Layout& layout : {MixedLayout(GetParam()), TinyLayout(GetParam())}) {
    const Outcome one = Train(layout, GetParam(), 1, 5);
    ASSERT_FALSE(at::isnan(one.weights).any().item<bool>());
    for (const int ranks : {2, 3, 4, 6, 12}) {
      SCOPED_TRACE(ranks);
      const Outcome many = Train(layout, GetParam(), ranks, 5);
      EXPECT_TRUE(SameBits(one.weights, many.weights));
      EXPECT_TRUE(SameBits(one.exp_avg, many.exp_avg));
      EXPECT_TRUE(SameBits(one.exp_avg_sq, many.exp_avg_sq));
      EXPECT_EQ(one.grad_norms, many.grad_norms);
      EXPECT_EQ(one.parameter_norms, many.parameter_norms);
    }
  }
}

TEST_P(ShardedUnitTest, TheGatherIsExact) {
  for (const int ranks : {1, 2, 3, 4}) {
    const Outcome outcome = Train(MixedLayout(GetParam()), GetParam(), ranks, 2);
    EXPECT_TRUE(SameBits(outcome.gathered, outcome.weights));
  }
}

TEST_P(ShardedUnitTest, PaddingStaysZero) {
  const Layout layout = MixedLayout(GetParam());
  const Outcome outcome = Train(layout, GetParam(), 3, 3);
  at::Tensor padding = at::ones({layout.elements}, at::kBool);
  for (const Parameter& parameter : layout.parameters)
    padding.narrow(0, parameter.range.begin, parameter.range.size()).fill_(false);
  EXPECT_GT(padding.sum().item<int64_t>(), 0);
  for (const at::Tensor& state : {outcome.weights, outcome.exp_avg, outcome.exp_avg_sq}) {
    EXPECT_TRUE(state.masked_select(padding).eq(0).all().item<bool>());
  }
}

TEST_P(ShardedUnitTest, NormsAreThoseOfTheTensors) {
  const Layout layout = MixedLayout(GetParam());
  const Outcome before = Train(layout, GetParam(), 2, 2);
  const Outcome after = Train(layout, GetParam(), 2, 3);
  at::Tensor mean = at::zeros({layout.elements}, at::kDouble);
  for (int microbatch = 0; microbatch < kContributions; ++microbatch) {
    mean += Contribution(layout, GetParam(), 1, 3, microbatch);
  }
  mean /= kContributions;
  const double tolerance = GetParam() == at::kDouble ? 1e-12 : 1e-5;
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const Range range = layout.parameters[i].range;
    const auto part = [&](const at::Tensor& flat) {
      return flat.narrow(0, range.begin, range.size()).to(at::kDouble);
    };
    const auto squares = [](const at::Tensor& values) { return values.square().sum().item<double>(); };
    const double weight = squares(part(after.weights));
    const double gradient = squares(part(mean));
    const double update = squares(part(after.weights) - part(before.weights));
    EXPECT_NEAR(after.parameter_norms[i][0], weight, 1e-12 * weight);
    EXPECT_NEAR(after.parameter_norms[i][1], gradient, tolerance * gradient);
    EXPECT_NEAR(after.parameter_norms[i][2], update, 1e-6 * update);
  }
}

TEST_P(ShardedUnitTest, NonfiniteGradientsAreCountedAndTheStepChangesNothing) {
  const Layout layout = MixedLayout(GetParam());
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    const auto options = at::TensorOptions().dtype(GetParam());
    const auto fresh = [&] { return at::zeros({ShardElements(layout, 2)}, options); };
    ShardedUnit unit("unit", layout, 2, comm.rank(), fresh(), fresh(), fresh(), fresh());
    unit.Initialize(1, Inits(layout));
    at::Tensor staging = at::zeros({GatheredElements(layout, 2)}, options);
    OptimizerInputs inputs{.step = 1,
                           .learning_rate = 1e-2,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .epsilon = 1e-8,
                           .weight_decay = 0.1,
                           .divisor = 2};
    unit.ReduceGradients(comm, Contribution(layout, GetParam(), 2, 1, comm.rank()), staging, false);
    unit.OptimizerStep(inputs);
    const at::Tensor weights = unit.weights().clone();
    const at::Tensor exp_avg = unit.exp_avg().clone();
    const at::Tensor exp_avg_sq = unit.exp_avg_sq().clone();
    const std::vector<ParameterNorms> norms = unit.norms();

    const at::Tensor slot = Contribution(layout, GetParam(), 2, 2, comm.rank());
    ParameterViews(layout, slot)[0][3].fill_(comm.rank() == 0 ? kNan
                                                              : std::numeric_limits<double>::infinity());
    ParameterViews(layout, slot)[0][5].fill_(std::numeric_limits<double>::infinity());
    unit.ReduceGradients(comm, slot, staging, false);
    EXPECT_EQ(TermsOf(unit).nonfinite, comm.rank() == 0 ? 2 : 0);
    EXPECT_TRUE(std::isfinite(TermsOf(unit).high));
    inputs.step = 2;
    const NormOutcome not_finite{.finite = false};
    inputs.agreed = &not_finite;
    unit.OptimizerStep(inputs);
    EXPECT_TRUE(SameBits(unit.weights(), weights));
    EXPECT_TRUE(SameBits(unit.exp_avg(), exp_avg));
    EXPECT_TRUE(SameBits(unit.exp_avg_sq(), exp_avg_sq));
    for (size_t i = 0; i < norms.size(); ++i) {
      EXPECT_EQ(unit.norms()[i].weight.value(), norms[i].weight.value());
      EXPECT_EQ(unit.norms()[i].update.value(), 0);
    }
    // Which parameter it was can be read from the norms.
    if (comm.rank() == 0) {
      EXPECT_FALSE(std::isfinite(unit.norms()[0].gradient.value()));
    }
    EXPECT_TRUE(std::isfinite(unit.norms()[3].gradient.value()));

    // The next step, with finite gradients, is as if nothing had been.
    unit.ReduceGradients(comm, Contribution(layout, GetParam(), 2, 3, comm.rank()), staging, false);
    EXPECT_EQ(TermsOf(unit).nonfinite, 0);
    inputs.agreed = nullptr;
    unit.OptimizerStep(inputs);
    EXPECT_FALSE(at::isnan(unit.weights()).any().item<bool>());
    EXPECT_FALSE(SameBits(unit.weights(), weights));
  });
}

TEST_P(ShardedUnitTest, RanksWithoutElementsTakePart) {
  const Layout layout = TinyLayout(GetParam());
  comm::RunThreadRanks(4, [&](comm::Communicator& comm) {
    const auto options = at::TensorOptions().dtype(GetParam());
    const auto fresh = [&] { return at::zeros({ShardElements(layout, 4)}, options); };
    ShardedUnit unit("unit", layout, 4, comm.rank(), fresh(), fresh(), fresh(), fresh());
    unit.Initialize(1, Inits(layout));
    EXPECT_EQ(unit.owned().size(), comm.rank() == 0 ? 64 : 0);
    EXPECT_EQ(unit.weights().numel(), unit.owned().size());
    EXPECT_EQ(TermsOf(unit).high, 0);
    unit.OptimizerStep({.step = 1, .learning_rate = 1, .beta1 = 0.9, .beta2 = 0.9, .epsilon = 1e-8});
    EXPECT_EQ(unit.norms()[0].weight.value(), comm.rank() == 0 ? 9 : 0);
  });
}

TEST_P(ShardedUnitTest, WrongTensorsAndGroupsAreRefused) {
  const Layout layout = MixedLayout(GetParam());
  const auto tensor = [&](int64_t elements) { return at::zeros({elements}, GetParam()); };
  const int64_t shard = ShardElements(layout, 2);
  EXPECT_THROW(ShardedUnit("u", layout, 2, 0, tensor(shard), tensor(shard - 1), tensor(shard), tensor(shard)),
               std::invalid_argument);
  comm::RunThreadRanks(1, [&](comm::Communicator& comm) {
    ShardedUnit unit("u", layout, 2, 0, tensor(shard), tensor(shard), tensor(shard), tensor(shard));
    at::Tensor slot = tensor(2 * shard);
    EXPECT_THROW(unit.Unshard(comm, slot), std::invalid_argument);
    EXPECT_THROW(unit.Initialize(1, {}), std::invalid_argument);
  });
}

INSTANTIATE_TEST_SUITE_P(Types, ShardedUnitTest, testing::Values(at::kFloat, at::kDouble),
                         [](const auto& info) { return c10::toString(info.param); });

TEST(InitializeTest, ValuesDependOnNameAndPlaceInTheParameterAlone) {
  const auto weights = [](const std::vector<ParameterSpec>& parameters, int ranks, uint64_t seed) {
    const Layout layout = MakeLayout(parameters, 4);
    at::Tensor all = at::zeros({layout.elements});
    for (int rank = 0; rank < ranks; ++rank) {
      const auto fresh = [&] { return at::zeros({ShardElements(layout, ranks)}); };
      ShardedUnit unit("unit", layout, ranks, rank, fresh(), fresh(), fresh(), fresh());
      unit.Initialize(seed, std::vector<ParameterInit>(parameters.size(), ParameterInit{.deviation = 2}));
      const Range owned = unit.owned();
      all.narrow(0, owned.begin, owned.size()).copy_(unit.weights());
    }
    return ParameterViews(layout, all).back().clone();
  };
  const std::vector<ParameterSpec> alone = {{.name = "w", .shape = {50, 40}}};
  const std::vector<ParameterSpec> behind = {{.name = "other", .shape = {77}},
                                             {.name = "w", .shape = {50, 40}}};
  const at::Tensor expected = weights(alone, 1, 1);
  EXPECT_TRUE(SameBits(expected, weights(alone, 5, 1)));
  EXPECT_TRUE(SameBits(expected, weights(behind, 1, 1)));
  EXPECT_TRUE(SameBits(expected, weights(behind, 7, 1)));
  EXPECT_FALSE(SameBits(expected, weights(alone, 1, 2)));
  EXPECT_NEAR(expected.std().item<double>(), 2, 0.15);
}

}  // namespace
}  // namespace tandem::fsdp
