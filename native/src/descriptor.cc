#include "descriptor.h"

#include <errno.h>
#include <unistd.h>

namespace ci {

int Descriptor::hold(int fd) {
  struct stat st;
  if (fstat(fd, &st) != 0) {
    const int error = errno;
    ::close(fd);
    return error;
  }
  is_held_ = true;
  fd_ = fd;
  device_ = st.st_dev;
  inode_ = st.st_ino;
  return 0;
}

bool Descriptor::is_ours() const {
  struct stat st;
  return is_held_ && fstat(fd_, &st) == 0 && is_file(st);
}

void Descriptor::close() {
  if (is_ours()) ::close(fd_);
  is_held_ = false;
}

void Descriptor::forget(bool directly_after_fork) {
  if (directly_after_fork) close();
  is_held_ = false;
}

}  // namespace ci
