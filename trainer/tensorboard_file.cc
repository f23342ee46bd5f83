// SPDX-License-Identifier: Apache-2.0
#include "trainer/tensorboard_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "platform/host.h"
#include "platform/log.h"
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
                                 const std::string& directory, int64_t resumed_step)
    : clock_(clock) {
  const std::string folder = directory + "/tensorboard";
  ThrowIfNotOk(files.CreateFolder(folder));
  // TensorBoard reads files in the order of their names.
  path_ = absl::StrFormat("%s/events.out.tfevents.%010d.%s.%d.%d", folder, absl::ToUnixSeconds(clock.Now()),
                          platform::HostName(), getpid(), resumed_step);
  absl::StatusOr<platform::Descriptor> file =
      platform::OpenRegularFile(path_, O_WRONLY | O_CREAT | O_APPEND, 0644);
  ThrowIfNotOk(file.status());
  file_ = *std::move(file);
  TensorBoardEvent version;
  version.set_wall_time(absl::ToDoubleSeconds(clock.Now() - absl::UnixEpoch()));
  version.set_file_version("brain.Event:2");
  std::string text = TensorBoardRecord(version.SerializeAsString());
  TensorBoardEvent start;
  start.set_wall_time(version.wall_time());
  start.set_step(resumed_step > 0 ? resumed_step + 1 : 0);
  start.mutable_session_log()->set_status(kStart);
  text += TensorBoardRecord(start.SerializeAsString());
  Write(text);
}

void TensorBoardFile::Append(const v1::StepReport& report) {
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
  if (failed_) {
    return;
  }
  const ssize_t written = write(file_.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size())) {
    failed_ = true;  // what follows a torn record cannot be read
    platform::Log(platform::LogLevel::kError,
                  "cannot write TensorBoard's events; training goes on without them",
                  {{"path", path_}, {"error", written < 0 ? std::strerror(errno) : "short write"}});
  }
}

}  // namespace tandem::trainer
