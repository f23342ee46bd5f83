// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/collectives.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/device/tensors.h"

namespace tandem::comm {
namespace {

at::Tensor Values(int64_t count, int rank, at::ScalarType dtype) {
  return at::arange(count, at::kLong).add(17 * rank + 1).remainder(101).to(dtype);
}

// Other numbers of rows between any two ranks, and none between some; and back.
void ExpectRowsArrive(Communicator& comm, at::ScalarType dtype) {
  constexpr int64_t kWidth = 5;
  constexpr int64_t kBehind = 2;  // rows that no rank sends
  const auto rows = [](int from, int to) { return static_cast<int64_t>((from + 2 * to) % 3); };
  const auto value = [&](int from, int to) {
    return at::full({rows(from, to), kWidth}, 1 + 10 * from + to, dtype);
  };
  std::vector<int64_t> sends;
  std::vector<int64_t> receives;
  std::vector<at::Tensor> input;
  std::vector<at::Tensor> expected;
  for (int rank = 0; rank < comm.size(); ++rank) {
    sends.push_back(rows(comm.rank(), rank));
    receives.push_back(rows(rank, comm.rank()));
    input.push_back(value(comm.rank(), rank));
    expected.push_back(value(rank, comm.rank()));
  }
  input.push_back(at::full({kBehind, kWidth}, 3, dtype));
  expected.push_back(at::full({kBehind, kWidth}, 7, dtype));
  const at::Tensor sent = at::cat(input);
  at::Tensor there = at::full_like(at::cat(expected), 7);
  comm.AllToAllRows(device::MemoryOf(sent), sends, device::MemoryOf(there), receives,
                    device::RowBytesOf(there));
  ASSERT_TRUE(at::equal(there, at::cat(expected)));
  at::Tensor back = at::full_like(sent, 3);
  comm.AllToAllRows(device::MemoryOf(there), receives, device::MemoryOf(back), sends,
                    device::RowBytesOf(back));
  ASSERT_TRUE(at::equal(back, sent));
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
      comm.AllGather(device::MemoryOf(mine), device::MemoryOf(gathered));
      ASSERT_EQ(comm.num_collectives(), ++calls);
      for (int rank = 0; rank < ranks; ++rank) {
        ASSERT_TRUE(at::equal(gathered.narrow(0, rank * count, count), Values(count, rank, dtype)));
      }
      // In place: the input is the rank-th slice of the output.
      at::Tensor in_place = at::zeros({ranks * count}, dtype);
      in_place.narrow(0, comm.rank() * count, count).copy_(mine);
      comm.AllGather(device::MemoryOf(in_place.narrow(0, comm.rank() * count, count)),
                     device::MemoryOf(in_place));
      ASSERT_EQ(comm.num_collectives(), ++calls);
      ASSERT_TRUE(at::equal(in_place, gathered));

      // To rank 0 alone; what the others pass is left alone.
      at::Tensor at_root = at::full({comm.rank() == 0 ? ranks * count : 2}, 5, dtype);
      comm.Gather(device::MemoryOf(mine), device::MemoryOf(at_root));
      ASSERT_EQ(comm.num_collectives(), ++calls);
      ASSERT_TRUE(at::equal(at_root, comm.rank() == 0 ? gathered : at::full({2}, 5, dtype)));

      const at::Tensor slices = Values(ranks * count, comm.rank(), dtype);
      at::Tensor there = at::zeros({ranks * count}, dtype);
      at::Tensor back = at::zeros({ranks * count}, dtype);
      comm.AllToAll(device::MemoryOf(slices), device::MemoryOf(there));
      for (int rank = 0; rank < ranks; ++rank) {
        ASSERT_TRUE(at::equal(there.narrow(0, rank * count, count),
                              Values(ranks * count, rank, dtype).narrow(0, comm.rank() * count, count)));
      }
      comm.AllToAll(device::MemoryOf(there), device::MemoryOf(back));
      ASSERT_TRUE(at::equal(back, slices)) << "twice is the identity";
      calls += 2;
      ExpectRowsArrive(comm, dtype);
      calls += 2;
    }
  }
}

void ExpectTransfersArrive(Communicator& link) {
  ASSERT_EQ(link.size(), 2);
  for (const bool from_first : {true, false}) {
    const bool sends = from_first == (link.rank() == 0);
    for (const at::ScalarType dtype : {at::kByte, at::kDouble, at::kBFloat16}) {
      for (const int64_t count : {0, 3, 40'000}) {
        const at::Tensor sent = Values(count, from_first ? 0 : 1, dtype);
        if (sends) {
          link.Send(device::MemoryOf(sent));
          continue;
        }
        at::Tensor received = at::zeros({count}, dtype);
        link.Receive(device::MemoryOf(received));
        ASSERT_TRUE(at::equal(received, sent)) << count;
      }
    }
  }
}

}  // namespace tandem::comm
