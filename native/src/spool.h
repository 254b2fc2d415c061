// The node-local directory of segments: one directory per life of a recorder, and a cap on what it holds.
#ifndef COMMINSIGHT_SPOOL_H
#define COMMINSIGHT_SPOOL_H
#include "recorder.h"

namespace ci {

class Spool {
 public:
  // Makes <spool>/<session id>; a process that replaced itself (exec) finds its old directory and takes
  // "<session id>.2", so that one directory is one stream. 0 or errno; EREMOTE: a network file system,
  // refused for good.
  int prepare(const Settings& settings, const ProcessFacts& facts);
  const char* dir() const { return dir_; }
  // Removes the oldest sealed segments until `room_bytes` more fit under the cap; their ops are counted
  // as SEGMENT_CAP. 0 or errno: one that cannot be removed stops it, and the cap holds only if nothing more
  // is written.
  int make_room(Recorder& recorder, int64_t room_bytes);

 private:
  int open_session_dir(const Settings& settings, const ProcessFacts& facts);
  int remove_counted(Recorder& recorder, const char* path);
  void count_lost(Recorder& recorder, int fd, int64_t file_bytes);
  bool count_frame(Recorder& recorder, int fd, const ci_frame_header& frame, int64_t payload_at);

  char dir_[kPathBytes];
  bool has_told_;
  int64_t lost_[CI_COMM_CAPACITY + 1];
  ci_record buffer_[512];
};

}  // namespace ci
#endif
