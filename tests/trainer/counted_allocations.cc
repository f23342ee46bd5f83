#include "tests/trainer/counted_allocations.h"

#include <cstdlib>
#include <new>

namespace tandem::trainer {
namespace {

thread_local bool counting = false;
thread_local int64_t counted = 0;

}  // namespace

CountedAllocations::CountedAllocations() {
  counted = 0;
  counting = true;
}

CountedAllocations::~CountedAllocations() { counting = false; }

int64_t CountedAllocations::count() const { return counted; }

void CountAllocation() { counted += counting ? 1 : 0; }

}  // namespace tandem::trainer

// Of the whole program.
void* operator new(std::size_t bytes) {
  tandem::trainer::CountAllocation();
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
