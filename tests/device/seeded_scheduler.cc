// SPDX-License-Identifier: Apache-2.0
#include "tests/device/seeded_scheduler.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <list>
#include <mutex>
#include <random>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace tandem::device {
namespace {

class SeededEvent final : public Event::State {
 public:
  bool IsReached() override { return reached_; }
  void Reach() { reached_ = true; }

 private:
  void Recycle() override { delete this; }

  std::atomic<bool> reached_ = false;
};

struct Reach {
  Event event;
};
struct Await {
  Event event;
};
using Task = std::variant<std::function<void()>, Reach, Await>;

// A thread that runs pieces while it has the baton, or keeps the stack of one that waits.
struct Carrier {
  std::condition_variable wake;
  bool has_baton = false;
  std::thread thread;
};

// Everything is guarded by the scheduler's mutex.
struct Lane {
  int rank = 0;
  std::string name;
  StreamError error;
  std::deque<Task> issued;                       // not flushed
  std::deque<Task> queue;                        // of the round, and what former rounds left
  uint64_t precedence = 0;                       // the ready lane with the highest one runs
  Carrier* waiting = nullptr;                    // has the stack of this lane's piece, which is in WaitUntil
  const std::function<bool()>* ready = nullptr;  // what it waits for
  std::string stuck;                             // why that will never be
};

}  // namespace

class SeededScheduler::Impl {
 public:
  Impl(int ranks, uint64_t seed);

  ~Impl() {
    std::unique_lock lock(mu_);
    idle_.wait(lock, [this] { return !running_; });
    ending_ = true;
    for (Carrier& carrier : carriers_) {
      carrier.wake.notify_one();
    }
    lock.unlock();
    for (Carrier& carrier : carriers_) {
      carrier.thread.join();
    }
  }

  StreamFactory& streams(int rank) { return *ranks_.at(static_cast<size_t>(rank)).factory; }

  void WaitUntil(const std::function<bool()>& ready) {
    std::unique_lock lock(mu_);
    Lane& lane = *current_lane_;
    Carrier& carrier = *current_carrier_;
    lane.waiting = &carrier;
    lane.ready = &ready;
    Pass(carrier, *IdleCarrier());
    carrier.wake.wait(lock, [&] { return carrier.has_baton; });
    lane.waiting = nullptr;
    lane.ready = nullptr;
    current_lane_ = &lane;
    current_carrier_ = &carrier;
    if (!lane.stuck.empty()) {
      throw std::runtime_error(std::exchange(lane.stuck, {}));
    }
  }

  int64_t num_pieces() const {
    const std::lock_guard lock(mu_);
    return num_pieces_;
  }

  uint64_t order_digest() const {
    const std::lock_guard lock(mu_);
    return order_digest_;
  }

 private:
  class Factory;
  class LaneStream;

  struct RankState {
    std::unique_ptr<StreamFactory> factory;
    int lanes = 0;
    bool flushed = false;
    bool gone = false;
    // What its host waits for: an event, or everything; of the round, and of the next one.
    Event awaited;
    Event next_awaited;
    bool awaits_all = false;
    bool next_awaits_all = false;
  };

  // Requires mu_, like all below that do not say otherwise.
  Lane& AddLane(int rank, const std::string& name, StreamError error) {
    ++ranks_[static_cast<size_t>(rank)].lanes;
    // In rank order whichever host comes first: the draws must mean the same in every run.
    const auto behind = std::find_if(lanes_.begin(), lanes_.end(),
                                     [rank](const std::unique_ptr<Lane>& lane) { return lane->rank > rank; });
    auto lane = std::make_unique<Lane>();
    lane->rank = rank;
    lane->name = name;
    lane->error = std::move(error);
    return **lanes_.insert(behind, std::move(lane));
  }

  void RemoveLane(Lane& lane) {
    RankState& rank = ranks_[static_cast<size_t>(lane.rank)];
    rank.gone = --rank.lanes == 0;
    std::erase_if(lanes_, [&lane](const std::unique_ptr<Lane>& each) { return each.get() == &lane; });
    StartRoundIfComplete();
  }

  void Flush(int rank, const Event& awaited, bool awaits_all) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    state.flushed = true;
    state.next_awaited = awaited;
    state.next_awaits_all = awaits_all;
    StartRoundIfComplete();
  }

  void StartRoundIfComplete() {
    if (running_) {
      return;
    }
    bool any = false;
    for (const RankState& rank : ranks_) {
      if (!rank.gone && !rank.flushed) {
        return;
      }
      any = any || (!rank.gone && rank.flushed);
    }
    if (!any) {
      return;
    }
    for (RankState& rank : ranks_) {
      rank.flushed = false;
      rank.awaited = std::exchange(rank.next_awaited, Event());
      rank.awaits_all = std::exchange(rank.next_awaits_all, false);
    }
    for (const auto& lane : lanes_) {
      std::move(lane->issued.begin(), lane->issued.end(), std::back_inserter(lane->queue));
      lane->issued.clear();
    }
    ++rounds_;
    constexpr int kPeriods[] = {1, 4, 32, 256};
    period_ = kPeriods[random_() % std::size(kPeriods)];
    DrawPrecedences();
    StartCarrier();
  }

  void StartCarrier() {
    running_ = true;
    Carrier& carrier = *IdleCarrier();
    carrier.has_baton = true;
    carrier.wake.notify_one();
  }

  // Nobody waits for what is left.
  bool RoundIsOver() const {
    if (ending_lane_ != nullptr) {
      return ending_lane_->waiting == nullptr;
    }
    return std::all_of(ranks_.begin(), ranks_.end(), [](const RankState& rank) {
      return rank.gone || (!rank.awaits_all && rank.awaited.IsReached());
    });
  }

  // Drops what the lane has not started, and ends the piece that waits in the middle.
  void EndLane(Lane& lane, std::unique_lock<std::mutex>& lock) {
    lane.issued.clear();
    idle_.wait(lock, [this] { return !running_; });
    lane.queue.clear();
    if (lane.waiting == nullptr) {
      return;
    }
    lane.stuck = "its stream is gone";
    ending_lane_ = &lane;
    StartCarrier();
    idle_.wait(lock, [this] { return !running_; });
    ending_lane_ = nullptr;
  }

  void DrawPrecedences() {
    for (const auto& lane : lanes_) {
      lane->precedence = random_();
    }
  }

  Carrier* IdleCarrier() {
    if (idle_carriers_.empty()) {
      Carrier& carrier = carriers_.emplace_back();
      carrier.thread = std::thread([this, &carrier] { Carry(carrier); });
      return &carrier;
    }
    Carrier* const carrier = idle_carriers_.back();
    idle_carriers_.pop_back();
    return carrier;
  }

  static void Pass(Carrier& from, Carrier& to) {
    from.has_baton = false;
    to.has_baton = true;
    to.wake.notify_one();
  }

  // A carrier's thread. Without mu_.
  void Carry(Carrier& carrier) {
    at::set_num_threads(1);
    const c10::InferenceMode no_gradients;
    std::unique_lock lock(mu_);
    while (true) {
      carrier.wake.wait(lock, [&] { return carrier.has_baton || ending_; });
      if (!carrier.has_baton) {
        return;
      }
      RunPieces(carrier, lock);
      idle_carriers_.push_back(&carrier);
    }
  }

  // Until the round is over, or a piece goes on that waits on another carrier.
  void RunPieces(Carrier& carrier, std::unique_lock<std::mutex>& lock) {
    while (true) {
      Lane* const lane = Draw();
      if (lane == nullptr) {
        if (!RoundIsOver() && BreakDeadlock()) {
          continue;
        }
        carrier.has_baton = false;
        running_ = false;
        idle_.notify_all();
        StartRoundIfComplete();
        return;
      }
      ++num_pieces_;
      const auto place =
          std::find_if(lanes_.begin(), lanes_.end(),
                       [lane](const std::unique_ptr<Lane>& each) { return each.get() == lane; });
      order_digest_ = (order_digest_ ^ static_cast<uint64_t>(place - lanes_.begin())) * 0x100000001b3u;
      if (lane->waiting != nullptr) {
        Pass(carrier, *lane->waiting);
        return;
      }
      {
        const auto work = std::get<std::function<void()>>(std::move(lane->queue.front()));
        lane->queue.pop_front();
        current_lane_ = lane;
        current_carrier_ = &carrier;
        lock.unlock();
        if (!lane->error.is_set()) {
          try {
            work();
          } catch (...) {
            lane->error.Set(std::current_exception());
          }
        }
      }
      lock.lock();
      idle_.notify_all();
    }
  }

  // The next lane to run a piece of; nullptr: none is ready.
  Lane* Draw() {
    if (random_() % static_cast<uint64_t>(period_) == 0) {
      DrawPrecedences();
    }
    while (true) {
      bool moved = false;
      Lane* best = nullptr;
      for (const auto& lane : lanes_) {
        moved = PassEvents(*lane) || moved;
        const bool ready = lane->waiting != nullptr
                               ? !lane->stuck.empty() || (*lane->ready)()
                               : !lane->queue.empty() && lane->queue.front().index() == 0;
        if (ready && (best == nullptr || lane->precedence > best->precedence)) {
          best = lane.get();
        }
      }
      if (moved) {
        continue;  // an event may have made an earlier lane ready
      }
      if (RoundIsOver()) {
        return nullptr;
      }
      return ending_lane_ != nullptr ? ending_lane_ : best;
    }
  }

  // Reaches and passes the events at the head of the lane. True: there was one.
  static bool PassEvents(Lane& lane) {
    bool moved = false;
    while (lane.waiting == nullptr && !lane.queue.empty()) {
      Task& head = lane.queue.front();
      if (const auto* reach = std::get_if<Reach>(&head)) {
        static_cast<SeededEvent&>(*reach->event.state()).Reach();
      } else if (const auto* await = std::get_if<Await>(&head);
                 await == nullptr || !await->event.IsReached()) {
        break;
      }
      lane.queue.pop_front();
      moved = true;
    }
    return moved;
  }

  // Called when nothing is ready. False: nothing is left either. Otherwise every lane that waits gets an
  // error.
  bool BreakDeadlock() {
    std::ostringstream text;
    text << "no stream can go on:";
    bool any = false;
    for (const auto& lane : lanes_) {
      if (lane->waiting == nullptr && lane->queue.empty()) {
        continue;
      }
      text << (any ? ", " : " ") << "rank " << lane->rank << " " << lane->name
           << (lane->waiting != nullptr ? " waits for its peers" : " waits for another stream");
      any = true;
    }
    for (const auto& lane : lanes_) {
      if (lane->waiting != nullptr) {
        lane->stuck = text.str();
      } else if (!lane->queue.empty()) {
        lane->error.Set(std::make_exception_ptr(std::runtime_error(text.str())));
        lane->queue.pop_front();  // its wait
      }
    }
    return any;
  }

  mutable std::mutex mu_;
  std::condition_variable idle_;  // a piece ended, or a round
  std::mt19937_64 random_;
  std::vector<RankState> ranks_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // in rank order
  std::list<Carrier> carriers_;
  std::vector<Carrier*> idle_carriers_;
  bool running_ = false;  // a round
  int64_t rounds_ = 0;    // that have started
  Lane* ending_lane_ = nullptr;
  bool ending_ = false;
  int period_ = 1;  // precedences are drawn again once in so many pieces
  int64_t num_pieces_ = 0;
  uint64_t order_digest_ = 0xcbf29ce484222325u;
  // Of the carrier that has the baton.
  Lane* current_lane_ = nullptr;
  Carrier* current_carrier_ = nullptr;
};

class SeededScheduler::Impl::LaneStream final : public Stream {
 public:
  LaneStream(Impl& impl, int rank, const std::string& name, const StreamError& error)
      : impl_(impl), error_(error), lane_([&]() -> Lane& {
          const std::lock_guard lock(impl.mu_);
          return impl.AddLane(rank, name, error);
        }()) {}

  ~LaneStream() override {
    std::unique_lock lock(impl_.mu_);
    impl_.EndLane(lane_, lock);
    impl_.RemoveLane(lane_);
  }

  void Enqueue(std::function<void()> work) override { Push(std::move(work)); }

  Event Record() override {
    const Event event(new SeededEvent);
    Push(Reach{event});
    return event;
  }

  void Wait(const Event& event) override {
    if (event.state() != nullptr) {
      Push(Await{event});
    }
  }

  void Synchronize() override { AwaitRound(Record(), /*all=*/true); }
  void Synchronize(const Event& event) override { AwaitRound(event, /*all=*/false); }

 private:
  void AwaitRound(const Event& event, bool all) {
    {
      std::unique_lock lock(impl_.mu_);
      const int64_t round = impl_.rounds_;
      impl_.Flush(lane_.rank, event, all);
      // Hosts go on between rounds only: what they do next must not depend on when they wake. An event that
      // was reached before takes a round too, since another rank's may not have been.
      impl_.idle_.wait(lock, [&] { return !impl_.running_ && impl_.rounds_ > round && event.IsReached(); });
    }
    error_.RethrowIfSet();
  }

  void Push(Task task) {
    const std::lock_guard lock(impl_.mu_);
    lane_.issued.push_back(std::move(task));
  }

  Impl& impl_;
  const StreamError error_;
  Lane& lane_;
};

class SeededScheduler::Impl::Factory final : public StreamFactory {
 public:
  Factory(Impl& impl, int rank) : impl_(impl), rank_(rank) {}

  std::unique_ptr<Stream> MakeStream(const std::string& name, StreamError error) override {
    return std::make_unique<LaneStream>(impl_, rank_, name, error);
  }

 private:
  Impl& impl_;
  const int rank_;
};

SeededScheduler::Impl::Impl(int ranks, uint64_t seed) : random_(seed), ranks_(static_cast<size_t>(ranks)) {
  if (ranks <= 0) {
    throw std::invalid_argument("a scheduler of " + std::to_string(ranks) + " ranks");
  }
  for (int rank = 0; rank < ranks; ++rank) {
    ranks_[static_cast<size_t>(rank)].factory = std::make_unique<Factory>(*this, rank);
  }
}

SeededScheduler::SeededScheduler(int ranks, uint64_t seed) : impl_(std::make_unique<Impl>(ranks, seed)) {}
SeededScheduler::~SeededScheduler() = default;

StreamFactory& SeededScheduler::streams(int rank) { return impl_->streams(rank); }
void SeededScheduler::WaitUntil(const std::function<bool()>& ready) { impl_->WaitUntil(ready); }
int64_t SeededScheduler::num_pieces() const { return impl_->num_pieces(); }
uint64_t SeededScheduler::order_digest() const { return impl_->order_digest(); }

}  // namespace tandem::device
