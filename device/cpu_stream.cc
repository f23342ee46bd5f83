// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <pthread.h>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "device/event_pool.h"
#include "device/stream.h"
#include "platform/steady_condition.h"

namespace tandem::device {
namespace {

class CpuEvent final : public PooledEvent<CpuEvent> {
 public:
  bool IsReached() override { return reached_; }

  void Reset() { reached_ = false; }

  void Reach() ABSL_LOCKS_EXCLUDED(mu_) {
    bool host_waits = false;
    {
      const absl::MutexLock lock(&mu_);
      reached_ = true;
      host_waits = num_hosts_ > 0;
    }
    changed_.SignalAll();
    if (host_waits) {
      host_changed_.NotifyAll();
    }
  }
  // Called by streams.
  void Await() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    while (!reached_) {
      changed_.Wait(&mu_);
    }
  }
  // Called by the host. Returns false at the limit.
  bool AwaitFor(absl::Duration time) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    ++num_hosts_;
    const bool reached = host_changed_.AwaitFor(mu_, time, [this] { return reached_.load(); });
    --num_hosts_;
    return reached;
  }

 private:
  absl::Mutex mu_;
  absl::CondVar changed_;
  // Only the host waits with a limit. Such waits go by CLOCK_MONOTONIC, which costs twice as much, and
  // nearly all waits are those of streams.
  platform::SteadyCondition host_changed_;
  int num_hosts_ ABSL_GUARDED_BY(mu_) = 0;  // hosts that are waiting
  std::atomic<bool> reached_ = false;       // changed to true under mu_
};

CpuEvent& Own(const Event& event) { return static_cast<CpuEvent&>(*event.state()); }

// How late a host that waits for a stream may notice an error.
constexpr absl::Duration kErrorPoll = absl::Milliseconds(5);

// After an error events are still reached and waited for; only work is skipped. So nothing waits forever for
// a stream whose work failed.
struct Reach {
  Event event;
};
struct Await {
  Event event;
};
using Task = std::variant<std::function<void()>, Reach, Await>;

class CpuStream final : public Stream {
 public:
  CpuStream(const std::string& name, StreamError error)
      : error_(std::move(error)), thread_([this, name] { Run(name); }) {}

  // Queued work runs first.
  ~CpuStream() override {
    {
      const absl::MutexLock lock(&mu_);
      ending_ = true;
    }
    changed_.Signal();
    thread_.join();
  }

  void Enqueue(std::function<void()> work) override { Push(std::move(work)); }

  Event Record() override {
    CpuEvent* const taken = events_->Take([] { return std::make_unique<CpuEvent>(); });
    taken->Reset();
    Event event(taken);
    Push(Reach{event});
    return event;
  }

  void Wait(const Event& event) override {
    if (!event.IsReached()) {
      Push(Await{event});
    }
  }

  void Synchronize() override { Synchronize(Record()); }

  void Synchronize(const Event& event) override {
    while (!error_.is_set() && !event.IsReached() && !Own(event).AwaitFor(kErrorPoll)) {
    }
    error_.RethrowIfSet();
  }

 private:
  void Push(Task task) ABSL_LOCKS_EXCLUDED(mu_) {
    bool wake = false;
    {
      const absl::MutexLock lock(&mu_);
      queue_.push_back(std::move(task));
      wake = idle_;
      idle_ = false;  // one wake-up suffices
    }
    if (wake) {
      changed_.Signal();
    }
  }

  void Run(const std::string& name) ABSL_LOCKS_EXCLUDED(mu_) {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    at::set_num_threads(1);
    // Disables autograd's graphs and version counters; a node that wraps autograd enables them for itself.
    const c10::InferenceMode no_gradients;
    std::vector<Task> batch;
    while (true) {
      {
        const absl::MutexLock lock(&mu_);
        while (queue_.empty()) {
          if (ending_) {
            return;
          }
          idle_ = true;
          changed_.Wait(&mu_);
          idle_ = false;
        }
        batch.swap(queue_);
      }
      for (Task& task : batch) {
        RunOne(task);
      }
      batch.clear();
    }
  }

  void RunOne(Task& task) {
    if (const auto* work = std::get_if<std::function<void()>>(&task)) {
      if (!error_.is_set()) {
        try {
          (*work)();
        } catch (...) {
          error_.Set(std::current_exception());
        }
      }
    } else if (const auto* reach = std::get_if<Reach>(&task)) {
      Own(reach->event).Reach();
    } else {
      Own(std::get<Await>(task).event).Await();
    }
    task = Reach{};  // frees what the task held in order, instead of at the end of the batch
  }

  StreamError error_;
  const std::shared_ptr<EventPool<CpuEvent>> events_ = std::make_shared<EventPool<CpuEvent>>();
  absl::Mutex mu_;
  absl::CondVar changed_;
  std::vector<Task> queue_ ABSL_GUARDED_BY(mu_);
  bool idle_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // declared last: it uses all members above
};

}  // namespace

std::unique_ptr<Stream> MakeCpuStream(const std::string& name, StreamError error) {
  return std::make_unique<CpuStream>(name, std::move(error));
}

}  // namespace tandem::device
