#include "trainer/checkpointing.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "comm/communicator.h"
#include "platform/log.h"
#include "platform/random.h"
#include "trainer/failure.h"

namespace tandem::trainer {
namespace {

// Rank 0's text on every rank; at most kMaxText bytes.
std::string FromRankZero(comm::Communicator& comm, const std::string& text) {
  constexpr int64_t kMaxText = 8192;
  if (text.size() >= kMaxText) {
    throw UserError("checkpoint: the path is too long: " + text);
  }
  const at::Tensor mine = at::zeros({kMaxText}, at::kByte);
  at::Tensor all = at::empty({comm.size() * kMaxText}, at::kByte);
  std::memcpy(mine.mutable_data_ptr(), text.data(), text.size());
  comm.AllGather(mine, all);
  return static_cast<const char*>(all.const_data_ptr());
}

// Every rank's number on every rank.
std::vector<int64_t> FromAll(comm::Communicator& comm, int64_t number) {
  const at::Tensor mine = at::empty({1}, at::kLong);
  at::Tensor all = at::empty({comm.size()}, at::kLong);
  *mine.mutable_data_ptr<int64_t>() = number;
  comm.AllGather(mine, all);
  const int64_t* numbers = all.const_data_ptr<int64_t>();
  return {numbers, numbers + comm.size()};
}

}  // namespace

StateArrays::StateArrays(const std::vector<fsdp::ShardedUnit>& units) {
  device_.reserve(units.size() * 3);
  host_.resize(units.size() * 3);
  for (const fsdp::ShardedUnit& unit : units) {
    const std::pair<const char*, at::Tensor> arrays[] = {
        {"/weights", unit.weights()}, {"/exp_avg", unit.exp_avg()}, {"/exp_avg_sq", unit.exp_avg_sq()}};
    for (const auto& [suffix, tensor] : arrays) {
      shards_.push_back({.name = unit.name() + suffix,
                         .elements = unit.layout().elements,
                         .begin = unit.owned().begin,
                         .data = &host_[device_.size()]});
      device_.push_back(tensor);
    }
  }
}

const std::vector<checkpoint::Shard>& StateArrays::shards() {
  for (size_t i = 0; i < device_.size(); ++i) {
    if (!host_[i].defined()) {
      host_[i] = device_[i].is_cpu() ? device_[i]
                                     : at::empty_like(device_[i], device_[i].options().device(at::kCPU));
    }
  }
  return shards_;
}

void StateArrays::FromDevice() {
  shards();
  for (size_t i = 0; i < device_.size(); ++i) {
    if (!device_[i].is_cpu()) host_[i].copy_(device_[i]);
  }
}

void StateArrays::ToDevice() {
  for (size_t i = 0; i < device_.size(); ++i) {
    if (!device_[i].is_cpu()) device_[i].copy_(host_[i]);
  }
}

StateArrays::~StateArrays() = default;

checkpoint::Found ChooseCheckpoint(platform::Files& files, comm::Communicator& comm,
                                   const std::string& directory, const std::string& resume,
                                   const std::string& resume_from, const std::string& layout_digest) {
  std::string path = resume_from;
  // An error of rank 0 must reach the ranks that wait for its answer: as a text that is no path.
  constexpr char kFailed = '\1';
  if (path.empty() && resume == "newest") {
    if (comm.rank() == 0) {
      try {
        path = checkpoint::FindNewest(files, directory,
                                      [](const std::string& skipped, const std::string& reason) {
                                        platform::Log(platform::LogLevel::kWarning,
                                                      "a checkpoint that does not verify is passed over",
                                                      {{"path", skipped}, {"reason", reason}});
                                      })
                   .path;
      } catch (const std::exception& error) {
        path = kFailed + std::string(error.what()).substr(0, 4096);
      }
    }
    path = FromRankZero(comm, path);
    if (!path.empty() && path[0] == kFailed) {
      throw checkpoint::CheckpointError(path.substr(1));
    }
  } else if (path.empty()) {
    path = resume;
  }
  if (path.empty()) {
    return {};
  }
  checkpoint::Found found{.path = path, .info = checkpoint::ReadInfo(files, path)};
  if (found.info.layout_digest != layout_digest) {
    throw UserError(
        absl::StrCat("checkpoint.resume: ", path,
                     " is of another model (its tensors differ in name, shape or type); resume with the "
                     "model it was trained with, or start in another folder"));
  }
  return found;
}

void CheckSameFolder(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                     int attempt) {
  if (comm.size() == 1) {
    return;
  }
  const std::string path = absl::StrCat(directory, "/.same-folder.", attempt);
  const std::string token = FromRankZero(comm, platform::SystemRandom().HexId(32));
  absl::Status written;
  if (comm.rank() == 0) {
    written = files.CreateFolders(directory);
    if (written.ok()) {
      written = files.Write(path, token);
    }
  }
  if (FromAll(comm, written.ok() ? 0 : 1).front() != 0) {
    throw UserError(absl::StrCat("checkpoint.directory: rank 0 cannot write there: ",
                                 FromRankZero(comm, std::string(written.message()))));
  }
  constexpr auto kPatience = std::chrono::seconds(5);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  const auto seen = [&] {
    const absl::StatusOr<std::string> content = files.Read(path);
    return content.ok() && *content == token;
  };
  bool same = seen();
  while (!same && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(50));  // network file systems are slow to show a name
    same = seen();
  }
  const std::vector<int64_t> blind = FromAll(comm, same ? 0 : 1);
  if (comm.rank() == 0) {
    const absl::Status removed = files.RemoveAll(path);
    if (!removed.ok()) {
      platform::Log(platform::LogLevel::kWarning, "cannot remove a file",
                    {{"error", std::string(removed.message())}});
    }
  }
  std::vector<int> ranks;
  for (size_t rank = 0; rank < blind.size(); ++rank) {
    if (blind[rank] != 0) {
      ranks.push_back(static_cast<int>(rank));
    }
  }
  if (!ranks.empty()) {
    throw UserError(absl::StrCat("checkpoint.directory: ", directory, " is not the same folder on rank ",
                                 absl::StrJoin(ranks, ", "),
                                 " as on rank 0; use one that all workers share"));
  }
}

}  // namespace tandem::trainer
