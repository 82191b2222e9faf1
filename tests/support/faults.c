// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Preloaded into the program: stops it at chosen steps, kills it before a chosen
/// operation on the files of a folder, and plays a disk that is full. Of several ranks each
/// counts for itself.
///
///     PLEAT_TEST_PAUSE=PATH      after the row of a step N has gone to metrics.csv, for which
///                                PATH.wait-N exists: makes PATH.at-N, waits until PATH.wait-N
///                                is gone
///     PLEAT_TEST_FOLDER=PATH     the folder (its real path) whose files are meant below
///     PLEAT_TEST_OPERATIONS=PATH a line for each operation: "17 pwrite step_00000004.h5.tmp"
///     PLEAT_TEST_KILL_BEFORE=N   SIGKILL instead of operation N, counted from 1
///     PLEAT_TEST_SPACE=PATH      the file holds the bytes that the folder may hold; an operation
///                                that would need more fails with ENOSPC
///     PLEAT_TEST_NO_PREALLOCATION=1   fallocate is not supported
///     PLEAT_TEST_HOLD_SYNC=PATH  fsync there, by another thread than the first one, waits while
///                                the file exists
///
///     PLEAT_TEST_HANG_OPEN=END   opening a file whose path ends so never returns
///
/// Output through stdio (metrics.csv, run.log) is not among the operations: the C library's
/// calls of itself cannot be preloaded.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define REAL(name)                                             \
  static __typeof__(&name) real;                               \
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, #name)

static void file_of(int descriptor, char path[PATH_MAX]) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, PATH_MAX - 1);
  path[length > 0 ? length : 0] = '\0';
}

// --- Operations on the folder ------------------------------------------------------------

/// The name within the folder, or null.
static const char* name_in_folder(const char* path) {
  const char* folder = getenv("PLEAT_TEST_FOLDER");
  if (!folder || !path) return NULL;
  char real_folder[PATH_MAX];
  const char* slash = strrchr(path, '/');
  if (path[0] != '/') {  // relative: the folder of the file, made absolute
    char parent[PATH_MAX] = ".";
    if (slash) snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
    if (!realpath(parent, real_folder)) return NULL;
  } else {
    snprintf(real_folder, sizeof real_folder, "%.*s", (int)(slash - path), path);
  }
  if (strcmp(real_folder, folder) == 0) return slash ? slash + 1 : path;
  return strcmp(path, folder) == 0 ? "." : NULL;
}

static long long used_bytes(void) {
  long long sum = 0;
  const char* folder = getenv("PLEAT_TEST_FOLDER");
  DIR* entries = opendir(folder);
  if (!entries) return 0;
  for (struct dirent* entry; (entry = readdir(entries));) {
    char path[PATH_MAX];
    struct stat status;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (stat(path, &status) == 0 && S_ISREG(status.st_mode)) {
      sum += 512LL * (long long)status.st_blocks;
    }
  }
  closedir(entries);
  return sum;
}

static int has_room(long long bytes) {
  const char* path = getenv("PLEAT_TEST_SPACE");
  if (!path) return 1;
  FILE* file = fopen(path, "r");
  long long space = 0;
  if (!file || fscanf(file, "%lld", &space) != 1) space = LLONG_MAX;
  if (file) fclose(file);
  return used_bytes() + bytes <= space;
}

/// A disk that is not done for a while.
static void hold_sync_beside(int descriptor) {
  static const struct timespec kLook = {0, 1000 * 1000};
  const char* hold = getenv("PLEAT_TEST_HOLD_SYNC");
  char path[PATH_MAX];
  if (!hold || gettid() == getpid()) return;
  file_of(descriptor, path);
  if (!name_in_folder(path)) return;
  while (access(hold, F_OK) == 0) nanosleep(&kLook, NULL);
}

/// Counts an operation; returns 0 when it must fail for want of space.
static int count_operation(const char* operation, const char* path, long long bytes) {
  static _Atomic int operations;
  const int before = errno;
  const char* name = name_in_folder(path);
  if (!name) return 1;
  const int number = ++operations;
  const char* log = getenv("PLEAT_TEST_OPERATIONS");
  if (log) {
    FILE* file = fopen(log, "a");
    if (file) {
      fprintf(file, "%d %s %s\n", number, operation, name);
      fclose(file);
    }
  }
  const char* last = getenv("PLEAT_TEST_KILL_BEFORE");
  if (last && number == atoi(last)) {
    kill(getpid(), SIGKILL);
    pause();
  }
  const int allowed = bytes <= 0 || has_room(bytes);
  errno = allowed ? before : ENOSPC;
  return allowed;
}

static int count_on(const char* operation, int descriptor, long long bytes) {
  if (!getenv("PLEAT_TEST_FOLDER")) return 1;
  char path[PATH_MAX];
  file_of(descriptor, path);
  return count_operation(operation, path, bytes);
}

ssize_t write(int file, const void* data, size_t bytes) {
  REAL(write);
  return count_on("write", file, (long long)bytes) ? real(file, data, bytes) : -1;
}

ssize_t writev(int file, const struct iovec* parts, int count) {
  REAL(writev);
  long long bytes = 0;
  for (int i = 0; i < count; ++i) bytes += (long long)parts[i].iov_len;
  return count_on("writev", file, bytes) ? real(file, parts, count) : -1;
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) {
  REAL(pwrite);
  return count_on("pwrite", file, (long long)bytes) ? real(file, data, bytes, at) : -1;
}

ssize_t pwrite64(int file, const void* data, size_t bytes, off64_t at) {
  REAL(pwrite64);
  return count_on("pwrite", file, (long long)bytes) ? real(file, data, bytes, at) : -1;
}

static int preallocates(int file, long long bytes) {
  if (getenv("PLEAT_TEST_NO_PREALLOCATION")) {
    errno = EOPNOTSUPP;
    return 0;
  }
  return count_on("fallocate", file, bytes);
}

int fallocate(int file, int mode, off_t at, off_t bytes) {
  REAL(fallocate);
  return preallocates(file, bytes) ? real(file, mode, at, bytes) : -1;
}

int fallocate64(int file, int mode, off64_t at, off64_t bytes) {
  REAL(fallocate64);
  return preallocates(file, bytes) ? real(file, mode, at, bytes) : -1;
}

int ftruncate(int file, off_t bytes) {
  REAL(ftruncate);
  return count_on("ftruncate", file, 0) ? real(file, bytes) : -1;
}

int ftruncate64(int file, off64_t bytes) {
  REAL(ftruncate64);
  return count_on("ftruncate", file, 0) ? real(file, bytes) : -1;
}

int fsync(int file) {
  REAL(fsync);
  hold_sync_beside(file);
  return count_on("fsync", file, 0) ? real(file) : -1;
}

int fdatasync(int file) {
  REAL(fdatasync);
  return count_on("fdatasync", file, 0) ? real(file) : -1;
}

int rename(const char* from, const char* to) {
  REAL(rename);
  return count_operation("rename", to, 0) ? real(from, to) : -1;
}

int unlink(const char* path) {
  REAL(unlink);
  return count_operation("unlink", path, 0) ? real(path) : -1;
}

int remove(const char* path) {
  REAL(remove);
  return count_operation("remove", path, 0) ? real(path) : -1;
}

static mode_t mode_of(int flags, va_list more) {
  return (flags & O_CREAT) ? (mode_t)va_arg(more, int) : 0;
}

/// A file system that does not answer.
static void hang_at(const char* path) {
  const char* end = getenv("PLEAT_TEST_HANG_OPEN");
  if (!end || !path || strlen(path) < strlen(end)) return;
  while (strcmp(path + strlen(path) - strlen(end), end) == 0) pause();
}

static int opens(int flags, const char* path) {
  hang_at(path);
  return !(flags & (O_CREAT | O_TRUNC)) || count_operation("open", path, 0);
}

int open(const char* path, int flags, ...) {
  REAL(open);
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return opens(flags, path) ? real(path, flags, mode) : -1;
}

int open64(const char* path, int flags, ...) {
  REAL(open64);
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return opens(flags, path) ? real(path, flags, mode) : -1;
}

// --- Pauses ------------------------------------------------------------------------------

/// The step that the last line of metrics.csv begins with; 0: no row, or another file.
static long last_step(FILE* stream) {
  char path[PATH_MAX];
  file_of(fileno(stream), path);
  const char* slash = strrchr(path, '/');
  if (!slash || strcmp(slash, "/metrics.csv") != 0) return 0;
  FILE* file = fopen(path, "r");
  if (!file) return 0;
  long step = 0;
  char line[4096];
  while (fgets(line, sizeof line, file)) step = atol(line);
  fclose(file);
  return step;
}

static void pause_at(const char* path, long step) {
  static const struct timespec kLook = {0, 300 * 1000};
  char wait[PATH_MAX], at[PATH_MAX];
  snprintf(wait, sizeof wait, "%s.wait-%ld", path, step);
  snprintf(at, sizeof at, "%s.at-%ld", path, step);
  if (access(wait, F_OK) != 0) return;
  FILE* here = fopen(at, "w");
  if (here) fclose(here);
  while (access(wait, F_OK) == 0) nanosleep(&kLook, NULL);
}

int fflush(FILE* stream) {
  REAL(fflush);
  const int result = real(stream);
  const int reason = errno;
  const char* path = getenv("PLEAT_TEST_PAUSE");
  if (path && stream) {
    const long step = last_step(stream);
    if (step > 0) pause_at(path, step);
  }
  errno = reason;
  return result;
}
