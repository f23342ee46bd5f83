// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace tandem::comm {

// The bytes of one collective on one rank, checked: what every implementation does first.
struct Collective {
  const char* operation = "";  // "AllGather"
  const char* input = nullptr;
  char* output = nullptr;  // null: nothing comes to this rank
  int64_t slice = 0;       // bytes that each rank sends to each rank
  bool scatters = false;   // every rank gets a different slice of the input
  // Bytes by rank, if ranks send different amounts; consecutive in input and output. Empty: `slice` for all.
  std::vector<int64_t> sends;
  std::vector<int64_t> receives;

  // This rank sends nothing and receives nothing.
  bool IsEmpty() const;
  int64_t BytesTo(int rank) const { return sends.empty() ? slice : sends[rank]; }
  int64_t BytesFrom(int rank) const { return receives.empty() ? slice : receives[rank]; }
  const char* InputFor(int rank) const;
  char* OutputOf(int rank) const;
};

// Throw std::invalid_argument, naming `group`, for sizes that do not fit.
Collective CheckAllGather(const std::string& group, int size, Memory input, Memory output);
Collective CheckAllToAll(const std::string& group, int size, Memory input, Memory output);
Collective CheckAllToAllRows(const std::string& group, int size, Memory input,
                             const std::vector<int64_t>& sends, Memory output,
                             const std::vector<int64_t>& receives, int64_t row_bytes);
// `output` is looked at on rank 0; elsewhere the result has none.
Collective CheckGather(const std::string& group, int rank, int size, Memory input, Memory output);
// Both ends call it "Transfer".
Collective CheckSend(const std::string& group, int rank, int size, Memory input);
Collective CheckReceive(const std::string& group, int rank, int size, Memory output);

// A group whose calls return when their collective is done, and for which any memory will do.
class HostCommunicator : public Communicator {
 public:
  HostCommunicator(std::string name, int rank, int size) : name_(std::move(name)), rank_(rank), size_(size) {}

  const std::string& name() const final { return name_; }
  int rank() const final { return rank_; }
  int size() const final { return size_; }
  void AllGather(Memory input, Memory output) final { Exchange(CheckAllGather(name_, size_, input, output)); }
  void AllToAll(Memory input, Memory output) final { Exchange(CheckAllToAll(name_, size_, input, output)); }
  void AllToAllRows(Memory input, const std::vector<int64_t>& sends, Memory output,
                    const std::vector<int64_t>& receives, int64_t row_bytes) final {
    Exchange(CheckAllToAllRows(name_, size_, input, sends, output, receives, row_bytes));
  }
  void Gather(Memory input, Memory output) final {
    Exchange(CheckGather(name_, rank_, size_, input, output));
  }
  void Send(Memory input) final { Exchange(CheckSend(name_, rank_, size_, input)); }
  void Receive(Memory output) final { Exchange(CheckReceive(name_, rank_, size_, output)); }
  absl::Status RegisterWindow(std::shared_ptr<const device::Region>) override { return absl::OkStatus(); }
  void CheckPending() final {}
  uint64_t num_collectives() const final { return num_collectives_; }
  uint64_t num_ended() const final { return num_ended_; }

 protected:
  // Updates num_collectives_ and num_ended_.
  virtual void Exchange(const Collective& call) = 0;

  const std::string name_;
  const int rank_;
  const int size_;
  std::atomic<uint64_t> num_collectives_{0};
  std::atomic<uint64_t> num_ended_{0};
};

}  // namespace tandem::comm
