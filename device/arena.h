#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "schedules/block_allocator.h"

namespace at {
class Tensor;
}
namespace c10 {
enum class ScalarType : int8_t;
}

namespace tandem::device {

// One region of device memory, reserved once, from which every tensor that a program touches is a view.
// The issuing thread allocates and frees in issue order; that the memory's users are ordered is what the checker proves.
// A tensor does not own its memory: it is valid until Free. Not thread-safe.
class Arena {
 public:
  // Reserves `capacity` bytes, aligned to BlockAllocator::kAlignment.
  // poison: fills fresh memory, and every block on Free, with NaN bytes (0xFF).
  explicit Arena(int64_t capacity, bool poison = false);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Contiguous, uninitialised. Throws ArenaExhausted with a table of what is in use.
  at::Tensor Allocate(const std::vector<int64_t>& shape, c10::ScalarType dtype);

  // `tensor` must be what Allocate returned (or start at the same address).
  void Free(const at::Tensor& tensor);

  int64_t in_use() const;
  int64_t peak() const;
  int64_t capacity() const;

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
  schedules::BlockAllocator blocks_;
  bool poison_;
};

}  // namespace tandem::device
