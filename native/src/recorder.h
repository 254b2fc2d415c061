// The recorder: one per process, behind both doors. The hot path (begin, launched, end, lose) is here
// and in recorder.cc: no allocation, no system call but the clock, no lock, no logging. The drain thread
// (drain.h) does everything that may wait.
#ifndef COMMINSIGHT_RECORDER_H
#define COMMINSIGHT_RECORDER_H
#include <pthread.h>

#include "box.h"
#include "comms.h"
#include "identity.h"
#include "ring.h"
#include "settings.h"
#include "slots.h"

// What ci_stat counts, for tests and doctor. Losses by reason stand in the loss rows of the box.
enum ci_stat : int32_t {
  CI_STAT_OPS_BEGUN = 0,        // ops that took a sequence number
  CI_STAT_RECORDS_PUSHED = 1,   // records in the ring since the start, markers and notices too
  CI_STAT_OPS_RECORDED = 2,     // ops whose final record went into the ring
  CI_STAT_OPS_IN_FLIGHT = 3,    // slots in use
  CI_STAT_LOST = 4,             // sum of all loss rows
  CI_STAT_DRAINED_SEQ = 5,      // newest record that is in a segment
  CI_STAT_DRAIN_TICKS = 6,      // rounds of the drain thread
  CI_STAT_SLOT_SCANS = 7,       // rounds that had to look at slots
  CI_STAT_PRODUCER_WAKES = 8,   // times a producer woke the drain thread
  CI_STAT_SEGMENTS_SEALED = 9,
  CI_STAT_SEGMENT_ERRNO = 10,   // 0 when segments are written
  CI_STAT_PEERS_UNPLACED = 11,  // P2P ops without match_seq: peer table full
  CI_STAT_SLOTS_RECYCLED = 12,  // overdue ops whose slot went to another op
  CI_STAT_FORK_DEPTH = 13,      // forks between this process and the first recorder
  CI_STAT_FORKED_OPS = 14,      // ops of a forked child on its parent's communicators
  CI_STAT_MARKERS_LOST = 15,    // records that are no op's end and were overwritten, refused or removed
};
constexpr int32_t kLossSumStat = 64;  // CI_STAT 64 + reason: sum over all rows of one reason

namespace ci {

// A hint about an op that is still in flight, or a record of no communicator: no op is lost with it, since
// the op's end follows and is recorded or counted by itself.
inline bool is_marker(const ci_record& record) {
  const bool is_of_kind = record.kind == CI_RECORDKIND_NET || record.kind == CI_RECORDKIND_NOTICE;
  return record.state == CI_OPSTATE_OPEN || record.state == CI_OPSTATE_OVERDUE || record.comm_index == 0 || is_of_kind;
}
// A fold of P2P stands for all of its calls, which took as many numbers; any other record for one op.
inline uint32_t ops_of(const ci_record& record) {
  const bool is_fold = record.kind == CI_RECORDKIND_P2P && (record.flags & CI_OPFLAG_COALESCED) != 0;
  return is_fold && record.n_folded > 1 ? record.n_folded : 1;
}

class Recorder {
 public:
  // Everything is in place and zeroed; creates the box. False with `why` when the process stays inert.
  bool start(const Settings& settings, uint32_t fork_depth, char* why, size_t why_bytes);

  uint32_t register_comm(const CommSpec& spec);
  // Ends its ops in flight as ABORTED.
  void retire_comm(uint32_t comm);

  // `partial` holds what the caller knows of the op; sequence numbers and times are filled in. Returns the
  // handle, 0 when the op is not tracked (and counted).
  uint64_t begin(uint32_t comm, ci_record* partial);
  // The same for an op whose op_seq, match_seq and enqueue_ns the caller has filled in. `slot_flags` are set before
  // anybody can see the slot.
  uint64_t begin_as(uint32_t comm, ci_record* partial, uint32_t slot_flags = 0);
  // The first of `n` numbers.
  uint32_t next_op_seq(uint32_t comm, uint32_t n = 1) { return add(comms.state(comm).op_seq, n) + 1; }
  uint32_t salt() const { return salt_; }
  void launched(uint64_t handle);
  bool end(uint64_t handle, uint8_t state, uint8_t timing_source);
  // The same with all that the caller knows of the times. A stale handle counts as a lost op unless `is_quiet`.
  bool end_at(uint64_t handle, const Outcome& end, bool is_quiet = false);
  void lose(uint32_t comm, uint32_t reason, int64_t count = 1);
  void lose_marker() { add(markers_lost_, 1); }
  // A record that is not an op's end: OPEN, OVERDUE, DRAIN, NOTICE. No quota.
  bool publish_marker(ci_record* record);
  // Gives way (counted as a lost marker) while the ring is half full: it must not push out ops.
  bool publish_net(ci_net_record* record);
  // What is recorded, and the counters of the NCCL door, as of now.
  void publish_notice(int64_t now, uint8_t reason);
  // Drain thread: fewer events from here on, until somebody writes the control word; told in a NOTICE.
  void lower_profiler_mask(uint32_t mask, int64_t now);
  // The op of a slot as its record would be now, channels counted.
  void read_slot(int slot, ci_record* record);
  // Everything before it may be committed.
  void drain_marker();

  int64_t stat(int32_t which) const;

  // --- for the drain thread ---
  // Completes an op whose slot the caller owns (state ENDING).
  bool complete(int slot, const Outcome& end);
  // Gives the slot of an overdue op, taken by the caller, to others.
  void recycle(int slot);
  // Says that a number of this writer has left the backlog.
  void consumed(uint32_t writer) { sub(backlog_of(writer).ring_backlog, 1); }
  // Who took number `seq`: the row of a communicator, kMarker for what is no op's end, 0 when that is not
  // known (any more), kNobody when its record was given up and counted by the producer itself.
  uint32_t writer_of(int64_t seq) const;
  uint32_t ops_of_number(int64_t seq) const { return load_relaxed(folded_[seq % kWriters]); }
  // Counts the record of a number as lost.
  void lose_number(uint32_t writer, uint32_t reason, uint32_t n_ops);
  void wake_drain();

  static constexpr uint32_t kNobody = 1023;
  static constexpr uint32_t kMarker = 1022;
  static constexpr int64_t kWriters = 8 * CI_RING_CAPACITY;  // numbers that writer_of remembers

  // Set by the NCCL door before its first op, nullptr: none. Called in each round of the drain thread; and for an op
  // that ends with CI_SLOTFLAG_NETWORK_SEEN, while its slot is still its own: true when `net` is to be published.
  void (*round_hook)(Recorder& recorder, int64_t now_ns);
  bool (*net_hook)(Recorder& recorder, int slot, const ci_record& record, ci_net_record* net);

  Box box;
  Ring ring;
  SlotTable slots;
  CommTable comms;
  Settings settings;
  ProcessFacts facts;
  Environment environment;
  int64_t created_mono_ns;
  int64_t created_real_ns;
  uint32_t* alive;      // 1 on a page that a fork wipes; 0 in a child and after close
  uint32_t is_closed;
  uint32_t fork_depth;  // upper half of the numbers given for communicators

  // In force on the hot path; written by the drain thread.
  alignas(64) uint32_t enabled;
  uint32_t event_mask;
  int64_t min_size_bytes;

  // Shared with the drain thread.
  alignas(64) int64_t consumed_seq;  // everything up to here has been drained or counted
  int64_t progress_ns;               // begin of the drain thread's latest round; 0: there is none
  alignas(64) uint32_t wake_word;
  uint32_t wake_pending;
  uint32_t stop;
  uint32_t flush_asked;
  uint32_t flush_done;
  uint32_t drain_runs;
  pthread_t drain_thread;
  char session_dir[kPathBytes];  // set once the first segment is open
  uint32_t segment_number;       // 0: none open
  int64_t ticks, slot_scans, producer_wakes, segments_sealed, slots_recycled;

 private:
  uint32_t refusal(const ci_record& record) const;
  int take_slot(uint32_t comm, uint32_t* reason);
  void fill_slot(int slot, const ci_record& record, uint32_t slot_flags);
  void free_slot(int slot, uint32_t comm);
  bool publish(uint32_t writer, ci_record* record);
  bool make_net(int slot, const ci_record& record, ci_net_record* net);
  CommState& backlog_of(uint32_t writer) { return comms.state(writer == kMarker ? 0 : writer); }
  bool is_over_ring_share(const CommState& state, int64_t backlog);
  bool is_drain_stuck();
  int64_t ops_in_flight();
  uint32_t thread_id();
  void note_writer(int64_t seq, uint32_t writer, uint32_t n_ops);

  pthread_key_t tid_key_;
  bool has_tid_key_;
  uint32_t salt_;
  int64_t* losses_;
  int64_t seen_progress_ns_;  // of the drain thread, at the latest look
  int64_t last_look_ns_;
  uint32_t looks_in_vain_;
  alignas(64) int64_t numbers_above_ops_;  // numbers of the ring, less the ops whose final records they are
  int64_t markers_lost_;
  uint16_t writers_[kWriters];  // lap << 10 | writer of a number: names what was overwritten
  uint16_t folded_[kWriters];   // ops of a number
};

}  // namespace ci
#endif
