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

// The bytes that one rank sends and receives in one collective. Every communicator makes it first, by a Check
// function.
struct Collective {
  const char* operation = "";  // "AllGather"
  const char* input = nullptr;
  char* output = nullptr;  // null: this rank receives nothing
  int64_t slice = 0;       // bytes that each rank sends to each other rank and to itself
  bool scatters = false;   // every rank receives a different slice of the input
  // Bytes by rank, consecutive in input and output, if the ranks send different amounts; otherwise empty.
  std::vector<int64_t> sends;
  std::vector<int64_t> receives;

  // Returns whether this rank sends nothing and receives nothing.
  bool IsEmpty() const;
  int64_t BytesTo(int rank) const { return sends.empty() ? slice : sends[rank]; }
  int64_t BytesFrom(int rank) const { return receives.empty() ? slice : receives[rank]; }
  const char* InputFor(int rank) const;
  char* OutputOf(int rank) const;
};

// The Check functions throw std::invalid_argument with the name of `group` if sizes do not fit.
Collective CheckAllGather(const std::string& group, int size, Memory input, Memory output);
Collective CheckAllToAll(const std::string& group, int size, Memory input, Memory output);
Collective CheckAllToAllRows(const std::string& group, int size, Memory input,
                             const std::vector<int64_t>& sends, Memory output,
                             const std::vector<int64_t>& receives, int64_t row_bytes);
// `output` counts on rank 0 only; on other ranks the result has no output.
Collective CheckGather(const std::string& group, int rank, int size, Memory input, Memory output);
// At both ends the operation is called "Transfer".
Collective CheckSend(const std::string& group, int rank, int size, Memory input);
Collective CheckReceive(const std::string& group, int rank, int size, Memory output);

// The base of communicators whose calls return when their collective is done, and that need no special
// memory.
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
  // Runs the collective; updates num_collectives_ and num_ended_.
  virtual void Exchange(const Collective& call) = 0;

  const std::string name_;
  const int rank_;
  const int size_;
  std::atomic<uint64_t> num_collectives_{0};
  std::atomic<uint64_t> num_ended_{0};
};

}  // namespace tandem::comm
