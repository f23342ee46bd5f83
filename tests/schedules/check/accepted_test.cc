#include <gtest/gtest.h>

#include <chrono>
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
      for (const bool bf16 : {false, true}) {
        for (const int microbatches : {1, 3}) {
          Outline used = outline;
          if (bf16) {
            UseBf16(used);
          }
          BuildOptions options = OptionsFor(used, strategy.name, microbatches, /*ranks=*/4);
          options.num_validation_microbatches = 2;
          EXPECT_EQ(CheckStage(used, options, Build(used, options)), absl::OkStatus())
              << name << ", " << strategy.name << (bf16 ? ", bf16" : "") << ", microbatches " << microbatches;
        }
      }
    }
  }
}

TEST(CheckAcceptsTest, RandomOutlines) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Outline outline = RandomOutline(seed);
    const BuildOptions options = RandomOptions(outline, seed);
    EXPECT_EQ(CheckStage(outline, options, Build(outline, options)), absl::OkStatus()) << "seed " << seed;
  }
}

TEST(CheckTimeTest, EightyLayersOfThirtyTwoMicrobatches) {
  const Outline outline = SmallDecoder(80);
  const BuildOptions options = OptionsFor(outline, "zero3", 32, 8);
  const StagePrograms stage = Build(outline, options);
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < 3; ++i) {
    const auto begin = Clock::now();
    EXPECT_EQ(CheckStage(outline, options, stage), absl::OkStatus());
    std::cout << "check of " << stage.train.instructions.size() << " instructions: "
              << std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin).count() / 1000.0
              << " ms\n";
  }
}

}  // namespace
}  // namespace tandem::schedules
