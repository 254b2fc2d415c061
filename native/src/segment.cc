#include "segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ci {

int Segment::create(const char* dir, uint32_t* number) {
  for (; *number < 1000000; ++*number) {
    snprintf(path_, sizeof path_, "%s/%06u.ciseg.open", dir, *number);
    fd_ = open(path_, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd_ >= 0 || errno != EEXIST) break;
  }
  if (fd_ < 0) return errno;
  struct stat st;
  fstat(fd_, &st);
  is_open_ = true;
  device_ = st.st_dev;
  inode_ = st.st_ino;
  bytes_ = 0;
  return 0;
}

int Segment::append(const void* frames, size_t bytes) {
  if (!owns_descriptor()) {
    is_open_ = false;  // the application closed it; the number may be its own file now
    return EBADF;
  }
  const int error = write_all(fd_, frames, bytes, bytes_);
  if (error == 0)
    bytes_ += static_cast<int64_t>(bytes);
  else if (ftruncate(fd_, bytes_) != 0)
    return errno;  // the next append writes over the torn frame all the same
  return error;
}

int Segment::seal() {
  char sealed[sizeof path_];
  snprintf(sealed, sizeof sealed, "%s", path_);
  sealed[strlen(sealed) - strlen(".open")] = 0;
  if (owns_descriptor()) close(fd_);
  is_open_ = false;
  return rename(path_, sealed) == 0 ? 0 : errno;
}

void Segment::discard() {
  if (owns_descriptor()) close(fd_);
  is_open_ = false;
  unlink(path_);
}

bool Segment::owns_descriptor() const {
  struct stat st;
  return is_open_ && fstat(fd_, &st) == 0 && st.st_dev == device_ && st.st_ino == inode_;
}

void Segment::forget(bool close_descriptor) {
  if (close_descriptor && is_open_) close(fd_);
  is_open_ = false;
}

}  // namespace ci
