// What the recorder asks the operating system: environment, process facts, directories, file systems.
// Nothing here is called on the hot path.
#ifndef COMMINSIGHT_HOST_H
#define COMMINSIGHT_HOST_H
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace ci {

constexpr size_t kPathBytes = 4096;  // PATH_MAX
constexpr int64_t kNsPerMs = 1000000;
constexpr int64_t kNsPerS = 1000000000;

// The variable's value, nullptr when unset or empty.
const char* env(const char* name);
// The first of `names` (ends with nullptr) that holds a whole number, else `otherwise`.
int64_t env_integer(const char* const* names, int64_t otherwise);
// The variable as a decimal number times `scale`, clamped; `otherwise` when unset or not a number.
int64_t env_scaled(const char* name, double scale, int64_t otherwise, int64_t low, int64_t high);
bool env_is_true(const char* name);

// One line "comminsight: ..." on standard error.
void log_line(const char* format, ...) __attribute__((format(printf, 1, 2)));

struct ProcessFacts {
  int64_t pid;
  int64_t start_ticks;  // field 22 of /proc/self/stat: tells a reused pid from the first
  char boot_id[40];
  char host[72];
  char session_id[64];  // <first 8 of boot id>-<pid>-<start ticks>
};
ProcessFacts process_facts();

// Creates `path` and its parents (0700). 0 or errno.
int make_directories(const char* path);
// Creates a private directory if need be and checks that it is a real directory (no symbolic link) of this
// user that nobody else can write. 0 or errno.
int private_directory(const char* path);
// Name of the network or user-space file system that `path` (or its nearest existing parent) is on,
// nullptr when it is local. `forced_magic` (hexadecimal text, or nullptr) overrides what the kernel says.
const char* network_file_system(const char* path, const char* forced_magic = nullptr);
// Writes all bytes at `offset`, resuming short writes. 0 or errno.
int write_all(int fd, const void* bytes, size_t n, int64_t offset);

}  // namespace ci
#endif
