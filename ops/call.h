// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace tandem::ops {

// A bound operation: its operands have been checked and the struct of its arguments made, once. A call runs
// the kernel on the CPU, or launches it on the current stream of the GPU. It allocates nothing, waits for
// nothing, and keeps nothing between calls. One exception: on the CPU, matrix products make LibTorch's views
// in each call.
using Call = std::function<void()>;

// Runs several calls, one after another.
class Calls {
 public:
  void Add(Call call) { calls_.push_back(std::move(call)); }
  void operator()() const {
    for (const Call& call : calls_) {
      call();
    }
  }

 private:
  std::vector<Call> calls_;
};

}  // namespace tandem::ops
