#include "spool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ci {
namespace {

struct Sealed {
  int64_t total_bytes;
  uint32_t oldest;  // 0: none
};

// "000042.ciseg" -> 42, anything else -> 0.
uint32_t sealed_number(const char* name) {
  char* end = nullptr;
  const unsigned long number = strtoul(name, &end, 10);
  return end == name + 6 && strcmp(end, ".ciseg") == 0 ? static_cast<uint32_t>(number) : 0;
}

// Looks at the directory itself: the agent takes segments away too.
Sealed list_sealed(const char* path) {
  Sealed found = {0, 0};
  DIR* dir = opendir(path);
  if (dir == nullptr) return found;
  while (const dirent* entry = readdir(dir)) {
    const uint32_t number = sealed_number(entry->d_name);
    struct stat st;
    if (number == 0 || fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
    found.total_bytes += st.st_size;
    if (found.oldest == 0 || number < found.oldest) found.oldest = number;
  }
  closedir(dir);
  return found;
}

// The default spool is in a directory that everybody can write: its own level must be ours.
int check_default_parent(const Settings& settings) {
  char parent[64];
  snprintf(parent, sizeof parent, "/tmp/comminsight-%u", geteuid());
  const size_t n = strlen(parent);
  return strncmp(settings.spool_dir, parent, n) == 0 && settings.spool_dir[n] == '/' ? private_directory(parent) : 0;
}

}  // namespace

int Spool::prepare(const Settings& settings, const ProcessFacts& facts) {
  if (dir_[0] != 0) return access(dir_, W_OK) == 0 ? 0 : make_directories(dir_);
  const char* remote = network_file_system(settings.spool_dir, env("COMMINSIGHT_SPOOL_FS_MAGIC"));
  if (remote != nullptr && !settings.allow_network_spool) {
    log_line("no segments: %s is on a network file system (%s); set COMMINSIGHT_SPOOL to a local directory",
             settings.spool_dir, remote);
    return EREMOTE;
  }
  if (const int error = check_default_parent(settings)) return error;
  if (const int error = make_directories(settings.spool_dir)) return error;
  return open_session_dir(settings, facts);
}

int Spool::open_session_dir(const Settings& settings, const ProcessFacts& facts) {
  char path[kPathBytes + 80];
  int n = snprintf(path, sizeof path, "%s/%s", settings.spool_dir, facts.session_id);
  for (int life = 2; mkdir(path, 0700) != 0; life++) {
    if (errno != EEXIST || life > 99) return errno;
    snprintf(path + n, sizeof path - static_cast<size_t>(n), ".%d", life);
  }
  if (strlen(path) >= sizeof dir_) return ENAMETOOLONG;
  strcpy(dir_, path);
  return 0;
}

void Spool::make_room(Recorder& recorder, int64_t room_bytes) {
  for (;;) {
    const Sealed sealed = list_sealed(dir_);
    if (sealed.oldest == 0 || sealed.total_bytes + room_bytes <= recorder.settings.spool_cap_bytes) return;
    remove_counted(recorder, sealed.oldest);
  }
}

void Spool::remove_counted(Recorder& recorder, uint32_t number) {
  char path[kPathBytes + 32];
  snprintf(path, sizeof path, "%s/%06u.ciseg", dir_, number);
  const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (unlink(path) != 0 || fd < 0) {
    if (fd >= 0) close(fd);
    return;
  }
  memset(lost_, 0, sizeof lost_);
  ci_segment_header header;
  ci_frame_header frame;
  int64_t at = pread(fd, &header, sizeof header, 0) == sizeof header ? header.header_bytes : INT64_MAX / 2;
  for (; pread(fd, &frame, sizeof frame, at) == sizeof frame; at += static_cast<int64_t>(sizeof frame) + frame.payload_bytes) {
    if (frame.type != CI_FRAME_OPS || frame.payload_bytes > sizeof buffer_) continue;
    if (pread(fd, buffer_, frame.payload_bytes, at + static_cast<int64_t>(sizeof frame)) != frame.payload_bytes) break;
    for (uint32_t i = 0; i < frame.n_items; i++)
      if (buffer_[i].state != CI_OPSTATE_OPEN && buffer_[i].comm_index <= CI_COMM_CAPACITY) lost_[buffer_[i].comm_index]++;
  }
  close(fd);
  for (uint32_t comm = 0; comm <= CI_COMM_CAPACITY; comm++)
    if (lost_[comm] != 0) recorder.lose(comm, CI_LOSSREASON_SEGMENT_CAP, lost_[comm]);
}

}  // namespace ci
