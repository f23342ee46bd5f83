#include "schedules/cross_rank.h"

#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "schedules/operands.h"
#include "schedules/ordering.h"
#include "schedules/text.h"

namespace tandem::schedules {
namespace {

constexpr int kNumCommunicators = 4;

using Collectives = std::array<std::vector<int>, kNumCommunicators>;

Collectives FindCollectives(const Program& program) {
  Collectives collectives;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    if (const Communicator communicator = program.instructions[i].communicator;
        communicator != Communicator::kNone) {
      collectives[static_cast<int>(communicator)].push_back(i);
    }
  }
  return collectives;
}

std::string RankText(char rank, const Outline& outline, const Program& program, int i) {
  return absl::StrCat("rank ", std::string(1, rank), ": ", DescribeInstruction(outline, program, i));
}

// One rank whose streams have each come to their next instruction.
class RankState {
 public:
  explicit RankState(const Program& program) : program_(program), done_(program.instructions.size(), false) {
    for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
      queues_[static_cast<int>(program.instructions[i].stream)].push_back(i);
    }
  }

  // The next instruction of the stream if all it waits for is done, else -1.
  int Ready(int stream) const {
    const int i = Head(stream);
    if (i >= 0) {
      for (const int wait : program_.instructions[i].waits) {
        if (!done_[wait]) {
          return -1;
        }
      }
    }
    return i;
  }

  int Head(int stream) const {
    return next_[stream] < queues_[stream].size() ? queues_[stream][next_[stream]] : -1;
  }

  void Finish(int stream) { done_[queues_[stream][next_[stream]++]] = true; }

  // Runs what needs no other rank; true if anything ran.
  bool RunAlone() {
    bool any = false;
    for (int stream = 0; stream < kNumStreams; ++stream) {
      for (int i = Ready(stream); i >= 0 && program_.instructions[i].communicator == Communicator::kNone;
           i = Ready(stream)) {
        Finish(stream);
        any = true;
      }
    }
    return any;
  }

  // The stream whose next instruction is ready and a collective of the communicator, or -1.
  int StreamAt(Communicator communicator) const {
    for (int stream = 0; stream < kNumStreams; ++stream) {
      const int i = Ready(stream);
      if (i >= 0 && program_.instructions[i].communicator == communicator) {
        return stream;
      }
    }
    return -1;
  }

  int FirstUnfinished() const {
    int first = -1;
    for (int stream = 0; stream < kNumStreams; ++stream) {
      const int i = Head(stream);
      first = first < 0 || (i >= 0 && i < first) ? i : first;
    }
    return first;
  }

 private:
  const Program& program_;
  std::vector<bool> done_;
  std::array<std::vector<int>, kNumStreams> queues_;
  std::array<size_t, kNumStreams> next_{};
};

absl::Status CheckProgress(const Outline& outline, const Program& a, const Program& b) {
  RankState state_a(a);
  RankState state_b(b);
  bool any = true;
  while (any) {
    any = state_a.RunAlone();
    any |= state_b.RunAlone();
    for (int communicator = 1; communicator < kNumCommunicators; ++communicator) {
      const int stream_a = state_a.StreamAt(static_cast<Communicator>(communicator));
      const int stream_b = state_b.StreamAt(static_cast<Communicator>(communicator));
      if (stream_a >= 0 && stream_b >= 0) {
        state_a.Finish(stream_a);
        state_b.Finish(stream_b);
        any = true;
      }
    }
  }
  const int left_a = state_a.FirstUnfinished();
  const int left_b = state_b.FirstUnfinished();
  if (left_a < 0 && left_b < 0) {
    return absl::OkStatus();
  }
  const auto text = [&](char rank, const Program& program, int i) {
    return i < 0 ? absl::StrCat("rank ", std::string(1, rank), " has ended")
                 : RankText(rank, outline, program, i);
  };
  return absl::InvalidArgumentError(absl::StrCat(
      "the ranks wait for each other for ever: ", text('a', a, left_a), "; ", text('b', b, left_b)));
}

}  // namespace

absl::Status CheckRanks(const Outline& outline, const Program& a, const Program& b) {
  const Collectives of_a = FindCollectives(a);
  const Collectives of_b = FindCollectives(b);
  for (int communicator = 1; communicator < kNumCommunicators; ++communicator) {
    const std::vector<int>& list_a = of_a[communicator];
    const std::vector<int>& list_b = of_b[communicator];
    const std::string name =
        absl::StrCat("communicator ", ToText(static_cast<Communicator>(communicator)), ": ");
    for (size_t i = 0; i < std::min(list_a.size(), list_b.size()); ++i) {
      const Instruction& in_a = a.instructions[list_a[i]];
      const Instruction& in_b = b.instructions[list_b[i]];
      if (in_a.opcode != in_b.opcode || in_a.target != in_b.target || in_a.microbatch != in_b.microbatch) {
        return absl::InvalidArgumentError(absl::StrCat(name, RankText('a', outline, a, list_a[i]), " meets ",
                                                       RankText('b', outline, b, list_b[i])));
      }
    }
    if (list_a.size() != list_b.size()) {
      const bool longer_a = list_a.size() > list_b.size();
      const size_t i = std::min(list_a.size(), list_b.size());
      return absl::InvalidArgumentError(absl::StrCat(
          name, longer_a ? RankText('a', outline, a, list_a[i]) : RankText('b', outline, b, list_b[i]),
          " meets nothing"));
    }
  }
  return CheckProgress(outline, a, b);
}

}  // namespace tandem::schedules
