// SPDX-License-Identifier: Apache-2.0
// What a ClassShard refuses to be made of and to bind.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "fsdp/buffer_bytes.h"
#include "fsdp/class_shard.h"
#include "tests/comm/run_thread_ranks.h"
#include "tests/fsdp/test_unit.h"

namespace tandem::fsdp {
namespace {

using test::Cpu;
using test::MixedLayout;

// Why `call` refuses, or "accepted".
template <typename Call>
std::string MessageOf(const Call& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

class ClassShardRefusalTest : public testing::TestWithParam<ClassTypes> {};

TEST_P(ClassShardRefusalTest, WrongSizesAreRefusedByName) {
  const Layout layout = MixedLayout(GetParam());
  const auto element = device::BytesOf(GetParam().main);
  const ClassTypes types = GetParam();
  std::vector<double> memory(100'000);
  char* const begin = reinterpret_cast<char*>(memory.data());
  const UnitMesh mesh{.inner = 2};
  const ClassShard unit("layers.3", layout, mesh, types, Cpu(), CpuShardKernels());
  const ClassBytes bytes = unit.bytes();
  const device::Memory shard{begin, bytes.moment};
  const device::Memory gathered{begin, bytes.gathered};
  const int64_t gathered_shard = bytes.gathered / 2;  // of each of the ranks
  const device::Memory sent{begin, gathered_shard};
  const device::Memory contribution{begin, bytes.contribution};
  comm::RunThreadRanks(1, [&](comm::Communicator& comm) {
    EXPECT_EQ(MessageOf([&] { unit.BindUnshard(comm, sent, gathered); }),
              "unit layers.3: placed as rank 0 of 2, in group test this is rank 0 of 1");
  });
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    if (comm.rank() == 1) {
      return;
    }
    EXPECT_EQ(MessageOf([&] { unit.BindUnshard(comm, sent, gathered); }), "accepted");
    EXPECT_EQ(MessageOf([&] {
                unit.BindUnshard(comm, {begin, gathered_shard - element}, gathered);
              }),
              "unit layers.3: shard has " + std::to_string(gathered_shard - element) +
                  " bytes, and must have " + std::to_string(gathered_shard));
    EXPECT_EQ(
        MessageOf([&] {
          unit.BindReduceGradients(&comm, {contribution, false, contribution, shard, {begin, 8}}, false);
        }),
        "unit layers.3: norm terms needs " +
            std::to_string(BufferBytesOf(layout, mesh, static_cast<int>(element)).norm_terms) +
            " bytes, there are 8");
  });
  EXPECT_EQ(MessageOf([&] {
              unit.BindReduceGradients(nullptr, {contribution, false, contribution, shard, {}}, false);
            }),
            "unit layers.3: a reduction over 2 ranks needs their communicator");
  EXPECT_EQ(MessageOf([&] { unit.BindOptimizerStep({}, test::kAdamW); }),
            "unit layers.3: accumulator has 0 bytes, and must have " + std::to_string(shard.bytes));
  EXPECT_EQ(MessageOf([&] {
              unit.Initialize(1, {}, {shard, shard, shard});
            }),
            "unit layers.3: 0 initialisers for 5 parameters");
}

// The rank would send its part as another's, and nothing would fail.
TEST_P(ClassShardRefusalTest, WrongRankInAGroupIsRefused) {
  const Layout layout = MixedLayout(GetParam());
  const UnitMesh mesh{.inner = 2, .inner_rank = 0, .outer = 2, .outer_rank = 1};
  const ClassShard unit("layers.3", layout, mesh, GetParam(), Cpu(), CpuShardKernels());
  const ClassBytes bytes = unit.bytes();
  std::vector<double> memory(100'000);
  char* const begin = reinterpret_cast<char*>(memory.data());
  const int64_t shard = bytes.gathered / mesh.inner;  // in the compute type
  const device::Memory contribution{begin, bytes.contribution};
  const device::Memory accumulator{begin, bytes.accumulator};
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    const auto expect_right_place = [&](int rank, const auto& bind) {
      const std::string other = std::to_string(1 - rank);
      EXPECT_EQ(MessageOf(bind), comm.rank() == rank
                                     ? "accepted"
                                     : "unit layers.3: placed as rank " + std::to_string(rank) +
                                           " of 2, in group test this is rank " + other + " of 2");
    };
    expect_right_place(0, [&] { unit.BindUnshard(comm, {begin, shard}, {begin, bytes.gathered}); });
    expect_right_place(0, [&] {
      unit.BindReduceGradients(&comm, {contribution, false, contribution, accumulator, {}}, false);
    });
    expect_right_place(1, [&] { unit.BindUnshardOuter(comm, {begin, shard / mesh.outer}, {begin, shard}); });
    expect_right_place(1, [&] { unit.BindReduceOuter(comm, {accumulator, accumulator, {}}); });
  });
}

INSTANTIATE_TEST_SUITE_P(Types, ClassShardRefusalTest, testing::ValuesIn(test::kClassTypes),
                         [](const auto& info) { return test::NameOf(info.param); });

TEST(ClassTypesTest, OtherTypesAreRefused) {
  using enum device::ElementKind;
  const Layout layout = MakeLayout({{.name = "w", .shape = {2}}}, 4);
  for (const ClassTypes types : {ClassTypes{kFloat, kInt64, kFloat},
                                 {kFloat, kFloat, kInt64},
                                 {kFloat, kFloat, kBf16},
                                 {kFloat, kDouble, kFloat},
                                 {kDouble, kBf16, kDouble},
                                 {kBf16, kBf16, kBf16}}) {
    EXPECT_NE(MessageOf([&] { ClassShard("u", layout, {}, types, Cpu(), CpuShardKernels()); }), "accepted");
  }
}

}  // namespace
}  // namespace tandem::fsdp
