// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/collectives.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace tandem::comm {
namespace {

at::Tensor Values(int64_t count, int rank, at::ScalarType dtype) {
  return at::arange(count, at::kLong).add(17 * rank + 1).remainder(101).to(dtype);
}

}  // namespace

void ExpectCollectivesMoveTheRightBytes(Communicator& comm) {
  const int ranks = comm.size();
  uint64_t calls = comm.num_collectives();
  EXPECT_EQ(calls, 0u);
  for (const at::ScalarType dtype : {at::kByte, at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const int64_t count : {0, 3, 40'000}) {
      const at::Tensor mine = Values(count, comm.rank(), dtype);
      at::Tensor gathered = at::zeros({ranks * count}, dtype);
      comm.AllGather(mine, gathered);
      ASSERT_EQ(comm.num_collectives(), ++calls);
      for (int rank = 0; rank < ranks; ++rank) {
        ASSERT_TRUE(at::equal(gathered.narrow(0, rank * count, count), Values(count, rank, dtype)));
      }
      // In place: the input is the rank-th slice of the output.
      at::Tensor in_place = at::zeros({ranks * count}, dtype);
      in_place.narrow(0, comm.rank() * count, count).copy_(mine);
      comm.AllGather(in_place.narrow(0, comm.rank() * count, count), in_place);
      ASSERT_EQ(comm.num_collectives(), ++calls);
      ASSERT_TRUE(at::equal(in_place, gathered));

      // To rank 0 alone; what the others pass is left alone.
      at::Tensor at_root = at::full({comm.rank() == 0 ? ranks * count : 2}, 5, dtype);
      comm.Gather(mine, at_root);
      ASSERT_EQ(comm.num_collectives(), ++calls);
      ASSERT_TRUE(at::equal(at_root, comm.rank() == 0 ? gathered : at::full({2}, 5, dtype)));

      const at::Tensor slices = Values(ranks * count, comm.rank(), dtype);
      at::Tensor there = at::zeros({ranks * count}, dtype);
      at::Tensor back = at::zeros({ranks * count}, dtype);
      comm.AllToAll(slices, there);
      for (int rank = 0; rank < ranks; ++rank) {
        ASSERT_TRUE(at::equal(there.narrow(0, rank * count, count),
                              Values(ranks * count, rank, dtype).narrow(0, comm.rank() * count, count)));
      }
      comm.AllToAll(there, back);
      ASSERT_TRUE(at::equal(back, slices)) << "twice is the identity";
      calls += 2;
    }
  }
}

}  // namespace tandem::comm
