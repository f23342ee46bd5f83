#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "schedules_v1/block_allocator.h"

namespace at {
class Tensor;
}
namespace c10 {
enum class ScalarType : int8_t;
}

namespace tandem::device {

class Device;
class Region;

// The arena is smaller than what is asked of it: the plan and the run disagree. what() lists what is in use.
class ArenaExhausted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One region of device memory, reserved once, from which every tensor that a program touches is a view.
// The issuing thread allocates and frees in issue order; that the memory's users are ordered is what the
// checker proves. A tensor does not own its memory: it is valid until Free. Not thread-safe.
class Arena {
 public:
  // Reserves `capacity` bytes of `device`, which outlives it, aligned to BlockAllocator::kAlignment. Throws
  // OutOfMemory.
  // poison: fills fresh memory, and every block on Free, with NaN bytes (0xFF).
  Arena(Device& device, int64_t capacity, bool poison = false);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Contiguous, uninitialised. Throws ArenaExhausted with a table of what is in use.
  at::Tensor Allocate(const std::vector<int64_t>& shape, c10::ScalarType dtype);

  // `tensor` must be what Allocate returned (or start at the same address). A poisoning arena fills the block
  // now, so no work that uses it may be queued.
  void Free(const at::Tensor& tensor);

  int64_t in_use() const;
  int64_t peak() const;
  int64_t capacity() const;

 private:
  struct Block {
    int64_t bytes = 0;
    std::string what;  // "fp32 [4, 256, 128]"
  };

  [[noreturn]] void Exhausted(int64_t bytes, const std::string& what) const;

  Device& device_;
  std::unique_ptr<Region> memory_;
  schedules_v1::BlockAllocator blocks_;
  bool poison_;
  std::map<int64_t, Block> in_use_;  // by offset
};

}  // namespace tandem::device
