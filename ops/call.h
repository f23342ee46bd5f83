// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace tandem::ops {

// An operation that is bound: its operands are checked and the struct of its arguments is made, once. Calling
// it runs the kernel on the CPU, or launches it on the current stream of the GPU: it allocates nothing, waits
// for nothing, and keeps nothing from one time to the next. On the CPU alone, products make the views that
// LibTorch takes.
using Call = std::function<void()>;

// Calls one after another.
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
