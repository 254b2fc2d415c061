#include "segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

namespace ci {

int Segment::create(const char* dir, uint32_t* number) {
  int fd = -1;
  for (; *number < 1000000; ++*number) {
    snprintf(path_, sizeof path_, "%s/%06u.ciseg.open", dir, *number);
    fd = open(path_, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 || errno != EEXIST) break;
  }
  if (fd < 0) return errno;
  if (const int error = file_.hold(fd)) return error;
  is_open_ = true;
  bytes_ = 0;
  return 0;
}

int Segment::append(const void* frames, size_t bytes) {
  if (!file_.is_ours()) {
    is_open_ = false;  // the application closed it; the number may be its own file now
    return EBADF;
  }
  const int error = write_all(file_.number(), frames, bytes, bytes_);
  if (error == 0)
    bytes_ += static_cast<int64_t>(bytes);
  else if (ftruncate(file_.number(), bytes_) != 0)
    return errno;  // the next append writes over the torn frame all the same
  return error;
}

int Segment::seal() {
  char sealed[sizeof path_];
  snprintf(sealed, sizeof sealed, "%s", path_);
  sealed[strlen(sealed) - strlen(".open")] = 0;
  file_.close();
  is_open_ = false;
  return rename(path_, sealed) == 0 ? 0 : errno;
}

void Segment::discard() {
  file_.close();
  is_open_ = false;
  unlink(path_);
}

void Segment::forget(bool directly_after_fork) {
  file_.forget(directly_after_fork);
  is_open_ = false;
}

}  // namespace ci
