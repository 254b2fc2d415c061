#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace ci {
namespace {

struct FileSystem {
  uint32_t magic;
  const char* name;
};
// A write to one of these may hang for as long as a server or a daemon does.
constexpr FileSystem kRemote[] = {
    {0x6969, "nfs"},          {0x517B, "smb"},        {0xFE534D42, "smb2"},     {0xFF534D42, "cifs"},
    {0x65735546, "fuse"},     {0x0BD00BD0, "lustre"}, {0x47504653, "gpfs"},     {0x00C36400, "ceph"},
    {0x5346414F, "afs"},      {0x19830326, "beegfs"}, {0x01161970, "gfs2"},     {0x7461636F, "ocfs2"},
    {0x01021997, "9p"},       {0x73757245, "coda"},   {0xAAD7AAEA, "panfs"},    {0x20030528, "orangefs"},
    {0x786F4256, "vboxsf"},   {0x564C, "ncp"},
};

size_t read_file(const char* path, char* buffer, size_t capacity) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return buffer[0] = 0;
  const ssize_t n = read(fd, buffer, capacity - 1);
  close(fd);
  buffer[n > 0 ? n : 0] = 0;
  return n > 0 ? static_cast<size_t>(n) : 0;
}

int64_t start_ticks_of_self() {
  char stat[1024];
  read_file("/proc/self/stat", stat, sizeof stat);
  const char* p = strrchr(stat, ')');  // the command name may hold spaces and parentheses
  for (int field = 2; p != nullptr && field < 22; field++) p = strchr(p + 1, ' ');
  return p != nullptr ? strtoll(p, nullptr, 10) : 0;
}

// Cuts the last component off; false at the root and at ".", where a relative path ends.
bool to_parent(char* path) {
  char* slash = strrchr(path, '/');
  if (strcmp(path, "/") == 0 || strcmp(path, ".") == 0) return false;
  if (slash == nullptr) strcpy(path, ".");
  else slash[slash == path ? 1 : 0] = 0;
  return true;
}

}  // namespace

const char* env(const char* name) {
  const char* value = getenv(name);
  return value != nullptr && value[0] != 0 ? value : nullptr;
}

int64_t env_integer(const char* const* names, int64_t otherwise) {
  for (; *names != nullptr; names++) {
    const char* value = env(*names);
    char* end = nullptr;
    const int64_t number = value != nullptr ? strtoll(value, &end, 10) : 0;
    if (value != nullptr && *end == 0) return number;
  }
  return otherwise;
}

int64_t env_scaled(const char* name, double scale, int64_t otherwise, int64_t low, int64_t high) {
  const char* value = env(name);
  if (value == nullptr) return otherwise;
  char* end = nullptr;
  const double number = strtod(value, &end) * scale;
  if (end == value || *end != 0 || number != number) {
    log_line("%s is not a number, the default stays", name);
    return otherwise;
  }
  if (number <= static_cast<double>(low)) return low;
  return number >= static_cast<double>(high) ? high : static_cast<int64_t>(number);
}

bool env_is_true(const char* name) {
  const char* value = env(name);
  return value != nullptr && strcmp(value, "0") != 0 && strcasecmp(value, "false") != 0 && strcasecmp(value, "no") != 0;
}

void log_line(const char* format, ...) {
  char line[768] = "comminsight: ";
  const size_t prefix = strlen(line);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line + prefix, sizeof line - prefix - 1, format, arguments);
  va_end(arguments);
  strcat(line, "\n");
  if (write(STDERR_FILENO, line, strlen(line)) < 0) return;  // nowhere left to say it
}

ProcessFacts process_facts() {
  ProcessFacts facts = {};
  facts.pid = getpid();
  facts.start_ticks = start_ticks_of_self();
  read_file("/proc/sys/kernel/random/boot_id", facts.boot_id, sizeof facts.boot_id);
  facts.boot_id[strcspn(facts.boot_id, "\n")] = 0;
  gethostname(facts.host, sizeof facts.host - 1);
  snprintf(facts.session_id, sizeof facts.session_id, "%.8s-%lld-%lld", facts.boot_id,
           static_cast<long long>(facts.pid), static_cast<long long>(facts.start_ticks));
  return facts;
}

int make_directories(const char* path) {
  char partial[kPathBytes];
  if (strlen(path) >= sizeof partial) return ENAMETOOLONG;
  for (const char* end = path; *end != 0;) {
    end = strchrnul(end + 1, '/');
    memcpy(partial, path, static_cast<size_t>(end - path));
    partial[end - path] = 0;
    if (mkdir(partial, 0700) != 0 && errno != EEXIST) {
      const int reason = errno;
      struct stat st;
      if (stat(partial, &st) != 0) return reason;  // mkdir of an existing parent may say EROFS or EACCES
    }
  }
  return 0;
}

int private_directory(const char* path) {
  if (mkdir(path, 0700) != 0 && errno != EEXIST) return errno;
  struct stat st;
  if (lstat(path, &st) != 0) return errno;
  if (S_ISLNK(st.st_mode)) return ELOOP;
  if (!S_ISDIR(st.st_mode)) return ENOTDIR;
  return st.st_uid != geteuid() || (st.st_mode & 022) != 0 ? EPERM : 0;
}

const char* network_file_system(const char* path, const char* forced_magic) {
  char existing[kPathBytes];
  snprintf(existing, sizeof existing, "%s", path);
  struct statfs info;
  while (statfs(existing, &info) != 0)
    if (!to_parent(existing)) return nullptr;
  auto magic = static_cast<uint32_t>(info.f_type);
  if (forced_magic != nullptr) magic = static_cast<uint32_t>(strtoul(forced_magic, nullptr, 0));
  for (const auto& remote : kRemote)
    if (remote.magic == magic) return remote.name;
  return nullptr;
}

int write_all(int fd, const void* bytes, size_t n, int64_t offset) {
  const char* from = static_cast<const char*>(bytes);
  while (n > 0) {
    const ssize_t written = pwrite(fd, from, n, offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    from += written;
    offset += written;
    n -= static_cast<size_t>(written);
  }
  return 0;
}

}  // namespace ci
