// What all versions of NCCL's profiler interface share: numbers, not NCCL's headers. The facts were read from
// NCCL 2.27 to 2.32; each version's descriptor stands in a header of its own with every offset asserted.
#ifndef COMMINSIGHT_NCCL_ABI_H
#define COMMINSIGHT_NCCL_ABI_H
#include <cstddef>
#include <cstdint>

namespace ci::nccl {

using Result = int32_t;  // ncclResult_t; every callback of ours returns 0
constexpr Result kSuccess = 0;

enum EventType : uint64_t {
  kGroup = 1u << 0,
  kColl = 1u << 1,
  kP2p = 1u << 2,
  kProxyOp = 1u << 3,
  kProxyStep = 1u << 4,
  kProxyCtrl = 1u << 5,
  kKernelCh = 1u << 6,
  kNetPlugin = 1u << 7,
  kGroupApi = 1u << 8,
  kCollApi = 1u << 9,
  kP2pApi = 1u << 10,
  kKernelLaunch = 1u << 11,
  kCeColl = 1u << 12,
  kCeSync = 1u << 13,
  kCeBatch = 1u << 14,
  kKernelPhase = 1u << 15,
};

// Activation masks. v4 must track groups: without a handle for them NCCL 2.27 sends nothing below.
constexpr uint32_t kMaskApi = kGroupApi | kCollApi | kP2pApi | kKernelLaunch;
constexpr uint32_t kMaskLight = kMaskApi | kColl | kP2p | kKernelCh | kCeColl;
constexpr uint32_t kMaskNet = kMaskLight | kProxyOp;
constexpr uint32_t kMaskDeep = kMaskNet | kProxyStep;
constexpr uint32_t kMaskLightV4 = kGroup | kColl | kP2p | kKernelCh;
static_assert(kMaskApi == 0xF00 && kMaskLight == 0x1F46 && kMaskNet == 0x1F4E && kMaskDeep == 0x1F5E, "fact sheet");

enum State : int32_t {
  kSendGpuWait = 8,
  kSendWait = 9,
  kRecvWait = 10,
  kRecvFlushWait = 11,
  kRecvGpuWait = 12,
  kProxyOpInProgress = 19,
  kSendPeerWait = 20,
  kNetPluginUpdate = 21,
  kKernelChStop = 22,
  kGroupStartApiStop = 23,
  kGroupEndApiStart = 24,
  kCeCollStart = 25,
  kCeCollComplete = 26,
  kKernelPhaseStop = 31,
};

constexpr int kMaxChannels = 64;
constexpr int kProxyStepsInFlight = 8;

using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

// Arguments of a state; may be NULL, and must not be read for group states.
union StateArgs {
  size_t trans_bytes;         // proxy step
  int32_t appended_proxy_ops; // proxy control
  void* net_data;             // net plugin
  uint64_t gpu_ns;            // kernel channel, kernel phase
};
static_assert(sizeof(StateArgs) == 8, "v4 to v7");

// One exported table: `Descriptor` is the version's, `Init` its argument order.
template <class Descriptor, class Init>
struct ProfilerTable {
  const char* name;
  Init init;
  Result (*start_event)(void* context, void** handle, Descriptor* descriptor);
  Result (*stop_event)(void* handle);
  Result (*record_state)(void* handle, int32_t state, StateArgs* args);
  Result (*finalize)(void* context);
};

using InitV4 = Result (*)(void** context, int32_t* mask, const char* comm_name, uint64_t comm_hash, int32_t n_nodes,
                          int32_t n_ranks, int32_t rank, Logger logger);
using InitV5 = Result (*)(void** context, uint64_t comm_hash, int32_t* mask, const char* comm_name, int32_t n_nodes,
                          int32_t n_ranks, int32_t rank, Logger logger);

// Parts of the union that no version has changed.
struct ProxyOpPart {
  int32_t pid;
  uint8_t channel_id;
  int32_t peer;
  int32_t n_steps;
  int32_t chunk_bytes;
  int32_t is_send;
};
struct ProxyStepPart {
  int32_t step;
};
struct KernelChPart {
  uint8_t channel_id;
  uint64_t gpu_ns;
};
struct NetPluginPart {
  int64_t id;
  void* data;
};
struct GroupApiPart {
  bool is_captured;
  int32_t depth;
};
struct KernelLaunchPart {
  void* stream;
};
struct CeSyncPart {
  bool is_complete;
  int32_t n_ranks;
};
struct CeBatchPart {
  int32_t n_ops;
  size_t total_bytes;
  bool uses_intra_sync;
};
struct KernelPhasePart {
  uint8_t channel_id;
  uint8_t phase_id;
  const char* phase_name;
  uint64_t gpu_ns;
};

}  // namespace ci::nccl

// Checks an offset inside the union, which begins at byte 24 of every descriptor.
#define CI_NCCL_AT(descriptor, member, offset) \
  static_assert(offsetof(descriptor, member) == (offset), #descriptor "." #member)
#define CI_NCCL_COMMON(descriptor)                   \
  CI_NCCL_AT(descriptor, type, 0);                   \
  CI_NCCL_AT(descriptor, parent, 8);                 \
  CI_NCCL_AT(descriptor, rank, 16);                  \
  CI_NCCL_AT(descriptor, proxy_op.pid, 24);          \
  CI_NCCL_AT(descriptor, proxy_op.channel_id, 28);   \
  CI_NCCL_AT(descriptor, proxy_op.peer, 32);         \
  CI_NCCL_AT(descriptor, proxy_op.n_steps, 36);      \
  CI_NCCL_AT(descriptor, proxy_op.chunk_bytes, 40);  \
  CI_NCCL_AT(descriptor, proxy_op.is_send, 44);      \
  CI_NCCL_AT(descriptor, proxy_step.step, 24);       \
  CI_NCCL_AT(descriptor, kernel_ch.channel_id, 24);  \
  CI_NCCL_AT(descriptor, kernel_ch.gpu_ns, 32);      \
  CI_NCCL_AT(descriptor, net_plugin.id, 24);         \
  CI_NCCL_AT(descriptor, net_plugin.data, 32)
#define CI_NCCL_COLL(descriptor)                \
  CI_NCCL_AT(descriptor, coll.seq_number, 24);  \
  CI_NCCL_AT(descriptor, coll.func, 32);        \
  CI_NCCL_AT(descriptor, coll.send_buff, 40);   \
  CI_NCCL_AT(descriptor, coll.recv_buff, 48);   \
  CI_NCCL_AT(descriptor, coll.count, 56);       \
  CI_NCCL_AT(descriptor, coll.root, 64);        \
  CI_NCCL_AT(descriptor, coll.datatype, 72);    \
  CI_NCCL_AT(descriptor, coll.n_channels, 80);  \
  CI_NCCL_AT(descriptor, coll.n_warps, 81);     \
  CI_NCCL_AT(descriptor, coll.algo, 88);        \
  CI_NCCL_AT(descriptor, coll.proto, 96);       \
  CI_NCCL_AT(descriptor, p2p.func, 24);         \
  CI_NCCL_AT(descriptor, p2p.buff, 32);         \
  CI_NCCL_AT(descriptor, p2p.datatype, 40);     \
  CI_NCCL_AT(descriptor, p2p.count, 48);        \
  CI_NCCL_AT(descriptor, p2p.peer, 56);         \
  CI_NCCL_AT(descriptor, p2p.n_channels, 60)
#define CI_NCCL_API(descriptor)                        \
  CI_NCCL_AT(descriptor, coll.parent_group, 104);      \
  CI_NCCL_AT(descriptor, p2p.parent_group, 64);        \
  CI_NCCL_AT(descriptor, group_api.is_captured, 24);   \
  CI_NCCL_AT(descriptor, group_api.depth, 28);         \
  CI_NCCL_AT(descriptor, coll_api.func, 24);           \
  CI_NCCL_AT(descriptor, coll_api.count, 32);          \
  CI_NCCL_AT(descriptor, coll_api.datatype, 40);       \
  CI_NCCL_AT(descriptor, coll_api.root, 48);           \
  CI_NCCL_AT(descriptor, coll_api.stream, 56);         \
  CI_NCCL_AT(descriptor, coll_api.is_captured, 64);    \
  CI_NCCL_AT(descriptor, p2p_api.func, 24);            \
  CI_NCCL_AT(descriptor, p2p_api.count, 32);           \
  CI_NCCL_AT(descriptor, p2p_api.datatype, 40);        \
  CI_NCCL_AT(descriptor, p2p_api.stream, 48);          \
  CI_NCCL_AT(descriptor, p2p_api.is_captured, 56);     \
  CI_NCCL_AT(descriptor, kernel_launch.stream, 24)
#define CI_NCCL_CE(descriptor)                          \
  CI_NCCL_AT(descriptor, ce_coll.seq_number, 24);       \
  CI_NCCL_AT(descriptor, ce_coll.func, 32);             \
  CI_NCCL_AT(descriptor, ce_coll.send_buff, 40);        \
  CI_NCCL_AT(descriptor, ce_coll.recv_buff, 48);        \
  CI_NCCL_AT(descriptor, ce_coll.count, 56);            \
  CI_NCCL_AT(descriptor, ce_coll.root, 64);             \
  CI_NCCL_AT(descriptor, ce_coll.datatype, 72);         \
  CI_NCCL_AT(descriptor, ce_coll.sync_strategy, 80);    \
  CI_NCCL_AT(descriptor, ce_coll.is_intra_batch, 88);   \
  CI_NCCL_AT(descriptor, ce_coll.batch_size, 92);       \
  CI_NCCL_AT(descriptor, ce_coll.n_batches, 96);        \
  CI_NCCL_AT(descriptor, ce_coll.ce_seq, 100);          \
  CI_NCCL_AT(descriptor, ce_coll.stream, 104);          \
  CI_NCCL_AT(descriptor, ce_sync.is_complete, 24);      \
  CI_NCCL_AT(descriptor, ce_sync.n_ranks, 28);          \
  CI_NCCL_AT(descriptor, ce_batch.n_ops, 24);           \
  CI_NCCL_AT(descriptor, ce_batch.total_bytes, 32);     \
  CI_NCCL_AT(descriptor, ce_batch.uses_intra_sync, 40)

#endif
