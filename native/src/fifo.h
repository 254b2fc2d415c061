// The optional FIFO door for shell tools: one JSON line per record, dropped and counted when the reader
// is slow. Off unless COMMINSIGHT_FIFO names a FIFO. Used by the drain thread only.
#ifndef COMMINSIGHT_FIFO_H
#define COMMINSIGHT_FIFO_H
#include "descriptor.h"
#include "recorder.h"

namespace ci {

class Fifo {
 public:
  void write_record(Recorder& recorder, const ci_record& record);
  void forget(bool directly_after_fork) { file_.forget(directly_after_fork); }

 private:
  bool attach(const Recorder& recorder);

  Descriptor file_;
  int64_t retry_at_ns_;
};

}  // namespace ci
#endif
