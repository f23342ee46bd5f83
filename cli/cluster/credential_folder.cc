// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster/credential_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "platform/files.h"
#include "platform/regular_file.h"
#include "platform/status_macros.h"
#include "tls/tls_files.h"

namespace tandem::cli {
namespace {

constexpr mode_t kPublic = 0644;
constexpr mode_t kSecret = 0600;

// Whether all of the text is on disk; errno says why not.
bool WriteAll(int file, const std::string& text, mode_t mode) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = write(file, text.data() + written, text.size() - written);
    if (count < 0 && errno != EINTR) {
      return false;
    }
    written += count < 0 ? 0 : static_cast<size_t>(count);
  }
  // The mode that was asked for, whatever the umask is.
  return fchmod(file, mode) == 0 && fsync(file) == 0;
}

// A new file, on disk when it returns. A part of one is removed: it would be taken for what is not
// overwritten.
absl::Status WriteNew(const std::string& path, const std::string& text, mode_t mode) {
  const platform::Descriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (file.get() < 0) {
    return platform::FileError(errno, "create", path);
  }
  if (!WriteAll(file.get(), text, mode)) {
    const int error = errno;
    unlink(path.c_str());
    return platform::FileError(error, "write", path);
  }
  return absl::OkStatus();
}

absl::Status WriteInPlace(const std::string& path, const std::string& text, mode_t mode) {
  const std::string fresh = path + ".new";
  unlink(fresh.c_str());  // of a renewal that was cut off
  TANDEM_RETURN_IF_ERROR(WriteNew(fresh, text, mode));
  return platform::SystemFiles().Rename(fresh, path);
}

}  // namespace

absl::StatusOr<CredentialFolder> CredentialFolder::Open(const std::string& folder, bool make) {
  struct stat info {};
  if (make && mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return platform::FileError(errno, "make the folder", folder);
  }
  if (stat(folder.c_str(), &info) != 0) {
    return platform::FileError(errno, "open the folder", folder);
  }
  if (!S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(folder + " is not a folder");
  }
  return CredentialFolder(folder);
}

absl::Status CredentialFolder::CheckFree(const std::vector<std::string>& names,
                                         absl::string_view remedy) const {
  for (const std::string& name : names) {
    for (const std::string& path : {CertificateFile(name), KeyFile(name)}) {
      struct stat info {};
      if (lstat(path.c_str(), &info) == 0) {
        return absl::AlreadyExistsError(
            absl::StrCat(path, " is there already, and nothing is overwritten; ", remedy));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CredentialFolder::Add(const std::string& name, const tls::Credential& credential) const {
  TANDEM_RETURN_IF_ERROR(WriteNew(KeyFile(name), credential.key, kSecret));
  absl::Status added = WriteNew(CertificateFile(name), credential.certificate, kPublic);
  if (!added.ok()) {
    unlink(KeyFile(name).c_str());
  }
  return added;
}

absl::Status CredentialFolder::Replace(const std::string& name, const tls::Credential& credential) const {
  if (const absl::StatusOr<tls::Credential> former = Read(name); !former.ok()) {
    return former.status();
  }
  TANDEM_RETURN_IF_ERROR(WriteInPlace(KeyFile(name), credential.key, kSecret));
  return WriteInPlace(CertificateFile(name), credential.certificate, kPublic);
}

absl::StatusOr<tls::Credential> CredentialFolder::Read(const std::string& name) const {
  absl::StatusOr<std::string> certificate =
      platform::ReadAtMost(platform::SystemFiles(), CertificateFile(name), tls::kMostPemBytes);
  absl::StatusOr<std::string> key =
      platform::ReadAtMost(platform::SystemFiles(), KeyFile(name), tls::kMostPemBytes);
  if (!certificate.ok() || !key.ok()) {
    return certificate.ok() ? key.status() : certificate.status();
  }
  return tls::Credential{.certificate = *std::move(certificate), .key = *std::move(key)};
}

}  // namespace tandem::cli
