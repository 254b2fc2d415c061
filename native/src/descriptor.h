// A file descriptor that is kept. The application may close all numbers it does not know (closefrom) and get
// ours back for a file of its own: every later use asks first whether the number still names our file.
#ifndef COMMINSIGHT_DESCRIPTOR_H
#define COMMINSIGHT_DESCRIPTOR_H
#include <sys/stat.h>

namespace ci {

class Descriptor {  // born zeroed: holds nothing
 public:
  // Takes over an open descriptor. 0 or errno; on an error it is closed.
  int hold(int fd);
  bool is_ours() const;
  bool is_file(const struct stat& st) const { return st.st_dev == device_ && st.st_ino == inode_; }
  // For use directly after is_ours().
  int number() const { return fd_; }
  void close();  // only what is ours
  // In a forked child. Long after the fork even our own file under our number may be the child's own doing.
  void forget(bool directly_after_fork);

 private:
  bool is_held_;
  int fd_;
  dev_t device_;
  ino_t inode_;
};

}  // namespace ci
#endif
