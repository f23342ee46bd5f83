// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "schedules/build/program_builder.h"
#include "schedules/check/check.h"
#include "schedules/program/placement.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::schedules {
namespace {

StagePrograms Build(const Outline& outline, const BuildOptions& options) {
  absl::StatusOr<StagePrograms> stage = BuildStage(outline, options);
  EXPECT_TRUE(stage.ok()) << stage.status();
  return *std::move(stage);
}

TEST(CheckAcceptsTest, EveryOutlineUnderEveryStrategyAndPrecision) {
  const std::pair<std::string, Outline> outlines[] = {{"small", SmallDecoder()},
                                                      {"tied", SmallDecoder(2, /*tied=*/true)},
                                                      {"unusual", UnusualDecoder()},
                                                      {"moe", MoeDecoder()}};
  for (const auto& [name, outline] : outlines) {
    for (const Strategy& strategy : Strategies()) {
      for (const std::string precision : {"fp32", "bf16", "bf16 beside fp32"}) {
        for (const int microbatches : {1, 3}) {
          Outline used = outline;
          if (precision != "fp32") {
            UseBf16(used);
          }
          if (precision == "bf16 beside fp32") {
            KeepLastPartsInMainType(used);
          }
          BuildOptions options = OptionsFor(used, strategy.name, microbatches, /*ranks=*/4);
          options.num_validation_microbatches = 2;
          EXPECT_EQ(CheckStage(used, options, Build(used, options)), absl::OkStatus())
              << name << ", " << strategy.name << ", " << precision << ", microbatches " << microbatches;
        }
      }
    }
  }
}

TEST(CheckAcceptsTest, EveryOutlineOverlappedAndRecomputed) {
  for (const Outline& outline : {SmallDecoder(3), SmallDecoder(2, /*tied=*/true), MoeDecoder(2)}) {
    for (const Strategy& strategy : Strategies()) {
      for (const bool recomputes : {false, true}) {
        BuildOptions options = OptionsFor(outline, strategy.name, 3, /*ranks=*/4);
        options.hold = 1;
        if (recomputes) {
          for (const Value& value : outline.values) {
            // What a layer computes between its input and its output.
            options.recompute.push_back(
                value.kind == ValueKind::kActivation && value.gradient_bytes.bound == 0 &&
                value.name.starts_with("layers.") && !value.name.ends_with("gradient"));
          }
        }
        const StagePrograms stage = BuildStage(outline, options, Schedule::kOverlapped).value();
        EXPECT_EQ(CheckStage(outline, options, stage), absl::OkStatus())
            << outline.nodes.size() << " nodes, " << strategy.name << (recomputes ? ", recomputed" : "");
      }
    }
  }
}

TEST(CheckAcceptsTest, RandomOutlines) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const Outline outline = RandomOutline(seed);
    const BuildOptions options = RandomOptions(outline, seed);
    EXPECT_EQ(CheckStage(outline, options, Build(outline, options)), absl::OkStatus()) << "seed " << seed;
  }
}

TEST(CheckAcceptsTest, EightyLayersOfThirtyTwoMicrobatches) {
  const Outline outline = SmallDecoder(80);
  const BuildOptions options = OptionsFor(outline, "zero3", 32, 8);
  EXPECT_EQ(CheckStage(outline, options, Build(outline, options)), absl::OkStatus());
}

}  // namespace
}  // namespace tandem::schedules
