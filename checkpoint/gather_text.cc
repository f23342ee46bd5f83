#include "checkpoint/gather_text.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

#include "comm/communicator.h"

namespace tandem::checkpoint {

std::vector<std::string> GatherTexts(comm::Communicator& comm, const std::string& text) {
  at::Tensor length = at::empty({1}, at::kLong);
  *length.mutable_data_ptr<int64_t>() = static_cast<int64_t>(text.size());
  at::Tensor lengths = at::empty({comm.size()}, at::kLong);
  comm.AllGather(length, lengths);
  const int64_t* const size = lengths.const_data_ptr<int64_t>();
  const int64_t longest = *std::max_element(size, size + comm.size());

  // Padded to the longest: collectives move the same number of bytes for every rank.
  at::Tensor own = at::zeros({longest}, at::kByte);
  if (!text.empty()) {
    std::memcpy(own.mutable_data_ptr(), text.data(), text.size());
  }
  at::Tensor all = at::empty({comm.size() * longest}, at::kByte);
  if (longest > 0) {
    comm.AllGather(own, all);
  }
  std::vector<std::string> texts;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const char* const begin = static_cast<const char*>(all.const_data_ptr()) + rank * longest;
    texts.emplace_back(begin, static_cast<size_t>(size[rank]));
  }
  return texts;
}

}  // namespace tandem::checkpoint
