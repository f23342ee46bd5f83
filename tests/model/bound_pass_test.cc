// SPDX-License-Identifier: Apache-2.0
// Bound passes against themselves: their bits repeat, recomputes and halves give those of the whole, and they
// allocate nothing.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "model/node_kinds.h"
#include "tests/model/bound_decoder.h"
#include "tests/model/shapes.h"

namespace tandem::model {
namespace {

using test::BoundDecoder;
using test::kSeed;
using test::RandomTokens;
using test::ReducedPrecisions;
using test::SameBits;
using test::Shape;
using test::Shapes;

class BoundPassTest : public testing::TestWithParam<Shape> {
 protected:
  BoundPassTest() { std::cout << "seed " << kSeed << "\n"; }
};
INSTANTIATE_TEST_SUITE_P(Shapes, BoundPassTest, testing::ValuesIn(Shapes()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(BoundPassTest, RepeatsBitForBitWhateverRanBefore) {
  const Shape& shape = GetParam();
  const at::Tensor tokens = RandomTokens(shape, kSeed);
  BoundDecoder run(shape.config, shape.batch, ComputeType::kFp32, kSeed);
  const double loss = run.Forward(tokens);
  run.Backward();
  std::map<std::string, at::Tensor> first;
  for (const auto& [name, gradient] : run.parameter_gradients()) {
    first[name] = gradient.clone();
  }
  run.Forward(RandomTokens(shape, kSeed + 1));
  run.Backward();
  EXPECT_EQ(run.Forward(tokens), loss);
  run.Backward();
  for (const auto& [name, gradient] : run.parameter_gradients()) {
    EXPECT_TRUE(SameBits(gradient.contiguous(), first[name])) << name;
  }
}

// Counts what LibTorch allocates on the CPU while it exists.
class CountedAllocations final : public c10::Allocator {
 public:
  CountedAllocations() : before_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, /*priority=*/100); }
  ~CountedAllocations() override { c10::SetCPUAllocator(before_, /*priority=*/100); }

  c10::DataPtr allocate(size_t bytes) override {
    count_ += bytes > 0 ? 1 : 0;
    return before_->allocate(bytes);
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    before_->copy_data(to, from, bytes);
  }
  int count() const { return count_; }

 private:
  c10::Allocator* const before_;
  int count_ = 0;
};

TEST_P(BoundPassTest, ABoundPassAllocatesNothing) {
  const Shape& shape = GetParam();
  for (const Precision& precision : {Precision(ComputeType::kFp32), ReducedPrecisions()[2]}) {
    BoundDecoder run(shape.config, shape.batch, precision, kSeed);
    run.Forward(RandomTokens(shape, kSeed));
    run.Backward();
    for (int i = 0; i < static_cast<int>(run.outline().nodes.size()); ++i) {
      SCOPED_TRACE(run.outline().nodes[i].name);
      const BoundPass forward = run.Bind(i, Pass::kForward);
      const BoundPass input = run.Bind(i, run.GradientPasses(i).front());
      const BoundPass weight = run.Bind(i, run.GradientPasses(i).back());
      const c10::InferenceMode no_gradients;
      const CountedAllocations allocations;
      forward();
      input();
      weight();
      EXPECT_EQ(allocations.count(), 0);
      at::empty({1});
      EXPECT_EQ(allocations.count(), 1) << "allocations are not counted";
    }
  }
}

// The fewest outputs that one recompute may write to write that one.
std::set<std::string> ComputedWith(const NodeDeclaration& declaration, const std::string& name) {
  std::set<std::string> names = {name};
  for (size_t before = 0; before < names.size();) {
    before = names.size();
    for (const OutputSpec& output : declaration.outputs) {
      if (names.contains(output.tensor.name)) {
        names.insert(output.computed_from.begin(), output.computed_from.end());
      }
    }
  }
  return names;
}

// A recompute may leave out what was kept, and gives the bits of the forward in the rest.
TEST_P(BoundPassTest, RecomputeGivesTheBitsOfTheForward) {
  const Shape& shape = GetParam();
  for (const Precision& precision : {Precision(ComputeType::kFp32), Precision(ComputeType::kFp64),
                                     ReducedPrecisions()[0], ReducedPrecisions()[2]}) {
    BoundDecoder run(shape.config, shape.batch, precision, kSeed);
    run.Forward(RandomTokens(shape, kSeed));
    const std::vector<DecoderNode> nodes = DecoderNodeList(shape.config);
    for (int i = 0; i + 1 < static_cast<int>(run.outline().nodes.size()); ++i) {
      const schedules::Node& node = run.outline().nodes[i];
      const NodeTypes types(precision, nodes[i].unit);
      const NodeDeclaration declaration =
          DeclarationOf(nodes[i], ShapesOf(nodes[i], shape.config, shape.batch, types, DeviceKind::kCpu));
      for (const OutputSpec& output : declaration.outputs) {
        if (output.loss) {
          continue;
        }
        const std::set<std::string> set = ComputedWith(declaration, output.tensor.name);
        std::map<std::string, at::Tensor> expected;
        std::set<std::string> names;
        for (const std::string& output : set) {
          const std::string name = node.name + "." + output;
          names.insert(name);
          expected[name] = run.value(name).clone();
        }
        run.Run(i, Pass::kRecompute, names);  // fills them with NaN first
        for (const auto& [name, values] : expected) {
          EXPECT_TRUE(SameBits(run.value(name), values)) << name;
        }
      }
    }
  }
}

// Whatever lies between them.
TEST_P(BoundPassTest, WeightHalvesMayFollowInAnyOrder) {
  const Shape& shape = GetParam();
  const at::Tensor tokens = RandomTokens(shape, kSeed);
  for (const Precision& precision :
       {Precision(ComputeType::kFp32), Precision(ComputeType::kFp64), ReducedPrecisions()[0],
        ReducedPrecisions()[1], ReducedPrecisions()[2]}) {
    for (const bool adds : {false, true}) {
      BoundDecoder together(shape.config, shape.batch, precision, kSeed);
      BoundDecoder apart(shape.config, shape.batch, precision, kSeed);
      for (BoundDecoder* run : {&together, &apart}) {
        run->Forward(tokens);
        run->Backward();
        if (adds) {
          run->AddToGradients();
        }
      }
      std::vector<int> split;
      for (int i = static_cast<int>(together.outline().nodes.size()) - 1; i >= 0; --i) {
        if (HasWeightHalf(together.outline().nodes[i])) {
          split.push_back(i);
          together.Run(i, Pass::kBackwardInput);
          together.Run(i, Pass::kBackwardWeight);
          apart.Run(i, Pass::kBackwardInput);
        }
      }
      // Weight halves in another order, all behind the input apart.
      for (auto node = split.rbegin(); node != split.rend(); ++node) {
        apart.Run(*node, Pass::kBackwardWeight);
      }
      for (const auto& [name, gradient] : together.parameter_gradients()) {
        EXPECT_TRUE(SameBits(gradient.contiguous(), apart.parameter_gradients().at(name).contiguous()))
            << name << (adds ? ", added to" : "");
      }
      for (const schedules::Value& value : together.outline().values) {
        if (value.gradient_bytes.bound > 0) {
          EXPECT_TRUE(SameBits(together.gradient(value.name), apart.gradient(value.name))) << value.name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::model
