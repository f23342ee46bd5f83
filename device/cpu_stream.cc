#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <variant>

#include "device/stream.h"

namespace tandem::device {
namespace {

// Reached once, forever.
class Future final : public Event::State {
 public:
  bool IsReached() override {
    const std::lock_guard lock(mu_);
    return reached_;
  }
  void Reach() {
    {
      const std::lock_guard lock(mu_);
      reached_ = true;
    }
    changed_.notify_all();
  }
  void Await() {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [this] { return reached_; });
  }
  // False when the time is over.
  bool AwaitFor(std::chrono::milliseconds time) {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, time, [this] { return reached_; });
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  bool reached_ = false;
};

// How late a poison may be noticed by a host that waits for a stream.
constexpr std::chrono::milliseconds kPoisonPoll{5};

// Events are reached and waited for even when poisoned: only work is skipped, so nobody waits forever for
// a stream whose work failed.
struct Reach {
  std::shared_ptr<Future> event;
};
struct Await {
  std::shared_ptr<Future> event;
};
using Task = std::variant<std::function<void()>, Reach, Await>;

class CpuStream final : public Stream {
 public:
  CpuStream(const std::string& name, Poison poison)
      : poison_(std::move(poison)), thread_([this, name] { Run(name); }) {}

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

  Event Record() override { return Event(RecordFuture()); }

  void Wait(const Event& event) override {
    if (event.state() == nullptr || event.state()->IsReached()) return;
    Push(Await{std::static_pointer_cast<Future>(event.state())});
  }

  void Synchronize() override {
    const std::shared_ptr<Future> end = RecordFuture();
    while (!poison_.is_set() && !end->AwaitFor(kPoisonPoll)) {
    }
    poison_.RethrowIfSet();
  }

 private:
  std::shared_ptr<Future> RecordFuture() {
    auto future = std::make_shared<Future>();
    Push(Reach{future});
    return future;
  }

  void Push(Task task) {
    bool wake = false;
    {
      const std::lock_guard lock(mu_);
      queue_.push_back(std::move(task));
      wake = idle_;
      idle_ = false;  // one wake-up is enough
    }
    if (wake) changed_.notify_one();
  }

  void Run(const std::string& name) {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    at::set_num_threads(1);
    // Neither graphs nor version counters; a node that wraps autograd lifts this inside itself.
    const c10::InferenceMode no_gradients;
    std::deque<Task> batch;
    while (true) {
      {
        std::unique_lock lock(mu_);
        while (queue_.empty()) {
          if (ending_) return;
          idle_ = true;
          changed_.wait(lock);
          idle_ = false;
        }
        batch.swap(queue_);
      }
      for (Task& task : batch) RunOne(task);
      batch.clear();
    }
  }

  void RunOne(Task& task) {
    if (const auto* work = std::get_if<std::function<void()>>(&task)) {
      if (!poison_.is_set()) {
        try {
          (*work)();
        } catch (...) {
          poison_.Set(std::current_exception());
        }
      }
      task = Reach{};  // what the work held is let go in order, not at the end of the batch
    } else if (const auto* reach = std::get_if<Reach>(&task)) {
      reach->event->Reach();
    } else {
      std::get<Await>(task).event->Await();
    }
  }

  Poison poison_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<Task> queue_;  // guarded by mu_, like the two below
  bool idle_ = false;
  bool ending_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<Stream> MakeCpuStream(const std::string& name, Poison poison) {
  return std::make_unique<CpuStream>(name, std::move(poison));
}

std::unique_ptr<Stream> CpuStreams::MakeStream(const std::string& name, Poison poison) {
  return MakeCpuStream(name, std::move(poison));
}

}  // namespace tandem::device
