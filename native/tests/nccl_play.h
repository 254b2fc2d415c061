// Plays NCCL to the four tables: the callbacks of one collective in NCCL's order, for the tests that need many.
#ifndef COMMINSIGHT_NCCL_PLAY_H
#define COMMINSIGHT_NCCL_PLAY_H
#include <string.h>

#include "atomics.h"
#include "nccl/abi_v4.h"
#include "nccl/abi_v5.h"
#include "nccl/abi_v6.h"
#include "nccl/abi_v7.h"

extern "C" const ci::nccl::TableV4 ncclProfiler_v4;
extern "C" const ci::nccl::TableV5 ncclProfiler_v5;
extern "C" const ci::nccl::TableV6 ncclProfiler_v6;
extern "C" const ci::nccl::TableV7 ncclProfiler_v7;

namespace play {

using namespace ci::nccl;

template <int kVersion>
struct Abi;
template <>
struct Abi<4> {
  using Descriptor = DescriptorV4;
  using Table = TableV4;
  static const Table& ours() { return ncclProfiler_v4; }
};
template <>
struct Abi<5> {
  using Descriptor = DescriptorV5;
  using Table = TableV5;
  static const Table& ours() { return ncclProfiler_v5; }
};
template <>
struct Abi<6> {
  using Descriptor = DescriptorV6;
  using Table = TableV6;
  static const Table& ours() { return ncclProfiler_v6; }
};
template <>
struct Abi<7> {
  using Descriptor = DescriptorV7;
  using Table = TableV7;
  static const Table& ours() { return ncclProfiler_v7; }
};

template <int kVersion>
void* init(const typename Abi<kVersion>::Table& table, uint64_t hash, int32_t* mask, const char* name, int32_t n_ranks,
           int32_t rank) {
  void* context = nullptr;
  if constexpr (kVersion == 4) table.init(&context, mask, name, hash, 1, n_ranks, rank, nullptr);
  else table.init(&context, hash, mask, name, 1, n_ranks, rank, nullptr);
  return context;
}

constexpr int64_t kGpuBaseNs = 1700000000000000000;
inline uint64_t gpu_now() { return static_cast<uint64_t>(kGpuBaseNs + ci::mono_ns()); }

// The sequence of a single blocking AllReduce whose kernel runs at once. One descriptor for all its events, as NCCL
// has one on the stack of each: only the fields that an event needs are written.
template <int kVersion>
class Collective {
 public:
  using D = typename Abi<kVersion>::Descriptor;
  using Table = typename Abi<kVersion>::Table;
  Collective(const Table& table, void* context) : table_(table), context_(context) {
    memset(static_cast<void*>(&descriptor_), 0, sizeof descriptor_);
  }

  void play(int n_channels) {
    void *group = nullptr, *call = nullptr;
    if constexpr (kVersion >= 5) call = start_call(&group);
    void* plan = start(kGroup, nullptr);
    void* task = start_task(kVersion >= 5 ? call : plan, plan, n_channels);
    table_.stop_event(task);
    table_.stop_event(plan);
    if constexpr (kVersion >= 5) table_.stop_event(group);
    run_kernel(task, n_channels);
  }

 private:
  void* start(uint64_t type, void* parent) {
    void* handle = nullptr;
    descriptor_.type = static_cast<decltype(descriptor_.type)>(type);
    descriptor_.parent = parent;
    table_.start_event(context_, &handle, &descriptor_);
    return handle;
  }
  void* start_call(void** group) {
    descriptor_.group_api = {false, 1};
    *group = start(kGroupApi, nullptr);
    table_.record_state(*group, kGroupStartApiStop, nullptr);
    descriptor_.coll_api.func = "AllReduce";
    descriptor_.coll_api.count = 1 << 20;
    descriptor_.coll_api.datatype = "ncclBfloat16";
    descriptor_.coll_api.root = 0;
    descriptor_.coll_api.stream = this;
    descriptor_.coll_api.is_captured = false;
    if constexpr (kVersion >= 7) descriptor_.coll_api.user_tag = 0;
    void* call = start(kCollApi, *group);
    table_.stop_event(call);
    table_.record_state(*group, kGroupEndApiStart, nullptr);
    descriptor_.kernel_launch.stream = this;
    table_.stop_event(start(kKernelLaunch, *group));
    return call;
  }
  void* start_task(void* parent, void* plan, int n_channels) {
    auto& coll = descriptor_.coll;
    coll.seq_number = n_played_++;
    coll.func = "AllReduce";
    coll.count = 1 << 20;
    coll.root = 0;
    coll.datatype = "ncclBfloat16";
    coll.n_channels = static_cast<uint8_t>(n_channels);
    coll.algo = "RING";
    coll.proto = "SIMPLE";
    if constexpr (kVersion >= 5) coll.parent_group = plan;
    if constexpr (kVersion >= 7) coll.kernel_variant = nullptr, coll.is_symmetric = false, coll.user_tag = 0;
    return start(kColl, parent);
  }
  void run_kernel(void* task, int n_channels) {
    void* channels[kMaxChannels];
    const uint64_t begin = gpu_now();
    for (int i = 0; i < n_channels; i++) {
      descriptor_.kernel_ch = {static_cast<uint8_t>(i), begin};
      channels[i] = start(kKernelCh, task);
    }
    StateArgs args;
    args.gpu_ns = gpu_now();
    for (int i = 0; i < n_channels; i++) {
      table_.record_state(channels[i], kKernelChStop, &args);
      table_.stop_event(channels[i]);
    }
  }

  const Table& table_;
  void* context_;
  D descriptor_;
  uint64_t n_played_ = 0;
};

}  // namespace play
#endif
