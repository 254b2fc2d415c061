// Handles and contexts given to NCCL: tagged integers, as in slots.h. Some come back in another process (PXN) or
// long after what they meant is over, so nothing is ever read through them before type, salt and generation hold.
#ifndef COMMINSIGHT_NCCL_TOKEN_H
#define COMMINSIGHT_NCCL_TOKEN_H
#include "slots.h"

namespace ci::nccl {

enum TokenType : uint32_t {  // 1 is the C door's
  kCallToken = 2,      // an op, named by its call
  kTaskToken = 3,      // an op, named by its task
  kChannelToken = 4,   // a channel of an op; the channel stands in place of the communicator
  kGroupToken = 5,     // a group call
  kPlanToken = 6,      // a Group event: all tasks of one launch
  kLaunchToken = 7,    // a launch of a group call
  kFanCallToken = 8,   // a P2P call that may be folded
  kFanTaskToken = 9,   // a task of a folded call
  kFanChannelToken = 10,
  kProxyToken = 11,
  kStepToken = 12,
  kVoidToken = 13,     // stands for nothing that is kept; which nothing, says the communicator's place
  kCopyToken = 14,     // an op, named by its copy engine task
  kContextToken = 15,
};

enum VoidReason : uint32_t {
  kIgnored,   // an event that says nothing, or of an op that is over
  kRefused,   // a call that is not recorded: neither are its children
  kCaptured,  // a call while a graph was captured: its tasks are replays
  kDetached,  // a proxy op of another process
};

// A handle in one register, its parts read as they are needed. Where it has them they are those of ci::Handle.
struct Token {
  uint64_t bits = 0;

  static Token of(uint64_t bits) {
    Token token;
    token.bits = bits;
    return token;
  }
  uint32_t type() const { return static_cast<uint32_t>(bits >> 60); }
  uint32_t comm() const { return static_cast<uint32_t>(bits >> 50) & 1023; }
  uint32_t channel() const { return static_cast<uint32_t>(bits >> 50) & 63; }
  uint32_t slot() const { return static_cast<uint32_t>(bits >> 38) & 4095; }
  uint32_t generation() const { return static_cast<uint32_t>(bits >> 16) & kGenerationMask; }
  uint32_t salt() const { return static_cast<uint32_t>(bits) & 65535; }
};

inline Token make_token(const Handle& parts) { return Token::of(parts.encode()); }
inline Token token_of(const void* handle) { return Token::of(reinterpret_cast<uint64_t>(handle)); }
inline void* pointer_of(uint64_t bits) { return reinterpret_cast<void*>(bits); }
inline void* pointer_of(Token token) { return pointer_of(token.bits); }
inline void* void_token(VoidReason reason) { return pointer_of(uint64_t{kVoidToken} << 60 | uint64_t{reason} << 50); }
inline bool is_void(Token token, VoidReason reason) {
  return token.type() == kVoidToken && token.comm() == static_cast<uint32_t>(reason);
}
// The same thing by another name.
inline Token renamed(Token token, TokenType type) {
  return Token::of((token.bits & ~(uint64_t{15} << 60)) | uint64_t{type} << 60);
}
inline Token channel_of_task(Token task, uint32_t channel) {
  const uint64_t rest = task.bits & ((uint64_t{1} << 50) - 1);
  return Token::of(rest | uint64_t{channel} << 50 | uint64_t{kChannelToken} << 60);
}

constexpr uint64_t kContextMagic = 0xC157;

inline void* context_token(uint32_t comm_token) {
  return pointer_of(uint64_t{kContextToken} << 60 | uint64_t{comm_token} << 16 | kContextMagic);
}
inline bool is_context(const void* context, uint32_t* comm_token) {
  const auto bits = reinterpret_cast<uint64_t>(context);
  *comm_token = static_cast<uint32_t>(bits >> 16);
  return bits >> 48 == uint64_t{kContextToken} << 12 && (bits & 0xFFFF) == kContextMagic;
}

}  // namespace ci::nccl
#endif
