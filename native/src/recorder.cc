#include "recorder.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

namespace ci {
namespace {

// A communicator may hold slots as long as it holds fewer than are free: one flooding communicator stops
// at half, n of them leave 1/(n+1) for the quiet ones. The ring drains quickly and may be used further.
constexpr int32_t kSlotShare = 1;
constexpr int64_t kRingShare = 8;
constexpr int64_t kWakeBacklog = CI_RING_CAPACITY / 4;
// A drain thread that makes no progress while producers look so many times, so far apart, is stuck (dead
// disk): quotas end and the ring goes back to overwriting, so that a live reader always finds the newest
// records. Looks are counted and not seconds, since after a pause of the whole machine or process the
// drain thread is late but well.
constexpr uint32_t kStuckLooks = 20;
constexpr int64_t kLookNs = 100 * kNsPerMs;

// The first n mostly, which is told quicker than any number of bits is counted.
uint8_t channels_of(uint64_t mask) {
  const bool is_run = (mask & (mask + 1)) == 0 && mask != UINT64_MAX;
  return static_cast<uint8_t>(is_run ? __builtin_ctzll(~mask) : __builtin_popcountll(mask));
}

uint32_t loss_row(uint32_t comm) { return comm < CI_COMM_CAPACITY ? comm : 0; }

}  // namespace

bool Recorder::start(const Settings& initial, uint32_t depth, char* why, size_t why_bytes) {
  settings = initial;
  fork_depth = depth;
  facts = process_facts();
  if (!box.create(settings, facts, why, why_bytes)) return false;
  ci_box_header* header = box.header();
  ring.attach(header, box.ring());
  slots.attach(box.slots(), &header->overdue_slots);
  comms.attach(header, box.comms());
  losses_ = box.losses();
  salt_ = header->salt & 65535;
  enabled = settings.enabled;
  event_mask = settings.event_mask;
  min_size_bytes = settings.min_size_bytes;
  created_mono_ns = header->created_mono_ns;
  created_real_ns = header->created_real_ns;
  header->pair_mono_ns = created_mono_ns;
  header->pair_real_ns = created_real_ns;
  header->heartbeat_mono_ns = created_mono_ns;
  has_tid_key_ = pthread_key_create(&tid_key_, nullptr) == 0;
  identity_environment({&facts, created_mono_ns, created_real_ns, nullptr, settings.safe_window_ns,
                        settings.overdue_limit_ns, settings.min_size_bytes, settings.event_mask,
                        settings.profiler_mask}, &environment);
  return true;
}

uint32_t Recorder::register_comm(const CommSpec& spec) {
  const uint32_t comm = comms.add_row(spec);
  return comm == 0 ? 0 : fork_depth << 16 | comm;
}

void Recorder::retire_comm(uint32_t comm) {
  const Outcome aborted = {mono_ns(), CI_OPSTATE_ABORTED, CI_TIMINGSOURCE_UNKNOWN};
  comms.retire(comm, aborted.end_ns);
  slots.each_in_flight([&](int slot, uint32_t word) {
    if (load_relaxed(slots[slot].record.comm_index) != comm || !slots.take(slot, slot_generation(word))) return;
    if (!slots.hand_over(slot, aborted)) complete(slot, aborted);
  });
}

uint64_t Recorder::begin(uint32_t comm, ci_record* partial) {
  partial->op_seq = next_op_seq(comm, ops_of(*partial));
  partial->match_seq = comms.next_match(comm, partial->kind, partial->op, partial->peer_or_root);
  partial->enqueue_ns = mono_ns();
  return begin_as(comm, partial);
}

uint64_t Recorder::begin_as(uint32_t comm, ci_record* partial, uint32_t slot_flags) {
  partial->comm_index = comm;
  partial->start_ns = partial->enqueue_ns;
  partial->state = CI_OPSTATE_OPEN;
  if (load_relaxed(comms.row(comm).first_op_ns) == 0) comms.note_first_op(comm, partial->start_ns);
  uint32_t reason = refusal(*partial);
  const int slot = reason == 0 ? take_slot(comm, &reason) : -1;
  if (slot < 0) {
    lose(comm, reason, ops_of(*partial));
    return 0;
  }
  fill_slot(slot, *partial, slot_flags);
  const uint32_t generation = slot_generation(load_relaxed(slots[slot].state_word));
  store_release(slots[slot].state_word, generation << 8 | CI_SLOT_IN_FLIGHT);
  return Handle{kHandleOp, comm, static_cast<uint32_t>(slot), generation, salt_}.encode();
}

uint32_t Recorder::refusal(const ci_record& record) const {
  if (load_relaxed(enabled) == 0) return CI_LOSSREASON_MASKED;
  if ((load_relaxed(event_mask) >> (record.op & 31) & 1) == 0) return CI_LOSSREASON_MASKED;
  // Elements of an unknown type (NCCL names no uint8): their size is not known, and not small.
  const bool has_size = record.size_bytes != 0 || record.count == 0;
  if (has_size && record.size_bytes < load_relaxed(min_size_bytes)) return CI_LOSSREASON_BELOW_MIN_SIZE;
  return 0;
}

int Recorder::take_slot(uint32_t comm, uint32_t* reason) {
  CommState& state = comms.state(comm);
  const int32_t held = add(state.slots_held, 1) + 1;
  const int32_t free = CI_SLOT_CAPACITY - static_cast<int32_t>(slots.in_use());
  int slot = -1;
  *reason = CI_LOSSREASON_SLOT_QUOTA;
  if (held <= kSlotShare * free) {
    slot = slots.claim(comm * 7);
    *reason = CI_LOSSREASON_SLOTS_FULL;
  }
  if (slot < 0) {
    sub(state.slots_held, 1);
    const bool is_full = held <= kSlotShare * free;
    store_relaxed(state.slot_pressure, is_full ? CommState::kTableFull : CommState::kShareUsedUp);
  }
  return slot;
}

void Recorder::fill_slot(int slot, const ci_record& record, uint32_t slot_flags) {
  ci_slot& s = slots[slot];
  store_words(&s.record, &record, sizeof record);
  store_relaxed(s.owner_tid, thread_id());
  clear_words(&s.launch_ns, sizeof s - offsetof(ci_slot, launch_ns));
  if (slot_flags != 0) store_relaxed(s.slot_flags, slot_flags);
}

void Recorder::launched(uint64_t handle) {
  const Handle h = Handle::decode(handle);
  if (h.type != kHandleOp || h.salt != salt_) return;
  ci_slot& slot = slots[static_cast<int>(h.slot)];
  if (slot_generation(load_acquire(slot.state_word)) == h.generation) store_relaxed(slot.launch_ns, mono_ns());
}

bool Recorder::end(uint64_t handle, uint8_t state, uint8_t timing_source) {
  return end_at(handle, {mono_ns(), state, timing_source});
}

bool Recorder::end_at(uint64_t handle, const Outcome& end, bool is_quiet) {
  const Handle h = Handle::decode(handle);
  const auto slot = static_cast<int>(h.slot);
  const bool is_ours = h.type == kHandleOp && h.salt == salt_ && h.comm <= CI_COMM_CAPACITY;
  if (!is_ours || !slots.take(slot, h.generation)) {
    if (!is_quiet) lose(is_ours ? h.comm : 0, CI_LOSSREASON_STALE_HANDLE);
    return false;
  }
  return slots.hand_over(slot, end) || complete(slot, end);
}

bool Recorder::complete(int slot, const Outcome& end) {
  const ci_slot& s = slots[slot];
  ci_record record;
  read_slot(slot, &record);
  record.end_ns = end.end_ns;
  record.state = end.state;
  record.timing_source = end.timing_source;
  record.reason = end.reason;
  if (end.start_ns != 0) record.start_ns = end.start_ns;
  if (end.state == CI_OPSTATE_DONE) {  // else what the slot has seen so far is all there is
    record.gpu_start_ns = end.gpu_start_ns;
    record.gpu_end_ns = end.gpu_end_ns;
  }
  record.clock_error_ns = end.clock_error_ns;
  if (load_relaxed(s.marker_ns) != 0) record.flags |= CI_OPFLAG_WAS_OPEN;
  if (load_relaxed(s.overdue_ns) != 0) record.flags |= CI_OPFLAG_WAS_OVERDUE;
  if (record.start_ns > end.end_ns) record.flags |= CI_OPFLAG_FUTURE_START;
  if (end.state == CI_OPSTATE_UNOBSERVABLE) {
    record.flags |= CI_OPFLAG_END_UNSEEN;
    record.end_ns = 0;
  }
  ci_net_record net;
  const bool has_net = make_net(slot, record, &net);
  const bool written = publish(record.comm_index, &record);
  free_slot(slot, record.comm_index);  // after the record: a process killed in between leaves both, not none
  if (has_net) publish_net(&net);
  return written;
}

void Recorder::read_slot(int slot, ci_record* record) {
  const ci_slot& s = slots[slot];
  load_words(record, &s.record, sizeof *record);
  if ((load_relaxed(s.slot_flags) & CI_SLOTFLAG_NCCL) == 0) return;
  record->channels_started = channels_of(load_relaxed(s.started_mask));
  record->channels_stopped = channels_of(load_relaxed(s.stopped_mask));
}

bool Recorder::make_net(int slot, const ci_record& record, ci_net_record* net) {
  if ((load_relaxed(slots[slot].slot_flags) & CI_SLOTFLAG_NETWORK_SEEN) == 0) return false;
  const auto hook = load_acquire(net_hook);
  return hook != nullptr && hook(*this, slot, record, net);
}

void Recorder::free_slot(int slot, uint32_t comm) {
  slots.release(slot);
  sub(comms.state(comm).slots_held, 1);
}

void Recorder::recycle(int slot) {
  ci_record record;
  read_slot(slot, &record);
  // An end that comes through the C door finds a stale handle and counts one; NCCL's tells nobody.
  const bool is_told = (load_relaxed(slots[slot].slot_flags) & CI_SLOTFLAG_NCCL) == 0;
  const uint32_t n_ops = ops_of(record) - (is_told ? 1 : 0);
  free_slot(slot, record.comm_index);
  if (n_ops != 0) lose(record.comm_index, CI_LOSSREASON_STALE_HANDLE, n_ops);
  add(slots_recycled, 1);
}

bool Recorder::publish(uint32_t writer, ci_record* record) {
  CommState& state = backlog_of(writer);
  add(state.ring_backlog, 1);
  const int64_t backlog = ring.head() - load_relaxed(consumed_seq);
  if (writer != kMarker && is_over_ring_share(state, backlog)) {
    sub(state.ring_backlog, 1);
    lose(writer, CI_LOSSREASON_RING_QUOTA, ops_of(*record));
    return false;
  }
  const uint32_t n_ops = writer != kMarker ? ops_of(*record) : 0;
  if (n_ops != 1) sub(numbers_above_ops_, int64_t{n_ops} - 1);
  const int64_t seq = ring.take();
  note_writer(seq, writer, n_ops);
  const bool written = ring.put(seq, record);
  if (!written) {
    add(numbers_above_ops_, n_ops);
    note_writer(seq, kNobody, 0);
    sub(state.ring_backlog, 1);
    lose_number(writer, CI_LOSSREASON_RING_OVERWRITTEN, ops_of(*record));
  }
  if (backlog >= kWakeBacklog && load_relaxed(wake_pending) == 0 && exchange(wake_pending, 1) == 0) {
    add(producer_wakes, 1);
    wake_drain();
  }
  return written;
}

bool Recorder::is_over_ring_share(const CommState& state, int64_t backlog) {
  if (load_relaxed(state.ring_backlog) <= kRingShare * (CI_RING_CAPACITY - backlog)) return false;
  return !is_drain_stuck();
}

bool Recorder::is_drain_stuck() {
  const int64_t progress = load_relaxed(progress_ns);
  if (progress == 0) return true;  // there is none
  if (load_relaxed(seen_progress_ns_) != progress) {
    store_relaxed(seen_progress_ns_, progress);
    store_relaxed(looks_in_vain_, 0);
  }
  const int64_t now = mono_ns();
  int64_t last = load_relaxed(last_look_ns_);
  if (now - last >= kLookNs && cas(last_look_ns_, last, now)) add(looks_in_vain_, 1);
  return load_relaxed(looks_in_vain_) > kStuckLooks;
}

bool Recorder::publish_marker(ci_record* record) { return publish(kMarker, record); }

bool Recorder::publish_net(ci_net_record* record) {
  if (ring.head() - load_relaxed(consumed_seq) > CI_RING_CAPACITY / 2) {
    lose_marker();
    return false;
  }
  return publish(kMarker, reinterpret_cast<ci_record*>(record));
}

void Recorder::drain_marker() {
  ci_record record = {};
  record.kind = CI_RECORDKIND_DRAIN;
  record.state = CI_OPSTATE_DONE;
  record.peer_or_root = -1;
  record.enqueue_ns = record.start_ns = record.end_ns = mono_ns();
  publish_marker(&record);
}

void Recorder::lose(uint32_t comm, uint32_t reason, int64_t count) {
  if (reason >= CI_LOSS_REASONS) reason = CI_LOSSREASON_UNKNOWN;
  add(losses_[loss_row(comm) * CI_LOSS_REASONS + reason], count);
}

void Recorder::lose_number(uint32_t writer, uint32_t reason, uint32_t n_ops) {
  if (writer == kMarker) lose_marker();
  else lose(writer, reason, n_ops);
}

void Recorder::note_writer(int64_t seq, uint32_t writer, uint32_t n_ops) {
  store_relaxed(folded_[seq % kWriters], n_ops);
  store_relaxed(writers_[seq % kWriters], (seq / kWriters & 63) << 10 | writer);
}

uint32_t Recorder::writer_of(int64_t seq) const {
  const uint16_t noted = load_relaxed(writers_[seq % kWriters]);
  return noted >> 10 == (seq / kWriters & 63) ? noted & 1023 : 0;
}

void Recorder::wake_drain() {
  add(wake_word, 1);
  futex_wake(wake_word);
}

// A key's value needs no thread-local segment, unlike `thread_local` in a library that is loaded late. The
// C library allocates for it at most once per thread, at that thread's first op, and only in a process with
// more than 32 keys. A forked child inherits the value, hence the depth in its upper half.
uint32_t Recorder::thread_id() {
  const uint64_t known = has_tid_key_ ? reinterpret_cast<uint64_t>(pthread_getspecific(tid_key_)) : 0;
  const uint64_t mark = uint64_t{fork_depth} + 1;
  if (known >> 32 == mark) return static_cast<uint32_t>(known);
  const auto tid = static_cast<uint32_t>(syscall(SYS_gettid));
  if (has_tid_key_) pthread_setspecific(tid_key_, reinterpret_cast<void*>(mark << 32 | tid));
  return tid;
}

int64_t Recorder::ops_in_flight() {
  int64_t n = slots.in_use();
  slots.each_in_flight([&](int slot, uint32_t) {
    ci_record record;
    read_slot(slot, &record);
    n += ops_of(record) - 1;
  });
  return n;
}

int64_t Recorder::stat(int32_t which) const {
  auto& self = const_cast<Recorder&>(*this);
  int64_t sum = 0;
  switch (which) {
    case CI_STAT_OPS_BEGUN:
      for (uint32_t comm = 1; comm <= comms.count(); comm++) sum += load_relaxed(self.comms.state(comm).op_seq);
      return sum;
    case CI_STAT_RECORDS_PUSHED: return ring.head();
    case CI_STAT_OPS_RECORDED: return ring.head() - load_relaxed(numbers_above_ops_);
    case CI_STAT_OPS_IN_FLIGHT: return self.ops_in_flight();
    case CI_STAT_LOST:
      for (int64_t i = 0; i < CI_COMM_CAPACITY * CI_LOSS_REASONS; i++) sum += load_relaxed(losses_[i]);
      return sum;
    case CI_STAT_DRAINED_SEQ: return load_relaxed(box.header()->drained_seq);
    case CI_STAT_DRAIN_TICKS: return load_relaxed(ticks);
    case CI_STAT_SLOT_SCANS: return load_relaxed(slot_scans);
    case CI_STAT_PRODUCER_WAKES: return load_relaxed(producer_wakes);
    case CI_STAT_SEGMENTS_SEALED: return load_relaxed(segments_sealed);
    case CI_STAT_SEGMENT_ERRNO: return load_relaxed(box.header()->segment_errno);
    case CI_STAT_PEERS_UNPLACED: return static_cast<int64_t>(comms.peers_unplaced());
    case CI_STAT_SLOTS_RECYCLED: return load_relaxed(slots_recycled);
    case CI_STAT_FORK_DEPTH: return fork_depth;
    case CI_STAT_MARKERS_LOST: return load_relaxed(markers_lost_);
  }
  if (which < kLossSumStat || which >= kLossSumStat + CI_LOSS_REASONS) return -1;
  for (int64_t row = 0; row < CI_COMM_CAPACITY; row++)
    sum += load_relaxed(losses_[row * CI_LOSS_REASONS + which - kLossSumStat]);
  return sum;
}

}  // namespace ci
