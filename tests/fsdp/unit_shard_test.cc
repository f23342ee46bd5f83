// SPDX-License-Identifier: Apache-2.0
#include "fsdp/unit_shard.h"

#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/thread_groups.h"
#include "tests/fsdp/classes_run.h"
#include "tests/fsdp/test_unit.h"

namespace tandem::fsdp {
namespace {

using testing::HasSubstr;

constexpr ClassTypes kBf16{device::ElementKind::kFloat, device::ElementKind::kBf16,
                           device::ElementKind::kBf16};
constexpr ClassTypes kFp32{device::ElementKind::kFloat, device::ElementKind::kFloat,
                           device::ElementKind::kFloat};

Layout OneVector(int64_t elements) { return MakeLayout({{.name = "v", .shape = {elements}}}, 2); }

TEST(UnitShardTest, ClassTrainsAsIfAlone) {
  for (const test::Placed& placed : test::Placements()) {
    SCOPED_TRACE(testing::Message() << placed.strategy << ", " << placed.mesh.inner << " × "
                                    << placed.mesh.outer << " ranks");
    comm::ThreadGroups threads;
    int run = 0;
    const auto train = [&](bool together) {
      const std::string prefix = std::to_string(run++) + " ";
      return test::TrainClasses(
          placed,
          {.device = [](int) { return device::MakeCpuDevice(); },
           .communicator =
               [&](const std::string& group, int rank_in_group, int size, int) {
                 return threads.MakeFactory()->Make(
                     {.group = group, .prefix = prefix + group, .rank = rank_in_group, .size = size},
                     nullptr);
               },
           .kernels = CpuShardKernels()},
          together);
    };
    const std::vector<test::Bytes> together = train(true);
    const std::vector<test::Bytes> apart = train(false);
    for (size_t rank = 0; rank < together.size(); ++rank) {
      ASSERT_EQ(together[rank].size(), 7U);
      for (const auto& [role, classes] : together[rank]) {
        ASSERT_EQ(classes.size(), 3U) << role;
        for (size_t c = 0; c < classes.size(); ++c) {
          EXPECT_TRUE(classes[c] == apart[rank].at(role)[c])
              << role << " of class " << c << ", rank " << rank;
        }
      }
    }
  }
}

TEST(UnitShardTest, UnitPublishesAllOrNothing) {
  const UnitShard mixed("u", {{OneVector(70), kBf16}, {OneVector(5), kFp32}}, {.inner = 2}, test::Cpu(),
                        CpuShardKernels());
  EXPECT_EQ(mixed.classes()[0].bytes().published, 64 * 2);
  EXPECT_EQ(mixed.classes()[1].bytes().published, 64 * 4);
  const UnitShard fp32("u", {{OneVector(70), kFp32}, {OneVector(5), kFp32}}, {}, test::Cpu(),
                       CpuShardKernels());
  EXPECT_EQ(fp32.classes()[0].bytes().published + fp32.classes()[1].bytes().published, 0);
}

TEST(UnitShardTest, MemoryOfAnotherSizeIsRefusedByName) {
  const UnitShard unit("layers.3", {{OneVector(70), kBf16}, {OneVector(5), kFp32}}, {}, test::Cpu(),
                       CpuShardKernels());
  std::vector<char> bytes(1024);
  EXPECT_THAT(MessageOf([&] {
                unit.BindAccumulate({bytes.data(), 128 * 2 + 64 * 4}, {bytes.data(), 700}, false);
              }),
              HasSubstr("unit layers.3: full gradient has 700 bytes, and must have 768"));
}

TEST(UnitShardTest, UnitIsFrozenWhole) {
  ClassTypes frozen = kFp32;
  frozen.frozen = true;
  EXPECT_THAT(MessageOf([&] {
                UnitShard("head", {{OneVector(70), kBf16}, {OneVector(5), frozen}}, {}, test::Cpu(),
                          CpuShardKernels());
              }),
              HasSubstr("unit head: some of its parameters are frozen, and not all"));
}

}  // namespace
}  // namespace tandem::fsdp
