// Drain thread, part three: ops that take long. An op in flight for half the safe window gets an OPEN
// marker (it holds the readers' watermark), at the overdue limit an OVERDUE one (it releases it).
#include "drain.h"

namespace ci {
namespace {

constexpr int kLeastRelief = 64;
constexpr int64_t kRoom = CI_RING_CAPACITY / 16;

// Heapsort by start: no allocation, no recursion, worst case known.
template <class T>
void sort_by_start(T* items, int n) {
  for (int end = n, root = n / 2; end > 1;) {
    if (root > 0) {
      root--;
    } else {
      end--;
      const T last = items[end];
      items[end] = items[0];
      items[0] = last;
    }
    for (int at = root, child; (child = 2 * at + 1) < end; at = child) {
      if (child + 1 < end && items[child].start_ns < items[child + 1].start_ns) child++;
      if (items[at].start_ns >= items[child].start_ns) break;
      const T swap = items[at];
      items[at] = items[child];
      items[child] = swap;
    }
  }
}

int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

}  // namespace

// Costs nothing while nothing is in flight or due.
void Drain::scan(int64_t now, bool is_last) {
  Recorder& r = *recorder_;
  relieve();
  if (r.slots.in_use() == 0 || (now < next_scan_ns_ && !is_last)) return;
  add(r.slot_scans, 1);
  const int n = collect_due(now, is_last);
  sort_by_start(due_, n);
  for (int i = 0; i < n; i++) {
    if (r.ring.head() - r.consumed_seq > CI_RING_CAPACITY / 2) drain_ring(now);
    if (r.ring.head() - r.consumed_seq > CI_RING_CAPACITY - kRoom) {
      next_scan_ns_ = now;  // a producer is late: markers wait, they must not push out records
      return;
    }
    mark(due_[i], now);
  }
}

int Drain::collect_due(int64_t now, bool is_last) {
  Recorder& r = *recorder_;
  const ci_box_header& h = *r.box.header();
  const int64_t half_window = h.active_safe_window_ns / 2;
  const int64_t limit = h.active_overdue_limit_ns;
  int n = 0;
  int64_t next = now + min(half_window, limit);
  r.slots.each_in_flight([&](int slot, uint32_t word) {
    if (slot_state(word) == CI_SLOT_OVERDUE) return;
    const int64_t start = load_relaxed(r.slots[slot].record.start_ns);
    const bool has_marker = load_relaxed(r.slots[slot].marker_ns) != 0;
    const int64_t due = start + (has_marker ? limit : min(half_window, limit));
    if (now >= due || (is_last && !has_marker)) due_[n++] = {start, slot, word};
    next = min(next, now >= due ? start + limit : due);
  });
  next_scan_ns_ = next;
  return n;
}

void Drain::mark(const Due& due, int64_t now) {
  Recorder& r = *recorder_;
  ci_slot& slot = r.slots[due.slot];
  if (r.slots.begin_marking(due.slot, due.word)) {
    ci_record record;
    r.read_slot(due.slot, &record);
    const bool is_overdue = has_lasted(now, record.start_ns, r.box.header()->active_overdue_limit_ns);
    const bool had_marker = load_relaxed(slot.marker_ns) != 0;
    if (!is_overdue || r.slots.set_overdue(due.slot, due.word)) {
      if (is_overdue) store_relaxed(slot.record.state, CI_OPSTATE_OVERDUE);
      record.state = is_overdue ? CI_OPSTATE_OVERDUE : CI_OPSTATE_OPEN;
      if (had_marker) record.flags |= CI_OPFLAG_WAS_OPEN;
      if (record.start_ns > now) record.flags |= CI_OPFLAG_FUTURE_START;
      store_relaxed(is_overdue ? slot.overdue_ns : slot.marker_ns, now);
      r.publish_marker(&record);
    }
  }
  Outcome end;
  if (r.slots.end_marking(due.slot, &end)) r.complete(due.slot, end);
}

// Slots of overdue ops go back, oldest first, but only those of communicators that used up their share: the
// flood of one communicator never costs another the evidence of its hang. A full table spares nobody.
void Drain::relieve() {
  Recorder& r = *recorder_;
  bool pressed[CI_COMM_CAPACITY + 1] = {};  // communicators may come while this looks
  bool any = false;
  bool all = false;
  for (uint32_t comm = 1; comm <= r.comms.count(); comm++) {
    uint32_t& pressure = r.comms.state(comm).slot_pressure;
    const uint32_t seen = load_relaxed(pressure) != 0 ? exchange(pressure, 0) : 0;
    pressed[comm] = seen != 0;
    any |= pressed[comm];
    all |= seen == CommState::kTableFull;
  }
  if (!any) return;
  int n = 0;
  r.slots.each_in_flight([&](int slot, uint32_t word) {
    const ci_record& record = r.slots[slot].record;
    if (slot_state(word) != CI_SLOT_OVERDUE || !(all || pressed[load_relaxed(record.comm_index)])) return;
    due_[n++] = {load_relaxed(record.start_ns), slot, word};
  });
  if (n == 0) {  // nothing is overdue yet: asked again in the next round
    for (uint32_t comm = 1; comm <= r.comms.count(); comm++)
      if (pressed[comm]) store_relaxed(r.comms.state(comm).slot_pressure, all ? CommState::kTableFull : CommState::kShareUsedUp);
    return;
  }
  sort_by_start(due_, n);
  const int keep = n / 2 < n - kLeastRelief ? n / 2 : n - kLeastRelief;
  for (int i = 0; i < n - keep && i < n; i++)
    if (r.slots.take(due_[i].slot, slot_generation(due_[i].word))) r.recycle(due_[i].slot);
}

}  // namespace ci
