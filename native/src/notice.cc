// What a reader of the stream must know beside the ops: what was recorded since when, and what the NCCL door could
// not follow.
#include <cstdint>

#include "recorder.h"

namespace ci {
namespace {

uint32_t capped(int64_t n) { return n < 0 ? 0 : n > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(n); }

}  // namespace

void Recorder::publish_notice(int64_t now, uint8_t reason) {
  const ci_box_header& h = *box.header();
  ci_notice_record notice = {};
  notice.kind = CI_RECORDKIND_NOTICE;
  notice.state = CI_OPSTATE_DONE;
  notice.reason = reason;
  notice.enqueue_ns = notice.start_ns = notice.end_ns = now;
  notice.event_mask = load_relaxed(h.active_event_mask);
  notice.min_size_bytes = load_relaxed(h.active_min_size_bytes);
  notice.is_recording = load_relaxed(h.active_enabled);
  notice.profiler_mask = load_relaxed(h.active_profiler_mask);
  notice.callback_ns = load_relaxed(h.nccl_callback_ns);
  notice.n_sampled_ops = load_relaxed(h.nccl_sampled_ops);
  notice.n_stale_events = capped(load_relaxed(h.nccl_stale_events));
  notice.n_foreign_events = capped(load_relaxed(h.nccl_foreign_events));
  notice.n_unknown_events = capped(load_relaxed(h.nccl_unknown_events));
  notice.n_captured_calls = capped(load_relaxed(h.nccl_captured_calls));
  notice.n_untracked_groups = capped(load_relaxed(h.nccl_untracked_groups));
  auto* record = reinterpret_cast<ci_record*>(&notice);
  record->peer_or_root = -1;
  publish_marker(record);
}

void Recorder::lower_profiler_mask(uint32_t mask, int64_t now) {
  ci_box_header& h = *box.header();
  // In the control word too, else the next change of another one would raise it again.
  uint32_t asked = load_relaxed(h.active_profiler_mask);
  cas(h.control_profiler_mask, asked, mask);
  store_relaxed(h.active_profiler_mask, mask);
  publish_notice(now, CI_NOTICEREASON_OVERHEAD_GUARD);
}

}  // namespace ci
