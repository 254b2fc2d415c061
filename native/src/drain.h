// The drain thread: ring -> segment, markers for ops that take long, control words, clock pairs. It may
// block on a disk; nobody waits for it without a deadline.
#ifndef COMMINSIGHT_DRAIN_H
#define COMMINSIGHT_DRAIN_H
#include "fifo.h"
#include "recorder.h"
#include "writer.h"

namespace ci {

class Drain {
 public:
  void prepare(Recorder* recorder);  // control words and identity; before the box goes live
  void run();                        // the thread: until recorder->stop, then seals
  // One round; public for the native tests, which run it without a thread.
  void round(bool is_last);
  // In a forked child.
  void forget(bool directly_after_fork) {
    writer_.forget(directly_after_fork);
    fifo_.forget(directly_after_fork);
  }

 private:
  struct Due {
    int64_t start_ns;
    int32_t slot;
    uint32_t word;
  };
  struct Batch {
    int64_t next_seq;  // first number after the batch
    uint32_t n_records;
    uint32_t n_numbers;
    struct {
      uint16_t writer;  // as Recorder::writer_of
      uint16_t n_ops;   // of its record
      bool is_lost;
    } numbers[kFrameRecords];
  };

  // drain.cc
  void wait();
  void beat(int64_t now);
  void apply_control(int64_t now);
  void refresh_identity();
  void write_losses();
  void write_changed_rows();
  void tell_counters(int64_t now, bool is_last);
  // drain_ring.cc
  void drain_ring(int64_t now);
  void skip_far_behind(int64_t head);
  void collect(int64_t head, int64_t now);
  bool wait_for(int64_t seq, int64_t now);
  bool commit();
  void settle(bool in_segment);
  // scan.cc
  void scan(int64_t now, bool is_last);
  int collect_due(int64_t now, bool is_last);
  void mark(const Due& due, int64_t now);
  void relieve();

  Recorder* recorder_;
  Writer writer_;
  Fifo fifo_;
  Batch batch_;
  Due due_[CI_SLOT_CAPACITY];
  int64_t next_scan_ns_;
  int64_t stuck_seq_, stuck_since_ns_;
  int64_t consumed_in_round_;
  int64_t counters_told_;     // sum of the NCCL door's counters in the latest NOTICE
  int64_t counters_told_ns_;
  int64_t losses_written_;  // sum of the loss rows when they were last written
  int64_t disable_check_ns_;
  int64_t losses_segment_;  // segments opened when the loss rows were last written
  uint64_t changed_rows_[CI_COMM_CAPACITY / 64];
  uint32_t identity_seen_;
  bool identity_pending_;
  bool is_holding_;  // the disk did not take the records of this round
  bool is_disabled_by_file_;
  char identity_[kIdentityBytes];
};

}  // namespace ci
#endif
