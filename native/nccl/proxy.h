// Proxy ops and steps: the network side of an op, asked for by the masks net and deep. What an op waits for is read
// from how many of its steps are in which state, so it holds with eight steps in flight on each of many channels.
#ifndef COMMINSIGHT_NCCL_PROXY_H
#define COMMINSIGHT_NCCL_PROXY_H
#include "event.h"
#include "token.h"

namespace ci {
class Recorder;
}

namespace ci::nccl {

struct Door;

// States of a step, in the order it passes them.
enum StepState : uint32_t {
  kStepOver,
  kSendGpu,
  kSendPeer,
  kSendNetwork,
  kRecvArrival,
  kRecvFlush,
  kRecvGpu,
  kStepStates,
};

struct alignas(64) Proxy {
  uint32_t word;  // generation << 8 | is in use
  uint32_t is_send;
  uint64_t op;
  uint32_t states[kProxyStepsInFlight];  // by step modulo 8
  uint64_t bytes[kProxyStepsInFlight];   // of the step
};

// Network side of the op in a slot.
struct alignas(64) NetState {
  uint32_t generation;  // of the slot; another op's is begun anew
  uint32_t n_sends, n_sends_done;  // proxy ops
  uint32_t n_recvs, n_recvs_done;
  uint32_t n_send_steps, n_recv_steps;
  int32_t in_state[kStepStates];   // steps
  int64_t since_ns[kStepStates];   // some step is in the state since
  int64_t waited_ns[kStepStates];
  int64_t first_event_ns;
  int64_t last_event_ns;
};

// The summary of an op that has ended before its proxy ops, which the host hears of later: waits for them a while.
struct LateNet {
  uint64_t key;    // the token of its op, once all of it is filled in
  int64_t end_ns;  // of the op
  ci_net_record net;
};

void stop_proxy_op(Door& d, Token token);
void stop_proxy_step(Door& d, Token token);
void note_proxy_step(Door& d, Token token, int32_t state, const StateArgs* args);
// The summary of an op at its end (Recorder::net_hook); false while it waits.
bool make_net_record(Recorder& recorder, int slot, const ci_record& record, ci_net_record* net);
// Drain thread: those whose proxy ops have all ended, and those that waited long enough.
void publish_late_nets(Door& d, int64_t now);

}  // namespace ci::nccl
#endif
