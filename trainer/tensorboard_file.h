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

  // Whole records or nothing (append_whole.h). A failure is logged once, and training goes on. Nothing more
  // is written to a file in which a part of one stays: what follows could not be read.
  void Append(const v1::StepReport& report);

 private:
  absl::Status Open();
  void FollowPath();
  void Write(const std::string& text);
  void Complain(const std::string& error);

  platform::Files& files_;
  const platform::Clock& clock_;
  const std::string directory_;
  const checkpoint::Owner self_;
  const int64_t resumed_step_;
  std::string path_;
  platform::Descriptor file_;
  bool torn_ = false;  // a part of a record stays in the file
  bool complained_ = false;
};

}  // namespace tandem::trainer
