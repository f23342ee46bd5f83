// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "checkpoint/owner.h"
#include "platform/clock.h"
#include "platform/files.h"
#include "platform/regular_file.h"
#include "tandem/v1/report.pb.h"

namespace tandem::trainer {

// One record of an event file: length, masked CRC-32C of it, data, masked CRC-32C of that, little-endian.
std::string TensorBoardRecord(std::string_view data);

// The events of this start of a job in `DIRECTORY/tensorboard`, for `tensorboard --logdir DIRECTORY`: loss,
// gradient norm, learning rate, speed and scalars of every step, under the tags that torchtitan uses. Every
// start writes a file of its own, which makes TensorBoard drop the steps of older files that come again.
// Written by rank 0, from one thread.
//
// Where the file is removed or renamed while the job runs, alone or with a folder above it, the next events
// go to a new one, once the directory is the job's (metrics_file.h).
class TensorBoardFile {
 public:
  // Throws UserError, naming the folder, where it cannot be written, or the directory is not there.
  // `files` and `clock` outlive it.
  TensorBoardFile(platform::Files& files, const platform::Clock& clock, const std::string& directory,
                  checkpoint::Owner self, int64_t resumed_step);

  // One write(2), of whole records or nothing. A failure is logged once, nothing more is written to the file
  // then, and training goes on.
  void Append(const v1::StepReport& report);

 private:
  absl::Status Open();
  void FollowPath();
  void Write(const std::string& text);
  void Fail(const std::string& error);

  platform::Files& files_;
  const platform::Clock& clock_;
  const std::string directory_;
  const checkpoint::Owner self_;
  const int64_t resumed_step_;
  std::string path_;
  platform::Descriptor file_;
  bool failed_ = false;
};

}  // namespace tandem::trainer
