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

std::vector<ci_record> ops(const std::vector<ci_record>& records) {
  std::vector<ci_record> out;
  for (const ci_record& r : records)
    if (r.kind <= CI_RECORDKIND_P2P && r.state != CI_OPSTATE_OPEN) out.push_back(r);
  std::sort(out.begin(), out.end(), [](const ci_record& a, const ci_record& b) { return a.op_seq < b.op_seq; });
  return out;
}

}  // namespace

int main() {
  Stage stage;
  context = open(0xABC, 3, 8);
  CHECK_EQ(mask, kMaskLight);
  run_kernel(launch("AllReduce", 1000, 0, 4), 8, 4);
  run_kernel(launch("AllGather", 10, 0, 64), 0, 64);
  void* hung = launch("ReduceScatter", 10, 0, 2);
  channel(hung, 5, gpu_now());
  end(nullptr);
  tell(nullptr, kNetPluginUpdate);
  CHECK_EQ(table.finalize(context), 0);
  CHECK_EQ(ci::close_recorder(), 0);

  const auto all = ops(stage.records());
  CHECK_EQ(all.size(), 3);
  if (all.size() != 3) return 1;
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
  const int64_t gpu_lasted_ns = all[0].gpu_end_ns - all[0].gpu_start_ns;  // by a clock that may go 200 ppm wrong
  CHECK(llabs(all[0].end_ns - all[0].start_ns - gpu_lasted_ns) <= 1 + gpu_lasted_ns / 5000);
  CHECK_EQ(all[1].size_bytes, 320);
  CHECK_EQ(all[1].channels_started, 64);
  CHECK_EQ(all[1].match_seq, 2);
  CHECK_EQ(all[2].state, CI_OPSTATE_ABORTED);
  return failures() != 0;
}
