#include "comm/watch.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <utility>

namespace tandem::comm {

Watch::Watch(Communicator& heartbeat, std::vector<Communicator*> watched, absl::Duration interval,
             std::function<void(std::exception_ptr)> lost)
    : heartbeat_(heartbeat),
      watched_(std::move(watched)),
      interval_(interval),
      lost_(std::move(lost)),
      thread_([this] { Run(); }) {}

Watch::~Watch() {
  Leave(absl::ZeroDuration());
  thread_.join();
}

bool Watch::Leave(absl::Duration patience) {
  std::unique_lock lock(mu_);
  leaving_ = true;
  changed_.notify_all();
  return changed_.wait_for(lock, absl::ToChronoNanoseconds(patience), [this] { return ended_; });
}

void Watch::Run() {
  std::unique_lock lock(mu_);
  bool watching = true;
  while (watching) {
    changed_.wait_for(lock, absl::ToChronoNanoseconds(interval_), [this] { return leaving_; });
    const bool leaving = leaving_;
    lock.unlock();
    try {
      if (!leaving) {
        for (Communicator* communicator : watched_) communicator->CheckPending();
      }
      watching = Exchange(leaving);
    } catch (...) {
      watching = false;
      if (!leaving) lost_(std::current_exception());
    }
    lock.lock();
  }
  ended_ = true;
  changed_.notify_all();
}

bool Watch::Exchange(bool leaving) {
  const at::Tensor mine = at::full({1}, leaving ? 1 : 0, at::kByte);
  at::Tensor all = at::empty({heartbeat_.size()}, at::kByte);
  heartbeat_.AllGather(mine, all);
  for (int rank = 0; rank < heartbeat_.size(); ++rank) {
    if (all.const_data_ptr<uint8_t>()[rank] != 0) return false;
  }
  return true;
}

}  // namespace tandem::comm
