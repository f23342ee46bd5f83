// SPDX-License-Identifier: Apache-2.0
// Layers that predict further tokens (model/depths.h), against autograd.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <vector>

#include "model/layer_pattern.h"
#include "model/unit_parameters.h"
#include "tests/model/autograd_decoder.h"
#include "tests/model/shapes.h"

namespace tandem::model::test {
namespace {

// Of a pattern of attention and MLPs, with vocabulary 17 and head sizes that are odd.
Shape Predicting(const char* name, const std::string& text, bool tied, BatchShape batch,
                 int64_t most_logit_bytes = int64_t{1} << 30) {
  DecoderConfig config = Config(24, 40, 0, 4, 2, 6, 17, tied);
  const LayerPattern pattern = ParseLayerPattern(text).value();
  for (const LogicalLayer& layer : LayersOf(pattern)) {
    config.pattern.push_back(layer.symbols);
  }
  config.num_hidden_layers = static_cast<int64_t>(config.pattern.size());
  config.pattern.insert(config.pattern.end(), pattern.num_depths, pattern.depth);
  config.depths = {.number = pattern.num_depths,
                   .loss_weight = 0.7,
                   .numbers_letters = text.find("--") != std::string::npos};
  config.most_logit_bytes = most_logit_bytes;
  return {name, config, batch};
}

const std::vector<Shape>& Predictions() {
  static const auto& shapes = *new std::vector<Shape>{
      Predicting("one_depth", "[*-]/*-", false, {3, 20}),
      Predicting("two_depths_tied", "*-/*/*", true, {2, 13}),
      Predicting("no_layers_before_two_of_a_letter", "/--", false, {3, 20}),
      Predicting("as_many_depths_as_targets", "*/-/-/-", false, {2, 4}),
      Predicting("logits_in_chunks", "*/*-/*-", false, {2, 33}, 2000),
      Predicting("logits_in_chunks_tied", "-/*", true, {1, 37}, 2000),
  };
  return shapes;
}

class DepthsTest : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, DepthsTest, testing::ValuesIn(Predictions()),
                         [](const auto& info) { return std::string(info.param.name); });

bool IsFrozenParameter(const DecoderConfig& config, const std::string& name) {
  for (const UnitParameters& unit : DecoderUnits(config)) {
    for (const Parameter& parameter : unit.parameters) {
      if (parameter.name == name) {
        return unit.frozen;
      }
    }
  }
  return false;
}

void ExpectLikeAutograd(const DecoderConfig& config, const Shape& shape, const Precision& precision,
                        double tolerance) {
  const at::Tensor tokens = RandomTokens(shape, kSeed);
  BoundDecoder run(config, shape.batch, precision, kSeed);
  run.Forward(tokens);
  run.Backward();
  const AutogradDecoder reference(config, run.parameters());
  const at::Tensor expected = reference.Loss(tokens);
  (expected + reference.LossesOfDepths()).backward();
  EXPECT_NEAR(run.value("head.loss").item<double>() / expected.item<double>(), 1, tolerance);
  ASSERT_EQ(reference.DepthLosses().size(), config.depths.number);
  for (int64_t i = 0; i < config.depths.number; ++i) {
    const std::string value = "mtp." + std::to_string(i) + ".depth_head.loss";
    EXPECT_NEAR(run.value(value).item<double>() / reference.DepthLosses()[i].item<double>(), 1, tolerance);
  }
  ASSERT_EQ(run.parameter_gradients().size(), reference.parameters().size());
  for (const auto& [name, parameter] : reference.parameters()) {
    if (!IsFrozenParameter(config, name)) {
      ExpectClose(run.parameter_gradients().at(name), parameter.grad(), tolerance, name);
    }
  }
}

TEST_P(DepthsTest, LossesAndEveryGradientMatchAutograd) {
  std::cout << "seed " << kSeed << "\n";
  const Shape& shape = GetParam();
  for (const bool detached : {false, true}) {
    SCOPED_TRACE(testing::Message() << "detached " << detached);
    DecoderConfig config = shape.config;
    config.depths.detached = detached;
    ExpectLikeAutograd(config, shape, ComputeType::kFp64, 1e-11);
    ExpectLikeAutograd(config, shape, ComputeType::kFp32, 2e-5);
  }
}

TEST_P(DepthsTest, WithFrozenUnitsOtherGradientsMatchAutograd) {
  const Shape& shape = GetParam();
  for (const char* unit : {"embedding", "mtp.0", "head"}) {
    SCOPED_TRACE(unit);
    DecoderConfig config = shape.config;
    config.frozen_units = {unit};
    ExpectLikeAutograd(config, shape, ComputeType::kFp64, 1e-11);
  }
}

TEST_P(DepthsTest, ReducedPrecisionIsNearAutograds) {
  const Shape& shape = GetParam();
  for (const Precision& precision : ReducedPrecisions()) {
    ExpectLikeAutograd(shape.config, shape, precision, 1.0 / 32);
  }
}

}  // namespace
}  // namespace tandem::model::test
