#include "schedules_v1/arena_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules_v1/checker.h"
#include "schedules_v1/program_builder.h"
#include "schedules_v1/text.h"
#include "tests/schedules_v1/program_edits.h"

namespace tandem::schedules_v1 {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Two streams and one arena: what one releases the other is handed.
class ArenaTest : public testing::Test {
 protected:
  ArenaTest() {
    outline_.units.push_back({"unit", {"part"}, 64});
    const auto value = [&](const std::string& name, int64_t bytes) {
      outline_.values.push_back({.name = name, .bytes = {bytes, bytes}});
      return static_cast<ValueId>(outline_.values.size()) - 1;
    };
    outline_.batch = value("tokens", 256);
    outline_.loss = value("loss", 8);
    const ValueId first = value("first", 4096);
    const ValueId second = value("second", 4096);
    outline_.nodes = {
        {.name = "makes", .forward = {.reads = {outline_.batch}, .writes = {first}}},
        {.name = "loses", .forward = {.reads = {first}, .writes = {outline_.loss}}},
        {.name = "other",
         .stream = StreamKind::kDispatch,
         .forward = {.reads = {outline_.batch}, .writes = {second}}},
        {.name = "reads other", .stream = StreamKind::kDispatch, .forward = {.reads = {second}}},
    };
    program_ = BuildValidateProgram(
        outline_, {.prefetch = 0, .unit_parameter_slot_bytes = {256}, .unit_gradient_slot_bytes = {256}}, 1);
  }

  int Find(const std::string& text) const { return FindInstruction(outline_, program_, text); }

  Outline outline_;
  Program program_;
};

TEST_F(ArenaTest, WhoIsHandedMemoryComesAfterItsRelease) {
  ASSERT_EQ(CheckProgram(outline_, program_), absl::OkStatus()) << ToText(program_, outline_);
  const int other = Find("forward other mb 0");
  const int release = Find("release first mb 0");
  EXPECT_EQ(program_.instructions[other].waits, (std::vector<int>{release}));
  Program program = program_;
  program.instructions[other].waits = {Find("load tokens mb 0")};
  EXPECT_THAT(std::string(CheckProgram(outline_, program).message()),
              AllOf(HasSubstr("(forward other mb 0) is handed memory that"),
                    HasSubstr("(release first mb 0) gave back"),
                    HasSubstr("nothing makes the first wait for the second")));
}

TEST_F(ArenaTest, WhoIsHandedScratchComesAfterItsUser) {
  outline_.nodes[1].forward.scratch = {6000, 6000};
  outline_.values[3].bytes = {6000, 6000};  // "second" fits nowhere else as well
  program_ = BuildValidateProgram(
      outline_, {.prefetch = 0, .unit_parameter_slot_bytes = {256}, .unit_gradient_slot_bytes = {256}}, 1);
  ASSERT_EQ(CheckProgram(outline_, program_), absl::OkStatus());
  Program program = program_;
  program.instructions[Find("forward other mb 0")].waits = {Find("forward makes mb 0")};
  EXPECT_THAT(std::string(CheckProgram(outline_, program).message()),
              AllOf(HasSubstr("(forward other mb 0) is handed memory that"), HasSubstr("gave back")));
}

}  // namespace
}  // namespace tandem::schedules_v1
