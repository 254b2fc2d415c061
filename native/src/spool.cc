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
  int error;        // errno: the directory could not be read
};

// "000042.ciseg" -> 42, anything else -> 0. Digits only: the number must give the same name again.
uint32_t sealed_number(const char* name) {
  uint32_t number = 0;
  for (int i = 0; i < 6; i++) {
    if (name[i] < '0' || name[i] > '9') return 0;
    number = number * 10 + static_cast<uint32_t>(name[i] - '0');
  }
  return strcmp(name + 6, ".ciseg") == 0 ? number : 0;
}

// All sealed segments, and the oldest of those numbered above `after`. Looks at the directory itself: the
// agent takes segments away too.
Sealed list_sealed(const char* path, uint32_t after) {
  Sealed found = {0, 0, 0};
  DIR* dir = opendir(path);
  if (dir == nullptr) return {0, 0, errno};
  while (const dirent* entry = readdir(dir)) {
    const uint32_t number = sealed_number(entry->d_name);
    struct stat st;
    if (number == 0 || fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(st.st_mode)) continue;
    found.total_bytes += st.st_size;
    if (number > after && (found.oldest == 0 || number < found.oldest)) found.oldest = number;
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

int Spool::make_room(Recorder& recorder, int64_t room_bytes) {
  for (uint32_t after = 0;;) {
    const Sealed sealed = list_sealed(dir_, after);
    if (sealed.error != 0) return sealed.error;
    if (sealed.oldest == 0 || sealed.total_bytes + room_bytes <= recorder.settings.spool_cap_bytes) return 0;
    char path[kPathBytes + 32];
    snprintf(path, sizeof path, "%s/%06u.ciseg", dir_, sealed.oldest);
    const int error = remove_counted(recorder, path);
    if (error != 0 && error != ENOENT) {
      if (!has_told_) log_line("cannot remove %s: %s; no segment is written above the cap", path, strerror(error));
      has_told_ = true;
      return error;
    }
    after = sealed.oldest;
  }
}

// 0 or errno; ENOENT: the agent has it. What cannot be opened cannot be counted, and so it stays.
int Spool::remove_counted(Recorder& recorder, const char* path) {
  const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return errno;
  struct stat st;
  const int error = fstat(fd, &st) != 0 || unlink(path) != 0 ? errno : 0;
  if (error == 0) count_lost(recorder, fd, st.st_size);
  close(fd);
  return error;
}

// The file may be damaged: nothing that it states is believed beyond its own size.
void Spool::count_lost(Recorder& recorder, int fd, int64_t file_bytes) {
  memset(lost_, 0, sizeof lost_);
  ci_segment_header header;
  const bool is_segment = pread(fd, &header, sizeof header, 0) == sizeof header &&
                          memcmp(header.magic, CI_SEGMENT_MAGIC, sizeof header.magic) == 0;
  int64_t at = is_segment ? header.header_bytes : 0;
  while (is_segment && at < file_bytes) {
    ci_frame_header frame;
    if (pread(fd, &frame, sizeof frame, at) != sizeof frame || frame.magic != CI_FRAME_MAGIC) break;
    const int64_t payload_at = at + static_cast<int64_t>(sizeof frame);
    if (payload_at + frame.payload_bytes > file_bytes) break;
    if (frame.type == CI_FRAME_OPS && !count_frame(recorder, fd, frame, payload_at)) break;
    at = payload_at + frame.payload_bytes;
  }
  for (uint32_t comm = 0; comm <= CI_COMM_CAPACITY; comm++)
    if (lost_[comm] != 0) recorder.lose(comm, CI_LOSSREASON_SEGMENT_CAP, lost_[comm]);
  // One stands for what lies behind the damage, of unknown number.
  if (at != file_bytes) recorder.lose(0, CI_LOSSREASON_SEGMENT_CAP);
}

// Adds the ops of one OPS frame to lost_. False when it cannot be one of ours.
bool Spool::count_frame(Recorder& recorder, int fd, const ci_frame_header& frame, int64_t payload_at) {
  if (frame.payload_bytes > sizeof buffer_) return false;
  if (pread(fd, buffer_, frame.payload_bytes, payload_at) != static_cast<ssize_t>(frame.payload_bytes)) return false;
  uint32_t n = frame.payload_bytes / sizeof(ci_record);
  if (frame.n_items < n) n = frame.n_items;
  for (uint32_t i = 0; i < n; i++) {
    if (is_marker(buffer_[i])) recorder.lose_marker();
    else if (buffer_[i].comm_index <= CI_COMM_CAPACITY) lost_[buffer_[i].comm_index] += ops_of(buffer_[i]);
  }
  return true;
}

}  // namespace ci
