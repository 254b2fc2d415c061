// How ops of the NCCL door end: at stated times, for a reason, as folds that stand for many, with a network summary
// behind them; and that what is no op never counts as one.
#include "../comminsight.h"
#include "life.h"
#include "stage.h"

using namespace ci;

namespace {

uint64_t begin(Recorder& r, ci_record record, uint32_t slot_flags, uint32_t comm = 1) {
  record.op_seq = r.next_op_seq(comm, ops_of(record));
  record.enqueue_ns = mono_ns();
  return r.begin_as(comm, &record, slot_flags);
}

ci_record collective() {
  ci_record record = {};
  record.kind = CI_RECORDKIND_COLLECTIVE;
  record.op = CI_OP_ALL_REDUCE;
  return record;
}

ci_record fold(uint16_t n) {
  ci_record record = {};
  record.kind = CI_RECORDKIND_P2P;
  record.op = CI_OP_ALL_TO_ALL;
  record.flags = CI_OPFLAG_COALESCED;
  record.n_folded = n;
  return record;
}

bool make_net(Recorder&, int, const ci_record& record, ci_net_record* net) {
  *net = {};
  net->kind = CI_RECORDKIND_NET;
  net->state = CI_OPSTATE_DONE;
  net->comm_index = record.comm_index;
  net->op_seq = record.op_seq;
  net->done_bytes = 77;
  return true;
}

int64_t rounds = 0;
void note_round(Recorder& r, int64_t now) {
  if (__atomic_fetch_add(&rounds, 1, __ATOMIC_RELAXED) == 0) r.lower_profiler_mask(0xF00, now);
}

void play(Recorder& r) {
  const uint64_t timed = begin(r, collective(), CI_SLOTFLAG_NCCL);
  ci_slot& slot = r.slots[static_cast<int>(Handle::decode(timed).slot)];
  CHECK_EQ(slot.slot_flags, CI_SLOTFLAG_NCCL);
  store_relaxed(slot.started_mask, 0xF00u);
  store_relaxed(slot.stopped_mask, 0x300u);
  Outcome end = {1000, CI_OPSTATE_DONE, CI_TIMINGSOURCE_GPU};
  end.start_ns = 900;
  end.gpu_start_ns = 5900;
  end.gpu_end_ns = 6000;
  end.clock_error_ns = 12;
  CHECK(r.end_at(timed, end));
  CHECK(!r.end_at(timed, end, true));
  CHECK_EQ(r.stat(CI_STAT_LOST), 0);
  Outcome unseen = {mono_ns(), CI_OPSTATE_UNOBSERVABLE, 0};
  unseen.reason = CI_ENDREASON_NO_TASK;
  CHECK(r.end_at(begin(r, collective(), CI_SLOTFLAG_NCCL), unseen));
  CHECK(r.end(begin(r, collective(), CI_SLOTFLAG_NCCL | CI_SLOTFLAG_NETWORK_SEEN), CI_OPSTATE_DONE, 0));
  const uint64_t fan = begin(r, fold(20), CI_SLOTFLAG_NCCL);
  CHECK_EQ(r.stat(CI_STAT_OPS_IN_FLIGHT), 20);
  CHECK(r.end(fan, CI_OPSTATE_DONE, 0));
  store_relaxed(r.enabled, 0);
  CHECK_EQ(begin(r, fold(30), CI_SLOTFLAG_NCCL), 0);
  store_relaxed(r.enabled, 1);
  add(r.box.header()->nccl_stale_events, 3);
  CHECK_EQ(r.stat(CI_STAT_OPS_BEGUN), 3 + 20 + 30);
  CHECK_EQ(r.stat(CI_STAT_OPS_RECORDED), 3 + 20);
  CHECK_EQ(r.stat(CI_STAT_LOST), 30);
}

// Ops that never end fill a communicator's share; once overdue, their slots go to others. Late ends are not told.
void recycled_ops_are_counted(Recorder& r) {
  std::vector<uint64_t> handles;
  for (uint64_t handle; (handle = begin(r, fold(3), CI_SLOTFLAG_NCCL, 2)) != 0;) handles.push_back(handle);
  usleep(150000);
  CHECK_EQ(ci_flush(20000), 0);
  for (int i = 0; i < 100 && r.stat(CI_STAT_SLOTS_RECYCLED) == 0; i++) {
    CHECK_EQ(begin(r, collective(), CI_SLOTFLAG_NCCL, 2), 0);
    CHECK_EQ(ci_flush(20000), 0);
  }
  CHECK(r.stat(CI_STAT_SLOTS_RECYCLED) > 0);
  for (const uint64_t handle : handles) r.end_at(handle, {mono_ns(), CI_OPSTATE_DONE, 0}, true);
  CHECK_EQ(r.stat(CI_STAT_OPS_IN_FLIGHT), 0);
  CHECK_EQ(r.stat(CI_STAT_OPS_RECORDED) + r.stat(CI_STAT_LOST), r.stat(CI_STAT_OPS_BEGUN));
}

// A removed segment with a fold in it costs as many ops as the fold stands for, a network summary none.
void markers_are_told_apart() {
  ci_record net = collective();
  net.comm_index = 1;
  net.state = CI_OPSTATE_DONE;
  CHECK(!is_marker(net));
  net.kind = CI_RECORDKIND_NET;
  CHECK(is_marker(net));
  net.kind = CI_RECORDKIND_NOTICE;
  CHECK(is_marker(net));
  CHECK_EQ(ops_of(fold(0)), 1);
  CHECK_EQ(ops_of(fold(300)), 300);
  ci_record coalesced = collective();  // one call of many tensors
  coalesced.flags = CI_OPFLAG_COALESCED;
  coalesced.n_folded = 5;
  CHECK_EQ(ops_of(coalesced), 1);
}

const ci_record* find(const std::vector<ci_record>& records, uint8_t kind, uint32_t op_seq) {
  for (const ci_record& r : records)
    if (r.kind == kind && r.op_seq == op_seq) return &r;
  return nullptr;
}

void records_say_it(const std::vector<ci_record>& records) {
  const ci_record* timed = find(records, CI_RECORDKIND_COLLECTIVE, 1);
  CHECK(timed != nullptr && timed->start_ns == 900 && timed->end_ns == 1000 && timed->clock_error_ns == 12);
  CHECK(timed != nullptr && timed->gpu_start_ns == 5900 && timed->gpu_end_ns == 6000);
  CHECK(timed != nullptr && timed->channels_started == 4 && timed->channels_stopped == 2);
  const ci_record* unseen = find(records, CI_RECORDKIND_COLLECTIVE, 2);
  CHECK(unseen != nullptr && unseen->state == CI_OPSTATE_UNOBSERVABLE && unseen->end_ns == 0);
  CHECK(unseen != nullptr && unseen->reason == CI_ENDREASON_NO_TASK && (unseen->flags & CI_OPFLAG_END_UNSEEN) != 0);
  const ci_record* op = find(records, CI_RECORDKIND_COLLECTIVE, 3);
  const ci_record* net = find(records, CI_RECORDKIND_NET, 3);
  CHECK(op != nullptr && net != nullptr && net->seq == op->seq + 1);
  const ci_record* fan = find(records, CI_RECORDKIND_P2P, 4);
  CHECK(fan != nullptr && fan->n_folded == 20);
}

void notices_say_it(const std::vector<ci_record>& records) {
  int by_guard = 0, by_control = 0, counters = 0;
  for (const ci_record& r : records) {
    if (r.kind != CI_RECORDKIND_NOTICE) continue;
    const auto& notice = reinterpret_cast<const ci_notice_record&>(r);
    by_guard += notice.reason == CI_NOTICEREASON_OVERHEAD_GUARD && notice.profiler_mask == 0xF00;
    by_control += notice.reason == CI_NOTICEREASON_CONTROL && notice.profiler_mask == 0x1F46;
    counters += notice.reason == CI_NOTICEREASON_COUNTERS && notice.n_stale_events == 3;
  }
  CHECK_EQ(by_guard, 1);
  CHECK_EQ(by_control, 1);
  CHECK_EQ(counters, 1);
}

}  // namespace

int main() {
  Stage stage;
  setenv("COMMINSIGHT_NCCL_MASK", "deep", 1);
  setenv("COMMINSIGHT_OVERDUE_S", "0.05", 1);
  CHECK_EQ(ci_comm_register(1, "", "", 0, 8, nullptr, CI_BACKEND_NCCL, 0), 1);
  Recorder& r = *recorder();
  CHECK_EQ(r.settings.profiler_mask, 0x1F5E);
  store_release(r.net_hook, &make_net);
  play(r);
  store_release(r.round_hook, &note_round);
  CHECK_EQ(ci_flush(20000), 0);
  CHECK_EQ(load_relaxed(r.box.header()->active_profiler_mask), 0xF00);
  CHECK_EQ(load_relaxed(r.box.header()->control_profiler_mask), 0xF00);
  markers_are_told_apart();
  CHECK_EQ(ci_comm_register(2, "", "", 0, 8, nullptr, CI_BACKEND_NCCL, 0), 2);
  recycled_ops_are_counted(r);
  store_relaxed(r.box.header()->control_profiler_mask, 0x1F46u);
  add(r.box.header()->control_generation, 1);
  CHECK_EQ(ci_flush(20000), 0);
  CHECK_EQ(load_relaxed(r.box.header()->active_profiler_mask), 0x1F46);
  CHECK_EQ(ci_close(), 0);
  CHECK(rounds > 0);
  const std::vector<ci_record> records = stage.records();
  records_say_it(records);
  notices_say_it(records);
  return failures();
}
