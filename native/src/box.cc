#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "atomics.h"
#include "identity.h"

namespace ci {
namespace {

static_assert(2 * kIdentityBytes == CI_BOX_JSON_BYTES, "two copies of the JSON fill its area");

// The training needs shared memory too (data loaders): never take the last of it.
bool has_room(int fd) {
  struct statvfs info;
  if (fstatvfs(fd, &info) != 0) return false;
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize >= 2 * static_cast<uint64_t>(CI_BOX_BYTES);
}

int reserve(int fd) {
  int error = 0;
  do error = posix_fallocate(fd, 0, CI_BOX_BYTES);
  while (error == EINTR);
  return error;
}

int lock_owner(int fd) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  return fcntl(fd, F_SETLK, &lock) == 0 ? 0 : errno;
}

}  // namespace

bool Box::create(const Settings& settings, const ProcessFacts& facts, char* why, size_t why_bytes) {
  const int first = create_in(settings.box_dir, facts);
  if (first == 0) return true;
  const int second = create_in(settings.fallback_dir, facts);
  if (second == 0) {
    log_line("no black box in %s (%s), it is %s", settings.box_dir, strerror(first), path_);
    return true;
  }
  snprintf(why, why_bytes, "no black box: %s: %s; %s: %s", settings.box_dir, strerror(first), settings.fallback_dir,
           strerror(second));
  return false;
}

int Box::create_in(const char* dir, const ProcessFacts& facts) {
  if (network_file_system(dir) != nullptr) return EREMOTE;  // its pages could stop the training
  if (const int error = make_directories(dir)) return error;
  if (const int error = private_directory(dir)) return error;
  const int64_t created_mono_ns = mono_ns();
  snprintf(path_, sizeof path_, "%s/%lld-%lld-%lld.box", dir, static_cast<long long>(facts.pid),
           static_cast<long long>(facts.start_ticks), static_cast<long long>(created_mono_ns));
  const int fd = open(path_, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  int error = file_.hold(fd);
  if (error == 0) error = reserve_and_map(fd);
  if (error != 0) {
    file_.close();
    unlink(path_);
    return error;
  }
  header_->created_mono_ns = created_mono_ns;
  fill_header(facts);
  return 0;
}

int Box::reserve_and_map(int fd) {
  if (fchmod(fd, 0600) != 0) return errno;
  if (!has_room(fd)) return ENOSPC;
  // A sparse file on a file system that fills up later would kill the writer with SIGBUS.
  if (const int error = reserve(fd)) return error;
  if (const int error = lock_owner(fd)) return error;
  void* map = mmap(nullptr, CI_BOX_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (map == MAP_FAILED) return errno;
  header_ = static_cast<ci_box_header*>(map);
  return 0;
}

void Box::fill_header(const ProcessFacts& facts) {
  ci_box_header& h = *header_;
  h.major = CI_FORMAT_MAJOR;
  h.minor = CI_FORMAT_MINOR;
  h.header_bytes = CI_BOX_HEADER_BYTES;
  h.file_bytes = CI_BOX_BYTES;
  h.pid = facts.pid;
  h.pid_start_ticks = facts.start_ticks;
  h.created_real_ns = real_ns();
  h.uid = geteuid();
  memcpy(h.boot_id, facts.boot_id, sizeof h.boot_id);
  if (getrandom(&h.salt, sizeof h.salt, GRND_NONBLOCK) != sizeof h.salt)
    h.salt = static_cast<uint32_t>(h.created_mono_ns ^ (h.pid << 16));
  h.json_offset = CI_BOX_JSON_OFFSET;
  h.comm_offset = CI_BOX_COMM_OFFSET;
  h.comm_capacity = CI_COMM_CAPACITY;
  h.loss_offset = CI_BOX_LOSS_OFFSET;
  h.slot_offset = CI_BOX_SLOT_OFFSET;
  h.slot_capacity = CI_SLOT_CAPACITY;
  h.slot_bytes = CI_SLOT_BYTES;
  h.ring_offset = CI_BOX_RING_OFFSET;
  h.ring_capacity = CI_RING_CAPACITY;
  h.record_bytes = sizeof(ci_record);
  h.comm_row_bytes = CI_COMM_ROW_BYTES;
  h.loss_reasons = CI_LOSS_REASONS;
  memcpy(h.magic, CI_BOX_MAGIC, sizeof h.magic);
}

void Box::go_live() { store_release(header_->state, CI_BOX_LIVE); }

void Box::store_json(const char* json, size_t bytes) {
  char* base = reinterpret_cast<char*>(header_);
  const uint32_t old = load_relaxed(header_->json_offset);
  const bool first = header_->json_bytes == 0;
  const uint32_t fresh = first || old != CI_BOX_JSON_OFFSET ? CI_BOX_JSON_OFFSET : CI_BOX_JSON_OFFSET + kIdentityBytes;
  // Padded with blanks to one length, so that a single store switches between the copies.
  memset(base + fresh, ' ', kIdentityBytes);
  memcpy(base + fresh, json, bytes);
  if (first) header_->json_bytes = kIdentityBytes;
  store_release(header_->json_offset, fresh);
}

void Box::mark_closed() { store_release(header_->state, CI_BOX_CLOSED); }

void Box::keep_lock() {
  if (!file_.is_ours()) {
    struct stat st;
    const int fd = open(path_, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    if (fstat(fd, &st) != 0 || !file_.is_file(st)) {
      close(fd);
      return;
    }
    if (file_.hold(fd) != 0) return;
  }
  lock_owner(file_.number());
}

void Box::forget(bool directly_after_fork) {
  munmap(header_, CI_BOX_BYTES);
  file_.forget(directly_after_fork);
}

}  // namespace ci
