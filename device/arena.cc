#include "device/arena.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "device/device.h"
#include "device/memory.h"

namespace tandem::device {
namespace {

std::string Describe(const std::vector<int64_t>& shape, c10::ScalarType dtype) {
  std::ostringstream text;
  text << c10::toString(dtype) << " [";
  for (size_t i = 0; i < shape.size(); ++i) text << (i == 0 ? "" : ", ") << shape[i];
  text << "]";
  return text.str();
}

// data_ptr() is null for a tensor without elements.
char* Begin(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.storage().mutable_data()) +
         tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize());
}

}  // namespace

Arena::Arena(Device& device, int64_t capacity, bool poison) : device_(device), poison_(poison) {
  if (capacity < 0) throw std::invalid_argument("arena of " + std::to_string(capacity) + " bytes");
  memory_ = device.Reserve(capacity);
  if (poison_ && capacity > 0) {
    device_.Fill(memory_->begin(), kNanByte, capacity);
    device_.Synchronize();
  }
}

Arena::~Arena() = default;

at::Tensor Arena::Allocate(const std::vector<int64_t>& shape, c10::ScalarType dtype) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype));
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes)) {
      throw std::invalid_argument("arena: no tensor has the shape " + Describe(shape, dtype));
    }
  }
  const int64_t offset = blocks_.Allocate(bytes);
  // Also where nothing new was appended: an earlier refusal may have left free blocks beyond the end.
  if (offset + bytes > memory_->bytes()) {
    blocks_.Free(offset);
    Exhausted(bytes, Describe(shape, dtype));
  }
  in_use_.emplace(offset, Block{.bytes = bytes, .what = Describe(shape, dtype)});
  const c10::Device where = device_.torch_device();
  return at::for_blob(memory_->begin() + offset, shape)
      .options(at::TensorOptions().dtype(dtype).device(where))
      .target_device(where)
      .make_tensor();
}

void Arena::Free(const at::Tensor& tensor) {
  char* const begin = Begin(tensor);
  const auto block = in_use_.find(begin - memory_->begin());
  if (block == in_use_.end()) throw std::logic_error("arena: Free of a tensor that is not allocated");
  if (poison_) {
    device_.Fill(begin, kNanByte, block->second.bytes);
    device_.Synchronize();
  }
  blocks_.Free(block->first);
  in_use_.erase(block);
}

void Arena::Exhausted(int64_t bytes, const std::string& what) const {
  std::vector<std::pair<int64_t, const Block*>> blocks;
  for (const auto& [offset, block] : in_use_) blocks.emplace_back(offset, &block);
  std::stable_sort(blocks.begin(), blocks.end(),
                   [](const auto& a, const auto& b) { return a.second->bytes > b.second->bytes; });
  constexpr size_t kRows = 32;
  std::ostringstream text;
  text << "arena exhausted: " << bytes << " bytes for " << what << " do not fit; capacity "
       << memory_->bytes() << ", in use " << blocks_.in_use() << " in " << blocks.size()
       << " blocks (offset, bytes, what):";
  for (size_t i = 0; i < std::min(kRows, blocks.size()); ++i) {
    text << "\n  " << blocks[i].first << "  " << blocks[i].second->bytes << "  " << blocks[i].second->what;
  }
  if (blocks.size() > kRows) text << "\n  and " << blocks.size() - kRows << " smaller ones";
  throw ArenaExhausted(text.str());
}

int64_t Arena::in_use() const { return blocks_.in_use(); }
int64_t Arena::peak() const { return blocks_.peak(); }
int64_t Arena::capacity() const { return memory_->bytes(); }

}  // namespace tandem::device
