// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"

namespace tandem::device {
namespace {

// Returns the machine's memory and swap. The kernel would promise more, and kill this process later.
int64_t MachineMemory() {
  struct sysinfo info;
  if (sysinfo(&info) != 0) {
    return std::numeric_limits<int64_t>::max();
  }
  return static_cast<int64_t>((info.totalram + info.totalswap) * info.mem_unit);
}

// Returns a value of /proc/meminfo, such as "MemTotal", in bytes; 0 if the file does not have it.
int64_t OfMeminfo(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  int64_t kibibytes = 0;
  while (file >> word) {
    if (word == name + ":" && file >> kibibytes) {
      return kibibytes * 1024;
    }
  }
  return 0;
}

// The kernel provides zeroed pages when they are first touched, on the node of the thread that touches them.
class MappedRegion final : public Region {
 public:
  explicit MappedRegion(int64_t bytes) : bytes_(bytes) {
    if (bytes_ == 0) {
      return;
    }
    if (bytes_ > MachineMemory()) {
      throw OutOfMemory("the machine has " + std::to_string(MachineMemory()) +
                        " bytes of memory with its swap, this rank needs " + std::to_string(bytes_) +
                        "; use more ranks on more workers, a smaller micro_batch_size, or a smaller model");
    }
    void* const mapped = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
      throw OutOfMemory("this machine cannot give this rank " + std::to_string(bytes) + " bytes of memory");
    }
    begin_ = static_cast<char*>(mapped);
    madvise(begin_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);  // a hint; without it memory is only slower
  }
  ~MappedRegion() override {
    if (begin_ != nullptr) {
      munmap(begin_, static_cast<size_t>(bytes_));
    }
  }

  char* begin() const override { return begin_; }
  int64_t bytes() const override { return bytes_; }

 private:
  char* begin_ = nullptr;
  const int64_t bytes_;
};

class ClockMark final : public TimeMark {
 public:
  int64_t Since(const TimeMark& origin) const override {
    return std::chrono::nanoseconds(now_ - static_cast<const ClockMark&>(origin).now_).count();
  }

 private:
  const std::chrono::steady_clock::time_point now_ = std::chrono::steady_clock::now();
};

class CpuGraph final : public Graph {
 public:
  explicit CpuGraph(std::function<void()> work) : work_(std::move(work)) {}

  void Launch() override { work_(); }

 private:
  const std::function<void()> work_;
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(StreamFactory* streams) : streams_(streams) {}

  std::string name() const override { return "cpu"; }
  MemoryUse memory_use() const override {
    const int64_t total = OfMeminfo("MemTotal");
    return {.used = total - OfMeminfo("MemAvailable"), .total = total};
  }
  bool finishes_in_calls() const override { return true; }
  std::unique_ptr<Stream> MakeStream(const std::string& name, StreamPriority, StreamError error) override {
    return streams_ == nullptr ? MakeCpuStream(name, std::move(error))
                               : streams_->MakeStream(name, std::move(error));
  }
  std::unique_ptr<Region> Reserve(int64_t bytes) override { return std::make_unique<MappedRegion>(bytes); }
  std::unique_ptr<Region> ReserveHost(int64_t bytes) override { return Reserve(bytes); }
  void CopyToDevice(void* device, const void* host, int64_t bytes) override {
    std::memcpy(device, host, static_cast<size_t>(bytes));
  }
  void CopyToHost(void* host, const void* device, int64_t bytes) override {
    std::memcpy(host, device, static_cast<size_t>(bytes));
  }
  void Copy(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  std::unique_ptr<Graph> Capture(std::function<void()> work) override {
    return std::make_unique<CpuGraph>(std::move(work));
  }
  void Fill(void* begin, uint8_t byte, int64_t bytes) override {
    std::memset(begin, byte, static_cast<size_t>(bytes));
  }
  std::unique_ptr<TimeMark> MarkTime() override { return std::make_unique<ClockMark>(); }
  void Synchronize() override {}  // work runs at once, and streams are joined by their events

 private:
  StreamFactory* const streams_;  // null: streams are threads
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice() { return std::make_unique<CpuDevice>(nullptr); }

std::unique_ptr<Device> MakeCpuDevice(StreamFactory& streams) {
  return std::make_unique<CpuDevice>(&streams);
}

}  // namespace tandem::device
