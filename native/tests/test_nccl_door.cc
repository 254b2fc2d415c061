// The NCCL door, played as NCCL plays it: one rank, one thread, callback by callback, down to the records.
#include <algorithm>

#include "../nccl/abi_v7.h"
#include "life.h"
#include "stage.h"

using namespace ci::nccl;

extern "C" const TableV7 ncclProfiler_v7;

namespace {

const TableV7& table = ncclProfiler_v7;
int32_t mask = 0;
void* context = nullptr;
int64_t gpu_base_ns = 1700000000000000000;

DescriptorV7 blank(uint64_t type, void* parent) {
  DescriptorV7 d;
  memset(static_cast<void*>(&d), 0, sizeof d);
  d.type = type;
  d.parent = parent;
  return d;
}

void* begin(DescriptorV7 d, void* in = context) {
  void* handle = reinterpret_cast<void*>(0x5A5A5A5A5A5A5A5A);
  CHECK_EQ(table.start_event(in, &handle, &d), 0);
  CHECK(handle != reinterpret_cast<void*>(0x5A5A5A5A5A5A5A5A));
  return handle;
}
void end(void* handle) { CHECK_EQ(table.stop_event(handle), 0); }
void tell(void* handle, int32_t state) { CHECK_EQ(table.record_state(handle, state, nullptr), 0); }

void* open(uint64_t hash, int32_t rank, int32_t n_ranks) {
  void* opened = nullptr;
  CHECK_EQ(table.init(&opened, hash, &mask, "dp", 1, n_ranks, rank, nullptr), 0);
  return opened;
}

void* group_call() {
  void* group = begin(blank(kGroupApi, nullptr));
  tell(group, kGroupStartApiStop);
  return group;
}
void* coll_call(void* group, const char* func, size_t count, void* in = context) {
  DescriptorV7 d = blank(kCollApi, group);
  d.coll_api.func = func;
  d.coll_api.count = count;
  d.coll_api.datatype = "ncclFloat32";
  d.coll_api.stream = &mask;
  void* call = begin(d, in);
  end(call);
  return call;
}
void* coll_task(void* call, void* plan, const char* func, uint64_t nth, uint8_t n_channels, void* in = context) {
  DescriptorV7 d = blank(kColl, call);
  d.coll.func = func;
  d.coll.datatype = "ncclFloat32";
  d.coll.algo = "RING";
  d.coll.proto = "SIMPLE";
  d.coll.seq_number = nth;
  d.coll.n_channels = n_channels;
  d.coll.parent_group = plan;
  return begin(d, in);
}
void* channel(void* task, uint8_t id, uint64_t gpu_ns) {
  DescriptorV7 d = blank(kKernelCh, task);
  d.kernel_ch.channel_id = id;
  d.kernel_ch.gpu_ns = gpu_ns;
  return begin(d);
}
void leave_channel(void* handle, uint64_t gpu_ns) {
  StateArgs args;
  args.gpu_ns = gpu_ns;
  CHECK_EQ(table.record_state(handle, kKernelChStop, &args), 0);
  end(handle);
}
uint64_t gpu_now() { return static_cast<uint64_t>(gpu_base_ns + ci::mono_ns()); }

// The order of a single blocking collective; returns its task.
void* launch(const char* func, size_t count, uint64_t nth, uint8_t n_channels) {
  void* group = group_call();
  void* call = coll_call(group, func, count);
  tell(group, kGroupEndApiStart);
  void* kernel = begin(blank(kKernelLaunch, group));
  end(kernel);
  void* plan = begin(blank(kGroup, nullptr));
  void* task = coll_task(call, plan, func, nth, n_channels);
  end(task);
  end(plan);
  end(group);
  return task;
}

void run_kernel(void* task, uint8_t first, uint8_t n_channels) {
  void* channels[64];
  for (uint8_t i = 0; i < n_channels; i++) channels[i] = channel(task, static_cast<uint8_t>(first + i), gpu_now());
  for (uint8_t i = 0; i < n_channels; i++) leave_channel(channels[i], gpu_now());
}

void* p2p_call(void* group, const char* func) {
  DescriptorV7 d = blank(kP2pApi, group);
  d.p2p_api.func = func;
  d.p2p_api.count = 100;
  d.p2p_api.datatype = "ncclInt32";
  void* call = begin(d);
  end(call);
  return call;
}
void* p2p_task(void* call, void* plan, const char* func, int32_t peer, uint8_t n_channels = 1) {
  DescriptorV7 d = blank(kP2p, call);
  d.p2p.func = func;
  d.p2p.count = 100;
  d.p2p.datatype = "ncclInt32";
  d.p2p.peer = peer;
  d.p2p.n_channels = n_channels;
  d.p2p.parent_group = plan;
  return begin(d);
}

// Sends to and receives from `n` peers in one group call; the pair with itself has no task. `helper` launches after
// the caller has left.
struct Exchange {
  static constexpr int kMost = 32;
  void* calls[2 * kMost];
  void* tasks[2 * kMost];
  int n_tasks = 0;

  Exchange(int n, int self, bool helper) {
    void* group = group_call();
    for (int i = 0; i < 2 * n; i++) calls[i] = p2p_call(group, i % 2 == 0 ? "Send" : "Recv");
    tell(group, kGroupEndApiStart);
    if (helper) end(group);
    end(begin(blank(kKernelLaunch, group)));
    void* plan = begin(blank(kGroup, nullptr));
    for (int i = 0; i < 2 * n; i++)
      if (i / 2 != self) tasks[n_tasks++] = p2p_task(calls[i], plan, i % 2 == 0 ? "Send" : "Recv", i / 2);
    for (int i = 0; i < n_tasks; i++) end(tasks[i]);
    end(plan);
    if (!helper) end(group);
  }
  void run() {
    for (int i = 0; i < n_tasks; i++) run_kernel(tasks[i], static_cast<uint8_t>(i % 8), 1);
  }
};

// The finished ops of a communicator in program order.
std::vector<ci_record> ops_of_comm(const std::vector<ci_record>& records, uint32_t comm) {
  std::vector<ci_record> out;
  for (const ci_record& r : records)
    if (!ci::is_marker(r) && r.comm_index == comm) out.push_back(r);
  std::sort(out.begin(), out.end(), [](const ci_record& x, const ci_record& y) { return x.op_seq < y.op_seq; });
  return out;
}
uint32_t row_of(void* opened) { return static_cast<uint32_t>(reinterpret_cast<uint64_t>(opened) >> 16) & 0xFFFF; }

using Ops = std::vector<ci_record>;
// Segments can be read when the recorder is closed.
struct Check {
  uint32_t comm;
  void (*check)(const Ops& all);
};
std::vector<Check> checks;

void check_later(void (*check)(const Ops& all)) {
  CHECK_EQ(table.finalize(context), 0);
  CHECK_EQ(ci::recorder()->stat(CI_STAT_OPS_IN_FLIGHT), 0);
  checks.push_back({row_of(context), check});
}

void collectives() {
  context = open(0xABC, 3, 8);
  CHECK_EQ(mask, kMaskLight);
  run_kernel(launch("AllReduce", 1000, 0, 4), 8, 4);
  run_kernel(launch("AllGather", 10, 0, 64), 0, 64);
  void* hung = launch("ReduceScatter", 10, 0, 2);
  channel(hung, 5, gpu_now());
  end(nullptr);
  tell(nullptr, kNetPluginUpdate);
  check_later([](const Ops& all) {
    CHECK_EQ(all.size(), 3);
    if (all.size() != 3) return;
    CHECK_EQ(all[0].op, CI_OP_ALL_REDUCE);
    CHECK_EQ(all[0].size_bytes, 4000);
    CHECK_EQ(all[0].state, CI_OPSTATE_DONE);
    CHECK_EQ(all[0].timing_source, CI_TIMINGSOURCE_GPU);
    CHECK_EQ(all[0].n_channels, 4);
    CHECK_EQ(all[0].channels_stopped, 4);
    CHECK_EQ(all[0].algo, CI_ALGORITHM_RING);
    CHECK_EQ(all[0].proto, CI_PROTOCOL_SIMPLE);
    CHECK_EQ(all[0].group_id, 1);
    CHECK(all[0].enqueue_ns < all[0].start_ns && all[0].start_ns < all[0].end_ns);
    CHECK_EQ(all[0].gpu_end_ns - all[0].gpu_start_ns, all[0].end_ns - all[0].start_ns);
    CHECK_EQ(all[1].size_bytes, 320);  // of all ranks
    CHECK_EQ(all[1].count, 80);
    CHECK_EQ(all[1].channels_started, 64);
    CHECK_EQ(all[1].match_seq, 2);
    CHECK_EQ(all[2].state, CI_OPSTATE_ABORTED);
  });
}

void folds() {
  context = open(0xF01D, 0, 16);
  Exchange first(16, 0, false);
  Exchange second(9, -1, false);
  second.run();  // the first is still in flight
  first.run();
  run_kernel(launch("AllReduce", 1, 0, 1), 0, 1);
  check_later([](const Ops& all) {
    CHECK_EQ(all.size(), 3);
    if (all.size() != 3) return;
    for (int i = 0; i < 2; i++) {
      CHECK_EQ(all[i].op, CI_OP_ALL_TO_ALL);
      CHECK_EQ(all[i].state, CI_OPSTATE_DONE);
      CHECK_EQ(all[i].flags & CI_OPFLAG_COALESCED, CI_OPFLAG_COALESCED);
      CHECK_EQ(all[i].peer_or_root, -1);
      CHECK_EQ(all[i].match_seq, i + 1);
      CHECK_EQ(all[i].size_bytes, all[i].n_folded * 400);
    }
    CHECK_EQ(all[0].n_folded, 32);
    CHECK_EQ(all[0].op_seq, 1);
    CHECK_EQ(all[1].n_folded, 18);
    CHECK_EQ(all[1].op_seq, 33);
    CHECK_EQ(all[2].op_seq, 51);
    CHECK_EQ(all[2].match_seq, 1);
  });
}

// Nobody says that the pair of a rank with itself will have no task: a while without news does.
void folds_of_helper_thread() {
  context = open(0xF02D, 5, 16);
  Exchange late(16, 5, true);
  late.run();
  usleep(1500000);
  check_later([](const Ops& all) {
    CHECK_EQ(all.size(), 1);
    if (all.size() != 1) return;
    CHECK_EQ(all[0].state, CI_OPSTATE_DONE);
    CHECK_EQ(all[0].n_folded, 32);
    CHECK(all[0].end_ns < ci::mono_ns() - 1000000000);
  });
}

void single_p2p() {
  context = open(0x51, 0, 8);
  Exchange small(8, -1, false);
  small.run();
  check_later([](const Ops& all) {
    CHECK_EQ(all.size(), 16);
    for (size_t i = 0; i < all.size(); i++) {
      CHECK_EQ(all[i].op, i % 2 == 0 ? CI_OP_SEND : CI_OP_RECV);
      CHECK_EQ(all[i].peer_or_root, i / 2);
      CHECK_EQ(all[i].op_seq, i + 1);
      CHECK_EQ(all[i].match_seq, 1);
      CHECK_EQ(all[i].n_folded, 0);
      CHECK_EQ(all[i].size_bytes, 400);
      CHECK(i == 0 || all[i].enqueue_ns >= all[i - 1].enqueue_ns);
    }
  });
}

void copy_engine() {
  context = open(0xCE, 0, 2);
  for (const bool tells_end : {true, false}) {
    void* group = group_call();
    DescriptorV7 d = blank(kCeColl, coll_call(group, "AllGather", 10));
    d.ce_coll.func = "AllGather";
    void* task = begin(d);
    if (tells_end) tell(task, kCeCollComplete);
    end(task);
    end(group);
  }
  check_later([](const Ops& all) {
    CHECK_EQ(all.size(), 2);
    if (all.size() != 2) return;
    CHECK_EQ(all[0].state, CI_OPSTATE_DONE);
    CHECK_EQ(all[0].algo, CI_ALGORITHM_COPY_ENGINE);
    CHECK_EQ(all[1].state, CI_OPSTATE_UNOBSERVABLE);
    CHECK_EQ(all[1].reason, CI_ENDREASON_COPY_ENGINE);
    CHECK_EQ(all[1].end_ns, 0);
  });
}

// The tasks of one symmetric launch, of which one has the channels; and one whose launch has none.
void symmetric_tail() {
  context = open(0x5E, 0, 2);
  void* group = group_call();
  void* calls[3];
  for (void*& call : calls) call = coll_call(group, "AllReduce", 10);
  tell(group, kGroupEndApiStart);
  void* plan = begin(blank(kGroup, nullptr));
  void* tasks[3];
  for (int i = 0; i < 3; i++) {
    DescriptorV7 d = blank(kColl, calls[i]);
    d.coll.func = "AllReduce";
    d.coll.n_channels = i == 0 ? 2 : 0;
    d.coll.is_symmetric = true;
    d.coll.parent_group = i < 2 ? plan : begin(blank(kGroup, nullptr));
    tasks[i] = begin(d);
  }
  for (void* task : tasks) end(task);
  end(group);
  run_kernel(tasks[0], 0, 2);
  check_later([](const Ops& all) {
    CHECK_EQ(all.size(), 3);
    if (all.size() != 3) return;
    CHECK_EQ(all[0].state, CI_OPSTATE_DONE);
    CHECK_EQ(all[1].state, CI_OPSTATE_DONE);
    CHECK_EQ(all[1].algo, CI_ALGORITHM_SYMMETRIC);
    CHECK_EQ(all[0].end_ns, all[1].end_ns);
    CHECK_EQ(all[0].gpu_start_ns, all[1].gpu_start_ns);
    CHECK_EQ(all[2].state, CI_OPSTATE_UNOBSERVABLE);
    CHECK_EQ(all[2].reason, CI_ENDREASON_NO_CHANNELS);
  });
}

void without_kernel_events() {
  context = open(0x0E, 0, 2);
  mask = kMaskApi;  // as another tool may set it
  void* group = group_call();
  coll_call(group, "AllReduce", 10);
  end(group);
  mask = kMaskApi | kColl;
  launch("AllReduce", 10, 0, 2);
  mask = kMaskLight;
  check_later([](const Ops& all) {
    CHECK_EQ(all.size(), 2);
    for (const ci_record& op : all) {
      CHECK_EQ(op.state, CI_OPSTATE_UNOBSERVABLE);
      CHECK_EQ(op.reason, CI_ENDREASON_NO_KERNEL_EVENTS);
    }
  });
}

void two_tasks_of_a_call() {
  context = open(0x22, 0, 2);
  void* group = group_call();
  void* call = coll_call(group, "AllReduce", 10);
  void* plan = begin(blank(kGroup, nullptr));
  void* tasks[2];
  for (uint64_t i = 0; i < 2; i++) end(tasks[i] = coll_task(call, plan, "AllReduce", i, 1));
  end(group);
  for (void* task : tasks) run_kernel(task, 0, 1);
  void* late = coll_task(call, plan, "AllReduce", 2, 1);  // of a call whose op is over: no op
  run_kernel(late, 0, 1);
  check_later([](const Ops& all) { CHECK_EQ(all.size(), 2); });
}

// Channels that were not told: over with a later launch of the communicator, not with one of the same.
void untold_channels() {
  context = open(0x77, 0, 2);
  void* group = group_call();
  void* calls[2] = {p2p_call(group, "Send"), p2p_call(group, "Recv")};
  tell(group, kGroupEndApiStart);
  void* plan = begin(blank(kGroup, nullptr));
  void* send = p2p_task(calls[0], plan, "Send", 1, 0);
  void* recv = p2p_task(calls[1], plan, "Recv", 1, 0);
  end(send);
  end(recv);
  end(group);
  run_kernel(recv, 3, 2);
  CHECK_EQ(ci::recorder()->stat(CI_STAT_OPS_IN_FLIGHT), 2);  // more of its channels may be about to begin
  run_kernel(launch("AllReduce", 1, 0, 1), 0, 1);
  check_later([](const Ops& all) {
    CHECK_EQ(all.size(), 3);
    if (all.size() != 3) return;
    CHECK_EQ(all[0].state, CI_OPSTATE_UNOBSERVABLE);
    CHECK_EQ(all[0].reason, CI_ENDREASON_UNTRUSTED_CHANNELS);
    CHECK_EQ(all[1].state, CI_OPSTATE_DONE);
    CHECK_EQ(all[2].state, CI_OPSTATE_DONE);
  });
}

void* captured_call() {
  DescriptorV7 d = blank(kCollApi, nullptr);
  d.coll_api.func = "AllReduce";
  d.coll_api.is_captured = true;
  return begin(d);
}

// A launch of which the driver's thread tells the tasks, after the caller has left: the op is not given up before.
void launch_behind_a_graph() {
  context = open(0x6A, 0, 2);
  run_kernel(launch("AllReduce", 1, 0, 1), 0, 1);  // it blocks the caller
  captured_call();
  void* group = group_call();
  void* call = coll_call(group, "AllReduce", 1);
  tell(group, kGroupEndApiStart);
  end(begin(blank(kKernelLaunch, group)));
  end(group);
  CHECK_EQ(ci::recorder()->stat(CI_STAT_OPS_IN_FLIGHT), 1);
  usleep(1500000);
  void* plan = begin(blank(kGroup, nullptr));
  void* task = coll_task(call, plan, "AllReduce", 1, 1);
  end(task);
  CHECK_EQ(ci::recorder()->stat(CI_STAT_OPS_IN_FLIGHT), 1);
  run_kernel(task, 0, 1);
  // No launch, so no task: known at once here.
  void* dark = group_call();
  coll_call(dark, "Broadcast", 1);
  end(dark);
  CHECK_EQ(ci::recorder()->stat(CI_STAT_OPS_IN_FLIGHT), 0);
  check_later([](const Ops& all) {
    CHECK_EQ(all.size(), 3);
    if (all.size() != 3) return;
    CHECK_EQ(all[1].state, CI_OPSTATE_DONE);
    CHECK_EQ(all[2].reason, CI_ENDREASON_NO_TASK);
  });
}

// The helper of a communicator may be connecting for as long as no later call says that it is done.
void call_without_a_task() {
  context = open(0x6B, 0, 2);
  for (int i = 0; i < 2; i++) {
    void* group = group_call();
    coll_call(group, "AllReduce", 1);
    end(group);
    usleep(1500000);
    CHECK_EQ(ci::recorder()->stat(CI_STAT_OPS_IN_FLIGHT), 1);  // the newest
  }
  check_later([](const Ops& all) {
    CHECK_EQ(all.size(), 2);
    if (all.size() != 2) return;
    CHECK_EQ(all[0].reason, CI_ENDREASON_NO_TASK);
    CHECK_EQ(all[1].state, CI_OPSTATE_ABORTED);
  });
}

// Another thread tells them, sooner or later than the calls around them.
void replays_have_their_own_numbers() {
  context = open(0x6C, 0, 2);
  void* captured = captured_call();
  for (uint64_t i = 0; i < 2; i++) {
    run_kernel(coll_task(captured, begin(blank(kGroup, nullptr)), "AllReduce", i, 1), 0, 1);
    run_kernel(launch("AllGather", 1, i, 1), 0, 1);
  }
  check_later([](const Ops& all) {
    CHECK_EQ(all.size(), 4);
    for (size_t i = 0; i < all.size(); i++) {
      CHECK_EQ(all[i].match_seq, i / 2 + 1);
      CHECK_EQ((all[i].flags & CI_OPFLAG_GRAPH) != 0, i % 2 == 0);
    }
  });
}

// A kernel is over before the host hears of its proxy ops: the summary waits for them.
void late_proxies() {
  context = open(0x6D, 0, 2);
  mask = static_cast<int32_t>(kMaskNet);
  void* task = launch("AllReduce", 1, 0, 1);
  DescriptorV7 d = blank(kProxyOp, task);
  d.proxy_op.pid = getpid();
  void* proxies[2] = {begin(d), begin(d)};
  end(proxies[0]);
  run_kernel(task, 0, 1);
  CHECK_EQ(ci::recorder()->stat(CI_STAT_OPS_IN_FLIGHT), 0);
  end(proxies[1]);
  mask = kMaskLight;
  check_later([](const Ops& all) { CHECK_EQ(all.size(), 1); });
}

void check_late_proxies(const Ops& records) {
  int n_nets = 0;
  for (const ci_record& record : records) {
    if (record.kind != CI_RECORDKIND_NET) continue;
    ci_net_record net;
    memcpy(&net, &record, sizeof net);
    CHECK_EQ(net.n_proxy_ops, 2);
    CHECK_EQ(net.n_proxy_ops_done, 2);
    CHECK_EQ(net.wait_side, CI_WAITSIDE_NONE);
    n_nets++;
  }
  CHECK_EQ(n_nets, 1);
}

}  // namespace

int main() {
  Stage stage;
  collectives();
  folds();
  folds_of_helper_thread();
  single_p2p();
  copy_engine();
  symmetric_tail();
  without_kernel_events();
  two_tasks_of_a_call();
  untold_channels();
  launch_behind_a_graph();
  call_without_a_task();
  replays_have_their_own_numbers();
  late_proxies();
  CHECK_EQ(ci::close_recorder(), 0);
  const Ops records = stage.records();
  check_late_proxies(records);
  for (const Check& c : checks) c.check(ops_of_comm(records, c.comm));
  return failures() != 0;
}
