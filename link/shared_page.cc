// SPDX-License-Identifier: Apache-2.0
#include "link/shared_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace tandem::link {
namespace {

constexpr size_t kPageBytes = 4096;
static_assert(sizeof(SharedPage) <= kPageBytes);
// Two processes share the page: an atomic with a lock inside would have one lock in each process.
static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<int32_t>::is_always_lock_free &&
              std::atomic<uint64_t>::is_always_lock_free);

absl::StatusOr<void*> Map(int fd) {
  void* const memory = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    return platform::SystemError(errno, "map the shared page");
  }
  return memory;
}

}  // namespace

absl::StatusOr<MappedPage> MappedPage::Create() {
  platform::Descriptor fd(memfd_create("tandem-rank-page", MFD_CLOEXEC));
  if (fd.get() < 0) {
    return platform::SystemError(errno, "create the shared page");
  }
  if (ftruncate(fd.get(), kPageBytes) != 0) {
    return platform::SystemError(errno, "size the shared page");
  }
  TANDEM_ASSIGN_OR_RETURN(void* const memory, Map(fd.get()));
  return MappedPage(std::move(fd), new (memory) SharedPage);
}

absl::StatusOr<MappedPage> MappedPage::Attach(int fd) {
  platform::Descriptor owned(fd);
  struct stat info;
  if (fstat(fd, &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("look at descriptor ", fd));
  }
  if (info.st_size < static_cast<off_t>(kPageBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("descriptor ", fd, " is not a shared page: it holds ", info.st_size, " bytes"));
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  TANDEM_ASSIGN_OR_RETURN(void* const memory, Map(fd));
  return MappedPage(std::move(owned), static_cast<SharedPage*>(memory));
}

void MappedPage::Unmap::operator()(SharedPage* page) const { munmap(page, kPageBytes); }

}  // namespace tandem::link
