// SPDX-License-Identifier: Apache-2.0
#include "model/row_exchange.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "model/bound_tensors.h"
#include "model/decoder_shapes.h"

namespace tandem::model {

RowExchange::RowExchange(comm::Communicator& communicator, const at::Tensor& counts)
    : communicator_(communicator),
      counts_(counts.defined() ? std::make_shared<const at::Tensor>(counts) : nullptr) {}

RowExchange RowExchange::Of(BoundTensors& in, const DecoderShapes& shapes) {
  return {in.Communicator(), shapes.exact_chunks ? in.Value("counts") : at::Tensor()};
}

void RowExchange::There(const at::Tensor& from, at::Tensor& to) const { Move(from, to, /*back=*/false); }

void RowExchange::Back(const at::Tensor& from, at::Tensor& to) const { Move(from, to, /*back=*/true); }

void RowExchange::Move(const at::Tensor& from, at::Tensor& to, bool back) const {
  if (!exact()) {
    communicator_.AllToAll(from, to);
    return;
  }
  const int size = communicator_.size();
  const int64_t* const counts = counts_->const_data_ptr<int64_t>();
  std::vector<int64_t> own;     // rows to each rank that are this one's tokens
  std::vector<int64_t> others;  // rows from each rank that are its tokens
  for (int rank = 0; rank < size; ++rank) {
    own.push_back(counts[communicator_.rank() * size + rank]);
    others.push_back(counts[rank * size + communicator_.rank()]);
  }
  if (back) {
    communicator_.AllToAllRows(from, others, to, own);
  } else {
    communicator_.AllToAllRows(from, own, to, others);
  }
}

}  // namespace tandem::model
