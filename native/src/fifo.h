// The optional FIFO door for shell tools: one JSON line per record, dropped and counted when the reader
// is slow. Off unless COMMINSIGHT_FIFO names a FIFO. Used by the drain thread only.
#ifndef COMMINSIGHT_FIFO_H
#define COMMINSIGHT_FIFO_H
#include "recorder.h"

namespace ci {

class Fifo {
 public:
  void write_record(Recorder& recorder, const ci_record& record);

 private:
  bool attach(const Recorder& recorder);

  bool is_open_;
  int fd_;
  int64_t retry_at_ns_;
};

}  // namespace ci
#endif
