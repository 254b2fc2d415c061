// From a version's descriptor to the events of event.h. A shim names the types its version may carry (fields of
// later versions must not be read), the rest is the same code for all.
#ifndef COMMINSIGHT_NCCL_SHIM_H
#define COMMINSIGHT_NCCL_SHIM_H
#include "event.h"

namespace ci::nccl {

constexpr uint64_t kTypesV4 = kGroup | kColl | kP2p | kProxyOp | kProxyStep | kProxyCtrl | kKernelCh | kNetPlugin;
constexpr uint64_t kTypesV5 = kTypesV4 | kMaskApi;
constexpr uint64_t kTypesV6 = kTypesV5 | kCeColl | kCeSync | kCeBatch;
constexpr uint64_t kTypesV7 = kTypesV6 | kKernelPhase;

// Version traits: fields that not every version has.
struct Before5 {
  template <class D> static void complete_coll(const D&, Task*) {}
  template <class D> static void complete_p2p(const D&, Task*) {}
};
struct From5 {
  template <class D> static void complete_coll(const D& d, Task* task) { task->plan = d.coll.parent_group; }
  template <class D> static void complete_p2p(const D& d, Task* task) { task->plan = d.p2p.parent_group; }
  template <class D> static uint64_t tag(const D&) { return 0; }
};
struct From7 {
  template <class D> static void complete_coll(const D& d, Task* task) {
    task->plan = d.coll.parent_group;
    task->is_symmetric = d.coll.is_symmetric;
    task->user_tag = d.coll.user_tag;
  }
  template <class D> static void complete_p2p(const D& d, Task* task) {
    task->plan = d.p2p.parent_group;
    task->user_tag = d.p2p.user_tag;
  }
  template <class D> static uint64_t tag(const D& part) { return part.user_tag; }
};

template <class Traits, class D>
void* start_coll(void* context, const D& d) {
  Task task = {Task::kCollective, false, d.coll.n_channels, d.parent, nullptr, d.coll.func, d.coll.count,
               d.coll.datatype, d.coll.root, d.coll.seq_number, d.coll.algo, d.coll.proto, nullptr, 0};
  Traits::complete_coll(d, &task);
  return start_task(context, task);
}

template <class Traits, class D>
void* start_p2p(void* context, const D& d) {
  Task task = {Task::kPeerToPeer, false, d.p2p.n_channels, d.parent, nullptr, d.p2p.func, d.p2p.count,
               d.p2p.datatype, d.p2p.peer, 0, nullptr, nullptr, nullptr, 0};
  Traits::complete_p2p(d, &task);
  return start_task(context, task);
}

template <class Traits, class D>
void* start_ce_coll(void* context, const D& d) {
  const Task task = {Task::kCopyEngine, false, 0, d.parent, nullptr, d.ce_coll.func, d.ce_coll.count,
                     d.ce_coll.datatype, d.ce_coll.root, d.ce_coll.seq_number, nullptr, nullptr, d.ce_coll.stream,
                     Traits::tag(d.ce_coll)};
  return start_task(context, task);
}

template <class Traits, class D>
void* start_coll_api(void* context, const D& d) {
  return start_call(context, {d.parent, d.coll_api.func, d.coll_api.count, d.coll_api.datatype, d.coll_api.root,
                              d.coll_api.stream, d.coll_api.is_captured, false, Traits::tag(d.coll_api)});
}

template <class Traits, class D>
void* start_p2p_api(void* context, const D& d) {
  return start_call(context, {d.parent, d.p2p_api.func, d.p2p_api.count, d.p2p_api.datatype, -1, d.p2p_api.stream,
                              d.p2p_api.is_captured, true, Traits::tag(d.p2p_api)});
}

template <class D>
void* start_named(const D&, uint64_t types, uint64_t type) {
  return (type & types) != 0 && (type & (type - 1)) == 0 ? start_known() : start_unknown();
}

// Types of all versions.
template <class Traits, class D>
__attribute__((always_inline)) inline void* start_common(void* context, const D& d, uint64_t types) {
  switch (d.type) {
    case kGroup: return start_plan();
    case kColl: return start_coll<Traits>(context, d);
    case kP2p: return start_p2p<Traits>(context, d);
    case kProxyOp: return start_proxy_op(context, d.parent, d.proxy_op);
    case kProxyStep: return start_proxy_step(d.parent, d.proxy_step);
  }
  return start_named(d, types, d.type);
}

// Types since v5.
template <class Traits, class D>
__attribute__((always_inline)) inline void* start_api(void* context, const D& d, uint64_t types) {
  switch (d.type) {
    case kGroupApi: return start_group_call(d.group_api);
    case kCollApi: return start_coll_api<Traits>(context, d);
    case kP2pApi: return start_p2p_api<Traits>(context, d);
    case kKernelLaunch: return start_launch(context, d.parent);
  }
  return start_common<Traits>(context, d, types);
}

template <class D, void* (*kStart)(void* context, const D& descriptor)>
Result start_event(void* context, void** handle, D* descriptor) {
  void* started;
  if (descriptor == nullptr) started = start_unknown();
  else if (descriptor->type == kKernelCh) started = start_channel(descriptor->parent, descriptor->kernel_ch);  // most of them
  else started = kStart(context, *descriptor);
  if (handle != nullptr) *handle = started;
  return kSuccess;
}
inline Result finalize(void* context) {
  close_context(context);
  return kSuccess;
}

// The argument order of v5 and later.
template <uint8_t kVersion>
Result init_since_5(void** context, uint64_t comm_hash, int32_t* mask, const char* name, int32_t n_nodes,
                    int32_t n_ranks, int32_t rank, Logger) {
  void* opened = open_context({comm_hash, name, n_nodes, n_ranks, rank, kVersion}, mask);
  if (context != nullptr) *context = opened;
  return kSuccess;
}

}  // namespace ci::nccl

// The exported table of one version.
#define CI_NCCL_TABLE(version, init_function, start_function)                                                     \
  extern "C" __attribute__((visibility("default"))) const ci::nccl::TableV##version ncclProfiler_v##version = {  \
      "comminsight", init_function, ci::nccl::start_event<ci::nccl::DescriptorV##version, start_function>,       \
      ci::nccl::stop_event, ci::nccl::record_event_state, ci::nccl::finalize}
#endif
