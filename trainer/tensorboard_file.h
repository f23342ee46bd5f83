// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "checkpoint/owner.h"
#include "platform/clock.h"
#include "platform/files.h"
#include "tandem/v1/report.pb.h"
#include "trainer/followed_file.h"

namespace tandem::trainer {

// One record of an event file: length, masked CRC-32C of it, data, masked CRC-32C of that, little-endian.
std::string TensorBoardRecord(std::string_view data);

// The events of this start of a job in `DIRECTORY/tensorboard`, for `tensorboard --logdir DIRECTORY`: loss,
// gradient norm, learning rate, speed and scalars of every step, under the tags that torchtitan uses. Every
// start writes a file of its own, which makes TensorBoard drop the steps of older files that come again. It
// reads files in the order of their names, which begin with a time: where this machine's clock is behind that
// of an earlier start, name and events have times behind that start's.
// Written by rank 0, from one thread.
// Where the file is removed or renamed while the job runs, the next events go to one of a new name, when
// followed_file.h says.
class TensorBoardFile {
 public:
  // Throws as ThrowIfUnwritable (directory_error.h), naming the folder, where it cannot be written, or the
  // directory is not there.
  // first_step: the first that comes. `files` and `clock` outlive it.
  TensorBoardFile(platform::Files& files, const platform::Clock& clock, const std::string& directory,
                  checkpoint::Owner self, int64_t first_step);
  TensorBoardFile(const TensorBoardFile&) = delete;
  TensorBoardFile& operator=(const TensorBoardFile&) = delete;

  // Whole records or nothing. A failure is logged once and training goes on.
  void Append(const v1::StepReport& report);

 private:
  absl::Time Now() const { return clock_.Now() + ahead_; }

  const platform::Clock& clock_;
  absl::Duration ahead_;  // of the clock, so that no file has the time of an older one
  FollowedFile file_;
};

}  // namespace tandem::trainer
