#include "plan/memory.h"

#include <gtest/gtest.h>

#include "schedules_v1/block_allocator.h"
#include "tests/plan/test_job.h"

namespace tandem::plan {
namespace {

TEST(PlanMemoryTest, BuffersComeInTheOrderInWhichTheTrainerAllocatesThem) {
  const JobPlan plan = MakeJobPlan(TestJob());
  const std::vector<Buffer> buffers = PersistentBuffers(plan);
  ASSERT_GE(buffers.size(), 25u);
  const int64_t embedding = fsdp::ShardElements(plan.layouts[0], 2) * 4;
  EXPECT_EQ(buffers[0], (Buffer{"embedding.weights", "weights", embedding}));
  EXPECT_EQ(buffers[1], (Buffer{"embedding.gradients", "gradients", embedding}));
  EXPECT_EQ(buffers[2], (Buffer{"embedding.exp_avg", "optimizer", embedding}));
  EXPECT_EQ(buffers[3], (Buffer{"embedding.exp_avg_sq", "optimizer", embedding}));
  EXPECT_EQ(buffers[4].name, "layers.0.weights");
  const auto& slots = plan.train_program.parameter_slots;
  ASSERT_EQ(slots, (std::vector<int>{1, 2, 1}));
  const std::vector<std::string> expected = {
      "slots.parameters.0.0", "slots.parameters.1.0", "slots.parameters.1.1",
      "slots.parameters.2.0", "slots.gradients.0.0",  "slots.gradients.1.0",
      "slots.gradients.1.1",  "slots.gradients.2.0",  "reduce.staging"};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(buffers[24 + i].name, expected[i]);
  }
  EXPECT_EQ(buffers.size(), 24 + expected.size());
  int64_t largest = 0;
  for (const fsdp::Layout& layout : plan.layouts) {
    largest = std::max(largest, fsdp::GatheredElements(layout, 2) * 4);
  }
  EXPECT_EQ(buffers.back().bytes, largest);
}

TEST(PlanMemoryTest, CategoriesAndRoundingAddUpToTheArena) {
  for (const char* parallelism : {"{ranks: 1}", "{ranks: 2}", "{ranks: 3, fsdp: {prefetch: 2}}"}) {
    const MemoryPlan memory = PlanMemory(MakeJobPlan(TestJob(parallelism)));
    int64_t sum = memory.rounding_bytes;
    for (const CategoryBytes& category : memory.categories) {
      EXPECT_GE(category.bytes, 0) << category.category;
      sum += category.bytes;
    }
    EXPECT_EQ(sum, memory.arena_bytes);
    EXPECT_GE(memory.rounding_bytes, 0);
    EXPECT_EQ(memory.arena_bytes % schedules_v1::BlockAllocator::kAlignment, 0);
    EXPECT_EQ(memory.train.points.back().in_use, memory.persistent_bytes);
    EXPECT_EQ(memory.validate.points.back().in_use, memory.persistent_bytes);
    EXPECT_EQ(memory.arena_bytes, memory.train.peak_bytes);
  }
}

TEST(PlanMemoryTest, ShardsShrinkWithRanksAndSlotsDoNot) {
  const auto bytes_of = [](const MemoryPlan& memory, const std::string& name) {
    for (const CategoryBytes& category : memory.categories) {
      if (category.category == name) {
        return category.bytes;
      }
    }
    ADD_FAILURE() << "no category " << name;
    return int64_t{0};
  };
  const MemoryPlan one = PlanMemory(MakeJobPlan(TestJob("{ranks: 1}")));
  const MemoryPlan two = PlanMemory(MakeJobPlan(TestJob("{ranks: 2}")));
  EXPECT_NEAR(static_cast<double>(bytes_of(two, "optimizer")),
              static_cast<double>(bytes_of(one, "optimizer")) / 2, 8192);
  EXPECT_EQ(bytes_of(one, "optimizer"), 2 * bytes_of(one, "weights"));
  EXPECT_NEAR(static_cast<double>(bytes_of(two, "parameter slots")),
              static_cast<double>(bytes_of(one, "parameter slots")), 8192);
  EXPECT_EQ(bytes_of(two, "activations"), bytes_of(one, "activations") - 3 * 8)
      << "three losses fewer are kept";
}

TEST(PlanMemoryTest, ValidationThatNeverRunsCountsNothing) {
  v1::JobSpec job = TestJob();
  job.mutable_training()->set_validate_every_steps(0);
  EXPECT_TRUE(PlanMemory(MakeJobPlan(job)).validate.points.empty());
}

}  // namespace
}  // namespace tandem::plan
