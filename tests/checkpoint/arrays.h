#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "fsdp/layout.h"

namespace tandem::checkpoint::test {

// One rank's shards of two arrays of a tiny job: element i of array k is 1000 k + i + salt.
class Arrays {
 public:
  Arrays(int ranks, int rank, double salt);
  // The same shapes, filled with NaN: what Load fills.
  static Arrays Empty(int ranks, int rank);

  std::vector<Shard> shards() const;
  bool operator==(const Arrays& other) const;

 private:
  struct Array {
    std::string name;
    int64_t elements = 0;
    fsdp::Range owned;
    at::Tensor data;
  };
  std::vector<Array> arrays_;
};

}  // namespace tandem::checkpoint::test
