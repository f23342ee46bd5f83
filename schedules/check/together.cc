// SPDX-License-Identifier: Apache-2.0
#include "schedules/check/together.h"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/status_macros.h"
#include "schedules/check/violation.h"

namespace tandem::schedules {
namespace {

constexpr char kRuleFour[] = "agreed";

// Ends when other stages do something too.
bool Crosses(Opcode opcode) {
  return opcode == Opcode::kSend || opcode == Opcode::kReceive || opcode == Opcode::kGradientNorm;
}

// A rank of a stage, for all of them.
class StageRank {
 public:
  // Writes into `order` what ends.
  StageRank(int number, const Outline& outline, const Program& program, std::vector<Ended>& order)
      : number_(number),
        outline_(&outline),
        program_(&program),
        order_(&order),
        ended_(program.instructions.size(), false),
        queues_(program.streams.size()) {}

  const Outline& outline() const { return *outline_; }
  const Program& program() const { return *program_; }
  const Instruction& At(int i) const { return program_->instructions[i]; }
  bool IsDone() const { return num_ended_ == ended_.size(); }

  // Goes on until it needs another stage.
  void Run() {
    for (size_t before = num_ended_ + 1; before != num_ended_;) {
      before = num_ended_;
      Issue();
      for (const std::deque<int>& queue : queues_) {
        while (!queue.empty() && Starts(queue.front()) && !Crosses(At(queue.front()).opcode)) {
          End(queue.front());
        }
      }
    }
  }

  // What has started and has not ended.
  std::vector<int> Started() const {
    std::vector<int> started;
    for (const std::deque<int>& queue : queues_) {
      if (!queue.empty() && Starts(queue.front())) {
        started.push_back(queue.front());
      }
    }
    return started;
  }

  void End(int i) {
    queues_[At(i).stream].pop_front();
    ended_[i] = true;
    ++num_ended_;
    order_->push_back({number_, i});
  }

  std::string Text(int i) const {
    return absl::StrCat("stage ", outline_->stage, ": ", Describe(*outline_, *program_, i));
  }
  std::string Text() const {
    return IsDone() ? absl::StrCat("stage ", outline_->stage, ": the end")
                    : absl::StrJoin(Started(), "; ",
                                    [&](std::string* out, int i) { absl::StrAppend(out, Text(i)); });
  }

 private:
  bool Starts(int i) const {
    return std::all_of(At(i).waits.begin(), At(i).waits.end(),
                       [&](const Wait& wait) { return ended_[wait.instruction]; });
  }

  void Issue() {
    for (; next_ < static_cast<int>(ended_.size()); ++next_) {
      std::deque<int>& queue = queues_[At(next_).stream];
      const bool host = At(next_).opcode == Opcode::kHostWait;
      if (host ? !Starts(next_) : queue.size() == size_t{kAhead}) {
        return;
      }
      if (host) {
        ended_[next_] = true;
        ++num_ended_;
      } else {
        queue.push_back(next_);
      }
    }
  }

  int number_;
  const Outline* outline_;
  const Program* program_;
  std::vector<Ended>* order_;
  std::vector<bool> ended_;
  std::vector<std::deque<int>> queues_;  // by stream: issued, and not ended
  int next_ = 0;                         // to be issued
  size_t num_ended_ = 0;
};

// What a send or receive carries: the index-th value between two stages, or its gradient.
struct Carried {
  int from = -1;  // stages
  int to = -1;
  int index = -1;
  bool gradient = false;
  int microbatch = -1;
  int64_t bytes = 0;
  std::string group;
  std::string purpose;
  bool operator==(const Carried&) const = default;
};

// The stages of a send or receive; -1 where the value crosses no boundary.
Carried CarriedBy(const StageRank& rank, int i) {
  const Instruction& in = rank.At(i);
  const Program& program = rank.program();
  const Buffer& buffer = program.buffers[in.operands.front().buffer];
  const CommunicatorUse& use = program.communicators[in.communicator];
  Carried carried{.gradient = buffer.kind == BufferKind::kActivationGradient,
                  .microbatch = in.microbatch,
                  .bytes = buffer.bytes.bound,
                  .group = use.group,
                  .purpose = use.purpose};
  const bool sends = in.opcode == Opcode::kSend;
  const std::vector<Boundary>& boundaries =
      sends != carried.gradient ? rank.outline().sent : rank.outline().received;
  const auto boundary = std::find_if(boundaries.begin(), boundaries.end(),
                                     [&](const Boundary& b) { return b.value == in.target; });
  if (boundary == boundaries.end()) {
    return carried;
  }
  carried.index = static_cast<int>(std::count_if(
      boundaries.begin(), boundary, [&](const Boundary& b) { return b.stage == boundary->stage; }));
  carried.from = sends ? rank.outline().stage : boundary->stage;
  carried.to = sends ? boundary->stage : rank.outline().stage;
  return carried;
}

class Together {
 public:
  explicit Together(std::vector<StageRank> ranks) : ranks_(std::move(ranks)) {}

  absl::Status Run() {
    bool any = true;
    while (any) {
      any = false;
      std::vector<int> norms;  // that have started: the first of each stage
      for (StageRank& rank : ranks_) {
        rank.Run();
        const auto started = rank.Started();
        const auto norm = std::find_if(started.begin(), started.end(),
                                       [&rank](int i) { return rank.At(i).opcode == Opcode::kGradientNorm; });
        if (norm != started.end()) {
          norms.push_back(*norm);
        }
      }
      for (StageRank& rank : ranks_) {
        for (const int i : rank.Started()) {
          if (rank.At(i).opcode == Opcode::kSend) {
            TANDEM_RETURN_IF_ERROR(Send(rank, i, any));
          }
        }
      }
      if (norms.size() == ranks_.size()) {
        for (size_t s = 0; s < ranks_.size(); ++s) {
          ranks_[s].End(norms[s]);
        }
        any = true;
      }
    }
    if (std::all_of(ranks_.begin(), ranks_.end(), [](const StageRank& rank) { return rank.IsDone(); })) {
      return absl::OkStatus();
    }
    return Violation(kRuleFour, ranks_.front().program(),
                     absl::StrCat("the stages wait for each other forever at ",
                                  absl::StrJoin(ranks_, "; ", [](std::string* out, const StageRank& rank) {
                                    absl::StrAppend(out, rank.Text());
                                  })));
  }

 private:
  // Ends with the receive that has started at the other end of its communicator, if there is one.
  absl::Status Send(StageRank& rank, int send, bool& any) {
    const Carried sent = CarriedBy(rank, send);
    const auto peer = std::find_if(ranks_.begin(), ranks_.end(), [&](const StageRank& other) {
      return other.outline().stage == sent.to && &other != &rank;
    });
    if (peer == ranks_.end()) {
      return Violation(kRuleFour, rank.program(),
                       absl::StrCat(rank.Text(send), " meets no stage that is there"));
    }
    for (const int i : peer->Started()) {
      if (peer->At(i).opcode != Opcode::kReceive) {
        continue;
      }
      const Carried received = CarriedBy(*peer, i);
      if (received.group != sent.group || received.purpose != sent.purpose) {
        continue;
      }
      if (!(received == sent)) {
        return Violation(
            kRuleFour, rank.program(),
            absl::StrCat(rank.Text(send), " meets ", peer->Text(i), ", which does not carry the same"));
      }
      rank.End(send);
      peer->End(i);
      any = true;
      break;
    }
    return absl::OkStatus();
  }

  std::vector<StageRank> ranks_;
};

}  // namespace

absl::StatusOr<std::vector<Ended>> RunTogether(absl::Span<const Outline* const> outlines,
                                               absl::Span<const Program* const> programs) {
  std::vector<Ended> order;
  std::vector<StageRank> ranks;
  for (size_t s = 0; s < programs.size(); ++s) {
    ranks.emplace_back(static_cast<int>(s), *outlines[s], *programs[s], order);
  }
  TANDEM_RETURN_IF_ERROR(Together(std::move(ranks)).Run());
  return order;
}

}  // namespace tandem::schedules
