// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace tandem::ops {

// A bound operation. Its operands were checked when it was bound. A call runs the kernel on the CPU, or
// launches it on the GPU's current stream without waiting for it. It allocates nothing and keeps nothing
// between calls, except that matrix products on the CPU create LibTorch's views in each call. On a GPU, a
// call that has run once may be captured in a CUDA graph (Device::Capture).
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
