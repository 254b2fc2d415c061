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
  // as SEGMENT_CAP.
  void make_room(Recorder& recorder, int64_t room_bytes);

 private:
  int open_session_dir(const Settings& settings, const ProcessFacts& facts);
  void remove_counted(Recorder& recorder, uint32_t number);

  char dir_[kPathBytes];
  int64_t lost_[CI_COMM_CAPACITY + 1];
  ci_record buffer_[512];
};

}  // namespace ci
#endif
