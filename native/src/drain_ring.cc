// Drain thread, part two: from the ring into OPS frames, with every number accounted for once.
#include <string.h>

#include "drain.h"

namespace ci {
namespace {
// A producer that took a number and does not write: its thread was killed, or the machine is overloaded.
constexpr int64_t kStuckNs = kNsPerS;
// While the disk does not take them, records wait in the ring up to this many; then the oldest go.
constexpr int64_t kHeldRecords = CI_RING_CAPACITY / 2;
}  // namespace

void Drain::drain_ring(int64_t now) {
  Recorder& r = *recorder_;
  const int64_t head = r.ring.head();
  write_changed_rows();  // registered before the records that follow
  skip_far_behind(head);
  while (load_relaxed(r.consumed_seq) < head) {
    collect(head, now);
    if (batch_.n_numbers == 0 || !commit()) return;
    store_release(r.progress_ns, mono_ns());
  }
}

// So far behind that nobody remembers who wrote what: counted in one go, and the shares start anew.
void Drain::skip_far_behind(int64_t head) {
  Recorder& r = *recorder_;
  const int64_t lost = head - Recorder::kWriters - r.consumed_seq;
  if (lost <= 0) return;
  r.lose(0, CI_LOSSREASON_RING_OVERWRITTEN, lost);
  store_release(r.consumed_seq, r.consumed_seq + lost);
  for (uint32_t comm = 0; comm <= CI_COMM_CAPACITY; comm++) store_relaxed(r.comms.state(comm).ring_backlog, 0);
}

void Drain::collect(int64_t head, int64_t now) {
  Recorder& r = *recorder_;
  auto* records = static_cast<ci_record*>(writer_.payload());
  batch_.n_records = batch_.n_numbers = 0;
  int64_t seq = r.consumed_seq + 1;
  for (; seq <= head && batch_.n_numbers < kFrameRecords; seq++) {
    ci_record& record = records[batch_.n_records];
    const Ring::Read read = r.ring.read(seq, &record);
    uint32_t writer = r.writer_of(seq);
    if (read == Ring::kGot) writer = is_marker(record) ? Recorder::kMarker : record.comm_index;
    if (read == Ring::kPending && writer != Recorder::kNobody && wait_for(seq, now)) break;
    if (read == Ring::kGot) batch_.n_records++;
    const uint32_t n_ops = read == Ring::kGot ? ops_of(record) : r.ops_of_number(seq);
    batch_.numbers[batch_.n_numbers++] = {static_cast<uint16_t>(writer), static_cast<uint16_t>(n_ops),
                                          read != Ring::kGot};
  }
  batch_.next_seq = seq;
}

bool Drain::wait_for(int64_t seq, int64_t now) {
  if (stuck_seq_ != seq) {
    stuck_seq_ = seq;
    stuck_since_ns_ = now;
  }
  if (now - stuck_since_ns_ < kStuckNs) return true;
  stuck_seq_ = 0;
  return false;
}

// False when the batch stays in the ring for another try.
bool Drain::commit() {
  Recorder& r = *recorder_;
  bool in_segment = batch_.n_records == 0;
  if (!in_segment) {
    auto* records = static_cast<ci_record*>(writer_.payload());
    const int64_t first = records[0].seq;
    const int64_t last = records[batch_.n_records - 1].seq;
    in_segment = writer_.frame(r, CI_FRAME_OPS, batch_.n_records, batch_.n_records * sizeof(ci_record), first) == 0;
    if (in_segment) store_release(r.box.header()->drained_seq, last);
  }
  const bool may_wait = !writer_.is_refused() && load_acquire(r.stop) == 0;
  if (!in_segment && may_wait && r.ring.head() - r.consumed_seq < kHeldRecords) {
    is_holding_ = true;
    return false;
  }
  settle(in_segment);
  return true;
}

void Drain::settle(bool in_segment) {
  Recorder& r = *recorder_;
  const auto* records = static_cast<const ci_record*>(writer_.payload());
  const bool counts_failure = !in_segment && !writer_.is_refused();
  for (uint32_t i = 0; i < batch_.n_numbers; i++) {
    const uint32_t writer = batch_.numbers[i].writer;
    const uint32_t n_ops = batch_.numbers[i].n_ops;
    if (writer > CI_COMM_CAPACITY && writer != Recorder::kMarker) continue;  // kNobody: counted by its producer
    r.consumed(writer);
    if (batch_.numbers[i].is_lost) r.lose_number(writer, CI_LOSSREASON_RING_OVERWRITTEN, n_ops);
    else if (counts_failure) r.lose_number(writer, CI_LOSSREASON_SEGMENT_WRITE, n_ops);
  }
  for (uint32_t i = 0; i < batch_.n_records; i++) fifo_.write_record(r, records[i]);
  stuck_seq_ = 0;
  consumed_in_round_ += batch_.n_numbers;
  store_release(r.consumed_seq, batch_.next_seq - 1);
}

}  // namespace ci
