#include "drain.h"

#include <string.h>
#include <unistd.h>

namespace ci {
namespace {
constexpr int64_t kHurryNs = 2 * kNsPerMs;  // while records arrive fast
constexpr int64_t kCountersNs = 10 * kNsPerS;
}

void Drain::prepare(Recorder* recorder) {
  recorder_ = recorder;
  ci_box_header& h = *recorder->box.header();
  const Settings& s = recorder->settings;
  h.control_enabled = h.active_enabled = s.enabled;
  h.control_event_mask = h.active_event_mask = s.event_mask;
  h.control_profiler_mask = h.active_profiler_mask = s.profiler_mask;
  h.control_min_size_bytes = h.active_min_size_bytes = s.min_size_bytes;
  h.control_overdue_limit_ns = h.active_overdue_limit_ns = s.overdue_limit_ns;
  h.control_safe_window_ns = h.active_safe_window_ns = s.safe_window_ns;
  identity_seen_ = identity_version();
  recorder->box.store_json(identity_, current_identity(*recorder, identity_));
}

void Drain::run() {
  store_release(recorder_->box.header()->drain_running, 1);
  while (load_acquire(recorder_->stop) == 0) {
    round(false);
    wait();
  }
  round(true);
  writer_.seal(*recorder_);
  store_release(recorder_->segment_number, 0);
  store_release(recorder_->box.header()->drain_running, 0);
  recorder_->box.mark_closed();
}

void Drain::round(bool is_last) {
  Recorder& r = *recorder_;
  const uint32_t asked = load_acquire(r.flush_asked);
  store_release(r.wake_pending, 0);
  const int64_t now = mono_ns();
  consumed_in_round_ = 0;
  is_holding_ = false;
  beat(now);
  apply_control(now);
  if (const auto hook = load_acquire(r.round_hook)) hook(r, now);
  tell_counters(now, is_last);
  refresh_identity();
  writer_.open(r);
  drain_ring(now);
  scan(now, is_last);
  if (is_last) r.drain_marker();
  drain_ring(now);
  write_changed_rows();
  write_losses();
  // Waking would not help the disk: producers stay away from the futex meanwhile.
  if (is_holding_) store_release(r.wake_pending, 1);
  add(r.ticks, 1);
  store_release(r.flush_done, asked);
  futex_wake(r.flush_done);
}

void Drain::wait() {
  Recorder& r = *recorder_;
  const uint32_t seen = load_acquire(r.wake_word);
  const bool is_asked = load_acquire(r.stop) != 0 || load_acquire(r.flush_asked) != load_relaxed(r.flush_done);
  if (is_asked || (load_acquire(r.wake_pending) != 0 && !is_holding_)) return;
  int64_t pause = consumed_in_round_ > CI_RING_CAPACITY / 16 || stuck_seq_ != 0 ? kHurryNs : r.settings.flush_ns;
  if (r.slots.in_use() != 0) {
    const int64_t until_scan = next_scan_ns_ - mono_ns();
    if (until_scan < pause) pause = until_scan > kNsPerMs ? until_scan : kNsPerMs;
  }
  futex_wait(r.wake_word, seen, pause);
}

void Drain::beat(int64_t now) {
  ci_box_header& h = *recorder_->box.header();
  store_release(recorder_->progress_ns, now);
  recorder_->box.keep_lock();
  store_relaxed(h.heartbeat_mono_ns, now);
  store_relaxed(h.pair_mono_ns, now);
  store_relaxed(h.pair_real_ns, real_ns());
}

void Drain::apply_control(int64_t now) {
  ci_box_header& h = *recorder_->box.header();
  bool is_off = is_disabled_by_file_;
  if (now >= disable_check_ns_) {
    disable_check_ns_ = now + kNsPerS;
    is_off = access(recorder_->settings.disable_file, F_OK) == 0;
  }
  const uint32_t generation = load_acquire(h.control_generation);
  if (generation == h.active_generation && is_off == is_disabled_by_file_) return;
  is_disabled_by_file_ = is_off;
  store_relaxed(h.active_enabled, load_relaxed(h.control_enabled) != 0 && !is_off);
  store_relaxed(h.active_event_mask, load_relaxed(h.control_event_mask));
  store_relaxed(h.active_profiler_mask, load_relaxed(h.control_profiler_mask));
  store_relaxed(h.active_min_size_bytes, clamp_min_size_bytes(load_relaxed(h.control_min_size_bytes)));
  store_relaxed(h.active_overdue_limit_ns, clamp_overdue_limit_ns(load_relaxed(h.control_overdue_limit_ns)));
  store_relaxed(h.active_safe_window_ns, clamp_safe_window_ns(load_relaxed(h.control_safe_window_ns)));
  store_release(h.active_generation, generation);
  store_relaxed(recorder_->enabled, h.active_enabled);
  store_relaxed(recorder_->event_mask, h.active_event_mask);
  store_relaxed(recorder_->min_size_bytes, h.active_min_size_bytes);
  next_scan_ns_ = 0;
  identity_seen_ = identity_version() - 1;  // the settings are part of it
  recorder_->publish_notice(now, CI_NOTICEREASON_CONTROL);
}

// What the NCCL door could not follow belongs into the stream, but not in every round.
void Drain::tell_counters(int64_t now, bool is_last) {
  const ci_box_header& h = *recorder_->box.header();
  // Sampled time is told along, it changes with the samples.
  const int64_t sum = load_relaxed(h.nccl_stale_events) + load_relaxed(h.nccl_foreign_events) +
                      load_relaxed(h.nccl_unknown_events) + load_relaxed(h.nccl_captured_calls) +
                      load_relaxed(h.nccl_untracked_groups) + load_relaxed(h.nccl_sampled_ops);
  if (sum == counters_told_ || (now - counters_told_ns_ < kCountersNs && !is_last)) return;
  counters_told_ = sum;
  counters_told_ns_ = now;
  recorder_->publish_notice(now, CI_NOTICEREASON_COUNTERS);
}

void Drain::refresh_identity() {
  const uint32_t version = identity_version();
  if (version != identity_seen_) {
    identity_seen_ = version;
    identity_pending_ = writer_.segments_opened() > 0;  // a segment to come holds it in its header
    recorder_->box.store_json(identity_, current_identity(*recorder_, identity_));
  }
  if (!identity_pending_) return;
  const size_t bytes = current_identity(*recorder_, identity_);
  memcpy(writer_.payload(), identity_, bytes);
  identity_pending_ = writer_.frame(*recorder_, CI_FRAME_IDENTITY, 1, bytes) != 0;
}

void Drain::write_losses() {
  const int64_t sum = recorder_->stat(CI_STAT_LOST);
  const bool is_told = sum == losses_written_ && losses_segment_ == writer_.segments_opened();
  if (sum == 0 || is_told) return;
  uint32_t rows = recorder_->comms.count() + 1;
  if (rows > CI_COMM_CAPACITY) rows = CI_COMM_CAPACITY;
  load_words(writer_.payload(), recorder_->box.losses(), rows * CI_LOSS_ROW_BYTES);
  if (writer_.frame(*recorder_, CI_FRAME_LOSSES, rows, rows * CI_LOSS_ROW_BYTES) != 0) return;
  losses_written_ = sum;
  losses_segment_ = writer_.segments_opened();
}

void Drain::write_changed_rows() {
  uint64_t fresh[CI_COMM_CAPACITY / 64];
  if (recorder_->comms.take_changed(fresh))
    for (size_t i = 0; i < CI_COMM_CAPACITY / 64; i++) changed_rows_[i] |= fresh[i];
  auto* rows = static_cast<ci_comm_row*>(writer_.payload());
  constexpr uint32_t kRows = 64;
  for (size_t i = 0; i < CI_COMM_CAPACITY / 64; i++) {
    uint32_t n = 0;
    for (uint64_t bits = changed_rows_[i]; bits != 0 && n < kRows; bits &= bits - 1) {
      const auto comm = static_cast<uint32_t>(i * 64 + static_cast<size_t>(__builtin_ctzll(bits)) + 1);
      load_words(&rows[n++], &recorder_->comms.row(comm), sizeof(ci_comm_row));
    }
    if (n > 0 && writer_.frame(*recorder_, CI_FRAME_COMMS, n, n * sizeof(ci_comm_row)) == 0) changed_rows_[i] = 0;
  }
}

}  // namespace ci
