// Stops and states: the handle tells what they belong to.
#include "door.h"
#include "sampling.h"

namespace ci::nccl {
namespace {

constexpr int32_t kNoState = 0;

bool is_timed(Token token) { return token.type() == kStepToken ? is_sampled_step(token) : is_sampled(token); }

bool is_channel_over(Door& d, Token token) {
  const ci_slot* slot = find_op(d, token);
  return slot == nullptr || (load_relaxed(slot->stopped_mask) >> token.channel() & 1) != 0;
}

void stop_call(Door& d, Token token) {
  if (ci_slot* slot = find_op(d, token)) raise_flags(*slot, CI_SLOTFLAG_API_RETURNED);
}

void stop_of(Door& d, Token token, void* handle) {
  switch (token.type()) {
    case kCallToken: return stop_call(d, token);
    case kTaskToken: return stop_task(d, token);
    case kChannelToken: stop_channel(d, token, 0); return;
    case kGroupToken: return leave_group_call(d, token);
    case kPlanToken:
    case kVoidToken: return;
    case kLaunchToken: return stop_launch(d, token);
    case kFanCallToken: return note_fan_call_returned(d, fan_token_of(handle));
    case kFanTaskToken: return stop_fan_task(d, fan_token_of(handle));
    case kFanChannelToken: return stop_fan_channel(d, fan_token_of(handle), 0);
    case kProxyToken: return stop_proxy_op(d, token);
    case kStepToken: return stop_proxy_step(d, token);
    case kCopyToken: return stop_copy(d, token, kNoState);
  }
  note_unknown(d);
}

void record_state_of(Door& d, Token token, void* handle, int32_t state, const StateArgs* args) {
  const int64_t gpu_ns = state == kKernelChStop && args != nullptr ? static_cast<int64_t>(args->gpu_ns) : 0;
  switch (token.type()) {
    case kVoidToken: return;
    case kChannelToken:
      if (state != kKernelChStop) break;
      stop_channel(d, token, gpu_ns);
      return;
    case kFanChannelToken:
      if (state == kKernelChStop) return stop_fan_channel(d, fan_token_of(handle), gpu_ns);
      break;
    case kGroupToken:
      if (state == kGroupStartApiStop) return;
      if (state == kGroupEndApiStart) return end_group_call(d, token);
      break;
    case kStepToken: return note_proxy_step(d, token, state, args);
    case kProxyToken:
      if (state == kProxyOpInProgress) return;
      break;
    case kCopyToken:
      if (state == kCeCollStart || state == kCeCollComplete) return stop_copy(d, token, state);
      break;
  }
  note_unknown(d);
}

}  // namespace

void* start_known() { return void_token(kIgnored); }

void* start_unknown() {
  Door* d = door();
  return d != nullptr ? note_unknown(*d) : void_token(kIgnored);
}

namespace {

// Kept apart, so that the others pay for nothing but themselves.
__attribute__((noinline)) void stop_timed(Door& d, void* handle) {
  const CallbackTimer timer(d, true);
  stop_of(d, token_of(handle), handle);
}

__attribute__((noinline)) void record_timed_state(Door& d, void* handle, int32_t state, const StateArgs* args) {
  const CallbackTimer timer(d, true);
  record_state_of(d, token_of(handle), handle, state, args);
}

}  // namespace

Result stop_event(void* handle) {
  Door* d = handle != nullptr ? door() : nullptr;
  if (d == nullptr) return kSuccess;
  const Token token = token_of(handle);
  if (token.type() == kChannelToken && is_channel_over(*d, token)) return kSuccess;  // its state came before
  if (is_timed(token)) stop_timed(*d, handle);
  else stop_of(*d, token, handle);
  return kSuccess;
}

Result record_event_state(void* handle, int32_t state, StateArgs* args) {
  Door* d = handle != nullptr ? door() : nullptr;
  if (d == nullptr) return kSuccess;
  const Token token = token_of(handle);
  if (is_timed(token)) record_timed_state(*d, handle, state, args);
  else if (token.type() != kChannelToken || state != kKernelChStop || args == nullptr)
    record_state_of(*d, token, handle, state, args);
  else return stop_channel(*d, token, static_cast<int64_t>(args->gpu_ns));  // most of them
  return kSuccess;
}

}  // namespace ci::nccl
