// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <variant>
#include <vector>

#include "device/event_pool.h"
#include "device/stream.h"

namespace tandem::device {
namespace {

class CpuEvent final : public PooledEvent<CpuEvent> {
 public:
  bool IsReached() override { return reached_; }

  void Reset() { reached_ = false; }

  void Reach() {
    {
      const std::lock_guard lock(mu_);
      reached_ = true;
    }
    changed_.notify_all();
  }
  void Await() {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [this] { return reached_.load(); });
  }
  // False when the time is over.
  bool AwaitFor(std::chrono::milliseconds time) {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, time, [this] { return reached_.load(); });
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::atomic<bool> reached_ = false;  // changed to true under mu_
};

CpuEvent& Own(const Event& event) { return static_cast<CpuEvent&>(*event.state()); }

// How late an error may be noticed by a host that waits for a stream.
constexpr std::chrono::milliseconds kErrorPoll{5};

// Events are reached and waited for after an error too: only work is skipped, so nobody waits forever for
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

  // Runs what is queued first.
  ~CpuStream() override {
    {
      const std::lock_guard lock(mu_);
      ending_ = true;
    }
    changed_.notify_one();
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
  void Push(Task task) {
    bool wake = false;
    {
      const std::lock_guard lock(mu_);
      queue_.push_back(std::move(task));
      wake = idle_;
      idle_ = false;  // one wake-up is enough
    }
    if (wake) {
      changed_.notify_one();
    }
  }

  void Run(const std::string& name) {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    at::set_num_threads(1);
    // Neither graphs nor version counters; a node that wraps autograd lifts this inside itself.
    const c10::InferenceMode no_gradients;
    std::vector<Task> batch;
    while (true) {
      {
        std::unique_lock lock(mu_);
        while (queue_.empty()) {
          if (ending_) {
            return;
          }
          idle_ = true;
          changed_.wait(lock);
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
    task = Reach{};  // what it held is let go in order, not at the end of the batch
  }

  StreamError error_;
  const std::shared_ptr<EventPool<CpuEvent>> events_ = std::make_shared<EventPool<CpuEvent>>();
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<Task> queue_;  // guarded by mu_, like the two below
  bool idle_ = false;
  bool ending_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<Stream> MakeCpuStream(const std::string& name, StreamError error) {
  return std::make_unique<CpuStream>(name, std::move(error));
}

std::unique_ptr<Stream> CpuStreams::MakeStream(const std::string& name, StreamError error) {
  return MakeCpuStream(name, std::move(error));
}

}  // namespace tandem::device
