// SPDX-License-Identifier: Apache-2.0
// Loaded into a daemon before libc: its wall clock jumps and its disk is slow or full when a test says so, which
// cannot be done to a whole machine. The page that $TANDEM_FAULTS names is shared with the test
// (faulty_libc.py has the same layout); all zero means no fault.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct Faults {
  int64_t clock_ahead_ns;  // of CLOCK_REALTIME
  int64_t sync_ns;         // that each fsync and fdatasync takes longer
  int64_t write_ns;        // that each write to a file takes longer
  int64_t write_errno;     // what each write to a file fails with; 0: it does not
  int64_t folder_errno;    // what each fsync of a folder fails with; 0: it does not
  int64_t slow_syncs;      // of the files of a controller's store that have begun; counted here
};

static volatile struct Faults* faults;
static struct Faults none;

__attribute__((constructor)) static void Open(void) {
  faults = &none;
  const char* const path = getenv("TANDEM_FAULTS");
  const int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* const page = mmap(NULL, sizeof(struct Faults), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page != MAP_FAILED) faults = page;
  close(fd);
}

static int64_t Ahead(void) { return faults == NULL ? 0 : faults->clock_ahead_ns; }

static void Shift(struct timespec* time, int64_t by) {
  int64_t ns = time->tv_nsec + by % 1000000000;
  time->tv_sec += by / 1000000000 + (ns >= 1000000000) - (ns < 0);
  time->tv_nsec = ns + (ns < 0 ? 1000000000 : 0) - (ns >= 1000000000 ? 1000000000 : 0);
}

static void Sleep(int64_t ns) {
  struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
  if (ns > 0) nanosleep(&time, NULL);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

// The clock, and the waits that end at a time of it, which the kernel counts by its own.

int clock_gettime(clockid_t clock, struct timespec* time) {
  static __typeof__(&clock_gettime) real;
  if (real == NULL) real = REAL(clock_gettime);
  const int result = real(clock, time);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) Shift(time, Ahead());
  return result;
}

int gettimeofday(struct timeval* restrict time, void* restrict zone) {
  (void)zone;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != NULL) *out = now.tv_sec;
  return now.tv_sec;
}

// As clock_settime does, a jump of the clock is felt by the waits that are under way: each waits in short pieces.
// The time of the machine's clock at which the next piece of a wait until `until` of the faulty clock ends.
static struct timespec EndOfPiece(const struct timespec* until, int* last) {
  const int64_t piece = 5000000;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const int64_t left = (until->tv_sec - now.tv_sec) * 1000000000 + (until->tv_nsec - now.tv_nsec);
  *last = left <= piece;
  struct timespec end = now;
  Shift(&end, -Ahead() + (left <= 0 ? 0 : left < piece ? left : piece));
  return end;
}

int pthread_cond_timedwait(pthread_cond_t* restrict cond, pthread_mutex_t* restrict mutex,
                           const struct timespec* restrict until) {
  static __typeof__(&pthread_cond_timedwait) real;
  if (real == NULL) real = REAL(pthread_cond_timedwait);
  if ((cond->__data.__wrefs & 2) != 0) return real(cond, mutex, until);  // 2: by CLOCK_MONOTONIC
  int last = 0;
  const struct timespec end = EndOfPiece(until, &last);
  const int result = real(cond, mutex, &end);
  return result == ETIMEDOUT && !last ? 0 : result;  // callers look again: it may wake for no reason
}

int pthread_cond_clockwait(pthread_cond_t* cond, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  static __typeof__(&pthread_cond_clockwait) real;
  if (real == NULL) real = REAL(pthread_cond_clockwait);
  if (clock != CLOCK_REALTIME) return real(cond, mutex, clock, until);
  int last = 0;
  const struct timespec end = EndOfPiece(until, &last);
  const int result = real(cond, mutex, clock, &end);
  return result == ETIMEDOUT && !last ? 0 : result;
}

// Abseil waits on futexes itself.
long syscall(long number, ...) {
  static __typeof__(&syscall) real;
  if (real == NULL) real = REAL(syscall);
  va_list more;
  va_start(more, number);
  long a[6];
  for (int i = 0; i < 6; ++i) a[i] = va_arg(more, long);
  va_end(more);
  if (number == SYS_futex && ((int)a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET && a[3] != 0 &&
      ((int)a[1] & FUTEX_CLOCK_REALTIME) != 0) {
    int last = 0;
    const struct timespec end = EndOfPiece((const struct timespec*)a[3], &last);
    const long result = real(number, a[0], a[1], a[2], (long)&end, a[4], a[5]);
    if (result == -1 && errno == ETIMEDOUT && !last) errno = EINTR;
    return result;
  }
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

// The disk.

static int IsFile(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

// 0: go on.
static int Write(int fd) {
  if (faults == NULL || (faults->write_ns == 0 && faults->write_errno == 0) || !IsFile(fd)) return 0;
  Sleep(faults->write_ns);
  return (int)faults->write_errno;
}

#define WRITE(name, declaration, ...)         \
  ssize_t name declaration {                  \
    static __typeof__(&name) real;            \
    if (real == NULL) real = REAL(name);      \
    const int error = Write(fd);              \
    if (error != 0) return errno = error, -1; \
    return real(__VA_ARGS__);                 \
  }
WRITE(write, (int fd, const void* data, size_t size), fd, data, size)
WRITE(pwrite, (int fd, const void* data, size_t size, off_t at), fd, data, size, at)
WRITE(pwrite64, (int fd, const void* data, size_t size, off64_t at), fd, data, size, at)

static int IsOfStore(int fd) {
  char link[64], path[4096] = {0};
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  return readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, "/controller.") != NULL;
}

static void Sync(int fd) {
  if (faults == NULL || faults->sync_ns == 0) return;
  if (IsOfStore(fd)) __atomic_add_fetch(&faults->slow_syncs, 1, __ATOMIC_RELAXED);
  Sleep(faults->sync_ns);
}

// 0: go on.
static int SyncFolder(int fd) {
  struct stat status;
  return faults != NULL && faults->folder_errno != 0 && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)
             ? (int)faults->folder_errno
             : 0;
}

#define SYNC(name)                       \
  int name(int fd) {                     \
    static __typeof__(&name) real;       \
    if (real == NULL) real = REAL(name); \
    Sync(fd);                            \
    const int error = SyncFolder(fd);    \
    if (error != 0) {                    \
      errno = error;                     \
      return -1;                         \
    }                                    \
    return real(fd);                     \
  }
SYNC(fsync)
SYNC(fdatasync)
