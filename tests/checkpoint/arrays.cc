#include "tests/checkpoint/arrays.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <limits>

namespace tandem::checkpoint::test {

Arrays::Arrays(int ranks, int rank, double salt) {
  int k = 0;
  // 200 elements: with granule 64 the last of 4 ranks owns 8; 70: two ranks own nothing.
  for (const int64_t elements : {int64_t{200}, int64_t{70}}) {
    const fsdp::Layout layout = fsdp::MakeLayout({{.name = "w", .shape = {elements}}}, sizeof(float));
    fsdp::Range owned = fsdp::OwnedRange(layout, ranks, rank);
    at::Tensor data = at::empty({owned.size()}, at::kFloat);
    for (int64_t i = 0; i < owned.size(); ++i) {
      data.mutable_data_ptr<float>()[i] = static_cast<float>(1000 * k + owned.begin + i + salt);
    }
    arrays_.push_back({"unit." + std::to_string(k) + "/weights", layout.elements, owned, data});
    ++k;
  }
}

Arrays Arrays::Empty(int ranks, int rank) { return {ranks, rank, std::numeric_limits<double>::quiet_NaN()}; }

std::vector<Shard> Arrays::shards() const {
  std::vector<Shard> shards;
  for (const Array& array : arrays_) {
    shards.push_back({array.name, array.elements, array.owned.begin, &array.data});
  }
  return shards;
}

bool Arrays::operator==(const Arrays& other) const {
  for (size_t i = 0; i < arrays_.size(); ++i) {
    if (!at::equal(arrays_[i].data, other.arrays_[i].data)) {
      return false;
    }
  }
  return arrays_.size() == other.arrays_.size();
}

}  // namespace tandem::checkpoint::test
