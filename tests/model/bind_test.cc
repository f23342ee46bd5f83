// SPDX-License-Identifier: Apache-2.0
// The nodes' code through Node::Bind, against autograd.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/unit_parameters.h"
#include "tests/model/autograd_decoder.h"
#include "tests/model/bound_decoder.h"
#include "tests/model/shapes.h"

namespace tandem::model {
namespace {

using test::AutogradDecoder;
using test::BoundDecoder;
using test::ExpectClose;
using test::kSeed;
using test::RandomTokens;
using test::ReducedPrecisions;
using test::Shape;
using test::Shapes;

ComputeType TypeOf(const Shape& shape, const Precision& precision, const std::string& parameter) {
  for (const UnitParameters& unit : DecoderUnits(shape.config)) {
    for (const Parameter& own : unit.parameters) {
      if (own.name == parameter) {
        return TypesOf(unit, own.part, precision).compute;
      }
    }
  }
  throw std::logic_error("no unit has " + parameter);
}

class BindTest : public testing::TestWithParam<Shape> {
 protected:
  BindTest() { std::cout << "seed " << kSeed << "\n"; }
};
INSTANTIATE_TEST_SUITE_P(Shapes, BindTest, testing::ValuesIn(Shapes()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(BindTest, LossAndEveryGradientMatchAutograd) {
  const Shape& shape = GetParam();
  const at::Tensor tokens = RandomTokens(shape, kSeed);
  for (const ComputeType type : {ComputeType::kFp64, ComputeType::kFp32}) {
    const double tolerance = type == ComputeType::kFp64 ? 1e-11 : 2e-5;
    BoundDecoder run(shape.config, shape.batch, type, kSeed);
    const double loss = run.Forward(tokens);
    run.Backward();

    const AutogradDecoder reference(shape.config, run.parameters(), shape.batch.packs_documents);
    const at::Tensor expected = reference.Loss(tokens);
    (expected + reference.RouterLosses()).backward();
    EXPECT_NEAR(loss / expected.item<double>(), 1, tolerance);
    ASSERT_EQ(run.parameter_gradients().size(), reference.parameters().size());
    for (const auto& [name, parameter] : reference.parameters()) {
      ExpectClose(run.parameter_gradients().at(name), parameter.grad(), tolerance, name);
    }
  }
}

// bfloat16 and what goes with it: the node kinds convert, round and sum where they should. Each rounding is
// by at most 2^-8 of a number, and there are some tens of them one behind the other in two layers.
constexpr double kBf16Tolerance = 1.0 / 32;
// Gradients through a mixer's or delta net's recurrence and the norm of what it gates cancel more.
constexpr double kMixersBf16Tolerance = 1.0 / 4;

// Relative to the gradient. Attention hardly changes with what all queries or all keys have in common, so
// that the terms of such a sum nearly cancel: it is off by as much as the gradient of their projection, of
// which it may be a small part.
double Bf16ToleranceOf(const std::string& name, const std::map<std::string, at::Tensor>& parameters) {
  const auto norm_of = [](const at::Tensor& parameter) { return parameter.grad().norm().item<double>(); };
  if (name.ends_with(".A_log") || name.ends_with(".dt_bias")) {
    // Sums over the tokens, of which those of the projection that gives them their steps have all signs.
    const std::string mixer = name.substr(0, name.rfind('.'));
    const auto whole = parameters.find(mixer + ".in_proj.weight");
    const at::Tensor& projection =
        whole != parameters.end() ? whole->second : parameters.at(mixer + ".in_proj_ba.weight");
    return kMixersBf16Tolerance * std::max(1.0, norm_of(projection) / norm_of(parameters.at(name)));
  }
  const size_t at = name.find(".self_attn.");
  if (at == std::string::npos || (name[at + 11] != 'q' && name[at + 11] != 'k') ||
      name.ends_with("proj.weight")) {
    return kBf16Tolerance;
  }
  const auto projection = parameters.find(name.substr(0, at + 12) + "_proj.weight");
  if (projection == parameters.end()) {
    return kBf16Tolerance;  // latent attention has other ones
  }
  return kBf16Tolerance * std::max(1.0, norm_of(projection->second) / norm_of(parameters.at(name)));
}

TEST_P(BindTest, ReducedPrecisionIsNearAutograds) {
  const Shape& shape = GetParam();
  const at::Tensor tokens = RandomTokens(shape, kSeed);
  int number = 0;
  for (const Precision& precision : ReducedPrecisions()) {
    SCOPED_TRACE(testing::Message() << "precision " << number++);
    BoundDecoder run(shape.config, shape.batch, precision, kSeed);
    const double loss = run.Forward(tokens);
    run.Backward();
    AutogradDecoder reference(shape.config, run.parameters(), shape.batch.packs_documents);
    for (int layer = 0; layer < shape.config.num_hidden_layers; ++layer) {
      if (shape.config.IsSparse(layer)) {
        const bool drops = shape.config.moe.capacity.factor > 0;  // then what was chosen is another value
        const at::Tensor chosen =
            run.value("layers." + std::to_string(layer) + (drops ? ".route.ranked" : ".route.chosen"));
        reference.Choose(layer, chosen.view({-1, shape.config.moe.router.top_k}));
      }
    }
    const at::Tensor expected = reference.Loss(tokens);
    (expected + reference.RouterLosses()).backward();
    EXPECT_NEAR(loss / expected.item<double>(), 1, kBf16Tolerance / 4);
    const bool has_mixers = shape.config.mamba.heads > 0 || shape.config.delta.value_heads > 0;
    const double tolerance = has_mixers ? kMixersBf16Tolerance : kBf16Tolerance;
    for (const auto& [name, parameter] : reference.parameters()) {
      EXPECT_EQ(run.parameters().at(name).scalar_type() == at::kBFloat16,
                TypeOf(shape, precision, name) == ComputeType::kBf16);
      ExpectClose(run.parameter_gradients().at(name), parameter.grad(),
                  std::max(tolerance, Bf16ToleranceOf(name, reference.parameters())), name);
    }
  }
}

// How many nodes write the gradient of a value.
int64_t NumWriters(const BoundDecoder& run, int value) {
  int64_t writers = 0;
  for (int i = 0; i < static_cast<int>(run.outline().nodes.size()); ++i) {
    const std::vector<int>& writes = run.AccessOf(i, run.GradientPasses(i).front()).gradient_writes;
    writers += std::count(writes.begin(), writes.end(), value);
  }
  return writers;
}

// To what is there, in whatever type it is.
TEST_P(BindTest, GradientsAreAddedWhereOperandsSay) {
  const Shape& shape = GetParam();
  const at::Tensor tokens = RandomTokens(shape, kSeed);
  std::vector<Precision> precisions = ReducedPrecisions();
  precisions.emplace_back(ComputeType::kFp64);
  for (const Precision& precision : precisions) {
    const bool exact = precision.common.compute == ComputeType::kFp64;
    const double tolerance = exact ? 1e-11 : 1.0 / 128;  // each sum is rounded once more
    const double there = exact ? 3 : 0;                  // in the gradients of values
    BoundDecoder run(shape.config, shape.batch, precision, kSeed);
    run.Forward(tokens);
    run.Backward();
    std::map<std::string, at::Tensor> once;
    for (const auto& [name, gradient] : run.parameter_gradients()) {
      once[name] = gradient.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
    }
    run.AddToGradients();
    for (int i = static_cast<int>(run.outline().nodes.size()) - 1; i >= 0; --i) {
      for (const Pass pass : run.GradientPasses(i)) {
        std::map<std::string, at::Tensor> saved;  // of the values that this node alone writes
        for (const int value : run.AccessOf(i, pass).gradient_writes) {
          const std::string& name = run.outline().values[value].name;
          if (NumWriters(run, value) == 1 && name.ends_with("hidden")) {
            saved[name] = run.gradient(name).clone();
            run.gradient(name).fill_(there);
          } else if (!run.IsWrittenBefore(i, value)) {
            run.gradient(name).zero_();
          }
        }
        run.Run(i, pass);
        for (const auto& [name, gradient] : saved) {
          ExpectClose(run.gradient(name) - there, gradient.to(at::kDouble), tolerance, name);
          run.gradient(name).copy_(gradient);
        }
      }
    }
    for (const auto& [name, gradient] : run.parameter_gradients()) {
      ExpectClose(gradient.contiguous(), once[name] * 2, tolerance, name);
    }
  }
}

// A forward that writes gradients gets none in a validation.
TEST(HeadInChunksTest, AValidationHasTheForwardsLossWithoutGradients) {
  for (const Shape& shape : Shapes()) {
    for (const Precision& precision : ReducedPrecisions()) {
      BoundDecoder run(shape.config, shape.batch, precision, kSeed);
      const int head = static_cast<int>(run.outline().nodes.size()) - 1;
      if (HasBackward(run.outline().nodes[head])) {
        continue;
      }
      SCOPED_TRACE(shape.name);
      const double loss = run.Forward(RandomTokens(shape, kSeed));
      const at::Tensor grad_x =
          run.gradient(run.outline().values[run.outline().nodes[head].forward.reads[0]].name);
      grad_x.fill_(7);
      for (const auto& [name, gradient] : run.parameter_gradients()) {
        at::Tensor(gradient).fill_(7);
      }
      run.value("head.loss").fill_(0);
      const schedules::Access& access = run.outline().nodes[head].forward;
      const size_t first = access.reads.size() + access.writes.size();
      run.Bind(head, Pass::kForward, {}, [&](std::vector<OperandMemory>& operands) {
        operands.at(first) = {};
        for (size_t i = 0; i < access.parameter_gradients.size(); ++i) {
          operands.at(first + 1 + access.parameters.size() + i) = {};
        }
      })();
      EXPECT_EQ(run.value("head.loss").item<double>(), loss);
      EXPECT_TRUE(grad_x.eq(7).all().item<bool>());
      for (const auto& [name, gradient] : run.parameter_gradients()) {
        EXPECT_TRUE(gradient.eq(7).all().item<bool>()) << name;
      }
    }
  }
}

// Rotation by the position in the sequence and not in the document changes nothing, since scores depend on
// the distance; and every target counts, also the one behind a document's end.
TEST(PackedDocumentsTest, ADocumentIsComputedAsIfAlone) {
  const std::vector<int64_t> lengths = {1, 5, 33, 1, 1, 20, 9};
  const int64_t all = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  for (Shape packed : Shapes()) {
    if (!packed.batch.packs_documents) {
      continue;
    }
    SCOPED_TRACE(packed.name);
    packed.batch = {.sequences = 1, .sequence_length = all, .packs_documents = true};
    packed.config.moe.router_aux_loss_coef = 0;  // of a microbatch: not a sum over its tokens
    packed.config.moe.router_z_loss_coef = 0;
    const at::Tensor tokens = RandomTokens(packed, kSeed);
    int64_t first = 0;
    for (const int64_t length : lengths) {
      tokens.narrow(1, all + 1 + first, length).fill_(first);
      first += length;
    }
    BoundDecoder together(packed.config, packed.batch, ComputeType::kFp64, kSeed);
    const double loss = together.Forward(tokens);
    together.Backward();

    double sum = 0;
    std::map<std::string, at::Tensor> gradients;
    first = 0;
    for (const int64_t length : lengths) {
      SCOPED_TRACE(testing::Message() << "the document of tokens " << first << " to " << first + length - 1);
      BoundDecoder alone(packed.config, {.sequences = 1, .sequence_length = length}, ComputeType::kFp64,
                         kSeed);
      sum += static_cast<double>(length) * alone.Forward(tokens.narrow(1, first, length + 1));
      alone.Backward();
      for (const auto& [name, gradient] : alone.parameter_gradients()) {
        at::Tensor& total = gradients.try_emplace(name, at::zeros_like(gradient)).first->second;
        total = total + gradient * static_cast<double>(length);
      }
      for (const schedules::Value& value : together.outline().values) {
        if (value.name.ends_with(".hidden")) {
          const at::Tensor rows = together.value(value.name).view({all, -1}).narrow(0, first, length);
          ExpectClose(alone.value(value.name), rows.contiguous().flatten(), 1e-12, value.name);
        }
      }
      first += length;
    }
    EXPECT_NEAR(loss * static_cast<double>(all) / sum, 1, 1e-12);
    for (const auto& [name, gradient] : together.parameter_gradients()) {
      ExpectClose(gradient * static_cast<double>(all), gradients.at(name), 1e-11, name);
    }
  }
}

}  // namespace
}  // namespace tandem::model
