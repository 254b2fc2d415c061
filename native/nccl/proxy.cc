#include "proxy.h"

#include "door.h"
#include "sampling.h"

namespace ci::nccl {
namespace {

constexpr uint32_t kTries = 8;
constexpr uint32_t kInUse = 1;

Proxy* find_proxy(Door& d, Token token) {
  if (token.salt() != d.salt) return nullptr;
  Proxy& proxy = d.proxies[token.slot()];
  return load_acquire(proxy.word) == (token.generation() << 8 | kInUse) ? &proxy : nullptr;
}

// The op's network state, begun anew for each op.
NetState& net_of(Door& d, Token op) {
  NetState& net = d.nets[op.slot()];
  uint32_t seen = load_acquire(net.generation);
  if (seen == op.generation() || !cas(net.generation, seen, op.generation())) return net;
  for (uint32_t* word = &net.generation + 1; word < reinterpret_cast<uint32_t*>(&net + 1); word++)
    store_relaxed(*word, 0);
  return net;
}

StepState step_state_of(int32_t state) {
  switch (state) {
    case kSendGpuWait: return kSendGpu;
    case kSendPeerWait: return kSendPeer;
    case kSendWait: return kSendNetwork;
    case kRecvWait: return kRecvArrival;
    case kRecvFlushWait: return kRecvFlush;
    case kRecvGpuWait: return kRecvGpu;
  }
  return kStepOver;
}

// Steps are in order, so the state furthest on is that of the oldest ones: what is behind it waits for it.
uint32_t send_side(const NetState& net) {
  if (load_relaxed(net.in_state[kSendNetwork]) > 0) return CI_WAITSIDE_NETWORK;
  if (load_relaxed(net.in_state[kSendPeer]) > 0) return CI_WAITSIDE_PEER;
  if (load_relaxed(net.in_state[kSendGpu]) > 0) return CI_WAITSIDE_GPU;
  if (load_relaxed(net.n_send_steps) != 0) return CI_WAITSIDE_NONE;
  // The mask leaves out steps.
  return load_relaxed(net.n_sends) > load_relaxed(net.n_sends_done) ? CI_WAITSIDE_NETWORK : CI_WAITSIDE_NONE;
}

uint32_t recv_side(const NetState& net) {
  if (load_relaxed(net.in_state[kRecvGpu]) > 0) return CI_WAITSIDE_GPU;
  if (load_relaxed(net.in_state[kRecvFlush]) > 0) return CI_WAITSIDE_FLUSH;
  if (load_relaxed(net.in_state[kRecvArrival]) > 0) return CI_WAITSIDE_ARRIVAL;
  if (load_relaxed(net.n_recv_steps) != 0) return CI_WAITSIDE_NONE;
  return load_relaxed(net.n_recvs) > load_relaxed(net.n_recvs_done) ? CI_WAITSIDE_ARRIVAL : CI_WAITSIDE_NONE;
}

void show_side(ci_slot& slot, const NetState& net) {
  store_relaxed(slot.wait_side, send_side(net) | recv_side(net) << 8);
}

void enter(NetState& net, StepState state, int64_t now) {
  if (state != kStepOver && add(net.in_state[state], 1) == 0) store_relaxed(net.since_ns[state], now);
}

void leave(NetState& net, StepState state, int64_t now) {
  if (state == kStepOver || sub(net.in_state[state], 1) != 1) return;
  const int64_t since = load_relaxed(net.since_ns[state]);
  if (since != 0 && now > since) add(net.waited_ns[state], now - since);
}

// What moved with the step's new state, into the counters of the slot.
void count_bytes(ci_slot& slot, const Proxy& proxy, StepState entered, int64_t bytes) {
  if (entered == kSendNetwork || entered == kRecvArrival) add(slot.net_posted_bytes, bytes);
  if (entered == kRecvFlush) add(slot.net_transmitted_bytes, bytes);
  if (entered != kStepOver) return;
  if (load_relaxed(proxy.is_send) != 0) add(slot.net_transmitted_bytes, bytes);
  add(slot.net_done_bytes, bytes);
}

// Names the op without what its tokens differ in.
Token late_key(Token op) { return Token::of(op.bits & ((uint64_t{1} << 50) - 1)); }

// Of an op that is over; nullptr without one.
LateNet* late_net_of(Door& d, Token op) {
  if (load_acquire(d.n_late_nets) == 0) return nullptr;
  const uint64_t key = late_key(op).bits;
  for (uint32_t i = 0; i < Door::kLateNets; i++)
    if (load_acquire(d.late_ops[i]) == key && load_acquire(d.late_nets[i].key) == key) return &d.late_nets[i];
  return nullptr;
}

void count_late_bytes(ci_net_record& net, const Proxy& proxy, StepState entered, int64_t bytes) {
  if (entered == kSendNetwork || entered == kRecvArrival) add(net.posted_bytes, bytes);
  if (entered == kRecvFlush) add(net.transmitted_bytes, bytes);
  if (entered != kStepOver) return;
  if (load_relaxed(proxy.is_send) != 0) add(net.transmitted_bytes, bytes);
  add(net.done_bytes, bytes);
}

void note_late_move(Door& d, Token op, const Proxy& proxy, StepState next, uint64_t bytes) {
  LateNet* late = late_net_of(d, op);
  if (late == nullptr) return;
  store_relaxed(late->net.progress_ns, mono_ns());
  count_late_bytes(late->net, proxy, next, static_cast<int64_t>(bytes));
}

void note_late_stop(Door& d, Token op) {
  LateNet* late = late_net_of(d, op);
  if (late == nullptr) return;
  const int64_t now = mono_ns();
  store_relaxed(late->net.progress_ns, now);
  store_relaxed(late->net.last_event_ns, now);
  add(late->net.n_proxy_ops_done, 1);  // last: it is what the drain thread waits for
}

// The clock is read once for each move, and not for a repeated state (credit is polled for).
void move_step(Door& d, Proxy& proxy, uint32_t at, StepState next, uint64_t bytes) {
  const uint32_t before = exchange(proxy.states[at], next);
  if (before == next || before >= kStepStates) return;
  if (bytes != 0) store_relaxed(proxy.bytes[at], bytes);
  const Token op = Token::of(load_relaxed(proxy.op));
  ci_slot* slot = find_op(d, op);
  if (slot == nullptr) return note_late_move(d, op, proxy, next, load_relaxed(proxy.bytes[at]));
  const int64_t now = mono_ns();
  NetState& net = net_of(d, op);
  leave(net, static_cast<StepState>(before), now);
  enter(net, next, now);
  count_bytes(*slot, proxy, next, static_cast<int64_t>(load_relaxed(proxy.bytes[at])));
  store_relaxed(slot->net_progress_ns, now);
  show_side(*slot, net);
}

bool is_free(Door& d, const Proxy& proxy, uint32_t word) {
  return (word & kInUse) == 0 || find_op(d, Token::of(load_relaxed(proxy.op))) == nullptr;
}

void* new_proxy(Door& d, Token op, bool is_send) {
  for (uint32_t i = 0; i < kTries; i++) {
    const uint32_t at = add(d.next_proxy, 1) % Door::kProxies;
    Proxy& proxy = d.proxies[at];
    uint32_t word = load_relaxed(proxy.word);
    const uint32_t generation = ((word >> 8) + 1) & kGenerationMask;
    if (!is_free(d, proxy, word) || !cas(proxy.word, word, generation << 8)) continue;
    store_relaxed(proxy.is_send, is_send ? 1 : 0);
    store_relaxed(proxy.op, op.bits);
    for (uint32_t& state : proxy.states) store_relaxed(state, kStepOver);
    store_release(proxy.word, generation << 8 | kInUse);
    return pointer_of(make_token({kProxyToken, 0, at, generation, d.salt}));
  }
  d.recorder->lose_marker();
  return void_token(kIgnored);
}

void note_proxy_start(Door& d, Token op, ci_slot& slot, bool is_send) {
  const int64_t now = mono_ns();
  NetState& net = net_of(d, op);
  add(is_send ? net.n_sends : net.n_recvs, 1);
  if (load_relaxed(net.first_event_ns) == 0) store_relaxed(net.first_event_ns, now);
  if (load_relaxed(slot.net_progress_ns) == 0) store_relaxed(slot.net_progress_ns, now);
  if ((flags_of(slot) & CI_SLOTFLAG_NETWORK_SEEN) == 0) raise_flags(slot, CI_SLOTFLAG_NETWORK_SEEN);
  show_side(slot, net);
}

// Up to now, where some step still waits.
uint32_t waited_us(const NetState& net, StepState state, int64_t now) {
  const int64_t since = load_relaxed(net.since_ns[state]);
  const bool is_waiting = load_relaxed(net.in_state[state]) > 0 && since != 0 && now > since;
  const int64_t us = (load_relaxed(net.waited_ns[state]) + (is_waiting ? now - since : 0)) / 1000;
  return us > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(us);
}

Token op_of_task(Door& d, void* task) {
  const Token token = token_of(task);
  return token.type() == kFanTaskToken ? op_of_fan(d, fan_token_of(task)) : token;
}

}  // namespace

void* start_proxy_op(void*, void* task, const ProxyOpPart& part) {
  Door* d = door();
  if (d == nullptr) return void_token(kIgnored);
  // First of all: the rest of another process's op means nothing here, and may look like ours.
  if (part.pid != d->pid) {
    add(d->header->nccl_foreign_events, 1);
    return void_token(kDetached);
  }
  const Token token = token_of(task);
  if (token.type() == kVoidToken) return void_token(kIgnored);
  if (token.type() != kTaskToken && token.type() != kFanTaskToken) return note_unknown(*d);
  const CallbackTimer timer(*d, is_sampled(token));
  const Token op = op_of_task(*d, task);
  ci_slot* slot = find_op(*d, op);
  if (slot == nullptr) return note_stale(*d);
  void* handle = new_proxy(*d, op, part.is_send != 0);
  if (token_of(handle).type() == kProxyToken) note_proxy_start(*d, op, *slot, part.is_send != 0);
  return handle;
}

void* start_proxy_step(void* proxy_op, const ProxyStepPart& part) {
  Door* d = door();
  if (d == nullptr) return void_token(kIgnored);
  const Token token = token_of(proxy_op);
  if (token.type() == kVoidToken) return void_token(kIgnored);
  if (token.type() != kProxyToken) return note_unknown(*d);
  Proxy* proxy = find_proxy(*d, token);
  if (proxy == nullptr) return void_token(kIgnored);
  const bool is_timed = is_step_to_sample(token, part.step);
  const CallbackTimer timer(*d, is_timed);
  const uint32_t at = static_cast<uint32_t>(part.step) % kProxyStepsInFlight;
  const Token op = Token::of(load_relaxed(proxy->op));
  if (find_op(*d, op) != nullptr) {
    NetState& net = net_of(*d, op);
    add(load_relaxed(proxy->is_send) != 0 ? net.n_send_steps : net.n_recv_steps, 1);
    move_step(*d, *proxy, at, kStepOver, 0);  // what was left there
    store_relaxed(proxy->bytes[at], 0);
  }
  const uint32_t place = at | (is_timed ? kSampledStep : 0);
  return pointer_of(make_token({kStepToken, place, token.slot(), token.generation(), token.salt()}));
}

void note_proxy_step(Door& d, Token token, int32_t state, const StateArgs* args) {
  const StepState next = step_state_of(state);
  if (next == kStepOver) {
    note_unknown(d);
    return;
  }
  Proxy* proxy = find_proxy(d, token);
  if (proxy == nullptr) return;
  move_step(d, *proxy, token.comm() % kProxyStepsInFlight, next, args != nullptr ? args->trans_bytes : 0);
}

void stop_proxy_step(Door& d, Token token) {
  Proxy* proxy = find_proxy(d, token);
  if (proxy != nullptr) move_step(d, *proxy, token.comm() % kProxyStepsInFlight, kStepOver, 0);
}

void stop_proxy_op(Door& d, Token token) {
  Proxy* proxy = find_proxy(d, token);
  if (proxy == nullptr) return;
  const bool is_send = load_relaxed(proxy->is_send) != 0;
  const Token op = Token::of(load_relaxed(proxy->op));
  for (uint32_t at = 0; at < kProxyStepsInFlight; at++) move_step(d, *proxy, at, kStepOver, 0);
  uint32_t word = token.generation() << 8 | kInUse;
  if (!cas(proxy->word, word, token.generation() << 8)) return;
  ci_slot* slot = find_op(d, op);
  if (slot == nullptr) return note_late_stop(d, op);
  NetState& net = net_of(d, op);
  const int64_t now = mono_ns();
  add(is_send ? net.n_sends_done : net.n_recvs_done, 1);
  store_relaxed(net.last_event_ns, now);
  store_relaxed(slot->net_progress_ns, now);
  show_side(*slot, net);
}

namespace {

void fill_net(const NetState& net, const ci_slot& slot, const ci_record& record, ci_net_record* out) {
  const int64_t now = mono_ns();
  *out = {};
  out->kind = CI_RECORDKIND_NET;
  out->op = record.op;
  out->state = record.state;
  out->flags = record.flags;
  out->comm_index = record.comm_index;
  out->op_seq = record.op_seq;
  out->match_seq = record.match_seq;
  out->start_ns = record.start_ns;
  out->first_event_ns = load_relaxed(net.first_event_ns);
  out->n_proxy_ops = load_relaxed(net.n_sends) + load_relaxed(net.n_recvs);
  out->n_proxy_ops_done = load_relaxed(net.n_sends_done) + load_relaxed(net.n_recvs_done);
  out->last_event_ns = out->n_proxy_ops == out->n_proxy_ops_done ? load_relaxed(net.last_event_ns) : 0;
  out->progress_ns = load_relaxed(slot.net_progress_ns);
  out->posted_bytes = load_relaxed(slot.net_posted_bytes);
  out->transmitted_bytes = load_relaxed(slot.net_transmitted_bytes);
  out->done_bytes = load_relaxed(slot.net_done_bytes);
  out->n_send_steps = load_relaxed(net.n_send_steps);
  out->n_recv_steps = load_relaxed(net.n_recv_steps);
  out->wait_side = load_relaxed(slot.wait_side);
  out->gpu_wait_us = waited_us(net, kSendGpu, now);
  out->peer_wait_us = waited_us(net, kSendPeer, now);
  out->network_wait_us = waited_us(net, kSendNetwork, now);
  out->arrival_wait_us = waited_us(net, kRecvArrival, now);
}

// Its op is over, its proxy ops are not. False when there is no place for it.
bool keep_late(Door& d, Token op, int64_t end_ns, const ci_net_record& net) {
  for (uint32_t i = 0; i < Door::kLateNets; i++) {
    uint64_t none = 0;
    if (load_relaxed(d.late_ops[i]) != 0 || !cas(d.late_ops[i], none, op.bits)) continue;
    LateNet& late = d.late_nets[i];
    store_relaxed(late.end_ns, end_ns);
    store_words(&late.net, &net, sizeof net);
    store_release(late.key, op.bits);
    add(d.n_late_nets, 1);
    return true;
  }
  return false;
}

}  // namespace

bool make_net_record(Recorder& recorder, int at, const ci_record& record, ci_net_record* out) {
  Door* d = door();
  if (d == nullptr || d->recorder != &recorder) return false;
  const ci_slot& slot = recorder.slots[at];
  const NetState& net = d->nets[at];
  if (load_acquire(net.generation) != slot_generation(load_relaxed(slot.state_word))) return false;
  fill_net(net, slot, record, out);
  if (record.state != CI_OPSTATE_DONE || out->n_proxy_ops_done >= out->n_proxy_ops) return true;
  const Handle op = {kTaskToken, 0, static_cast<uint32_t>(at), load_relaxed(net.generation), d->salt};
  return !keep_late(*d, late_key(make_token(op)), record.end_ns, *out);
}

void publish_late_nets(Door& d, int64_t now) {
  if (load_acquire(d.n_late_nets) == 0) return;
  for (uint32_t i = 0; i < Door::kLateNets; i++) {
    LateNet& late = d.late_nets[i];
    if (load_acquire(d.late_ops[i]) == 0 || load_acquire(late.key) != load_relaxed(d.late_ops[i])) continue;
    ci_net_record net;
    load_words(&net, &late.net, sizeof net);
    const bool is_whole = load_acquire(late.net.n_proxy_ops_done) >= net.n_proxy_ops;
    if (!is_whole && !has_lasted(now, load_relaxed(late.end_ns), kGraceNs)) continue;
    if (is_whole) load_words(&net, &late.net, sizeof net);
    if (is_whole) net.wait_side = CI_WAITSIDE_NONE;
    else net.last_event_ns = 0;
    store_relaxed(late.key, 0);
    store_release(d.late_ops[i], 0);
    sub(d.n_late_nets, 1);
    d.recorder->publish_net(&net);
  }
}

}  // namespace ci::nccl
