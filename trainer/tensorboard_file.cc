// SPDX-License-Identifier: Apache-2.0
#include "trainer/tensorboard_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "platform/host.h"
#include "platform/log.h"
#include "platform/status_macros.h"
#include "trainer/append_whole.h"
#include "trainer/failure.h"
#include "trainer/tensorboard.pb.h"

namespace tandem::trainer {
namespace {

constexpr int32_t kStart = 1;  // SessionLog.SessionStatus

// Castagnoli's, bit by bit over a table of bytes; nothing that is linked here has one.
uint32_t Crc32c(std::string_view data) {
  static const auto table = [] {
    std::array<uint32_t, 256> out{};
    for (uint32_t i = 0; i < out.size(); ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) {
        value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0);
      }
      out[i] = value;
    }
    return out;
  }();
  uint32_t crc = 0xffffffffu;
  for (const char c : data) {
    crc = table[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  }
  return ~crc;
}

uint32_t MaskedCrc(std::string_view data) {
  const uint32_t crc = Crc32c(data);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <typename Integer>
void AppendLittleEndian(Integer value, std::string& out) {
  for (size_t i = 0; i < sizeof(value); ++i) {
    out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  }
}

std::string TagOf(const std::string& scalar) {
  return scalar == "validation_loss"           ? "validation_metrics/global_avg_loss"
         : scalar == "tokens_per_second"       ? "throughput(tps)"
         : scalar == "model_flops_utilization" ? "mfu(%)"
                                               : absl::StrCat("scalars/", scalar);
}

void ThrowIfNotOk(const absl::Status& status) {
  if (!status.ok()) {
    throw UserError(absl::StrCat("checkpoint.directory: cannot keep TensorBoard's events there: ",
                                 status.message(), "; correct that, or use another folder"));
  }
}

}  // namespace

std::string TensorBoardRecord(std::string_view data) {
  std::string out;
  AppendLittleEndian(uint64_t{data.size()}, out);
  AppendLittleEndian(MaskedCrc(out), out);
  out.append(data);
  AppendLittleEndian(MaskedCrc(data), out);
  return out;
}

TensorBoardFile::TensorBoardFile(platform::Files& files, const platform::Clock& clock,
                                 const std::string& directory, checkpoint::Owner self, int64_t resumed_step)
    : files_(files),
      clock_(clock),
      directory_(directory),
      self_(std::move(self)),
      resumed_step_(resumed_step) {
  ThrowIfNotOk(Open());
  TensorBoardEvent start;
  start.set_wall_time(absl::ToDoubleSeconds(clock.Now() - absl::UnixEpoch()));
  start.set_step(resumed_step > 0 ? resumed_step + 1 : 0);
  start.mutable_session_log()->set_status(kStart);
  Write(TensorBoardRecord(start.SerializeAsString()));
}

absl::Status TensorBoardFile::Open() {
  const std::string folder = directory_ + "/tensorboard";
  TANDEM_RETURN_IF_ERROR(files_.CreateFolder(folder));
  // TensorBoard reads files in the order of their names.
  path_ = absl::StrFormat("%s/events.out.tfevents.%010d.%s.%d.%d", folder, absl::ToUnixSeconds(clock_.Now()),
                          platform::HostName(), getpid(), resumed_step_);
  TANDEM_ASSIGN_OR_RETURN(file_, platform::OpenRegularFile(path_, O_WRONLY | O_CREAT | O_APPEND, 0644));
  torn_ = false;
  complained_ = false;
  TensorBoardEvent version;
  version.set_wall_time(absl::ToDoubleSeconds(clock_.Now() - absl::UnixEpoch()));
  version.set_file_version("brain.Event:2");
  Write(TensorBoardRecord(version.SerializeAsString()));
  return absl::OkStatus();
}

void TensorBoardFile::FollowPath() {
  if (platform::LeadsTo(path_, file_) || !checkpoint::Owns(files_, directory_, self_)) {
    return;
  }
  const absl::Status opened = Open();
  if (!opened.ok()) {
    Complain(std::string(opened.message()));
  }
}

void TensorBoardFile::Append(const v1::StepReport& report) {
  FollowPath();
  TensorBoardEvent event;
  event.set_wall_time(absl::ToDoubleSeconds(clock_.Now() - absl::UnixEpoch()));
  event.set_step(report.step());
  const auto add = [&event](const std::string& tag, double value) {
    TensorBoardEvent::Summary::Value& added = *event.mutable_summary()->add_value();
    added.set_tag(tag);
    added.set_simple_value(static_cast<float>(value));
  };
  if (report.step() > 0) {  // step 0 is the validation before the first step
    add("loss_metrics/global_avg_loss", report.loss());
    add("grad_norm", report.grad_norm());
    add("lr", report.learning_rate());
    add("time_metrics/end_to_end(s)", report.seconds());
  }
  // In the order of their names.
  for (const auto& [name, value] :
       std::map<std::string, double>(report.scalars().begin(), report.scalars().end())) {
    add(TagOf(name), name == "model_flops_utilization" ? 100 * value : value);
  }
  Write(TensorBoardRecord(event.SerializeAsString()));
}

void TensorBoardFile::Write(const std::string& text) {
  if (torn_) {
    return;
  }
  const absl::Status appended = AppendWhole(file_, text);
  if (!appended.ok()) {
    torn_ = absl::IsDataLoss(appended);
    Complain(std::string(appended.message()));
  }
}

void TensorBoardFile::Complain(const std::string& error) {
  if (!std::exchange(complained_, true)) {
    platform::Log(platform::LogLevel::kError,
                  "cannot write TensorBoard's events; training goes on without them",
                  {{"path", path_}, {"error", error}});
  }
}

}  // namespace tandem::trainer
