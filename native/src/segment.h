// One segment file: opened with its preface, grown by whole frames, sealed by a rename.
#ifndef COMMINSIGHT_SEGMENT_H
#define COMMINSIGHT_SEGMENT_H
#include <cstddef>
#include <cstdint>

#include "descriptor.h"
#include "host.h"

namespace ci {

class Segment {
 public:
  // Creates <dir>/<number>.ciseg.open, with the next free number from `number` on. All functions:
  // 0 or errno; a failed append leaves whole frames only.
  int create(const char* dir, uint32_t* number);
  int append(const void* frames, size_t bytes);
  int seal();
  // Deletes a file that never got its preface.
  void discard();

  bool is_open() const { return is_open_; }
  int64_t bytes() const { return bytes_; }
  void forget(bool directly_after_fork);

 private:
  bool is_open_;  // all members are born zeroed
  Descriptor file_;
  int64_t bytes_;
  char path_[kPathBytes + 32];
};

}  // namespace ci
#endif
