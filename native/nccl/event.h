// What NCCL tells, without the version it is told in: the shims translate each version's descriptor into these.
#ifndef COMMINSIGHT_NCCL_EVENT_H
#define COMMINSIGHT_NCCL_EVENT_H
#include "abi.h"

namespace ci::nccl {

// What the user called (CollApi, P2pApi).
struct Call {
  void* parent;  // group call
  const char* func;
  size_t count;
  const char* datatype;
  int32_t root;
  void* stream;
  bool is_captured;
  bool is_p2p;
  uint64_t user_tag;
};

// What NCCL made of it (Coll, P2p, CeColl).
struct Task {
  enum Kind : uint8_t { kCollective, kPeerToPeer, kCopyEngine };
  Kind kind;
  bool is_symmetric;
  uint8_t n_channels;
  void* parent;  // the call; v4: the plan
  void* plan;    // the Group event; NULL in v4
  const char* func;
  size_t count;
  const char* datatype;
  int32_t peer_or_root;
  uint64_t func_seq;
  const char* algo;
  const char* proto;
  void* stream;
  uint64_t user_tag;
};

struct Identity {
  uint64_t comm_hash;
  const char* name;
  int32_t n_nodes;
  int32_t n_ranks;
  int32_t rank;
  uint8_t abi_version;
};

// Callbacks of every version. Starts return the handle to write; nothing here fails.
void* open_context(const Identity& identity, int32_t* mask);
void close_context(void* context);
void* start_group_call(const GroupApiPart& part);
void* start_call(void* context, const Call& call);
void* start_launch(void* context, void* group_call);
void* start_plan();
void* start_task(void* context, const Task& task);
void* start_channel(void* task, const KernelChPart& part);
void* start_proxy_op(void* context, void* task, const ProxyOpPart& part);
void* start_proxy_step(void* proxy_op, const ProxyStepPart& part);
void* start_known();    // a type that says nothing we record
void* start_unknown();  // a type that no version has
Result stop_event(void* handle);
Result record_event_state(void* handle, int32_t state, StateArgs* args);

}  // namespace ci::nccl
#endif
