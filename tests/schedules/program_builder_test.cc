#include "schedules/build/program_builder.h"

#include <gtest/gtest.h>

#include "schedules/program/text.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::schedules {
namespace {

TEST(ProgramBuilderTest, EveryOutlineAndStrategyBuilds) {
  std::vector<Outline> outlines = {SmallDecoder(), SmallDecoder(1, /*tied=*/true), UnusualDecoder(),
                                   MoeDecoder()};
  for (const Outline& stage : TwoStages()) {
    outlines.push_back(stage);
  }
  for (uint64_t seed = 0; seed < 20; ++seed) {
    outlines.push_back(RandomOutline(seed));
  }
  for (const Outline& outline : outlines) {
    for (const Strategy& strategy : Strategies()) {
      const StagePrograms stage = BuildStage(outline, OptionsFor(outline, strategy.name, 2, 4)).value();
      EXPECT_EQ(stage.All().size(), 4);
      EXPECT_GT(stage.arena_bytes, stage.persistent_bytes);
    }
  }
}

}  // namespace
}  // namespace tandem::schedules
